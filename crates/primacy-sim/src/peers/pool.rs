//! What an asker knows of who votes, where voters are exchanged: as `crates/primacy/src/peers/pool.rs`.

use std::collections::{BTreeMap, BTreeSet};

use primacy_core::lease::{CallError, Reply};
use primacy_core::quorum::{Membership, Output, Role, RollAsk, Round, VoterId};

use super::client::{Back, Client, State, Way, Who};
use super::wire::{Frame, Told};
use super::{index_of, voter_id};
use crate::world::World;

/// With the number of the voters that are told of: nobody waits for an answer to that.
const TOLD: u64 = 1 << 63;

/// What an asker knows of who votes.
#[derive(Debug)]
pub(super) struct Pool {
    /// Where those are that were named when it started.
    named: BTreeSet<usize>,
    /// The latest voters that it has heard of, for its whole life.
    pub(super) cluster: Option<Membership>,
    /// The number of the voters that each has been told of over these connections, and has kept.
    told: BTreeMap<VoterId, u64>,
    /// Who answers at each place, and the number of the voters that it told when it was greeted.
    there: BTreeMap<usize, (VoterId, Option<u64>)>,
    /// A majority could be asked: from then on only voters are.
    is_open: bool,
}

impl Pool {
    pub(super) fn named(named: BTreeSet<usize>) -> Self {
        let (told, there) = (BTreeMap::new(), BTreeMap::new());
        Self { named, cluster: None, told, there, is_open: false }
    }

    /// Whether it looks for a voter there.
    fn looks_at(&self, place: usize) -> bool {
        let counts_named = !self.is_open || self.cluster.is_none();
        self.has_voter_at(place) || counts_named && self.named.contains(&place)
    }

    fn has_voter_at(&self, place: usize) -> bool {
        self.cluster.as_ref().is_some_and(|cluster| cluster.voters().any(|voter| index_of(voter) == place))
    }

    /// Whom it has heard of where.
    pub(super) fn knows(&self, place: usize) -> bool {
        self.named.contains(&place) || self.has_voter_at(place)
    }
}

impl Client {
    /// Who answers at this place.
    pub(super) fn voter_at(&self, place: usize) -> VoterId {
        let there = self.pool.as_ref().and_then(|pool| pool.there.get(&place));
        there.map_or(voter_id(place), |(voter, _)| *voter)
    }

    /// Whether this voter is the one that answers at its place.
    pub(super) fn is_there(&self, voter: VoterId) -> bool {
        self.voter_at(index_of(voter)) == voter
    }

    pub(super) fn reaches(&self, voter: VoterId) -> bool {
        self.ways.get(index_of(voter)).is_some_and(|way| way.state == State::Up) && self.is_there(voter)
    }

    /// Whether a majority can be asked.
    pub(super) fn has_ways(&self) -> bool {
        match &self.pool {
            None => self.clerk.membership().is_quorum(|voter| self.reaches(voter)),
            Some(pool) => pool.cluster.as_ref().is_some_and(|cluster| cluster.is_quorum(|voter| self.reaches(voter))),
        }
    }
}

impl Frame {
    /// The same question with its number.
    pub(super) fn numbered(self, number: u64) -> Self {
        match self {
            Self::Ask { to, question, .. } => Self::Ask { number, to, question },
            Self::Roll { to, by, ask, .. } => Self::Roll { number, to, by, ask },
            Self::Behind { to, .. } => Self::Behind { number, to },
            other => other,
        }
    }
}

impl World {
    /// `is_last`: whoever asks sees to it that something comes to an end after faults, and knows of all places.
    pub(super) fn new_pool(&self, is_last: bool) -> Option<Pool> {
        let exchange = self.peers.exchange.as_ref()?;
        let named = exchange.named().voters().map(index_of);
        Some(Pool::named(if is_last { (0..self.peers.booths.len()).collect() } else { named.collect() }))
    }

