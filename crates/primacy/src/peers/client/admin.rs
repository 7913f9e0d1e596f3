//! What observers and operators do with a majority of peers.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use primacy_core::lease::{Holder, Record, Reply, Sighting, Version};
use primacy_core::quorum::{Configuration as _, OrderMessage, OrderVerdict, Orders, Output, QuorumCalls, QuorumClient};

use super::errors::{failure, no_registers};
use super::latency::RoundTrips;
use super::pool::{CallPiggyback, Pool, carry_out};
use super::support;
use super::voters::{VoterStatus, Voters, voters_of};
use crate::peers::tls::Health;
use crate::peers::wire::{self, Body, ElectionRequest, NAMES_MOST, Piggyback, ProbeReply, Recall, RequestBody};
use crate::store::history::FORGOTTEN;
use crate::store::{
    Admin, Basis, BoxFuture, Finding, ForgetOutcome, Hindrance, LeaderSupport, MemberEvent, Members, Order,
    OrderOutcome, Probe, Severity, Snapshot, StoreError, Term, is_of_forgetting,
};
use crate::{ElectionName, Token, clock};

/// How many looks a probe measures.
const LOOKS: usize = 50;

/// How often it is tried to forget an election while others claim it.
const TRIES: u32 = 5;

/// Of how many leaders a probe tells who supports them.
const LEADERS_MOST: usize = 100;

/// How long a probe may ask voters whom they support.
const SUPPORT_TIME: Duration = Duration::from_secs(1);

/// How often a probe asks each voter for an echo.
const ECHOES: usize = 9;

/// Who can listen and speak on the way to the peers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Secrecy {
    /// Those with certificates.
    Proven,
    /// Those on this machine.
    Local,
    /// Everybody.
    Plain,
}

impl Secrecy {
    fn of(pool: &Pool) -> Self {
        match pool.proves {
            true => Self::Proven,
            false if pool.is_here() => Self::Local,
            false => Self::Plain,
        }
    }
}

pub(super) struct PeersAdmin {
    pool: Pool,
    /// Of the election which was looked at last.
    calls: QuorumCalls,
}

impl PeersAdmin {
    pub(super) fn new(pool: Pool) -> Self {
        let calls = QuorumCalls::new(QuorumClient::new(pool.cluster.voter_set()));
        Self { pool, calls }
    }

    async fn call(
        &mut self,
        election: &ElectionName,
        begin: impl FnOnce(&mut QuorumClient, &mut Vec<Output>),
        reason: &str,
    ) -> Result<(Reply, CallPiggyback), StoreError> {
        let dress = |body: RequestBody| {
            let request = ElectionRequest::of_no_candidate(election, body);
            ElectionRequest { lists: true, reason: reason.to_owned(), ..request }
        };
        let (result, piggyback) = carry_out(&mut self.pool, &mut self.calls, begin, dress).await;
        Ok((result.map_err(|error| failure(error, &self.pool))?, piggyback))
    }

    async fn look(&mut self, election: &ElectionName) -> Result<Option<Snapshot>, StoreError> {
        self.calls.turn_to_another();
        let begin = |client: &mut QuorumClient, out: &mut Vec<_>| {
            client.begin(primacy_core::lease::Request::Look { announce: None }, out);
        };
        let (reply, piggyback) = self.call(election, begin, "").await?;
        Ok(match reply {
            Reply::Seen(seen) => self.shown(election, seen, &piggyback),
            _ => None,
        })
    }

    fn shown(&self, election: &ElectionName, seen: Sighting, piggyback: &CallPiggyback) -> Option<Snapshot> {
        snapshot_of(election, seen, piggyback, self.calls.client().orders(), self.calls.client().forgotten())
    }

