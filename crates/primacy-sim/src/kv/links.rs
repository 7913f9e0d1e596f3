//! Connections between nodes. Messages keep their order, and are lost only together with the connection.

use std::collections::BTreeMap;

use primacy_kv::group::Message;

use super::tally::{Fault, Promise};
use super::{Happening, World};

/// One way of a pair's connection.
#[derive(Debug, Default)]
pub(super) struct Way {
    /// Nothing is sent before this by the connection that is open.
    last_arrival: u64,
    /// Messages are held up.
    pub(super) is_cut: bool,
    held: Vec<(u64, u64, u16, Vec<u8>)>,
    /// Counts the connections of this direction alone: what was sent by another one is lost.
    era: u64,
    /// That of this direction is broken and not made anew: what is sent is lost, whenever it would come.
    is_broken: bool,
    /// The sender's end: by which connection it sends. `None`: it knows of none.
    end: Option<u64>,
}

/// All connections.
#[derive(Debug, Default)]
pub(super) struct Links {
    ways: BTreeMap<(usize, usize), Way>,
    /// The connection of each pair, the smaller node first, and whether it is open.
    pairs: BTreeMap<(usize, usize), (u64, bool)>,
}

fn pair(one: usize, other: usize) -> (usize, usize) {
    (one.min(other), one.max(other))
}

impl Links {
    pub(super) fn way(&mut self, from: usize, to: usize) -> &mut Way {
        self.ways.entry((from, to)).or_default()
    }

    /// The connection of this pair if it is open.
    pub(super) fn open(&self, one: usize, other: usize) -> Option<u64> {
        self.pairs.get(&pair(one, other)).filter(|(_, is_open)| *is_open).map(|(epoch, _)| *epoch)
    }
}

impl World {
    fn latency(&mut self) -> u64 {
        let (least, most) = self.scenario.latency;
        let now = self.engine.now;
        let factor = if now < self.slow_until { 8 } else { 1 };
        let way = self.engine.rng.between(least, most) * factor;
        // Now and then a packet is sent again.
        if self.engine.rng.chance(10_000) { way + most * 4 } else { way }
    }

    pub(super) fn send(&mut self, from: usize, to: usize, group: u16, message: &Message) {
        let mut bytes = Vec::new();
        message.encode(&mut bytes);
        self.ledgers[usize::from(group)].sent += bytes.len() as u64;
        if Message::decode(&bytes).as_ref() != Ok(message) {
            self.violate(Promise::Codec, || format!("{message:?} is read back as another message"));
        }
        let latency = self.latency();
        let is_late =
            message.is_bulk() && self.scenario.faults.contains(&Fault::Overtaken) && self.engine.rng.chance(300_000);
        let (now, lease) = (self.engine.now, self.scenario.lease);
        let way = self.links.way(from, to);
        let Some(epoch) = way.end else { return };
        let era = way.era;
        if way.is_broken {
            return;
        }
        if way.is_cut {
            way.held.push((epoch, era, group, bytes));
            return;
        }
        let at = way.last_arrival.max(now + latency);
        if is_late {
            self.tally.fault(Fault::Overtaken);
            let at = at + self.engine.rng.below(lease / 20);
            return self.engine.at(at, Happening::Arrive { from, to, epoch, era, group, bytes });
        }
        self.links.way(from, to).last_arrival = at;
        self.engine.at(at, Happening::Arrive { from, to, epoch, era, group, bytes });
    }

    pub(super) fn arrive(&mut self, (from, to): (usize, usize), (epoch, era): (u64, u64), group: u16, bytes: &[u8]) {
        let is_lost = self.links.way(from, to).era != era;
        if is_lost || self.links.open(from, to) != Some(epoch) || self.links.way(to, from).end != Some(epoch) {
            return;
        }
        let Ok(message) = Message::decode(bytes) else { return };
        let id = self.nodes[from].id;
        self.note(Some(to), || format!("group {group}: n{from} tells {message:?}"));
        self.input(to, group, |replica, now| replica.group.receive(id, message, now));
    }

    /// Breaks the connection of a pair, if there is one. Both are told after a while, and make another one.
    pub(super) fn disconnect(&mut self, one: usize, other: usize) {
        let Some(epoch) = self.links.open(one, other) else { return };
        self.links.pairs.insert(pair(one, other), (epoch, false));
        self.note(None, || format!("connection {epoch} of n{one} and n{other} breaks"));
        let lease = self.scenario.lease;
        for (node, peer) in [(one, other), (other, one)] {
            self.links.way(node, peer).held.clear();
            let after = self.engine.rng.spread(1_000, lease / 10);
            self.engine.after(after, Happening::Disconnected { node, peer, epoch });
        }
        let after = self.engine.rng.spread(1_000, lease / 5);
        self.engine.after(after, Happening::Connect { one, other });
    }

    /// The connection of one direction breaks and is made anew. What is under way in the other one comes.
    pub(super) fn break_one_way(&mut self, from: usize, to: usize) {
        let Some(epoch) = self.links.open(from, to) else { return };
        self.tally.fault(Fault::BrokenOneWay);
        let way = self.links.way(from, to);
        (way.era, way.is_broken) = (way.era + 1, true);
        way.held.clear();
        let after = self.engine.rng.spread(1_000, self.scenario.lease / 10);
        for (node, peer) in [(from, to), (to, from)] {
            let noticed = self.engine.rng.below(after);
            self.engine.after(noticed, Happening::LostOneWay { node, peer, epoch });
        }
        self.engine.after(after, Happening::Renewal { from, to, epoch });
    }

