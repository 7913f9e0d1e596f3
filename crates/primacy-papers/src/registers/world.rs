//! A world of processes that run Algorithm 1 on one database, each on its own clock, one event after the other.

use std::collections::BTreeMap;
use std::time::Duration;

use primacy_core::Instant;

use super::algorithm::{Conclusion, Process};
use super::findings::{Findings, in_seconds};
use super::scenario::Scenario;
use super::store::{Beat, Descriptors, Id, Lock, Number, Store, Vars, Writes};
use primacy_sim::engine::Clock;
use primacy_sim::engine::Queue;
use primacy_sim::engine::nanos;
use primacy_sim::engine::{Line, Trace};

/// What a process asks of the database within its round, in this order, each after the answer to the one before.
#[derive(Clone, Debug)]
enum Request {
    Lock(Lock),
    Read,
    Write(Writes),
    Commit,
}

/// What the database answers.
#[derive(Clone, Debug)]
enum Answer {
    Locked,
    Rows(Vars, Descriptors),
    Written,
    Committed,
    Aborted,
}

#[derive(Clone, Debug)]
enum Happening {
    /// A process that is not there starts.
    Start { node: usize },
    /// A process has slept enough.
    Round { node: usize, life: u64 },
    /// A request reaches the database.
    Arrive { node: usize, round: Number, request: Request },
    /// A connection that the process has closed is noticed by the database.
    Closed { round: Number },
    /// The database has waited long enough, unless something was asked since.
    TimeOut { node: usize, round: Number, asked: u32 },
    /// An answer reaches its process.
    Answer { node: usize, round: Number, answer: Answer },
    /// A process has waited long enough for its round.
    GiveUp { node: usize, round: Number },
    /// A process is killed.
    Crash,
    /// A wall clock is stepped.
    Step,
    /// An operator forces the youngest process to lead.
    ForceLead,
}

/// A place for one process at a time.
#[derive(Debug)]
pub(super) struct Node {
    /// The process, unless it was killed.
    pub(super) process: Option<Process>,
    /// Its clock.
    pub(super) clock: Clock,
    /// How many processes have been here.
    life: u64,
    /// Its round, while there is one.
    round: Option<Number>,
    /// Until when it is stopped. What comes until then is handled then.
    stopped: u64,
}

/// How often things happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Rounds committed.
    pub rounds: u64,
    /// Rounds that failed, as far as their process knew.
    pub aborted: u64,
    /// Transactions that the database rolled back because it had waited long enough.
    pub timed_out: u64,
    /// Processes stopped.
    pub paused: u64,
    /// Processes killed.
    pub crashed: u64,
    /// Processes that began to lead.
    pub leaders: u64,
    /// Rows deleted by a leader.
    pub evicted: u64,
    /// Processes that found their row gone.
    pub rejoined: u64,
    /// Times that the round time grew.
    pub growths: u64,
}

impl Counts {
    /// Adds others to these.
    pub(super) fn add(&mut self, other: &Self) {
        let Self { rounds, aborted, timed_out, paused, crashed, leaders, evicted, rejoined, growths } = other;
        self.rounds += rounds;
        self.aborted += aborted;
        self.timed_out += timed_out;
        self.paused += paused;
        self.crashed += crashed;
        self.leaders += leaders;
        self.evicted += evicted;
        self.rejoined += rejoined;
        self.growths += growths;
    }
}

/// A simulated world.
#[derive(Debug)]
pub(super) struct World {
    pub(super) scenario: Scenario,
    pub(super) now: u64,
    pub(super) nodes: Vec<Node>,
    pub(super) findings: Findings,
    pub(super) counts: Counts,
    pub(super) trace: Trace,
    queue: Queue<Happening>,
    numbers: u64,
    store: Store,
    /// How often each open transaction has asked for something.
    asked: BTreeMap<Number, (usize, u32)>,
    last_leader: Option<Id>,
}

impl World {
    /// A world at its first moment.
    pub(super) fn new(scenario: Scenario, keep_lines: bool) -> Self {
        /// Room for wall clocks to be stepped back.
        const SHOWN_AT_START: u64 = 100_000_000_000;
        let node = |rate: &i32| Node {
            process: None,
            clock: Clock::new(0, SHOWN_AT_START, *rate),
            life: 0,
            round: None,
            stopped: 0,
        };
        let mut world = Self {
            now: 0,
            nodes: scenario.rates.iter().map(node).collect(),
            findings: Findings::default(),
            counts: Counts::default(),
            trace: Trace::new(keep_lines),
            queue: Queue::new(),
            numbers: 0,
            store: Store::new(scenario.settings.period),
            asked: BTreeMap::new(),
            last_leader: None,
            scenario,
        };
        for node in 0..world.nodes.len() {
            let after = world.scenario.rng.below(nanos(world.scenario.settings.period) * 2);
            world.after(after, Happening::Start { node });
        }
        world.plan(world.scenario.crash_every, Happening::Crash);
        world.plan(world.scenario.step_every, Happening::Step);
        world.plan(world.scenario.order_every, Happening::ForceLead);
        world
    }

