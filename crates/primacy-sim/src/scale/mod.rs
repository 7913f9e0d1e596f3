//! How far the `registers` protocol reaches: the real groups of very many processes on one server whose statements take as
//! long as they were measured to.
//!
//! A server has several cores, each of which carries out one statement after another, in the order in which they come.
//! Joins wait for each other. A call that was given up is carried out all the same, and its process needs a new connection.
//! The lease itself is not simulated: beside the beats of thousands its few statements do not count.

use std::time::Duration;

use primacy_core::lease::{CallId, Holder, Record, Sighting, Standing, Version};
use primacy_core::registers::{
    Candidacy, Config, Context, Effect, Event, Group, HEIRS, ProcessId, Reply, Request, Rounds, Table,
};
use primacy_core::select::{FailBack, Rank};
use primacy_core::{CandidateId, Instant, Label, Timing, Token};

use crate::engine::{Engine, Rng, Trace, nanos};

/// What things cost a server, as measured.
#[derive(Clone, Copy, Debug)]
pub struct Costs {
    /// Cores that the server has.
    pub cores: usize,
    /// CPU time of a beat.
    pub beat: Duration,
    /// What it takes more to show the head.
    pub head: Duration,
    /// What each process adds to the leader's scan.
    pub row: Duration,
    /// CPU time of a join, while which no other goes on.
    pub join: Duration,
    /// What each candidate adds to it.
    pub member: Duration,
    /// CPU time of a new connection.
    pub connect: Duration,
    /// Memory of a connection, in bytes.
    pub connection: u64,
    /// From a process to the server and back.
    pub network: Duration,
}

/// What is tried.
#[derive(Clone, Copy, Debug)]
pub struct Trial {
    /// How many processes take part.
    pub processes: usize,
    /// How many candidates each of them has.
    pub each: usize,
    /// The settings of the rounds.
    pub rounds: Rounds,
    /// For how long they are left alone once all are in.
    pub settle: Duration,
    /// For how long they are watched then.
    pub watch: Duration,
}

/// What came of it.
#[derive(Clone, Debug)]
pub struct Reach {
    /// How many processes take part at the end.
    pub members: usize,
    /// How long it took until all were in; `None`: not all got in.
    pub joined_in: Option<Duration>,
    /// The round time at the end.
    pub round: Duration,
    /// Processes that were evicted although they lived, while they were watched.
    pub evictions: u64,
    /// How much of all cores was asked for, while they were watched. Above 1 most calls are given up, and made again on
    /// new connections, which cost more than they do.
    pub load: f64,
    /// Statements a second.
    pub rate: f64,
    /// How long 99 of 100 answers took at most; `None`: there were none.
    pub answer: Option<Duration>,
    /// Memory of all connections, in bytes.
    pub memory: u64,
    /// How long nobody leads after the silent loss of a leader, at most, if every answer took as long as 99 of 100;
    /// `None`: the lease is too short for answers as slow as these.
    pub failover: Option<Duration>,
}

/// Lets them take part, all of the same rank, and watches. The same seed gives the same answer.
pub fn reach(costs: &Costs, trial: &Trial, seed: u64) -> Reach {
    let mut world = World::new(costs, trial, seed);
    // As fast as the server lets them in, and half as fast again.
    let apart = nanos(costs.connect + costs.join + costs.member * trial.each as u32) * 3 / 2;
    for process in 0..trial.processes {
        world.engine.at(apart * process as u64, Happening::Start(process));
    }
    let in_time = apart * trial.processes as u64 * 2 + nanos(trial.settle);
    while world.table.len() < trial.processes && world.engine.now < in_time && world.go_on() {}
    let joined_in = (world.table.len() == trial.processes).then(|| Duration::from_nanos(world.engine.now));
    world.run(trial.settle);
    let comebacks = |world: &World<'_>| world.table.vars().map_or(0, |vars| vars.comebacks);
    let before = comebacks(&world);
    (world.used, world.answers) = (0, Vec::new());
    world.run(trial.watch);
    let (watched, answers) = (nanos(trial.watch).max(1) as f64, &mut world.answers);
    answers.sort_unstable();
    let answer = answers.get(answers.len() * 99 / 100).copied().map(Duration::from_nanos);
    let rate = answers.len() as f64 / watched * 1e9;
    let round = world.table.vars().map_or(trial.rounds.round(), |vars| vars.round);
    let timing = Timing::with_lease(trial.rounds.lease(round)).ok();
    Reach {
        members: world.table.len(),
        joined_in,
        round,
        evictions: comebacks(&world) - before,
        load: world.used as f64 / watched / costs.cores as f64,
        rate,
        answer,
        // Those in line have a second one.
        memory: (trial.processes as u64 + u64::from(HEIRS)) * costs.connection,
        failover: timing
            .zip(answer)
            .filter(|(timing, answer)| *answer < timing.call_timeout())
            .map(|(timing, answer)| timing.failover_bound(0, answer)),
    }
}

