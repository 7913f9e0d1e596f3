//! One process in the protocol: its candidates and the group that they share, below threads, channels and the store.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use super::candidacy::Candidacy;
use super::group::{self, Config, Group};
use super::messages::{FromGroup, ToGroup};
use super::port::{Effect, Event, Eviction, Reply, Request};
use crate::lease::{CallError, CallId};
use crate::{CandidateId, Instant};

/// What a step of the state machine gets from outside.
pub struct ProcessContext<'a> {
    /// Now, on this process's clock.
    pub now: Instant,
    /// Random bits, for spreading load only: no promise depends on them.
    pub entropy: &'a mut dyn FnMut() -> u64,
    /// Where effects go, in order.
    pub effects: &'a mut Vec<ProcessEffect>,
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[expect(clippy::large_enum_variant, reason = "events are handed over, not stored")]
pub enum ProcessEvent {
    /// A candidate says this.
    FromCandidate(ToGroup),
    /// All candidates are gone without a word.
    Abandoned,
    /// A call ended.
    Done {
        /// Which.
        call: CallId,
        /// How.
        result: Result<Reply, CallError>,
    },
    /// The deadline of [`Process::deadline`] has come.
    Wake,
    /// The machine was suspended (rule R4).
    Suspended,
}

/// Something to do. The order of a list of effects is binding.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ProcessEffect {
    /// Send this call to the store.
    Call {
        /// Its name.
        call: CallId,
        /// What to do.
        request: Request,
        /// When it will be abandoned.
        deadline: Instant,
    },
    /// Stop waiting for this call, and never use its connection again (rule R8).
    Abandon {
        /// Its name.
        call: CallId,
    },
    /// Tell a candidate.
    Tell {
        /// Which.
        to: CandidateId,
        /// What.
        what: FromGroup,
    },
    /// The process was evicted although it lives. It joins again by itself. For people.
    Evicted {
        /// Why, if that is known.
        eviction: Option<Eviction>,
    },
}

/// All that one process does in one election beside asking for its lease: who of its candidates takes part, what each is told, and
/// the [`Group`] that beats for them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Process {
    group: Group,
    /// In the order in which they came.
    candidates: Vec<Candidacy>,
    /// Those that wait to hear that nothing of them is left.
    leaving: Vec<CandidateId>,
    /// Whose turn it is of the candidates in reserve that ask for the lease, and who waits for it.
    turns: Turns,
    /// The call that leaves out these: once it is answered, nothing of them is left.
    without: Option<(CallId, Vec<CandidateId>)>,
    #[cfg(feature = "flaws")]
    flaw: Option<group::Flaw>,
}

impl Process {
    /// A process that takes part as soon as a candidate has entered.
    pub fn new(config: Config) -> Self {
        Self {
            group: Group::new(config),
            candidates: Vec::new(),
            leaving: Vec::new(),
            turns: Turns::default(),
            without: None,
            #[cfg(feature = "flaws")]
            flaw: None,
        }
    }

    /// The same, with this bug.
    #[cfg(feature = "flaws")]
    pub fn with_flaw(config: Config, flaw: Option<group::Flaw>) -> Self {
        Self { group: Group::with_flaw(config.clone(), flaw), flaw, ..Self::new(config) }
    }

    /// Its group.
    pub fn group(&self) -> &Group {
        &self.group
    }

    /// The candidates that take part, in the order in which they came.
    pub fn candidates(&self) -> &[Candidacy] {
        &self.candidates
    }

    /// When [`ProcessEvent::Wake`] is due, if nothing else happens before.
    pub fn deadline(&self) -> Option<Instant> {
        self.group.deadline()
    }

    /// Whether nothing is left to do for anybody.
    pub fn is_done(&self) -> bool {
        self.candidates.is_empty() && self.leaving.is_empty() && !self.group.awaits_answer()
    }

