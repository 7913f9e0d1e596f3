//! What replicas write, at random, and which of their states may be found again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};

use primacy_core::log::{Ballot, Config, Content, DurableLog, Entry, GroupTime, ReplicaId, Snapshot, Write};
use primacy_core::{CandidateId, Token};

use crate::wal::simulation::Random;
use crate::wal::{GroupId, Recovered, Wal};

type Log = DurableLog<Vec<u8>>;

/// The states of one group's replica, one after each write.
#[derive(Clone, Debug, Default)]
struct History {
    states: Vec<Option<(ReplicaId, Log)>>,
    /// The last one that was acknowledged.
    acknowledged: Arc<Mutex<usize>>,
}

impl History {
    fn now(&self) -> Option<&(ReplicaId, Log)> {
        self.states.last().and_then(Option::as_ref)
    }
}

/// How much of what was written is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kept {
    /// There are many snapshots with nearly all in them: the last segments alone are needed.
    Little,
    /// As chance will have it.
    Some,
    /// Snapshots have little in them: nearly all segments are needed.
    Most,
}

#[derive(Clone, Debug)]
pub(super) struct Script {
    random: Random,
    kept: Kept,
    groups: BTreeMap<GroupId, History>,
}

fn ballot(number: u64) -> Ballot {
    Ballot { token: Token::new(number).expect("small"), id: CandidateId::from_bits(u128::from(number) << 64 | 9) }
}

fn config(random: &mut Random) -> Config {
    let replicas: BTreeSet<_> = (0..3).map(|_| ReplicaId::from_bits(random.below(1000) as u128)).collect();
    let config = Config::new(replicas).expect("three");
    let mut incoming = config.old().clone();
    incoming.insert(ReplicaId::from_bits(5000));
    if random.below(2) == 0 { config } else { config.joint(incoming).expect("one comes") }
}

impl Script {
    pub(super) fn new(seed: u64) -> Self {
        let (random, kept) = (Random::new(seed), Kept::Some);
        let new = || History { states: vec![None], ..History::default() };
        Self { random, kept, groups: (1..=3).map(|group| (GroupId(group), new())).collect() }
    }

    /// One that needs nearly all segments.
    pub(super) fn keeping(seed: u64) -> Self {
        Self { kept: Kept::Most, ..Self::new(seed) }
    }

    /// One that needs only the last segments.
    pub(super) fn keeping_little(seed: u64) -> Self {
        Self { kept: Kept::Little, ..Self::new(seed) }
    }

    /// It goes on from what was found.
    pub(super) fn resume(&mut self, found: &[Recovered<Vec<u8>>]) {
        for (group, history) in &mut self.groups {
            let found = found.iter().find(|found| found.group == *group);
            let state = found.map(|found| (found.replica, found.log.clone()));
            *history = History { states: vec![state], ..History::default() };
        }
    }

    /// Takes this many steps, some at once, and returns when all is answered: whether all of it is on the disk.
    pub(super) fn drive(&mut self, wal: &Wal, steps: usize) -> bool {
        let mut left = steps;
        while left > 0 {
            let count = (1 + self.random.below(5)).min(left);
            left -= count;
            let (tell, told) = channel();
            let all = (0..count).all(|_| self.step(wal, &tell));
            drop(tell);
            let answers: Vec<bool> = told.iter().collect();
            if !all || answers.contains(&false) {
                return false;
            }
            assert_eq!(answers.len(), count, "each is answered once");
        }
        true
    }

    fn step(&mut self, wal: &Wal, tell: &Sender<bool>) -> bool {
        if self.random.below(8) == 0 {
            return self.step_together(wal, tell);
        }
        let group = GroupId(1 + self.random.below(3) as u32);
        let random = &mut self.random;
        let history = self.groups.get_mut(&group).expect("it is one of them");
        let (acknowledged, tell) = (Arc::clone(&history.acknowledged), tell.clone());
        let before = history.states.len();
        let begins = history.now().is_none() || (random.below(60) == 0 && self.kept == Kept::Some);
        if begins {
            let (replica, founding) = (ReplicaId::from_bits(random.below(1 << 40) as u128), config(random));
            history.states.push(Some((replica, Log::founding(founding.clone()))));
            let reached = history.states.len() - 1;
            let done =
                move |written: Result<(), _>| answer(written.is_ok(), &acknowledged, (before - 1, reached), &tell);
            return wal.begin(group, replica, Some(founding), done).is_ok();
        }
        let writes: Vec<Write<Vec<u8>>> = (0..=random.below(2)).map(|_| write(random, history, self.kept)).collect();
        let reached = history.states.len() - 1;
        let done = move |written: Result<(), _>| answer(written.is_ok(), &acknowledged, (before - 1, reached), &tell);
        wal.append(group, &writes, done).is_ok()
    }

