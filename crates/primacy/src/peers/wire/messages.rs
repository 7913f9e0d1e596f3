//! The messages in frames, of tagged fields: so old and new peers understand each other.

use std::time::Duration;

use primacy_core::quorum::Answer;
use prost::{Message, Oneof};

use crate::store::{Standing, Term, Waiting};

/// The version of this protocol. A peer of another version is refused with a clear message.
pub(crate) const VERSION: u32 = 4;

/// How many elections are listed at once: more do not fit into a frame.
pub(crate) const NAMES_MOST: usize = 5_000;

/// The longest frame that is read, in bytes.
pub(crate) const FRAME_BYTES_MAX: usize = 1 << 20;

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Hello {
    #[prost(uint32, tag = "1")]
    pub(crate) version: u32,
    /// The cluster that is meant, or empty if none is known yet.
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) cluster: Vec<u8>,
    /// Who connects, for people.
    #[prost(string, tag = "3")]
    pub(crate) name: String,
    /// Which voter is meant, if a peer on the way passes everything on. Over its socket, empty means that peer itself.
    #[prost(string, tag = "4")]
    pub(crate) to: String,
    /// What the one that connects may do at most, in the numbers of `role_number`; 0 if nothing is said. A peer says it of whom
    /// it passes on.
    #[prost(uint32, tag = "20")]
    pub(crate) role: u32,
    /// Which protocol of a program this connection is for, once it is greeted; empty if it is for this one, of frames.
    #[prost(string, tag = "21")]
    pub(crate) protocol: String,
    /// The voter of the one that connects, where it is for a program.
    #[prost(bytes = "vec", tag = "22")]
    pub(crate) voter: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Welcome {
    #[prost(uint32, tag = "1")]
    pub(crate) version: u32,
    /// The voter's identity.
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) voter: Vec<u8>,
    /// Its name.
    #[prost(string, tag = "3")]
    pub(crate) name: String,
    /// The voters, once they have been brought together.
    #[prost(message, optional, tag = "4")]
    pub(crate) cluster: Option<Cluster>,
    /// Whether those who come over the network must prove who they are.
    #[prost(bool, tag = "5")]
    pub(crate) proves: bool,
    /// Whether it answers `Body::Echo`.
    #[prost(bool, tag = "6")]
    pub(crate) echoes: bool,
    /// Random bits of its process, to tell it from others that answer as the same voter. Empty from earlier releases.
    #[prost(bytes = "vec", tag = "30")]
    pub(crate) process: Vec<u8>,
    /// How often its file has been written; 0 while it is not known.
    #[prost(uint64, tag = "31")]
    pub(crate) generation: u64,
    /// Whether it knows `Body::Behind` and `Body::Testify`.
    #[prost(bool, tag = "20")]
    pub(crate) gives_evidence: bool,
    /// What the one that connects may do here, in the numbers of `role_number`; 0 from a voter that knows no roles.
    #[prost(uint32, tag = "21")]
    pub(crate) role: u32,
    /// Whether this connection is the program's from here on, as the greeting asked for. Earlier releases know nothing of that.
    #[prost(bool, tag = "22")]
    pub(crate) is_link: bool,
}

/// Who votes together.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub(crate) struct Cluster {
    /// Random bits that name it.
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) id: Vec<u8>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) voters: Vec<Member>,
    /// Steps of changes so far.
    #[prost(uint64, tag = "3")]
    pub(crate) number: u64,
    /// Those who vote after the change that is under way, if one is.
    #[prost(message, repeated, tag = "4")]
    pub(crate) incoming: Vec<Member>,
}

