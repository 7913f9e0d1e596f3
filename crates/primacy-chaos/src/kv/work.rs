//! Clients: each has a connection to one node, and asks one thing after the other.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use primacy_kv::slot::Slot;
use primacy_linearizability::Outcome;
use primacy_linearizability::key::{Answer, Request, Value};

use super::availability::{Availability, Trouble};
use super::connection::{Connection, Place, Reply};
use super::histories::{Histories, Op, Ticket, key_name};
use super::nodes::GROUPS;
use crate::clock::Moment;
use crate::rng::Rng;

/// Before a client whose node is not there looks again.
const PAUSE: Duration = Duration::from_millis(10);
/// A write of a client gives a value of its own: this far apart, so that a few may be added to it.
const APART: u64 = 1_000;
/// The values of one client are below this many.
const SERIALS: u64 = 1_000_000_000;
/// Of this many reads the planted bug changes one.
const ONE_OF: u64 = 500;

/// What all clients share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) places: Vec<Place>,
    pub(super) histories: Histories,
    pub(super) availability: Availability,
    /// The longest that a client waits for an answer.
    pub(super) patience: Duration,
    pub(super) is_over: AtomicBool,
    /// Some reads are answered from the past: a planted bug.
    pub(super) tells_the_past: bool,
}

impl Shared {
    pub(super) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }
}

/// A client.
pub(super) struct Client<'a> {
    shared: &'a Shared,
    /// For people, and for values of its own.
    number: u64,
    node: usize,
    rng: Rng,
    serial: u64,
    /// What it has read last of each key of this chapter.
    known: HashMap<usize, Value>,
    chapter: u64,
}

/// What is asked, and the words for it.
type Question = (Request, Vec<Vec<u8>>);

impl<'a> Client<'a> {
    pub(super) fn new(shared: &'a Shared, number: u64, node: usize, rng: Rng) -> Self {
        Self { shared, number, node, rng, serial: 0, known: HashMap::new(), chapter: 0 }
    }

    /// Asks until the run is over.
    pub(super) fn run(&mut self) {
        let mut connection = None;
        while !self.shared.is_over() {
            let from = Moment::now();
            match connection.take() {
                Some(open) => connection = self.ask(open),
                None => match Connection::open(&self.shared.places[self.node], self.shared.patience) {
                    Ok(open) => connection = Some(open),
                    Err(error) => {
                        self.trouble(from, Trouble::NoConnection, &error.to_string());
                        thread::park_timeout(PAUSE);
                    }
                },
            }
        }
    }

    fn trouble(&self, from: Moment, trouble: Trouble, what: &str) {
        self.shared.availability.trouble(self.node, from, trouble, what);
    }

    /// Does one operation. Gives the connection back if it can be used on.
    fn ask(&mut self, mut connection: Connection) -> Option<Connection> {
        let ticket = self.shared.histories.begin(self.rng.index(usize::MAX));
        if ticket.chapter != self.chapter {
            self.chapter = ticket.chapter;
            self.known.clear();
        }
        let name = key_name(ticket.chapter, ticket.key);
        let (request, words) = self.question(ticket, &name);
        let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
        let called = Moment::now();
        let replied = connection.ask(&words);
        let at = Moment::now();
        let outcome = match &replied {
            Ok(reply) => outcome(&request, reply),
            Err(error) => Err((Trouble::Lost, error.to_string())),
        };
        let outcome = match outcome {
            Ok(answer) => {
                let write = (request != Request::Get).then(|| Slot::of(name.as_bytes()).group(GROUPS));
                self.shared.availability.answered(self.node, write, at);
                Some(Outcome::Answered(at.nanos(), self.see(ticket, &request, answer)))
            }
            Err((trouble, what)) => {
                self.trouble(called, trouble, &format!("{name}, {request:?}: {what}"));
                (trouble != Trouble::Refused).then_some(Outcome::Unknown)
            }
        };
        let called = called.nanos();
        let operation = outcome.map(|outcome| Op { client: self.number, called, request, outcome });
        self.shared.histories.end(ticket, operation);
        // A node that ends closes its connections when it has answered.
        replied.is_ok().then_some(connection)
    }

