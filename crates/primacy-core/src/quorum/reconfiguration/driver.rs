//! An operator's way through an exchange of voters: what is under way is finished first, then the voters that are wanted take the place
//! of those that vote.

#[cfg(test)]
mod tests;

use alloc::vec::Vec;
use core::mem;
use core::time::Duration;

use super::{ReconfigurationAttempt, ReconfigurationOutput};
#[cfg(feature = "flaws")]
use crate::quorum::Flaw;
use crate::quorum::config_acceptor::{ConfigReply, ConfigRequest, Configuration};
use crate::quorum::voter_set::VoterId;

/// What a reconfiguration wants done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReconfigurationEffect<C> {
    /// Send this to that voter. Its answer goes to [`ReconfigurationDriver::answered`]; if there can be none,
    /// [`ReconfigurationDriver::unheard`] is told.
    Send {
        /// Whom.
        to: VoterId,
        /// Which question it belongs to. No two questions have the same.
        round: u64,
        /// What to ask.
        ask: ConfigRequest<C>,
    },
    /// Call [`ReconfigurationDriver::resume`] after this time and a random one from [`PAUSE_MIN`](ReconfigurationDriver::PAUSE_MIN) to
    /// [`PAUSE_MAX`](ReconfigurationDriver::PAUSE_MAX) more: so two that are in each other's way do not meet again. What is asked no longer
    /// counts.
    Wait(Duration),
    /// A majority of the old voters and one of the new ones have begun a change: it can be finished and not undone.
    Begun {
        /// Both of them.
        voters: C,
        /// Whether it was begun for what is wanted here. Otherwise it was under way, and is finished first.
        is_wanted: bool,
    },
    /// No change is under way. Find out who is to vote, with a [`VoterPlan`](crate::quorum::VoterPlan), and call [`ReconfigurationDriver::planned`].
    Plan {
        /// Whether voters have been exchanged since it began, so that those who go may have gone.
        is_later: bool,
    },
    /// It is over, and these vote: those that were wanted.
    Done(C),
    /// It cannot go on. What was begun stays begun, and can be finished later.
    Stuck {
        /// Those who have not answered.
        silent: Vec<VoterId>,
        /// Whether majorities of both the old and the new voters are needed.
        is_joint: bool,
    },
    /// Others have exchanged voters [at the same time](ReconfigurationDriver::ATTEMPTS_MAX), and were sooner again and again.
    Outrun,
}

/// Who is to vote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Planned<C> {
    /// Those who vote.
    Already,
    /// That is not known: there are later voters than were known when the plan began ([`ReconfigurationDriver::learn`]).
    Later,
    /// These, who have the next number and are in the joint phase.
    Joint(C),
}

/// What is under way.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Step<C> {
    /// A change that somebody else may have begun is finished.
    Finishing,
    Planning,
    /// The voters become these.
    Changing(C),
    Over,
}

/// One operator's exchange of voters. It finishes the change that is under way, if there is one, and then changes the voters to those that
/// are planned. If another's change was sooner, it begins again. It may be given up at any point: nothing that it has done is wrong then.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ReconfigurationDriver<C> {
    /// The last that are known to vote.
    current: C,
    change: ReconfigurationAttempt<C>,
    /// Random bits that nobody else has.
    by: u128,
    step: Step<C>,
    /// The number of the last question of the changes before the present one.
    rounds_before: u64,
    /// The number of the last question.
    round: u64,
    attempts: u32,
    /// The present change has begun.
    has_begun: bool,
    has_finished: bool,
    is_changed: bool,
    #[cfg(feature = "flaws")]
    flaw: Option<Flaw>,
}

impl<C: Configuration> ReconfigurationDriver<C> {
    /// How often others may be sooner.
    pub const ATTEMPTS_MAX: u32 = 10;

    /// The shortest random part of a pause.
    pub const PAUSE_MIN: Duration = Duration::from_millis(20);

    /// The longest one.
    pub const PAUSE_MAX: Duration = Duration::from_millis(200);

    /// Begins. `current`: the last that are known to vote; `by`: random bits that nobody else has.
    pub fn begin(current: C, by: u128, out: &mut Vec<ReconfigurationEffect<C>>) -> Self {
        let mut own = Self::new(current, by);
        own.finish(out);
        own
    }

    /// As [`begin`](Self::begin), with a flaw.
    #[cfg(feature = "flaws")]
    pub fn flawed(current: C, by: u128, flaw: Option<Flaw>, out: &mut Vec<ReconfigurationEffect<C>>) -> Self {
        let mut own = Self { flaw, ..Self::new(current, by) };
        own.finish(out);
        own
    }

    fn new(current: C, by: u128) -> Self {
        Self {
            change: ReconfigurationAttempt::new(current.clone(), None, by),
            current,
            by,
            step: Step::Planning,
            rounds_before: 0,
            round: 0,
            attempts: 0,
            has_begun: false,
            has_finished: false,
            is_changed: false,
            #[cfg(feature = "flaws")]
            flaw: None,
        }
    }

    /// The last that are known to vote.
    pub const fn current(&self) -> &C {
        &self.current
    }

    /// Whether an exchange was under way, and has been finished first.
    pub const fn has_finished(&self) -> bool {
        self.has_finished
    }

    /// Whether anybody came or went by what was wanted.
    pub const fn is_changed(&self) -> bool {
        self.is_changed
    }

