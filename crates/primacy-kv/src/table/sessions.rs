//! Answers to forwarded requests, kept until the node that forwarded them has them, so that a repeated request is
//! answered and not carried out again.

use alloc::collections::BTreeMap;
use core::mem;

use crate::entry::Origin;
use crate::resp::Reply;
use crate::wire::Malformed;

/// How many answers are kept for one node, and how many bytes of them; how many nodes there are at most. All replicas
/// refuse at the same request, since these are numbers of the format and not settings.
const ANSWERS_MAX: usize = 1 << 16;
const BYTES_MAX: usize = 64 << 20;
const NODES_MAX: usize = 64;

/// Why a forwarded request was not carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The node has acknowledged the answer to this number already: this is a late repetition.
    #[error("it was answered before")]
    Acknowledged,
    /// The node has been started again since: nobody waits for the answer.
    #[error("its node has been started again")]
    EarlierStart,
    /// A later one of the node was carried out, and this one was not: a leader has refused it then. No copy of it is ever carried out.
    #[error("a later one was carried out, and this one was not")]
    Overtaken,
    /// The node has too many answers that it has not acknowledged.
    #[error("its node has too many requests under way")]
    TooManyAnswers,
    /// Too many nodes have forwarded requests, and were not forgotten.
    #[error("there are too many nodes")]
    TooManyNodes,
    /// The batch does not say who sent it.
    #[error("its node is not named")]
    Unnamed,
}

/// What is kept of each node, by its id.
#[derive(Debug, Default)]
pub(super) struct Sessions {
    nodes: BTreeMap<u128, Session>,
    /// What was left out is carried out behind what came later: a planted bug.
    pub(super) forgets_order: bool,
}

#[derive(Debug, Clone, Default)]
struct Session {
    starts: u64,
    acknowledged: u64,
    answers: BTreeMap<u64, Reply>,
    bytes: usize,
}

/// What an answer takes beside its own size.
const ANSWER_OVERHEAD: usize = 32;

impl Session {
    fn keep(&mut self, number: u64, answer: Reply) {
        self.bytes += answer.size() + ANSWER_OVERHEAD;
        self.answers.insert(number, answer);
    }
}

impl Sessions {
    pub(super) fn bytes(&self) -> usize {
        self.nodes.values().map(|session| session.bytes).sum()
    }

    /// Takes note of what a node says of itself, before its requests are carried out.
    pub(super) fn hear(&mut self, origin: &Origin) {
        let has_room = self.nodes.len() < NODES_MAX;
        let session = match self.nodes.get_mut(&origin.node) {
            Some(session) => session,
            None if has_room => self.nodes.entry(origin.node).or_default(),
            None => return,
        };
        if session.starts < origin.starts {
            *session = Session { starts: origin.starts, ..Session::default() };
        }
        if session.starts == origin.starts && session.acknowledged < origin.acknowledged {
            session.acknowledged = origin.acknowledged;
            let rest = origin.acknowledged.checked_add(1).map(|next| session.answers.split_off(&next));
            let gone = mem::replace(&mut session.answers, rest.unwrap_or_default());
            session.bytes -= gone.values().map(|answer| answer.size() + ANSWER_OVERHEAD).sum::<usize>();
        }
    }

    /// The answer to a request that has been carried out already; `None` if it has to be carried out now.
    pub(super) fn answer(&self, origin: &Origin, number: u64) -> Result<Option<&Reply>, Refusal> {
        let session = self.nodes.get(&origin.node).ok_or(Refusal::TooManyNodes)?;
        if session.starts != origin.starts {
            return Err(Refusal::EarlierStart);
        }
        if number <= session.acknowledged {
            return Err(Refusal::Acknowledged);
        }
        if let Some(answer) = session.answers.get(&number) {
            return Ok(Some(answer));
        }
        // A number that is not acknowledged and was carried out has its answer here, so this one was not.
        let is_overtaken = session.answers.last_key_value().is_some_and(|(last, _)| *last > number);
        if is_overtaken && !self.forgets_order {
            return Err(Refusal::Overtaken);
        }
        let has_room = session.answers.len() < ANSWERS_MAX && session.bytes < BYTES_MAX;
        if has_room { Ok(None) } else { Err(Refusal::TooManyAnswers) }
    }

    /// Keeps the answer to a request that has been carried out.
    pub(super) fn keep(&mut self, origin: &Origin, number: u64, answer: Reply) {
        if let Some(session) = self.nodes.get_mut(&origin.node) {
            session.keep(number, answer);
        }
    }

