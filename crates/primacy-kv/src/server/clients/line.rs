//! What a connection shares with the requests that it has under way: where their answers come to, and in what order they go out.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::rc::Rc;
use std::task::Waker;

use super::statistics::{Statistics, add};
use crate::resp::{Protocol, Reply};

/// How many bytes of replies may wait before no further command is begun.
const UNSENT_MAX: usize = 1 << 20;
/// How many bytes the replies to what is under way may have, as far as the replies before tell.
const EXPECTED_MAX: usize = 8 << 20;
/// How many commands of a connection are under way at most.
const WINDOW: usize = 1024;
/// A buffer that is empty keeps no more memory than this.
const KEPT_MAX: usize = 16 << 10;

/// Where and what the two ends are.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ends {
    pub(super) peer: SocketAddr,
    pub(super) local: SocketAddr,
}

/// What a client says about itself.
#[derive(Debug, Clone, Default)]
pub(super) struct Description {
    pub(super) name: Box<[u8]>,
    pub(super) library: Box<[u8]>,
    pub(super) library_version: Box<[u8]>,
}

/// One connection, as others see it.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) id: u64,
    pub(super) ends: Ends,
    pub(super) description: RefCell<Description>,
    /// Whether the client has said who it is, or need not.
    pub(super) is_known: Cell<bool>,
    /// How many commands wait for `EXEC`, if there was a `MULTI`.
    pub(super) queued: Cell<Option<usize>>,
    /// How many bytes of requests wait.
    pub(super) unread: Cell<usize>,
    /// When it began.
    pub(super) since: u64,
    /// When the client has last said something.
    pub(super) heard: Cell<u64>,
    /// When it has last taken something, or nothing waited for it.
    taken: Cell<u64>,
    is_ended: Cell<bool>,
    /// It ends when its replies are sent.
    is_condemned: Cell<bool>,
    bounds: Bounds,
    statistics: Rc<Statistics>,
    outbox: RefCell<Outbox>,
}

/// How much may wait for a client.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds {
    /// How many bytes of replies. One more, and the client is cut off.
    output: usize,
    /// How many commands are under way whose replies have values in them. Even if all these are as long as can be, a client
    /// that reads is not cut off.
    large: usize,
}

impl Bounds {
    pub(super) fn new(output: usize, value: usize) -> Self {
        Self { output, large: (output.saturating_sub(UNSENT_MAX) / value.max(1)).clamp(1, WINDOW) }
    }
}

/// What kind of command is begun.
#[derive(Debug, Clone, Copy)]
pub(super) struct Load {
    /// Whether it has to be logged.
    pub(super) is_write: bool,
    /// Whether there may be values in its reply.
    pub(super) is_large: bool,
}

/// Replies in the order of the requests, and what is not answered yet.
#[derive(Debug)]
struct Outbox {
    protocol: Protocol,
    unsent: Vec<u8>,
    /// How much of it is sent already.
    sent: usize,
    /// The number of the first command that waits for its answer.
    first: u64,
    /// From that one on: answers that have come before their turn, and gaps.
    waiting: VecDeque<Option<Reply>>,
    /// How many bytes these answers have.
    held: usize,
    under_way: usize,
    /// How many of these may be answered with values.
    large: usize,
    /// How many reads are under way in each group; for writes, a negative number.
    loads: Vec<i32>,
    /// Nothing may be begun until all that is under way is answered.
    is_alone: bool,
    /// The largest reply of late.
    largest: usize,
    waker: Option<Waker>,
    /// Whether the connection's task will look here again anyway.
    is_woken: bool,
}

impl Line {
    pub(super) fn new(id: u64, ends: Ends, is_known: bool, bounds: Bounds, statistics: Rc<Statistics>) -> Self {
        let now = statistics.seconds();
        Self {
            id,
            ends,
            description: RefCell::default(),
            is_known: Cell::new(is_known),
            queued: Cell::new(None),
            unread: Cell::new(0),
            since: now,
            heard: Cell::new(now),
            taken: Cell::new(now),
            is_ended: Cell::new(false),
            is_condemned: Cell::new(false),
            bounds,
            statistics,
            outbox: RefCell::new(Outbox {
                protocol: Protocol::V2,
                unsent: Vec::new(),
                sent: 0,
                first: 0,
                waiting: VecDeque::new(),
                held: 0,
                under_way: 0,
                large: 0,
                loads: Vec::new(),
                is_alone: false,
                largest: 0,
                waker: None,
                is_woken: false,
            }),
        }
    }

    pub(super) fn protocol(&self) -> Protocol {
        self.outbox.borrow().protocol
    }

