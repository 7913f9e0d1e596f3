//! What is asked of a replica of a log, and what it answers.

use alloc::vec::Vec;
use core::fmt::Debug;
use core::hash::Hash;

use super::ballot::{Ballot, GroupTime, Position, ReplicaId};
use super::config::Config;

/// What a log carries without looking into it: what an entry says, or a chunk of a snapshot.
pub trait Payload: Clone + Debug + Eq + Hash {
    /// How many bytes it has, for bounds on what is under way.
    fn size(&self) -> usize;
}

impl Payload for Vec<u8> {
    fn size(&self) -> usize {
        self.len()
    }
}

/// One entry of a log.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Entry<B> {
    /// Under which it was appended first. It keeps that for ever.
    pub ballot: Ballot,
    /// The group's time when it was appended.
    pub time: GroupTime,
    /// What it says.
    pub content: Content<B>,
}

/// What an entry says.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Content<B> {
    /// Nothing: the first entry of a leader. With it, all before it is committed.
    Opening,
    /// From this entry on these replicas count.
    Config(Config),
    /// What the state machine does.
    Payload(B),
}

impl<B: Payload> Entry<B> {
    /// About how many bytes it has.
    pub fn size(&self) -> usize {
        const FRAME: usize = 64;
        match &self.content {
            Content::Payload(payload) => FRAME + payload.size(),
            _ => FRAME,
        }
    }
}

/// The head of a snapshot: all of the log up to a position, as the state that it has led to, in chunks.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Snapshot {
    /// The last entry that is in it.
    pub position: Position,
    /// The replicas that counted after that entry.
    pub config: Config,
    /// The group's time by then.
    pub time: GroupTime,
    /// How many chunks it has, one or more.
    pub chunks: u32,
}

/// Something that a leader asks of a replica. It may be asked again: nothing is done twice by that.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Request<B> {
    /// That it take nothing of smaller ballots from now on, and tell what it has.
    Open {
        /// The leader's.
        ballot: Ballot,
    },
    /// That it have these entries behind that one.
    Append {
        /// The leader's.
        ballot: Ballot,
        /// The entry before the first of them.
        prev: Position,
        /// In order.
        entries: Vec<Entry<B>>,
        /// All up to here is committed.
        commit: u64,
        /// The group's time.
        time: GroupTime,
    },
    /// That it take this chunk of a snapshot, and with the last one put the snapshot in the place of its log.
    Install {
        /// The leader's.
        ballot: Ballot,
        /// Of which snapshot.
        snapshot: Snapshot,
        /// Which one; the first is 0.
        chunk: u32,
        /// What is in it.
        data: B,
    },
    /// Whether this is the highest ballot that it knows; and what is committed by now.
    Beat {
        /// The leader's.
        ballot: Ballot,
        /// Counts these questions of this leader.
        round: u64,
        /// All up to here is committed.
        commit: u64,
        /// The group's time.
        time: GroupTime,
    },
    /// That it tell its entries behind that one, up to the end that it answered when the leader opened; or a chunk of its
    /// snapshot, if it does not keep them any more.
    Fetch {
        /// The leader's.
        ballot: Ballot,
        /// The last entry that the leader's own replica has of these.
        prev: Position,
        /// The end.
        end: Position,
        /// Which chunk, if it is a snapshot.
        chunk: u32,
    },
}

impl<B> Request<B> {
    /// The leader's.
    pub const fn ballot(&self) -> Ballot {
        match self {
            Self::Open { ballot }
            | Self::Append { ballot, .. }
            | Self::Install { ballot, .. }
            | Self::Beat { ballot, .. }
            | Self::Fetch { ballot, .. } => *ballot,
        }
    }
}

/// What a replica answers. It counts for that ballot alone.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Answer<B> {
    /// That of the request.
    pub ballot: Ballot,
    /// What it says.
    pub verdict: Verdict<B>,
}

/// What a replica says to a request.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Verdict<B> {
    /// It has promised itself to another ballot: to a larger one, or this one's `Open` has not come.
    Outbid(Ballot),
    /// The ballot's token is too far beyond the last one to be true.
    Leap,
    /// It has promised itself to this ballot, and has this.
    Opened(Standing),
    /// It has all that this leader has up to here, on disk.
    Matched(u64),
    /// It has something else where this should follow, or nothing.
    Behind {
        /// All up to here is committed, as far as it knows.
        commit: u64,
        /// Its last entry at or before the place where this should follow.
        last: Position,
    },
    /// It has neither log nor snapshot.
    Blank,
    /// It waits for this chunk of that snapshot.
    Wants {
        /// Where the snapshot ends.
        position: Position,
        /// Which one.
        chunk: u32,
    },
    /// It knows of no larger ballot.
    Beaten {
        /// That of the question.
        round: u64,
        /// As in [`Verdict::Matched`].
        matched: u64,
    },
    /// Its entries behind that one.
    Fetched {
        /// The entry before the first of them.
        prev: Position,
        /// In order.
        entries: Vec<Entry<B>>,
    },
    /// It keeps a snapshot instead.
    FetchedChunk {
        /// Of which snapshot.
        snapshot: Snapshot,
        /// Which one.
        chunk: u32,
        /// What is in it.
        data: B,
    },
}

/// What a replica has when it promises itself to a leader.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Standing {
    /// Its last entry.
    pub last: Position,
    /// All up to here is committed, as far as it knows.
    pub commit: u64,
    /// The replicas by its log. `None` if it has neither log nor snapshot.
    pub config: Option<Config>,
}

/// What one replica's process tells another's.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Message<B> {
    /// A leader asks.
    Request(Request<B>),
    /// A replica answers.
    Answer(Answer<B>),
}

/// A chunk of this process's snapshot that is to be sent. Only the one who keeps snapshots can read it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ChunkOrder {
    /// To whom.
    pub to: ReplicaId,
    /// By which ballot it was asked for.
    pub ballot: Ballot,
    /// Of which snapshot.
    pub snapshot: Snapshot,
    /// Which one.
    pub chunk: u32,
    /// Whether it answers a [`Request::Fetch`].
    pub is_answer: bool,
}

impl ChunkOrder {
    /// What is to be sent, with what is in the chunk.
    pub fn message<B>(self, data: B) -> Message<B> {
        let Self { ballot, snapshot, chunk, is_answer, .. } = self;
        if is_answer {
            Message::Answer(Answer { ballot, verdict: Verdict::FetchedChunk { snapshot, chunk, data } })
        } else {
            Message::Request(Request::Install { ballot, snapshot, chunk, data })
        }
    }
}
