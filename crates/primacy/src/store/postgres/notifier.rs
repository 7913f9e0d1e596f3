//! Passes the server's notifications of an election on to those of this process who wait for one.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use tokio::sync::watch;
use tokio_postgres::{Client, Row};

use super::errors::Fault;
use super::parameter::Parameter;
use super::statements;
use crate::ElectionName;
use crate::qualified::Schema;

/// The notifiers of one store object: one for each election that somebody listens to.
#[derive(Clone, Debug, Default)]
pub(super) struct Notifiers(Arc<Mutex<HashMap<ElectionName, Weak<Notifier>>>>);

impl Notifiers {
    pub(super) fn of(&self, election: &ElectionName) -> NotifierHandle {
        let mut notifiers = lock(&self.0);
        if let Some(notifier) = notifiers.get(election).and_then(Weak::upgrade) {
            return NotifierHandle(notifier);
        }
        notifiers.retain(|_, notifier| notifier.strong_count() > 0);
        let notifier = Arc::new(Notifier {
            election: election.clone(),
            channel: OnceLock::new(),
            rings: watch::Sender::new(0),
            listeners: watch::Sender::new(Listeners::default()),
            missed: Mutex::new(false),
        });
        notifiers.insert(election.clone(), Arc::downgrade(&notifier));
        NotifierHandle(notifier)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Passes the news that something may have changed in an election on to those who wait for it.
struct Notifier {
    election: ElectionName,
    /// What the server calls it.
    channel: OnceLock<String>,
    /// Counts. A receiver keeps any number of rings as one.
    rings: watch::Sender<u64>,
    listeners: watch::Sender<Listeners>,
    /// Set while nobody listens to everything who did before.
    missed: Mutex<bool>,
}

impl Notifier {
    /// Whether somebody waits who cannot hear of a change.
    fn is_missed(&self, listeners: &Listeners) -> bool {
        listeners.to_everything == 0 && listeners.to_promotions < self.rings.receiver_count()
    }
}

/// How many connections listen.
#[derive(Debug, Default)]
pub(super) struct Listeners {
    to_everything: usize,
    /// Of candidates that want to hear no more.
    to_promotions: usize,
}

impl Listeners {
    fn of(&mut self, channel: Channel) -> &mut usize {
        match channel {
            Channel::Everything => &mut self.to_everything,
            Channel::Promotions => &mut self.to_promotions,
        }
    }
}

/// What a connection listens to, on a channel for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Channel {
    /// Grants, releases and orders.
    Everything,
    /// Promotions alone: what a candidate far from the front of the line has to know at once, since one may be its own. Hundreds
    /// of processes that woke at each grant and release would keep the server from answering those whose turn it is (HAZARDS 55).
    Promotions,
}

/// A reference to the notifier of an election.
#[derive(Clone)]
pub(super) struct NotifierHandle(Arc<Notifier>);

impl fmt::Debug for NotifierHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("NotifierHandle").field(&self.0.election).finish()
    }
}

/// Says for as long as it lives that a connection listens.
#[derive(Debug)]
pub(super) struct ListenerGuard {
    notifier: NotifierHandle,
    to: Channel,
}

impl Drop for ListenerGuard {
    fn drop(&mut self) {
        let notifier = &self.notifier.0;
        notifier.listeners.send_modify(|listeners| *listeners.of(self.to) -= 1);
        if notifier.listeners.borrow().to_everything == 0 {
            *lock(&notifier.missed) = true;
        }
    }
}

impl ListenerGuard {
    pub(super) fn to(&self) -> Channel {
        self.to
    }
}

impl NotifierHandle {
    /// Of which election.
    pub(super) fn of(&self) -> &ElectionName {
        &self.0.election
    }

    /// The same as text.
    pub(super) fn election(&self) -> &str {
        self.0.election.as_str()
    }

    /// What the server calls it, once that is known.
    pub(super) fn channel(&self) -> Option<&String> {
        self.0.channel.get()
    }

    /// Whether somebody waits who cannot hear of a change.
    pub(super) fn is_missed(&self) -> bool {
        self.0.is_missed(&self.0.listeners.borrow())
    }

    /// Waits until somebody is missed by everything that the server tells, or until nobody is.
    pub(super) async fn until_missed(&self, is_missed: bool) {
        // The sender lives in this handle.
        let _ = self.0.listeners.subscribe().wait_for(|listeners| self.0.is_missed(listeners) == is_missed).await;
    }

    pub(super) fn ring(&self) {
        self.0.rings.send_modify(|rings| *rings = rings.wrapping_add(1));
    }

    /// Whether others hear it too, beside the candidate whose connection rings it.
    pub(super) fn has_many(&self) -> bool {
        self.0.rings.receiver_count() > 1
    }

    /// To hear it.
    pub(super) fn subscribe(&self) -> watch::Receiver<u64> {
        self.0.rings.subscribe()
    }

    /// Takes the name of the channel from the server's answer.
    pub(super) fn learn(&self, answer: &[Row]) -> Result<String, Fault> {
        let row = answer.first().ok_or(Fault::Damaged("the name of a channel"))?;
        let channel: String = row.try_get(0)?;
        // It becomes part of a statement.
        if !channel.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
            return Err(Fault::Damaged("the name of a channel"));
        }
        Ok(self.0.channel.get_or_init(|| channel).clone())
    }

    /// As much of listening to everything as can be asked in one round trip beside others, before it is known what the server is:
    /// for the name of the channel, or, where that is known, to be notified. Whether it is notified then.
    pub(super) async fn begin_to_listen(&self, client: &Client) -> bool {
        match self.0.channel.get() {
            Some(channel) => client.batch_execute(&listening(channel, Channel::Everything)).await.is_ok(),
            None => {
                let election = Parameter::from(self.0.election.as_str());
                // It names no table, so any schema will do.
                let channel = Schema::public().statement(statements::CHANNEL);
                if let Ok(answer) = client.query_typed(&channel, &[election.typed()]).await {
                    // Without a name it is asked for again.
                    let _ = self.learn(&answer);
                }
                false
            }
        }
    }

    /// The server notifies a connection from now on, which holds on to the guard.
    pub(super) fn listens(&self, to: Channel, hold: impl FnOnce(ListenerGuard)) {
        self.0.listeners.send_modify(|listeners| *listeners.of(to) += 1);
        hold(ListenerGuard { notifier: self.clone(), to });
        if to == Channel::Everything && std::mem::take(&mut *lock(&self.0.missed)) {
            self.ring();
        }
    }
}

/// Promotions are told on both channels of an election.
pub(super) fn listening(channel: &str, to: Channel) -> String {
    let (on, off) = match to {
        Channel::Everything => ("", statements::PROMOTIONS),
        Channel::Promotions => (statements::PROMOTIONS, ""),
    };
    format!("LISTEN \"{channel}{on}\"; UNLISTEN \"{channel}{off}\"")
}
