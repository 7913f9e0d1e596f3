//! `primacy promote` and `primacy depose`: an order into the election's record, and what comes of it.

use std::time::Duration;

use primacy::store::{Basis, Order, OrderOutcome, Snapshot};
use primacy::{ElectionName, Instant, Token, clock};

use super::operator_order::OperatorOrder;
use super::outcome::{self, Outcome};
use super::refusals::{UNKNOWN, no_record, no_such_election};
use crate::cli::OrderArgs;
use crate::failure::{Failure, code};
use crate::output::lead::Lead;
use crate::output::namesakes::{Meant, ambiguous, called, meant, named};
use crate::output::schema::{self, Millis, SCHEMA, State};
use crate::output::span::span;
use crate::output::{Output, members};
use crate::reach::Reach;

/// Why no order was written.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Refusal {
    NoSuchElection,
    NoRecord,
    TokenChanged,
    Paused,
    NoCandidate,
}

impl Refusal {
    const fn word(&self) -> &'static str {
        match self {
            Self::NoSuchElection => "no-such-election",
            Self::NoRecord => "no-record",
            Self::TokenChanged => "token-changed",
            Self::Paused => "paused",
            Self::NoCandidate => "no-candidate",
        }
    }
}

/// What to do about an order, having looked.
enum Decision {
    /// Write it.
    Write,
    /// It is as wanted already.
    Already(String),
    Refuse(Refusal),
}

pub(crate) async fn run(
    wanted: OperatorOrder,
    args: &OrderArgs,
    reach: &mut Reach,
    output: &mut Output,
) -> Result<u8, Failure> {
    let before = reach.snapshot().await?.now();
    // A member of the registers protocol that never leads cannot take over, nor one that is about to be evicted.
    let members = reach.members_if_told().await;
    let able = before.clone().map(|snapshot| members::able(snapshot, members.as_ref()));
    let is_current = |seen: &Snapshot| args.token.is_none_or(|token| token == seen.record.version.token);
    let wanted = match (&wanted, able.as_ref().filter(|seen| is_current(seen))) {
        (OperatorOrder::Promote(name), Some(snapshot)) => match meant(name, snapshot) {
            Meant::One(successor) => OperatorOrder::Promote(successor),
            Meant::Several(candidates) => {
                let command = command_for(reach.election());
                let said = ambiguous(name, &candidates, snapshot, &command);
                let steering = Steering { wanted: wanted.clone(), args };
                steering.report("ambiguous", None, None, able.as_ref(), able.as_ref(), reach, output)?;
                return Err(Failure::refused(said));
            }
        },
        _ => wanted,
    };
    let steering = Steering { wanted, args };
    match decide(&steering.wanted, args, able.as_ref()) {
        Decision::Refuse(refusal) => steering.refuse(&refusal, able.as_ref(), reach, output),
        Decision::Already(said) => {
            steering.report("already", None, None, before.as_ref(), before.as_ref(), reach, output)?;
            output.text(&format!("{said}\n"))?;
            Ok(0)
        }
        Decision::Write => steering.write(before, reach, output).await,
    }
}

/// What to type for a promotion in this election, up to the name of the candidate.
fn command_for(election: &ElectionName) -> String {
    match election.as_str() {
        "default" => "primacy promote".to_owned(),
        name if name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte)) => {
            format!("primacy promote --election {name}")
        }
        // As a shell reads it.
        _ => format!("primacy promote --election '{}'", election.to_string().replace('\'', r"'\''")),
    }
}

