//! The JSON of each command, as `docs/manual/json.md` documents it. A field is never left out: what does not apply is null.

use std::time::Duration;

use primacy::peers::VoterStatus;
use primacy::registers::MemberEventKind;
use primacy::store::{Basis, HandoverRequest, Holder, Member, MemberEvent, Snapshot, Term, Waiting};
use serde::{Serialize, Serializer};

use super::lead::Lead;
use super::members::{MemberPosition, told};
use super::namesakes::{Namesakes, shared_labels};
use super::support::Support;

/// Grows when a field changes its meaning or goes away; new fields may come without.
pub(crate) const SCHEMA: u32 = 1;

/// A span of time in milliseconds: a whole number where it is one, else to the microsecond.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Millis(pub(crate) Duration);

impl Serialize for Millis {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let micros = u64::try_from(self.0.as_micros()).unwrap_or(u64::MAX);
        match micros % 1_000 {
            0 => serializer.serialize_u64(micros / 1_000),
            // Exact to the microsecond for 285 years.
            _ => serializer.serialize_f64(micros as f64 / 1e3),
        }
    }
}

/// A candidate.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Who {
    id: String,
    label: String,
    data: String,
}

impl From<&Holder> for Who {
    fn from(holder: &Holder) -> Self {
        Self { id: holder.id.to_string(), label: holder.label.as_str().to_owned(), data: holder.data.clone() }
    }
}

/// A waiting candidate.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Candidate {
    #[serde(flatten)]
    who: Who,
    note: String,
    rank: Option<String>,
    said_ago_ms: Option<Millis>,
}

impl From<&Waiting> for Candidate {
    fn from(waiting: &Waiting) -> Self {
        Self {
            who: (&waiting.who).into(),
            note: waiting.note.clone(),
            rank: waiting.rank.map(|rank| rank.to_string()),
            said_ago_ms: waiting.age.map(Millis),
        }
    }
}

/// What an operator has ordered and nobody has done yet.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct PendingOrder {
    kind: &'static str,
    successor: Option<String>,
}

impl From<&HandoverRequest> for PendingOrder {
    fn from(handover: &HandoverRequest) -> Self {
        match handover {
            HandoverRequest::NewElection => Self { kind: "new-election", successor: None },
            HandoverRequest::Successor(label) => Self { kind: "successor", successor: Some(label.as_str().to_owned()) },
        }
    }
}

/// An election at one moment.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct State {
    election: String,
    state: &'static str,
    leader: Option<Who>,
    silent_holder: Option<Who>,
    token: Option<u64>,
    held_for_ms: Option<Millis>,
    renewed_ago_ms: Option<Millis>,
    lease_ms: Option<Millis>,
    remaining_ms: Option<Millis>,
    paused: bool,
    order: Option<PendingOrder>,
    candidates: Vec<Candidate>,
    namesakes: Vec<Namesakes>,
}

impl State {
    /// The election, seen or never campaigned in.
    pub(crate) fn of(election: &primacy::ElectionName, snapshot: Option<&Snapshot>) -> Self {
        let lead = Lead::of(snapshot);
        let holder = snapshot.and_then(|snapshot| snapshot.record.holder.as_ref());
        let held = snapshot.filter(|snapshot| holder.is_some() && snapshot.basis == Basis::Record);
        let (leader, silent_holder, remaining) = match lead {
            Lead::Led(holder, left) => (Some(holder.into()), None, Some(left)),
            Lead::Unknown(holder) => (None, Some(holder.into()), None),
            Lead::Lost => (None, holder.map(Into::into), None),
            Lead::Vacant | Lead::Forgotten | Lead::Never => (None, None, None),
        };
        Self {
            election: election.as_str().to_owned(),
            state: lead.word(),
            leader,
            silent_holder,
            token: snapshot.map(|snapshot| snapshot.record.version.token.get()),
            held_for_ms: held.and_then(|snapshot| snapshot.held_for).map(Millis),
            renewed_ago_ms: held.and_then(|snapshot| snapshot.age).map(Millis),
            lease_ms: held.map(|snapshot| Millis(snapshot.record.lease)),
            remaining_ms: remaining.map(Millis),
            paused: snapshot.is_some_and(|snapshot| snapshot.record.paused),
            order: snapshot.and_then(|snapshot| snapshot.record.handover.as_ref()).map(PendingOrder::from),
            candidates: snapshot
                .map(|snapshot| snapshot.candidates.iter().map(Candidate::from).collect())
                .unwrap_or_default(),
            namesakes: snapshot.map(shared_labels).unwrap_or_default(),
        }
    }
}

