//! Random commands in pipelines, over sockets, to the front and to a real Redis: both give the same answers.
//!
//! `PRIMACY_KV_SEQUENCES` says how many sequences, and `PRIMACY_KV_SEED` where they begin.

use primacy_servers::{is_installed, skipped};
use redis_protocol::resp2::types::OwnedFrame;

use crate::front::Front;
use crate::groups::Pace;
use crate::random_commands::{
    Numbers, Server, arguments, comparable, has_wrong_options, is_rounding, setting, time_of_day,
};

/// One sequence of commands that both can be asked.
struct Sequence {
    numbers: Numbers,
    /// All keys are in one slot, so that everything is possible. Otherwise there are no transactions, and no MSET.
    is_one_slot: bool,
    is_in_transaction: bool,
    time_of_day: i64,
}

/// What stands before each key, so that all are in one slot.
const TAG: &str = "{s}";

impl Sequence {
    fn next(&mut self) -> Vec<String> {
        loop {
            let mut words = arguments(&mut self.numbers, self.time_of_day);
            let name = words[0].clone();
            let is_several = matches!(&name[..], "multi" | "exec" | "discard" | "watch" | "mset" | "msetnx");
            let is_everywhere = matches!(&name[..], "keys" | "dbsize" | "flushall" | "multi" | "watch");
            if is_several && !self.is_one_slot || is_everywhere && self.is_in_transaction {
                continue;
            }
            if self.is_one_slot {
                let step = if name.starts_with("mset") { 2 } else { 1 };
                let is_list = matches!(&name[..], "mget" | "del" | "unlink" | "exists" | "watch" | "mset" | "msetnx");
                let last = if is_list { words.len() } else { words.len().min(2) };
                words[..last].iter_mut().skip(1).step_by(step).for_each(|key| key.insert_str(0, TAG));
            }
            let bytes: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
            // In a transaction Redis looks at options only when it is carried out. And it looks for the key of GETEX before it looks
            // at the time.
            if has_wrong_options(&bytes) && (self.is_in_transaction || name == "getex") {
                continue;
            }
            match &name[..] {
                "multi" => self.is_in_transaction = true,
                "exec" | "discard" => self.is_in_transaction = false,
                _ => {}
            }
            return words;
        }
    }
}

#[test]
fn pipelines_are_answered_as_by_redis() {
    if !is_installed("redis-server") {
        return skipped("redis-server is not installed: it is in Debian's package redis-server");
    }
    let mut server = Server::start();
    let front = Front::with(16, |_| {});
    let mut client = front.connect();
    let first = setting("PRIMACY_KV_SEED", 1);
    let (mut known, mut compared) = (0, 0);
    for seed in first..first + setting("PRIMACY_KV_SEQUENCES", 200) {
        front.go([Pace::AtOnce, Pace::InTurns, Pace::Mixed][usize::try_from(seed % 3).unwrap()]);
        for line in ["discard", "unwatch", "flushall"] {
            server.ask(&[line.as_bytes()]);
            client.say(line);
        }
        let time_of_day = time_of_day(&mut server);
        front.on(move |groups, _| groups.time_of_day.set(time_of_day));
        let is_one_slot = seed % 2 == 0;
        let mut sequence = Sequence { numbers: Numbers(seed), is_one_slot, is_in_transaction: false, time_of_day };
        let (mut history, mut has_watched) = (Vec::new(), false);
        'sequence: for _ in 0..8 {
            let count = 1 + sequence.numbers.below(16);
            let pipeline: Vec<Vec<String>> = (0..count).map(|_| sequence.next()).collect();
            let mut bytes = Vec::new();
            for words in &pipeline {
                let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
                server.send(&words);
                bytes.extend(crate::front::request(&words));
            }
            client.send(&bytes);
            let mut is_over = false;
            for words in &pipeline {
                let theirs = comparable(words, server.reply());
                let ours = comparable(words, client.reply().unwrap());
                if is_over {
                    continue;
                }
                history.push(format!("{words:?} -> {theirs:?}"));
                has_watched |= words[0] == "watch";
                // A watched key that was absent, was made, and is absent again, is as it was.
                let is_as_before = words[0] == "exec" && theirs == OwnedFrame::Null && has_watched;
                if is_rounding(&ours, &theirs) || (ours != theirs && is_as_before) {
                    known += 1;
                    is_over = true;
                    continue;
                }
                let last = history[history.len().saturating_sub(8)..].join("\n  ");
                assert_eq!(ours, theirs, "seed {seed}:\n  {last}");
                compared += 1;
            }
            if is_over {
                break 'sequence;
            }
        }
    }
    assert!(
        compared > 40 * known,
        "{compared} answers were the same, {known} sequences ended at a difference that is known"
    );
}