    /// Begins to make its connections.
    pub(super) fn open_ways(&mut self, number: u64) {
        let Some(client) = self.peers.clients.get_mut(number) else { return };
        let host = client.host;
        if let Some(pool) = &mut client.pool {
            pool.told.clear();
            pool.there.clear();
            pool.is_open = false;
        }
        for voter in 0..self.peers.booths.len() {
            let client = self.peers.clients.get(number);
            let is_meant = client.and_then(|client| client.pool.as_ref()).is_none_or(|pool| pool.looks_at(voter));
            let connection = if is_meant { self.dial(number, host, voter) } else { 0 };
            if let Some(client) = self.peers.clients.get_mut(number) {
                client.ways.push(Way::new(connection));
            }
        }
    }

    /// Connections to the voters, and to nobody else.
    fn connect(&mut self, number: u64) {
        let Some(client) = self.peers.clients.get_mut(number) else { return };
        let host = client.host;
        for place in 0..client.ways.len() {
            let Some(client) = self.peers.clients.get_mut(number) else { return };
            let Some(pool) = &client.pool else { return };
            let (is_meant, is_open) = (pool.looks_at(place), pool.is_open);
            let way = &mut client.ways[place];
            if is_meant && way.state == State::Idle {
                let connection = self.dial(number, host, place);
                if let Some(client) = self.peers.clients.get_mut(number) {
                    client.ways[place] = Way::new(connection);
                }
            } else if is_open && !is_meant && way.state != State::Idle {
                let connection = std::mem::replace(way, Way::new(0)).connection;
                self.close(connection);
            }
        }
    }

    /// These are the voters, says somebody who can know. Whether that is news to it.
    pub(super) fn learn(&mut self, number: u64, voters: &Membership) -> bool {
        let Some(pool) = self.peers.clients.get_mut(number).and_then(|client| client.pool.as_mut()) else {
            return false;
        };
        if pool.cluster.as_ref().is_some_and(|known| known.number() >= voters.number()) {
            return false;
        }
        pool.cluster = Some(voters.clone());
        self.know_voters(voters);
        self.connect(number);
        true
    }

    /// A connection stands: the other side has said who it is, and who votes.
    pub(super) fn greeted(&mut self, number: u64, place: usize) {
        let Some(client) = self.peers.clients.get_mut(number) else { return };
        let Some(pool) = &mut client.pool else { return };
        let Some(exchange) = &mut self.peers.exchange else { return };
        let Some((voter, voters)) = exchange.welcomes.remove(&client.ways[place].connection) else { return };
        pool.there.insert(place, (voter, voters.as_ref().map(Membership::number)));
        if let Some(voters) = voters.filter(|_| !pool.is_open) {
            self.learn(number, &voters);
        }
    }

    /// What a voter says to whoever connects.
    pub(super) fn welcome(&mut self, connection: u64, voter: usize) {
        let booth = &self.peers.booths[voter];
        let Some(post) = booth.life.as_ref().and_then(|life| life.post.as_ref()) else { return };
        let said = (booth.id, post.published().cloned());
        if let Some(exchange) = &mut self.peers.exchange {
            exchange.welcomes.insert(connection, said);
        }
    }

    /// A call begins: it is one of the latest voters that are known.
    pub(super) fn catch_up(&mut self, number: u64, out: &mut Vec<Output>) {
        let Some(client) = self.peers.clients.get_mut(number) else { return };
        let Some(pool) = &mut client.pool else { return };
        pool.is_open = true;
        if let Some(voters) =
            pool.cluster.as_ref().filter(|voters| client.clerk.membership().number() < voters.number())
        {
            client.clerk.moved(voters.clone(), out);
        }
        self.connect(number);
    }

