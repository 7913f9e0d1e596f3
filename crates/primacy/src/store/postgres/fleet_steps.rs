//! The steps of a fleet's candidates, carried out over a connection that they share: many in one statement, or one by one.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;
use tokio_postgres::Row;
use tracing::debug;

use super::super::fleet_lines::{FleetJob, SnapshotAnswer, Spoilers, end, step};
use super::super::lines::{Carried, Job as _, Queued, QueuedStep, WeakLine};
use super::super::{Announcement, Reply, Request, Sighting, StoreError};
use super::ears::Ears;
use super::errors::{Fault, LOCKED, Stake};
use super::parameter::Parameter;
use super::records::{self, Renewed};
use super::session::{self, Link, SILENT_AFTER_LOCK, SessionMemory, Step};
use super::{PostgresStore, admin, schema, statements};
use crate::{ElectionName, clock};

type SharedStep = QueuedStep<SessionMemory>;
pub(super) type SharedJob = FleetJob<SessionMemory>;
pub(super) type Taken = Queued<SharedJob>;

/// By so much longer than one alone an announcement may take for each other one in its statement.
const EACH_PATIENCE: Duration = Duration::from_millis(1);

/// Statements for many steps at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Renewals,
    Looks,
    Announcements,
}

/// Steps that a connection carries out, and what is left of them.
pub(super) struct Work<'a> {
    store: &'a PostgresStore,
    pub(super) link: Link,
    /// To be tried again.
    pub(super) again: Vec<Taken>,
    /// Whether the connection may be used again.
    pub(super) is_good: bool,
    spoilers: &'a Spoilers,
    pub(super) ears: Option<&'a Arc<Ears>>,
    /// Where it is looked up why a renewal was refused, if not here.
    pub(super) others: Option<&'a WeakLine<SharedJob>>,
}

impl<'a> Work<'a> {
    pub(super) fn over(store: &'a PostgresStore, link: Link, spoilers: &'a Spoilers) -> Self {
        Self { store, link, again: Vec::new(), is_good: true, spoilers, ears: None, others: None }
    }

    pub(super) fn end(self) -> Carried<Link, SharedJob> {
        let Self { link, again, is_good, .. } = self;
        Carried { connection: (is_good && link.connection.is_fit()).then_some(link), again }
    }

    fn meaning(&self, fault: Fault, stake: Stake) -> StoreError {
        fault.meaning(self.link.connection.shown(), stake)
    }

    /// One statement for all of them. If one spoils it, halves are tried until that one is alone.
    pub(super) async fn all(&mut self, kind: Kind, steps: Vec<Taken>) {
        let mut parts = vec![steps];
        while let Some(mut part) = parts.pop() {
            part.retain(|queued| !queued.job.is_given_up());
            if part.is_empty() {
                continue;
            }
            if !self.is_good {
                // Not begun.
                self.again.append(&mut part);
                continue;
            }
            if part.len() == 1 {
                for one in part {
                    self.one(one).await;
                }
                continue;
            }
            let stake = if kind == Kind::Renewals { Stake::Writing } else { Stake::Reading };
            match self.ask(kind, &mut part).await {
                Ok(Some(rows)) => self.answer(kind, &rows, part),
                Ok(None) => self.hold_up(part),
                Err(fault) if fault.is_about_a_row() => {
                    debug!(?fault, steps = part.len(), "a statement for many failed");
                    let rest = part.split_off(part.len() / 2);
                    parts.extend([rest, part]);
                }
                Err(fault) => {
                    self.is_good = false;
                    let error = self.meaning(fault, stake);
                    part.into_iter().for_each(|queued| end(queued, Err(error.clone())));
                }
            }
        }
    }