    async fn remove(&mut self, election: &ElectionName) -> Result<ForgetOutcome, StoreError> {
        for _ in 0..TRIES {
            let Some(before) = self.look(election).await? else { return Ok(ForgetOutcome::NoSuchElection) };
            let is_already = before.basis == Basis::Forgotten;
            // What cannot be told here is decided by the voters: who is bound to a holder does not forget it.
            let hindrance = Hindrance::of(&before).filter(|hindrance| *hindrance != Hindrance::Unknown);
            if let Some(hindrance) = hindrance.filter(|_| !is_already) {
                return Ok(ForgetOutcome::Refused(hindrance, before));
            }
            // What is forgotten already may be so with a few voters only: the others are told all the same.
            if let (Reply::Seen(_), _) = self.call(election, QuorumClient::forget, FORGOTTEN).await? {
                return Ok(if is_already { ForgetOutcome::Already(before) } else { ForgetOutcome::Done(before) });
            }
        }
        match self.look(election).await? {
            Some(now) if let Some(hindrance) = Hindrance::of(&now) => Ok(ForgetOutcome::Refused(hindrance, now)),
            Some(now) if now.basis != Basis::Forgotten => Ok(ForgetOutcome::Refused(Hindrance::Unknown, now)),
            _ => Err(StoreError::Unreachable("the election is claimed all the time".to_owned())),
        }
    }

    async fn names(&mut self) -> Result<BTreeSet<ElectionName>, StoreError> {
        let mut all = BTreeSet::new();
        let mut asks = Body::List(true);
        loop {
            let answers = self.pool.poll(&asks).await?;
            let listed = answers.into_values().filter_map(|body| match body {
                Body::Listed(names) => Some(names.names),
                _ => None,
            });
            let listed: Vec<Vec<String>> = listed.collect();
            // Behind the last name of a full list there may be more.
            let full = listed.iter().filter(|names| names.len() >= NAMES_MOST).filter_map(|names| names.last());
            let last = full.min().cloned();
            all.extend(listed.iter().flatten().filter_map(|name| wire::election(name).ok()));
            match last {
                Some(last) => asks = Body::ListAfter(last),
                None => return Ok(all),
            }
        }
    }

    async fn past(&mut self, election: &ElectionName, limit: u32) -> Result<Vec<Term>, StoreError> {
        let granted = self.look(election).await?.map(|snapshot| snapshot.record.version.token);
        let answers = self.pool.poll(&Body::Recall(Recall { election: election.as_str().to_owned(), limit })).await?;
        let recalled = answers.into_values().filter_map(|body| match body {
            Body::Recalled(recalled) => Some(recalled.terms),
            _ => None,
        });
        let recalled = recalled.flatten().filter_map(|term| Term::try_from(&term).ok());
        let known = led(recalled);
        // A voter that has missed it tells what was before.
        let forgotten = known.iter().find(|term| is_of_forgetting(term)).map(|term| term.token);
        // What is above the last grant was asked for and never granted.
        let granted = known.into_iter().filter(|term| Some(term.token) <= granted && Some(term.token) >= forgotten);
        Ok(granted.take(limit as usize).collect())
    }

    async fn write(&mut self, election: &ElectionName, order: &Order) -> Result<OrderOutcome, StoreError> {
        let Some(before) = self.look(election).await? else { return Ok(OrderOutcome::NoSuchElection) };
        if before.basis == Basis::Forgotten {
            return Ok(OrderOutcome::NoRecord(before));
        }
        let verdict =
            self.calls.client().orders().judge(&before.record, before.leader().is_some(), order, rand::random());
        let OrderMessage { orders, until, ended, is_new } = match verdict {
            OrderVerdict::Already => return Ok(OrderOutcome::Already(before)),
            OrderVerdict::TokenChanged => return Ok(OrderOutcome::TokenChanged(before)),
            OrderVerdict::Tell(telling) => telling,
        };
        let begin = |client: &mut QuorumClient, out: &mut Vec<_>| client.order(orders, until, out);
        if let (Reply::Conflict(seen), piggyback) = self.call(election, begin, "").await? {
            return Ok(match self.shown(election, seen, &piggyback) {
                Some(now) => OrderOutcome::TokenChanged(now),
                None => OrderOutcome::NoSuchElection,
            });
        }
        // Who was judged may have gone since it was looked at, and another have begun.
        let judged = before.record.version.token;
        let is_gone = self
            .calls
            .client()
            .shown()
            .is_some_and(|now| now.version.token > judged || (now.version.token == judged && now.holder.is_none()));
        if let Some(reason) = ended.filter(|_| !is_gone) {
            self.call(election, QuorumClient::dismiss, reason.word()).await?;
        }
        Ok(if is_new { OrderOutcome::Written(before) } else { OrderOutcome::Already(before) })
    }

    /// Which voters support the leader, if somebody leads.
    async fn supporters(&mut self, election: &ElectionName) -> Result<Option<LeaderSupport>, StoreError> {
        let led = self.look(election).await?.and_then(|now| Some((now.record.version.token, now.leader()?.id)));
        match led {
            Some(led) => support::ask(&mut self.pool, election, led).await.map(Some),
            None => Ok(None),
        }
    }

