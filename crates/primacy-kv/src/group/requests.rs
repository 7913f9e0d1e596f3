//! Where requests go: those of this node's clients to the leader, those that this leader got into its queue, and answers back.

use primacy_core::log::{Ballot, ReplicaId};

use super::Group;
use super::flaws::Flaw;
use super::leading::RequestName;
use super::message::{Answers, Forward, MESSAGE_BYTES, Message};
use super::port::Effect;
use crate::request::Answered;

impl Group {
    /// Sends the leader what it has not got.
    pub(super) fn forward(&mut self) {
        // The leader does nothing for a node that keeps no replica.
        if !self.may_stand() {
            return;
        }
        for (leader, forward) in self.origin.forward() {
            if leader == self.settings.own {
                self.take(leader, forward);
            } else {
                self.effects.push(Effect::Send { to: leader, message: Message::Forward(forward) });
            }
        }
    }

    /// Takes requests of a node, if it is meant.
    pub(super) fn take(&mut self, from: ReplicaId, forward: Forward) {
        let ballot = forward.ballot;
        match &mut self.leading {
            // Those that come while it opens are done after those that come later: a planted bug.
            Some(leading) if !leading.serves() && self.planted.is(Flaw::FollowsOpening) => {
                self.answers_for(from, forward.starts, ballot).is_over = true;
            }
            Some(leading)
                if leading.takes_requests() && (leading.ballot == ballot || self.planted.is(Flaw::TakesOthers)) =>
            {
                leading.take(from, forward);
            }
            _ => self.tell_over(from, forward.starts, ballot),
        }
    }

    /// The leader by this ballot does nothing more for that node.
    pub(super) fn tell_over(&mut self, node: ReplicaId, starts: u64, ballot: Ballot) {
        if node == self.settings.own {
            self.origin.over(ballot);
        } else {
            self.answers_for(node, starts, ballot).is_over = true;
        }
    }

    /// The leader by this ballot has left out what that node sent, since it keeps no replica. It may come to keep one.
    pub(super) fn tell_left_out(&mut self, node: ReplicaId, starts: u64, ballot: Ballot) {
        if node == self.settings.own {
            self.origin.over(ballot);
        } else {
            self.answers_for(node, starts, ballot).is_left_out = true;
        }
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
            self.origin.over(answers.ballot);
        }
        if answers.is_left_out {
            self.origin.left_out(answers.ballot, self.now);
        }
    }

    pub(super) fn answers_for(&mut self, node: ReplicaId, starts: u64, ballot: Ballot) -> &mut Answers {
        self.answers.entry((node, starts, ballot)).or_insert_with(|| Answers::none(ballot, starts))
    }

    pub(super) fn tell_write(&mut self, name: RequestName, answer: Answered, ballot: Ballot) {
        let RequestName { node, starts, number } = name;
        if node != self.settings.own {
            self.answers_for(node, starts, ballot).writes.push((number, answer));
        } else if starts == self.settings.starts {
            self.origin.wrote(number, answer, &mut self.effects);
        }
    }

    pub(super) fn tell_read(&mut self, name: RequestName, answer: Answered, ballot: Ballot) {
        let RequestName { node, starts, number } = name;
        if node == self.settings.own {
            self.origin.has_read(number, answer, &mut self.effects);
        } else {
            self.answers_for(node, starts, ballot).reads.push((number, answer));
        }
    }

    /// Sends other nodes what they wait for, no message much larger than one answer.
    pub(super) fn send_answers(&mut self) {
        for ((to, ..), answers) in core::mem::take(&mut self.answers) {
            for answers in answers.split(MESSAGE_BYTES) {
                self.effects.push(Effect::Send { to, message: Message::Answers(answers) });
            }
        }
    }
}