    /// `None` if it took too long.
    async fn ask(&mut self, kind: Kind, part: &mut [Taken]) -> Result<Option<Vec<Row>>, Fault> {
        let connection = &mut self.link.connection;
        let steps: Vec<&SharedStep> = part.iter_mut().filter_map(step).map(|step| &*step).collect();
        let elections: Parameter<'_> = steps.iter().map(|step| step.memory.election.as_str()).collect();
        match kind {
            Kind::Renewals => {
                let renewals: Vec<_> = steps.iter().filter_map(|step| step.renewal()).collect();
                let parameters = [
                    elections,
                    renewals.iter().map(|renewal| renewal.id).collect(),
                    renewals.iter().map(|renewal| renewal.version.token.get()).collect(),
                    renewals.iter().map(|renewal| renewal.version.beat).collect(),
                    renewals.iter().map(|renewal| renewal.completed_order).collect(),
                    renewals.iter().map(|renewal| renewal.lease).collect(),
                ];
                connection.run(statements::RENEWALS, &parameters, Stake::Writing).await.map(Some)
            }
            Kind::Looks => {
                let parameters = [elections, steps.iter().map(|step| step.memory.me.id).collect()];
                connection.run(statements::LOOKS, &parameters, Stake::Reading).await.map(Some)
            }
            Kind::Announcements => {
                let said: Vec<&Announcement> = steps.iter().filter_map(|step| announcement(&step.request)).collect();
                let notes: Vec<String> = said.iter().map(|said| said.why.to_string()).collect();
                let patience = steps.iter().map(|step| step.memory.announcement_patience(connection)).min();
                let patience = patience.unwrap_or_default() + EACH_PATIENCE * u32::try_from(steps.len()).unwrap_or(1);
                let parameters = [
                    elections,
                    steps.iter().map(|step| step.memory.me.id).collect(),
                    steps.iter().map(|step| step.memory.me.label.as_str()).collect(),
                    steps.iter().map(|step| step.memory.me.data.as_bytes()).collect(),
                    notes.iter().map(String::as_str).collect(),
                    steps.iter().map(|step| step.memory.fresh_for()).collect(),
                    said.iter().map(|said| Some(said.rank)).collect(),
                ];
                let announced = connection.run(statements::ANNOUNCEMENTS, &parameters, Stake::Reading);
                timeout(patience, announced).await.ok().transpose()
            }
        }
    }

    /// To each what the statement says of it.
    fn answer(&mut self, kind: Kind, rows: &[Row], part: Vec<Taken>) {
        let mut open: Vec<Option<Taken>> = part.into_iter().map(Some).collect();
        for row in rows {
            let at = if kind == Kind::Renewals { 0 } else { records::SIGHTING };
            let number = records::number_of(row, at);
            let Some(mut queued) = number.ok().and_then(|number| open.get_mut(number)?.take()) else { continue };
            let Some(asked) = step(&mut queued) else { continue };
            if kind == Kind::Renewals {
                match records::renewed(row) {
                    Ok(Renewed::Applied(record)) => {
                        asked.memory.changed(&record);
                        end(queued, Ok(Reply::Applied(record)));
                    }
                    Ok(Renewed::Held) => self.again.push(queued.after_a_lock()),
                    Ok(Renewed::Refused) => self.refuse(queued),
                    Err(fault) => end(queued, Err(self.meaning(fault, Stake::Writing))),
                }
            } else {
                if kind == Kind::Announcements {
                    asked.memory.was_announced();
                }
                self.show(queued, records::sighting_of(row));
            }
        }
        for queued in open.into_iter().flatten() {
            // It may have been done.
            let why = format!("{}: the answer to many questions lacks one", self.link.connection.shown());
            end(queued, Err(StoreError::Unknown(why)));
            self.is_good = false;
        }
    }

    /// A renewal was refused, which a look explains.
    fn refuse(&mut self, queued: Taken) {
        let refused = queued.map(|job| match job {
            SharedJob::Step(step) => SharedJob::Refused(step),
            job => job,
        });
        match self.others {
            Some(others) => others.pass(refused),
            None => self.again.push(refused),
        }
    }

    /// Answers a look, or what was refused.
    fn show(&mut self, mut queued: Taken, seen: Result<Sighting, Fault>) {
        let is_refused = matches!(queued.job, SharedJob::Refused(_));
        let Some(asked) = step(&mut queued) else { return };
        match seen {
            Ok(sighting) => {
                let wanted = asked.memory.saw(&sighting);
                if let Some(ears) = self.ears {
                    ears.want(&asked.memory.election, wanted);
                }
                end(queued, Ok(if is_refused { Reply::Conflict(sighting) } else { Reply::Seen(sighting) }));
            }
            Err(fault) => {
                self.is_good &= is_harmless(&fault);
                let error = self.meaning(fault, Stake::Reading);
                end(queued, Err(error));
            }
        }
    }

