//! A client's connection to one voter, without its socket: made again when it breaks, and every question comes to an end.

#[cfg(test)]
mod tests;

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::mem;
use core::time::Duration;

#[cfg(feature = "flaws")]
use super::Flaw;
use super::voter_set::VoterId;
use crate::Instant;

/// What a client wants done with its connection to a voter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConnectionEffect<T, Q> {
    /// Connect. How that ends is told to [`VoterConnection::connected`] or [`VoterConnection::failed`].
    Connect,
    /// Send this question with this number, by which its answer is told ([`VoterConnection::answered`]).
    Send {
        /// The number. None is used twice, and 0 is not used.
        number: u64,
        /// What to ask.
        question: Q,
    },
    /// Give the connection up.
    Close,
    /// No answer to the question with this tag, which was meant for this voter, will come. The voter may have done what it was asked.
    Lost {
        /// For whom it was meant.
        voter: VoterId,
        /// Which question.
        tag: T,
    },
}

/// Which voter answers at the other end, if one does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// It is being made for the first time: what is asked waits for it.
    Opening,
    /// It stands, and this voter answers.
    Open(VoterId),
    /// It has broken, or could not be made, and is made anew then.
    Waiting(Instant),
    /// It is being made anew.
    Reopening,
}

/// A question without an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Pending<T> {
    tag: T,
    since: Instant,
}

/// A client's connection to one voter. `T` tells the client's questions apart, `Q` is a question.
///
/// Each question is answered, or is told to be [lost](ConnectionEffect::Lost): when the connection breaks, when it cannot be made, when
/// another voter than was meant answers, and when an answer is not there after [a second](Self::SILENCE), which also ends the
/// connection. So nobody who waits for a majority waits longer for a voter that is gone. Questions wait for a connection only while it is
/// made for the first time.
///
/// Many clients may share one: it carries the questions of as many as there are, in the order in which they were asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VoterConnection<T, Q> {
    state: State,
    /// Before it is made anew the next time.
    pause: Duration,
    /// The number of the last question.
    numbers: u64,
    pending: BTreeMap<u64, Pending<T>>,
    queued: Vec<(VoterId, T, Q)>,
    /// When something was last heard over it.
    heard_at: Instant,
    #[cfg(feature = "flaws")]
    flaw: Option<Flaw>,
}

impl<T: Copy, Q> VoterConnection<T, Q> {
    /// A question that is not answered after this ends the connection.
    pub const SILENCE: Duration = Duration::from_secs(1);

    /// A question is not late before this: less than a call may take with the shortest lease.
    pub const LATE: Duration = Duration::from_millis(20);

    /// The pause before a connection that has broken is made anew. It doubles with each attempt that fails, up to
    /// [`PAUSE_MAX`](Self::PAUSE_MAX).
    pub const PAUSE_MIN: Duration = Duration::from_millis(20);

    /// The longest pause between two attempts.
    pub const PAUSE_MAX: Duration = Duration::from_secs(1);

    /// One that is [being made](ConnectionEffect::Connect).
    pub fn open(out: &mut Vec<ConnectionEffect<T, Q>>) -> Self {
        out.push(ConnectionEffect::Connect);
        Self {
            state: State::Opening,
            pause: Self::PAUSE_MIN,
            numbers: 0,
            pending: BTreeMap::new(),
            queued: Vec::new(),
            heard_at: Instant::ZERO,
            #[cfg(feature = "flaws")]
            flaw: None,
        }
    }

    /// As [`open`](Self::open), with a flaw.
    #[cfg(feature = "flaws")]
    pub fn flawed(out: &mut Vec<ConnectionEffect<T, Q>>, flaw: Option<Flaw>) -> Self {
        Self { flaw, ..Self::open(out) }
    }

    /// Asks a voter, if it is the one that answers there: behind an address there may be another by now, which knows nothing of what
    /// the one that is meant has promised.
    pub fn ask(&mut self, voter: VoterId, tag: T, question: Q, now: Instant, out: &mut Vec<ConnectionEffect<T, Q>>) {
        match self.state {
            State::Opening => self.queued.push((voter, tag, question)),
            State::Open(there) if there == voter => {
                self.numbers += 1;
                let number = self.numbers;
                self.pending.insert(number, Pending { tag, since: now });
                out.push(ConnectionEffect::Send { number, question });
            }
            State::Open(_) | State::Waiting(_) | State::Reopening => out.push(ConnectionEffect::Lost { voter, tag }),
        }
    }

