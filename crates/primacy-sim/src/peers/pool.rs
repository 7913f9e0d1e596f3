//! What an asker knows of who votes, where voters are exchanged: as `crates/primacy/src/peers/client/pool.rs`.

use primacy_core::lease::{CallError, Reply};
use primacy_core::quorum::{BehindNotices, ConfigRequest, Output, Role, VoterId, VoterSet};

use crate::voters::client::{ClientKind, QuorumInput};
use crate::voters::pool::Pool;
use crate::voters::route::Route;
use crate::voters::wire::{ConfigMessage, Frame};
use crate::voters::{index_of, voter_id};
use crate::world::World;

impl World {
    /// `is_last`: the asker sees to it that something comes to an end after faults, and knows of all places.
    pub(super) fn new_pool(&self, is_last: bool) -> Option<Pool> {
        let reconfiguration = self.peers.reconfiguration.as_ref()?;
        let named = reconfiguration.named().voters().map(index_of);
        Some(Pool::named(if is_last { (0..self.peers.voter_nodes.len()).collect() } else { named.collect() }))
    }

    /// Begins to make its connections.
    pub(super) fn open_routes(&mut self, number: u64) {
        let Some(client) = self.peers.clients.get_mut(number) else { return };
        if let Some(pool) = &mut client.pool {
            pool.notices = BehindNotices::default();
            pool.there.clear();
            pool.is_open = false;
        }
        for voter in 0..self.peers.voter_nodes.len() {
            let client = self.peers.clients.get(number);
            let is_meant = client.and_then(|client| client.pool.as_ref()).is_none_or(|pool| pool.looks_at(voter));
            let route = if is_meant { self.open_route(number, voter) } else { Route::idle() };
            if let Some(client) = self.peers.clients.get_mut(number) {
                client.routes.push(route);
            }
        }
    }

    /// Connections to the voters, and to nobody else.
    fn connect(&mut self, number: u64) {
        let Some(client) = self.peers.clients.get(number) else { return };
        for place in 0..client.routes.len() {
            let Some(client) = self.peers.clients.get_mut(number) else { return };
            let Some(pool) = &client.pool else { return };
            let (is_meant, is_open) = (pool.looks_at(place), pool.is_open);
            let route = &mut client.routes[place];
            if is_meant && route.voter_connection.is_none() {
                let route = self.open_route(number, place);
                if let Some(client) = self.peers.clients.get_mut(number) {
                    client.routes[place] = route;
                }
            } else if is_open && !is_meant && route.voter_connection.is_some() {
                let connection = std::mem::replace(route, Route::idle()).connection;
                self.close(connection);
            }
        }
    }

