//! `primacy watch`: a line at every change of the election.

use std::io;
use std::os::fd::AsFd as _;
use std::time::Duration;

use jiff::{Timestamp, Zoned};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use primacy::store::{Snapshot, StoreError};

use crate::cli::WatchArgs;
use crate::failure::Failure;
use crate::output::Output;
use crate::output::change::{self, Change, beginning, changes};
use crate::output::lead::Lead;
use crate::output::schema::{self, State};
use crate::output::style::Tone;
use crate::reach::Reach;

/// While the store is away it is asked for hints anew this often.
pub(super) const AWAY: Duration = Duration::from_secs(1);

pub(super) async fn run(args: &WatchArgs, reach: &mut Reach, output: &mut Output) -> Result<u8, Failure> {
    let mut watch = Watch { args, output, told: 0, reachable: true };
    let mut hints = reach.hints().await;
    // The store must be reached once, within --wait; later it may go away and come back.
    let mut last = reach.snapshot().await?.now();
    watch.tell(reach, last.as_ref(), &beginning(reach.election(), last.as_ref()))?;
    while !watch.is_done(last.as_ref()) {
        tokio::select! {
            () = hints.next() => {}
            () = tokio::time::sleep(watch.pause(last.as_ref())) => {}
        }
        match reach.look().await {
            Ok(answer) => {
                let seen = answer.now();
                if watch.found_again(reach, seen.as_ref())? {
                    hints = reach.hints().await;
                }
                for change in changes(last.as_ref(), seen.as_ref()) {
                    watch.tell(reach, seen.as_ref(), &change)?;
                }
                last = seen;
            }
            Err(error) => watch.lost(reach, &error)?,
        }
    }
    Ok(0)
}

struct Watch<'a> {
    args: &'a WatchArgs,
    output: &'a mut Output,
    told: u64,
    reachable: bool,
}

impl Watch<'_> {
    fn is_done(&self, last: Option<&Snapshot>) -> bool {
        let led = matches!(Lead::of(last), Lead::Led(..));
        self.is_full()
            || (self.args.until_leader && self.reachable && led)
            || self.output.is_closed()
            || reader_is_gone()
    }

    fn is_full(&self) -> bool {
        self.args.count.is_some_and(|count| self.told >= count)
    }

    /// Until the next look: a lease that runs out meanwhile is noticed when it does.
    fn pause(&self, last: Option<&Snapshot>) -> Duration {
        if !self.reachable {
            return AWAY;
        }
        let left = last.and_then(Snapshot::remaining).map(|left| left + Duration::from_millis(1));
        left.map_or(self.args.interval, |left| left.min(self.args.interval))
    }

    fn lost(&mut self, reach: &Reach, error: &StoreError) -> Result<(), Failure> {
        if std::mem::replace(&mut self.reachable, false) {
            self.tell(reach, None, &change::lost(&error.to_string()))?;
        }
        Ok(())
    }

    /// Says so if the store was away.
    fn found_again(&mut self, reach: &Reach, seen: Option<&Snapshot>) -> Result<bool, Failure> {
        let was_away = !std::mem::replace(&mut self.reachable, true);
        if was_away {
            self.tell(reach, seen, &change::found())?;
        }
        Ok(was_away)
    }

    fn tell(&mut self, reach: &Reach, seen: Option<&Snapshot>, change: &Change<'_>) -> Result<(), Failure> {
        if self.is_full() {
            return Ok(());
        }
        self.told += 1;
        let palette = self.output.palette;
        let time = palette.paint(&Zoned::now().strftime("%H:%M:%S%.3f").to_string(), Tone::Faint);
        self.output.text(&format!("{time}  {}\n", palette.paint(&change.text, change.tone)))?;
        let at_unix_ms = Timestamp::now().as_millisecond();
        let now = change.is_known().then(|| State::of(reach.election(), seen));
        self.output.json_line(&schema::Change::new(at_unix_ms, &change.clone().into(), now.as_ref()))
    }
}

/// Whether the reader of standard output through a pipe has gone: without a change there is no write to find it out by.
pub(super) fn reader_is_gone() -> bool {
    let stdout = io::stdout();
    let mut fds = [PollFd::new(stdout.as_fd(), PollFlags::empty())];
    matches!(poll(&mut fds, PollTimeout::ZERO), Ok(1..))
        && fds[0].revents().is_some_and(|events| events.contains(PollFlags::POLLERR))
}
