//! What an agent owes a program that leads through it: how long a leadership is told to last, and when it may be given back.
//!
//! A *hold* is one program's request for the leadership of one election, over one connection to the agent on its host. The agent
//! has a candidate for it, and the candidate's guard of each leadership. The program believes in its leadership until the latest
//! deadline that it has read, on the clock that both share. So the agent keeps the guard until one of these:
//!
//! - the program has said that its work has stopped;
//! - it is proven that nothing works for the program any more;
//! - the latest deadline that the program was told has passed.
//!
//! A connection that has closed is none of them: a process that was forked may work on.
//! The design page on the agent has the argument.

mod flaws;
#[cfg(test)]
mod tests;

use alloc::vec::Vec;
use core::time::Duration;

use crate::lease::EndReason;
use crate::planted::Planted;
use crate::{Instant, Token};

#[cfg(not(feature = "flaws"))]
use flaws::Flaw;
#[cfg(feature = "flaws")]
pub use flaws::Flaw;

/// How long a leadership lasts unless it is extended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Span {
    /// When the work is told to stop.
    pub stop_at: Instant,
    /// Until when the program may act.
    pub deadline: Instant,
}

/// What happens to a hold.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// The place in line, or the leader that it waits for, has changed.
    Moved,
    /// The candidate leads, and the agent has its guard.
    Elected {
        /// The fencing token.
        token: Token,
        /// How long, at least.
        span: Span,
    },
    /// The lease was renewed.
    Extended(Span),
    /// The work must stop.
    Draining {
        /// Why.
        reason: EndReason,
        /// When it must have stopped.
        by: Instant,
    },
    /// The candidate believes no more.
    Ended(EndReason),
    /// The program has read everything up to the frame with this number.
    Read(u64),
    /// The program says that its work of this token has stopped.
    Stopped(Token),
    /// The connection has ended, and all that the program has sent before was handled.
    Disconnected,
    /// Nothing works for the program any more: what it has declared as its proof has come true.
    Proven,
    /// Nothing else has happened.
    Wake,
}

/// What an agent does about it, in order.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Effect {
    /// Send a frame with this number.
    Tell(u64, News),
    /// End the connection: the program does not read.
    HangUp,
    /// Withdraw the candidate. The lease of a leader is not renewed any more, and is released once its guard was dropped.
    Withdraw,
    /// Drop the guard.
    Release(Cause),
}

/// Why a guard may be dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cause {
    /// The program has said that its work has stopped.
    Stopped,
    /// All that worked is dead.
    Dead,
    /// The latest deadline that the program was told has passed.
    Passed,
    /// The program was never told that it leads.
    NeverTold,
}

/// What a frame tells the program.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum News {
    /// It waits.
    Waiting,
    /// It leads.
    Elected {
        /// The fencing token.
        token: Token,
        /// How long, at least.
        span: Span,
    },
    /// It leads for longer.
    Extended {
        /// The fencing token.
        token: Token,
        /// How long, at least.
        span: Span,
    },
    /// Its work must stop.
    Draining {
        /// The fencing token.
        token: Token,
        /// Why.
        reason: EndReason,
        /// When it must have stopped.
        by: Instant,
    },
    /// It leads no more.
    Lost {
        /// The fencing token.
        token: Token,
        /// Why.
        reason: EndReason,
    },
}

/// What a step of a hold gets from outside.
pub struct Context<'a> {
    /// Now, on the clock that the agent shares with the program.
    pub now: Instant,
    /// Where effects go, in order.
    pub effects: &'a mut Vec<Effect>,
}

/// The agent's side of one hold.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Hold {
    /// How long a program that waits may leave a frame unread, and how often it is told at least.
    patience: Duration,
    is_connected: bool,
    /// Whether the candidate was withdrawn.
    is_withdrawn: bool,
    /// The number of the last frame, and of the last one that was read.
    told: u64,
    read: u64,
    /// When the last frame was told, while it waits.
    told_at: Instant,
    /// What is to be told when the last frame was read.
    next: Option<News>,
    /// The leadership whose guard the agent has.
    lead: Option<Lead>,
    planted: Planted<Flaw>,
}

