//! What can go wrong in a run, and in which order the seed deals it.

use std::time::Duration;

use crate::rng::Rng;

/// What a fault needs before it can be injected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    /// Candidates, which are always there.
    Nothing,
    /// `libfaketime`.
    Faketime,
    /// A disk of its own for the store.
    Disk,
    /// Candidates that reach the store through links of ours.
    Link,
    /// A server.
    Server,
    /// A store that passes hints on: PostgreSQL or a file of SQLite.
    Hints,
    /// Voters in the place of a server.
    Peers,
    /// Candidates on hosts of their own, with a wire to the server's.
    Wire,
    /// A cluster of servers.
    Cluster,
    /// A server that another one follows.
    Standby,
    /// One whose commits wait for the other.
    Synchronous,
    /// Nodes of the key-value store.
    Nodes,
}

macro_rules! kinds {
    ($($kind:ident $name:literal $need:ident $weight:literal $about:literal,)*) => {
        /// The kinds of faults.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub(crate) enum Kind {
            $(#[doc = $about] $kind,)*
        }

        impl Kind {
            pub(crate) const ALL: &[Self] = &[$(Self::$kind,)*];

            /// What people call it.
            pub(crate) const fn name(self) -> &'static str {
                match self { $(Self::$kind => $name,)* }
            }

            pub(crate) const fn about(self) -> &'static str {
                match self { $(Self::$kind => $about,)* }
            }

            pub(crate) const fn need(self) -> Need {
                match self { $(Self::$kind => Need::$need,)* }
            }

            /// How often it is in a deck.
            const fn weight(self) -> usize {
                match self { $(Self::$kind => $weight,)* }
            }
        }
    };
}

kinds! {
    Term "term" Nothing 1 "SIGTERM to a runner",
    KillRunner "kill-runner" Nothing 1 "kill -9 of a runner",
    KillWarden "kill-warden" Nothing 1 "kill -9 of a warden",
    KillProgram "kill-program" Nothing 1 "kill -9 of a program",
    KillGuards "kill-guards" Nothing 1 "kill -9 of a runner and its warden at once",
    OrphanKin "orphan-kin" Nothing 1
        "kill -9 of a leader's runner and warden at once, under a program that has started others and is not isolated",
    KillAll "kill-all" Nothing 1 "kill -9 of runner, warden, program and all that it started, as when a host is lost",
    StopRunner "stop-runner" Nothing 2 "a runner is stopped and goes on later",
    StopWarden "stop-warden" Nothing 1 "a warden is stopped and goes on later",
    StopProgram "stop-program" Nothing 1 "a program is stopped and goes on later",
    StopRunnerAndProgram "stop-runner-and-program" Nothing 1 "a runner and its program are stopped and go on later",
    StopAll "stop-all" Nothing 2 "all of a candidate is stopped and goes on later, as when a host is suspended",
    StepClock "step-clock" Faketime 2 "a candidate's wall clock is stepped",
    Promote "promote" Nothing 1 "an operator promotes a candidate",
    Depose "depose" Nothing 1 "an operator deposes the leader",
    Pause "pause" Nothing 1 "an operator pauses the election and resumes it later",
    FillDisk "fill-disk" Disk 2 "the store's disk is full for a while",
    Cut "cut" Link 1 "a candidate's connections are reset",
    Mute "mute" Link 2 "nothing gets through between a candidate and the server",
    MuteRequests "mute-requests" Link 2 "nothing gets through from a candidate to the server",
    MuteAnswers "mute-answers" Link 2 "nothing gets through from the server to a candidate",
    NetCut "net-cut" Wire 2 "no packet passes between a candidate's host and the server's",
    NetCutIn "net-cut-in" Wire 1 "no packet reaches a candidate's host",
    NetCutOut "net-cut-out" Wire 1 "no packet gets away from a candidate's host",
    Slow "slow" Link 1 "everything between a candidate and the server takes longer",
    SlowAnswers "slow-answers" Link 1 "everything from the server to a candidate takes longer",
    Fade "fade" Link 2 "answers to a candidate take longer, and then nothing gets through from it",
    SlowAll "slow-all" Link 1 "everything between all candidates and the server takes 30 to 400 ms longer",
    Isolate "isolate" Link 1 "nothing gets through between all candidates and the server",
    LoseAnswer "lose-answer" Link 2 "an answer to a candidate is lost, and its connection breaks",
    EndSessions "end-sessions" Server 1 "the server ends some sessions",
    EndAllSessions "end-all-sessions" Server 1 "the server ends all sessions",
    LockTable "lock-table" Server 1 "somebody locks the election's table",
    FreezeServer "freeze-server" Server 1 "the server is stopped and goes on later",
    RestartServer "restart-server" Server 1 "the server is restarted",
    SplitCluster "split-cluster" Cluster 2 "a node of the cluster is cut off from the others",
    FailOver "fail-over" Standby 2 "kill -9 of the primary, and the promotion of its standby, which it follows later",
    FailOverUnfenced "fail-over-unfenced" Synchronous 2
        "a primary that hangs is replaced by its standby, and goes on for a while before it follows that",
    FreezeStandby "freeze-standby" Synchronous 1 "the standby for which commits wait is stopped and goes on later",
    KillStandby "kill-standby" Synchronous 1 "kill -9 of the standby for which commits wait, which comes back later",
    KillServer "kill-server" Server 1 "kill -9 of the server, which comes back later",
    FreezePeer "freeze-peer" Peers 2 "one voter of three is stopped and goes on later",
    KillPeer "kill-peer" Peers 2 "kill -9 of one voter of three, which comes back later",
    RestartPeers "restart-peers" Peers 2 "all voters are restarted, one after the other",
    FreezePeers "freeze-peers" Peers 1 "two voters of three are stopped and go on later",
    KillPeers "kill-peers" Peers 1 "kill -9 of two voters of three, which come back later",
    ClonePeer "clone-peer" Peers 1 "a copy of a voter's folder is started beside it, and every other candidate is led to that",
    KillLeader "kill-leader" Nodes 4 "kill -9 of the node that leads most groups, which comes back soon",
    KillNode "kill-node" Nodes 1 "kill -9 of any node, which comes back later",
    LoseNode "lose-node" Nodes 1 "kill -9 of a node and its warden at once, as when a host is lost",
    KillNodes "kill-nodes" Nodes 1 "kill -9 of all nodes at once, which come back together",
    StopNode "stop-node" Nodes 2 "a node is stopped and goes on later",
    TermNode "term-node" Nodes 1 "SIGTERM to a node, which hands over, ends, and comes back later",
    RestartNodes "restart-nodes" Nodes 1 "all nodes are restarted by SIGTERM, one after the other",
    SlowNode "slow-node" Nodes 1 "a node runs for a fifth of the time, a few milliseconds at once",
    LoseFolder "lose-folder" Nodes 1 "a node's folder is lost, and it is made anew from the others",
    RotLog "rot-log" Nodes 1
        "a bit of a node's log flips while it is down; if the node refuses its folder, it is made anew from the others",
    PromoteNode "promote-node" Nodes 2 "an operator has another node lead a group",
    FloodHints "flood-hints" Hints 1 "somebody without rights sends hints without end",
    FloodPeers "flood-peers" Peers 1 "somebody asks the voters for new elections and opens connections without end",
}

