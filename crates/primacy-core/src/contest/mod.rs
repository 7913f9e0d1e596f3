//! Who of several peers should lead, found out by messages among them: the published elections among peers.
//!
//! A contest ends with a *nominee*, and that is a preference: different peers may come to different nominees, late ones or
//! dead ones, as the papers' own algorithms do. Who leads is decided by the [`quorum`](crate::quorum) grant, which the nominee
//! asks for; a nominee that does not get it costs time and nothing else.
//!
//! Each contest is a state machine without clock, I/O or randomness of its own, like the protocols: the same code runs over
//! sockets, in the simulator and in the model checker.

pub mod ring;

use alloc::vec::Vec;
use core::fmt;
use core::hash::Hash;

use crate::Instant;

/// One of the peers of a contest. Their order is the order of ids in the algorithms that have one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PeerId(pub u16);

impl fmt::Display for PeerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "p{}", self.0)
    }
}

impl fmt::Debug for PeerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// What comes to one peer's part of a contest.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Event<M> {
    /// Its [`deadline`](Contest::deadline) has come.
    Wake,
    /// A message has come. It may be late, come twice, or after later ones.
    Heard {
        /// Whose it is, as the transport knows it.
        from: PeerId,
        /// What it says.
        message: M,
    },
    /// Another peer can be reached, or again. Suspicion is the transport's affair, which has the heartbeats.
    Up(PeerId),
    /// Another peer is suspected to be dead. It may be alive.
    Down(PeerId),
    /// This peer leads, or knows who does: by the grant, or where there is none because it is told so.
    Led(PeerId),
    /// Nobody leads as far as this peer knows: another is to be chosen.
    Vacant,
    /// Whom it named last did not get the grant, in the time that it takes.
    Refused(PeerId),
}

/// What a contest wants done.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Effect<M> {
    /// Send this. It may be lost.
    Send {
        /// To whom.
        to: PeerId,
        /// What.
        message: M,
    },
    /// As far as this peer can tell, that one should lead. A peer that names itself asks for the grant.
    Nominate(PeerId),
}

/// What a contest is given with each event, and where it puts what follows.
pub struct Context<'a, M> {
    /// The time on this peer's clock.
    pub now: Instant,
    /// A source of random bits.
    pub entropy: &'a mut dyn FnMut() -> u64,
    /// What is to be done, in this order.
    pub effects: &'a mut Vec<Effect<M>>,
}

/// One peer's part in a contest.
pub trait Contest {
    /// What peers tell each other.
    type Message: Clone + fmt::Debug + Eq + Hash;

    /// Takes note of what has happened.
    fn handle(&mut self, event: Event<Self::Message>, cx: &mut Context<'_, Self::Message>);

    /// When [`Event::Wake`] is due, if nothing else happens before.
    fn deadline(&self) -> Option<Instant>;
}
