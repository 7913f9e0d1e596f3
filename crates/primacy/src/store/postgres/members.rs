//! One process's rounds of the `registers` protocol, each one statement in one round trip.

use std::sync::Arc;

use super::super::{BoxFuture, Record, Registry, Sighting, StoreError};
use super::connection::Connection;
use super::dialer::Dialer;
use super::ears::Ringer;
use super::errors::{Fault, Stake};
use super::parameter::Parameter;
use super::{member_records as rows, member_statements as statements, schema, session};
use crate::{CandidateId, ElectionName, Token};
use primacy_core::registers::{Eviction, ProcessId, Reply, Request};

/// How often joining begins anew because the same process joined, or was evicted, at that moment.
const JOINS: u32 = 5;

/// A process's connection. It listens to nothing: what it waits for is the time of its next beat.
#[derive(Debug)]
pub(super) struct PostgresRegistry {
    connection: Connection,
    election: ElectionName,
}

impl PostgresRegistry {
    pub(super) async fn open(dialer: &Arc<Dialer>, election: &ElectionName) -> Result<Self, StoreError> {
        let (mut connection, _) = session::stand(dialer, Ringer::Nobody).await?;
        schema::open_registers(&mut connection).await?;
        Ok(Self { connection, election: election.clone() })
    }

    async fn take(&mut self, request: Request) -> Result<Reply, StoreError> {
        let election = self.election.clone();
        let name: Parameter<'_> = election.as_str().into();
        let taken = match request {
            Request::Join { process, candidates, rank, came_back, round } => {
                let parameters = [
                    name,
                    process.into(),
                    rank.into(),
                    round.into(),
                    came_back.into(),
                    candidates.iter().map(|candidate| candidate.id).collect(),
                    candidates.iter().map(|candidate| candidate.label.as_str()).collect(),
                    candidates.iter().map(|candidate| candidate.data.as_bytes()).collect(),
                    candidates.iter().map(|candidate| candidate.rank).collect(),
                ];
                self.join(&parameters).await
            }
            Request::Beat { process, late, head: 0, .. } => {
                self.beat(process, statements::BRIEF_BEAT, &[name, process.into(), late.into()]).await
            }
            Request::Beat { process, late, without, head } => {
                let parameters = [
                    name,
                    process.into(),
                    late.into(),
                    u64::from(head).into(),
                    without.iter().map(|(process, _)| *process).collect(),
                    without.iter().map(|(_, counter)| *counter).collect(),
                ];
                self.beat(process, statements::BEAT, &parameters).await
            }
            Request::MembershipScan { process, holder, token, evict, round } => {
                let mut parameters = vec![name, process.into(), holder.into(), token.get().into()];
                let has_duties = !evict.is_empty() || round.is_some();
                if has_duties {
                    parameters.extend([
                        evict.iter().map(|(process, ..)| *process).collect(),
                        evict.iter().map(|(_, counter, _)| *counter).collect(),
                        evict.iter().map(|(.., silent)| *silent).collect(),
                        round.map(|(round, _)| round).into(),
                        round.map(|(_, changes)| changes).into(),
                    ]);
                }
                let statement = if has_duties { statements::SURVEY_WITH_DUTIES } else { statements::SURVEY };
                self.scan(process, (holder, token), statement, &parameters).await
            }
            Request::Leave { process } => {
                let left = self.connection.run(statements::LEAVE, &[name, process.into()], Stake::Writing).await;
                left.map(|_| Reply::Left)
            }
        };
        taken.map_err(|fault| fault.meaning(self.connection.shown(), Stake::Writing))
    }

    async fn join(&mut self, parameters: &[Parameter<'_>]) -> Result<Reply, Fault> {
        for _ in 0..JOINS {
            match self.connection.run(statements::JOIN, parameters, Stake::Writing).await {
                Ok(rows) if rows.is_empty() => {}
                Ok(rows) => return rows::joined(&rows),
                // The same process joined after the statement had begun; it was rolled back.
                Err(fault) if fault.code() == Some("23505") => {}
                Err(fault) => return Err(fault),
            }
        }
        let why = format!("{}: another connection of this process joins all the time", self.connection.shown());
        Err(Fault::Said(StoreError::Unreachable(why)))
    }

    async fn beat(
        &mut self,
        process: ProcessId,
        statement: &'static str,
        parameters: &[Parameter<'_>],
    ) -> Result<Reply, Fault> {
        let rows = self.connection.run_often(statement, parameters, Stake::Writing).await?;
        match rows.first() {
            Some(row) => rows::beaten(row, statement == statements::BEAT),
            None => {
                let (eviction, sighting) = self.why(process).await?;
                Ok(Reply::Evicted { eviction, sighting })
            }
        }
    }

    async fn scan(
        &mut self,
        process: ProcessId,
        (holder, token): (CandidateId, Token),
        statement: &'static str,
        parameters: &[Parameter<'_>],
    ) -> Result<Reply, Fault> {
        let rows = self.connection.run_often(statement, parameters, Stake::Writing).await?;
        if let Some(row) = rows.first() {
            return rows::scanned(row);
        }
        let (eviction, sighting) = self.why(process).await?;
        let leads = |record: &Record| record.is_held_by(holder) && record.version.token == token;
        Ok(match sighting.record.as_ref().is_some_and(leads) {
            true => Reply::Evicted { eviction, sighting },
            false => Reply::NotLeading,
        })
    }

    /// Read after the round that found nothing, which may have waited for the eviction and not have seen it.
    async fn why(&mut self, process: ProcessId) -> Result<(Option<Eviction>, Sighting), Fault> {
        let parameters = [self.election.as_str().into(), process.into()];
        rows::evicted(&self.connection.run(statements::EVICTED, &parameters, Stake::Reading).await?)
    }
}

impl Registry for PostgresRegistry {
    fn round(&mut self, request: Request) -> BoxFuture<'_, Result<Reply, StoreError>> {
        Box::pin(self.take(request))
    }
}