impl Kind {
    /// The kind that people call so.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let find = Self::ALL.iter().copied().find(|kind| kind.name() == text);
        find.ok_or_else(|| {
            let all: Vec<String> = Self::ALL.iter().map(|kind| format!("{} ({})", kind.name(), kind.about())).collect();
            format!("no such fault; there are:\n  {}", all.join("\n  "))
        })
    }

    /// How many leases it waits until it can be injected. Some may never: no candidate that is there may suit.
    pub(crate) const fn patience(self) -> u32 {
        // It suits one leader in five, and the others may come and go unharmed meanwhile.
        if matches!(self, Self::OrphanKin) { 4 } else { 20 }
    }

    /// Whether it lasts for a while.
    pub(crate) const fn lasts(self) -> bool {
        !matches!(
            self,
            Self::Term
                | Self::KillRunner
                | Self::KillWarden
                | Self::KillProgram
                | Self::KillGuards
                | Self::KillAll
                | Self::StepClock
                | Self::Promote
                | Self::Depose
                | Self::Cut
                | Self::LoseAnswer
                | Self::EndSessions
                | Self::EndAllSessions
        )
    }

    /// Whether nobody can be elected as long as it lasts.
    pub(crate) const fn blocks(self) -> bool {
        matches!(
            self,
            Self::Pause
                | Self::FillDisk
                | Self::Isolate
                | Self::SlowAll
                | Self::LockTable
                | Self::FreezeServer
                | Self::RestartServer
                | Self::SplitCluster
                | Self::FailOver
                | Self::FailOverUnfenced
                | Self::FreezeStandby
                | Self::KillStandby
                | Self::KillServer
                | Self::FreezePeers
                | Self::KillPeers
        )
    }

    /// Whether it strikes one voter at a time, which nobody notices.
    pub(crate) const fn strikes_a_voter(self) -> bool {
        matches!(self, Self::FreezePeer | Self::KillPeer | Self::RestartPeers | Self::ClonePeer)
    }

    /// Whether it strikes the store itself. Of such faults there is one at a time.
    pub(crate) const fn strikes_store(self) -> bool {
        self.blocks() || self.strikes_a_voter()
    }

    /// Whether another server is the primary afterwards, which has to be followed again.
    pub(crate) const fn fails_over(self) -> bool {
        matches!(self, Self::FailOver | Self::FailOverUnfenced)
    }

    /// Whether it strikes one candidate, and not the store or the election.
    pub(crate) const fn has_target(self) -> bool {
        let strikes_all = matches!(
            self,
            Self::Depose | Self::EndSessions | Self::EndAllSessions | Self::FloodHints | Self::FloodPeers
        );
        !self.strikes_store() && !strikes_all
    }

    /// Whether it strikes a candidate's way to the server.
    pub(crate) const fn strikes_link(self) -> bool {
        matches!(
            self,
            Self::Mute
                | Self::MuteRequests
                | Self::MuteAnswers
                | Self::Slow
                | Self::SlowAnswers
                | Self::NetCut
                | Self::NetCutIn
                | Self::NetCutOut
                | Self::Fade
                | Self::LoseAnswer
        )
    }

    /// Whether it loses packets.
    pub(crate) const fn cuts_wire(self) -> bool {
        matches!(self, Self::NetCut | Self::NetCutIn | Self::NetCutOut)
    }

    /// Whether it stops or kills some of a candidate's processes.
    pub(crate) const fn strikes_processes(self) -> bool {
        matches!(
            self,
            Self::Term
                | Self::KillRunner
                | Self::KillWarden
                | Self::KillProgram
                | Self::KillGuards
                | Self::OrphanKin
                | Self::KillAll
                | Self::StopRunner
                | Self::StopWarden
                | Self::StopProgram
                | Self::StopRunnerAndProgram
                | Self::StopAll
        )
    }
}