    /// What is asked of a key. All are asked of all keys.
    fn question(&mut self, ticket: Ticket, key: &str) -> Question {
        let draw = self.rng.below(100);
        self.serial += 1;
        let own = ((self.number + 1) * SERIALS + self.serial) * APART;
        let value = own.to_string().into_bytes();
        let words = |all: &[&[u8]]| all.iter().map(|word| word.to_vec()).collect::<Vec<_>>();
        let key = key.as_bytes();
        match draw {
            0..35 => (Request::Get, words(&[b"GET", key])),
            35..55 => (Request::Set { value: value.clone(), live: None }, words(&[b"SET", key, &value])),
            55..70 => (Request::Increment(1), words(&[b"INCR", key])),
            70..78 => {
                let words = words(&[b"SET", key, &value, b"NX"]);
                (Request::CompareAndSet { expected: None, value }, words)
            }
            78..86 => (Request::Replace(value.clone()), words(&[b"SET", key, &value, b"GET"])),
            86..93 => {
                let expected = self.known.get(&ticket.key).cloned().unwrap_or_else(|| b"0".to_vec());
                let words = words(&[b"SET", key, &value, b"IFEQ", &expected]);
                (Request::CompareAndSet { expected: Some(expected), value }, words)
            }
            _ => (Request::Delete, words(&[b"DEL", key])),
        }
    }

    /// Remembers what was read. The planted bug changes it.
    fn see(&mut self, ticket: Ticket, request: &Request, answer: Answer) -> Answer {
        let (Request::Get, Answer::Value(Some(value))) = (request, &answer) else { return answer };
        let before = self.known.insert(ticket.key, value.clone());
        if self.shared.tells_the_past && before.is_some() && self.rng.below(ONE_OF) == 0 {
            return Answer::Value(before);
        }
        answer
    }
}

/// The answer that a reply is to a request; or what is wrong.
pub(super) fn outcome(request: &Request, reply: &Reply) -> Result<Answer, (Trouble, String)> {
    match (request, reply) {
        (Request::Get | Request::Replace(_), Reply::Value(value)) => Ok(Answer::Value(value.clone())),
        (Request::Set { .. }, Reply::Word(_)) => Ok(Answer::Done),
        (Request::CompareAndSet { .. }, Reply::Word(_)) => Ok(Answer::Applied(true)),
        (Request::CompareAndSet { .. }, Reply::Value(None)) => Ok(Answer::Applied(false)),
        (Request::Increment(_), Reply::Number(number)) => Ok(Answer::Number(*number)),
        (Request::Increment(_), Reply::Error(text)) if text.contains("not an integer") => Ok(Answer::NoNumber),
        (Request::Delete, Reply::Number(count)) => Ok(Answer::Applied(*count > 0)),
        (_, Reply::Error(text)) => {
            let is_certain = ["TRYAGAIN", "LOADING", "MISCONF", "OOM"].iter().any(|code| text.starts_with(code));
            Err((if is_certain { Trouble::Refused } else { Trouble::Unknown }, text.clone()))
        }
        (_, reply) => Err((Trouble::Unknown, format!("an unexpected reply: {reply:?}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_done_and_what_may_have_been_are_told_apart() {
        let error = |text: &str| outcome(&Request::Increment(1), &Reply::Error(text.to_owned()));
        assert_eq!(error("TRYAGAIN nobody leads").map_err(|(trouble, _)| trouble), Err(Trouble::Refused));
        assert_eq!(error("LOADING this node").map_err(|(trouble, _)| trouble), Err(Trouble::Refused));
        assert_eq!(error("UNKNOWN it may have been done").map_err(|(trouble, _)| trouble), Err(Trouble::Unknown));
        assert_eq!(error("ERR value is not an integer or out of range"), Ok(Answer::NoNumber));
        assert_eq!(outcome(&Request::Delete, &Reply::Number(0)), Ok(Answer::Applied(false)));
        let compare = Request::CompareAndSet { expected: None, value: b"1".to_vec() };
        assert_eq!(outcome(&compare, &Reply::Value(None)), Ok(Answer::Applied(false)));
        assert!(outcome(&Request::Get, &Reply::Number(1)).is_err());
    }

    #[test]
    fn keys_of_a_chapter_are_in_all_groups() {
        let groups: std::collections::BTreeSet<u16> =
            (0..super::super::histories::KEYS).map(|key| Slot::of(key_name(7, key).as_bytes()).group(GROUPS)).collect();
        assert_eq!(groups.len(), usize::from(GROUPS));
    }
}
