//! What happened in a run or in many, counted by kind.

use crate::protocol::Protocol;

/// Makes an enum whose variants can be listed, named and counted.
macro_rules! kinds {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $text:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name { $(#[doc = $text] $(#[$variant_doc])* $variant,)+ }

        impl $name {
            /// All of them, in the order of their declaration.
            pub const ALL: &[Self] = &[$(Self::$variant,)+];

            /// What it is, in words.
            pub const fn text(self) -> &'static str {
                match self { $(Self::$variant => $text,)+ }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.text())
            }
        }
    };
}
pub(crate) use kinds;

kinds! {
    /// A fault that was injected.
    Fault {
        Refused = "request refused, not carried out",
        FailedBefore = "request failed before the commit, outcome unknown",
        FailedAfter = "request failed after the commit, outcome unknown",
        RequestLost = "request lost",
        AnswerLost = "answer lost",
        Lingered = "request landed after it was abandoned",
        Slow = "slow request or answer",
        StaleAnswer = "answer of an abandoned call handed over all the same",
        HintLost = "hint lost",
        HintDoubled = "hint doubled or made up",
        HintsBurst = "hints in a burst although nothing had changed",
        LateWake = "process woken late",
        Reordered = "events handled in another order than they came",
        StalledRunner = "process stopped, work going on",
        StalledNode = "process and work stopped together",
        StalledAtEffect = "process stopped between two effects",
        Suspended = "machine suspended",
        Crashed = "process killed",
        CrashedAtEffect = "process killed between two effects",
        Rebooted = "all processes killed, and the store knows it",
        Partitioned = "node cut off from the store",
        Outage = "store away",
        Slewed = "clock rate changed",
        StoreClockStepped = "store's clock stepped",
        RowDeleted = "row deleted by hand",
        WentBack = "store restored to an older state",
        LateWrite = "write delayed between check and resource",
        DeafWork = "work that ignores the order to stop",
        StuckWork = "work that takes long to die",
        Ordered = "operator's order",
        PacketLost = "packet lost between two hosts",
        Doubled = "frame that came twice, the second time late",
        ConnectionsBroken = "connections to a voter broken",
        CutOneWay = "host that is not heard, or hears nothing",
        CutOff = "host cut off",
        CutHalves = "network cut in two",
        CutRing = "network cut to a ring",
        VoterKilled = "voter killed",
        VoterStopped = "voter stopped",
        PowerLost = "voter's host without power",
        HostSlept = "voter's host suspended",
        ResumedAhead = "voter's clock stepped ahead as its machine resumed",
        SlowFlush = "slow flush",
        DiskStood = "voter's disk stood still",
        DiskFailed = "flush failed, and the voter ended",
        BeatsLost = "store crashed, and beats were lost",
        Churned = "graceful stop, resignation, or end of work",
    }
}

kinds! {
    /// A drill of the healed phase that was left out, since it could have cost a leadership or there was nobody to replace one.
    Skipped {
        Restart = "a voter was not restarted: without it the leader would have had no majority",
        Exchange = "no voter was exchanged: one did not support the leader",
        Deafness = "a leader was not made deaf: nobody else could have led",
    }
}

