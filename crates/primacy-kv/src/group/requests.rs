//! Where requests go: those of this node's clients to the leader, those that this leader got into its queue, and answers back.

use alloc::vec::Vec;

use primacy_core::log::{Ballot, ReplicaId};

use super::Group;
use super::flaws::Flaw;
use super::leading::Reader;
use super::message::{Answers, Forward, Message};
use super::port::Effect;
use crate::request::Answered;

impl Group {
    /// Sends the leader what it has not got.
    pub(super) fn forward(&mut self) {
        let Some((leader, forward)) = self.origin.forward() else { return };
        if leader == self.settings.own {
            self.take(leader, forward);
        } else {
            self.effects.push(Effect::Send { to: leader, message: Message::Forward(forward) });
        }
    }

    /// Takes requests of a node, if it is meant.
    pub(super) fn take(&mut self, from: ReplicaId, forward: Forward) {
        let ballot = forward.ballot;
        // What a node has sent is forgotten when it is no replica any more: it would be done again.
        let counts = self.counts(from);
        let others = self.planted.is(Flaw::TakesOthers);
        let leading = self.leading.as_mut().filter(|leading| leading.serves && (leading.ballot == ballot || others));
        match leading {
            Some(leading) if counts => {
                // Later requests of one that was refused are not taken before earlier ones: all that it has come again.
                if leading.refused.contains(&from) && !forward.is_whole() {
                    return;
                }
                leading.refused.remove(&from);
                let reads = leading.take(from, forward);
                let how = self.settings.reads;
                leading.has_unasked |= !reads.is_empty();
                for number in reads {
                    self.log_does(|log, effects| log.read(number, how, effects));
                }
            }
            _ if from == self.settings.own => self.origin.unfollow(ballot),
            leading => {
                if let Some(leading) = leading {
                    leading.refused.insert(from);
                }
                self.answers_for(from, forward.starts, ballot).is_over = true;
            }
        }
    }

    /// Whether it is one of the replicas.
    pub(super) fn counts(&self, node: ReplicaId) -> bool {
        self.log.replica().log().config().is_some_and(|config| config.has(node)) || self.planted.is(Flaw::ForgetsLiving)
    }

    /// What became of requests of this node.
    pub(super) fn answered(&mut self, answers: Answers) {
        if answers.starts != self.settings.starts {
            return;
        }
        for (number, answer) in answers.writes {
            self.origin.wrote(number, answer, &mut self.effects);
        }
        for (number, answer) in answers.reads {
            self.origin.has_read(number, answer, &mut self.effects);
        }
        if answers.is_over {
            self.origin.unfollow(answers.ballot);
        }
    }

    pub(super) fn answers_for(&mut self, node: ReplicaId, starts: u64, ballot: Ballot) -> &mut Answers {
        let empty = || Answers { ballot, starts, is_over: false, writes: Vec::new(), reads: Vec::new() };
        self.answers.entry((node, starts, ballot)).or_insert_with(empty)
    }

    pub(super) fn tell_write(
        &mut self,
        (node, starts, number): (ReplicaId, u64, u64),
        answer: Answered,
        ballot: Ballot,
    ) {
        if node != self.settings.own {
            self.answers_for(node, starts, ballot).writes.push((number, answer));
        } else if starts == self.settings.starts {
            self.origin.wrote(number, answer, &mut self.effects);
        }
    }

    pub(super) fn tell_read(&mut self, reader: Reader, answer: Answered, ballot: Ballot) {
        let Reader { node, starts, number } = reader;
        if node == self.settings.own {
            self.origin.has_read(number, answer, &mut self.effects);
        } else {
            self.answers_for(node, starts, ballot).reads.push((number, answer));
        }
    }
}