fn decide(wanted: &OperatorOrder, args: &OrderArgs, before: Option<&Snapshot>) -> Decision {
    let Some(snapshot) = before else { return Decision::Refuse(Refusal::NoSuchElection) };
    let record = &snapshot.record;
    if snapshot.basis != Basis::Record {
        return Decision::Refuse(Refusal::NoRecord);
    }
    if args.token.is_some_and(|token| token != record.version.token) {
        return Decision::Refuse(Refusal::TokenChanged);
    }
    let lead = Lead::of(before);
    match (wanted, lead) {
        (OperatorOrder::Promote(_), Lead::Led(leader, _)) if wanted.means(leader) => {
            let undisputed = record.handover.is_none() || record.handover == wanted.handover();
            // If another order is under way, this one replaces it, and needs no candidate but the leader.
            return match undisputed {
                true => {
                    Decision::Already(format!("{} leads already, with token {}", named(leader), record.version.token))
                }
                false => Decision::Write,
            };
        }
        (OperatorOrder::Depose, Lead::Vacant) => {
            return Decision::Already("nobody leads; nothing was changed".to_owned());
        }
        _ => {}
    }
    if args.force {
        return Decision::Write;
    }
    if record.paused {
        return Decision::Refuse(Refusal::Paused);
    }
    match snapshot.candidates.iter().any(|waiting| wanted.means(&waiting.who)) {
        true => Decision::Write,
        false => Decision::Refuse(Refusal::NoCandidate),
    }
}

struct Steering<'a> {
    wanted: OperatorOrder,
    args: &'a OrderArgs,
}