/// A leadership whose guard the agent has.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Lead {
    token: Token,
    /// The latest deadline that was told.
    deadline: Instant,
    /// Until when the program may leave what it was told unread: when it stops by what it has read.
    read_by: Instant,
    /// When it stops by what it was told last, and the number of that frame.
    last: (u64, Instant),
    stage: HoldStage,
}

/// How far a leadership is whose guard the agent has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HoldStage {
    /// It lasts.
    Leading,
    /// The work must stop.
    Draining,
    /// The candidate believes no more. The program may.
    Ended,
}

impl Hold {
    /// A hold of a program that has just connected. While it waits it is told every `patience` how it stands, and is hung up on
    /// if it has not read the frame before by then.
    pub fn new(patience: Duration, now: Instant) -> Self {
        Self {
            patience,
            is_connected: true,
            is_withdrawn: false,
            told: 0,
            read: 0,
            told_at: now,
            next: None,
            lead: None,
            planted: Planted::default(),
        }
    }

    /// The same with a planted bug.
    #[cfg(feature = "flaws")]
    #[must_use]
    pub fn with_flaw(self, flaw: Option<Flaw>) -> Self {
        Self { planted: Planted { flaw }, ..self }
    }

    /// Handles one event at the time of the context.
    pub fn handle(&mut self, event: Event, cx: &mut Context<'_>) {
        match event {
            Event::Moved => {
                if self.lead.is_none() {
                    self.tell(News::Waiting, cx);
                }
            }
            Event::Elected { token, span } => self.elected(token, span, cx),
            Event::Extended(span) => {
                if let Some(Lead { token, stage: HoldStage::Leading, .. }) = self.lead {
                    self.tell(News::Extended { token, span }, cx);
                }
            }
            Event::Draining { reason, by } => {
                if let Some(lead) = &mut self.lead {
                    lead.stage = HoldStage::Draining;
                    let (token, by) = (lead.token, by.min(lead.deadline));
                    self.tell_now(News::Draining { token, reason, by }, cx);
                }
            }
            Event::Ended(reason) => self.ended(reason, cx),
            Event::Read(number) => self.has_read(number, cx),
            Event::Stopped(token) => {
                let is_any = self.planted.is(Flaw::StopsWhateverToken);
                if self.lead.as_ref().is_some_and(|lead| lead.token == token || is_any) {
                    self.release(Cause::Stopped, cx);
                }
            }
            Event::Disconnected => self.disconnected(cx),
            Event::Proven => {
                self.is_connected = false;
                self.withdraw(cx);
                if self.lead.is_some() {
                    self.release(Cause::Dead, cx);
                }
            }
            Event::Wake => {}
        }
        self.expire(cx);
    }

    /// When [`Event::Wake`] is due, if nothing else happens before.
    pub fn deadline(&self) -> Option<Instant> {
        match &self.lead {
            Some(lead) if !self.is_connected => Some(lead.deadline),
            // It is to hear of its loss before it may lead again.
            Some(lead) if lead.stage == HoldStage::Ended && self.read < self.told => {
                Some(lead.deadline.max(self.told_at + self.patience))
            }
            Some(lead) if lead.stage == HoldStage::Ended => Some(lead.deadline),
            Some(lead) => {
                let must_read = lead.stage == HoldStage::Leading && self.read < self.told;
                must_read.then_some(lead.read_by)
            }
            None => self.is_connected.then(|| self.told_at + self.patience),
        }
    }

    /// Whether nothing is left of it: the program is gone, and the agent has no guard.
    pub fn is_over(&self) -> bool {
        !self.is_connected && self.lead.is_none()
    }

    /// The leadership that the program has, or may still believe in.
    pub fn token(&self) -> Option<Token> {
        self.lead.as_ref().map(|lead| lead.token)
    }

    /// How far that leadership is.
    pub fn stage(&self) -> Option<HoldStage> {
        self.lead.as_ref().map(|lead| lead.stage)
    }

    /// Whether the program is connected.
    pub const fn is_connected(&self) -> bool {
        self.is_connected
    }

