//! A database as section 4.1 wants it: row locks on VARS, committed reads, and time-outs for transactions.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// The id of a process: larger for one that joined later.
pub(super) type Id = u64;

/// DESCRIPTORS, without what nobody decides by: the counter of each id.
pub(super) type Descriptors = BTreeMap<Id, u64>;

/// The row VARS.
#[derive(Clone, Copy, Debug)]
pub(super) struct Vars {
    /// The largest id ever given.
    pub(super) max_id: Id,
    /// `T_p`.
    pub(super) period: Duration,
    /// The evict flag.
    pub(super) evicted: bool,
}

/// How VARS is locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lock {
    /// Together with others that read.
    Shared,
    /// Alone.
    Exclusive,
}

/// What a transaction writes.
#[derive(Clone, Debug, Default)]
pub(super) struct Writes {
    /// VARS: the largest id.
    pub(super) max_id: Option<Id>,
    /// VARS: the round time.
    pub(super) period: Option<Duration>,
    /// VARS: the evict flag.
    pub(super) evicted: Option<bool>,
    /// DESCRIPTORS: this row is inserted or changed.
    pub(super) counter: Option<(Id, u64)>,
    /// DESCRIPTORS: these rows are deleted.
    pub(super) removed: Vec<Id>,
}

/// A transaction, by the number of its round.
pub(super) type Number = u64;

#[derive(Clone, Debug)]
struct Transaction {
    lock: Lock,
    writes: Writes,
}

/// Who wrote a row last, for the checkers. No process reads it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Beat {
    /// The transaction's process.
    pub(super) writer: usize,
    /// When it was committed, in real time.
    pub(super) at: u64,
    /// The round time that the commit left in VARS.
    pub(super) period: Duration,
}

/// A committed transaction.
#[derive(Clone, Debug)]
pub(super) struct Committed {
    /// The rows that it deleted, with who had written them last.
    pub(super) removed: Vec<(Id, Beat)>,
    /// Transactions that have the lock now.
    pub(super) granted: Vec<Number>,
}

/// The database.
#[derive(Debug)]
pub(super) struct Store {
    vars: Vars,
    rows: Descriptors,
    beats: BTreeMap<Id, Beat>,
    /// Transactions that hold the lock.
    open: BTreeMap<Number, Transaction>,
    /// Transactions that wait for it, the first first.
    waiting: VecDeque<(Number, Lock)>,
}

impl Store {
    /// An empty table and this round time.
    pub(super) fn new(period: Duration) -> Self {
        Self {
            vars: Vars { max_id: 0, period, evicted: false },
            rows: Descriptors::new(),
            beats: BTreeMap::new(),
            open: BTreeMap::new(),
            waiting: VecDeque::new(),
        }
    }

    /// Begins a transaction by locking VARS. Says whether it has the lock already.
    pub(super) fn lock(&mut self, number: Number, lock: Lock) -> bool {
        self.waiting.push_back((number, lock));
        self.grant().contains(&number)
    }

    /// What a transaction that holds the lock reads. Descriptors are read without locks: what is committed now.
    pub(super) fn read(&self, number: Number) -> Option<(Vars, Descriptors)> {
        self.open.contains_key(&number).then(|| (self.vars, self.rows.clone()))
    }

    /// Takes what a transaction writes, for nobody to see before its commit. Says whether it still lives.
    pub(super) fn write(&mut self, number: Number, writes: Writes) -> bool {
        self.open.get_mut(&number).map(|open| open.writes = writes).is_some()
    }

    /// Commits, unless the transaction has been rolled back.
    pub(super) fn commit(&mut self, number: Number, writer: usize, now: u64) -> Option<Committed> {
        let Transaction { writes, .. } = self.open.remove(&number)?;
        self.vars.max_id = writes.max_id.unwrap_or(self.vars.max_id);
        self.vars.period = writes.period.unwrap_or(self.vars.period);
        self.vars.evicted = writes.evicted.unwrap_or(self.vars.evicted);
        if let Some((id, counter)) = writes.counter {
            self.rows.insert(id, counter);
            self.beats.insert(id, Beat { writer, at: now, period: self.vars.period });
        }
        let removed = self.delete(&writes.removed);
        Some(Committed { removed, granted: self.grant() })
    }

    /// Rolls back a transaction whether it holds the lock or waits for it. Says who has the lock now; `None` if there
    /// is no such transaction.
    pub(super) fn roll_back(&mut self, number: Number) -> Option<Vec<Number>> {
        let before = self.waiting.len();
        self.waiting.retain(|(waiting, _)| *waiting != number);
        let was_there = self.open.remove(&number).is_some() || self.waiting.len() < before;
        was_there.then(|| self.grant())
    }

    /// An operator deletes every row below `id`, if VARS can be locked now. Says who leads no more.
    pub(super) fn force_lead(&mut self) -> Option<Vec<(Id, Beat)>> {
        if !self.open.is_empty() {
            return None;
        }
        let chosen = *self.rows.keys().next_back()?;
        let smaller: Vec<Id> = self.rows.range(..chosen).map(|(id, _)| *id).collect();
        Some(self.delete(&smaller))
    }

    /// The round time.
    pub(super) fn period(&self) -> Duration {
        self.vars.period
    }

    fn delete(&mut self, ids: &[Id]) -> Vec<(Id, Beat)> {
        for id in ids {
            self.rows.remove(id);
        }
        ids.iter().filter_map(|id| Some((*id, self.beats.remove(id)?))).collect()
    }

    /// Gives the lock to the first who wait, in order, as long as their locks go together.
    fn grant(&mut self) -> Vec<Number> {
        let mut granted = Vec::new();
        while let Some((number, lock)) = self.waiting.front().copied() {
            let fits = match lock {
                Lock::Shared => self.open.values().all(|open| open.lock == Lock::Shared),
                Lock::Exclusive => self.open.is_empty(),
            };
            if !fits {
                break;
            }
            self.waiting.pop_front();
            self.open.insert(number, Transaction { lock, writes: Writes::default() });
            granted.push(number);
        }
        granted
    }
}
