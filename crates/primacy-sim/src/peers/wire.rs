//! Connections between askers and voters: frames in order, late when packets are lost, held up where the network is cut, and
//! on their way although their sender is gone.

use crate::tally::{Fault, Sometimes};
use crate::voters::PeersEvent;
use crate::voters::client::ClientEvent;
use crate::voters::tcp::Sender;
use crate::voters::wire::{Connection, Frame, Lane, Packet};
use crate::world::World;

/// A connection that takes longer to be made has failed.
const HANDSHAKE: u64 = 2_000_000_000;

impl World {
    /// Begins to make a connection.
    pub(super) fn dial(&mut self, client: u64, host: usize, voter: usize) -> u64 {
        let number = self.number();
        let Some(setting) = &self.scenario.peers else { return number };
        let (resend, selective) = (setting.rates.resend, setting.rates.selective);
        // There and back three times: the connection, its secrecy, the greeting.
        let ways: [u64; 6] = std::array::from_fn(|_| self.one_way(host, voter));
        let takes = ways.iter().map(|way| way + self.resent(host, voter)).sum();
        let lane = || Lane::new(Sender::new(resend, ways[0] + ways[1], selective));
        let (to_voter, to_client) = (lane(), lane());
        let connection =
            Connection { client, host, voter, life: None, closed: false, lingers: false, to_voter, to_client };
        self.peers.connections.insert(number, connection);
        self.after_peers(takes, PeersEvent::Dialed { connection: number, by: self.engine.now + HANDSHAKE });
        number
    }

    /// The connection is made, if the other side can answer; or it has failed, or is tried until then.
    pub(super) fn dialed(&mut self, number: u64, by: u64) {
        let now = self.engine.now;
        let Some(connection) = self.peers.connections.get_mut(number) else { return };
        let (client, host, voter) = (connection.client, connection.host, connection.voter);
        let cuts = &self.peers.cuts;
        let blocked = cuts.open_at(host, voter, now).into_iter().chain(cuts.open_at(voter, host, now)).max();
        let voter_node = &self.peers.voter_nodes[voter];
        let made = match (blocked, &voter_node.life) {
            _ if now > by => false,
            (None, Some(life)) if voter_node.stopped_until <= now => {
                connection.life = Some(life.number);
                true
            }
            // Its machine says that nobody is there.
            (None, None) if !voter_node.is_off => false,
            _ if now < by => {
                let wait = blocked.unwrap_or(voter_node.stopped_until).max(now + 50_000_000).min(by) - now;
                return self.after_peers(wait, PeersEvent::Dialed { connection: number, by });
            }
            _ => false,
        };
        if made {
            self.welcome(number, voter);
        } else {
            self.peers.connections.remove(number);
        }
        self.hear(client, ClientEvent::Dialed { connection: number, made });
    }

    /// How long one frame takes between two hosts when it is not lost.
    fn one_way(&mut self, from: usize, to: usize) -> u64 {
        if from == to { self.engine.rng.between(10_000, 50_000) } else { self.way() }
    }

    /// How much longer it takes to make a connection when packets are lost: nothing follows them.
    fn resent(&mut self, from: usize, to: usize) -> u64 {
        let Some(setting) = &self.scenario.peers else { return 0 };
        let (loss, resend) = (setting.rates.loss, setting.rates.resend);
        let (mut late, mut lost) = (0, 0);
        while from != to && lost < 6 && self.engine.rng.chance(loss) {
            self.fault(Fault::PacketLost);
            late += resend << lost;
            lost += 1;
        }
        late
    }

