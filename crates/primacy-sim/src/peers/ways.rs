//! An asker's ways to the voters: the production [`VoterConnection`], over simulated connections.

use primacy_core::Instant;
use primacy_core::quorum::{ConnectionEffect, Round, VoterConnection, VoterId};

use crate::oracle::Oracle;
#[cfg(feature = "canaries")]
use crate::planted::Planted;
use crate::voters::client::{Back, Heard};
use crate::voters::way::{Link, LinkEffect, Way};
use crate::voters::wire::Frame;
use crate::voters::{What, index_of};
use crate::world::World;

impl World {
    /// A connection that stands has broken.
    pub(super) fn broken(&mut self, number: u64, place: usize) {
        let way = self.peers.clients.get(number).and_then(|client| client.ways.get(place));
        if way.and_then(Way::voter).is_some() {
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
        does: impl FnOnce(&mut Link, Instant, &mut Vec<LinkEffect>),
    ) {
        let lost = self.does(number, place, does);
        lost.into_iter().for_each(|(voter, round)| self.back(number, Back::Lost(voter, round)));
    }

    pub(super) fn ask(&mut self, number: u64, to: VoterId, round: Round, frame: Frame) {
        let lost = self.does(number, index_of(to), |link, now, out| link.ask(to, round, frame, now, out));
        let Some(client) = self.peers.clients.get_mut(number) else { return };
        let is_absent = client.ways.get(index_of(to)).is_none_or(|way| way.link.is_none());
        let lost = lost.into_iter().chain(is_absent.then_some((to, round)));
        client.inbox.extend(lost.map(|(voter, round)| Heard::Lost { voter, round }));
    }

    /// Something happens to a connection: what it wants done is done, and what was lost by it is given.
    fn does(
        &mut self,
        number: u64,
        place: usize,
        does: impl FnOnce(&mut Link, Instant, &mut Vec<LinkEffect>),
    ) -> Vec<(VoterId, Round)> {
        let now = self.engine.now;
        let (mut out, mut lost) = (Vec::new(), Vec::new());
        let Some(client) = self.peers.clients.get_mut(number) else { return lost };
        let (own, host) = (client.clock.read(now), client.host);
        let Some(link) = client.ways.get_mut(place).and_then(|way| way.link.as_mut()) else { return lost };
        does(link, own, &mut out);
        for effect in out {
            let Some(way) = self.peers.clients.get_mut(number).map(|client| &mut client.ways[place]) else { break };
            match effect {
                ConnectionEffect::Connect => {
                    let connection = self.dial(number, host, place);
                    if let Some(client) = self.peers.clients.get_mut(number) {
                        client.ways[place].connection = connection;
                    }
                }
                ConnectionEffect::Send { number: asked, question } => {
                    let connection = way.connection;
                    self.send_frame(connection, true, question.numbered(asked));
                }
                ConnectionEffect::Close => {
                    let connection = way.connection;
                    way.armed = None;
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
        let way = &mut client.ways[place];
        let Some(at) = way.link.as_ref().and_then(VoterConnection::next_tick) else { return };
        if way.armed.is_none_or(|armed| at < armed) {
            way.armed = Some(at);
            let wait = client.clock.real_at(at).saturating_sub(self.engine.now) + 1;
            self.after_peers(wait, What::Tick { client: number, place, at });
        }
    }

    /// Begins to make a connection.
    pub(super) fn open_way(&mut self, number: u64, place: usize) -> Way {
        let Some(client) = self.peers.clients.get(number) else { return Way::idle() };
        let host = client.host;
        let link = self.new_connection();
        Way { connection: self.dial(number, host, place), link: Some(link), armed: None }
    }

    #[cfg(feature = "canaries")]
    fn new_connection(&self) -> Link {
        match self.scenario.planted {
            Some(Planted::Quorum(flaw)) => Link::flawed(&mut Vec::new(), Some(flaw)),
            _ => Link::open(&mut Vec::new()),
        }
    }

    #[cfg(not(feature = "canaries"))]
    #[expect(clippy::unused_self, reason = "there is no planted bug to ask for")]
    fn new_connection(&self) -> Link {
        Link::open(&mut Vec::new())
    }

    /// Answers: of no voter a client waits longer for one than it says. It may be told late that the time has come, by a clock that is
    /// slewed or steps ahead. A machine that resumes may handle other things first.
    pub(super) fn check_answers(&mut self, number: u64) {
        let now = self.engine.now;
        let Some(client) = self.peers.clients.get_mut(number) else { return };
        let own = client.clock.read(now);
        let oldest = client.ways.iter().filter_map(|way| way.link.as_ref()?.oldest()).min();
        let Some(waits) = oldest.map(|since| own.since(since)).filter(|waits| *waits > Link::SILENCE * 4) else {
            client.overdue = None;
            return;
        };
        if now - *client.overdue.get_or_insert(now) < crate::nanos(Link::SILENCE) {
            return;
        }
        self.violate(Oracle::Answers, None, || {
            format!("a question has waited for {waits:?} over a connection that is not given up")
        });
    }
}