    /// A node notices that a direction is broken. The other one is not.
    pub(super) fn lost_one_way(&mut self, node: usize, peer: usize, epoch: u64) {
        if self.links.way(node, peer).end == Some(epoch) {
            let id = self.nodes[peer].id;
            for group in 0..self.scenario.groups {
                self.input(node, group, |replica, now| replica.group.disconnected(id, now));
            }
        }
    }

    pub(super) fn renew_way(&mut self, from: usize, to: usize, epoch: u64) {
        if self.links.open(from, to) != Some(epoch) {
            return;
        }
        let first = self.latency();
        let accepted = self.engine.now + first;
        let way = self.links.way(from, to);
        (way.era, way.is_broken) = (way.era + 1, false);
        way.last_arrival = way.last_arrival.max(accepted);
        self.engine.at(accepted, Happening::Connected { node: to, peer: from, epoch });
        // Who sends knows of a new connection before it sends anything by it.
        self.engine.after(0, Happening::Connected { node: from, peer: to, epoch });
    }

    pub(super) fn disconnect_if(&mut self, one: usize, other: usize, epoch: u64) {
        if self.links.open(one, other) == Some(epoch) {
            self.tally.fault(Fault::Broken);
            self.disconnect(one, other);
        }
    }

    /// Two nodes try to connect.
    pub(super) fn connect(&mut self, one: usize, other: usize) {
        if self.links.open(one, other).is_some() || self.nodes[one].is_gone || self.nodes[other].is_gone {
            return;
        }
        let is_up = self.nodes[one].is_up() && self.nodes[other].is_up();
        let is_cut = self.links.way(one, other).is_cut || self.links.way(other, one).is_cut;
        let is_paused = self.nodes[one].is_paused || self.nodes[other].is_paused;
        if !is_up {
            // Who starts connects again.
            return;
        }
        if is_cut || is_paused {
            let after = self.scenario.lease / 20;
            return self.engine.after(after, Happening::Connect { one, other });
        }
        let epoch = self.engine.number();
        self.links.pairs.insert(pair(one, other), (epoch, true));
        let (first, second) = (self.latency(), self.latency());
        let (dialer, acceptor) = if self.engine.rng.chance(500_000) { (one, other) } else { (other, one) };
        let accepted = self.engine.now + first;
        let known = accepted + if self.engine.rng.chance(500_000) { second } else { 0 };
        // One who has dialed may send before the other one knows; that comes behind the acceptance.
        for (from, to, since) in [(dialer, acceptor, accepted), (acceptor, dialer, known)] {
            let way = self.links.way(from, to);
            (way.last_arrival, way.is_broken) = (since, false);
        }
        self.engine.at(accepted, Happening::Connected { node: acceptor, peer: dialer, epoch });
        self.engine.at(known, Happening::Connected { node: dialer, peer: acceptor, epoch });
    }

    pub(super) fn connected(&mut self, node: usize, peer: usize, epoch: u64) {
        if self.links.open(node, peer) != Some(epoch) {
            return;
        }
        self.links.way(node, peer).end = Some(epoch);
        let id = self.nodes[peer].id;
        self.note(Some(node), || format!("is connected to n{peer} by {epoch}"));
        for group in 0..self.scenario.groups {
            self.input(node, group, |replica, now| replica.group.connected(id, now));
        }
    }

    pub(super) fn disconnected(&mut self, node: usize, peer: usize, epoch: u64) {
        if self.links.way(node, peer).end != Some(epoch) {
            return;
        }
        self.links.way(node, peer).end = None;
        let id = self.nodes[peer].id;
        self.note(Some(node), || format!("hears nothing of n{peer} any more"));
        for group in 0..self.scenario.groups {
            self.input(node, group, |replica, now| replica.group.disconnected(id, now));
        }
    }

    /// All of a node's connections end with its process.
    pub(super) fn disconnect_all(&mut self, node: usize) {
        for other in 0..self.nodes.len() {
            if other != node {
                self.disconnect(node, other);
                self.links.way(node, other).end = None;
            }
        }
    }

    pub(super) fn connect_all(&mut self, node: usize) {
        for other in 0..self.nodes.len() {
            if other != node {
                let after = self.engine.rng.spread(1_000, self.scenario.lease / 10);
                self.engine.after(after, Happening::Connect { one: node, other });
            }
        }
    }

    /// Messages of one direction are held up for a while. Mostly somebody notices, and gives the connection up.
    pub(super) fn cut(&mut self, from: usize, to: usize, span: u64) {
        self.links.way(from, to).is_cut = true;
        self.engine.after(span, Happening::Uncut { from, to });
        if let Some(epoch) = self.links.open(from, to)
            && self.engine.rng.chance(700_000)
        {
            let after = self.engine.rng.below(span);
            self.engine.after(after, Happening::Break { one: from, other: to, epoch });
        }
    }

    pub(super) fn uncut(&mut self, from: usize, to: usize) {
        let now = self.engine.now;
        let way = self.links.way(from, to);
        way.is_cut = false;
        way.last_arrival = way.last_arrival.max(now);
        let at = way.last_arrival;
        for (epoch, era, group, bytes) in std::mem::take(&mut way.held) {
            self.engine.at(at, Happening::Arrive { from, to, epoch, era, group, bytes });
        }
    }
}
