//! An interpreter that puts candidates and a store on a stage, with explicit times, and prints what they do.
//!
//! ```text
//! candidate a lease=10s grace=2s    a candidate called a
//! standing a ahead=1 others=2       what the store tells it of the waiting order
//! at 1.5s                           it is now 1.5 s
//! a campaign|withdraw|resign|drained|wake|hint|suspended|prefer RANK|prefer never|space SLOT|floor N
//! a apply                           the store carries out a's call; the answer is under way
//! a answer                          and the answer arrives
//! a not-done | unknown              a's call ends with this error
//! a late N                          the store carries out a's abandoned call N now; nobody hears of it
//! a late-answer N                   … and the answer reaches a
//! run 20s                           until then, calls are answered at once and wakes are on time
//! run 20s drain                     and work stops as soon as it is told to
//! store row|delete|save|restore|depose|pause|resume|promote LABEL|promote-id a|empty|gone|here|stuck|age 5s
//! view a
//! ```

pub(crate) mod store;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use primacy_core::lease::{
    Announcement, CallError, CallId, Candidate, Config, Context, Effect, Event, HandoverRequest, Reply, Request,
    Sighting, Standing,
};
use primacy_core::select::{Rank, Turn};
use primacy_core::{CandidateId, Instant, Label, Timing, TimingSettings, Token};
use store::Row;

#[derive(Default)]
pub(crate) struct Stage {
    now: Instant,
    cast: BTreeMap<String, Actor>,
    row: Row,
    saved: Row,
    printed: String,
}

struct Actor {
    candidate: Candidate,
    standing: Standing,
    call: Option<Call>,
    abandoned: BTreeMap<CallId, Call>,
    /// Its work has been told to stop and has not said that it has.
    told: bool,
}

struct Call {
    id: CallId,
    request: Request,
    reply: Option<Reply>,
}

