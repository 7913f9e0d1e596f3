//! What happened in worlds with a key-value store, and which promises were asked.

use crate::tally::kinds;

kinds! {
    /// A fault that was injected.
    Fault {
        Broken = "connections between two nodes broken",
        BrokenOneWay = "connection of one direction broken, the other one kept",
        CutOneWay = "messages of one direction held up",
        CutOff = "node cut off from all others",
        Slow = "slow network",
        Killed = "node killed, or without power",
        LeaderKilled = "leader killed, or without power",
        AllKilled = "all nodes without power at once",
        Paused = "node stopped for a while",
        LeaderPaused = "leader stopped for a while",
        Stalled = "disk stood still",
        SlowDisk = "slow disk",
        DiskFull = "disk full",
        Memory = "memory used up",
        Deposed = "leader deposed",
        HandedOver = "leader told to hand over",
        GrantLost = "leader cannot renew its lease",
        Overtaken = "bulky message overtaken",
        TwoBelievers = "granted to another while somebody believed",
        TokenRepeated = "token granted a second time",
        WentBack = "grants begin again from an older token",
        Forged = "token far beyond the last one",
        Replaced = "a lost node replaced by a new one",
        ReplacedAlive = "a node that lives replaced by a new one",
        Added = "a node added",
        Removed = "a node removed",
        LeaderOutlasted = "leader that cannot renew its lease stopped when it ends",
        FlushFails = "write or flush of a log fails",
        RefusalUnheard = "leader without room whose word of that is lost",
    }
}

kinds! {
    /// Something that must happen at least once in a batch of runs, or the batch has proven nothing about it.
    Sometimes {
        Led = "a node served",
        LedAgain = "another node served after it",
        HandedOver = "a hand-over ended",
        NoProgress = "a leader without progress gave its lease back",
        Outbid = "a leader was outbid",
        RemovedLeader = "a leader was removed from its group",
        Compacted = "a snapshot took the place of entries",
        Installed = "a snapshot was installed",
        Restarted = "a node restarted with what its disk had",
        LostUnflushed = "a node lost what it had not flushed",
        Replaced = "a change of replicas was finished",
        ReplacedThrough = "a change of replicas outlived the leader that began it",
        Pipelined = "a client had several writes under way",
        Unknown = "a request ended as unknown",
        NoLeader = "a request waited for a leader in vain",
        RefusedFull = "a write was refused by a full disk",
        RefusedMemory = "a write was refused for want of memory",
        Overtaken = "a write was refused since later ones were done",
        LeftOut = "a node was left out that its leader did not count",
        Transaction = "a transaction was done",
        Watched = "a watched transaction was done",
        Aborted = "a watched transaction was refused",
        Equal = "tables of two replicas were compared",
        Two = "two nodes believed at once in a wild world",
        Joint = "replicas were changing when a leader died",
        PowerLost = "power was lost, and any part of what was not flushed",
        PowerLostAgain = "power was lost while a log was opened",
        Torn = "a torn tail was cut off",
        Rolled = "a log went on in another segment",
        Reused = "a segment's file was used again",
        DiskFailed = "a log ended since its disk failed",
        WaitedForNone = "a group kept nothing for others, since it held the log",
    }
}

kinds! {
    /// A promise that is checked.
    Promise {
        Linearizable = "Linearizable",
        ProgramOrder = "ProgramOrder",
        Watch = "Watch",
        Committed = "Committed",
        Kept = "Kept",
        Alike = "Alike",
        Certain = "Certain",
        Answered = "Answered",
        Settled = "Settled",
        Whole = "Whole",
        Durable = "Durable",
        Codec = "Codec",
        Traffic = "Traffic",
        Calm = "Calm",
        Repeat = "Repeat",
        Panic = "Panic",
    }
}

/// Counts by kind.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Histories.
    pub seeds: u64,
    /// Those that were run twice, with the same trace.
    pub repeated: u64,
    /// Simulated time.
    pub nanos: u128,
    /// Events handled.
    pub events: u64,
    /// Operations of clients that were checked.
    pub operations: u64,
    /// Entries that were committed.
    pub entries: u64,
    /// Searches for an order that were given up.
    pub given_up: u64,
    /// The sum of their fingerprints.
    pub fingerprint: u64,
    faults: Vec<u64>,
    sometimes: Vec<u64>,
}

impl Tally {
    /// Nothing yet.
    pub fn new() -> Self {
        Self { faults: vec![0; Fault::ALL.len()], sometimes: vec![0; Sometimes::ALL.len()], ..Self::default() }
    }

    pub(super) fn fault(&mut self, fault: Fault) {
        self.faults[fault as usize] += 1;
    }

    pub(super) fn saw(&mut self, what: Sometimes) {
        self.sometimes[what as usize] += 1;
    }

    /// How often a fault was injected.
    pub fn faults_of(&self, fault: Fault) -> u64 {
        self.faults.get(fault as usize).copied().unwrap_or_default()
    }

    /// How often something happened.
    pub fn seen(&self, what: Sometimes) -> u64 {
        self.sometimes.get(what as usize).copied().unwrap_or_default()
    }

    /// How many faults were injected.
    pub fn faults(&self) -> u64 {
        self.faults.iter().sum()
    }

    /// What never happened although it must.
    pub fn missing(&self) -> Vec<Sometimes> {
        Sometimes::ALL.iter().copied().filter(|what| self.seen(*what) == 0).collect()
    }

    /// Adds another tally to this one.
    pub(super) fn add(&mut self, other: &Self) {
        self.seeds += other.seeds;
        self.repeated += other.repeated;
        self.nanos += other.nanos;
        self.events += other.events;
        self.operations += other.operations;
        self.entries += other.entries;
        self.given_up += other.given_up;
        self.fingerprint = self.fingerprint.wrapping_add(other.fingerprint);
        self.faults.iter_mut().zip(&other.faults).for_each(|(sum, more)| *sum += more);
        self.sometimes.iter_mut().zip(&other.sometimes).for_each(|(sum, more)| *sum += more);
    }
}