    /// Runs to the end, or until everything that is looked for has been found.
    pub(super) fn run(mut self) -> Self {
        while let Some((at, what)) = self.queue.pop() {
            self.now = at.max(self.now);
            let outgrown = self.store.period() > self.scenario.period_max;
            if self.now > self.scenario.end || outgrown || self.findings.is_complete() {
                break;
            }
            self.happen(what);
        }
        self
    }

    fn happen(&mut self, what: Happening) {
        match what {
            Happening::Start { node } => self.start(node),
            Happening::Round { node, life } => {
                if self.nodes[node].life == life && self.nodes[node].process.is_some() {
                    self.unless_stopped(node, what, |world| world.begin(node));
                }
            }
            Happening::Arrive { node, round, request } => self.arrive(node, round, request),
            Happening::Closed { round } => self.roll_back(round),
            Happening::TimeOut { node, round, asked } => self.time_out(node, round, asked),
            Happening::Answer { node, round, ref answer } => {
                if self.nodes[node].round == Some(round) {
                    let answer = answer.clone();
                    self.unless_stopped(node, what, |world| world.answered(node, round, answer));
                }
            }
            Happening::GiveUp { node, round } => {
                if self.nodes[node].round == Some(round) {
                    self.unless_stopped(node, what, |world| {
                        world.log(node, || "gives up: what became of its round is not known".to_owned());
                        world.abort(node, round);
                    });
                }
            }
            Happening::Crash => self.crash(),
            Happening::Step => self.step(),
            Happening::ForceLead => self.force_lead(),
        }
    }

    fn start(&mut self, node: usize) {
        let (choices, settings) = (self.scenario.choices, self.scenario.settings);
        let life = self.nodes[node].life + 1;
        let started = &mut self.nodes[node];
        (started.life, started.stopped, started.round) = (life, 0, None);
        started.process = Some(Process::new(choices, settings));
        self.log(node, || "starts".to_owned());
        self.after(0, Happening::Round { node, life });
    }

    fn begin(&mut self, node: usize) {
        self.numbers += 1;
        let round = self.numbers;
        let now = self.clock(node);
        let Some(process) = &mut self.nodes[node].process else { return };
        let lock = process.begin(now);
        self.nodes[node].round = Some(round);
        self.log(node, || {
            format!("begins a round, {} lock", if lock == Lock::Shared { "shared" } else { "exclusive" })
        });
        self.check(node);
        self.send(node, round, Request::Lock(lock));
        self.after(self.scenario.round_max, Happening::GiveUp { node, round });
    }

    fn arrive(&mut self, node: usize, round: Number, request: Request) {
        let refused = self.scenario.refused;
        if self.scenario.rng.chance(refused) {
            self.log(node, || "the database aborts its transaction".to_owned());
            self.roll_back(round);
            return self.answer(node, round, Answer::Aborted);
        }
        if let Request::Lock(lock) = request {
            self.asked.insert(round, (node, 0));
            if self.store.lock(round, lock) {
                return self.granted(round);
            }
            return self.after(self.scenario.lock_wait_max, Happening::TimeOut { node, round, asked: 0 });
        }
        let answer = match request {
            Request::Read => self.store.read(round).map(|(vars, rows)| Answer::Rows(vars, rows)),
            Request::Write(writes) => self.store.write(round, writes).then_some(Answer::Written),
            Request::Commit => return self.commit(node, round),
            Request::Lock(_) => None,
        };
        if answer.is_some() {
            self.heard(round);
        }
        self.answer(node, round, answer.unwrap_or(Answer::Aborted));
    }

    fn commit(&mut self, node: usize, round: Number) {
        let Some(done) = self.store.commit(round, node, self.now) else {
            return self.answer(node, round, Answer::Aborted);
        };
        self.asked.remove(&round);
        for (id, beat) in &done.removed {
            self.counts.evicted += 1;
            let after = in_seconds(self.now - beat.at);
            self.log(node, || format!("has evicted {id}, {after} after its last beat"));
            self.check_eviction(*id, beat);
        }
        for granted in done.granted {
            self.granted(granted);
        }
        if self.scenario.rng.chance(self.scenario.lost) {
            return self.log(node, || "its commit was carried out, and the answer is lost".to_owned());
        }
        self.answer(node, round, Answer::Committed);
    }

