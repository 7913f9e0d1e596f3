//! The store of the model: one row, changed by the rules of all stores, one step at a time.

use std::time::Duration;

use primacy_core::Token;
use primacy_core::lease::{Holder, Record, Reply, Request, Sighting, Standing, row};

/// How the grant before the present one ended. A ghost: nothing depends on it, it is only asked about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) enum Former {
    /// There was none.
    #[default]
    None,
    /// Its holder gave it back.
    Released,
    /// Somebody else waited it out.
    TakenOver,
    /// Its holder took it again: it did not know that it held it, or believed it no more.
    Retaken,
    /// The row was deleted.
    Deleted,
}

/// The row, and what is remembered beside it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Row {
    pub(super) record: Option<Record>,
    pub(super) remembered: Token,
    pub(super) former: Former,
    /// The row before its last change: where a store that loses commits goes back to.
    pub(super) older: Option<Record>,
}

impl Row {
    pub(super) fn step(&mut self, request: &Request, age: Option<Duration>) -> Reply {
        if matches!(request, Request::Leave) {
            return Reply::Left;
        }
        if matches!(request, Request::Look { .. }) {
            return Reply::Seen(self.sighting(age));
        }
        let Some(record) = self.changed(request) else { return Reply::Conflict(self.sighting(age)) };
        if let Request::Acquire { holder, .. } = request {
            self.former = self.former_of(holder);
        }
        self.remembered = self.remembered.max(record.version.token);
        self.older = self.record.replace(record.clone());
        Reply::Applied(record)
    }

    /// What a look showed before the last change.
    pub(super) fn past(&self, age: Option<Duration>) -> Reply {
        let remembered = self.older.as_ref().map_or(Token::NONE, |record| record.version.token);
        Reply::Seen(Self { record: self.older.clone(), remembered, ..self.clone() }.sighting(age))
    }

    /// Whether this request would change the row now.
    pub(super) fn would_change(&self, request: &Request) -> bool {
        self.changed(request).is_some()
    }

    fn changed(&self, request: &Request) -> Option<Record> {
        row::change(self.record.as_ref(), self.remembered, 0, request).expect("a search grants few tokens")
    }

    fn former_of(&self, next: &Holder) -> Former {
        match &self.record {
            None if self.remembered == Token::NONE => Former::None,
            None => Former::Deleted,
            Some(Record { holder: None, .. }) => Former::Released,
            Some(Record { holder: Some(former), .. }) if former.id == next.id => Former::Retaken,
            Some(_) => Former::TakenOver,
        }
    }

    fn sighting(&self, age: Option<Duration>) -> Sighting {
        let standing = Standing { ahead: 0, others: 1 };
        Sighting { record: self.record.clone(), remembered: self.remembered, age, holder_gone: false, standing }
    }
}
