//! One peer: a thread that feeds a machine and its seat with time and messages, and does what they want.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::fs::File;
use std::io::Read as _;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::FileExt as _;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use anyhow::Result;
use primacy_core::Instant;
use primacy_core::contest::{Contest, Context, Effect, Event, PeerId};
use primacy_core::quorum::Durable;

use super::grant::Grant;
use super::journal::{Journal, What};
use super::links::{Clock, Inbound, Links};
use super::network::Network;
use super::seat::{Belief, Kind, Out, Seat};
use super::wire::{Frame, Wire};
use primacy_bench::Entropy;

/// What the driver needs of a machine beside its part in the contest.
pub(super) trait Machine: Contest<Message: Wire> + Send + 'static {
    /// Whether its nominee asks for the grant, or leads by its own belief.
    const IS_GRANTED: bool;

    /// What it keeps on disk.
    type Durable: Clone + Default + Debug + PartialEq + Send + 'static;

    fn kept(&self) -> Self::Durable;

    /// How many rounds it has begun, if that is another thing than nominating itself.
    fn launched(&self) -> Option<u32> {
        None
    }

    /// The round that it is in, if it counts them.
    fn round(&self) -> u64 {
        0
    }
}

/// What is on a peer's disk.
#[derive(Clone, Debug, Default)]
pub(super) struct Disk<K> {
    pub(super) machine: K,
    pub(super) voter: Durable,
}

/// What a peer is started with.
pub(super) struct Start {
    pub(super) me: PeerId,
    pub(super) peers: BTreeSet<PeerId>,
    pub(super) listener: TcpListener,
    pub(super) running: Vec<SocketAddr>,
    pub(super) network: Arc<Network>,
    pub(super) journal: Arc<Journal>,
    pub(super) clock: Clock,
    /// Whatever comes here makes the peer fall silent: it neither reads nor writes any more. It ends when this is closed.
    pub(super) control: UnixStream,
    /// Where what is kept is written to, and flushed.
    pub(super) file: File,
    pub(super) seed: u64,
}

pub(super) struct Peer<M: Machine> {
    me: PeerId,
    machine: M,
    seat: Seat,
    links: Links,
    journal: Arc<Journal>,
    clock: Clock,
    control: UnixStream,
    file: File,
    kept: M::Durable,
    entropy: Entropy,
    launched: u32,
    reached: BTreeSet<PeerId>,
    /// Those of them that the machine takes for dead.
    suspected: BTreeSet<PeerId>,
}

impl<M: Machine> Peer<M> {
    /// Connects it with those that run.
    ///
    /// # Errors
    /// If one cannot be reached.
    pub(super) fn new(start: Start, machine: M, voter: Durable) -> Result<Self> {
        let Start { me, peers, listener, running, network, journal, clock, control, file, seed } = start;
        let mut entropy = Entropy(seed);
        let now = clock.now();
        let links = Links::connect(me, listener, &running, Arc::clone(&network), entropy.next())?;
        let seat = if M::IS_GRANTED {
            let id = u128::from(entropy.next()) << 64 | u128::from(entropy.next());
            Seat::Grant(Box::new(Grant::new(me, &peers, voter, id, &network, now)?))
        } else {
            let others = peers.into_iter().filter(|peer| *peer != me).collect();
            let notice = entropy.between(network.notice);
            Seat::Belief(Belief::new(me, others, network, now + notice))
        };
        let kept = machine.kept();
        Ok(Self {
            me,
            machine,
            seat,
            links,
            journal,
            clock,
            control,
            file,
            kept,
            entropy,
            launched: 0,
            reached: BTreeSet::new(),
            suspected: BTreeSet::new(),
        })
    }

    /// Runs until it is killed, and gives what is on its disk.
    ///
    /// # Errors
    /// When the system fails.
    pub(super) fn run(mut self) -> Result<Disk<M::Durable>> {
        loop {
            let now = self.clock.now();
            let wake = Instant::earliest(self.machine.deadline(), self.seat.deadline(now));
            if self.links.wait(&self.control, wake, self.clock)? {
                self.stop()?;
                let voter = match &self.seat {
                    Seat::Grant(grant) => grant.durable().clone(),
                    Seat::Belief(_) => Durable::default(),
                };
                return Ok(Disk { machine: self.kept, voter });
            }
            let now = self.clock.now();
            while let Some((from, inbound)) = self.links.next(now) {
                self.arrived(from, inbound, now);
            }
            if self.machine.deadline().is_some_and(|deadline| deadline <= now) {
                self.tell(Event::Wake, now);
            }
            let mut out = Vec::new();
            self.seat.tick(now, &mut out);
            self.carry_out(out, now);
            self.persist()?;
            self.links.flush(self.clock.now());
        }
    }