    /// A transaction has the lock.
    fn granted(&mut self, round: Number) {
        self.heard(round);
        if let Some((node, _)) = self.asked.get(&round).copied() {
            self.answer(node, round, Answer::Locked);
        }
    }

    /// The database has heard of a transaction, and waits anew.
    fn heard(&mut self, round: Number) {
        if let Some((node, asked)) = self.asked.get_mut(&round) {
            *asked += 1;
            let (node, asked) = (*node, *asked);
            self.after(self.scenario.idle_max, Happening::TimeOut { node, round, asked });
        }
    }

    fn time_out(&mut self, node: usize, round: Number, asked: u32) {
        if self.asked.get(&round) == Some(&(node, asked)) {
            self.counts.timed_out += 1;
            self.log(node, || "the database has waited long enough, and rolls back".to_owned());
            self.roll_back(round);
            self.answer(node, round, Answer::Aborted);
        }
    }

    fn roll_back(&mut self, round: Number) {
        self.asked.remove(&round);
        for granted in self.store.roll_back(round).unwrap_or_default() {
            self.granted(granted);
        }
    }

    fn answered(&mut self, node: usize, round: Number, answer: Answer) {
        let now = self.clock(node);
        let Some(process) = &mut self.nodes[node].process else { return };
        match answer {
            Answer::Locked => self.send(node, round, Request::Read),
            Answer::Rows(vars, rows) => {
                let (writes, conclusion) = process.read(now, &vars, &rows);
                self.concluded(node, &rows, &writes, conclusion);
                self.check(node);
                self.send(node, round, Request::Write(writes));
            }
            Answer::Written => {
                process.before_commit(now);
                self.log(node, || "asks for the commit".to_owned());
                self.check(node);
                self.send(node, round, Request::Commit);
            }
            Answer::Committed => {
                let sleep = process.committed(now);
                self.counts.rounds += 1;
                self.nodes[node].round = None;
                self.log_committed(node, sleep);
                self.check(node);
                self.sleep(node, sleep);
            }
            Answer::Aborted => {
                self.log(node, || "hears that its round was aborted".to_owned());
                self.abort(node, round);
            }
        }
    }

    fn concluded(&mut self, node: usize, rows: &Descriptors, writes: &Writes, conclusion: Conclusion) {
        self.counts.rejoined += u64::from(writes.evicted == Some(true));
        self.counts.growths += u64::from(writes.period.is_some());
        let own = writes.counter.map(|(id, _)| id);
        if conclusion == Conclusion::Leads && self.last_leader != own {
            self.last_leader = own;
            self.counts.leaders += 1;
        }
        self.log(node, || {
            let read: Vec<_> = rows.iter().map(|(id, counter)| format!("{id}:{counter}")).collect();
            let verdict = match conclusion {
                Conclusion::Evicted => "its own row is gone, so it wants the exclusive lock".to_owned(),
                Conclusion::Contends => "all below it are dead, so it wants the exclusive lock".to_owned(),
                Conclusion::Leads if writes.removed.is_empty() => "it leads".to_owned(),
                Conclusion::Leads => format!("it leads, and evicts {:?}", writes.removed),
                Conclusion::Follows(Some(id)) => format!("{id} may lead"),
                Conclusion::Follows(None) => "nobody may lead".to_owned(),
            };
            let joined = writes.max_id.map_or_else(String::new, |id| format!("; it becomes {id}"));
            format!("reads {{{}}}{joined}: {verdict}", read.join(" "))
        });
    }

    fn log_committed(&mut self, node: usize, sleep: Duration) {
        let now = self.clock(node);
        let process = self.nodes[node].process.as_ref();
        let (end, leader) = (process.and_then(Process::lease_end), process.and_then(|process| process.leader(now)));
        self.log(node, || {
            let next = if sleep.is_zero() { "tries again at once" } else { "sleeps" };
            match (end, leader) {
                (Some(end), _) => format!("committed; {next}; leads until {end} by its clock"),
                (None, Some(leader)) => format!("committed; {next}; names {leader}"),
                (None, None) => format!("committed; {next}"),
            }
        });
    }

    fn abort(&mut self, node: usize, round: Number) {
        let Some(process) = &mut self.nodes[node].process else { return };
        let sleep = process.aborted();
        self.counts.aborted += 1;
        self.nodes[node].round = None;
        self.check(node);
        let way = self.way();
        self.after(way, Happening::Closed { round });
        self.sleep(node, sleep);
    }

    fn sleep(&mut self, node: usize, sleep: Duration) {
        let here = &self.nodes[node];
        let (until, life) = (here.clock.read(self.now) + sleep, here.life);
        let at = here.clock.real_at(until).max(self.now);
        self.at(at, Happening::Round { node, life });
    }

