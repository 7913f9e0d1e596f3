//! The ring election as Altuntas et al. 2022 print it.

use std::collections::BTreeSet;
use std::time::Duration;

use primacy_core::Instant;
use primacy_core::contest::ring::Circle;
use primacy_core::contest::{Contest, Context, Effect, Event, PeerId};

/// How long the paper waits for the leader's reply before it starts an election, and the period of its heartbeats.
pub const HEARTBEAT: Duration = Duration::from_millis(700);

/// What peers tell each other in the published form. Nothing in it says to which election it belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Word {
    /// A new server looks for the leader, or for somebody who knows it.
    Seek,
    /// That one leads.
    Found(PeerId),
    /// A heartbeat to the leader.
    Ask,
    /// The leader's reply.
    Reply,
    /// The greatest id so far.
    Election(PeerId),
    /// That one has won.
    Elected(PeerId),
    /// The election is over.
    Unblock,
}

/// One server of Altuntas et al. 2022: Chang and Roberts' election, the paper's block, heartbeats and start. What it names by
/// [`Effect::Nominate`] is what the paper calls the leader ("ECS"): nobody asks for a grant.
///
/// What the paper leaves open, and how it is read here:
///
/// - **Who blocks what.** From ELECTED until the winner's word, a server drops ELECTION messages that come. ELECTED is
///   always recorded and passed on, and a server may always start.
/// - **Again.** A server that has started and still gets no reply starts again with the next heartbeat. Otherwise one lost
///   message would be the end.
/// - **The skip.** The paper passes over an old leader that is gone, and excludes all other failures. Here every peer that
///   the transport suspects ([`Event::Down`]) is passed over, until [`Event::Up`].
/// - **Two-sided heartbeats.** Servers ask, the leader replies: this starts elections, and is here. The leader's own watch
///   over the servers keeps the ring: that is `Down` and `Up`.
/// - **Start.** The addresses are all tried at once, and answers are awaited for one heartbeat. A peer that knows a
///   leader answers.
/// - **Beside the paper.** [`Event::Vacant`] starts an election as a missed heartbeat does, [`Event::Led`] tells a server of a
///   leader, and [`Event::Refused`] means nothing.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Published {
    me: PeerId,
    circle: Circle,
    heartbeat: Duration,
    down: BTreeSet<PeerId>,
    leader: Option<PeerId>,
    is_participant: bool,
    is_blocked: bool,
    next: Next,
}

/// What happens at the deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Next {
    Nothing,
    Seek(Instant),
    DeclareItself(Instant),
    Beat { at: Instant, was_answered: bool },
}

impl Published {
    /// A server with a place in a ring that exists, which knows of no leader.
    pub fn member(me: PeerId, circle: Circle, heartbeat: Duration) -> Self {
        Self {
            me,
            circle,
            heartbeat,
            down: BTreeSet::new(),
            leader: None,
            is_participant: false,
            is_blocked: false,
            next: Next::Nothing,
        }
    }

    /// A server that starts at that time: it looks for the leader at the addresses of the ring, and if nobody answers it leads.
    pub fn starting(me: PeerId, circle: Circle, heartbeat: Duration, now: Instant) -> Self {
        Self { next: Next::Seek(now), ..Self::member(me, circle, heartbeat) }
    }

    /// Whether it drops all ELECTION messages, since an election has ended and the winner has not said that it is over.
    pub fn is_blocked(&self) -> bool {
        self.is_blocked
    }

    /// To the successor: the next one that is not suspected. Alone, it is its own.
    fn pass(&self, message: Word, cx: &mut Context<'_, Word>) {
        let to = self.circle.after(self.me).find(|peer| !self.down.contains(peer)).unwrap_or(self.me);
        cx.effects.push(Effect::Send { to, message });
    }

    fn tell_all(&self, message: Word, cx: &mut Context<'_, Word>) {
        cx.effects.extend(self.circle.after(self.me).map(|to| Effect::Send { to, message }));
    }

