//! Checks histories while clients go on: each chapter when it is complete, and later again whether its keys still have what they had.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::mpsc::Sender;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use primacy_linearizability::key::{Answer, Key, Request, Value};
use primacy_linearizability::{Outcome, Verdict, check};
use serde_json::json;

use super::connection::Connection;
use super::histories::{Chapter, KEYS, Op, key_name};
use super::work::{Shared, outcome};
use crate::clock::Moment;
use crate::rng::Rng;

/// How many configurations a search of one key's history may visit.
const BUDGET: usize = 2_000_000;
/// The client that the checker is, for people.
const CHECKER: u64 = 999;
/// How long a read is tried again, at one node after the other.
const READING: Duration = Duration::from_secs(30);
/// Before it is.
const PAUSE: Duration = Duration::from_millis(20);
/// How many of the keys of former chapters are read again when a chapter is complete.
const AGAIN: usize = KEYS / 2;

/// What was checked, and what is left to be.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Checked {
    pub(super) operations: usize,
    /// Of these, how many may have been done.
    pub(super) unknown: usize,
    pub(super) histories: usize,
    /// How many former keys were read again.
    pub(super) again: usize,
    /// How long the longest search took.
    pub(super) longest: Duration,
    pub(super) searching: Duration,
}

/// A key that no client uses any more.
#[derive(Debug)]
struct Former {
    name: String,
    value: Option<Value>,
    /// When that was read.
    read: (u64, u64),
    /// What may be done at any later moment.
    pending: Vec<Op>,
}

/// Reads and checks.
pub(super) struct Checker<'a> {
    shared: &'a Shared,
    rng: Rng,
    /// One to each node, as long as it is of use.
    connections: Vec<Option<Connection>>,
    /// Where histories that are wrong are left.
    folder: PathBuf,
    tell: Sender<String>,
    former: Vec<Former>,
    checked: Checked,
}

impl<'a> Checker<'a> {
    pub(super) fn new(shared: &'a Shared, rng: Rng, folder: &Path, tell: Sender<String>) -> Self {
        let (former, checked) = (Vec::new(), Checked::default());
        let connections = shared.places.iter().map(|_| None).collect();
        Self { shared, rng, connections, folder: folder.to_owned(), tell, former, checked }
    }

    /// Checks all chapters, and in the end all keys again.
    ///
    /// # Errors
    /// If keys cannot be read, or histories not be left.
    pub(super) fn run(mut self) -> Result<Checked> {
        while let Some(chapter) = self.shared.histories.complete() {
            self.chapter(chapter)?;
            for _ in 0..AGAIN.min(self.former.len()) {
                let index = self.rng.index(self.former.len());
                self.again(index)?;
            }
        }
        (0..self.former.len()).try_for_each(|index| self.again(index))?;
        Ok(self.checked)
    }

    fn chapter(&mut self, chapter: Chapter) -> Result<()> {
        for (key, mut history) in chapter.keys.into_iter().enumerate() {
            let name = key_name(chapter.number, key);
            let (read, value) = self.read(&name)?;
            let called = read.called;
            self.checked.operations += history.len();
            let is_unknown = |op: &&Op| op.outcome == Outcome::Unknown && op.request != Request::Get;
            let pending: Vec<Op> = history.iter().filter(is_unknown).cloned().collect();
            self.checked.unknown += pending.len();
            let returned = read.returned().unwrap_or(called);
            history.push(read);
            self.check(&name, &history)?;
            self.former.push(Former { name, value, read: (called, returned), pending });
        }
        Ok(())
    }

    /// Reads a former key again. What was read before stands for its history: what may have been done may be done once more then,
    /// so that nothing is called wrong that is not.
    fn again(&mut self, index: usize) -> Result<()> {
        let (read, value) = self.read(&self.former[index].name.clone())?;
        let former = &mut self.former[index];
        let (called, returned) = former.read;
        let mut history = former.pending.clone();
        history.extend(former.value.take().map(|value| Op {
            client: CHECKER,
            called,
            request: Request::Set { value, live: None },
            outcome: Outcome::Answered(returned, Answer::Done),
        }));
        former.value = value;
        former.read = (read.called, read.returned().unwrap_or(read.called));
        history.push(read);
        let name = former.name.clone();
        self.checked.again += 1;
        self.check(&name, &history)
    }

    fn check(&mut self, name: &str, history: &Vec<Op>) -> Result<()> {
        let begin = Moment::now();
        let verdict = check(&Key, history, BUDGET);
        let took = Moment::now().since(begin);
        self.checked.histories += 1;
        self.checked.longest = self.checked.longest.max(took);
        self.checked.searching += took;
        let what = match verdict {
            Verdict::Linearizable => return Ok(()),
            Verdict::Violation(counterexample) => format!("{name} is not linearizable\n{counterexample}"),
            Verdict::Unknown => format!("{name}: the search was given up after {BUDGET} configurations"),
        };
        let file = self.folder.join(format!("history-{name}.json"));
        let lines: Vec<String> = history.iter().map(|op| line(op).to_string()).collect();
        fs::write(&file, lines.join("\n")).with_context(|| format!("cannot write {}", file.display()))?;
        let _ = self.tell.send(format!("{what}  all {} operations of it: {}", history.len(), file.display()));
        Ok(())
    }

    /// What one node answers, if it does.
    fn ask(&mut self, node: usize, name: &str) -> Option<Answer> {
        let open = || Connection::open(&self.shared.places[node], self.shared.patience).ok();
        let mut connection = self.connections[node].take().or_else(open)?;
        let reply = connection.ask(&[b"GET", name.as_bytes()]).ok()?;
        self.connections[node] = Some(connection);
        outcome(&Request::Get, &reply).ok()
    }

    /// A key's value, by any node.
    fn read(&mut self, name: &str) -> Result<(Op, Option<Value>)> {
        let until = Moment::now() + READING;
        while Moment::now() < until {
            let node = self.rng.index(self.connections.len());
            let called = Moment::now().nanos();
            if let Some(Answer::Value(value)) = self.ask(node, name) {
                let outcome = Outcome::Answered(Moment::now().nanos(), Answer::Value(value.clone()));
                return Ok((Op { client: CHECKER, called, request: Request::Get, outcome }, value));
            }
            thread::park_timeout(PAUSE);
        }
        bail!("no node has answered within {READING:?} what {name} has")
    }
}

/// An operation for scripts, one object a line.
fn line(op: &Op) -> serde_json::Value {
    json!({
        "client": op.client,
        "called_ns": op.called,
        "returned_ns": op.returned(),
        "request": format!("{:?}", op.request),
        "answer": op.answer().map(|answer| format!("{answer:?}")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operation_is_a_line_that_can_be_read() {
        let request = Request::Set { value: b"17".to_vec(), live: None };
        let op = Op { client: 3, called: 5, request, outcome: Outcome::Answered(9, Answer::Done) };
        assert_eq!(
            line(&op).to_string(),
            r#"{"answer":"Done","called_ns":5,"client":3,"request":"Set(\"17\")","returned_ns":9}"#
        );
    }
}
