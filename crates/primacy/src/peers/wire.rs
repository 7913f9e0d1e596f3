//! What peers send each other: frames of tagged fields, so that old and new peers understand each other.
//!
//! Every value that comes in is checked before it is used. A frame that cannot be read ends its connection.

mod cluster;
mod config;
mod convert;

use std::time::Duration;

use primacy_core::quorum::Answer;
use prost::{Message, Oneof};

pub(super) use config::{ConfigReplyFrame, ConfigRequestFrame, EvidenceEntry, NextConfigEntry, Page};
pub(super) use convert::{
    candidate, candidate_bytes, election, ns, rank, rank_bytes, role, role_number, voter, voter_bytes,
};

use crate::store::{Standing, Term, Waiting};
use crate::{CandidateId, ElectionName};

/// The version of this protocol. A peer of another version is refused with a clear message.
pub(super) const VERSION: u32 = 4;

/// How many elections are listed at once: more do not fit into a frame.
pub(super) const NAMES_MOST: usize = 5_000;

/// The longest frame that is read, in bytes.
pub(super) const FRAME_BYTES_MAX: usize = 1 << 20;

/// One message. An answer has the number of the question; what nobody asked has 0.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Frame {
    #[prost(uint64, tag = "1")]
    pub(super) number: u64,
    #[prost(
        oneof = "Body",
        tags = "2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 30"
    )]
    pub(super) body: Option<Body>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(super) enum Body {
    /// The first frame of the side that connects.
    #[prost(message, tag = "2")]
    Hello(Hello),
    /// The first frame of the voter.
    #[prost(message, tag = "3")]
    Welcome(Welcome),
    /// A question is not answered, and why.
    #[prost(message, tag = "4")]
    Refused(RefusalFrame),
    #[prost(message, tag = "5")]
    Ask(ElectionRequest),
    #[prost(message, tag = "6")]
    Answer(Reply),
    /// From now on hints of this election are wanted. Answered by a hint.
    #[prost(string, tag = "7")]
    Watch(String),
    /// Something may have changed in this election.
    #[prost(string, tag = "8")]
    Hint(String),
    /// The names of all elections are wanted.
    #[prost(bool, tag = "9")]
    List(bool),
    #[prost(message, tag = "10")]
    Listed(Names),
    /// An election's past is wanted.
    #[prost(message, tag = "11")]
    Recall(Recall),
    #[prost(message, tag = "12")]
    Recalled(Terms),
    /// These are the voters, says the one that has brought them together.
    #[prost(message, tag = "13")]
    Found(Cluster),
    /// How fast and how well this voter keeps things is wanted.
    #[prost(bool, tag = "14")]
    Probe(bool),
    #[prost(message, tag = "15")]
    Probed(ProbeReply),
    /// A candidate waits no more.
    #[prost(message, tag = "16")]
    Leave(Leave),
    #[prost(bool, tag = "17")]
    Left(bool),
    /// The voters are these by now. A question that counted with others was not even read.
    #[prost(message, tag = "18")]
    Moved(Cluster),
    /// Something about who votes.
    #[prost(message, tag = "19")]
    ConfigRequest(ConfigRequestFrame),
    #[prost(message, tag = "20")]
    ConfigReply(ConfigReplyFrame),
    /// Measures the round trip: answered at once, whatever the voter is about. Only for one whose welcome says so.
    #[prost(bool, tag = "21")]
    Echo(bool),
    #[prost(message, tag = "22")]
    Echoed(EchoReply),
    /// The names of the elections behind this one are wanted.
    #[prost(string, tag = "30")]
    ListAfter(String),
    /// There are voters with this number, says somebody. Answered by the number that the voter has; it believes nothing of it,
    /// and asks the other voters. Only for one whose welcome says that it gives evidence.
    #[prost(uint64, tag = "23")]
    Behind(u64),
    /// What this voter knows of the steps after this number is wanted. Likewise.
    #[prost(uint64, tag = "24")]
    Testify(u64),
    #[prost(message, tag = "25")]
    Testified(EvidenceEntry),
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Hello {
    #[prost(uint32, tag = "1")]
    pub(super) version: u32,
    /// The cluster that is meant, or empty if none is known yet.
    #[prost(bytes = "vec", tag = "2")]
    pub(super) cluster: Vec<u8>,
    /// Who connects, for people.
    #[prost(string, tag = "3")]
    pub(super) name: String,
    /// Which voter is meant, if a peer on the way passes everything on. Over its socket, empty means that peer itself.
    #[prost(string, tag = "4")]
    pub(super) to: String,
    /// What the one that connects may do at most, in numbers of [`roles`](super::roles); 0 if nothing is said. A peer says it of whom
    /// it passes on.
    #[prost(uint32, tag = "20")]
    pub(super) role: u32,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Welcome {
    #[prost(uint32, tag = "1")]
    pub(super) version: u32,
    /// The voter's identity.
    #[prost(bytes = "vec", tag = "2")]
    pub(super) voter: Vec<u8>,
    /// Its name.
    #[prost(string, tag = "3")]
    pub(super) name: String,
    /// The voters, once they have been brought together.
    #[prost(message, optional, tag = "4")]
    pub(super) cluster: Option<Cluster>,
    /// Whether those who come over the network must prove who they are.
    #[prost(bool, tag = "5")]
    pub(super) proves: bool,
    /// Whether it answers [`Body::Echo`].
    #[prost(bool, tag = "6")]
    pub(super) echoes: bool,
    /// Random bits of its process, to tell it from others that answer as the same voter. Empty from earlier releases.
    #[prost(bytes = "vec", tag = "30")]
    pub(super) process: Vec<u8>,
    /// How often its file has been written; 0 while it is not known.
    #[prost(uint64, tag = "31")]
    pub(super) generation: u64,
    /// Whether it knows [`Body::Behind`] and [`Body::Testify`].
    #[prost(bool, tag = "20")]
    pub(super) gives_evidence: bool,
    /// What the one that connects may do here, in numbers of [`roles`](super::roles); 0 from a voter that knows no roles.
    #[prost(uint32, tag = "21")]
    pub(super) role: u32,
}

/// Who votes together.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub(super) struct Cluster {
    /// Random bits that name it.
    #[prost(bytes = "vec", tag = "1")]
    pub(super) id: Vec<u8>,
    #[prost(message, repeated, tag = "2")]
    pub(super) voters: Vec<Member>,
    /// Steps of changes so far.
    #[prost(uint64, tag = "3")]
    pub(super) number: u64,
    /// Those who vote after the change that is under way, if one is.
    #[prost(message, repeated, tag = "4")]
    pub(super) incoming: Vec<Member>,
}

#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub(super) struct Member {
    #[prost(bytes = "vec", tag = "1")]
    pub(super) voter: Vec<u8>,
    #[prost(string, tag = "2")]
    pub(super) name: String,
    /// Host and port.
    #[prost(string, tag = "3")]
    pub(super) address: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct RefusalFrame {
    #[prost(string, tag = "1")]
    pub(super) why: String,
    /// Set if the voter has nothing to do with it just now, and may later.
    #[prost(bool, tag = "2")]
    pub(super) is_passing: bool,
    /// Set if the asker has no right to that.
    #[prost(bool, tag = "20")]
    pub(super) is_denied: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ElectionRequest {
    #[prost(string, tag = "1")]
    pub(super) election: String,
    #[prost(oneof = "RequestBody", tags = "2, 3, 4, 5, 6, 12, 13")]
    pub(super) body: Option<RequestBody>,
    /// Who asks, if it waits for the lease.
    #[prost(message, optional, tag = "7")]
    pub(super) waits: Option<WaitingEntry>,
    /// Who asks.
    #[prost(bytes = "vec", tag = "8")]
    pub(super) asker: Vec<u8>,
    /// Set if all who wait are to be told of.
    #[prost(bool, tag = "9")]
    pub(super) lists: bool,
    /// Why a leadership ends, for the voter's history.
    #[prost(string, tag = "10")]
    pub(super) reason: String,
    /// The number of the voters that the asker counts with.
    #[prost(uint64, tag = "11")]
    pub(super) voters: u64,
}

impl ElectionRequest {
    /// From somebody who is no candidate. The number of the voters is set when it is sent.
    pub(super) fn of_no_candidate(election: &ElectionName, body: RequestBody) -> Self {
        Self {
            voters: 0,
            election: election.as_str().to_owned(),
            body: Some(body),
            waits: None,
            asker: candidate_bytes(CandidateId::from_bits(0)),
            lists: false,
            reason: String::new(),
        }
    }
}

#[derive(Clone, PartialEq, Oneof)]
pub(super) enum RequestBody {
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
pub(super) struct WaitingEntry {
    #[prost(message, optional, tag = "1")]
    pub(super) who: Option<CandidateEntry>,
    #[prost(string, tag = "2")]
    pub(super) note: String,
    /// How long ago it said so. In an answer only.
    #[prost(uint64, tag = "3")]
    pub(super) age_ns: u64,
    /// Where it stands by preference, as bytes that sort; none for one without preferences.
    #[prost(bytes = "vec", tag = "4")]
    pub(super) rank: Vec<u8>,
}

#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub(super) struct CandidateEntry {
    #[prost(bytes = "vec", tag = "1")]
    id: Vec<u8>,
    #[prost(string, tag = "2")]
    label: String,
    #[prost(string, tag = "3")]
    data: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Claim {
    #[prost(uint64, tag = "1")]
    term: u64,
    #[prost(message, optional, tag = "2")]
    holder: Option<CandidateEntry>,
    #[prost(uint64, tag = "3")]
    lease_ns: u64,
    #[prost(uint64, tag = "4")]
    handover_seen: u64,
    #[prost(uint64, tag = "5")]
    pause_seen: u64,
    /// 0: it has not been granted yet.
    #[prost(uint64, tag = "6")]
    granted_beat: u64,
    #[prost(uint64, tag = "7")]
    completed_order: u64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Change {
    #[prost(uint64, tag = "1")]
    term: u64,
    #[prost(bytes = "vec", tag = "2")]
    id: Vec<u8>,
    #[prost(uint64, tag = "3")]
    beat: u64,
    #[prost(uint64, tag = "4")]
    lease_ns: u64,
    #[prost(uint64, tag = "5")]
    completed_order: u64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Order {
    #[prost(message, optional, tag = "1")]
    orders: Option<OrdersEntry>,
    #[prost(uint64, optional, tag = "2")]
    token: Option<u64>,
}

#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub(super) struct OrdersEntry {
    #[prost(uint64, tag = "1")]
    handover_count: u64,
    /// Set if a new election is wished for.
    #[prost(bool, tag = "2")]
    new_election: bool,
    /// The successor that is wished for, or empty.
    #[prost(string, tag = "3")]
    successor: String,
    #[prost(uint64, tag = "4")]
    pause_count: u64,
    #[prost(bool, tag = "5")]
    paused: bool,
    #[prost(uint64, optional, tag = "6")]
    handover_until: Option<u64>,
    #[prost(uint64, optional, tag = "7")]
    pause_until: Option<u64>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Reply {
    #[prost(bool, tag = "1")]
    accepted: bool,
    #[prost(uint64, tag = "2")]
    term: u64,
    #[prost(message, optional, tag = "3")]
    holder: Option<CandidateEntry>,
    #[prost(uint64, tag = "4")]
    beat: u64,
    #[prost(uint64, tag = "5")]
    seen: u64,
    #[prost(uint64, tag = "6")]
    lease_ns: u64,
    #[prost(uint64, optional, tag = "7")]
    bound_ns: Option<u64>,
    #[prost(bool, tag = "8")]
    released: bool,
    #[prost(message, optional, tag = "9")]
    orders: Option<OrdersEntry>,
    #[prost(uint64, tag = "10")]
    completed_order: u64,
    #[prost(uint32, tag = "11")]
    ahead: u32,
    #[prost(uint32, tag = "12")]
    others: u32,
    #[prost(message, repeated, tag = "13")]
    waiting: Vec<WaitingEntry>,
    /// How long ago the term was first supported here.
    #[prost(uint64, optional, tag = "14")]
    held_ns: Option<u64>,
    #[prost(uint64, tag = "15")]
    age_ns: u64,
    /// The highest term that it has supported anybody in.
    #[prost(uint64, tag = "16")]
    highest: u64,
    /// The last leadership that this voter knows to have been one.
    #[prost(message, optional, tag = "30")]
    proven: Option<TermEntry>,
    /// What was claimed after that, and may have been granted.
    #[prost(message, optional, tag = "31")]
    claimed: Option<TermEntry>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Names {
    #[prost(string, repeated, tag = "1")]
    pub(super) names: Vec<String>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Recall {
    #[prost(string, tag = "1")]
    pub(super) election: String,
    #[prost(uint32, tag = "2")]
    pub(super) limit: u32,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Terms {
    /// The newest first.
    #[prost(message, repeated, tag = "1")]
    pub(super) terms: Vec<TermEntry>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct TermEntry {
    #[prost(uint64, tag = "1")]
    token: u64,
    #[prost(message, optional, tag = "2")]
    holder: Option<CandidateEntry>,
    #[prost(int64, tag = "3")]
    granted_unix_ms: i64,
    #[prost(int64, tag = "4")]
    ended_unix_ms: i64,
    /// Empty while it lasts.
    #[prost(string, tag = "5")]
    ended: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ProbeReply {
    /// The program and its version.
    #[prost(string, tag = "1")]
    pub(super) product: String,
    /// How long flushes of its file took, in nanoseconds.
    #[prost(uint64, repeated, tag = "2")]
    pub(super) flushes_ns: Vec<u64>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct EchoReply {
    /// How many requests arrive at this voter's place in a unit of time, in thousandths, if it was told.
    #[prost(uint64, optional, tag = "1")]
    pub(super) requests: Option<u64>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Leave {
    #[prost(string, tag = "1")]
    pub(super) election: String,
    #[prost(bytes = "vec", tag = "2")]
    pub(super) id: Vec<u8>,
}

/// A frame that says what no peer of this version says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a frame holds what no peer sends: {0}")]
pub(super) struct MalformedFrame(pub(super) &'static str);

/// A voter's answer, with what is piggybacked on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Piggyback {
    pub(super) answer: Answer,
    pub(super) standing: Standing,
    pub(super) waiting: Vec<Waiting>,
    pub(super) held_for: Option<Duration>,
    /// The last leadership that the voter knows to have been one, and what was claimed after it.
    pub(super) proven: Option<Term>,
    pub(super) claimed: Option<Term>,
}
