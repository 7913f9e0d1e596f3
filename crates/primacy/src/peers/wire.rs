//! What peers send each other: frames of tagged fields, so that old and new peers understand each other.
//!
//! Every value that comes in is checked before it is used. A frame that cannot be read ends its connection.

use std::time::Duration;

use primacy_core::lease::{Holder, Wish};
use primacy_core::quorum::{Answer, Ask, Counts, Granted, Ordered, Orders, View, VoterId};
use prost::{Message, Oneof};

use crate::store::{Standing, Term, Waiting};
use crate::{CandidateId, ElectionName, Label, Token};

/// The version of this protocol. A peer of another version is refused with a clear message.
pub(super) const VERSION: u32 = 1;

/// The longest frame that is read, in bytes.
pub(super) const FRAME_BYTES_MAX: usize = 1 << 20;

/// One message. An answer has the number of the question; what nobody asked has 0.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Frame {
    #[prost(uint64, tag = "1")]
    pub(super) number: u64,
    #[prost(oneof = "Body", tags = "2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17")]
    pub(super) body: Option<Body>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(super) enum Body {
    /// The first frame of whoever connects.
    #[prost(message, tag = "2")]
    Hello(Hello),
    /// The first frame of the voter.
    #[prost(message, tag = "3")]
    Welcome(Welcome),
    /// A question is not answered, and why.
    #[prost(message, tag = "4")]
    Refused(Refused),
    #[prost(message, tag = "5")]
    Ask(Question),
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
    Probed(Probed),
    /// A candidate waits no more.
    #[prost(message, tag = "16")]
    Leave(Leave),
    #[prost(bool, tag = "17")]
    Left(bool),
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
}