    /// All groups that have begun write something at once.
    fn step_together(&mut self, wal: &Wal, tell: &Sender<bool>) -> bool {
        let (mut writes, mut histories) = (Vec::new(), Vec::new());
        for (group, history) in self.groups.iter_mut().filter(|(_, history)| history.now().is_some()) {
            let before = history.states.len() - 1;
            writes.push((*group, vec![write(&mut self.random, history, self.kept)]));
            histories.push((Arc::clone(&history.acknowledged), (before, history.states.len() - 1)));
        }
        let tell = tell.clone();
        let done = move |written: Vec<Result<(), _>>| {
            assert_eq!(written.len(), histories.len(), "each is answered");
            let is_written = written.iter().all(Result::is_ok);
            for (acknowledged, states) in histories.iter().filter(|_| is_written) {
                acknowledge(acknowledged, *states);
            }
            // Who asked may have given up at the first failure.
            let _: Result<(), _> = tell.send(is_written);
        };
        wal.append_all(&writes, done).is_ok()
    }

    /// What is found is what was acknowledged, or more of what was appended.
    pub(super) fn check(&self, found: &[Recovered<Vec<u8>>]) -> Result<(), String> {
        for (group, history) in &self.groups {
            let state =
                found.iter().find(|found| found.group == *group).map(|found| (found.replica, found.log.clone()));
            let acknowledged = *history.acknowledged.lock().expect("nobody panics with it");
            if !history.states[acknowledged..].contains(&state) {
                return Err(format!(
                    "{group:?}: of {} states, {acknowledged} acknowledged, none is {state:?}",
                    history.states.len()
                ));
            }
        }
        Ok(())
    }

    /// What was appended is found whole.
    pub(super) fn is_whole(&self, found: &[Recovered<Vec<u8>>]) -> bool {
        self.groups.iter().all(|(group, history)| {
            let state =
                found.iter().find(|found| found.group == *group).map(|found| (found.replica, found.log.clone()));
            history.states.last() == Some(&state)
        })
    }
}

fn answer(is_written: bool, acknowledged: &Mutex<usize>, states: (usize, usize), tell: &Sender<bool>) {
    if is_written {
        acknowledge(acknowledged, states);
    }
    // Who asked may have given up at the first failure.
    let _: Result<(), _> = tell.send(is_written);
}

/// Answers come in the order of what was appended, and each once.
fn acknowledge(acknowledged: &Mutex<usize>, (before, reached): (usize, usize)) {
    let mut acknowledged = acknowledged.lock().expect("nobody panics with it");
    assert_eq!(*acknowledged, before, "in order");
    *acknowledged = reached;
}

/// Something that this replica may write next. Its states are noted.
fn write(random: &mut Random, history: &mut History, kept: Kept) -> Write<Vec<u8>> {
    let (replica, mut log) = history.now().cloned().expect("it has begun");
    let (start, last) = (log.start().index, log.last().index);
    let number = log.promised().token.get().max(1);
    let write = match random.below(20) {
        0..=2 => Write::Promise(ballot(number + random.below(3) as u64)),
        what @ 3..=10 if last > start && (what < 5 || kept == Kept::Little) => {
            let further = match kept {
                Kept::Little => last - start - 1,
                Kept::Some => random.below((last - start) as usize) as u64,
                Kept::Most => 0,
            };
            let position = log.position_at(start + 1 + further).expect("kept");
            let config = log.config_at(position.index).expect("kept").clone();
            Write::Compact(Snapshot { position, config, time: GroupTime::from_millis(number), chunks: 1 })
        }
        5 if random.below(3) == 0 && kept == Kept::Some => {
            let mut position = log.last();
            position.index += 1 + random.below(9) as u64;
            Write::Install(Snapshot { position, config: config(random), time: GroupTime::default(), chunks: 2 })
        }
        other => {
            let cut = match kept {
                Kept::Most => random.below(3).min((last - start) as usize),
                Kept::Some | Kept::Little => random.below((last - start + 1) as usize),
            };
            let after = if other < 8 { last - cut as u64 } else { last };
            let entries = (0..random.below(4)).map(|_| entry(random, number)).collect();
            Write::Append { after, entries }
        }
    };
    log.apply(&write);
    history.states.push(Some((replica, log)));
    write
}

fn entry(random: &mut Random, number: u64) -> Entry<Vec<u8>> {
    let content = match random.below(12) {
        0 => Content::Opening,
        1 => Content::Config(config(random)),
        _ => {
            // Some are mostly zeros, as what was never written.
            let length = random.below(120);
            let fill = random.below(3) * 77;
            Content::Payload((0..length).map(|_| if fill == 0 { 0 } else { (fill + random.below(90)) as u8 }).collect())
        }
    };
    Entry { ballot: ballot(number), time: GroupTime::from_millis(number * 10), content }
}

impl Script {
    /// Any state may be found.
    pub(super) fn acknowledge_nothing(&mut self) {
        self.groups.values_mut().for_each(|history| history.acknowledged = Arc::default());
    }
}