    /// These are the voters, says somebody who can know. Whether that is news to it.
    pub(super) fn learn(&mut self, number: u64, voters: &VoterSet) -> bool {
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
    pub(super) fn greeted(&mut self, number: u64, place: usize) -> VoterId {
        let nobody = voter_id(place);
        let Some(client) = self.peers.clients.get_mut(number) else { return nobody };
        let Some(pool) = &mut client.pool else { return nobody };
        let Some(reconfiguration) = &mut self.peers.reconfiguration else { return nobody };
        let welcome = reconfiguration.welcomes.remove(&client.routes[place].connection);
        let Some((voter, voters)) = welcome else { return nobody };
        pool.there.insert(place, voters.as_ref().map(VoterSet::number));
        if let Some(voters) = voters.filter(|_| !pool.is_open) {
            self.learn(number, &voters);
        }
        voter
    }

    /// What a voter says to a client that connects.
    pub(super) fn welcome(&mut self, connection: u64, voter: usize) {
        let voter_node = &self.peers.voter_nodes[voter];
        let Some(config) = voter_node.life.as_ref().and_then(|life| life.config.as_ref()) else { return };
        let said = (voter_node.id, config.published().cloned());
        if let Some(reconfiguration) = &mut self.peers.reconfiguration {
            reconfiguration.welcomes.insert(connection, said);
        }
    }

    /// A call begins: it is one of the latest voters that are known.
    pub(super) fn catch_up(&mut self, number: u64, out: &mut Vec<Output>) {
        let Some(client) = self.peers.clients.get_mut(number) else { return };
        let Some(pool) = &mut client.pool else { return };
        pool.is_open = true;
        if let Some(voters) =
            pool.cluster.as_ref().filter(|voters| client.quorum.client().voter_set().number() < voters.number())
        {
            client.quorum.moved(voters.clone(), client.clock.read(self.engine.now), out);
        }
        self.connect(number);
    }

    /// A voter that may have missed an exchange is told that there was one before it is asked anything.
    pub(super) fn tell_first(&mut self, number: u64, to: VoterId) {
        let Some(client) = self.peers.clients.get(number) else { return };
        let Some(pool) = &client.pool else { return };
        let Some(voters) = &pool.cluster else { return };
        let known = client.reaches(to).then(|| pool.there.get(&index_of(to)).copied().flatten()).flatten();
        if let Some(round) = pool.notices.before_question(to, voters.number(), known) {
            let forged = self.forged(voters).filter(|_| matches!(client.who, ClientKind::Candidate { .. }));
            self.ask(number, to, round, Frame::Behind { number: 0, to });
            // Some candidates say who votes, too, and lie.
            if let Some(forged) = forged.filter(|_| self.engine.rng.chance(200_000)) {
                let (by, ask) = (Role::Candidate, Box::new(ConfigRequest::Adopt(forged)));
                self.ask(number, to, round, Frame::ConfigRequest { number: 0, to, by, ask });
            }
        }
    }

    /// A voter says something of who votes.
    pub(super) fn hear_config(&mut self, number: u64, place: usize, asked: u64, told: ConfigMessage) {
        let Some(client) = self.peers.clients.get_mut(number) else { return };
        if asked == 0 {
            if let ConfigMessage::Moved(voters) = told
                && self.learn(number, &voters)
                && !self.moved(number)
            {
                self.hint_of_voters(number);
            }
            return;
        }
        let answered = client.routes[place].voter_connection.as_mut().and_then(|connection| connection.answered(asked));
        let Some((voter, round)) = answered else { return };
        if let Some(pool) = &mut client.pool {
            pool.notices.answered(voter, round);
        }
        if BehindNotices::is_notice(round) {
            return;
        }
        match told {
            ConfigMessage::ConfigReply(answer) => self.drive_hears(number, voter, round, answer),
            ConfigMessage::Moved(voters) => {
                if let Some(pool) = &mut client.pool
                    && let Some(known) = &pool.cluster
                {
                    pool.notices.knows_only(voter, voters.number(), known.number());
                }
                self.learn(number, &voters);
                if !self.moved(number) {
                    self.back(number, QuorumInput::Lost(voter, round));
                }
            }
            ConfigMessage::Refused => self.back(number, QuorumInput::Lost(voter, round)),
        }
    }

    /// If later voters are known by now than its call counts with, they are asked. Whether that is so.
    pub(super) fn moved(&mut self, number: u64) -> bool {
        let Some(client) = self.peers.clients.get_mut(number) else { return false };
        let cluster = client.pool.as_ref().and_then(|pool| pool.cluster.as_ref());
        let later =
            cluster.filter(|voters| client.begun && voters.number() > client.quorum.client().voter_set().number());
        let Some(later) = later.cloned() else { return false };
        let mut out = Vec::new();
        client.quorum.moved(later, client.clock.read(self.engine.now), &mut out);
        self.carry(number, out);
        true
    }

    /// Who waits looks again.
    fn hint_of_voters(&mut self, number: u64) {
        let Some(client) = self.peers.clients.get(number) else { return };
        if let ClientKind::Candidate { node, .. } = client.who {
            self.hint_one(node);
        }
    }

    /// By which number a candidate is granted its lease, or renews it, if it believes that. Gives the one before.
    pub(super) fn count_by(&mut self, number: u64, result: &Result<Reply, CallError>) -> Option<u64> {
        let reconfiguration = self.peers.reconfiguration.as_mut()?;
        let before = reconfiguration.counted.get(&number).copied();
        let client = self.peers.clients.get(number)?;
        if matches!(result, Ok(Reply::Applied(record)) if record.holder.is_some()) {
            reconfiguration.counted.insert(number, client.quorum.client().voter_set().number());
        }
        before
    }

    /// What it believes rests on voters of this number.
    pub(super) fn counted_by(&mut self, number: u64, by: Option<u64>) {
        if let (Some(reconfiguration), Some(by)) = (&mut self.peers.reconfiguration, by) {
            reconfiguration.counted.insert(number, by);
        }
    }
}