    /// Handles one event at the time of the context, and everything that is due by then.
    pub fn handle(&mut self, event: ProcessEvent, cx: &mut ProcessContext<'_>) {
        let event = match event {
            ProcessEvent::FromCandidate(said) => match self.obey(said, cx) {
                Some(event) => event,
                None => return,
            },
            ProcessEvent::Abandoned => {
                self.candidates.clear();
                self.turns = Turns::default();
                Event::Candidates(Vec::new())
            }
            ProcessEvent::Done { call, result } => {
                if let Some((_, without)) = self.without.take_if(|(awaited, _)| *awaited == call) {
                    match &result {
                        Ok(_) => have_left(without, cx),
                        Err(_) => self.leaving.extend(without),
                    }
                }
                Event::Done { call, result }
            }
            ProcessEvent::Wake => Event::Wake,
            ProcessEvent::Suspended => Event::Suspended,
        };
        let mut effects = Vec::new();
        self.group.handle(event, &mut group::Context { now: cx.now, entropy: cx.entropy, effects: &mut effects });
        for effect in effects {
            self.carry_out(effect, cx);
        }
    }

    fn obey(&mut self, said: ToGroup, cx: &mut ProcessContext<'_>) -> Option<Event> {
        match said {
            ToGroup::Enter(candidacy) => {
                self.leaving.retain(|id| *id != candidacy.id);
                if let Some(vars) = self.group.view().vars.filter(|_| !self.enters_untold()) {
                    let what = FromGroup::Round(vars.round);
                    cx.effects.push(ProcessEffect::Tell { to: candidacy.id, what });
                }
                match self.candidates.iter_mut().find(|known| known.id == candidacy.id) {
                    Some(known) => *known = candidacy,
                    None => self.candidates.push(candidacy),
                }
            }
            ToGroup::Publish(candidacy) => {
                let known = self.candidates.iter_mut().find(|known| known.id == candidacy.id)?;
                *known = candidacy;
            }
            ToGroup::Look => return Some(Event::Look),
            ToGroup::Leads { id, token, chosen } => return Some(Event::Leads { holder: id, token, chosen }),
            ToGroup::LeadEnded { id } => return Some(Event::LeadEnded { holder: id }),
            ToGroup::AwaitTurn { id, call } => {
                self.turns.queue.push_back((id, call));
                self.turns.next(cx);
                return None;
            }
            ToGroup::EndTurn { id, call } => {
                #[cfg(feature = "flaws")]
                if self.flaw == Some(group::Flaw::KeepsTurn) {
                    return None;
                }
                self.turns.end(cx, |turn| *turn == (id, call));
                return None;
            }
            ToGroup::Leave { id } => {
                self.turns.end(cx, |(of, _)| *of == id);
                let index = self.candidates.iter().position(|known| known.id == id)?;
                self.candidates.remove(index);
                self.leaving.push(id);
            }
        }
        Some(Event::Candidates(self.candidates.clone()))
    }

    fn carry_out(&mut self, effect: Effect, cx: &mut ProcessContext<'_>) {
        match effect {
            Effect::Call { call, request, deadline } => {
                if matches!(request, Request::Join { .. } | Request::Leave { .. }) {
                    self.without = Some((call, core::mem::take(&mut self.leaving)));
                }
                cx.effects.push(ProcessEffect::Call { call, request, deadline });
            }
            Effect::Abandon { call } => {
                self.leaving.extend(self.without.take().into_iter().flat_map(|(_, without)| without));
                cx.effects.push(ProcessEffect::Abandon { call });
            }
            Effect::TellAll(what) => {
                let tell = |known: &Candidacy| ProcessEffect::Tell { to: known.id, what: what.clone() };
                cx.effects.extend(self.candidates.iter().map(tell));
            }
            Effect::PositionsChanged { positions } => {
                let tell = |(to, position)| ProcessEffect::Tell { to, what: FromGroup::PositionChanged(position) };
                cx.effects.extend(positions.into_iter().map(tell));
            }
            Effect::Evicted { eviction } => cx.effects.push(ProcessEffect::Evicted { eviction }),
            Effect::HandOver { holder, token, .. } => {
                cx.effects.push(ProcessEffect::Tell { to: holder, what: FromGroup::MakeWay { token } });
            }
            Effect::Stopped => have_left(core::mem::take(&mut self.leaving), cx),
        }
    }