    pub(super) fn set_protocol(&self, protocol: Protocol) {
        self.outbox.borrow_mut().protocol = protocol;
    }

    /// Ends the connection at once, whatever is under way.
    pub(super) fn end(&self) {
        self.is_ended.set(true);
        let mut outbox = self.outbox.borrow_mut();
        outbox.forget();
        outbox.wake();
    }

    pub(super) fn is_ended(&self) -> bool {
        self.is_ended.get()
    }

    /// Ends the connection when its replies are sent.
    pub(super) fn condemn(&self) {
        self.is_condemned.set(true);
    }

    pub(super) fn is_condemned(&self) -> bool {
        self.is_condemned.get()
    }

    /// Lets the connection's task look around.
    pub(super) fn wake(&self) {
        self.outbox.borrow_mut().wake();
    }

    /// The connection's task looks around from now on, until [`Line::sleep`].
    pub(super) fn look(&self, waker: &Waker) {
        let mut outbox = self.outbox.borrow_mut();
        outbox.is_woken = true;
        if !outbox.waker.as_ref().is_some_and(|known| known.will_wake(waker)) {
            outbox.waker = Some(waker.clone());
        }
    }

    /// The connection's task waits to be woken.
    pub(super) fn sleep(&self) {
        self.outbox.borrow_mut().is_woken = false;
    }

    /// Whether another command may be begun, as far as replies are concerned.
    pub(super) fn has_room(&self) -> bool {
        let outbox = self.outbox.borrow();
        let expected = outbox.under_way.saturating_mul(outbox.largest);
        outbox.unsent() < UNSENT_MAX && outbox.under_way < WINDOW && expected < EXPECTED_MAX
    }

    /// How many bytes of replies wait.
    pub(super) fn unsent(&self) -> usize {
        self.outbox.borrow().unsent()
    }

    /// Whether nothing is under way.
    pub(super) fn is_idle(&self) -> bool {
        self.outbox.borrow().under_way == 0
    }

    /// Whether a command of this kind may be begun in a group: nothing of the other kind is under way there, and there are not too
    /// many.
    pub(super) fn may_begin(&self, group: u16, load: Load) -> bool {
        let outbox = self.outbox.borrow();
        let present = outbox.loads.get(usize::from(group)).copied().unwrap_or(0);
        let fits = !load.is_large || outbox.large < self.bounds.large;
        fits && !outbox.is_alone && if load.is_write { present <= 0 } else { present >= 0 }
    }

    /// Answers the newest command.
    pub(super) fn reply(&self, reply: Reply) {
        let number = {
            let mut outbox = self.outbox.borrow_mut();
            outbox.under_way += 1;
            outbox.next()
        };
        self.complete(number, reply);
    }

    /// Begins a command in one group.
    pub(super) fn begin(self: &Rc<Self>, group: u16, load: Load) -> Ticket {
        let mut outbox = self.outbox.borrow_mut();
        outbox.under_way += 1;
        outbox.large += usize::from(load.is_large);
        outbox.load(group, load.is_write, 1);
        Ticket { line: Some(Rc::clone(self)), number: outbox.next(), group, load }
    }

    /// Begins a command in several groups.
    pub(super) fn begin_in(self: &Rc<Self>, groups: Vec<u16>, load: Load) -> Reservation {
        let mut outbox = self.outbox.borrow_mut();
        outbox.under_way += 1;
        outbox.large += usize::from(load.is_large);
        groups.iter().for_each(|group| outbox.load(*group, load.is_write, 1));
        Reservation { line: Rc::clone(self), number: outbox.next(), groups, load }
    }

    /// Begins a command beside which nothing else is begun. Nothing is under way.
    pub(super) fn begin_alone(self: &Rc<Self>) -> Reservation {
        let reservation = self.begin_in(Vec::new(), Load { is_write: false, is_large: true });
        self.outbox.borrow_mut().is_alone = true;
        reservation
    }

    fn complete(&self, number: u64, reply: Reply) {
        if self.is_ended() {
            return;
        }
        let mut outbox = self.outbox.borrow_mut();
        if outbox.unsent() == 0 {
            self.taken.set(self.statistics.seconds());
        }
        outbox.put(number, reply);
        if outbox.unsent() > self.bounds.output {
            drop(outbox);
            add(&self.statistics.cut_off, 1);
            tracing::warn!(peer = %self.ends.peer, "cut off: more replies wait for it than are allowed");
            return self.end();
        }
        outbox.wake();
    }