    /// These vote, says somebody who can know. The next change begins there.
    pub fn learn(&mut self, voters: &C) {
        if voters.voter_set().number() > self.current.voter_set().number() {
            self.current = voters.clone();
        }
    }

    /// Who is to vote: what [`Plan`](ReconfigurationEffect::Plan) asks for.
    pub fn planned(&mut self, planned: Planned<C>, out: &mut Vec<ReconfigurationEffect<C>>) {
        if self.step != Step::Planning {
            return;
        }
        match planned {
            Planned::Already => self.end(ReconfigurationEffect::Done(self.current.clone()), out),
            Planned::Joint(wanted) if self.current.leads_to(&wanted) && wanted.settled().is_some() => {
                let step = wanted.settled().map_or(Step::Finishing, Step::Changing);
                self.change_to(step, Some(wanted), out);
            }
            Planned::Joint(_) | Planned::Later => self.finish(out),
        }
    }

    /// Goes on after it has waited.
    pub fn resume(&mut self, out: &mut Vec<ReconfigurationEffect<C>>) {
        self.does(ReconfigurationAttempt::resume, out);
    }

    /// A voter has answered.
    pub fn answered(
        &mut self,
        from: VoterId,
        round: u64,
        answer: ConfigReply<C>,
        out: &mut Vec<ReconfigurationEffect<C>>,
    ) {
        if let Some(round) = self.own_round(round) {
            self.does(|change, out| change.answered(from, round, answer, out), out);
        }
    }

    /// No answer to this question will come from that voter, which may have done what it was asked.
    pub fn unheard(&mut self, from: VoterId, round: u64, out: &mut Vec<ReconfigurationEffect<C>>) {
        if let Some(round) = self.own_round(round) {
            self.does(|change, out| change.unheard(from, round, out), out);
        }
    }

    // ---- steps ----

    /// The number of a question in the present change.
    fn own_round(&self, round: u64) -> Option<u64> {
        round.checked_sub(self.rounds_before).filter(|own| *own > 0)
    }

    /// What is under way comes first, also if somebody else has begun it.
    fn finish(&mut self, out: &mut Vec<ReconfigurationEffect<C>>) {
        self.attempts += 1;
        if self.attempts > Self::ATTEMPTS_MAX {
            return self.end(ReconfigurationEffect::Outrun, out);
        }
        self.change_to(Step::Finishing, None, out);
    }

    fn change_to(&mut self, step: Step<C>, wanted: Option<C>, out: &mut Vec<ReconfigurationEffect<C>>) {
        self.change = self.new_change(wanted).after(&self.change);
        (self.step, self.rounds_before, self.has_begun) = (step, self.round, false);
        self.does(ReconfigurationAttempt::resume, out);
    }

    #[cfg(feature = "flaws")]
    fn new_change(&self, wanted: Option<C>) -> ReconfigurationAttempt<C> {
        ReconfigurationAttempt::flawed(self.current.clone(), wanted, self.by, self.flaw)
    }

    #[cfg(not(feature = "flaws"))]
    fn new_change(&self, wanted: Option<C>) -> ReconfigurationAttempt<C> {
        ReconfigurationAttempt::new(self.current.clone(), wanted, self.by)
    }

    fn does(
        &mut self,
        does: impl FnOnce(&mut ReconfigurationAttempt<C>, &mut Vec<ReconfigurationOutput<C>>),
        out: &mut Vec<ReconfigurationEffect<C>>,
    ) {
        let mut outputs = Vec::new();
        does(&mut self.change, &mut outputs);
        let current = self.change.current().clone();
        self.learn(&current);
        for output in outputs {
            match output {
                ReconfigurationOutput::Send { to, round, ask } => {
                    self.round = self.rounds_before + round;
                    out.push(ReconfigurationEffect::Send { to, round: self.round, ask });
                }
                ReconfigurationOutput::Wait(span) => out.push(ReconfigurationEffect::Wait(span)),
                ReconfigurationOutput::Begun(voters) => {
                    if !mem::replace(&mut self.has_begun, true) {
                        let is_wanted = matches!(self.step, Step::Changing(_));
                        out.push(ReconfigurationEffect::Begun { voters, is_wanted });
                    }
                }
                ReconfigurationOutput::Done(voters) => self.changed(voters, out),
                ReconfigurationOutput::Stuck(silent) => {
                    let is_joint = self.has_begun || self.current.voter_set().incoming().is_some();
                    self.end(ReconfigurationEffect::Stuck { silent, is_joint }, out);
                }
            }
        }
    }

    /// A change is over, and these vote alone.
    fn changed(&mut self, voters: C, out: &mut Vec<ReconfigurationEffect<C>>) {
        match mem::replace(&mut self.step, Step::Planning) {
            Step::Changing(wanted) => {
                self.is_changed |= self.has_begun;
                if wanted == voters {
                    // The voter through which all is asked may be none any more, so nothing more is asked.
                    self.end(ReconfigurationEffect::Done(voters), out);
                } else {
                    self.finish(out);
                }
            }
            Step::Finishing => {
                self.has_finished |= self.has_begun;
                if self.current.voter_set().incoming().is_some() {
                    // The next exchange has begun meanwhile.
                    return self.finish(out);
                }
                out.push(ReconfigurationEffect::Plan { is_later: self.is_changed || self.has_finished });
            }
            Step::Planning | Step::Over => {}
        }
    }

    fn end(&mut self, effect: ReconfigurationEffect<C>, out: &mut Vec<ReconfigurationEffect<C>>) {
        self.step = Step::Over;
        out.push(effect);
    }
}