    /// A voter that may have missed an exchange is told that there was one before it is asked anything.
    pub(super) fn tell_first(&mut self, number: u64, to: VoterId) {
        let Some(client) = self.peers.clients.get(number) else { return };
        let Some(pool) = &client.pool else { return };
        let Some(voters) = pool.cluster.as_ref().filter(|voters| voters.number() > 0) else { return };
        let has = |(there, known): &(VoterId, Option<u64>)| *there == to && *known >= Some(voters.number());
        let knows = pool.told.get(&to) == Some(&voters.number())
            || (client.reaches(to) && pool.there.get(&index_of(to)).is_some_and(has));
        if !knows {
            let round = Round(TOLD | voters.number());
            let forged = self.forged(voters).filter(|_| matches!(client.who, Who::Candidate { .. }));
            self.ask(number, to, round, Frame::Behind { number: 0, to });
            // Some candidates say who votes, too, and lie.
            if let Some(forged) = forged.filter(|_| self.rng.chance(200_000)) {
                let (by, ask) = (Role::Candidate, Box::new(RollAsk::Adopt(forged)));
                self.ask(number, to, round, Frame::Roll { number: 0, to, by, ask });
            }
        }
    }

    /// A voter says something of who votes.
    pub(super) fn hear_told(&mut self, number: u64, place: usize, asked: u64, told: Told) {
        let Some(client) = self.peers.clients.get_mut(number) else { return };
        let voter = client.voter_at(place);
        if asked == 0 {
            if let Told::Moved(voters) = told
                && self.learn(number, &voters)
                && !self.moved(number)
            {
                self.hint_of_voters(number);
            }
            return;
        }
        let Some((round, _)) = client.ways[place].asked.remove(&asked) else { return };
        if round.0 >= TOLD {
            if let Some(pool) = &mut client.pool {
                pool.told.insert(voter, round.0 ^ TOLD);
            }
            return;
        }
        match told {
            Told::Rolled(answer) => self.drive_hears(number, voter, round, answer),
            Told::Moved(voters) => {
                if let Some(pool) = &mut client.pool
                    && pool.cluster.as_ref().is_some_and(|known| known.number() > voters.number())
                {
                    // It could not find out yet.
                    pool.told.remove(&voter);
                }
                self.learn(number, &voters);
                if !self.moved(number) {
                    self.back(number, Back::Lost(voter, round));
                }
            }
            Told::Refused => self.back(number, Back::Lost(voter, round)),
        }
    }

    /// If later voters are known by now than its call counts with, they are asked. Whether that is so.
    pub(super) fn moved(&mut self, number: u64) -> bool {
        let Some(client) = self.peers.clients.get_mut(number) else { return false };
        let cluster = client.pool.as_ref().and_then(|pool| pool.cluster.as_ref());
        let later = cluster.filter(|voters| client.begun && voters.number() > client.clerk.membership().number());
        let Some(later) = later.cloned() else { return false };
        let mut out = Vec::new();
        client.clerk.moved(later, &mut out);
        self.carry(number, out);
        true
    }

    /// Who waits looks again.
    fn hint_of_voters(&mut self, number: u64) {
        let Some(client) = self.peers.clients.get(number) else { return };
        if let Who::Candidate { node, .. } = client.who {
            self.hint_one(node);
        }
    }

    /// By which number a candidate is granted its lease, or renews it, if it believes that. Gives the one before.
    pub(super) fn count_by(&mut self, number: u64, result: &Result<Reply, CallError>) -> Option<u64> {
        let exchange = self.peers.exchange.as_mut()?;
        let before = exchange.counted.get(&number).copied();
        let client = self.peers.clients.get(number)?;
        if matches!(result, Ok(Reply::Applied(record)) if record.holder.is_some()) {
            exchange.counted.insert(number, client.clerk.membership().number());
        }
        before
    }

    /// What it believes rests on voters of this number.
    pub(super) fn counted_by(&mut self, number: u64, by: Option<u64>) {
        if let (Some(exchange), Some(by)) = (&mut self.peers.exchange, by) {
            exchange.counted.insert(number, by);
        }
    }
}