    /// Sends a frame over a connection.
    pub(super) fn send_frame(&mut self, number: u64, at_voter: bool, frame: Frame) {
        let Some(connection) = self.peers.connections.get(number) else { return };
        let (from, to) = connection.ends(at_voter);
        let Some(setting) = &self.scenario.peers else { return };
        let (strays, loss, doubled) = (setting.strays, setting.rates.loss, setting.rates.doubled);
        let loss = if from == to { 0 } else { loss };
        if strays && !matches!(frame, Frame::Reset) {
            let way = self.one_way(from, to);
            if self.engine.rng.chance(doubled) {
                self.fault(Fault::Doubled);
                let late = way + self.engine.rng.spread(100_000, crate::nanos(self.scenario.longest) * 2);
                let frame = Box::new(frame.clone());
                self.after_peers(late, PeersEvent::Stray { connection: number, at_voter, frame });
            }
            if self.engine.rng.chance(loss) {
                return self.fault(Fault::PacketLost);
            }
            return self.after_peers(way, PeersEvent::Stray { connection: number, at_voter, frame: Box::new(frame) });
        }
        let now = self.engine.now;
        let Some(connection) = self.peers.connections.get_mut(number) else { return };
        let back = [at_voter, !at_voter].map(|lane| (lane, connection.lane(lane).hear_late(now)));
        let lane = connection.lane(at_voter);
        lane.frames.push_back(frame);
        let segment = lane.sender.push(now);
        for (lane, again) in back {
            again.into_iter().for_each(|segment| self.transmit(number, lane, Some(segment)));
        }
        if segment.is_some() {
            self.transmit(number, at_voter, segment);
        }
    }

    /// Puts a segment on its way, or an acknowledgment alone.
    fn transmit(&mut self, number: u64, at_voter: bool, segment: Option<u64>) {
        let Some(connection) = self.peers.connections.get(number) else { return };
        let (from, to) = connection.ends(at_voter);
        let loss = self.scenario.peers.as_ref().map_or(0, |setting| setting.rates.loss);
        let way = self.one_way(from, to);
        let is_lost = from != to && self.engine.rng.chance(loss);
        let now = self.engine.now;
        let Some(connection) = self.peers.connections.get_mut(number) else { return };
        let ack = connection.lane(!at_voter).receiver.ack();
        let lane = connection.lane(at_voter);
        if is_lost {
            lane.lacks |= segment.is_some();
            self.fault(Fault::PacketLost);
            return self.watch(number, at_voter);
        }
        lane.due = (lane.due + 1).max(now + way);
        lane.packets.push_back(Packet { due: lane.due, segment, ack });
        let wait = lane.due - now;
        self.after_peers(wait, PeersEvent::Arrive { connection: number, at_voter });
    }

    /// Wakes a sender in time, if it has something to do: it has when something is missing, and looks at nothing else.
    fn watch(&mut self, number: u64, at_voter: bool) {
        let now = self.engine.now;
        let Some(connection) = self.peers.connections.get_mut(number) else { return };
        let lane = connection.lane(at_voter);
        if !lane.lacks && !lane.sender.waits() {
            return;
        }
        let Some(due) = lane.sender.due().into_iter().chain(lane.heard_late()).min() else { return };
        let due = due.max(now);
        if lane.wakes.is_none_or(|wakes| due < wakes) {
            lane.wakes = Some(due);
            self.after_peers(due - now, PeersEvent::Resend { connection: number, at_voter });
        }
    }

    /// A sender wakes.
    pub(super) fn resend(&mut self, number: u64, at_voter: bool) {
        let now = self.engine.now;
        let Some(connection) = self.peers.connections.get_mut(number) else { return };
        let lane = connection.lane(at_voter);
        if lane.wakes != Some(now) {
            return;
        }
        lane.wakes = None;
        let mut again = lane.hear_late(now);
        if (lane.lacks || lane.sender.waits()) && lane.sender.due().is_some_and(|due| due <= now) {
            again.extend(lane.sender.expire(now));
        }
        again.into_iter().for_each(|segment| self.transmit(number, at_voter, Some(segment)));
        self.watch(number, at_voter);
    }

