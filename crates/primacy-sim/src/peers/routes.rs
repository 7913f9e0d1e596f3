//! A client's routes to the voters: the production [`VoterConnection`], over simulated connections.

use primacy_core::Instant;
use primacy_core::quorum::{ConnectionEffect, Round, VoterConnection, VoterId};

use crate::oracle::Oracle;
#[cfg(feature = "canaries")]
use crate::planted::Planted;
use crate::voters::client::{ClientEvent, QuorumInput};
use crate::voters::route::{RoundConnection, RoundConnectionEffect, Route};
use crate::voters::wire::Frame;
use crate::voters::{PeersEvent, index_of};
use crate::world::World;

impl World {
    /// A connection that stands has broken.
    pub(super) fn broken(&mut self, number: u64, place: usize) {
        let route = self.peers.clients.get(number).and_then(|client| client.routes.get(place));
        if route.and_then(Route::voter).is_some() {
            self.fails(number, place);
        }
    }

    pub(super) fn fails(&mut self, number: u64, place: usize) {
        self.does_at(number, place, VoterConnection::failed);
    }

    /// Something happens to a connection.
    pub(super) fn does_at(
        &mut self,
        number: u64,
        place: usize,
        does: impl FnOnce(&mut RoundConnection, Instant, &mut Vec<RoundConnectionEffect>),
    ) {
        let lost = self.does(number, place, does);
        lost.into_iter().for_each(|(voter, round)| self.back(number, QuorumInput::Lost(voter, round)));
    }

    pub(super) fn ask(&mut self, number: u64, to: VoterId, round: Round, frame: Frame) {
        let lost = self.does(number, index_of(to), |connection, now, out| connection.ask(to, round, frame, now, out));
        let Some(client) = self.peers.clients.get_mut(number) else { return };
        let is_absent = client.routes.get(index_of(to)).is_none_or(|route| route.voter_connection.is_none());
        let lost = lost.into_iter().chain(is_absent.then_some((to, round)));
        client.inbox.extend(lost.map(|(voter, round)| ClientEvent::Lost { voter, round }));
    }

    /// Something happens to a connection: what it wants done is done, and what was lost by it is given.
    fn does(
        &mut self,
        number: u64,
        place: usize,
        does: impl FnOnce(&mut RoundConnection, Instant, &mut Vec<RoundConnectionEffect>),
    ) -> Vec<(VoterId, Round)> {
        let now = self.engine.now;
        let (mut out, mut lost) = (Vec::new(), Vec::new());
        let Some(client) = self.peers.clients.get_mut(number) else { return lost };
        let (own, host) = (client.clock.read(now), client.host);
        let Some(voter_connection) = client.routes.get_mut(place).and_then(|route| route.voter_connection.as_mut())
        else {
            return lost;
        };
        does(voter_connection, own, &mut out);
        for effect in out {
            let Some(route) = self.peers.clients.get_mut(number).map(|client| &mut client.routes[place]) else { break };
            match effect {
                ConnectionEffect::Connect => {
                    let connection = self.dial(number, host, place);
                    if let Some(client) = self.peers.clients.get_mut(number) {
                        client.routes[place].connection = connection;
                    }
                }
                ConnectionEffect::Send { number: asked, question } => {
                    let connection = route.connection;
                    self.send_frame(connection, true, question.numbered(asked));
                }
                ConnectionEffect::Close => {
                    let connection = route.connection;
                    route.armed = None;
                    self.close(connection);
                }
                ConnectionEffect::Lost { voter, tag } => lost.push((voter, tag)),
            }
        }
        self.arm_tick(number, place);
        lost
    }

    /// Sees to it that a connection is told when the time comes that it waits for, by its asker's clock.
    fn arm_tick(&mut self, number: u64, place: usize) {
        let Some(client) = self.peers.clients.get_mut(number) else { return };
        let route = &mut client.routes[place];
        let Some(at) = route.voter_connection.as_ref().and_then(VoterConnection::next_tick) else { return };
        if route.armed.is_none_or(|armed| at < armed) {
            route.armed = Some(at);
            let wait = client.clock.real_at(at).saturating_sub(self.engine.now) + 1;
            self.after_peers(wait, PeersEvent::Tick { client: number, place, at });
        }
    }

    /// Begins to make a connection.
    pub(super) fn open_route(&mut self, number: u64, place: usize) -> Route {
        let Some(client) = self.peers.clients.get(number) else { return Route::idle() };
        let host = client.host;
        let voter_connection = self.new_connection();
        Route { connection: self.dial(number, host, place), voter_connection: Some(voter_connection), armed: None }
    }

    #[cfg(feature = "canaries")]
    fn new_connection(&self) -> RoundConnection {
        match self.scenario.planted {
            Some(Planted::Quorum(flaw)) => RoundConnection::flawed(&mut Vec::new(), Some(flaw)),
            _ => RoundConnection::open(&mut Vec::new()),
        }
    }

    #[cfg(not(feature = "canaries"))]
    #[expect(clippy::unused_self, reason = "there is no planted bug to ask for")]
    fn new_connection(&self) -> RoundConnection {
        RoundConnection::open(&mut Vec::new())
    }

    /// Answers: of no voter a client waits longer for one than it says. It may be told late that the time has come, by a clock that is
    /// slewed or steps ahead. A machine that resumes may handle other things first.
    pub(super) fn check_answers(&mut self, number: u64) {
        let now = self.engine.now;
        let Some(client) = self.peers.clients.get_mut(number) else { return };
        let own = client.clock.read(now);
        let oldest = client.routes.iter().filter_map(|route| route.voter_connection.as_ref()?.oldest()).min();
        let Some(waits) = oldest.map(|since| own.since(since)).filter(|waits| *waits > RoundConnection::SILENCE * 4)
        else {
            client.overdue = None;
            return;
        };
        if now - *client.overdue.get_or_insert(now) < crate::nanos(RoundConnection::SILENCE) {
            return;
        }
        self.violate(Oracle::Answers, None, || {
            format!("a question has waited for {waits:?} over a connection that is not given up")
        });
    }
}