    /// An announcement that waits for a lock on its table: for a while nothing is announced, and all look without it.
    fn hold_up(&mut self, mut part: Vec<Taken>) {
        debug!("announcements are held up; looking without them over another connection");
        self.store.dialer.be_silent_until(clock::now() + SILENT_AFTER_LOCK);
        self.is_good = false;
        self.again.append(&mut part);
    }

    /// A statement for each.
    pub(super) async fn one_by_one(&mut self, steps: Vec<Taken>) {
        for queued in steps {
            match self.is_good {
                true if !queued.job.is_given_up() => self.one(queued).await,
                // Not begun.
                _ => self.again.push(queued),
            }
        }
    }

    /// A statement of its own.
    pub(super) async fn one(&mut self, mut queued: Taken) {
        let is_silent = self.store.dialer.is_silent();
        let Some(asked) = step(&mut queued) else { return };
        let announces = announcement(&asked.request).cloned().filter(|_| !is_silent);
        if let Some(said) = announces {
            let connection = &mut self.link.connection;
            let patience = asked.memory.announcement_patience(connection);
            match timeout(patience, asked.memory.announce(connection, &said)).await {
                Ok(Ok(rows)) => {
                    asked.memory.was_announced();
                    return self.show(queued, records::sighting(&rows));
                }
                Ok(Err(fault)) if !matches!(fault.code(), None | Some(schema::LACKS_RIGHT)) => {
                    asked.memory.was_not_announced(&fault.meaning(self.link.connection.shown(), Stake::Reading));
                }
                Ok(Err(fault)) => return self.show(queued, Err(fault)),
                Err(_) => return self.hold_up(vec![queued]),
            }
        }
        let is_refused = matches!(queued.job, SharedJob::Refused(_));
        let Some(asked) = step(&mut queued) else { return };
        if is_refused || matches!(asked.request, Request::Look { .. }) {
            let seen = Step { link: &mut self.link, memory: &mut asked.memory }.look().await;
            return self.show(queued, seen);
        }
        let (request, stake) = (asked.request.clone(), session::stake(&asked.request));
        let taken = Step { link: &mut self.link, memory: &mut asked.memory }.take(request).await;
        let renews = asked.renewal().is_some();
        match taken {
            Err(fault) if fault.code() == Some(LOCKED) => self.again.push(queued.after_a_lock()),
            Err(fault) => {
                self.is_good &= is_harmless(&fault);
                if renews && is_harmless(&fault) && !fault.is_transient() {
                    self.spoilers.add(&asked.memory.election);
                }
                let error = self.meaning(fault, stake);
                end(queued, Err(error));
            }
            Ok(reply) => {
                if renews {
                    self.spoilers.remove(&asked.memory.election);
                }
                end(queued, Ok(reply));
            }
        }
    }

    /// Elections as observers see them.
    pub(super) async fn snapshots(&mut self, asked: Vec<(ElectionName, SnapshotAnswer)>) {
        let elections: Vec<ElectionName> = asked.iter().map(|(election, _)| election.clone()).collect();
        let seen = match elections.as_slice() {
            [] => return,
            elections => admin::look_at(&mut self.link.connection, elections).await,
        };
        let mut seen = match seen {
            Ok(seen) => seen,
            Err(fault) if asked.len() > 1 && (is_harmless(&fault)) => {
                for one in asked {
                    Box::pin(self.snapshots(vec![one])).await;
                }
                return;
            }
            Err(fault) => {
                self.is_good &= is_harmless(&fault);
                let error = self.meaning(fault, Stake::Reading);
                asked.into_iter().for_each(|(_, answer)| drop(answer.send(Err(error.clone()))));
                return;
            }
        };
        for (election, answer) in asked {
            let at = seen.iter().position(|snapshot| snapshot.election == election);
            // The asker may be gone.
            drop(answer.send(Ok(at.map(|at| seen.swap_remove(at)))));
        }
    }
}

fn announcement(request: &Request) -> Option<&Announcement> {
    match request {
        Request::Look { announce } => announce.as_ref(),
        _ => None,
    }
}

/// Whether the connection is as good as before.
pub(super) fn is_harmless(fault: &Fault) -> bool {
    fault.is_about_a_row() || matches!(fault, Fault::Damaged(_))
}
