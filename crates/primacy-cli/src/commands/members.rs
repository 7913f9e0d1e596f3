//! `primacy members`: who takes part by the `registers` protocol, and what happens among them.

use std::time::Duration;

use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned};
use primacy::store::{MemberEvent, StoreError};

use super::status::verdict;
use super::watch::{AWAY, reader_is_gone};
use crate::cli::MembersArgs;
use crate::failure::Failure;
use crate::foreign_text::shorten;
use crate::output::schema::{self, MemberEventEntry, Membership, Millis, SCHEMA};
use crate::output::style::Tone;
use crate::output::{Output, members};
use crate::reach::Reach;

/// How many events are shown unless told otherwise.
const SHOWN: u32 = 10;
/// How many a look for new ones asks for, before it asks for all.
const AT_ONCE: u32 = 50;
/// More than any store keeps.
const ALL: u32 = 10_000;

pub(super) async fn run(args: &MembersArgs, reach: &mut Reach, output: &mut Output) -> Result<u8, Failure> {
    if args.watch {
        return watch(args, reach, output).await;
    }
    let answer = reach.members().await?;
    let snapshot = reach.snapshot().await?.now();
    let shown = args.events.unwrap_or(SHOWN);
    let events = if shown == 0 { Vec::new() } else { reach.events(shown).await?.value };
    let (seen, age) = (answer.now(), answer.age());
    let (seen, snapshot, election) = (seen.as_ref(), snapshot.as_ref(), reach.election());
    output.text(&members::report(election, seen, snapshot, &reach.location(), age, output.palette))?;
    let history = members::events(&events, &TimeZone::system(), output.palette);
    if !history.is_empty() {
        output.text(&format!("\n{history}"))?;
    }
    output.json(&schema::Members {
        schema: SCHEMA,
        store: reach.location(),
        answer_age_ms: Millis(age),
        now: Membership::of(election, seen, snapshot),
        events: events.iter().map(MemberEventEntry::from).collect(),
    })?;
    Ok(verdict(snapshot))
}

async fn watch(args: &MembersArgs, reach: &mut Reach, output: &mut Output) -> Result<u8, Failure> {
    let mut watch = Watch { args, output, told: 0, last: 0, reachable: true };
    // The store must be reached once, within --wait; later it may go away and come back. Events first: what happens
    // between the two looks is told, and never left out.
    let mut past = reach.events(args.events.unwrap_or(0).max(1)).await?.value;
    let seen = reach.members().await?.now();
    let snapshot = reach.snapshot().await?.now();
    let now = Membership::of(reach.election(), seen.as_ref(), snapshot.as_ref());
    watch.tell("now", &members::summary(seen.as_ref(), snapshot.as_ref()), Tone::Plain, Some(now))?;
    watch.last = past.first().map_or(0, |event| event.number);
    past.truncate(args.events.unwrap_or(0) as usize);
    for event in past.iter().rev() {
        watch.happened(event)?;
    }
    let mut hints = reach.hints().await;
    while !watch.is_done() {
        tokio::select! {
            () = hints.next() => {}
            () = tokio::time::sleep(watch.pause()) => {}
        }
        match watch.news(reach).await {
            Ok(news) => {
                if !std::mem::replace(&mut watch.reachable, true) {
                    watch.tell("reachable", "the store answers again", Tone::Plain, None)?;
                    hints = reach.hints().await;
                }
                watch.catch_up(&news)?;
            }
            Err(error) => watch.lost(&error)?,
        }
    }
    Ok(0)
}

struct Watch<'a> {
    args: &'a MembersArgs,
    output: &'a mut Output,
    told: u64,
    /// The number of the last event that was told, or need not be.
    last: u64,
    reachable: bool,
}