    /// The connection stands, and this voter answers there.
    pub fn connected(&mut self, voter: VoterId, now: Instant, out: &mut Vec<ConnectionEffect<T, Q>>) {
        (self.state, self.pause, self.heard_at) = (State::Open(voter), Self::PAUSE_MIN, now);
        for (voter, tag, question) in mem::take(&mut self.queued) {
            self.ask(voter, tag, question, now, out);
        }
    }

    /// The connection could not be made, or has broken.
    pub fn failed(&mut self, now: Instant, out: &mut Vec<ConnectionEffect<T, Q>>) {
        if let State::Waiting(_) = self.state {
            return;
        }
        let was = mem::replace(&mut self.state, State::Waiting(now + self.pause));
        self.pause = (self.pause * 2).min(Self::PAUSE_MAX);
        let queued = mem::take(&mut self.queued);
        out.extend(queued.into_iter().map(|(voter, tag, _)| ConnectionEffect::Lost { voter, tag }));
        if let State::Open(voter) = was {
            out.push(ConnectionEffect::Close);
            let pending = mem::take(&mut self.pending);
            out.extend(pending.into_values().map(|Pending { tag, .. }| ConnectionEffect::Lost { voter, tag }));
        }
    }

    /// The question with this number is answered: its tag, and who has answered. `None` if nobody waits for that.
    pub fn answered(&mut self, number: u64) -> Option<(VoterId, T)> {
        let State::Open(voter) = self.state else { return None };
        self.pending.remove(&number).map(|Pending { tag, .. }| (voter, tag))
    }

    /// Something has come over it: an answer, or what nobody asked for.
    pub const fn heard(&mut self, now: Instant) {
        self.heard_at = now;
    }

    /// Nobody waits any longer for the answers to these questions. If nothing has been [heard](Self::heard) since the first of them
    /// was asked, for [a while](Self::LATE) at least, the connection may be dead, and is made anew: the next question must not wait
    /// behind one that is known to be late (rule R8). A connection that serves others goes on.
    pub fn give_up(&mut self, which: impl Fn(T) -> bool, now: Instant, out: &mut Vec<ConnectionEffect<T, Q>>) {
        let asked = self.pending.values().filter(|pending| which(pending.tag)).map(|pending| pending.since).min();
        let is_dead = |asked| self.heard_at <= asked && now.since(asked) >= Self::LATE;
        if matches!(self.state, State::Open(_)) && asked.is_some_and(is_dead) {
            self.failed(now, out);
        }
    }

    /// When [`tick`](Self::tick) is to be called next, if it is.
    pub fn next_tick(&self) -> Option<Instant> {
        match self.state {
            State::Waiting(until) => Some(until),
            State::Open(_) if !self.flawed_waits_forever() => {
                self.pending.first_key_value().map(|(_, oldest)| oldest.since + Self::SILENCE)
            }
            State::Opening | State::Reopening | State::Open(_) => None,
        }
    }

    /// Time has passed: a connection that is silent is given up, and one that has broken is made anew.
    pub fn tick(&mut self, now: Instant, out: &mut Vec<ConnectionEffect<T, Q>>) {
        if self.next_tick().is_none_or(|at| now < at) {
            return;
        }
        if let State::Waiting(_) = self.state {
            self.state = State::Reopening;
            out.push(ConnectionEffect::Connect);
        } else {
            self.failed(now, out);
        }
    }

    /// Whether it is being made for the first time.
    pub const fn is_opening(&self) -> bool {
        matches!(self.state, State::Opening)
    }

    /// Who answers there, while it stands.
    pub const fn voter(&self) -> Option<VoterId> {
        match self.state {
            State::Open(voter) => Some(voter),
            State::Opening | State::Waiting(_) | State::Reopening => None,
        }
    }

    /// Since when the oldest of its questions waits for its answer.
    pub fn oldest(&self) -> Option<Instant> {
        self.pending.first_key_value().map(|(_, oldest)| oldest.since)
    }

    #[cfg_attr(not(feature = "flaws"), expect(clippy::unused_self, reason = "there is no planted bug to ask for"))]
    fn flawed_waits_forever(&self) -> bool {
        #[cfg(feature = "flaws")]
        return self.flaw == Some(Flaw::WaitsForever);
        #[cfg(not(feature = "flaws"))]
        false
    }
}