kinds! {
    /// Something that must happen at least once in a batch of runs, or the batch has proven nothing about it.
    Sometimes {
        Renewal = "a lease was renewed",
        Takeover = "an expired lease was taken over",
        Release = "a lease was released after its work had stopped",
        ReleaseTaken = "a released lease was taken by another",
        WardenRelease = "a dead process's lease was released for it",
        Successor = "a successor named by an operator led",
        Deposed = "a leader was deposed",
        Ended = "a leadership ended by itself or its process's stop",
        Refused = "an order with an outdated token was refused",
        Held = "an election was paused while it had no leader",
        Adopted = "a lost answer was found to have been a success",
        LateLanding = "an abandoned request was carried out",
        LateGrant = "an abandoned request for the lease was granted",
        Conflict = "a compare-and-swap found another version",
        LostAtOnce = "an authoritative loss ended a leadership at once",
        DrainedInTime = "work stopped within its grace",
        KilledAtLimit = "work that did not stop was killed in time",
        KilledByWarden = "a warden killed the work of a stopped process",
        FenceRefused = "a fence refused a stale write",
        StaleWrite = "a stale write reached an unfenced resource",
        StaleChecked = "a paused holder found its belief over before it wrote",
        OpposedClocks = "holder and challenger had clocks at opposite limits",
        SlowHolder = "a lease was taken over from a holder with a slow clock by one with a fast clock",
        SuspendedLeader = "a leader's machine was suspended",
        SleptThrough = "a leader was stopped across its deadline",
        CrashedAfterLead = "a leader was killed before its first renewal",
        StoreClockWrong = "the store told an absurd age",
        Mixed = "a lease was taken over from a holder with another lease length",
        Lost = "a lost record was waited out",
        Regressed = "a regressed record was waited out",
        Epoch = "a restored store came back with a higher epoch",
        Gone = "a lease was taken at once from a host proven gone",
        Alone = "a single candidate led",
        Healed = "a leader was elected after faults had stopped",
        Silent = "a leader lost silently was replaced within the bound",
        Evicted = "a dead process was evicted",
        EvictedAlive = "a live process was evicted and came back",
        Longer = "rounds became longer",
        Shorter = "rounds became shorter",
        Retimed = "a lease changed its length while somebody led",
        MadeWay = "a leader made way for a better one",
        Shown = "a candidate was shown a record that another's look had brought",
        FromReserve = "one that was not in line took over",
        AwaitedTurn = "one that was not in line waited until a sibling had asked",
        AllMembers = "everybody alive was a member, and nobody else",
        CameDown = "longer rounds came down again after faults",
        LateAsk = "a voter was asked by somebody who had given that up",
        CaughtUp = "a voter that had missed a term was asked to support it",
        Withdrawn = "a voter was bound for less since a renewal was withdrawn",
        WonOver = "a voter that had supported another in the leader's term came over",
        CameBack = "a voter that had supported a later claim in vain came back to the leader",
        BootWait = "a voter restarted and was bound",
        LostUnsynced = "a voter lost what it had written and not flushed",
        Deafened = "a leader that was heard and heard nothing was replaced within the bound",
        LedThrough = "voters were exchanged while somebody led",
        FinishedByOther = "an exchange of voters was finished by another than had begun it",
        LearnedLate = "a voter that had been away learned of later voters",
        CalmRestart = "a voter restarted in the calm, and nobody was to notice",
        CalmReconfiguration = "a voter was exchanged in the calm, and nobody was to notice",
        HintLed = "a waiter led on a hint before its next look",
        OpeningOutlived = "a connection was opened although the call that wanted it had been given up",
    }
}

impl Sometimes {
    const fn is_of_peers(self) -> bool {
        matches!(
            self,
            Self::LateAsk
                | Self::CaughtUp
                | Self::BootWait
                | Self::LostUnsynced
                | Self::Deafened
                | Self::Withdrawn
                | Self::WonOver
                | Self::CameBack
                | Self::LedThrough
                | Self::FinishedByOther
                | Self::LearnedLate
                | Self::CalmRestart
                | Self::CalmReconfiguration
        )
    }

    /// Whether it needs a store, or a protocol that needs one.
    const fn is_of_stores(self) -> bool {
        matches!(
            self,
            Self::LateLanding
                | Self::LateGrant
                | Self::Adopted
                | Self::LostAtOnce
                | Self::OpposedClocks
                | Self::SlowHolder
                | Self::StoreClockWrong
                | Self::Mixed
                | Self::Lost
                | Self::Regressed
                | Self::Epoch
                | Self::Gone
                | Self::Evicted
                | Self::EvictedAlive
                | Self::Longer
                | Self::Shorter
                | Self::Retimed
                | Self::MadeWay
                | Self::Shown
                | Self::FromReserve
                | Self::AwaitedTurn
                | Self::AllMembers
                | Self::CameDown
                | Self::OpeningOutlived
        )
    }
}