/// Who votes together.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub(super) struct Cluster {
    /// Random bits that name it.
    #[prost(bytes = "vec", tag = "1")]
    pub(super) id: Vec<u8>,
    #[prost(message, repeated, tag = "2")]
    pub(super) voters: Vec<Member>,
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
pub(super) struct Refused {
    #[prost(string, tag = "1")]
    pub(super) why: String,
    /// Set if the voter has nothing to do with it just now, and may later.
    #[prost(bool, tag = "2")]
    pub(super) is_passing: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Question {
    #[prost(string, tag = "1")]
    pub(super) election: String,
    #[prost(oneof = "Asked", tags = "2, 3, 4, 5, 6")]
    pub(super) asked: Option<Asked>,
    /// Who asks, if it waits for the lease.
    #[prost(message, optional, tag = "7")]
    pub(super) waits: Option<Waits>,
    /// Who asks.
    #[prost(bytes = "vec", tag = "8")]
    pub(super) asker: Vec<u8>,
    /// Set if all who wait are to be told of.
    #[prost(bool, tag = "9")]
    pub(super) lists: bool,
    /// Why a leadership ends, for the voter's history.
    #[prost(string, tag = "10")]
    pub(super) reason: String,
}

#[derive(Clone, PartialEq, Oneof)]
pub(super) enum Asked {
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
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Waits {
    #[prost(message, optional, tag = "1")]
    pub(super) who: Option<Person>,
    #[prost(string, tag = "2")]
    pub(super) note: String,
    /// How long ago it said so. In an answer only.
    #[prost(uint64, tag = "3")]
    pub(super) age_ns: u64,
}

#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub(super) struct Person {
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
    holder: Option<Person>,
    #[prost(uint64, tag = "3")]
    lease_ns: u64,
    #[prost(uint64, tag = "4")]
    wish_seen: u64,
    #[prost(uint64, tag = "5")]
    pause_seen: u64,
    /// 0: it has not been granted yet.
    #[prost(uint64, tag = "6")]
    granted_beat: u64,
    #[prost(uint64, tag = "7")]
    fulfilled: u64,
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
    fulfilled: u64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Order {
    #[prost(message, optional, tag = "1")]
    orders: Option<OrdersKept>,
    #[prost(uint64, optional, tag = "2")]
    token: Option<u64>,
}

#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub(super) struct OrdersKept {
    #[prost(uint64, tag = "1")]
    wish_count: u64,
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
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Reply {
    #[prost(bool, tag = "1")]
    accepted: bool,
    #[prost(uint64, tag = "2")]
    term: u64,
    #[prost(message, optional, tag = "3")]
    holder: Option<Person>,
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
    orders: Option<OrdersKept>,
    #[prost(uint64, tag = "10")]
    fulfilled: u64,
    #[prost(uint32, tag = "11")]
    ahead: u32,
    #[prost(uint32, tag = "12")]
    others: u32,
    #[prost(message, repeated, tag = "13")]
    waiting: Vec<Waits>,
    /// How long ago the term was first supported here.
    #[prost(uint64, optional, tag = "14")]
    held_ns: Option<u64>,
    #[prost(uint64, tag = "15")]
    age_ns: u64,
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
    pub(super) terms: Vec<TermKept>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct TermKept {
    #[prost(uint64, tag = "1")]
    token: u64,
    #[prost(message, optional, tag = "2")]
    holder: Option<Person>,
    #[prost(int64, tag = "3")]
    granted_unix_ms: i64,
    #[prost(int64, tag = "4")]
    ended_unix_ms: i64,
    /// Empty while it lasts.
    #[prost(string, tag = "5")]
    ended: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Probed {
    /// The program and its version.
    #[prost(string, tag = "1")]
    pub(super) product: String,
    /// How long flushes of its file took, in nanoseconds.
    #[prost(uint64, repeated, tag = "2")]
    pub(super) flushes_ns: Vec<u64>,
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
pub(super) struct Malformed(pub(super) &'static str);

/// What is told beside a voter's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Told {
    pub(super) answer: Answer,
    pub(super) standing: Standing,
    pub(super) waiting: Vec<Waiting>,
    pub(super) held_for: Option<Duration>,
}

fn ns(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

fn bits(bytes: &[u8]) -> Result<u128, Malformed> {
    bytes.try_into().map(u128::from_be_bytes).map_err(|_| Malformed("an identity of another length"))
}

fn token(number: u64) -> Result<Token, Malformed> {
    if number == 0 { Ok(Token::NONE) } else { Token::new(number).ok_or(Malformed("a token out of range")) }
}

/// The identity of a voter, as it is sent.
pub(super) fn voter_bytes(voter: VoterId) -> Vec<u8> {
    voter.to_bits().to_be_bytes().to_vec()
}

pub(super) fn voter(bytes: &[u8]) -> Result<VoterId, Malformed> {
    bits(bytes).map(VoterId::from_bits)
}

pub(super) fn candidate_bytes(id: CandidateId) -> Vec<u8> {
    id.to_bits().to_be_bytes().to_vec()
}

pub(super) fn candidate(bytes: &[u8]) -> Result<CandidateId, Malformed> {
    bits(bytes).map(CandidateId::from_bits)
}

pub(super) fn election(name: &str) -> Result<ElectionName, Malformed> {
    ElectionName::new(name).map_err(|_| Malformed("the name of an election"))
}

impl From<&Holder> for Person {
    fn from(holder: &Holder) -> Self {
        Self { id: candidate_bytes(holder.id), label: holder.label.as_str().to_owned(), data: holder.data.clone() }
    }
}

impl TryFrom<&Person> for Holder {
    type Error = Malformed;

    fn try_from(person: &Person) -> Result<Self, Malformed> {
        const DATA_BYTES_MAX: usize = 1_024;
        if person.data.len() > DATA_BYTES_MAX {
            return Err(Malformed("what a candidate publishes is too long"));
        }
        let label = Label::new(&*person.label).map_err(|_| Malformed("the label of a candidate"))?;
        Ok(Self { id: candidate(&person.id)?, label, data: person.data.clone() })
    }
}

fn holder(person: Option<&Person>) -> Result<Holder, Malformed> {
    person.ok_or(Malformed("nobody"))?.try_into()
}

impl From<&Orders> for OrdersKept {
    fn from(orders: &Orders) -> Self {
        let (new_election, successor) = match &orders.wish.value {
            Some(Wish::NewElection) => (true, String::new()),
            Some(Wish::Successor(label)) => (false, label.as_str().to_owned()),
            None => (false, String::new()),
        };
        let (wish_count, pause_count) = (orders.wish.count, orders.paused.count);
        Self { wish_count, new_election, successor, pause_count, paused: orders.paused.value }
    }
}

impl TryFrom<&OrdersKept> for Orders {
    type Error = Malformed;

    fn try_from(kept: &OrdersKept) -> Result<Self, Malformed> {
        let wish = match (kept.new_election, &*kept.successor) {
            (true, "") => Some(Wish::NewElection),
            (false, "") => None,
            (false, label) => {
                Some(Wish::Successor(Label::new(label).map_err(|_| Malformed("the label of a successor"))?))
            }
            (true, _) => return Err(Malformed("two wishes at once")),
        };
        Ok(Self {
            wish: Ordered { count: kept.wish_count, value: wish },
            paused: Ordered { count: kept.pause_count, value: kept.paused },
        })
    }
}

impl From<&Ask> for Asked {
    fn from(ask: &Ask) -> Self {
        match ask {
            Ask::Read => Self::Read(true),
            Ask::Claim { term, holder, lease, seen, granted } => Self::Claim(Claim {
                term: term.get(),
                holder: Some(holder.into()),
                lease_ns: ns(*lease),
                wish_seen: seen.wish,
                pause_seen: seen.paused,
                granted_beat: granted.map_or(0, |granted| granted.beat),
                fulfilled: granted.map_or(0, |granted| granted.fulfilled),
            }),
            Ask::Renew { term, id, beat, lease, fulfilled } => Self::Renew(Change {
                term: term.get(),
                id: candidate_bytes(*id),
                beat: *beat,
                lease_ns: ns(*lease),
                fulfilled: *fulfilled,
            }),
            Ask::Release { term, id, beat, fulfilled } => Self::Release(Change {
                term: term.get(),
                id: candidate_bytes(*id),
                beat: *beat,
                lease_ns: 0,
                fulfilled: *fulfilled,
            }),
            Ask::Order { orders, token } => {
                Self::Order(Order { orders: Some(orders.into()), token: token.map(Token::get) })
            }
        }
    }
}

impl TryFrom<&Asked> for Ask {
    type Error = Malformed;

    fn try_from(asked: &Asked) -> Result<Self, Malformed> {
        Ok(match asked {
            Asked::Read(_) => Self::Read,
            Asked::Claim(claim) => Self::Claim {
                term: token(claim.term)?,
                holder: holder(claim.holder.as_ref())?,
                lease: lease(claim.lease_ns)?,
                seen: Counts { wish: claim.wish_seen, paused: claim.pause_seen },
                granted: (claim.granted_beat > 0)
                    .then_some(Granted { beat: claim.granted_beat, fulfilled: claim.fulfilled }),
            },
            Asked::Renew(change) => Self::Renew {
                term: token(change.term)?,
                id: candidate(&change.id)?,
                beat: change.beat,
                lease: lease(change.lease_ns)?,
                fulfilled: change.fulfilled,
            },
            Asked::Release(change) => Self::Release {
                term: token(change.term)?,
                id: candidate(&change.id)?,
                beat: change.beat,
                fulfilled: change.fulfilled,
            },
            Asked::Order(order) => Self::Order {
                orders: order.orders.as_ref().ok_or(Malformed("no orders"))?.try_into()?,
                token: order.token.map(token).transpose()?,
            },
        })
    }
}

/// A voter promises no lease that `Timing` would refuse.
fn lease(nanos: u64) -> Result<Duration, Malformed> {
    const LONGEST: Duration = Duration::from_secs(86_400);
    let lease = Duration::from_nanos(nanos);
    if lease > LONGEST { Err(Malformed("a lease of more than a day")) } else { Ok(lease) }
}

impl From<&Told> for Reply {
    fn from(told: &Told) -> Self {
        let Told { answer: Answer { accepted, view }, standing, waiting, held_for } = told;
        let waiting = waiting.iter().map(|one| Waits {
            who: Some((&one.who).into()),
            note: one.note.clone(),
            age_ns: ns(one.age.unwrap_or_default()),
        });
        Self {
            accepted: *accepted,
            term: view.term.get(),
            holder: view.holder.as_ref().map(Into::into),
            beat: view.beat,
            seen: view.seen,
            lease_ns: ns(view.lease),
            bound_ns: view.bound.map(ns),
            age_ns: ns(view.age),
            released: view.released,
            orders: Some((&view.orders).into()),
            fulfilled: view.fulfilled,
            ahead: standing.ahead,
            others: standing.others,
            waiting: waiting.collect(),
            held_ns: held_for.map(ns),
        }
    }
}

impl TryFrom<&Reply> for Told {
    type Error = Malformed;

    fn try_from(reply: &Reply) -> Result<Self, Malformed> {
        let orders = reply.orders.as_ref().map_or_else(|| Ok(Orders::default()), TryInto::try_into)?;
        let waiting = reply.waiting.iter().map(|one| {
            let age = Some(Duration::from_nanos(one.age_ns));
            Ok(Waiting { who: holder(one.who.as_ref())?, note: one.note.clone(), age })
        });
        let view = View {
            term: token(reply.term)?,
            holder: reply.holder.as_ref().map(TryInto::try_into).transpose()?,
            beat: reply.beat,
            seen: reply.seen,
            lease: Duration::from_nanos(reply.lease_ns),
            bound: reply.bound_ns.map(Duration::from_nanos),
            age: Duration::from_nanos(reply.age_ns),
            released: reply.released,
            orders,
            fulfilled: reply.fulfilled,
        };
        Ok(Self {
            answer: Answer { accepted: reply.accepted, view },
            standing: Standing { ahead: reply.ahead, others: reply.others, reserve: false },
            waiting: waiting.collect::<Result<_, Malformed>>()?,
            held_for: reply.held_ns.map(Duration::from_nanos),
        })
    }
}

impl From<&Term> for TermKept {
    fn from(term: &Term) -> Self {
        let person =
            Person { id: candidate_bytes(term.id), label: term.label.as_str().to_owned(), data: String::new() };
        let (ended_unix_ms, ended) = term.ended.clone().unwrap_or_default();
        Self {
            token: term.token.get(),
            holder: Some(person),
            granted_unix_ms: term.granted_unix_ms,
            ended_unix_ms,
            ended,
        }
    }
}

impl TryFrom<&TermKept> for Term {
    type Error = Malformed;

    fn try_from(kept: &TermKept) -> Result<Self, Malformed> {
        let Holder { id, label, .. } = holder(kept.holder.as_ref())?;
        let ended = (!kept.ended.is_empty()).then(|| (kept.ended_unix_ms, kept.ended.clone()));
        Ok(Self { token: token(kept.token)?, id, label, granted_unix_ms: kept.granted_unix_ms, ended })
    }
}
