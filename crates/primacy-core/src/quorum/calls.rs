//! A client's calls to all voters: its client, when that asks again, and which of its results answers a call.

#[cfg(test)]
mod tests;

use alloc::vec::Vec;

use super::client::{Output, QuorumClient, Round};
use super::pace::Pace;
use super::port::Answer;
use super::voter_set::{VoterId, VoterSet};
use crate::Instant;

/// One client of the voters, for its whole life, whatever becomes of its connections: a [`QuorumClient`], and the
/// [`Pace`] at which voters answer it. It makes one call at a time.
///
/// What comes between two calls, or is about a call that was [given up](Self::abandon), is heard: a voter that missed a claim is brought
/// over by it. It is never the result of the next call.
#[derive(Clone, Debug)]
pub struct QuorumCalls {
    client: QuorumClient,
    pace: Pace,
    is_calling: bool,
}

impl QuorumCalls {
    /// With a client that has asked nothing yet.
    pub fn new(client: QuorumClient) -> Self {
        Self { client, pace: Pace::default(), is_calling: false }
    }

    /// Its client.
    pub const fn client(&self) -> &QuorumClient {
        &self.client
    }

    /// Its next call is about another election, over the same connections ([`QuorumClient::after`]).
    pub fn turn_to_another(&mut self) {
        self.client = QuorumClient::after(&self.client);
        self.is_calling = false;
    }

    /// Begins a call, which `begin` tells the client of. One [`Output::Done`] follows, with its result.
    pub fn begin(
        &mut self,
        begin: impl FnOnce(&mut QuorumClient, &mut Vec<Output>),
        now: Instant,
        out: &mut Vec<Output>,
    ) {
        self.is_calling = true;
        self.does(begin, now, out);
    }

    /// Nobody waits for the call under way any longer, if there is one.
    pub const fn abandon(&mut self) {
        self.is_calling = false;
    }

    /// A voter has answered.
    pub fn answered(&mut self, from: VoterId, round: Round, answer: Answer, now: Instant, out: &mut Vec<Output>) {
        self.pace.heard(from);
        self.does(|client, out| client.answered(from, round, answer, out), now, out);
    }

    /// No answer to this round will come from that voter, which may have done what it was asked.
    pub fn unheard(&mut self, from: VoterId, round: Round, now: Instant, out: &mut Vec<Output>) {
        self.does(|client, out| client.unheard(from, round, out), now, out);
    }

    /// These vote by now ([`QuorumClient::moved`]).
    pub fn moved(&mut self, voters: VoterSet, now: Instant, out: &mut Vec<Output>) {
        self.does(|client, out| client.moved(voters, out), now, out);
    }

    /// When [`act`](Self::act) is to be called, if its call is not over by then. To be asked whenever it has done something. `None`
    /// while it makes no call.
    pub fn due(&mut self, now: Instant) -> Option<Instant> {
        self.is_calling.then(|| self.pace.due(&self.client, now))
    }

    /// Asks again, or concludes, if either is due.
    pub fn act(&mut self, now: Instant, out: &mut Vec<Output>) {
        if self.is_calling {
            let Self { client, pace, .. } = self;
            let mut outputs = Vec::new();
            pace.act(client, now, &mut outputs);
            self.take(outputs, now, out);
        }
    }

    fn does(&mut self, does: impl FnOnce(&mut QuorumClient, &mut Vec<Output>), now: Instant, out: &mut Vec<Output>) {
        let mut outputs = Vec::new();
        does(&mut self.client, &mut outputs);
        self.take(outputs, now, out);
    }

    fn take(&mut self, outputs: Vec<Output>, now: Instant, out: &mut Vec<Output>) {
        for output in outputs {
            if let Output::Done(result) = &output {
                if !self.is_calling {
                    continue;
                }
                self.is_calling = false;
                self.pace.done(result.is_ok(), now);
            }
            out.push(output);
        }
    }
}