/// One fault as it was dealt.
#[derive(Clone, Debug)]
pub(crate) struct Strike {
    pub(crate) kind: Kind,
    /// Whether it is aimed at the leader, rather than at any candidate.
    pub(crate) at_leader: bool,
    /// For how long, if it lasts.
    pub(crate) span: Duration,
    /// What else has to be drawn.
    pub(crate) rng: Rng,
}

/// Deals faults: each kind comes once in a while, in an order that nobody can foresee.
#[derive(Debug)]
pub(crate) struct Dealer {
    rng: Rng,
    kinds: Vec<Kind>,
    deck: Vec<Kind>,
    lease: Duration,
}

impl Dealer {
    pub(crate) fn new(rng: Rng, kinds: Vec<Kind>, lease: Duration) -> Self {
        Self { rng, kinds, deck: Vec::new(), lease }
    }

    /// The next fault, and how long to wait before it.
    pub(crate) fn deal(&mut self) -> (Duration, Strike) {
        let lease = self.lease;
        // Mostly one after the other; now and then at once, or after the dust has settled.
        let wait = match self.rng.below(10) {
            0..3 => self.rng.span(Duration::ZERO, lease / 10),
            3..8 => self.rng.span(lease / 3, lease * 3 / 2),
            _ => self.rng.span(lease * 2, lease * 3),
        };
        if self.deck.is_empty() {
            self.deck = self.kinds.iter().flat_map(|kind| std::iter::repeat_n(*kind, kind.weight())).collect();
            self.rng.shuffle(&mut self.deck);
        }
        let kind = self.deck.pop().unwrap_or(Kind::Depose);
        // Hosts sleep long, or nobody notices.
        let span = if self.rng.percent(if kind == Kind::StopAll { 15 } else { 40 }) {
            self.rng.span(lease / 10, lease * 9 / 10)
        } else {
            self.rng.span(lease * 6 / 5, lease * 3)
        };
        let at_leader = self.rng.percent(if kind == Kind::StopAll { 80 } else { 55 });
        (wait, Strike { kind, at_leader, span, rng: self.rng.fork() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deck_has_every_kind_and_a_seed_deals_the_same() {
        let deal = |seed| {
            let mut dealer = Dealer::new(Rng::new(seed), Kind::ALL.to_vec(), Duration::from_secs(1));
            let count = Kind::ALL.iter().map(|kind| kind.weight()).sum();
            (0..count).map(|_| dealer.deal().1.kind).collect::<Vec<_>>()
        };
        let dealt = deal(1);
        assert_eq!(dealt, deal(1));
        assert_ne!(dealt, deal(2));
        assert!(Kind::ALL.iter().all(|kind| dealt.contains(kind)));
    }

    #[test]
    fn names_are_found_and_others_are_answered_with_what_there_is() {
        for kind in Kind::ALL {
            assert_eq!(Kind::parse(kind.name()), Ok(*kind));
        }
        assert!(Kind::parse("flood").is_err_and(|told| told.contains("stop-all")));
    }
}
