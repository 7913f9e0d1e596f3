//! One process's rounds in the `registers` protocol.

use std::time::Duration;

use tracing::debug;

use super::super::{BoxFuture, Registry, Sighting, StoreError};
use super::answer::Answer;
use super::change::Change;
use super::connection::Connection;
use super::errors::Fault;
use super::opening::Purpose;
use super::packet::Packet;
use super::url::StoreUrl;
use super::{member_records, member_statements, schema};
use crate::{CandidateId, ElectionName, Token};
use primacy_core::registers::{ProcessId, Reply, Request};

/// How often an exclusive round is begun again because another was faster.
const TRIES: u32 = 10;

/// The longest pause before the first of them; it grows with each.
const PAUSE: Duration = Duration::from_millis(4);

/// A process's connection.
pub(super) struct MysqlRegistry {
    connection: Connection,
    election: ElectionName,
}

impl MysqlRegistry {
    pub(super) async fn open(url: &StoreUrl, election: &ElectionName) -> Result<Self, StoreError> {
        let mut connection = Connection::open(url, Purpose::Campaign).await?;
        schema::make_or_check_registers(&mut connection).await?;
        Ok(Self { connection, election: election.clone() })
    }

    async fn take(&mut self, request: Request) -> Result<Reply, StoreError> {
        match request {
            Request::Join { process, candidates, rank, came_back, round } => {
                let change =
                    member_statements::join(&self.election, process, &candidates, rank.as_ref(), came_back, round);
                match self.make(&change).await? {
                    Some(mut answers) => {
                        let answer = answers.pop().ok_or_else(|| Fault::damaged("an answer"))?;
                        let (id, vars) = member_records::joined(answer)?;
                        Ok(Reply::Joined { id, vars })
                    }
                    None => Err(self.why_not(process).await),
                }
            }
            Request::Beat { process, late, without, head } => {
                let statements = member_statements::beat(&self.election, process, late, &without, head);
                let [beat, seen] = self.ask(&Packet::first(&statements)).await?;
                let (head, shared) = member_records::head(seen, self.connection.host())?;
                if beat.affected == 0 {
                    return self.evicted(process, shared.sighting).await;
                }
                Ok(Reply::Beaten { vars: shared.vars()?, head, sighting: shared.sighting })
            }
            Request::MembershipScan { process, holder, token, evict, round } => {
                if evict.is_empty() && round.is_none() {
                    match self.glance_around(process, holder, token).await? {
                        Some(reply) => return Ok(reply),
                        None => debug!(%process, "its process leads from now on"),
                    }
                }
                let change = member_statements::duties(&self.election, process, holder, token, &evict, round);
                self.scan(process, holder, token, &change).await
            }
            Request::Leave { process } => match self.make(&member_statements::leave(&self.election, process)).await? {
                Some(_) => Ok(Reply::Left),
                // Nobody has ever joined, unless the server has become read-only.
                None => self.state(process).await.map(|_| Reply::Left),
            },
        }
    }

    /// A scan that changes nothing but the own counter. `None` if VARS do not name this process as the leader's yet.
    async fn glance_around(
        &mut self,
        process: ProcessId,
        holder: CandidateId,
        token: Token,
    ) -> Result<Option<Reply>, StoreError> {
        let statements = [
            member_statements::leaders_beat(&self.election, process, holder, token),
            member_statements::state(&self.election, process),
            member_statements::descriptors(&self.election),
        ];
        let [beat, state, all] = self.ask(&Packet::first(&statements)).await?;
        let (own, shared) = member_records::state(state, self.connection.host())?;
        if beat.affected == 1 {
            let (vars, descriptors) = (shared.vars()?, member_records::descriptors(all)?);
            return Ok(Some(Reply::Scanned { vars, descriptors }));
        }
        if !shared.is_held(holder, token) {
            return Ok(Some(Reply::NotLeading));
        }
        match own {
            Some(_) => Ok(None),
            None => self.evicted(process, shared.sighting).await.map(Some),
        }
    }

    async fn scan(
        &mut self,
        process: ProcessId,
        holder: CandidateId,
        token: Token,
        change: &Change,
    ) -> Result<Reply, StoreError> {
        let is_made = self.make(change).await?.is_some();
        // Not in the transaction: a client that is stopped while it reads a long answer would hold the others up.
        let statements =
            [member_statements::state(&self.election, process), member_statements::descriptors(&self.election)];
        let [state, all] = match self.ask(&Packet::of(&statements)).await {
            Err(StoreError::Unreachable(message) | StoreError::Unusable(message)) if is_made => {
                return Err(StoreError::Unknown(message));
            }
            answers => answers?,
        };
        let (own, shared) = member_records::state(state, self.connection.host())?;
        if is_made {
            return Ok(Reply::Scanned { vars: shared.vars()?, descriptors: member_records::descriptors(all)? });
        }
        if !shared.is_held(holder, token) {
            return Ok(Reply::NotLeading);
        }
        match own {
            None => self.evicted(process, shared.sighting).await,
            Some(_) => Err(self.why_not(process).await),
        }
    }

    async fn evicted(&mut self, process: ProcessId, sighting: Sighting) -> Result<Reply, StoreError> {
        let [answer] = self.ask(&Packet::read(member_statements::eviction(&self.election, process))).await?;
        Ok(Reply::Evicted { eviction: member_records::eviction(answer)?, sighting })
    }

    /// Why an exclusive round did nothing that should have done something.
    async fn why_not(&mut self, process: ProcessId) -> StoreError {
        match self.state(process).await {
            Err(error) => error,
            Ok(_) => StoreError::Unreachable(format!("{}: the rows change too often", self.connection.host())),
        }
    }

    async fn state(
        &mut self,
        process: ProcessId,
    ) -> Result<(Option<u64>, member_records::ElectionSnapshot), StoreError> {
        let [answer] = self.ask(&Packet::read(member_statements::state(&self.election, process))).await?;
        Ok(member_records::state(answer, self.connection.host())?)
    }

    /// Sends what may be sent again, and takes the answer to each of its statements.
    async fn ask<const N: usize>(&mut self, packet: &Packet) -> Result<[Answer; N], StoreError> {
        let answers = self.connection.run_patiently(packet).await?;
        Ok(answers.try_into().map_err(|_| Fault::damaged("an answer"))?)
    }

    /// Makes a change that may be made again until nobody else is faster. Each time somebody else's round was taken; the
    /// pause keeps those who were slower from meeting again.
    async fn make(&mut self, change: &Change) -> Result<Option<Vec<Answer>>, StoreError> {
        for turn in 1..TRIES {
            match self.connection.transact(change).await {
                Err(Fault::Outrun(error)) => debug!(error = %error, turn, "a round is begun again"),
                done => return Ok(done?),
            }
            tokio::time::sleep((PAUSE * turn).mul_f64(rand::random())).await;
        }
        Ok(self.connection.transact(change).await?)
    }
}

impl Registry for MysqlRegistry {
    fn round(&mut self, request: Request) -> BoxFuture<'_, Result<Reply, StoreError>> {
        Box::pin(self.take(request))
    }
}