    /// Steps 2 and 3.
    fn start(&mut self, cx: &mut Context<'_, Word>) {
        self.is_participant = true;
        self.pass(Word::Election(self.me), cx);
    }

    fn record(&mut self, leader: PeerId, cx: &mut Context<'_, Word>) {
        self.leader = Some(leader);
        // Heartbeats begin, or go on; that the old leader did not reply is over.
        let at = if let Next::Beat { at, .. } = self.next { at } else { cx.now + self.heartbeat };
        self.next = Next::Beat { at, was_answered: true };
        cx.effects.push(Effect::Nominate(leader));
    }

    /// Step 4.
    fn election(&mut self, id: PeerId, cx: &mut Context<'_, Word>) {
        if self.is_blocked {
            return;
        }
        if id == self.me {
            self.record(self.me, cx);
            self.is_participant = false;
            self.pass(Word::Elected(self.me), cx);
        } else if id > self.me {
            self.is_participant = true;
            self.pass(Word::Election(id), cx);
        } else if !self.is_participant {
            self.start(cx);
        }
    }

    /// The second stage.
    fn elected(&mut self, id: PeerId, cx: &mut Context<'_, Word>) {
        if id == self.me {
            self.tell_all(Word::Unblock, cx);
            return;
        }
        self.is_participant = false;
        self.is_blocked = true;
        self.record(id, cx);
        self.pass(Word::Elected(id), cx);
    }

    fn heard(&mut self, from: PeerId, word: Word, cx: &mut Context<'_, Word>) {
        match word {
            Word::Seek => {
                let found = self.leader.map(|leader| Effect::Send { to: from, message: Word::Found(leader) });
                cx.effects.extend(found);
            }
            Word::Found(leader) => {
                if matches!(self.next, Next::DeclareItself(_)) {
                    self.record(leader, cx);
                }
            }
            Word::Ask => {
                if self.leader == Some(self.me) {
                    cx.effects.push(Effect::Send { to: from, message: Word::Reply });
                }
            }
            Word::Reply => {
                if let Next::Beat { was_answered, .. } = &mut self.next
                    && self.leader == Some(from)
                {
                    *was_answered = true;
                }
            }
            Word::Election(id) => self.election(id, cx),
            Word::Elected(id) => self.elected(id, cx),
            Word::Unblock => self.is_blocked = false,
        }
    }

    fn wake(&mut self, cx: &mut Context<'_, Word>) {
        if self.deadline().is_none_or(|at| cx.now < at) {
            return;
        }
        match self.next {
            Next::Nothing => {}
            Next::Seek(_) => {
                self.tell_all(Word::Seek, cx);
                self.next = Next::DeclareItself(cx.now + self.heartbeat);
            }
            Next::DeclareItself(_) => self.record(self.me, cx),
            Next::Beat { was_answered, .. } => {
                let leader = self.leader.filter(|leader| *leader != self.me);
                self.next = Next::Beat { at: cx.now + self.heartbeat, was_answered: leader.is_none() };
                if !was_answered {
                    self.start(cx);
                }
                cx.effects.extend(leader.map(|to| Effect::Send { to, message: Word::Ask }));
            }
        }
    }
}

impl Contest for Published {
    type Message = Word;

    fn handle(&mut self, event: Event<Word>, cx: &mut Context<'_, Word>) {
        match event {
            Event::Wake => self.wake(cx),
            Event::Heard { from, message } => self.heard(from, message, cx),
            Event::Up(peer) => {
                self.down.remove(&peer);
            }
            Event::Down(peer) => {
                self.down.insert(peer);
            }
            Event::Led(leader) => {
                if self.leader != Some(leader) {
                    self.leader = Some(leader);
                    self.next = Next::Beat { at: cx.now, was_answered: true };
                }
            }
            Event::Vacant => self.start(cx),
            Event::Refused(_) => {}
        }
    }

    fn deadline(&self) -> Option<Instant> {
        match self.next {
            Next::Nothing => None,
            Next::Seek(at) | Next::DeclareItself(at) | Next::Beat { at, .. } => Some(at),
        }
    }
}