    /// Which voters support each leader, of the first elections by name.
    async fn all_supporters(&mut self) -> Result<BTreeMap<ElectionName, LeaderSupport>, StoreError> {
        let mut all = BTreeMap::new();
        for election in self.names().await?.into_iter().take(LEADERS_MOST) {
            if let Some(support) = self.supporters(&election).await? {
                all.insert(election, support);
            }
        }
        Ok(all)
    }

    /// The same, or nothing if it takes too long: other findings matter more then.
    async fn supporters_in_time(&mut self) -> Option<BTreeMap<ElectionName, LeaderSupport>> {
        tokio::time::timeout(SUPPORT_TIME, self.all_supporters()).await.ok()?.ok()
    }

    async fn measure(&mut self) -> Result<Probe, StoreError> {
        let supported_before = self.supporters_in_time().await;
        let mut round_trips = RoundTrips::default();
        for _ in 0..ECHOES {
            round_trips.measure(&mut self.pool).await;
        }
        let report = round_trips.report(&self.pool);
        let name = ElectionName::new("primacy-doctor").expect("a valid name");
        let mut renewals = Vec::with_capacity(LOOKS);
        for _ in 0..LOOKS {
            let begin = clock::now();
            self.look(&name).await?;
            renewals.push(clock::now().since(begin));
        }
        renewals.sort_unstable();
        let answers = self.pool.poll(&Body::Probe(true)).await?;
        let probed = answers.into_values().filter_map(|body| match body {
            Body::Probed(probed) => Some(probed),
            _ => None,
        });
        let probed: Vec<ProbeReply> = probed.collect();
        let mut flushes: Vec<u64> = probed.iter().flat_map(|probed| probed.flushes_ns.clone()).collect();
        flushes.sort_unstable();
        let product = probed.first().map_or_else(|| "peers".to_owned(), |probed| probed.product.clone());
        let behind = self.pool.behind().await;
        let voters = voters_of(&self.pool, &behind);
        let mut findings = findings(&voters, &flushes, Secrecy::of(&self.pool));
        let supported = self.supporters_in_time().await;
        findings.extend(supported_before.zip(supported).and_then(|(before, now)| support::finding(&before, &now)));
        findings.extend(reconfiguration(&voters));
        findings.extend(self.pool.tls().map(|tls| certificate(tls.health())));
        findings.extend(self.pool.socket().map(|path| Finding {
            severity: Severity::Fine,
            code: "socket",
            message: format!(
                "the peer behind {} passes everything on: anyone who may use its socket can lead; while it is away, nobody \
                 who comes through it",
                path.display()
            ),
        }));
        Ok(Probe { product, renewals, findings, latencies: Some(report) })
    }
}

/// Who has led, as most voters have it, the latest first. A voter may have supported somebody who was not granted the term.
fn led(recalled: impl Iterator<Item = Term>) -> Vec<Term> {
    let mut terms: BTreeMap<_, Vec<(usize, Term)>> = BTreeMap::new();
    for term in recalled {
        let named = terms.entry(term.token).or_default();
        match named.iter_mut().find(|(_, known)| known.id == term.id) {
            Some((voices, known)) => {
                *voices += 1;
                // One that came over later has noted when it did.
                known.granted_unix_ms = known.granted_unix_ms.min(term.granted_unix_ms);
                known.ended = known.ended.take().or(term.ended);
            }
            None => named.push((1, term)),
        }
    }
    let most = |named: Vec<(usize, Term)>| named.into_iter().max_by_key(|(voices, _)| *voices).map(|(_, term)| term);
    terms.into_values().rev().filter_map(most).collect()
}

