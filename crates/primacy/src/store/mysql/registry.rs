//! One process's rounds in the `registers` protocol.

use std::time::Duration;

use tracing::debug;

use super::super::registers::{ProcessId, Reply, Request};
use super::super::{BoxFuture, Registry, Sighting, StoreError};
use super::fault::Fault;
use super::line::{Answer, Line, Purpose};
use super::packet::Packet;
use super::place::Place;
use super::rows::Change;
use super::{registers, roll, schema};
use crate::{CandidateId, ElectionName, Token};

/// How often an exclusive round is begun again because another was faster.
const TRIES: u32 = 10;

/// The longest pause before the first of them; it grows with each.
const PAUSE: Duration = Duration::from_millis(4);

/// A process's connection.
pub(super) struct MysqlRegistry {
    line: Line,
    election: ElectionName,
}

impl MysqlRegistry {
    pub(super) async fn open(place: &Place, election: &ElectionName) -> Result<Self, StoreError> {
        let mut line = Line::open(place, Purpose::Campaign).await?;
        schema::make_or_check_registers(&mut line).await?;
        Ok(Self { line, election: election.clone() })
    }

    async fn take(&mut self, request: Request) -> Result<Reply, StoreError> {
        match request {
            Request::Join { process, candidates, rank, came_back, round } => {
                let change = registers::join(&self.election, process, &candidates, rank.as_ref(), came_back, round);
                match self.make(&change).await? {
                    Some(mut answers) => {
                        let answer = answers.pop().ok_or_else(|| Fault::damaged("an answer"))?;
                        let (id, vars) = roll::joined(answer)?;
                        Ok(Reply::Joined { id, vars })
                    }
                    None => Err(self.why_not(process).await),
                }
            }
            Request::Beat { process, late, without, head } => {
                let statements = registers::beat(&self.election, process, late, &without, head);
                let [beat, seen] = self.ask(&Packet::first(&statements)).await?;
                let (head, shared) = roll::head(seen, self.line.host())?;
                if beat.affected == 0 {
                    return self.evicted(process, shared.sighting).await;
                }
                Ok(Reply::Beaten { vars: shared.vars()?, head, sighting: shared.sighting })
            }
            Request::Survey { process, holder, token, evict, round } => {
                if evict.is_empty() && round.is_none() {
                    match self.glance_around(process, holder, token).await? {
                        Some(reply) => return Ok(reply),
                        None => debug!(%process, "its process leads from now on"),
                    }
                }
                let change = registers::duties(&self.election, process, holder, token, &evict, round);
                self.survey(process, holder, token, &change).await
            }
            Request::Leave { process } => match self.make(&registers::leave(&self.election, process)).await? {
                Some(_) => Ok(Reply::Left),
                // Nobody has ever joined, unless the server has become read-only.
                None => self.state(process).await.map(|_| Reply::Left),
            },
        }
    }

    /// A survey that changes nothing but the own counter. `None` if VARS do not name this process as the leader's yet.
    async fn glance_around(
        &mut self,
        process: ProcessId,
        holder: CandidateId,
        token: Token,
    ) -> Result<Option<Reply>, StoreError> {
        let statements = [
            registers::leaders_beat(&self.election, process, holder, token),
            registers::state(&self.election, process),
            registers::descriptors(&self.election),
        ];
        let [beat, state, all] = self.ask(&Packet::first(&statements)).await?;
        let (own, shared) = roll::state(state, self.line.host())?;
        if beat.affected == 1 {
            let (vars, descriptors) = (shared.vars()?, roll::descriptors(all)?);
            return Ok(Some(Reply::Surveyed { vars, descriptors }));
        }
        if !shared.is_held(holder, token) {
            return Ok(Some(Reply::NotLeading));
        }
        match own {
            Some(_) => Ok(None),
            None => self.evicted(process, shared.sighting).await.map(Some),
        }
    }

    async fn survey(
        &mut self,
        process: ProcessId,
        holder: CandidateId,
        token: Token,
        change: &Change,
    ) -> Result<Reply, StoreError> {
        let is_made = self.make(change).await?.is_some();
        // Not in the transaction: a client that is stopped while it reads a long answer would hold the others up.
        let statements = [registers::state(&self.election, process), registers::descriptors(&self.election)];
        let [state, all] = match self.ask(&Packet::of(&statements)).await {
            Err(StoreError::Unreachable(message) | StoreError::Unusable(message)) if is_made => {
                return Err(StoreError::Unknown(message));
            }
            answers => answers?,
        };
        let (own, shared) = roll::state(state, self.line.host())?;
        if is_made {
            return Ok(Reply::Surveyed { vars: shared.vars()?, descriptors: roll::descriptors(all)? });
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
        let [answer] = self.ask(&Packet::read(registers::eviction(&self.election, process))).await?;
        Ok(Reply::Evicted { eviction: roll::eviction(answer)?, sighting })
    }

    /// Why an exclusive round did nothing that should have done something.
    async fn why_not(&mut self, process: ProcessId) -> StoreError {
        match self.state(process).await {
            Err(error) => error,
            Ok(_) => StoreError::Unreachable(format!("{}: the rows change too often", self.line.host())),
        }
    }

    async fn state(&mut self, process: ProcessId) -> Result<(Option<u64>, roll::Shared), StoreError> {
        let [answer] = self.ask(&Packet::read(registers::state(&self.election, process))).await?;
        Ok(roll::state(answer, self.line.host())?)
    }

    /// Sends what may be sent again, and takes the answer to each of its statements.
    async fn ask<const N: usize>(&mut self, packet: &Packet) -> Result<[Answer; N], StoreError> {
        let answers = self.line.run_patiently(packet).await?;
        Ok(answers.try_into().map_err(|_| Fault::damaged("an answer"))?)
    }

    /// Makes a change that may be made again until nobody else is faster. Each time somebody else's round was taken; the
    /// pause keeps those who were slower from meeting again.
    async fn make(&mut self, change: &Change) -> Result<Option<Vec<Answer>>, StoreError> {
        for turn in 1..TRIES {
            match self.line.transact(change).await {
                Err(Fault::Outrun(error)) => debug!(error = %error, turn, "a round is begun again"),
                done => return Ok(done?),
            }
            tokio::time::sleep((PAUSE * turn).mul_f64(rand::random())).await;
        }
        Ok(self.line.transact(change).await?)
    }
}

impl Registry for MysqlRegistry {
    fn round(&mut self, request: Request) -> BoxFuture<'_, Result<Reply, StoreError>> {
        Box::pin(self.take(request))
    }
}
