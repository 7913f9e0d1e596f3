//! What peers of the repaired POLE tell each other, what they keep, and how patient they are.

use std::time::Duration;

use primacy_core::contest::PeerId;
use primacy_core::select::{FailBack, Rank};

/// Who leads, as far as a peer has been told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lead {
    /// The leader.
    pub peer: PeerId,
    /// The term in which it was nominated, as far as known; 0 if not. Not its token.
    pub term: u64,
}

/// How a peer stands, told to each other peer at an interval and when it changes. It is about the sender alone, so one
/// that is lost or late costs time only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Standing {
    /// The highest term that the sender knows of.
    pub term: u64,
    /// That it is in contact with a majority, both ways.
    pub in_contact: bool,
    /// Where it stands, if it can lead now: it has a rank, is in contact, and was not refused just now.
    pub rank: Option<Rank>,
    /// That it has heard from whom this is sent to, not long ago.
    pub hears_you: bool,
    /// Whom it follows. The sender itself, if it leads.
    pub leader: Option<Lead>,
}

/// What a peer must find again after a restart.
///
/// It is to be on disk before the effects of the event that changed it are carried out. The grant keeps its own promise
/// elsewhere; this is not the token and decides nothing about safety where the grant numbers its claims itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DurableTerm {
    /// The highest term that this peer has heard of or was nominated in. Each nomination of itself has a higher one.
    pub term: u64,
}

/// How patient a peer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PoleSettings {
    /// How often it tells the others how it stands. The paper's heartbeat between all peers: 1 s.
    pub interval: Duration,
    /// For how long what it was told counts: at least two intervals, so that one may be lost.
    pub fresh: Duration,
    /// How long a vacancy is left open for peers that are new to it. The paper's T.
    pub wait: Duration,
    /// How long it prefers one nominee before the next one in line. Longer than peers differ in when they notice a vacancy,
    /// and a grant takes; or the next in line asks too, which costs both a back-off.
    pub slot: Duration,
    /// The longest back-off of a nominee that was refused, and the longest slot: the time in which failures are detected.
    pub back_off_most: Duration,
    /// When a leader gives way to a peer with a better rank.
    pub fail_back: FailBack,
}

/// For a local network: peers in the paper's wide area need slots and waits longer than their round trips.
impl Default for PoleSettings {
    fn default() -> Self {
        Self {
            interval: Duration::from_secs(1),
            fresh: Duration::from_secs(3),
            wait: Duration::from_millis(200),
            slot: Duration::from_millis(50),
            back_off_most: Duration::from_secs(1),
            fail_back: FailBack::Never,
        }
    }
}
