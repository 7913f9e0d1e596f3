//! What the candidates of a fleet hear: the notifications of all their elections, over one connection.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use tracing::debug;

use super::connection::Connection;
use super::errors::{Fault, Stake};
use super::notifier::{Channel, NotifierHandle, listening};
use super::parameter::Parameter;
use super::shared::SharedJob;
use super::statements;
use crate::ElectionName;
use crate::store::lines::WeakLine;

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
    /// Of the connection that listens.
    line: OnceLock<WeakLine<SharedJob>>,
}

impl std::fmt::Debug for Ears {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ears").finish_non_exhaustive()
    }
}

#[derive(Default)]
struct Wishes {
    /// By election.
    all: HashMap<ElectionName, Wish>,
    /// Of those that have been listened to, by what the server calls them.
    channels: HashMap<String, NotifierHandle>,
    /// Counts the changes of what is wished for.
    changes: u64,
}

struct Wish {
    notifier: NotifierHandle,
    /// How many listen.
    users: usize,
    to: Channel,
    /// A change may have been missed.
    has_gap: bool,
}

/// What a connection listens to.
#[derive(Debug, Default)]
pub(super) struct Heard {
    all: HashMap<ElectionName, (Channel, String)>,
    /// The changes that it has followed.
    changes: u64,
}

impl Ears {
    pub(super) fn belong_to(&self, line: WeakLine<SharedJob>) {
        // Once.
        let _ = self.line.set(line);
    }

    fn wishes(&self) -> MutexGuard<'_, Wishes> {
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
        if let Some(line) = self.line.get() {
            line.look_around();
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

    /// Has the server notify a connection of what is to be heard.
    pub(super) async fn follow(&self, connection: &mut Connection, heard: &mut Heard) -> Result<(), Fault> {
        let (changes, wanted): (u64, HashMap<ElectionName, (NotifierHandle, Channel)>) = {
            let wishes = self.wishes();
            let wanted = wishes.all.iter().map(|(name, wish)| (name.clone(), (wish.notifier.clone(), wish.to)));
            (wishes.changes, wanted.collect())
        };
        let unnamed: Vec<&NotifierHandle> =
            wanted.values().map(|(notifier, _)| notifier).filter(|notifier| notifier.channel().is_none()).collect();
        if !unnamed.is_empty() {
            let names: Parameter<'_> = unnamed.iter().map(|notifier| notifier.election()).collect();
            let rows = connection.run(statements::CHANNELS, &[names], Stake::Reading).await?;
            for (index, notifier) in unnamed.iter().enumerate() {
                notifier.learn(rows.get(index..).unwrap_or_default())?;
            }
        }
        let (mut text, mut fresh) = (Vec::new(), Vec::new());
        for (election, (notifier, to)) in &wanted {
            let Some(channel) = notifier.channel() else { continue };
            if heard.all.get(election).is_none_or(|(heard, _)| heard != to) {
                text.push(listening(channel, *to));
                fresh.push((election.clone(), channel.clone(), *to));
            }
        }
        heard.all.retain(|election, (_, channel)| {
            let stays = wanted.contains_key(election);
            if !stays {
                text.push(format!("UNLISTEN \"{channel}\"; UNLISTEN \"{channel}{}\"", statements::PROMOTIONS));
            }
            stays
        });
        {
            // Before the server begins to tell.
            let mut wishes = self.wishes();
            wishes.channels = wanted
                .values()
                .filter_map(|(notifier, _)| Some((notifier.channel()?.clone(), notifier.clone())))
                .collect();
        }
        if !text.is_empty() {
            connection.run_batch(&text.join("; "), Stake::Reading).await?;
        }
        heard.changes = changes;
        let mut wishes = self.wishes();
        for (election, channel, to) in fresh {
            let before = heard.all.insert(election.clone(), (to, channel));
            if to == Channel::Everything
                && let Some(wish) = wishes.all.get_mut(&election)
                && (std::mem::take(&mut wish.has_gap) || before.is_some())
            {
                wish.notifier.ring();
            }
        }
        debug!(elections = heard.all.len(), "the fleet listens");
        Ok(())
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
