//! What all connections of a front share.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::rc::Rc;

use tokio::sync::Notify;

use super::line::{Bounds, Ends, Line};
use super::settings::Settings;
use super::statistics::{Statistics, add};
use crate::command;
use crate::resp;
use crate::server::backend::Backend;

/// How much is read from a connection at once.
const READ_MAX: usize = 64 << 10;

/// What all connections share. They are all on one thread.
pub(super) struct Hub {
    pub(super) backend: Rc<dyn Backend>,
    pub(super) settings: Settings,
    pub(super) command_limits: command::Limits,
    pub(super) request_limits: resp::Limits,
    pub(super) statistics: Rc<Statistics>,
    pub(super) addresses: Vec<SocketAddr>,
    /// Where bytes are read into, by one connection after another.
    pub(super) scratch: RefCell<Box<[u8]>>,
    /// The front ends: connections end when nothing of theirs is under way.
    pub(super) is_ending: Cell<bool>,
    /// Told whenever a connection has ended.
    pub(super) left: Notify,
    lines: RefCell<BTreeMap<u64, Rc<Line>>>,
    ids: Cell<u64>,
    /// When a warning was written last.
    warned: Cell<Option<u64>>,
}

impl Hub {
    pub(super) fn new(
        backend: Rc<dyn Backend>,
        settings: Settings,
        statistics: Rc<Statistics>,
        addresses: Vec<SocketAddr>,
    ) -> Self {
        Self {
            backend,
            command_limits: settings.command_limits(),
            request_limits: settings.request_limits(),
            settings,
            statistics,
            addresses,
            scratch: RefCell::new(vec![0; READ_MAX].into()),
            is_ending: Cell::new(false),
            left: Notify::new(),
            lines: RefCell::default(),
            ids: Cell::new(0),
            warned: Cell::new(None),
        }
    }

    /// Whether there is room for another connection.
    pub(super) fn has_room(&self) -> bool {
        self.lines.borrow().len() < self.settings.connections_max
    }

    /// Enters a new connection. It is there until the guard goes.
    pub(super) fn enter(self: &Rc<Self>, ends: Ends) -> Entered {
        let id = self.ids.get() + 1;
        self.ids.set(id);
        let is_known = self.settings.password.is_none();
        let bounds = Bounds::new(self.settings.output_max, self.settings.value_max);
        let line = Rc::new(Line::new(id, ends, is_known, bounds, Rc::clone(&self.statistics)));
        self.lines.borrow_mut().insert(id, Rc::clone(&line));
        add(&self.statistics.accepted, 1);
        add(&self.statistics.open, 1);
        Entered { hub: Rc::clone(self), line }
    }

    /// All connections, by number.
    pub(super) fn lines(&self) -> Vec<Rc<Line>> {
        self.lines.borrow().values().cloned().collect()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.lines.borrow().is_empty()
    }

    /// Tells the operator of a client that does not behave: of one in a second, so that many of them do not fill the disk.
    pub(super) fn warn(&self, line: &Line, why: &str) {
        let now = self.statistics.seconds();
        if self.warned.replace(Some(now)) != Some(now) {
            tracing::warn!(peer = %line.ends.peer, "{why}");
        }
    }

    /// Cuts off who does not read, or does not say who it is.
    pub(super) fn sweep(&self) {
        self.statistics.count_second();
        let now = self.statistics.seconds();
        let (stalled_max, greeting_max) =
            (self.settings.stalled_max.as_secs().max(1), self.settings.greeting_max.as_secs().max(1));
        let is_loading = self.backend.groups() == 0;
        for line in self.lines() {
            if is_loading {
                // What has waited for long enough is refused.
                line.wake();
            }
            let why = match () {
                () if line.stalled() > stalled_max => "cut off: it does not read its replies",
                () if !line.is_known.get() && now - line.since > greeting_max => "cut off: it does not say who it is",
                () => continue,
            };
            add(&self.statistics.cut_off, 1);
            self.warn(&line, why);
            line.end();
        }
    }
}

/// A connection that has been entered.
pub(super) struct Entered {
    pub(super) hub: Rc<Hub>,
    pub(super) line: Rc<Line>,
}

impl Drop for Entered {
    fn drop(&mut self) {
        // Answers that are still to come find nobody.
        self.line.end();
        self.hub.lines.borrow_mut().remove(&self.line.id);
        let open = &self.hub.statistics.open;
        open.set(open.get().saturating_sub(1));
        self.hub.left.notify_waiters();
    }
}