/// `primacy status --json`.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Status {
    pub(crate) schema: u32,
    pub(crate) store: String,
    pub(crate) answer_age_ms: Millis,
    #[serde(flatten)]
    pub(crate) state: State,
    pub(crate) support: Option<Support>,
    pub(crate) explanation: Option<Vec<String>>,
}

/// `primacy list --json`.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct List {
    pub(crate) schema: u32,
    pub(crate) store: String,
    pub(crate) answer_age_ms: Millis,
    pub(crate) elections: Vec<State>,
}

/// A change, as it is told to programs.
#[derive(Clone, Debug)]
pub(crate) struct ChangeText {
    pub(crate) event: &'static str,
    pub(crate) text: String,
    pub(crate) candidate: Option<Who>,
}

/// One line of `primacy watch --json`.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Change<'a> {
    schema: u32,
    at_unix_ms: i64,
    event: &'static str,
    text: &'a str,
    candidate: Option<&'a Who>,
    now: Option<&'a State>,
}

impl<'a> Change<'a> {
    /// The change at this time, after which the election looks like this, if that is known.
    pub(crate) fn new(at_unix_ms: i64, change: &'a ChangeText, now: Option<&'a State>) -> Self {
        let ChangeText { event, text, candidate } = change;
        Self { schema: SCHEMA, at_unix_ms, event, text, candidate: candidate.as_ref(), now }
    }
}

/// One line of `primacy peer --json`.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Voting {
    pub(crate) schema: u32,
    pub(crate) at_unix_ms: i64,
    pub(crate) event: &'static str,
    pub(crate) text: String,
    pub(crate) peer: String,
    pub(crate) voter: String,
    pub(crate) address: String,
    pub(crate) socket: Option<String>,
    pub(crate) peers: Vec<String>,
}

/// `primacy peer list`, `add`, `remove` and `replace` with `--json`.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Voters {
    pub(crate) schema: u32,
    pub(crate) store: String,
    pub(crate) outcome: &'static str,
    pub(crate) number: u64,
    pub(crate) voters: Vec<VoterState>,
    pub(crate) incoming: Option<Vec<VoterState>>,
}

/// One of them.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct VoterState {
    name: String,
    address: String,
    voter: String,
    answers: bool,
    trouble: Option<String>,
}

impl From<&VoterStatus> for VoterState {
    fn from(place: &VoterStatus) -> Self {
        Self {
            name: place.address.name().to_owned(),
            address: place.address.place(),
            voter: place.voter.to_string(),
            answers: place.trouble.is_none(),
            trouble: place.trouble.clone(),
        }
    }
}

/// `primacy members --json`.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Members {
    pub(crate) schema: u32,
    pub(crate) store: String,
    pub(crate) answer_age_ms: Millis,
    #[serde(flatten)]
    pub(crate) now: Membership,
    pub(crate) events: Vec<MemberEventEntry>,
}

/// Who takes part by the `registers` protocol at one moment.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Membership {
    election: String,
    state: &'static str,
    leader: Option<Who>,
    token: Option<u64>,
    round_ms: Option<Millis>,
    round_changes: Option<u64>,
    comebacks: Option<u64>,
    last_number: Option<u64>,
    members: Vec<TakesPart>,
}

impl Membership {
    /// The members, and who leads.
    pub(crate) fn of(
        election: &primacy::ElectionName,
        members: Option<&primacy::store::Members>,
        snapshot: Option<&Snapshot>,
    ) -> Self {
        let State { election, state, leader, token, .. } = State::of(election, snapshot);
        let vars = members.map(|members| members.vars);
        let placed = members.map(|members| super::members::places(members, snapshot)).unwrap_or_default();
        Self {
            election,
            state,
            leader,
            token,
            round_ms: vars.map(|vars| Millis(vars.round)),
            round_changes: vars.map(|vars| vars.changes),
            comebacks: vars.map(|vars| vars.comebacks),
            last_number: vars.map(|vars| vars.max_id),
            members: placed.into_iter().map(|(place, member)| TakesPart::new(place, member)).collect(),
        }
    }
}