    fn enters_untold(&self) -> bool {
        #[cfg(feature = "flaws")]
        return self.flaw == Some(group::Flaw::EntersUntold);
        #[cfg(not(feature = "flaws"))]
        false
    }
}

/// Candidates in reserve ask for the lease one at a time. Where nobody leads and all in line are dead, a hundred candidates of one
/// process that opened a connection each would keep the other processes out, and have nothing before them by that.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Turns {
    now: Option<(CandidateId, CallId)>,
    queue: VecDeque<(CandidateId, CallId)>,
}

impl Turns {
    fn end(&mut self, cx: &mut ProcessContext<'_>, ends: impl Fn(&(CandidateId, CallId)) -> bool) {
        self.queue.retain(|turn| !ends(turn));
        self.now = self.now.filter(|turn| !ends(turn));
        self.next(cx);
    }

    fn next(&mut self, cx: &mut ProcessContext<'_>) {
        if self.now.is_none() {
            self.now = self.queue.pop_front();
            let tell = |(to, call)| ProcessEffect::Tell { to, what: FromGroup::Turn { call } };
            cx.effects.extend(self.now.map(tell));
        }
    }
}

fn have_left(those: Vec<CandidateId>, cx: &mut ProcessContext<'_>) {
    cx.effects.extend(those.into_iter().map(|to| ProcessEffect::Tell { to, what: FromGroup::Left }));
}

#[cfg(test)]
mod tests {
    use super::super::rounds::{Rounds, RoundsSettings};
    use super::*;
    use crate::registers::ProcessId;
    use crate::select::FailBack;
    use core::time::Duration;

    /// Whose turn comes when a candidate says this.
    fn turns(process: &mut Process, said: ToGroup) -> Vec<(u128, u64)> {
        let mut effects = Vec::new();
        let mut cx = ProcessContext { now: Instant::ZERO, entropy: &mut || 7, effects: &mut effects };
        process.handle(ProcessEvent::FromCandidate(said), &mut cx);
        let turn = |effect| match effect {
            ProcessEffect::Tell { to, what: FromGroup::Turn { call } } => Some((to.to_bits(), call.0)),
            _ => None,
        };
        effects.into_iter().filter_map(turn).collect()
    }

    #[test]
    fn candidates_in_reserve_ask_for_the_lease_one_at_a_time_in_the_order_in_which_they_came() {
        let rounds = Rounds::new(RoundsSettings::new(Duration::from_secs(2))).expect("valid");
        let config = Config { process: ProcessId::from_bits(1), rounds, fail_back: FailBack::Never };
        let mut process = Process::new(config);
        let id = CandidateId::from_bits;
        let awaits = |n, call| ToGroup::AwaitTurn { id: id(n), call: CallId(call) };
        let ends = |n, call| ToGroup::EndTurn { id: id(n), call: CallId(call) };
        assert_eq!(turns(&mut process, awaits(1, 5)), [(1, 5)]);
        for waits in [awaits(2, 6), awaits(3, 7), awaits(4, 8), awaits(5, 9)] {
            assert_eq!(turns(&mut process, waits), []);
        }
        assert_eq!(turns(&mut process, ends(1, 4)), [], "that one needed no turn");
        assert_eq!(turns(&mut process, ends(2, 6)), [], "it has given up");
        assert_eq!(turns(&mut process, ends(1, 5)), [(3, 7)]);
        // It may ask anew before all of its last request is over.
        assert_eq!(turns(&mut process, awaits(3, 10)), []);
        assert_eq!(turns(&mut process, ends(3, 7)), [(4, 8)]);
        assert_eq!(turns(&mut process, ToGroup::Leave { id: id(5) }), []);
        assert_eq!(turns(&mut process, ToGroup::Leave { id: id(4) }), [(3, 10)]);
        assert_eq!(turns(&mut process, ends(4, 8)), [], "its driver says so when all is over");
        assert_eq!(turns(&mut process, ends(3, 10)), []);
        assert_eq!(turns(&mut process, awaits(2, 11)), [(2, 11)]);
    }
}