impl Stage {
    /// Carries out one command and returns what it prints.
    pub(crate) fn command(&mut self, line: &str) -> String {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            ["candidate", name, settings @ ..] => self.enter(name, settings),
            ["standing", name, settings @ ..] => {
                let standing = &mut self.actor(name).standing;
                for (key, value) in settings.iter().map(|setting| pair(setting)) {
                    let value = value.parse().expect("a number");
                    match key {
                        "ahead" => standing.ahead = value,
                        "others" => standing.others = value,
                        _ => panic!("unknown setting in {line:?}"),
                    }
                }
            }
            ["at", time] => self.now = Instant::ZERO + span(time),
            ["run", until] => self.run(Instant::ZERO + span(until), false),
            ["run", until, "drain"] => self.run(Instant::ZERO + span(until), true),
            ["store", order @ ..] => self.store(order),
            ["view", name] => self.view(name),
            [name, verb @ ..] => {
                if let Err(nothing) = self.act(name, verb) {
                    self.print(name, nothing);
                }
            }
            [] => {}
        }
        std::mem::take(&mut self.printed)
    }

    fn actor(&mut self, name: &str) -> &mut Actor {
        self.cast.get_mut(name).unwrap_or_else(|| panic!("nobody is called {name:?}"))
    }

    fn print(&mut self, who: &str, what: &str) {
        writeln!(self.printed, "{} {who}: {what}", seconds(self.now)).expect("a String takes every write");
    }

    fn enter(&mut self, name: &str, settings: &[&str]) {
        let settings: BTreeMap<_, _> = settings.iter().map(|setting| pair(setting)).collect();
        let mut timing = TimingSettings::new(settings.get("lease").map_or(Timing::DEFAULT_LEASE, |lease| span(lease)));
        if let Some(grace) = settings.get("grace") {
            timing.grace = span(grace);
        }
        let label = Label::new(*settings.get("label").unwrap_or(&name)).expect("a valid label");
        let id = CandidateId::from_bits(self.cast.len() as u128 + 1);
        let turn = settings.get("turn").map_or(Turn::Arrival, |turn| turn.parse().expect("a turn"));
        let others_hear_late = settings.contains_key("others");
        let config =
            Config { turn, others_hear_late, ..Config::new(id, label, Timing::new(timing).expect("valid timing")) };
        let actor = Actor {
            candidate: Candidate::new(config),
            standing: Standing::default(),
            call: None,
            abandoned: BTreeMap::new(),
            told: false,
        };
        self.cast.insert(name.to_owned(), actor);
    }

    fn act(&mut self, name: &str, verb: &[&str]) -> Result<(), &'static str> {
        match verb {
            ["campaign"] => self.handle(name, Event::Campaign),
            ["withdraw"] => self.handle(name, Event::Withdraw),
            ["resign"] => self.handle(name, Event::Resign),
            ["drained"] => self.handle(name, Event::Drained),
            ["wake"] => self.handle(name, Event::Wake),
            ["look-at", at] => self.handle(name, Event::LookAt(Instant::ZERO + span(at))),
            ["retime", lease] => {
                let timing = Timing::with_lease(span(lease)).expect("valid timing");
                self.handle(name, Event::SetTiming(timing));
            }
            ["prefer", "never"] => self.handle(name, Event::Prefer(None)),
            ["floor", token] => {
                let token = token.parse().ok().and_then(Token::new).expect("a token");
                self.handle(name, Event::RaiseFloor(token));
            }
            ["space", slot] => self.handle(name, Event::SetSlot(span(slot))),
            ["prefer", rank] => self.handle(name, Event::Prefer(Some(rank.parse().expect("a rank")))),
            ["hint"] => self.handle(name, Event::Hint),
            ["suspended"] => self.handle(name, Event::Suspended),
            ["apply"] => self.apply(name)?,
            ["answer"] => self.answer(name)?,
            ["not-done"] => self.fail(name, CallError::NotDone)?,
            ["unknown"] => self.fail(name, CallError::Unknown)?,
            ["late", call] => self.late(name, call)?,
            ["late-answer", call] => self.late_answer(name, call)?,
            _ => panic!("nobody can {verb:?}"),
        }
        Ok(())
    }

    fn handle(&mut self, name: &str, event: Event) {
        let now = self.now;
        let actor = self.actor(name);
        let mut effects = Vec::new();
        let mut entropy = || 0;
        actor.candidate.handle(event, &mut Context { now, entropy: &mut entropy, effects: &mut effects });
        for effect in effects {
            let shown = show_effect(&effect);
            self.carry_out(name, effect);
            self.print(name, &shown);
        }
    }

    fn carry_out(&mut self, name: &str, effect: Effect) {
        let actor = self.actor(name);
        match effect {
            Effect::Call { call, request, .. } => {
                assert!(actor.call.is_none(), "two calls at once");
                actor.call = Some(Call { id: call, request, reply: None });
            }
            Effect::Abandon { call } => {
                let late = actor.call.take().filter(|late| late.id == call).expect("the call under way");
                actor.abandoned.insert(call, late);
            }
            Effect::Drain { .. } | Effect::End { .. } => actor.told = true,
            Effect::Lead { .. } | Effect::Extend { .. } | Effect::Stopped => {}
        }
    }

    fn apply(&mut self, name: &str) -> Result<(), &'static str> {
        let call = self.actor(name).call.take().ok_or("has no call under way")?;
        let call = self.carried_out(name, call);
        self.actor(name).call = Some(call);
        Ok(())
    }

    fn carried_out(&mut self, name: &str, call: Call) -> Call {
        let standing = self.actor(name).standing;
        let reply = self.row.step(&call.request, standing);
        self.print("store", &show_reply(&reply));
        Call { reply: Some(reply), ..call }
    }

    fn answer(&mut self, name: &str) -> Result<(), &'static str> {
        if self.actor(name).call.as_ref().is_none_or(|call| call.reply.is_none()) {
            self.apply(name)?;
        }
        let call = self.actor(name).call.take().ok_or("has no call under way")?;
        let reply = call.reply.ok_or("has a call that was not carried out")?;
        self.handle(name, Event::Done { call: call.id, result: Ok(reply) });
        Ok(())
    }

    fn fail(&mut self, name: &str, error: CallError) -> Result<(), &'static str> {
        let call = self.actor(name).call.take().ok_or("has no call under way")?;
        let id = call.id;
        self.actor(name).abandoned.insert(id, call);
        self.handle(name, Event::Done { call: id, result: Err(error) });
        Ok(())
    }

    fn abandoned(&mut self, name: &str, call: &str) -> Result<Call, &'static str> {
        let call = CallId(call.parse().expect("a call's number"));
        self.actor(name).abandoned.remove(&call).ok_or("has abandoned no such call")
    }

    fn late(&mut self, name: &str, call: &str) -> Result<(), &'static str> {
        let call = self.abandoned(name, call)?;
        let call = self.carried_out(name, call);
        self.actor(name).abandoned.insert(call.id, call);
        Ok(())
    }

    fn late_answer(&mut self, name: &str, call: &str) -> Result<(), &'static str> {
        let call = self.abandoned(name, call)?;
        let reply = call.reply.ok_or("has a call that was not carried out")?;
        self.handle(name, Event::Done { call: call.id, result: Ok(reply) });
        Ok(())
    }

    /// Answers and wakes in the order of time, and by name at one time.
    fn run(&mut self, until: Instant, drain: bool) {
        let names: Vec<_> = self.cast.keys().cloned().collect();
        let mut steps = 0;
        loop {
            steps += 1;
            if steps > 2_000 {
                self.print("stage", "a hot loop");
                break;
            }
            if let Some(name) = names.iter().find(|name| self.cast[*name].call.is_some()) {
                self.answer(name).expect("it has a call under way");
                continue;
            }
            if let Some(name) = names.iter().find(|name| drain && self.cast[*name].told) {
                self.actor(name).told = false;
                self.handle(name, Event::Drained);
                continue;
            }
            let due = names.iter().filter_map(|name| Some((self.cast[name].candidate.deadline()?, name))).min();
            match due {
                Some((at, name)) if at <= until => {
                    self.now = self.now.max(at);
                    self.handle(name, Event::Wake);
                }
                _ => break,
            }
        }
        self.now = self.now.max(until);
    }

    fn store(&mut self, order: &[&str]) {
        match order {
            ["row"] => {}
            ["delete"] => self.row.record = None,
            ["save"] => self.saved = self.row.clone(),
            ["restore"] => self.row = self.saved.clone(),
            ["restore-row"] => self.row.record = self.saved.record.clone(),
            ["depose"] => self.row.handover(None),
            ["promote", label] => self.row.handover(Some(Label::new(*label).expect("a valid label"))),
            ["promote-id", name] => {
                let id = self.actor(name).candidate.config().id;
                self.row.handover(Some(Label::new(id.to_string()).expect("a valid label")));
            }
            ["pause"] => self.row.order(|record| record.paused = true),
            ["resume"] => self.row.order(|record| record.paused = false),
            ["empty"] => self.row.order(|record| {
                record.holder = None;
                record.version.beat += 1;
            }),
            ["gone"] => self.row.holder_gone = true,
            ["here"] => self.row.holder_gone = false,
            ["stuck"] => self.row.stuck = true,
            ["age", age] => self.row.age = Some(span(age)),
            _ => panic!("no such order: {order:?}"),
        }
        let shown = show_sighting(&self.row.sighting(Standing::default()));
        self.print("store", &shown);
    }

    fn view(&mut self, name: &str) {
        let view = self.actor(name).candidate.view();
        let deadline = self.actor(name).candidate.deadline();
        let mut shown = format!("{:?}", view.phase);
        for (key, value) in [
            ("why", view.why.map(|why| format!("{why:?}").replace("Label(\"", "").replace("\")", ""))),
            ("token", view.token.map(|token| token.to_string())),
            ("until", view.until.map(seconds)),
            ("version", view.version.map(|version| version.to_string())),
            ("holder", view.holder.map(|holder| holder.label.to_string())),
            ("seen", view.seen_at.map(seconds)),
            ("asks", view.asks_at.map(seconds)),
            ("failures", (view.failures > 0).then(|| view.failures.to_string())),
            ("deadline", deadline.map(seconds)),
        ] {
            if let Some(value) = value {
                write!(shown, " {key}={value}").expect("a String takes every write");
            }
        }
        self.print(name, &shown);
    }
}