    /// Sends what is to be sent: `send` takes some bytes and says how many. Returns whether all is sent.
    pub(super) fn send<E>(&self, mut send: impl FnMut(&[u8]) -> Result<Option<usize>, E>) -> Result<bool, E> {
        let mut outbox = self.outbox.borrow_mut();
        while outbox.sent < outbox.unsent.len() {
            let from = outbox.sent;
            let Some(count) = send(&outbox.unsent[from..])? else {
                outbox.compact();
                return Ok(false);
            };
            outbox.sent += count;
            self.taken.set(self.statistics.seconds());
            add(&self.statistics.sent, count);
        }
        outbox.compact();
        Ok(true)
    }

    /// For how many seconds replies have waited for a client that takes nothing.
    pub(super) fn stalled(&self) -> u64 {
        let waits = self.outbox.borrow().sent < self.outbox.borrow().unsent.len();
        if waits { self.statistics.seconds().saturating_sub(self.taken.get()) } else { 0 }
    }
}

impl Outbox {
    fn unsent(&self) -> usize {
        self.unsent.len() - self.sent + self.held
    }

    /// The number of the newest command.
    fn next(&mut self) -> u64 {
        self.waiting.push_back(None);
        self.first + self.waiting.len() as u64 - 1
    }

    fn load(&mut self, group: u16, is_write: bool, more: i32) {
        let group = usize::from(group);
        if self.loads.len() <= group {
            self.loads.resize(group + 1, 0);
        }
        self.loads[group] += if is_write { -more } else { more };
    }

    fn unload(&mut self, groups: &[u16], load: Load) {
        self.large = self.large.saturating_sub(usize::from(load.is_large));
        groups.iter().for_each(|group| self.load(*group, load.is_write, -1));
    }

    fn put(&mut self, number: u64, reply: Reply) {
        self.under_way = self.under_way.saturating_sub(1);
        self.is_alone &= self.under_way > 0;
        let Some(at) = number.checked_sub(self.first).and_then(|at| usize::try_from(at).ok()) else { return };
        if at > 0 {
            self.held += reply.size();
            if let Some(place) = self.waiting.get_mut(at) {
                *place = Some(reply);
            }
            return;
        }
        self.waiting.pop_front();
        self.first += 1;
        self.encode(&reply);
        while let Some(Some(reply)) = self.waiting.front_mut().map(Option::take) {
            self.waiting.pop_front();
            self.first += 1;
            self.held = self.held.saturating_sub(reply.size());
            self.encode(&reply);
        }
    }

    fn encode(&mut self, reply: &Reply) {
        let before = self.unsent.len();
        reply.encode(self.protocol, &mut self.unsent);
        self.largest = (self.unsent.len() - before).max(self.largest - self.largest / 16);
    }

    /// Gives back what is sent.
    fn compact(&mut self) {
        if self.sent == self.unsent.len() {
            self.unsent.clear();
            self.unsent.shrink_to(KEPT_MAX);
            self.sent = 0;
        } else if self.sent >= self.unsent.len() / 2 && self.sent >= KEPT_MAX {
            // No byte is moved more often than others have been sent.
            self.unsent.drain(..self.sent);
            self.sent = 0;
        }
    }

    /// Nothing more is sent.
    fn forget(&mut self) {
        self.unsent = Vec::new();
        self.waiting = VecDeque::new();
        (self.sent, self.held, self.under_way, self.large) = (0, 0, 0, 0);
    }

    fn wake(&mut self) {
        if !self.is_woken
            && let Some(waker) = &self.waker
        {
            self.is_woken = true;
            waker.wake_by_ref();
        }
    }
}

/// The place of the answer to a command in one group.
#[derive(Debug)]
pub(super) struct Ticket {
    /// None once it is answered.
    line: Option<Rc<Line>>,
    number: u64,
    pub(super) group: u16,
    pub(super) load: Load,
}

impl Ticket {
    /// Answers, once.
    pub(super) fn finish(&mut self, reply: impl FnOnce(&Statistics) -> Reply) {
        let Some(line) = self.line.take() else { return };
        let reply = reply(&line.statistics);
        line.outbox.borrow_mut().unload(&[self.group], self.load);
        line.complete(self.number, reply);
    }
}

/// The place of the answer to a command in several groups, or in none.
#[derive(Debug)]
pub(super) struct Reservation {
    line: Rc<Line>,
    number: u64,
    groups: Vec<u16>,
    load: Load,
}

impl Reservation {
    /// Answers.
    pub(super) fn answer(self, reply: Reply) {
        self.line.outbox.borrow_mut().unload(&self.groups, self.load);
        self.line.complete(self.number, reply);
    }
}