#[derive(Debug)]
enum Happening {
    /// The process begins to take part.
    Start(usize),
    /// Its group is due, unless it has done something since.
    Wake(usize, u64),
    /// The server has carried out a call, and the answer is on its way.
    Served(usize, CallId, Request),
    Answered(usize, CallId, Box<Reply>),
}

struct ServerProcess {
    group: Group,
    call: Option<(CallId, u64)>,
    connected: bool,
    /// Counts what it has done.
    turns: u64,
}

struct World<'a> {
    costs: &'a Costs,
    each: usize,
    engine: Engine<Happening>,
    processes: Vec<ServerProcess>,
    table: Table,
    /// It never changes.
    leader: Option<(CandidateId, Token)>,
    /// When each core is free, and the row of VARS.
    cores: Vec<u64>,
    vars_free: u64,
    used: u64,
    answers: Vec<u64>,
}

impl<'a> World<'a> {
    fn new(costs: &'a Costs, trial: &Trial, seed: u64) -> Self {
        let process = |process: usize| ServerProcess {
            group: Group::new(Config {
                process: ProcessId::from_bits(process as u128 + 1),
                rounds: trial.rounds,
                fail_back: FailBack::Never,
            }),
            call: None,
            connected: false,
            turns: 0,
        };
        Self {
            costs,
            each: trial.each,
            engine: Engine::new(Rng::new(seed), Trace::new(false)),
            processes: (0..trial.processes).map(process).collect(),
            table: Table::default(),
            leader: None,
            cores: vec![0; costs.cores.max(1)],
            vars_free: 0,
            used: 0,
            answers: Vec::new(),
        }
    }

    fn run(&mut self, span: Duration) {
        let end = self.engine.now + nanos(span);
        while self.engine.now < end && self.go_on() {}
    }

    /// Lets the next thing happen. `false` if there is none.
    fn go_on(&mut self) -> bool {
        let Some(what) = self.engine.advance() else { return false };
        match what {
            Happening::Start(process) => {
                let candidates = (0..self.each).map(|index| candidacy(process, index)).collect();
                self.tell(process, Event::Candidates(candidates));
            }
            Happening::Wake(process, turn) if self.processes[process].turns == turn => self.tell(process, Event::Wake),
            Happening::Wake(..) => {}
            Happening::Served(process, call, request) => {
                let now = Instant::from_nanos(self.engine.now);
                let reply = self.table.step(&request, self.sighting(), now, &mut Vec::new());
                let at = self.engine.now + nanos(self.costs.network) / 2;
                self.engine.at(at, Happening::Answered(process, call, Box::new(reply)));
            }
            Happening::Answered(process, call, reply) => self.answered(process, call, *reply),
        }
        true
    }

    fn answered(&mut self, process: usize, call: CallId, reply: Reply) {
        let Some((_, sent_at)) = self.processes[process].call.take_if(|(waiting, _)| *waiting == call) else { return };
        self.answers.push(self.engine.now - sent_at);
        let first = matches!(reply, Reply::Joined { .. }) && self.leader.is_none();
        self.tell(process, Event::Done { call, result: Ok(reply) });
        if first && let Some(token) = Token::new(1) {
            let holder = candidate(process, 0);
            self.leader = Some((holder, token));
            self.tell(process, Event::Leads { holder, token, chosen: false });
        }
    }

    fn sighting(&self) -> Sighting {
        let label = Label::new("leader").expect("a valid label");
        let record = self.leader.map(|(id, token)| Record {
            version: Version { token, beat: 1 },
            holder: Some(Holder { id, label, data: String::new() }),
            lease: Duration::ZERO,
            order_number: 0,
            handover: None,
            paused: false,
        });
        let remembered = self.leader.map_or(Token::NONE, |(_, token)| token);
        Sighting { record, remembered, age: None, holder_gone: false, standing: Standing::default() }
    }