fn show_effect(effect: &Effect) -> String {
    match effect {
        Effect::Call { call, request, deadline } => {
            format!("{} {}, at most until {}", call.0, show_request(request), seconds(*deadline))
        }
        Effect::Abandon { call } => format!("abandons {}", call.0),
        Effect::Lead { token, until, version } => format!("LEADS token={token} until={} ({version})", seconds(*until)),
        Effect::Extend { until, version } => format!("extended until={} ({version})", seconds(*until)),
        Effect::Drain { reason, by } => format!("DRAIN by={}: {reason}", seconds(*by)),
        Effect::End { reason } => format!("END: {reason}"),
        Effect::Stopped => "stopped".to_owned(),
    }
}

fn show_request(request: &Request) -> String {
    match request {
        Request::Look { announce: None } => "look".to_owned(),
        Request::Look { announce: Some(Announcement { why, rank }) } if *rank == Rank::default() => {
            format!("look and say: {why}")
        }
        Request::Look { announce: Some(Announcement { why, rank }) } => format!("look and say, ranked {rank}: {why}"),
        Request::Acquire { expect, floor, lease, .. } => {
            let expect = expect.map_or("no row".to_owned(), |expect| {
                format!("{} with orders {}", expect.version, expect.order_number)
            });
            format!("acquire {lease:?} if {expect}, above {floor}")
        }
        Request::Renew { version, lease, completed_order, .. } => {
            let lease = if *lease == Timing::DEFAULT_LEASE { String::new() } else { format!(" for {lease:?}") };
            let completed_order =
                completed_order.map_or(String::new(), |order_number| format!(", orders {order_number} are completed"));
            format!("renew {version}{lease}{completed_order}")
        }
        Request::Release { version, reason, .. } => format!("release {version}: {reason}"),
        Request::Leave => "leave".to_owned(),
    }
}