/// A member.
#[derive(Clone, Debug, Serialize)]
struct TakesPart {
    id: String,
    label: String,
    data: String,
    process: String,
    number: u64,
    standing: &'static str,
    place: Option<usize>,
    rank: Option<String>,
    beats: u64,
    beaten_ago_ms: Option<Millis>,
    late_ms: Millis,
    joined_unix_ms: i64,
}

impl TakesPart {
    fn new(place: MemberPosition, member: &Member) -> Self {
        let Member { candidacy, descriptor, age, joined_unix_ms } = member;
        Self {
            id: candidacy.id.to_string(),
            label: candidacy.label.as_str().to_owned(),
            data: candidacy.data.clone(),
            process: descriptor.process.to_string(),
            number: descriptor.id,
            standing: place.word(),
            place: if let MemberPosition::InLine(place) = place { Some(place) } else { None },
            rank: candidacy.rank.map(|rank| rank.to_string()),
            beats: descriptor.counter,
            beaten_ago_ms: age.map(Millis),
            late_ms: Millis(descriptor.late),
            joined_unix_ms: *joined_unix_ms,
        }
    }
}

/// Something that happened among the members.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct MemberEventEntry {
    number: u64,
    at_unix_ms: i64,
    event: &'static str,
    text: String,
    process: Option<String>,
    label: Option<String>,
    by: Option<String>,
    token: Option<u64>,
    silent_ms: Option<Millis>,
    round_ms: Option<Millis>,
}

impl MemberEventEntry {
    /// The word for it.
    pub(crate) const fn event(&self) -> &'static str {
        self.event
    }
}

impl From<&MemberEvent> for MemberEventEntry {
    fn from(happened: &MemberEvent) -> Self {
        let (event, who, eviction, silent, round) = match &happened.kind {
            MemberEventKind::Joined { process, label, came_back: None } => {
                ("joined", Some((process, label)), None, None, None)
            }
            MemberEventKind::Joined { process, label, came_back } => {
                ("came-back", Some((process, label)), None, *came_back, None)
            }
            MemberEventKind::Left { process, label } => ("left", Some((process, label)), None, None, None),
            MemberEventKind::Evicted { process, label, eviction } => {
                ("evicted", Some((process, label)), Some(eviction), Some(eviction.silent), None)
            }
            MemberEventKind::Round { round } => ("round", None, None, None, Some(*round)),
        };
        Self {
            number: happened.number,
            at_unix_ms: happened.unix_ms,
            event,
            text: told(&happened.kind).0,
            process: who.map(|(process, _)| process.to_string()),
            label: who.map(|(_, label)| label.as_str().to_owned()),
            by: eviction.map(|eviction| eviction.by.as_str().to_owned()),
            token: eviction.map(|eviction| eviction.token.get()),
            silent_ms: silent.map(Millis),
            round_ms: round.map(Millis),
        }
    }
}

/// One line of `primacy members --watch --json`.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct MembersChange {
    pub(crate) schema: u32,
    pub(crate) at_unix_ms: i64,
    pub(crate) event: &'static str,
    pub(crate) text: String,
    pub(crate) happened: Option<MemberEventEntry>,
    pub(crate) now: Option<Membership>,
}

/// `primacy history --json`.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct History {
    pub(crate) schema: u32,
    pub(crate) store: String,
    pub(crate) election: String,
    pub(crate) known_from: Option<u64>,
    pub(crate) terms: Vec<PastTerm>,
}

/// One leadership.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct PastTerm {
    token: u64,
    leader: TermLeader,
    granted_unix_ms: i64,
    ended_unix_ms: Option<i64>,
    lasted_ms: Option<i64>,
    ended: Option<String>,
    current: bool,
}

#[derive(Clone, Debug, Serialize)]
struct TermLeader {
    id: String,
    label: String,
}

impl PastTerm {
    /// The term; `current` if its leader leads now.
    pub(crate) fn new(term: &Term, current: bool) -> Self {
        let ended_unix_ms = term.ended.as_ref().map(|(at, _)| *at);
        Self {
            token: term.token.get(),
            leader: TermLeader { id: term.id.to_string(), label: term.label.as_str().to_owned() },
            granted_unix_ms: term.granted_unix_ms,
            ended_unix_ms,
            lasted_ms: ended_unix_ms.map(|ended| ended.saturating_sub(term.granted_unix_ms).max(0)),
            ended: term.ended.as_ref().map(|(_, why)| why.clone()),
            current,
        }
    }

