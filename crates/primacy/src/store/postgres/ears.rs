//! What the candidates of a fleet hear: the notifications of all their elections, over one connection.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use super::notifier::{Channel, NotifierHandle};
use super::statements;
use crate::ElectionName;

/// Whom a connection's notifications ring.
#[derive(Clone, Debug)]
pub(super) enum Ringer {
    /// Nobody: it listens to nothing.
    Nobody,
    /// The candidate whose connection it is, and others of its election.
    One(NotifierHandle),
    /// Those whose election is meant.
    Fleet(Arc<Ears>),
}

impl Ringer {
    pub(super) fn of_one(&self) -> Option<&NotifierHandle> {
        match self {
            Self::One(notifier) => Some(notifier),
            Self::Nobody | Self::Fleet(_) => None,
        }
    }

    pub(super) fn ring(&self, channel: &str) {
        match self {
            Self::Nobody => {}
            Self::One(notifier) => notifier.ring(),
            Self::Fleet(ears) => ears.ring(channel),
        }
    }
}

/// What the candidates of a fleet want to hear.
#[derive(Default)]
pub(super) struct Ears {
    wishes: Mutex<Wishes>,
    /// Lets the line see to the connection that listens.
    look_around: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

impl std::fmt::Debug for Ears {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ears").finish_non_exhaustive()
    }
}

#[derive(Default)]
pub(super) struct Wishes {
    /// By election.
    pub(super) all: HashMap<ElectionName, Wish>,
    /// Of those that have been listened to, by what the server calls them.
    pub(super) channels: HashMap<String, NotifierHandle>,
    /// Counts the changes of what is wished for.
    pub(super) changes: u64,
}

pub(super) struct Wish {
    pub(super) notifier: NotifierHandle,
    /// How many listen.
    users: usize,
    pub(super) to: Channel,
    /// A change may have been missed.
    pub(super) has_gap: bool,
}

/// What a connection listens to.
#[derive(Debug, Default)]
pub(super) struct Heard {
    pub(super) all: HashMap<ElectionName, (Channel, String)>,
    /// The changes that it has followed.
    pub(super) changes: u64,
}

impl Ears {
    /// What is called when a connection has ended, or something else is to be heard.
    pub(super) fn call(&self, look_around: impl Fn() + Send + Sync + 'static) {
        // Once.
        let _ = self.look_around.set(Box::new(look_around));
    }

    pub(super) fn wishes(&self) -> MutexGuard<'_, Wishes> {
        self.wishes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ring(&self, channel: &str) {
        let channel = channel.strip_suffix(statements::PROMOTIONS).unwrap_or(channel);
        if let Some(notifier) = self.wishes().channels.get(channel) {
            notifier.ring();
        }
    }

    /// The connection that listened has ended.
    pub(super) fn has_ended(&self) {
        if let Some(look_around) = self.look_around.get() {
            look_around();
        }
    }

    pub(super) fn is_wanted(&self) -> bool {
        !self.wishes().all.is_empty()
    }

    /// This election is listened to until the guard is dropped.
    pub(super) fn listen(self: &Arc<Self>, notifier: &NotifierHandle) -> ListenGuard {
        let mut wishes = self.wishes();
        let election = notifier.of().clone();
        let wish = wishes.all.entry(election.clone()).or_insert_with(|| Wish {
            notifier: notifier.clone(),
            users: 0,
            to: Channel::Everything,
            has_gap: false,
        });
        wish.users += 1;
        if wish.users == 1 {
            wishes.changes += 1;
        }
        ListenGuard { ears: Arc::clone(self), election }
    }

    /// What is to be heard of an election, if it is listened to.
    pub(super) fn want(&self, election: &ElectionName, to: Channel) {
        let mut wishes = self.wishes();
        if let Some(wish) = wishes.all.get_mut(election).filter(|wish| wish.to != to) {
            wish.to = to;
            wishes.changes += 1;
            drop(wishes);
            self.has_ended();
        }
    }

    /// Another connection is about to listen.
    pub(super) fn begin_anew(&self) {
        for wish in self.wishes().all.values_mut() {
            wish.has_gap = true;
        }
    }

    /// Whether a connection hears what it is to hear.
    pub(super) fn is_content(&self, heard: &Heard) -> bool {
        heard.changes == self.wishes().changes
    }

    /// It is not tried again before something else is to be heard.
    pub(super) fn give_up(&self, heard: &mut Heard) {
        heard.changes = self.wishes().changes;
    }
}

/// Says for as long as it lives that somebody listens.
#[derive(Debug)]
pub(super) struct ListenGuard {
    ears: Arc<Ears>,
    election: ElectionName,
}

impl Drop for ListenGuard {
    fn drop(&mut self) {
        let mut wishes = self.ears.wishes();
        if let Some(wish) = wishes.all.get_mut(&self.election) {
            wish.users -= 1;
            if wish.users == 0 {
                wishes.all.remove(&self.election);
                wishes.changes += 1;
                drop(wishes);
                self.ears.has_ended();
            }
        }
    }
}
