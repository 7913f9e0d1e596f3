//! What core types are on the wire, and back again, checked.

use std::time::Duration;

use primacy_core::lease::{HandoverRequest, Holder};
use primacy_core::quorum::{Answer, Ask, GrantProgress, OrderNumbers, OrderRegister, Orders, Role, VoterId, VoterView};

use super::messages::{
    CandidateEntry, Change, Claim, ElectionRequest, MalformedFrame, Order, OrdersEntry, Piggyback, Reply, RequestBody,
    TermEntry, WaitingEntry,
};
use crate::select::Rank;
use crate::store::waiting::shown_rank;
use crate::store::{Standing, Term, Waiting};
use crate::{CandidateId, ElectionName, Label, Token};

/// In nanoseconds, as it is sent.
pub(crate) fn ns(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

fn bits(bytes: &[u8]) -> Result<u128, MalformedFrame> {
    bytes.try_into().map(u128::from_be_bytes).map_err(|_| MalformedFrame("an identity of another length"))
}

fn token(number: u64) -> Result<Token, MalformedFrame> {
    if number == 0 { Ok(Token::NONE) } else { Token::new(number).ok_or(MalformedFrame("a token out of range")) }
}

/// As it is sent; 0 is nothing.
pub(crate) const fn role_number(role: Role) -> u32 {
    match role {
        Role::Observer => 1,
        Role::Candidate => 2,
        Role::Operator => 3,
        Role::Voter => 4,
    }
}

/// What was sent. A number that no release knows is the least role.
pub(crate) const fn role(number: u32) -> Option<Role> {
    Some(match number {
        0 => return None,
        2 => Role::Candidate,
        3 => Role::Operator,
        4 => Role::Voter,
        _ => Role::Observer,
    })
}

/// The identity of a voter, as it is sent.
pub(crate) fn voter_bytes(voter: VoterId) -> Vec<u8> {
    voter.to_bits().to_be_bytes().to_vec()
}

pub(crate) fn voter(bytes: &[u8]) -> Result<VoterId, MalformedFrame> {
    bits(bytes).map(VoterId::from_bits)
}

pub(crate) fn candidate_bytes(id: CandidateId) -> Vec<u8> {
    id.to_bits().to_be_bytes().to_vec()
}

pub(crate) fn candidate(bytes: &[u8]) -> Result<CandidateId, MalformedFrame> {
    bits(bytes).map(CandidateId::from_bits)
}

pub(crate) fn election(name: &str) -> Result<ElectionName, MalformedFrame> {
    ElectionName::new(name).map_err(|_| MalformedFrame("the name of an election"))
}

impl From<&Holder> for CandidateEntry {
    fn from(holder: &Holder) -> Self {
        Self { id: candidate_bytes(holder.id), label: holder.label.as_str().to_owned(), data: holder.data.clone() }
    }
}

impl TryFrom<&CandidateEntry> for Holder {
    type Error = MalformedFrame;

    fn try_from(person: &CandidateEntry) -> Result<Self, MalformedFrame> {
        const DATA_BYTES_MAX: usize = 1_024;
        if person.data.len() > DATA_BYTES_MAX {
            return Err(MalformedFrame("what a candidate publishes is too long"));
        }
        let label = Label::new(&*person.label).map_err(|_| MalformedFrame("the label of a candidate"))?;
        Ok(Self { id: candidate(&person.id)?, label, data: person.data.clone() })
    }
}

fn holder(person: Option<&CandidateEntry>) -> Result<Holder, MalformedFrame> {
    person.ok_or(MalformedFrame("nobody"))?.try_into()
}

impl From<&Orders> for OrdersEntry {
    fn from(orders: &Orders) -> Self {
        let (new_election, successor) = match &orders.handover.value {
            Some(HandoverRequest::NewElection) => (true, String::new()),
            Some(HandoverRequest::Successor(label)) => (false, label.as_str().to_owned()),
            None => (false, String::new()),
        };
        let (handover_count, pause_count) = (orders.handover.count, orders.paused.count);
        let until = |until: Option<Token>| until.map(Token::get);
        Self {
            handover_count,
            new_election,
            successor,
            handover_until: until(orders.handover.until),
            pause_count,
            paused: orders.paused.value,
            pause_until: until(orders.paused.until),
        }
    }
}

impl TryFrom<&OrdersEntry> for Orders {
    type Error = MalformedFrame;

    fn try_from(entry: &OrdersEntry) -> Result<Self, MalformedFrame> {
        let handover = match (entry.new_election, &*entry.successor) {
            (true, "") => Some(HandoverRequest::NewElection),
            (false, "") => None,
            (false, label) => Some(HandoverRequest::Successor(
                Label::new(label).map_err(|_| MalformedFrame("the label of a successor"))?,
            )),
            (true, _) => return Err(MalformedFrame("two wishes at once")),
        };
        Ok(Self {
            handover: OrderRegister {
                count: entry.handover_count,
                value: handover,
                until: entry.handover_until.map(token).transpose()?,
            },
            paused: OrderRegister {
                count: entry.pause_count,
                value: entry.paused,
                until: entry.pause_until.map(token).transpose()?,
            },
        })
    }
}

impl ElectionRequest {
    /// From somebody who is no candidate. The number of the voters is set when it is sent.
    pub(crate) fn of_no_candidate(election: &ElectionName, body: RequestBody) -> Self {
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

impl From<&Ask> for RequestBody {
    fn from(ask: &Ask) -> Self {
        match ask {
            Ask::Read => Self::Read(true),
            Ask::Claim { term, holder, lease, seen, granted } => Self::Claim(Claim {
                term: term.get(),
                holder: Some(holder.into()),
                lease_ns: ns(*lease),
                handover_seen: seen.handover,
                pause_seen: seen.paused,
                granted_beat: granted.map_or(0, |granted| granted.beat),
                completed_order: granted.map_or(0, |granted| granted.completed_order),
            }),
            Ask::Renew { term, id, beat, lease, completed_order } => Self::Renew(Change {
                term: term.get(),
                id: candidate_bytes(*id),
                beat: *beat,
                lease_ns: ns(*lease),
                completed_order: *completed_order,
            }),
            Ask::Withdraw { term, id, beat } => Self::Withdraw(Change {
                term: term.get(),
                id: candidate_bytes(*id),
                beat: *beat,
                lease_ns: 0,
                completed_order: 0,
            }),
            Ask::Release { term, id, beat, completed_order } => Self::Release(Change {
                term: term.get(),
                id: candidate_bytes(*id),
                beat: *beat,
                lease_ns: 0,
                completed_order: *completed_order,
            }),
            Ask::Order { orders, token } => {
                Self::Order(Order { orders: Some(orders.into()), token: token.map(Token::get) })
            }
            Ask::Forget { term } => Self::Forget(term.get()),
        }
    }
}

impl TryFrom<&RequestBody> for Ask {
    type Error = MalformedFrame;

    fn try_from(body: &RequestBody) -> Result<Self, MalformedFrame> {
        Ok(match body {
            RequestBody::Read(_) => Self::Read,
            RequestBody::Claim(claim) => Self::Claim {
                term: token(claim.term)?,
                holder: holder(claim.holder.as_ref())?,
                lease: lease(claim.lease_ns)?,
                seen: OrderNumbers { handover: claim.handover_seen, paused: claim.pause_seen },
                granted: (claim.granted_beat > 0)
                    .then_some(GrantProgress { beat: claim.granted_beat, completed_order: claim.completed_order }),
            },
            RequestBody::Renew(change) => Self::Renew {
                term: token(change.term)?,
                id: candidate(&change.id)?,
                beat: change.beat,
                lease: lease(change.lease_ns)?,
                completed_order: change.completed_order,
            },
            RequestBody::Withdraw(change) => {
                Self::Withdraw { term: token(change.term)?, id: candidate(&change.id)?, beat: change.beat }
            }
            RequestBody::Release(change) => Self::Release {
                term: token(change.term)?,
                id: candidate(&change.id)?,
                beat: change.beat,
                completed_order: change.completed_order,
            },
            RequestBody::Order(order) => Self::Order {
                orders: order.orders.as_ref().ok_or(MalformedFrame("no orders"))?.try_into()?,
                token: order.token.map(token).transpose()?,
            },
            RequestBody::Forget(term) => Self::Forget { term: token(*term)? },
        })
    }
}

/// A voter promises no lease that `Timing` would refuse.
fn lease(nanos: u64) -> Result<Duration, MalformedFrame> {
    const LONGEST: Duration = Duration::from_secs(86_400);
    let lease = Duration::from_nanos(nanos);
    if lease > LONGEST { Err(MalformedFrame("a lease of more than a day")) } else { Ok(lease) }
}

pub(crate) fn rank_bytes(rank: Rank) -> Vec<u8> {
    if rank == Rank::default() { Vec::new() } else { rank.to_bytes().to_vec() }
}

pub(crate) fn rank(bytes: &[u8]) -> Result<Rank, MalformedFrame> {
    if bytes.is_empty() { Ok(Rank::default()) } else { Rank::from_bytes(bytes).map_err(|_| MalformedFrame("a rank")) }
}

impl From<&Piggyback> for Reply {
    fn from(piggyback: &Piggyback) -> Self {
        let Piggyback { answer: Answer { accepted, view }, standing, waiting, held_for, proven, claimed } = piggyback;
        let waiting = waiting.iter().map(|one| WaitingEntry {
            who: Some((&one.who).into()),
            note: one.note.clone(),
            age_ns: ns(one.age.unwrap_or_default()),
            rank: rank_bytes(one.rank.unwrap_or(Rank::LAST)),
        });
        Self {
            accepted: *accepted,
            highest: view.highest.get(),
            term: view.term.get(),
            holder: view.holder.as_ref().map(Into::into),
            beat: view.beat,
            seen: view.seen,
            lease_ns: ns(view.lease),
            bound_ns: view.bound.map(ns),
            age_ns: ns(view.age),
            released: view.released,
            orders: Some((&view.orders).into()),
            completed_order: view.completed_order,
            ahead: standing.ahead,
            others: standing.others,
            waiting: waiting.collect(),
            held_ns: held_for.map(ns),
            proven: proven.as_ref().map(Into::into),
            claimed: claimed.as_ref().map(Into::into),
        }
    }
}

impl TryFrom<&Reply> for Piggyback {
    type Error = MalformedFrame;

    fn try_from(reply: &Reply) -> Result<Self, MalformedFrame> {
        let orders = reply.orders.as_ref().map_or_else(|| Ok(Orders::default()), TryInto::try_into)?;
        let waiting = reply.waiting.iter().map(|one| {
            let age = Some(Duration::from_nanos(one.age_ns));
            let rank = shown_rank(rank(&one.rank)?);
            Ok(Waiting { who: holder(one.who.as_ref())?, note: one.note.clone(), rank, age })
        });
        let term = token(reply.term)?;
        let view = VoterView {
            highest: token(reply.highest)?.max(term),
            term,
            holder: reply.holder.as_ref().map(TryInto::try_into).transpose()?,
            beat: reply.beat,
            seen: reply.seen,
            lease: Duration::from_nanos(reply.lease_ns),
            bound: reply.bound_ns.map(Duration::from_nanos),
            age: Duration::from_nanos(reply.age_ns),
            released: reply.released,
            orders,
            completed_order: reply.completed_order,
        };
        Ok(Self {
            answer: Answer { accepted: reply.accepted, view },
            standing: Standing { ahead: reply.ahead, others: reply.others },
            waiting: waiting.collect::<Result<_, MalformedFrame>>()?,
            held_for: reply.held_ns.map(Duration::from_nanos),
            proven: reply.proven.as_ref().map(Term::try_from).transpose()?,
            claimed: reply.claimed.as_ref().map(Term::try_from).transpose()?,
        })
    }
}

impl From<&Term> for TermEntry {
    fn from(term: &Term) -> Self {
        let person =
            CandidateEntry { id: candidate_bytes(term.id), label: term.label.as_str().to_owned(), data: String::new() };
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

impl TryFrom<&TermEntry> for Term {
    type Error = MalformedFrame;

    fn try_from(entry: &TermEntry) -> Result<Self, MalformedFrame> {
        let Holder { id, label, .. } = holder(entry.holder.as_ref())?;
        let ended = (!entry.ended.is_empty()).then(|| (entry.ended_unix_ms, entry.ended.clone()));
        Ok(Self { token: token(entry.token)?, id, label, granted_unix_ms: entry.granted_unix_ms, ended })
    }
}

#[cfg(test)]
mod tests {
    use prost::Message as _;

    use super::super::{Body, Frame};
    use super::*;

    fn holder() -> Holder {
        let label = Label::new("b\\\"\u{301} ").expect("valid");
        Holder { id: CandidateId::from_bits(u128::MAX - 7), label, data: "\0\n".repeat(512) }
    }

    fn asks() -> Vec<Ask> {
        let (term, id, lease) = (Token::MAX, holder().id, Duration::from_nanos(86_400_000_000_000));
        let handover = |value| Orders {
            handover: OrderRegister { count: 7, value, until: Some(Token::MAX) },
            paused: OrderRegister::new(u64::MAX, true),
        };
        let orders =
            [None, Some(HandoverRequest::NewElection), Some(HandoverRequest::Successor(holder().label))].map(handover);
        let claim = |granted| Ask::Claim {
            term,
            holder: holder(),
            lease,
            seen: OrderNumbers { handover: 1, paused: 2 },
            granted,
        };
        let mut all = vec![
            Ask::Read,
            claim(None),
            claim(Some(GrantProgress { beat: 9, completed_order: 3 })),
            Ask::Renew { term, id, beat: u64::MAX, lease, completed_order: 5 },
            Ask::Withdraw { term, id, beat: 7 },
            Ask::Release { term: Token::NONE, id, beat: 0, completed_order: 0 },
        ];
        for token in [None, Some(Token::NONE), Some(Token::MAX)] {
            all.extend(orders.iter().cloned().map(|orders| Ask::Order { orders, token }));
            all.extend(token.map(|term| Ask::Forget { term }));
        }
        all
    }

    fn request(ask: &Ask) -> ElectionRequest {
        let rank = rank_bytes(Rank::new(&[-3, 7]).expect("few"));
        let waits = WaitingEntry { who: Some((&holder()).into()), note: "waits".into(), age_ns: 1, rank };
        ElectionRequest {
            voters: 3,
            election: "e".into(),
            body: Some(ask.into()),
            waits: Some(waits),
            asker: candidate_bytes(holder().id),
            lists: true,
            reason: "resigned".into(),
        }
    }

    #[test]
    fn what_is_asked_arrives_as_it_was_asked() {
        for ask in asks() {
            let frame = Frame { number: 3, body: Some(Body::Ask(request(&ask))) };
            let Ok(Frame { body: Some(Body::Ask(read)), .. }) = Frame::decode(&*frame.encode_to_vec()) else {
                panic!("{ask:?}")
            };
            assert_eq!(Ask::try_from(&read.body.expect("there is one")), Ok(ask));
            assert_eq!(read.waits.expect("there is one").who.as_ref().map(TryInto::try_into), Some(Ok(holder())));
        }
    }

    #[test]
    fn what_a_voter_tells_arrives_as_it_was_told() {
        let orders =
            Orders { handover: OrderRegister::new(4, Some(HandoverRequest::NewElection)), ..Orders::default() };
        let lease = Duration::from_millis(12_345);
        for (bound, holder) in [(None, None), (Some(Duration::ZERO), Some(holder())), (Some(lease), Some(holder()))] {
            let waiting = holder.iter().map(|who| Waiting {
                who: who.clone(),
                note: "n".into(),
                rank: Rank::new(&[bound.map_or(0, |_| 4), -9]).ok(),
                age: Some(Duration::from_nanos(1)),
            });
            let piggyback = Piggyback {
                waiting: waiting.collect(),
                standing: Standing { ahead: 1, others: u32::MAX },
                held_for: bound,
                proven: None,
                claimed: None,
                answer: Answer {
                    accepted: bound.is_some(),
                    view: VoterView {
                        highest: Token::MAX,
                        term: Token::new(u64::from(holder.is_some())).expect("small"),
                        beat: u64::MAX,
                        seen: 3,
                        age: lease / 2,
                        released: holder.is_none(),
                        completed_order: 9,
                        orders: orders.clone(),
                        lease,
                        bound,
                        holder,
                    },
                },
            };
            assert_eq!(Piggyback::try_from(&Reply::from(&piggyback)), Ok(piggyback));
        }
    }

    #[test]
    fn what_no_voter_could_keep_is_refused() {
        let claim = |change: fn(&mut Claim)| {
            let RequestBody::Claim(mut claim) = RequestBody::from(&asks()[1]) else { panic!("a claim") };
            change(&mut claim);
            Ask::try_from(&RequestBody::Claim(claim))
        };
        assert!(claim(|_| ()).is_ok());
        assert!(claim(|claim| claim.term = u64::MAX).is_err(), "a term that fits no column");
        assert!(claim(|claim| claim.lease_ns = u64::MAX).is_err(), "bound for centuries");
        assert!(claim(|claim| claim.holder = None).is_err());
        let person = |change: fn(&mut CandidateEntry)| {
            let mut person = CandidateEntry::from(&holder());
            change(&mut person);
            Holder::try_from(&person)
        };
        assert!(person(|_| ()).is_ok());
        assert!(person(|person| person.data.push('x')).is_err(), "longer than any candidate publishes");
        assert!(person(|person| person.label.clear()).is_err());
        assert!(person(|person| person.id.truncate(15)).is_err());
        let two = OrdersEntry { new_election: true, successor: "b".into(), ..OrdersEntry::default() };
        assert!(Orders::try_from(&two).is_err());
    }

    #[test]
    fn a_field_of_any_number_and_kind_is_read_or_refused() {
        let field = |number: u8, kind: u8, content: &[u8]| -> Vec<u8> {
            // Numbers of two digits need a second byte.
            let head = [number << 3 & 0x7f | kind | (number >> 4) << 7, number >> 4];
            let head = if number < 16 { &head[..1] } else { &head[..] };
            [head, content].concat()
        };
        let within = |number: u8, inner: &[u8]| {
            field(number, 2, &[&[u8::try_from(inner.len()).expect("short")], inner].concat())
        };
        let read = |bytes: &[u8]| u32::from(Frame::decode(bytes).is_ok());
        let mut count = 0;
        for outer in 1..64 {
            for inner in 1..64 {
                for (kind, content) in [(0, &[1][..]), (1, &[1; 8]), (2, &[0]), (5, &[1; 4])] {
                    let nested = within(outer, &field(inner, kind, content));
                    count += read(&nested);
                    count += (1..32).map(|third| read(&within(third, &nested))).sum::<u32>();
                }
            }
        }
        assert!(count > 100_000, "most are of a field that nobody knows: {count}");
    }
}