    /// Packets that are due reach the other end, or are lost where the network is cut. Frames are handed over in the order in which
    /// they were sent.
    pub(super) fn arrive_frames(&mut self, number: u64, at_voter: bool) {
        let now = self.engine.now;
        loop {
            let Some(connection) = self.peers.connections.get_mut(number) else { return };
            let (from, to) = connection.ends(at_voter);
            let lane = connection.lane(at_voter);
            if let Some(frame) = lane.hand_over() {
                self.pass_on(number, at_voter, frame, false);
                continue;
            }
            let Some(packet) = lane.packets.pop_front_if(|packet| packet.due <= now) else {
                return self.forget_closed(number);
            };
            if self.peers.cuts.open_at(from, to, now).is_some() {
                lane.lacks |= packet.segment.is_some();
                self.watch(number, at_voter);
                continue;
            }
            let speaks = packet.segment.is_some_and(|segment| lane.receiver.take(segment, now));
            lane.lacks &= lane.receiver.next() < lane.sender.next();
            let again = connection.lane(!at_voter).sender.hear(&packet.ack, now);
            if speaks && again.is_empty() {
                self.transmit(number, !at_voter, None);
            }
            again.into_iter().for_each(|segment| self.transmit(number, !at_voter, Some(segment)));
            self.watch(number, at_voter);
            self.watch(number, !at_voter);
        }
    }

    /// A frame that keeps no order reaches the other end, or is lost where the network is cut.
    pub(super) fn arrive_stray(&mut self, number: u64, at_voter: bool, frame: Frame) {
        let Some(connection) = self.peers.connections.get(number) else { return };
        let (from, to) = connection.ends(at_voter);
        if self.peers.cuts.open_at(from, to, self.engine.now).is_none() {
            self.pass_on(number, at_voter, frame, true);
        }
    }

    fn pass_on(&mut self, number: u64, at_voter: bool, frame: Frame, strays: bool) {
        let Some(connection) = self.peers.connections.get(number) else { return };
        let (client, voter, life) = (connection.client, connection.voter, connection.life);
        let (closed, lingers) = (connection.closed, connection.lingers);
        if at_voter {
            if closed && !lingers {
                return;
            }
            if closed && matches!(frame, Frame::Ask { .. }) {
                self.saw(Sometimes::LateAsk);
            }
            self.put_to_voter(voter, life.filter(|_| !strays), number, frame);
        } else if !closed {
            match frame {
                Frame::Answer { number: asked, answer, standing } => {
                    self.hear(client, ClientEvent::Answer { connection: number, number: asked, answer, standing });
                }
                Frame::Config { number: asked, told } => {
                    self.hear(client, ClientEvent::Config { connection: number, number: asked, told });
                }
                Frame::Reset => self.hear(client, ClientEvent::Broken { connection: number }),
                Frame::Ask { .. } | Frame::ConfigRequest { .. } | Frame::Behind { .. } | Frame::Leave(_) => {}
            }
        }
    }

    /// The asker gives a connection up. What is on its way may arrive all the same.
    pub(super) fn close(&mut self, number: u64) {
        let strays = self.scenario.peers.as_ref().is_some_and(|setting| setting.strays);
        let lingers = strays || self.engine.rng.chance(500_000);
        if let Some(connection) = self.peers.connections.get_mut(number) {
            connection.closed = true;
            connection.lingers = lingers;
        }
        if !strays {
            self.forget_closed(number);
        }
    }

    fn forget_closed(&mut self, number: u64) {
        let over = |connection: &Connection| {
            connection.closed && (!connection.lingers || connection.to_voter.frames.is_empty())
        };
        let strays = self.scenario.peers.as_ref().is_some_and(|setting| setting.strays);
        if !strays && self.peers.connections.get(number).is_some_and(over) {
            self.peers.connections.remove(number);
        }
    }

    /// The voter's end of its connections is gone: all of them, or those with one host. `tells`: its machine lives, and says so.
    pub(super) fn break_connections(&mut self, voter: usize, host: Option<usize>, tells: bool) {
        let of_it = |connection: &Connection| {
            connection.voter == voter && connection.life.is_some() && host.is_none_or(|host| connection.host == host)
        };
        let broken = self.peers.connections.iter().filter(|(_, connection)| of_it(connection));
        let broken: Vec<u64> = broken.map(|(number, _)| number).collect();
        for number in broken {
            let Some(connection) = self.peers.connections.get_mut(number) else { continue };
            connection.to_voter.clear();
            connection.life = Some(0);
            if tells {
                self.send_frame(number, false, Frame::Reset);
            }
        }
    }
}