    fn crash(&mut self) {
        let node = self.any();
        if self.nodes[node].process.take().is_some() {
            self.counts.crashed += 1;
            self.log(node, || "is killed".to_owned());
            self.nodes[node].round = None;
            let back = self.scenario.rng.below(nanos(self.scenario.settings.period) * 6);
            self.after(back, Happening::Start { node });
        }
        self.plan(self.scenario.crash_every, Happening::Crash);
    }

    fn step(&mut self) {
        let node = self.any();
        let by = self.scenario.rng.below(nanos(self.scenario.settings.period) * 3);
        let shown = self.clock(node).as_nanos();
        let ahead = self.scenario.rng.chance(500_000);
        let to = if ahead { shown + by } else { shown.saturating_sub(by) };
        self.nodes[node].clock = Clock::new(self.now, to, self.scenario.rates[node]);
        self.log(node, || {
            format!("its wall clock is stepped {} {}", in_seconds(by), if ahead { "ahead" } else { "back" })
        });
        self.check(node);
        self.plan(self.scenario.step_every, Happening::Step);
    }

    fn force_lead(&mut self) {
        match self.store.force_lead() {
            Some(removed) => {
                let ids: Vec<Id> = removed.iter().map(|(id, _)| *id).collect();
                self.note(|| format!("an operator deletes the rows of {ids:?}"));
                self.plan(self.scenario.order_every, Happening::ForceLead);
            }
            None => self.after(nanos(self.scenario.settings.period) / 50, Happening::ForceLead),
        }
    }

    /// Handles something now, or when its process is no more stopped. It may be stopped right now.
    fn unless_stopped(&mut self, node: usize, what: Happening, handle: impl FnOnce(&mut Self)) {
        if self.nodes[node].stopped <= self.now && self.scenario.rng.chance(self.scenario.paused) {
            let span = self.scenario.rng.between(1, self.scenario.pause_max);
            self.nodes[node].stopped = self.now + span;
            self.counts.paused += 1;
            self.log(node, || format!("is stopped for {}", in_seconds(span)));
        }
        if self.nodes[node].stopped > self.now {
            self.at(self.nodes[node].stopped, what);
        } else {
            handle(self);
        }
    }

    fn send(&mut self, node: usize, round: Number, request: Request) {
        let way = self.way();
        self.after(way, Happening::Arrive { node, round, request });
    }

    fn answer(&mut self, node: usize, round: Number, answer: Answer) {
        let way = self.way();
        self.after(way, Happening::Answer { node, round, answer });
    }

    fn way(&mut self) -> u64 {
        let Scenario { slow, slow_max, way_max, .. } = self.scenario;
        let rng = &mut self.scenario.rng;
        let longest = if rng.chance(slow) { slow_max } else { way_max };
        rng.between(longest / 10, longest)
    }

    fn any(&mut self) -> usize {
        self.scenario.rng.below(self.nodes.len() as u64) as usize
    }

    /// Lets something happen again and again, on average after this time.
    fn plan(&mut self, every: u64, what: Happening) {
        if every > 0 {
            let after = self.scenario.rng.between(every / 2, every * 3 / 2);
            self.after(after, what);
        }
    }

    fn after(&mut self, wait: u64, what: Happening) {
        self.at(self.now + wait, what);
    }

    fn at(&mut self, at: u64, what: Happening) {
        self.numbers += 1;
        self.queue.push(at, self.numbers, what);
    }

    /// What a node's clock shows.
    pub(super) fn clock(&self, node: usize) -> Instant {
        self.nodes[node].clock.read(self.now)
    }

    /// Who wrote a row, if that process lives and still goes by this id.
    pub(super) fn owner(&self, id: Id, beat: &Beat) -> Option<usize> {
        let process = self.nodes[beat.writer].process.as_ref();
        process.filter(|process| process.id() == Some(id)).map(|_| beat.writer)
    }

    /// Keeps a readable line about a node if anybody wants to read it, and takes its moment into the fingerprint.
    pub(super) fn log(&mut self, node: usize, text: impl FnOnce() -> String) {
        self.trace.hash(&(self.now, node));
        if self.trace.keeps() {
            let here = &self.nodes[node];
            let id = here.process.as_ref().and_then(Process::id);
            let name = id.map_or_else(|| format!("n{node}"), |id| format!("n{node}={id}"));
            let own = here.process.is_some().then(|| here.clock.read(self.now));
            self.trace.line(Line { real: self.now, who: Some((name, own)), text: text() });
        }
    }

    /// Keeps a readable line about nobody in particular.
    pub(super) fn note(&mut self, text: impl FnOnce() -> String) {
        self.trace.hash(&self.now);
        if self.trace.keeps() {
            self.trace.line(Line { real: self.now, who: None, text: text() });
        }
    }
}