/// Counts by kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Runs.
    pub seeds: u64,
    /// Runs that were made a second time and gave the same trace.
    pub repeated: u64,
    /// The sum of their fingerprints: equal where all of them were, in whatever order.
    pub fingerprint: u64,
    /// Simulated time.
    pub nanos: u128,
    /// Events handled.
    pub events: u64,
    /// Leaderships begun.
    pub elections: u64,
    /// Leaderships that followed another in the same world.
    pub hand_overs: u64,
    /// Terms between two leaderships in which nobody led: several candidates asked, and none of them had a majority.
    pub void_terms: u64,
    /// Writes that reached the fenced resource.
    pub writes: u64,
    faults: Vec<u64>,
    sometimes: Vec<u64>,
    skipped: Vec<u64>,
    /// Simulated time in which nothing failed but by drills.
    pub calm_nanos: u128,
    /// Leaderships that were lost in that time although nobody took them away; counted where drills spare nobody.
    pub lost: u64,
    /// Processes evicted.
    pub evictions: u64,
    /// Changes of the round time.
    pub round_changes: u64,
    /// Runs with candidates of the `registers` protocol.
    pub registers: u64,
    /// As [`failovers`](Self::failovers), where candidates follow the `registers` protocol.
    pub successions: Vec<(u64, u64)>,
    /// How long rounds took to come down after faults, and within what they must.
    pub descents: Vec<(u64, u64)>,
    /// Nanoseconds from the silent loss of a leader to the next, and the published bound, for every loss in the healed
    /// phase of worlds in which all candidates have one timing.
    pub failovers: Vec<(u64, u64)>,
}

impl Tally {
    /// Nothing yet.
    pub fn new() -> Self {
        Self {
            faults: vec![0; Fault::ALL.len()],
            sometimes: vec![0; Sometimes::ALL.len()],
            skipped: vec![0; Skipped::ALL.len()],
            ..Self::default()
        }
    }

    /// Counts a fault.
    pub fn fault(&mut self, fault: Fault) {
        self.faults[fault as usize] += 1;
    }

    /// Counts something that should happen.
    pub fn saw(&mut self, what: Sometimes) {
        self.sometimes[what as usize] += 1;
    }

    /// Counts a drill that was left out.
    pub fn skip(&mut self, drill: Skipped) {
        self.skipped[drill as usize] += 1;
    }

    /// How often a drill was left out.
    pub fn skipped(&self, drill: Skipped) -> u64 {
        self.skipped.get(drill as usize).copied().unwrap_or_default()
    }

    /// How often a fault was injected.
    pub fn faults_of(&self, fault: Fault) -> u64 {
        self.faults.get(fault as usize).copied().unwrap_or_default()
    }

    /// How many faults were injected.
    pub fn faults(&self) -> u64 {
        self.faults.iter().sum()
    }

    /// How often something happened.
    pub fn seen(&self, what: Sometimes) -> u64 {
        self.sometimes.get(what as usize).copied().unwrap_or_default()
    }

    /// What never happened although it must, where this protocol is followed.
    pub fn missing(&self, protocol: Option<Protocol>) -> Vec<Sometimes> {
        let must = |what: &Sometimes| match protocol {
            Some(Protocol::Peers) => !what.is_of_stores(),
            _ => !what.is_of_peers(),
        };
        Sometimes::ALL.iter().copied().filter(|what| must(what) && self.seen(*what) == 0).collect()
    }

    /// Simulated hours.
    pub fn hours(&self) -> f64 {
        self.nanos as f64 / 3.6e12
    }

    /// Adds another tally to this one.
    pub fn add(&mut self, other: &Self) {
        self.seeds += other.seeds;
        self.repeated += other.repeated;
        self.fingerprint = self.fingerprint.wrapping_add(other.fingerprint);
        self.nanos += other.nanos;
        self.events += other.events;
        self.elections += other.elections;
        self.hand_overs += other.hand_overs;
        self.void_terms += other.void_terms;
        self.writes += other.writes;
        add_each(&mut self.faults, &other.faults);
        add_each(&mut self.sometimes, &other.sometimes);
        add_each(&mut self.skipped, &other.skipped);
        self.calm_nanos += other.calm_nanos;
        self.lost += other.lost;
        self.evictions += other.evictions;
        self.round_changes += other.round_changes;
        self.registers += other.registers;
        self.failovers.extend_from_slice(&other.failovers);
        self.successions.extend_from_slice(&other.successions);
        self.descents.extend_from_slice(&other.descents);
    }
}

fn add_each(into: &mut Vec<u64>, from: &[u64]) {
    into.resize(into.len().max(from.len()), 0);
    for (sum, more) in into.iter_mut().zip(from) {
        *sum += more;
    }
}