    /// Falls silent, and waits for its end.
    fn stop(&mut self) -> Result<()> {
        self.note(self.clock.now(), What::Stopped);
        self.control.read_to_end(&mut Vec::new())?;
        Ok(())
    }

    /// What is kept is on disk before anything is sent that comes with it.
    fn persist(&mut self) -> Result<()> {
        let (kept, must_flush) = (self.machine.kept(), self.seat.take_must_flush());
        if kept != self.kept || must_flush {
            self.kept = kept;
            let voter = match &self.seat {
                Seat::Grant(grant) => Some(grant.durable()),
                Seat::Belief(_) => None,
            };
            self.file.write_all_at(format!("{:?} {voter:?}", self.kept).as_bytes(), 0)?;
            self.file.sync_data()?;
        }
        Ok(())
    }

    fn arrived(&mut self, from: PeerId, inbound: Inbound, now: Instant) {
        if matches!(inbound, Inbound::Frame(_)) && self.suspected.remove(&from) {
            self.tell(Event::Up(from), now);
        }
        let mut out = Vec::new();
        match inbound {
            Inbound::Up => {
                self.suspected.remove(&from);
                self.reached.insert(from);
                self.note(now, What::Reaches(self.reached.len()));
                self.tell(Event::Up(from), now);
            }
            Inbound::Down => {
                self.reached.remove(&from);
                self.note(now, What::Reaches(self.reached.len()));
                self.tell(Event::Down(from), now);
                self.seat.gone(from, now, &mut out);
            }
            Inbound::Frame(frame) => match *frame {
                Frame::Contest { message } => {
                    if let Some(message) = M::Message::read(&message) {
                        self.tell(Event::Heard { from, message }, now);
                    }
                }
                frame => self.seat.heard(from, frame, now, &mut out),
            },
        }
        self.carry_out(out, now);
    }

    fn tell(&mut self, event: Event<M::Message>, now: Instant) {
        let mut events = vec![event];
        while let Some(event) = events.pop() {
            let (mut effects, entropy) = (Vec::new(), &mut self.entropy);
            let mut cx = Context { now, entropy: &mut || entropy.next(), effects: &mut effects };
            self.machine.handle(event, &mut cx);
            let launched = self.machine.launched().unwrap_or_default();
            if launched > self.launched {
                self.launched = launched;
                self.note(now, What::Launched(self.machine.round()));
            }
            for effect in effects {
                match effect {
                    Effect::Send { to, message } if to == self.me => events.push(Event::Heard { from: to, message }),
                    Effect::Send { to, message } => {
                        self.send(to, &Frame::Contest { message: message.bytes() }, Kind::Contest, now);
                    }
                    Effect::Nominate(nominee) => {
                        if nominee == self.me {
                            self.note(now, What::Stands);
                        }
                        let mut out = Vec::new();
                        self.seat.nominated(self.me, nominee, now, &mut out);
                        self.carry_out(out, now);
                    }
                }
            }
        }
    }

    fn send(&mut self, to: PeerId, frame: &Frame, kind: Kind, now: Instant) {
        self.note(now, What::Sent(kind));
        self.links.send(to, frame);
    }

    fn carry_out(&mut self, out: Vec<Out>, now: Instant) {
        for out in out {
            match out {
                Out::Send { to, frame, kind } => {
                    let is_question = matches!(*frame, Frame::Ask { .. });
                    self.send(to, &frame, kind, now);
                    if is_question && !self.links.is_open(to) {
                        let mut out = Vec::new();
                        self.seat.gone(to, now, &mut out);
                        self.carry_out(out, now);
                    }
                }
                Out::Vacant(leader) => {
                    self.note(now, What::Vacant);
                    // The last leader is not heard any more: it has let its lease run out, or does not send heartbeats.
                    if let Some(leader) = leader.filter(|leader| *leader != self.me) {
                        self.suspected.insert(leader);
                        self.tell(Event::Down(leader), now);
                    }
                    self.tell(Event::Vacant, now);
                }
                Out::Leads => {
                    self.note(now, What::Leads);
                    if M::IS_GRANTED {
                        self.tell(Event::Led(self.me), now);
                    }
                }
                Out::Led(leader) => {
                    self.note(now, What::Follows(leader));
                    self.tell(Event::Led(leader), now);
                }
                Out::Believes(leader) => self.note(now, What::Follows(leader)),
                Out::Until(until) => self.note(now, What::Believes(until)),
                Out::Lost => self.note(now, What::Lost),
                Out::Refused => self.tell(Event::Refused(self.me), now),
                Out::Renewed => self.note(now, What::Renewed),
            }
        }
    }

    fn note(&self, now: Instant, what: What) {
        self.journal.note(now, self.me, what);
    }
}