impl Steering<'_> {
    async fn write(&self, before: Option<Snapshot>, reach: &mut Reach, output: &mut Output) -> Result<u8, Failure> {
        // Listened to from before the order, so that its outcome cannot come unnoticed.
        let mut hints = reach.hints().await;
        let seen = before.as_ref().map_or(Token::NONE, |snapshot| snapshot.record.version.token);
        if self.args.now {
            output.remark(&risk(before.as_ref()));
        }
        let order = Order { kind: self.wanted.kind(self.args.now), token: self.args.token };
        let given = reach.order(order, seen).await?;
        let ordered_at = clock::now();
        let (result, base) = match given.ordered {
            OrderOutcome::NoSuchElection => return self.refuse(&Refusal::NoSuchElection, None, reach, output),
            OrderOutcome::NoRecord(now) => return self.refuse(&Refusal::NoRecord, Some(&now), reach, output),
            // An attempt without an answer may have come true already: then the last leadership seen is the base.
            OrderOutcome::TokenChanged(now) if given.doubtful && !self.args.no_wait => {
                ("written", before.unwrap_or(now))
            }
            OrderOutcome::TokenChanged(_) if given.doubtful => return Err(Failure::unavailable(UNKNOWN)),
            OrderOutcome::TokenChanged(now) => return self.refuse(&Refusal::TokenChanged, Some(&now), reach, output),
            OrderOutcome::Already(base) if !given.doubtful => ("already", base),
            OrderOutcome::Written(base) | OrderOutcome::Already(base) => ("written", base),
        };
        if self.args.no_wait {
            // It stands, whether or not what follows is seen.
            let after = reach.snapshot().await.ok().and_then(|after| after.now());
            self.report(result, None, None, Some(&base), after.as_ref(), reach, output)?;
            output.text("the order stands\n")?;
            return Ok(0);
        }
        let (outcome, after) = outcome::wait(&self.wanted, &base, hints.as_mut(), reach, output).await?;
        let waited = clock::now().since(ordered_at);
        self.report(result, Some(outcome), Some(waited), Some(&base), after.as_ref(), reach, output)?;
        self.conclude(outcome, after.as_ref(), ordered_at, output)
    }

    fn conclude(
        &self,
        outcome: Outcome,
        after: Option<&Snapshot>,
        since: Instant,
        output: &mut Output,
    ) -> Result<u8, Failure> {
        let waited = span(clock::now().since(since));
        let leads = match Lead::of(after) {
            Lead::Led(leader, _) => named(leader),
            _ => "nobody".to_owned(),
        };
        let token = after.map(|snapshot| snapshot.record.version.token).unwrap_or_default();
        match (outcome, &self.wanted) {
            (Outcome::Led, _) => {
                output.text(&format!("{leads} leads with token {token}, {waited} after the order\n"))?;
                Ok(0)
            }
            (Outcome::Other, OperatorOrder::Promote(successor)) => Err(Failure::new(
                code::PENDING,
                format!(
                    "{leads} leads with token {token}: {} did not take the lease in its window",
                    after.map_or_else(|| successor.to_string(), |snapshot| called(successor, snapshot))
                ),
            )),
            (Outcome::Other, OperatorOrder::Depose) => Err(Failure::new(
                code::PENDING,
                format!("{leads} leads again, with token {token}: nobody else took the lease"),
            )),
            (Outcome::Pending, _) => Err(Failure::new(
                code::PENDING,
                format!("the order stands, but {waited} later it has not come true; see primacy status --explain"),
            )),
        }
    }

    fn refuse(
        &self,
        refusal: &Refusal,
        before: Option<&Snapshot>,
        reach: &Reach,
        output: &mut Output,
    ) -> Result<u8, Failure> {
        self.report(refusal.word(), None, None, before, before, reach, output)?;
        Err(match (refusal, before) {
            (Refusal::NoSuchElection, _) | (_, None) => no_such_election(reach),
            (Refusal::NoRecord, Some(now)) => no_record(reach, now),
            (Refusal::TokenChanged, Some(now)) => {
                let token = now.record.version.token;
                let wanted = self.args.token.unwrap_or_default();
                Failure::refused(format!("the last granted token is {token}, not {wanted}; nothing was changed"))
            }
            (Refusal::Paused, Some(_)) => Failure::refused(
                "the election is paused, so nobody could take over; nothing was changed (primacy resume first, or --force)",
            ),
            (Refusal::NoCandidate, Some(now)) => Failure::refused(self.nobody_suits(now)),
        })
    }

    fn nobody_suits(&self, now: &Snapshot) -> String {
        let names: Vec<_> = now.candidates.iter().take(10).map(|waiting| waiting.who.label.to_string()).collect();
        let waiting = match now.candidates.len() {
            0 => "nobody waits who may lead".to_owned(),
            count if count > names.len() => format!("{} and {} more wait", names.join(", "), count - names.len()),
            _ => format!("waiting: {}", names.join(", ")),
        };
        match &self.wanted {
            OperatorOrder::Promote(successor) => {
                format!(
                    "no candidate called {successor} waits ({waiting}); nothing was changed (--force orders it all the same)"
                )
            }
            OperatorOrder::Depose => {
                "no other candidate waits who could take over; nothing was changed (--force orders it all the same)"
                    .to_owned()
            }
        }
    }

    #[expect(clippy::too_many_arguments, reason = "the fields of one report")]
    fn report(
        &self,
        result: &'static str,
        outcome: Option<Outcome>,
        waited: Option<Duration>,
        before: Option<&Snapshot>,
        after: Option<&Snapshot>,
        reach: &Reach,
        output: &mut Output,
    ) -> Result<(), Failure> {
        let election = reach.election();
        output.json(&schema::Order {
            schema: SCHEMA,
            store: reach.location(),
            order: self.wanted.word(),
            successor: match &self.wanted {
                OperatorOrder::Promote(successor) => Some(successor.as_str().to_owned()),
                OperatorOrder::Depose => None,
            },
            now: self.args.now,
            result,
            outcome: outcome.map(Outcome::word),
            waited_ms: waited.map(Millis),
            before: before.map(|snapshot| State::of(election, Some(snapshot))),
            after: after.map(|snapshot| State::of(election, Some(snapshot))),
        })
    }
}

/// What `--now` may cost.
fn risk(before: Option<&Snapshot>) -> String {
    match Lead::of(before) {
        Lead::Led(holder, left) => format!(
            "--now does not wait for {} to stop: for up to {} two may lead, and only the fencing token protects",
            holder.label,
            span(left)
        ),
        Lead::Unknown(holder) => {
            format!(
                "--now does not wait until {} is certain to have stopped; only the fencing token protects",
                holder.label
            )
        }
        Lead::Vacant | Lead::Lost | Lead::Forgotten | Lead::Never => {
            "nobody holds the lease, so --now risks nothing".to_owned()
        }
    }
}