fn findings(voters: &Voters, flushes: &[u64], secrecy: Secrecy) -> Vec<Finding> {
    let finding = |severity, code, message| Finding { severity, code, message };
    let count = voters.voters.len();
    let is_complete = voters.voters.iter().all(|voter| voter.trouble.is_none());
    let troubles =
        voters.voters.iter().filter_map(|voter| Some(format!("{}: {}", voter.address, voter.trouble.as_ref()?)));
    let troubles: Vec<_> = troubles.collect();
    let hint = if is_complete { String::new() } else { format!(". Bring the others back: {}", troubles.join("; ")) };
    let severity = if is_complete && voters.spare() > 0 { Severity::Fine } else { Severity::Warning };
    let mut all = vec![finding(severity, "voters", format!("{}{hint}", voters.strength()))];
    if count.is_multiple_of(2) {
        let message = format!("{count} voters survive no more losses than {}: add one, or take one out", count - 1);
        all.push(finding(Severity::Warning, "even-voters", message));
    }
    if let (Some(median), Some(worst)) = (flushes.get(flushes.len() / 2), flushes.last()) {
        let ms = |nanos: &u64| Duration::from_nanos(*nanos).as_secs_f64() * 1_000.0;
        let message = format!(
            "voters flush a promise to disk in {:.1} ms (worst of {}: {:.1} ms) before they answer",
            ms(median),
            flushes.len(),
            ms(worst)
        );
        all.push(finding(Severity::Fine, "durability", message));
    }
    let (severity, message) = match secrecy {
        Secrecy::Proven => (Severity::Fine, "both sides of each connection prove who they are, over TLS"),
        Secrecy::Local => (Severity::Fine, "plain text, on this machine only: all of its users can lead"),
        Secrecy::Plain => (
            Severity::Danger,
            "plain text: everybody who can connect to the peers can lead. Use certificates: see 'primacy peer certs --help'",
        ),
    };
    all.push(finding(severity, "encryption", message.to_owned()));
    all
}

/// How the files stand with which this has proven who it is. Those of the voters are told of in their logs.
fn certificate(health: Health) -> Finding {
    let (severity, message) = match health {
        Health::Good(rest) => {
            let rest = rest.as_secs() / 86_400;
            (Severity::Fine, format!("the certificate with which this was asked is good for {rest} more days"))
        }
        Health::ListIsOld(text) => (Severity::Warning, text),
        Health::EndsSoon(text) | Health::Ended(text) => (Severity::Danger, text),
    };
    Finding { severity, code: "certificate", message }
}

/// An exchange of voters that is under way.
fn reconfiguration(voters: &Voters) -> Option<Finding> {
    let (incoming, finish) = (voters.incoming.as_ref()?, voters.finish()?);
    let name = |place: &VoterStatus| place.address.name().to_owned();
    let old: Vec<_> = voters.voters.iter().map(name).collect();
    let new: Vec<_> = incoming.iter().map(name).collect();
    let silent = |place: &VoterStatus| Some(format!("{} ({})", place.address, place.trouble.as_ref()?));
    let silent: Vec<_> = incoming.iter().filter_map(silent).collect();
    let silent = match &*silent {
        [] => String::new(),
        silent => {
            format!(" Not reached among the new ones: {}: bring them back, it cannot be undone.", silent.join(", "))
        }
    };
    let message = format!(
        "an exchange of voters is under way: until it is finished a lease takes more than half of {} and of {}.{silent} If \
         nobody is at it, finish it: {finish}",
        old.join(", "),
        new.join(", ")
    );
    Some(Finding { severity: Severity::Warning, code: "exchange", message })
}

