//! Random commands, asked of a table and of a real Redis: both give the same answers.
//!
//! A real server and a client in this process take seconds, and a machine without `redis-server` has none:
//! `cargo test -p primacy-kv --test redis -- --ignored`. `PRIMACY_KV_SEQUENCES` says how many sequences, and
//! `PRIMACY_KV_SEED` where they begin.
#![expect(clippy::unwrap_used, reason = "what helps a test may fail as a test does")]

mod random_commands;

use primacy_kv::command::{Command, CommandError, KeyspaceCommand, Limits, Operation, TransactionCommand};
use primacy_kv::entry::{Batch, Change, GroupTime, Request};
use primacy_kv::resp::{Protocol, Reply};
use primacy_kv::table::{Answer, Outcome, Table};
use random_commands::{Numbers, Server, arguments, comparable, has_wrong_options, is_rounding, setting, time_of_day};
use redis_protocol::resp2::{decode::decode, types::OwnedFrame};

/// A leader with one connection, as simple as can be: its clock stands still.
struct Node {
    table: Table,
    queue: Option<Vec<Operation>>,
    is_spoilt: bool,
    watched: Vec<(Box<[u8]>, u64)>,
}

const NOW: GroupTime = GroupTime(1_000);

impl Node {
    fn new() -> Self {
        Self { table: Table::new(0..16_384, [1; 16]), queue: None, is_spoilt: false, watched: Vec::new() }
    }

    fn log(&mut self, change: Change, time_of_day: i64) -> Reply {
        let requests = vec![Request { forwarded: None, change }];
        let batch = Batch { time: NOW, time_of_day, requests, ..Batch::default() };
        match self.table.apply(self.table.applied() + 1, batch).unwrap().pop() {
            Some(Outcome::Done(reply)) => reply,
            other => panic!("{other:?}"),
        }
    }

    fn ask(&mut self, arguments: &[&[u8]], time_of_day: i64) -> Reply {
        let command = Command::parse(arguments, &Limits::default());
        self.answer(command, time_of_day).unwrap_or_else(|error| {
            self.is_spoilt = true;
            error.reply()
        })
    }

    fn answer(&mut self, command: Result<Command, CommandError>, time_of_day: i64) -> Result<Reply, CommandError> {
        Ok(match command? {
            Command::Operation(operation) => match &mut self.queue {
                Some(queue) => {
                    queue.push(operation);
                    Reply::Simple("QUEUED".into())
                }
                None if operation.is_write() => self.log(Change::Operation(operation), time_of_day),
                None => match self.table.read(&operation, NOW) {
                    Answer::Reply(reply) => reply,
                    Answer::Expired(keys) => panic!("time stands still: {keys:?}"),
                },
            },
            Command::Keyspace(KeyspaceCommand::Size) => Reply::count(self.table.len()),
            Command::Keyspace(KeyspaceCommand::Keys(filter)) => {
                Reply::Array(self.table.keys(&filter).into_iter().map(Reply::bulk).collect())
            }
            Command::Transaction(TransactionCommand::Begin) if self.queue.is_some() => {
                Reply::error("ERR MULTI calls can not be nested")
            }
            Command::Transaction(TransactionCommand::Begin) => {
                (self.queue, self.is_spoilt) = (Some(Vec::new()), false);
                Reply::OK
            }
            Command::Transaction(TransactionCommand::Execute) => match self.queue.take() {
                None => Reply::error("ERR EXEC without MULTI"),
                Some(_) if self.is_spoilt => {
                    self.watched.clear();
                    Reply::error("EXECABORT Transaction discarded because of previous errors.")
                }
                Some(operations) => {
                    let watched = std::mem::take(&mut self.watched);
                    self.log(Change::Transaction { watched, operations }, time_of_day)
                }
            },
            Command::Transaction(TransactionCommand::Discard) => match self.queue.take() {
                None => Reply::error("ERR DISCARD without MULTI"),
                Some(_) => {
                    self.watched.clear();
                    Reply::OK
                }
            },
            Command::Transaction(TransactionCommand::Watch(_)) if self.queue.is_some() => {
                Reply::error("ERR WATCH inside MULTI is not allowed")
            }
            Command::Transaction(TransactionCommand::Watch(keys)) => {
                self.watched.extend(self.table.versions(&keys, NOW).unwrap());
                Reply::OK
            }
            other => panic!("{other:?}"),
        })
    }
}

fn frame(reply: &Reply) -> OwnedFrame {
    let mut bytes = Vec::new();
    reply.encode(Protocol::V2, &mut bytes);
    decode(&bytes).unwrap().unwrap().0
}

#[test]
#[ignore = "needs a real Redis, and takes seconds"]
fn answers_are_those_of_redis() {
    let mut server = Server::start();
    let first = setting("PRIMACY_KV_SEED", 1);
    let (mut differences, mut known) = (0, 0);
    for seed in first..first + setting("PRIMACY_KV_SEQUENCES", 1_000) {
        let mut numbers = Numbers(seed);
        let mut node = Node::new();
        server.ask(&[b"discard"]);
        server.ask(&[b"unwatch"]);
        server.ask(&[b"flushall"]);
        let time_of_day = time_of_day(&mut server);
        let mut history = Vec::new();
        for _ in 0..60 {
            let words = arguments(&mut numbers, time_of_day);
            // What has not one key cannot be part of a transaction here.
            if node.queue.is_some() && matches!(&words[0][..], "keys" | "dbsize" | "flushall" | "multi" | "watch") {
                continue;
            }
            let bytes: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
            // In a transaction Redis looks at options only when it is carried out.
            if node.queue.is_some() && has_wrong_options(&bytes) {
                continue;
            }
            let watches_absent = node.watched.iter().any(|(_, version)| *version == 0);
            let theirs = comparable(&words, server.ask(&bytes));
            let ours = comparable(&words, frame(&node.ask(&bytes, time_of_day)));
            history.push(format!("{words:?} -> {theirs:?}"));
            // A watched key that was absent, was made, and is absent again, is as it was.
            let is_as_before = words[0] == "exec" && theirs == OwnedFrame::Null && watches_absent;
            if is_rounding(&ours, &theirs) || (ours != theirs && is_as_before) {
                known += 1;
                break;
            }
            // Redis looks for the key before it looks at the time.
            let is_absent = words[0] == "getex" && theirs == OwnedFrame::Null && has_wrong_options(&bytes);
            if ours != theirs && !is_absent {
                eprintln!("seed {seed}: {}\n  here {ours:?}", history[history.len().saturating_sub(6)..].join("\n  "));
                differences += 1;
                break;
            }
        }
    }
    eprintln!("{known} sequences ended at a difference that the page names");
    assert_eq!(differences, 0);
}