fn show_reply(reply: &Reply) -> String {
    match reply {
        Reply::Seen(sighting) => format!("seen {}", show_sighting(sighting)),
        Reply::Applied(record) => {
            let sighting = Sighting {
                remembered: record.version.token,
                record: Some(record.clone()),
                age: None,
                holder_gone: false,
                standing: Standing::default(),
            };
            format!("applied {}", show_sighting(&sighting))
        }
        Reply::Conflict(sighting) => format!("conflict {}", show_sighting(sighting)),
        Reply::Left => "left".to_owned(),
    }
}

fn show_sighting(sighting: &Sighting) -> String {
    let Some(record) = &sighting.record else { return format!("no row, remembers {}", sighting.remembered) };
    let holder = record.holder.as_ref().map_or("nobody".to_owned(), |holder| holder.label.to_string());
    let mut shown = format!("{} {holder}", record.version);
    if record.version.token != sighting.remembered {
        write!(shown, ", remembers {}", sighting.remembered).expect("a String takes every write");
    }
    if record.order_number > 0 {
        write!(shown, ", orders {}", record.order_number).expect("a String takes every write");
    }
    match &record.handover {
        Some(HandoverRequest::NewElection) => shown.push_str(", deposed"),
        Some(HandoverRequest::Successor(label)) => write!(shown, ", for {label}").expect("a String takes every write"),
        None => {}
    }
    if record.paused {
        shown.push_str(", paused");
    }
    shown
}

fn seconds(at: Instant) -> String {
    format!("{:.4}s", at.as_nanos() as f64 / 1e9)
}

fn pair(setting: &str) -> (&str, &str) {
    setting.split_once('=').unwrap_or_else(|| panic!("{setting:?} is not KEY=VALUE"))
}

/// `1.5s` or `250ms`.
fn span(text: &str) -> Duration {
    let (number, unit) = match text.strip_suffix("ms") {
        Some(number) => (number, 1e-3),
        None => (text.strip_suffix('s').unwrap_or_else(|| panic!("{text:?} is not a time")), 1.0),
    };
    Duration::from_nanos((number.parse::<f64>().expect("a number") * unit * 1e9).round() as u64)
}