    fn tell(&mut self, process: usize, event: Event) {
        let rng = &mut self.engine.rng;
        let (mut effects, mut entropy) = (Vec::new(), || rng.bits());
        let at = &mut self.processes[process];
        let now = Instant::from_nanos(self.engine.now);
        at.group.handle(event, &mut Context { now, entropy: &mut entropy, effects: &mut effects });
        at.turns += 1;
        let (turn, deadline) = (at.turns, at.group.deadline());
        for effect in effects {
            match effect {
                Effect::Call { call, request, .. } => self.send(process, call, request),
                Effect::Abandon { .. } => {
                    let at = &mut self.processes[process];
                    (at.call, at.connected) = (None, false);
                }
                _ => {}
            }
        }
        if let Some(deadline) = deadline {
            self.engine.at(deadline.as_nanos().max(self.engine.now), Happening::Wake(process, turn));
        }
    }

    fn send(&mut self, process: usize, call: CallId, request: Request) {
        let Costs { beat, head, row, join, member, connect, network, .. } = *self.costs;
        let arrival = self.engine.now + nanos(network) / 2;
        let at = &mut self.processes[process];
        at.call = Some((call, self.engine.now));
        let connect = if at.connected { 0 } else { nanos(connect) };
        at.connected = true;
        let done = match &request {
            Request::Join { candidates, .. } => {
                let cost = nanos(join + member * candidates.len() as u32);
                self.used += connect + cost;
                self.vars_free = self.vars_free.max(arrival) + connect + cost;
                self.vars_free
            }
            Request::MembershipScan { .. } => {
                self.compute(arrival, connect + nanos(beat + row * self.table.len() as u32))
            }
            Request::Beat { head: 0, .. } | Request::Leave { .. } => self.compute(arrival, connect + nanos(beat)),
            Request::Beat { .. } => self.compute(arrival, connect + nanos(beat + head)),
        };
        self.engine.at(done, Happening::Served(process, call, request));
    }

    /// When the core that is free first has done it.
    fn compute(&mut self, arrival: u64, cost: u64) -> u64 {
        self.used += cost;
        let Some(core) = self.cores.iter_mut().min() else { return arrival };
        *core = (*core).max(arrival) + cost;
        *core
    }
}

fn candidate(process: usize, index: usize) -> CandidateId {
    CandidateId::from_bits((process as u128) << 32 | index as u128)
}

fn candidacy(process: usize, index: usize) -> Candidacy {
    let label = Label::new(format!("p{process}-{index}")).expect("digits and a hyphen are a label");
    Candidacy { id: candidate(process, index), label, data: String::new(), rank: Some(Rank::default()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use primacy_core::registers::RoundsSettings;

    const COSTS: Costs = Costs {
        cores: 1,
        beat: Duration::from_millis(1),
        head: Duration::ZERO,
        row: Duration::from_micros(1),
        join: Duration::from_millis(2),
        member: Duration::ZERO,
        connect: Duration::from_millis(5),
        connection: 1,
        network: Duration::from_millis(1),
    };

    fn reached(processes: usize, each: usize) -> Reach {
        let rounds = Rounds::new(RoundsSettings::new(Duration::from_secs(1))).expect("valid");
        let (settle, watch) = (Duration::from_secs(30), Duration::from_secs(20));
        reach(&COSTS, &Trial { processes, each, rounds, settle, watch }, 7)
    }

    /// A beat of 1 ms on one core: 1,000 a second are too many, and 500 are not.
    #[test]
    fn answers_come_in_time_while_the_server_has_room_and_no_longer_beyond() {
        let (roomy, full) = (reached(500, 1), reached(1_500, 1));
        assert_eq!((roomy.members, roomy.round, roomy.evictions), (500, Duration::from_secs(1), 0));
        assert!((0.45..0.6).contains(&roomy.load), "{roomy:?}");
        assert!(roomy.failover.is_some_and(|gap| gap < Duration::from_millis(2_200)), "{roomy:?}");
        assert!(full.load > 1.0 && full.failover.is_none(), "{full:?}");
    }

    #[test]
    fn candidates_of_one_process_cost_what_one_does() {
        let (one, many) = (reached(20, 1), reached(20, 50));
        assert!((many.rate - one.rate).abs() < 2.0, "{one:?} {many:?}");
    }

    #[test]
    fn the_same_seed_gives_the_same_answer() {
        assert_eq!(format!("{:?}", reached(30, 2)), format!("{:?}", reached(30, 2)));
    }
}