    fn elected(&mut self, token: Token, span: Span, cx: &mut Context<'_>) {
        if !self.is_connected {
            // It was never told: nobody works.
            cx.effects.push(Effect::Release(Cause::NeverTold));
            return;
        }
        let last = (self.told + 1, span.stop_at);
        self.lead =
            Some(Lead { token, deadline: span.deadline, read_by: span.stop_at, last, stage: HoldStage::Leading });
        self.tell_now(News::Elected { token, span }, cx);
    }

    fn ended(&mut self, reason: EndReason, cx: &mut Context<'_>) {
        let Some(lead) = &mut self.lead else { return };
        lead.stage = HoldStage::Ended;
        let token = lead.token;
        self.tell_now(News::Lost { token, reason }, cx);
        if self.planted.is(Flaw::ReleasesWhenEnded) {
            self.release(Cause::Passed, cx);
        }
    }

    fn has_read(&mut self, number: u64, cx: &mut Context<'_>) {
        // No program can have read what was not sent.
        if number > self.told || number <= self.read {
            return;
        }
        self.read = number;
        if let Some(lead) = self.lead.as_mut().filter(|lead| number >= lead.last.0) {
            lead.read_by = lead.last.1;
        }
        if self.read == self.told
            && let Some(news) = self.next.take()
        {
            self.tell_now(news, cx);
        }
    }

    fn disconnected(&mut self, cx: &mut Context<'_>) {
        self.is_connected = false;
        self.next = None;
        self.withdraw(cx);
        if self.planted.is(Flaw::ReleasesWhenDisconnected) && self.lead.is_some() {
            self.release(Cause::Passed, cx);
        }
    }

    fn withdraw(&mut self, cx: &mut Context<'_>) {
        if !core::mem::replace(&mut self.is_withdrawn, true) {
            cx.effects.push(Effect::Withdraw);
        }
    }

    fn release(&mut self, cause: Cause, cx: &mut Context<'_>) {
        self.lead = None;
        self.told_at = cx.now;
        if !self.planted.is(Flaw::KeepsNews) {
            // What was to be told was about this leadership.
            self.next = None;
        }
        cx.effects.push(Effect::Release(cause));
    }

    /// Tells it once the frame before was read: so no more than a few frames lie in the connection, however long the program does
    /// not read, and the last one has the latest news.
    fn tell(&mut self, news: News, cx: &mut Context<'_>) {
        if self.read < self.told {
            self.next = Some(news);
        } else {
            self.tell_now(news, cx);
        }
    }

    fn tell_now(&mut self, news: News, cx: &mut Context<'_>) {
        self.next = None;
        if !self.is_connected {
            return;
        }
        let has_read_all = self.read == self.told;
        self.told += 1;
        self.told_at = cx.now;
        if let (News::Extended { span, .. }, Some(lead)) = (&news, &mut self.lead) {
            if !self.planted.is(Flaw::ForgetsTold) {
                lead.deadline = lead.deadline.max(span.deadline);
            }
            lead.last = (self.told, span.stop_at);
            if has_read_all && lead.read_by <= cx.now {
                // The agent was late, and not the program.
                lead.read_by = span.stop_at;
            }
        }
        cx.effects.push(Effect::Tell(self.told, news));
    }

    /// What is due by now.
    fn expire(&mut self, cx: &mut Context<'_>) {
        if self.deadline().is_none_or(|due| due > cx.now) {
            return;
        }
        match &self.lead {
            Some(lead) if !self.is_connected || lead.stage == HoldStage::Ended => {
                self.release(Cause::Passed, cx);
                // One that has not heard of its loss is not to be elected again.
                if self.is_connected && self.read < self.told {
                    self.hang_up(cx);
                }
            }
            // It has stopped by what it has read, and no leadership is kept for a program that does not read.
            Some(_) => self.hang_up(cx),
            None if self.read < self.told => self.hang_up(cx),
            None => self.tell_now(News::Waiting, cx),
        }
    }

    fn hang_up(&mut self, cx: &mut Context<'_>) {
        cx.effects.push(Effect::HangUp);
        self.disconnected(cx);
    }
}