    /// Forgets a node that has left. Returns whether it was known.
    pub(super) fn forget(&mut self, node: u128) -> bool {
        self.nodes.remove(&node).is_some()
    }

    /// Each node, and its answers in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Origin, impl Iterator<Item = (u64, &Reply)>)> {
        self.nodes.iter().map(|(node, session)| {
            let Session { starts, acknowledged, ref answers, .. } = *session;
            (Origin { node: *node, starts, acknowledged }, answers.iter().map(|(number, answer)| (*number, answer)))
        })
    }

    /// Adds a node from a snapshot. They come in order.
    pub(super) fn restore(&mut self, origin: Origin) -> Result<(), Malformed> {
        if self.nodes.last_key_value().is_some_and(|(last, _)| *last >= origin.node) {
            return Err(Malformed("nodes are not in order"));
        }
        if self.nodes.len() >= NODES_MAX {
            return Err(Malformed("too many nodes"));
        }
        let Origin { node, starts, acknowledged } = origin;
        self.nodes.insert(node, Session { starts, acknowledged, ..Session::default() });
        Ok(())
    }

    /// Adds an answer to the node that was added last. They come in order.
    pub(super) fn restore_answer(&mut self, number: u64, answer: Reply) -> Result<(), Malformed> {
        let mut last = self.nodes.last_entry().ok_or(Malformed("an answer without a node"))?;
        let session = last.get_mut();
        let least = session.answers.last_key_value().map_or(session.acknowledged, |(last, _)| *last);
        if number <= least || session.answers.len() >= ANSWERS_MAX {
            return Err(Malformed("answers are not in order"));
        }
        session.keep(number, answer);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    fn origin(starts: u64, acknowledged: u64) -> Origin {
        Origin { node: 7, starts, acknowledged }
    }

    #[test]
    fn an_answer_is_kept_until_it_is_acknowledged() {
        let mut sessions = Sessions::default();
        sessions.hear(&origin(1, 0));
        assert_eq!(sessions.answer(&origin(1, 0), 1), Ok(None));
        sessions.keep(&origin(1, 0), 1, Reply::OK);
        assert_eq!(sessions.answer(&origin(1, 0), 1), Ok(Some(&Reply::OK)));
        sessions.hear(&origin(1, 1));
        assert_eq!(sessions.answer(&origin(1, 1), 1), Err(Refusal::Acknowledged));
        assert_eq!(sessions.bytes(), 0);
        // A late batch that says less changes nothing.
        sessions.hear(&origin(1, 0));
        assert_eq!(sessions.answer(&origin(1, 0), 1), Err(Refusal::Acknowledged));
    }

    #[test]
    fn numbers_begin_anew_with_each_start() {
        let mut sessions = Sessions::default();
        sessions.hear(&origin(1, 0));
        sessions.keep(&origin(1, 0), 1, Reply::OK);
        sessions.hear(&origin(2, 0));
        assert_eq!(sessions.answer(&origin(2, 0), 1), Ok(None));
        sessions.hear(&origin(1, 5));
        assert_eq!(sessions.answer(&origin(1, 5), 6), Err(Refusal::EarlierStart));
        assert_eq!(sessions.answer(&origin(2, 0), 1), Ok(None), "what an earlier start says does not count");
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let mut sessions = Sessions::default();
        sessions.hear(&origin(1, 0));
        for number in 1..=ANSWERS_MAX as u64 {
            assert_eq!(sessions.answer(&origin(1, 0), number), Ok(None));
            sessions.keep(&origin(1, 0), number, Reply::OK);
        }
        assert_eq!(sessions.answer(&origin(1, 0), 1 << 20), Err(Refusal::TooManyAnswers));
        assert_eq!(sessions.answer(&origin(1, 0), 1), Ok(Some(&Reply::OK)), "kept answers are still given");
        let others = (100..).map(|node| Origin { node, starts: 1, acknowledged: 0 });
        let others: Vec<_> = others.take(NODES_MAX).collect();
        others.iter().for_each(|other| sessions.hear(other));
        assert_eq!(sessions.answer(&others[NODES_MAX - 1], 1), Err(Refusal::TooManyNodes));
        assert!(sessions.forget(7));
        sessions.hear(&others[NODES_MAX - 1]);
        assert_eq!(sessions.answer(&others[NODES_MAX - 1], 1), Ok(None));
    }
}