/// What a look shows. A grant that these voters cannot prove any more, since some have supported a later claim, or have restarted
/// since they saw it renewed, is not forgotten: it is unknown then who leads, with the last token that was granted for certain.
/// `forgotten`: the term in which the election was forgotten, if it was.
fn snapshot_of(
    election: &ElectionName,
    seen: Sighting,
    piggyback: &CallPiggyback,
    orders: &Orders,
    forgotten: Token,
) -> Option<Snapshot> {
    let shown = seen.record.as_ref().map(|record| record.version.token).unwrap_or_default();
    let latest = |term: fn(&Piggyback) -> Option<&Term>| {
        piggyback
            .by_voter
            .values()
            .filter_map(term)
            .max_by_key(|term| term.token)
            .filter(|term| term.token > shown.max(forgotten))
    };
    let (proven, claimed) = (latest(|reply| reply.proven.as_ref()), latest(|reply| reply.claimed.as_ref()));
    // A claim beside a grant that is proven is no news: it may come to nothing.
    if let Some(last) = proven.or(claimed.filter(|_| shown == Token::NONE)) {
        let token = proven.map(|term| term.token).unwrap_or_default();
        let completed_order =
            piggyback.by_voter.values().map(|reply| reply.answer.view.completed_order).max().unwrap_or_default();
        let record = Record {
            version: Version { token, beat: 1 },
            holder: Some(Holder { id: last.id, label: last.label.clone(), data: String::new() }),
            lease: piggyback.by_voter.values().map(|reply| reply.answer.view.lease).max().unwrap_or_default(),
            order_number: orders.order_number(),
            handover: orders.handover_after(completed_order, token),
            paused: orders.is_paused(token),
        };
        let candidates = piggyback.waiting();
        let basis = Basis::Record;
        return Some(Snapshot { election: election.clone(), age: None, held_for: None, candidates, record, basis });
    }
    // A voter that was taken in knows a term, and not always who has led in it.
    let is_inherited = |reply: &Piggyback| {
        let view = &reply.answer.view;
        view.term > shown.max(forgotten) && view.holder.is_none() && !view.is_forgotten()
    };
    let lost = shown == Token::NONE && piggyback.by_voter.values().any(is_inherited);
    let basis = match seen.record {
        _ if lost => Basis::Remains,
        Some(_) => Basis::Record,
        None if forgotten > Token::NONE => Basis::Forgotten,
        None => return None,
    };
    let record = seen.record.unwrap_or_else(|| Record {
        version: Version { token: forgotten, beat: 0 },
        holder: None,
        lease: Duration::ZERO,
        order_number: orders.order_number(),
        handover: None,
        paused: false,
    });
    let token = record.version.token;
    let of_it = piggyback.by_voter.values().filter(|reply| reply.answer.view.term == token);
    let held_for = of_it.filter_map(|reply| reply.held_for).max().filter(|_| record.holder.is_some());
    let mut candidates = piggyback.waiting();
    candidates.retain(|waiting| !record.is_held_by(waiting.who.id));
    // Nobody is bound to the holder any more: its lease has run out.
    let age = if record.holder.is_some() && seen.age.is_none() { Some(record.lease) } else { seen.age };
    Some(Snapshot { election: election.clone(), age, held_for, candidates, record, basis })
}

impl Admin for PeersAdmin {
    fn snapshot<'a>(&'a mut self, election: &'a ElectionName) -> BoxFuture<'a, Result<Option<Snapshot>, StoreError>> {
        Box::pin(async move { self.look(election).await })
    }