    pub(crate) const fn token(&self) -> u64 {
        self.token
    }

    /// Whether it has ended, as far as the history tells.
    pub(crate) const fn has_ended(&self) -> bool {
        self.ended_unix_ms.is_some()
    }
}

/// `promote`, `depose`, `pause` and `resume` with `--json`.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Order {
    pub(crate) schema: u32,
    pub(crate) store: String,
    pub(crate) order: &'static str,
    pub(crate) successor: Option<String>,
    pub(crate) now: bool,
    pub(crate) result: &'static str,
    pub(crate) outcome: Option<&'static str>,
    pub(crate) waited_ms: Option<Millis>,
    pub(crate) before: Option<State>,
    pub(crate) after: Option<State>,
}

/// `primacy doctor --json`.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Doctor {
    pub(crate) schema: u32,
    pub(crate) store: String,
    pub(crate) verdict: &'static str,
    pub(crate) product: String,
    pub(crate) renewals: Latency,
    /// `null` where it could not be measured.
    pub(crate) opening: Option<Opening>,
    pub(crate) findings: Vec<FindingEntry>,
    /// Among peers only, as the next.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) voters: Option<Vec<VoterLatency>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) placed: Option<Placement>,
    pub(crate) timing: Timing,
    pub(crate) recommended: Option<Timing>,
    pub(crate) advice: Vec<String>,
}

/// How long it takes to open a candidate's connection.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Opening {
    pub(crate) longest_ms: Millis,
    pub(crate) timeout_ms: Millis,
    pub(crate) leads_within_ms: Millis,
}

/// The way from here to one voter.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct VoterLatency {
    pub(crate) name: String,
    pub(crate) address: String,
    pub(crate) round_trip_ms: Option<Millis>,
    pub(crate) requests: Option<f64>,
}

/// How a candidate here would be placed.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Placement {
    pub(crate) consensus_ms: Option<Millis>,
    pub(crate) latency_ms: Option<Millis>,
    pub(crate) worst_case_ms: Option<Millis>,
}

/// `primacy simulate --json`.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Simulation {
    pub(crate) schema: u32,
    pub(crate) candidates: u32,
    pub(crate) timing: Timing,
    pub(crate) round_trip_ms: Millis,
    pub(crate) first_seed: u64,
    pub(crate) seeds: u64,
    pub(crate) simulated_hours: f64,
    pub(crate) faults: u64,
    pub(crate) leaderships: u64,
    pub(crate) silent_losses: Latency,
    pub(crate) broken: Vec<BrokenPromise>,
}

/// A promise that was broken in a simulated world.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct BrokenPromise {
    pub(crate) seed: u64,
    pub(crate) promise: String,
    pub(crate) message: String,
    pub(crate) replay: String,
}

/// Latencies of several measurements.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Latency {
    pub(crate) count: usize,
    pub(crate) p50_ms: Option<Millis>,
    pub(crate) p99_ms: Option<Millis>,
    pub(crate) max_ms: Option<Millis>,
}

/// A finding.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct FindingEntry {
    pub(crate) severity: &'static str,
    pub(crate) code: &'static str,
    pub(crate) message: String,
}

/// Timing, and what follows from it.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Timing {
    lease_ms: Millis,
    grace_ms: Millis,
    renew_every_ms: Millis,
    call_timeout_ms: Millis,
    ride_through_ms: Millis,
    failover_bound_ms: Millis,
}

impl Timing {
    /// The timing, with calls to the store that take `latency`.
    pub(crate) fn of(timing: &primacy::Timing, latency: Duration) -> Self {
        Self {
            lease_ms: Millis(timing.lease()),
            grace_ms: Millis(timing.grace()),
            renew_every_ms: Millis(timing.renew_every()),
            call_timeout_ms: Millis(timing.call_timeout()),
            ride_through_ms: Millis(timing.ride_through()),
            failover_bound_ms: Millis(timing.failover_bound(0, latency)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn milliseconds_are_whole_where_they_can_be() {
        let json = |micros| serde_json::to_string(&Millis(Duration::from_micros(micros))).expect("a number");
        assert_eq!(json(10_000_000), "10000");
        assert_eq!(json(1_234), "1.234");
        assert_eq!(json(123_456_789), "123456.789");
    }
}