impl Watch<'_> {
    fn is_full(&self) -> bool {
        self.args.count.is_some_and(|count| self.told >= count)
    }

    fn is_done(&self) -> bool {
        self.is_full() || self.output.is_closed() || reader_is_gone()
    }

    fn pause(&self) -> Duration {
        if self.reachable { self.args.interval } else { AWAY }
    }

    /// The last events, the newest first, as far back as the last that was told if they are still there.
    async fn news(&self, reach: &mut Reach) -> Result<Vec<MemberEvent>, StoreError> {
        let news = reach.look_at_events(AT_ONCE).await?;
        match news.last() {
            Some(oldest) if oldest.number > self.last + 1 => reach.look_at_events(ALL).await,
            _ => Ok(news),
        }
    }

    fn catch_up(&mut self, news: &[MemberEvent]) -> Result<(), Failure> {
        let (Some(newest), Some(oldest)) = (news.first(), news.last()) else { return Ok(()) };
        if newest.number < self.last {
            self.last = 0;
            self.tell("restarted", "the events are counted anew: the election was set up again", Tone::Notice, None)?;
        }
        if let Some(missing) = oldest.number.checked_sub(self.last + 1).filter(|missing| *missing > 0) {
            let text = format!("{missing} events have happened that are not kept any more");
            self.tell("trimmed", &text, Tone::Notice, None)?;
        }
        let told = std::mem::replace(&mut self.last, newest.number);
        for event in news.iter().rev().filter(|event| event.number > told) {
            self.happened(event)?;
        }
        Ok(())
    }

    fn lost(&mut self, error: &StoreError) -> Result<(), Failure> {
        if std::mem::replace(&mut self.reachable, false) {
            self.tell("unreachable", &shorten(&error.to_string(), 300), Tone::Bad, None)?;
        }
        Ok(())
    }

    fn happened(&mut self, event: &MemberEvent) -> Result<(), Failure> {
        let (text, tone) = members::told(&event.kind);
        let happened = MemberEventEntry::from(event);
        self.line(happened.event(), &text, tone, Some(happened), None)
    }

    fn tell(&mut self, event: &'static str, text: &str, tone: Tone, now: Option<Membership>) -> Result<(), Failure> {
        self.line(event, text, tone, None, now)
    }

    fn line(
        &mut self,
        event: &'static str,
        text: &str,
        tone: Tone,
        happened: Option<MemberEventEntry>,
        now: Option<Membership>,
    ) -> Result<(), Failure> {
        if self.is_full() {
            return Ok(());
        }
        self.told += 1;
        let palette = self.output.palette;
        let time = palette.paint(&Zoned::now().strftime("%H:%M:%S%.3f").to_string(), Tone::Faint);
        self.output.text(&format!("{time}  {}\n", palette.paint(text, tone)))?;
        let at_unix_ms = Timestamp::now().as_millisecond();
        self.output.json_line(&schema::MembersChange {
            schema: SCHEMA,
            at_unix_ms,
            event,
            text: text.to_owned(),
            happened,
            now,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::sample::label;
    use crate::output::testing::captured;
    use expect_test::expect;
    use primacy::registers::{MemberEventKind, ProcessId};

    fn joined(numbers: std::ops::RangeInclusive<u64>) -> Vec<MemberEvent> {
        let event = |number: u64| {
            let process = ProcessId::from_bits(number.into());
            let kind = MemberEventKind::Joined { process, label: label(&format!("web-{number}")), came_back: None };
            MemberEvent { number, unix_ms: 0, kind }
        };
        numbers.rev().map(event).collect()
    }

    #[test]
    fn events_are_told_once_and_gaps_are_said() {
        let (mut output, out, _) = captured(false);
        let args = MembersArgs { watch: true, events: None, count: None, interval: Duration::from_secs(1) };
        let mut watch = Watch { args: &args, output: &mut output, told: 0, last: 7, reachable: true };
        for news in [joined(6..=9), joined(6..=9), joined(29..=30), Vec::new(), joined(1..=2)] {
            watch.catch_up(&news).expect("the output takes it");
        }
        let lines: Vec<_> = out.text().lines().filter_map(|line| Some(line.split_once("  ")?.1.to_owned())).collect();
        expect![[r#"
            web-8 joined
            web-9 joined
            19 events have happened that are not kept any more
            web-29 joined
            web-30 joined
            the events are counted anew: the election was set up again
            web-1 joined
            web-2 joined"#]]
        .assert_eq(&lines.join("\n"));
    }
}