    fn support<'a>(
        &'a mut self,
        election: &'a ElectionName,
    ) -> BoxFuture<'a, Result<Option<LeaderSupport>, StoreError>> {
        Box::pin(self.supporters(election))
    }

    fn elections(&mut self) -> BoxFuture<'_, Result<Vec<Snapshot>, StoreError>> {
        Box::pin(async move {
            let mut all = Vec::new();
            for name in self.names().await? {
                let seen = self.look(&name).await?;
                all.extend(seen.filter(|snapshot| snapshot.basis != Basis::Forgotten));
            }
            Ok(all)
        })
    }

    fn history<'a>(
        &'a mut self,
        election: &'a ElectionName,
        limit: u32,
    ) -> BoxFuture<'a, Result<Vec<Term>, StoreError>> {
        Box::pin(self.past(election, limit))
    }

    fn members<'a>(&'a mut self, _: &'a ElectionName) -> BoxFuture<'a, Result<Option<Members>, StoreError>> {
        Box::pin(std::future::ready(Err(no_registers())))
    }

    fn events<'a>(&'a mut self, _: &'a ElectionName, _: u32) -> BoxFuture<'a, Result<Vec<MemberEvent>, StoreError>> {
        Box::pin(std::future::ready(Err(no_registers())))
    }

    fn order<'a>(
        &'a mut self,
        election: &'a ElectionName,
        order: Order,
    ) -> BoxFuture<'a, Result<OrderOutcome, StoreError>> {
        Box::pin(async move { self.write(election, &order).await })
    }

    fn forget<'a>(&'a mut self, election: &'a ElectionName) -> BoxFuture<'a, Result<ForgetOutcome, StoreError>> {
        Box::pin(self.remove(election))
    }

    fn probe(&mut self) -> BoxFuture<'_, Result<Probe, StoreError>> {
        Box::pin(self.measure())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CandidateId, Label, Token};

    fn reply(term: u64, proven: Option<Term>, claimed: Option<Term>) -> Piggyback {
        let view = primacy_core::quorum::VoterView {
            highest: Token::new(term).expect("small"),
            term: Token::new(term).expect("small"),
            holder: claimed.as_ref().map(|term| Holder { id: term.id, label: term.label.clone(), data: String::new() }),
            beat: 1,
            seen: 0,
            lease: Duration::from_secs(1),
            bound: None,
            age: Duration::ZERO,
            released: false,
            orders: Orders::default(),
            completed_order: 0,
        };
        let answer = primacy_core::quorum::Answer { accepted: true, view };
        let standing = crate::store::Standing::default();
        Piggyback { answer, standing, waiting: Vec::new(), held_for: None, proven, claimed }
    }

    /// Two voters answer: one has supported a later claim, and the other has restarted and cannot prove what it has seen.
    #[test]
    fn a_grant_that_cannot_be_proven_any_more_is_unknown_and_never_as_if_nobody_had_led() {
        let election = ElectionName::new("jobs").expect("valid");
        let term = |token, label: &str| Term {
            token: Token::new(token).expect("small"),
            id: CandidateId::from_bits(u128::from(token)),
            label: Label::new(label).expect("valid"),
            granted_unix_ms: 0,
            ended: None,
        };
        let look = |all: Vec<Piggyback>, shown: Option<Record>| {
            let voters = (1..).map(primacy_core::quorum::VoterId::from_bits);
            let piggyback = CallPiggyback { by_voter: voters.zip(all).collect() };
            let remembered = shown.as_ref().map(|record| record.version.token).unwrap_or_default();
            let standing = crate::store::Standing::default();
            let seen = Sighting { remembered, age: None, holder_gone: false, standing, record: shown };
            snapshot_of(&election, seen, &piggyback, &Orders::default(), Token::NONE)
        };
        let words = |snapshot: Option<Snapshot>| {
            snapshot.map(|seen| {
                assert!(seen.leader().is_none() && seen.record.holder.is_some(), "who leads is unknown: {seen:?}");
                (seen.record.version.token.get(), seen.record.holder.expect("just seen").label.to_string())
            })
        };
        assert_eq!(words(look(vec![reply(0, None, None), reply(0, None, None)], None)), None, "nobody has ever led");
        let later = reply(6, Some(term(5, "old")), Some(term(6, "new")));
        let restarted = reply(5, None, Some(term(5, "old")));
        assert_eq!(words(look(vec![later.clone(), restarted.clone()], None)), Some((5, "old".to_owned())));
        // New voters that have inherited a term, and not who has led in it.
        let inherited = look(vec![reply(5, None, None), reply(5, None, None)], None).expect("it is shown");
        assert_eq!((inherited.basis, inherited.record.holder), (Basis::Remains, None));
        let first = reply(1, None, Some(term(1, "first")));
        assert_eq!(words(look(vec![first, reply(0, None, None)], None)), Some((0, "first".to_owned())));
        // What is proven by these voters is older than what one of them knows of.
        let version = Version { token: Token::new(4).expect("small"), beat: 7 };
        let record =
            Record { version, holder: None, lease: Duration::ZERO, order_number: 0, handover: None, paused: false };
        let shown = look(vec![later, restarted], Some(record.clone()));
        assert_eq!(words(shown), Some((5, "old".to_owned())));
        let settled = look(vec![reply(4, Some(term(4, "a")), None)], Some(record.clone())).expect("it is shown");
        assert_eq!(settled.record, record);
    }

    #[test]
    fn whom_most_voters_name_has_led() {
        let term = |token, label: &str, granted_unix_ms, ended: Option<&str>| Term {
            token: Token::new(token).expect("small"),
            id: CandidateId::from_bits(label.len() as u128),
            label: Label::new(label).expect("valid"),
            granted_unix_ms,
            ended: ended.map(|why| (9_000, why.to_owned())),
        };
        // The first has supported another in the second term, and the last came over late.
        let first = [term(2, "other", 2_000, Some("taken-over")), term(1, "a", 1_000, None)];
        let second = [term(2, "bb", 2_001, None), term(1, "a", 1_000, Some("resigned"))];
        let last = [term(3, "a", 3_000, None), term(2, "bb", 2_500, Some("withdrawn"))];
        assert_eq!(
            led(first.into_iter().chain(second).chain(last)),
            [term(3, "a", 3_000, None), term(2, "bb", 2_001, Some("withdrawn")), term(1, "a", 1_000, Some("resigned"))]
        );
    }
}