#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub(crate) struct Member {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) voter: Vec<u8>,
    #[prost(string, tag = "2")]
    pub(crate) name: String,
    /// Host and port.
    #[prost(string, tag = "3")]
    pub(crate) address: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct RefusalFrame {
    #[prost(string, tag = "1")]
    pub(crate) why: String,
    /// Set if the voter has nothing to do with it just now, and may later.
    #[prost(bool, tag = "2")]
    pub(crate) is_passing: bool,
    /// Set if the asker has no right to that.
    #[prost(bool, tag = "20")]
    pub(crate) is_denied: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ElectionRequest {
    #[prost(string, tag = "1")]
    pub(crate) election: String,
    #[prost(oneof = "RequestBody", tags = "2, 3, 4, 5, 6, 12, 13")]
    pub(crate) body: Option<RequestBody>,
    /// Who asks, if it waits for the lease.
    #[prost(message, optional, tag = "7")]
    pub(crate) waits: Option<WaitingEntry>,
    /// Who asks.
    #[prost(bytes = "vec", tag = "8")]
    pub(crate) asker: Vec<u8>,
    /// Set if all who wait are to be told of.
    #[prost(bool, tag = "9")]
    pub(crate) lists: bool,
    /// Why a leadership ends, for the voter's history.
    #[prost(string, tag = "10")]
    pub(crate) reason: String,
    /// The number of the voters that the asker counts with.
    #[prost(uint64, tag = "11")]
    pub(crate) voters: u64,
}

#[derive(Clone, PartialEq, Oneof)]
pub(crate) enum RequestBody {
    #[prost(bool, tag = "2")]
    Read(bool),
    #[prost(message, tag = "3")]
    Claim(Claim),
    #[prost(message, tag = "4")]
    Renew(Change),
    #[prost(message, tag = "5")]
    Release(Change),
    #[prost(message, tag = "6")]
    Order(Order),
    #[prost(message, tag = "12")]
    Withdraw(Change),
    /// The term in which the election is forgotten.
    #[prost(uint64, tag = "13")]
    Forget(u64),
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct WaitingEntry {
    #[prost(message, optional, tag = "1")]
    pub(crate) who: Option<CandidateEntry>,
    #[prost(string, tag = "2")]
    pub(crate) note: String,
    /// How long ago it said so. In an answer only.
    #[prost(uint64, tag = "3")]
    pub(crate) age_ns: u64,
    /// Where it stands by preference, as bytes that sort; none for one without preferences.
    #[prost(bytes = "vec", tag = "4")]
    pub(crate) rank: Vec<u8>,
}

#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub(crate) struct CandidateEntry {
    #[prost(bytes = "vec", tag = "1")]
    pub(super) id: Vec<u8>,
    #[prost(string, tag = "2")]
    pub(super) label: String,
    #[prost(string, tag = "3")]
    pub(super) data: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Claim {
    #[prost(uint64, tag = "1")]
    pub(super) term: u64,
    #[prost(message, optional, tag = "2")]
    pub(super) holder: Option<CandidateEntry>,
    #[prost(uint64, tag = "3")]
    pub(super) lease_ns: u64,
    #[prost(uint64, tag = "4")]
    pub(super) handover_seen: u64,
    #[prost(uint64, tag = "5")]
    pub(super) pause_seen: u64,
    /// 0: it has not been granted yet.
    #[prost(uint64, tag = "6")]
    pub(super) granted_beat: u64,
    #[prost(uint64, tag = "7")]
    pub(super) completed_order: u64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Change {
    #[prost(uint64, tag = "1")]
    pub(super) term: u64,
    #[prost(bytes = "vec", tag = "2")]
    pub(super) id: Vec<u8>,
    #[prost(uint64, tag = "3")]
    pub(super) beat: u64,
    #[prost(uint64, tag = "4")]
    pub(super) lease_ns: u64,
    #[prost(uint64, tag = "5")]
    pub(super) completed_order: u64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Order {
    #[prost(message, optional, tag = "1")]
    pub(super) orders: Option<OrdersEntry>,
    #[prost(uint64, optional, tag = "2")]
    pub(super) token: Option<u64>,
}

#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub(crate) struct OrdersEntry {
    #[prost(uint64, tag = "1")]
    pub(super) handover_count: u64,
    /// Set if a new election is wished for.
    #[prost(bool, tag = "2")]
    pub(super) new_election: bool,
    /// The successor that is wished for, or empty.
    #[prost(string, tag = "3")]
    pub(super) successor: String,
    #[prost(uint64, tag = "4")]
    pub(super) pause_count: u64,
    #[prost(bool, tag = "5")]
    pub(super) paused: bool,
    #[prost(uint64, optional, tag = "6")]
    pub(super) handover_until: Option<u64>,
    #[prost(uint64, optional, tag = "7")]
    pub(super) pause_until: Option<u64>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Reply {
    #[prost(bool, tag = "1")]
    pub(super) accepted: bool,
    #[prost(uint64, tag = "2")]
    pub(super) term: u64,
    #[prost(message, optional, tag = "3")]
    pub(super) holder: Option<CandidateEntry>,
    #[prost(uint64, tag = "4")]
    pub(super) beat: u64,
    #[prost(uint64, tag = "5")]
    pub(super) seen: u64,
    #[prost(uint64, tag = "6")]
    pub(super) lease_ns: u64,
    #[prost(uint64, optional, tag = "7")]
    pub(super) bound_ns: Option<u64>,
    #[prost(bool, tag = "8")]
    pub(super) released: bool,
    #[prost(message, optional, tag = "9")]
    pub(super) orders: Option<OrdersEntry>,
    #[prost(uint64, tag = "10")]
    pub(super) completed_order: u64,
    #[prost(uint32, tag = "11")]
    pub(super) ahead: u32,
    #[prost(uint32, tag = "12")]
    pub(super) others: u32,
    #[prost(message, repeated, tag = "13")]
    pub(super) waiting: Vec<WaitingEntry>,
    /// How long ago the term was first supported here.
    #[prost(uint64, optional, tag = "14")]
    pub(super) held_ns: Option<u64>,
    #[prost(uint64, tag = "15")]
    pub(super) age_ns: u64,
    /// The highest term that it has supported anybody in.
    #[prost(uint64, tag = "16")]
    pub(super) highest: u64,
    /// The last leadership that this voter knows to have been one.
    #[prost(message, optional, tag = "30")]
    pub(super) proven: Option<TermEntry>,
    /// What was claimed after that, and may have been granted.
    #[prost(message, optional, tag = "31")]
    pub(super) claimed: Option<TermEntry>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Names {
    #[prost(string, repeated, tag = "1")]
    pub(crate) names: Vec<String>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Recall {
    #[prost(string, tag = "1")]
    pub(crate) election: String,
    #[prost(uint32, tag = "2")]
    pub(crate) limit: u32,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Terms {
    /// The newest first.
    #[prost(message, repeated, tag = "1")]
    pub(crate) terms: Vec<TermEntry>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct TermEntry {
    #[prost(uint64, tag = "1")]
    pub(super) token: u64,
    #[prost(message, optional, tag = "2")]
    pub(super) holder: Option<CandidateEntry>,
    #[prost(int64, tag = "3")]
    pub(super) granted_unix_ms: i64,
    #[prost(int64, tag = "4")]
    pub(super) ended_unix_ms: i64,
    /// Empty while it lasts.
    #[prost(string, tag = "5")]
    pub(super) ended: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ProbeReply {
    /// The program and its version.
    #[prost(string, tag = "1")]
    pub(crate) product: String,
    /// How long flushes of its file took, in nanoseconds.
    #[prost(uint64, repeated, tag = "2")]
    pub(crate) flushes_ns: Vec<u64>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct EchoReply {
    /// How many requests arrive at this voter's place in a unit of time, in thousandths, if it was told.
    #[prost(uint64, optional, tag = "1")]
    pub(crate) requests: Option<u64>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Leave {
    #[prost(string, tag = "1")]
    pub(crate) election: String,
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) id: Vec<u8>,
}

/// A frame that says what no peer of this version says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a frame holds what no peer sends: {0}")]
pub(crate) struct MalformedFrame(pub(crate) &'static str);

/// A voter's answer, with what is piggybacked on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Piggyback {
    pub(crate) answer: Answer,
    pub(crate) standing: Standing,
    pub(crate) waiting: Vec<Waiting>,
    pub(crate) held_for: Option<Duration>,
    /// The last leadership that the voter knows to have been one, and what was claimed after it.
    pub(crate) proven: Option<Term>,
    pub(crate) claimed: Option<Term>,
}
