//! A world of processes around one set of registers, in simulated time, for tests of the `registers` protocol.

mod crew;
mod store;

use std::collections::BTreeMap;
use std::time::Duration;

use primacy_core::lease::{CallError, Sighting};
use primacy_core::registers::{
    CallId, Candidacy, Config, Context, Effect, Event, FromGroup, Group, LinePosition, ProcessId, Reply, Request,
    Rounds, RoundsSettings,
};
use primacy_core::select::{FailBack, Rank};
use primacy_core::{CandidateId, Instant, Label, Token};

pub(crate) use crew::Crew;
pub(crate) use store::Registers;

pub(crate) const ROUND: Duration = Duration::from_secs(2);

pub(crate) fn rounds() -> Rounds {
    Rounds::new(RoundsSettings::new(ROUND)).expect("the paper's settings")
}

/// A process and what has become of it.
pub(crate) struct Host {
    pub(crate) group: Group,
    /// From the sending of a call to its answer.
    pub(crate) latency: Duration,
    /// It does not run until then.
    pub(crate) stopped_until: Instant,
    /// Calls fail.
    pub(crate) cut_off: bool,
    call: Option<(CallId, Request, Instant)>,
    pub(crate) positions: BTreeMap<CandidateId, LinePosition>,
    pub(crate) evictions: Vec<String>,
    pub(crate) rounds_seen: Vec<Duration>,
    pub(crate) hand_overs: Vec<ProcessId>,
    pub(crate) stopped: bool,
    pub(crate) shown: u32,
    /// The last record that its candidates were shown, and when it was asked for.
    pub(crate) last_shown: Option<(Sighting, Instant)>,
}

pub(crate) struct GroupWorld {
    pub(crate) now: Instant,
    pub(crate) registers: Registers,
    pub(crate) hosts: BTreeMap<u128, Host>,
    pub(crate) beats: u64,
    pub(crate) rows_read: u64,
    seed: u64,
}

impl GroupWorld {
    pub(crate) fn new() -> Self {
        Self {
            now: Instant::ZERO,
            registers: Registers::default(),
            hosts: BTreeMap::new(),
            beats: 0,
            rows_read: 0,
            seed: 7,
        }
    }

    /// Number `process` moves in, with `count` candidates of this rank.
    pub(crate) fn enter(&mut self, process: u128, count: u128, rank: Rank, fail_back: FailBack) {
        let config = Config { process: ProcessId::from_bits(process), rounds: rounds(), fail_back };
        let host = Host {
            group: Group::new(config),
            latency: Duration::from_millis(5),
            stopped_until: Instant::ZERO,
            cut_off: false,
            call: None,
            positions: BTreeMap::new(),
            evictions: Vec::new(),
            rounds_seen: Vec::new(),
            hand_overs: Vec::new(),
            stopped: false,
            shown: 0,
            last_shown: None,
        };
        self.hosts.insert(process, host);
        let candidates = (0..count).map(|index| candidacy(process, index, Some(rank))).collect();
        self.tell(process, Event::Candidates(candidates));
    }

    /// `count` processes with one candidate each, 100 ms after one another.
    pub(crate) fn settle(&mut self, count: u128) {
        for process in 1..=count {
            self.enter(process, 1, Rank::default(), FailBack::Never);
            self.run(Duration::from_millis(100));
        }
    }

    /// The first candidate of this process gets the lease.
    pub(crate) fn crown(&mut self, process: u128, token: u64) {
        let (holder, token) = (candidate(process, 0), Token::new(token).expect("small"));
        self.registers.lead(holder, token);
        self.tell(process, Event::Leads { holder, token, chosen: false });
    }

    /// Nothing of it runs any more.
    pub(crate) fn kill(&mut self, process: u128) {
        self.hosts.remove(&process);
    }

    pub(crate) fn host(&self, process: u128) -> &Host {
        &self.hosts[&process]
    }

    pub(crate) fn host_mut(&mut self, process: u128) -> &mut Host {
        self.hosts.get_mut(&process).expect("somebody lives there")
    }

    pub(crate) fn ahead(&self, process: u128) -> Option<u32> {
        self.host(process).group.view().ahead
    }

    pub(crate) fn round(&self) -> Duration {
        self.registers.vars().round
    }

    pub(crate) fn tell(&mut self, process: u128, event: Event) {
        let now = self.now;
        let mut seed = self.seed;
        let mut entropy = || {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            seed >> 8
        };
        let mut effects = Vec::new();
        let host = self.host_mut(process);
        host.group.handle(event, &mut Context { now, entropy: &mut entropy, effects: &mut effects });
        let deadline = host.group.deadline();
        assert!(deadline.is_none_or(|deadline| deadline > now), "due at {deadline:?}, which is not after {now}");
        self.seed = seed;
        for effect in effects {
            let host = self.host_mut(process);
            match effect {
                Effect::Call { call, request, deadline } => {
                    assert!(host.call.is_none(), "two calls at once");
                    assert!(deadline > now);
                    host.call = Some((call, request, now + host.latency));
                }
                Effect::Abandon { .. } => host.call = None,
                Effect::TellAll(FromGroup::Seen { sighting, asked_at }) => {
                    assert!(asked_at <= now);
                    host.shown += 1;
                    host.last_shown = Some((sighting, asked_at));
                }
                Effect::PositionsChanged { positions } => host.positions = positions.into_iter().collect(),
                Effect::TellAll(FromGroup::Round(round)) => host.rounds_seen.push(round),
                Effect::TellAll(_) => {}
                Effect::Evicted { eviction } => {
                    host.evictions.push(eviction.map_or("?".to_owned(), |eviction| eviction.to_string()));
                }
                Effect::HandOver { to, .. } => host.hand_overs.push(to),
                Effect::Stopped => host.stopped = true,
            }
        }
    }

    /// Lets time go on by `span`, and everything happen that is due by then.
    pub(crate) fn run(&mut self, span: Duration) {
        let end = self.now + span;
        while let Some((at, process)) = self.next().filter(|(at, _)| *at <= end) {
            self.now = self.now.max(at);
            let now = self.now;
            let host = self.host_mut(process);
            match host.call.take_if(|(_, _, due)| *due <= now) {
                Some((call, request, _)) => {
                    let cut_off = host.cut_off;
                    let result = if cut_off { Err(CallError::NotDone) } else { Ok(self.answer(&request)) };
                    self.tell(process, Event::Done { call, result });
                }
                None => self.tell(process, Event::Wake),
            }
        }
        self.now = end;
    }

    fn answer(&mut self, request: &Request) -> Reply {
        let reply = self.registers.step(request, self.now);
        if let Reply::Beaten { head, .. } = &reply {
            self.beats += 1;
            self.rows_read += head.len() as u64;
        }
        reply
    }

    /// What happens next, and to which process.
    fn next(&self) -> Option<(Instant, u128)> {
        let due = |host: &Host| {
            let call = host.call.as_ref().map(|(_, _, due)| *due);
            Instant::earliest(call, host.group.deadline()).map(|at| at.max(host.stopped_until))
        };
        self.hosts.iter().filter_map(|(process, host)| Some((due(host)?, *process))).min()
    }
}

pub(crate) fn candidate(process: u128, index: u128) -> CandidateId {
    CandidateId::from_bits(process << 32 | index)
}

pub(crate) fn candidacy(process: u128, index: u128, rank: Option<Rank>) -> Candidacy {
    let label = Label::new(format!("p{process}-{index}")).expect("valid");
    Candidacy { id: candidate(process, index), label, data: String::new(), rank }
}
