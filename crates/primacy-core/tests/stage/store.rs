//! A store in a few lines that does exactly what the port promises, and what operators and accidents do to it.

use std::time::Duration;

use primacy_core::lease::{Holder, Record, Reply, Request, Sighting, Standing, Version, Wish};
use primacy_core::{Label, Token};

/// One election's row, and what is remembered beside it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Row {
    pub(crate) record: Option<Record>,
    pub(crate) remembered: Token,
    /// Told with every sighting.
    pub(crate) age: Option<Duration>,
    /// Told with every sighting.
    pub(crate) holder_gone: bool,
    /// Grants the same token again, as no store may.
    pub(crate) stuck: bool,
}

impl Row {
    /// Takes one step for a candidate that stands there among those that wait.
    pub(crate) fn step(&mut self, request: &Request, standing: Standing) -> Reply {
        let changed = match request {
            Request::Look { .. } => return Reply::Seen(self.sighting(standing)),
            Request::Leave => return Reply::Left,
            Request::Acquire { expect, floor, holder, lease } => {
                let as_expected = match (&self.record, expect) {
                    (None, None) => self.remembered <= *floor,
                    (Some(record), Some(expect)) => record.expectation() == *expect,
                    _ => false,
                };
                as_expected.then(|| self.granted(*floor, holder, *lease))
            }
            Request::Renew { id, version, lease, fulfilled } => {
                self.record.clone().filter(|record| record.is_held_by(*id) && record.version == *version).map(
                    |record| {
                        let wish = record.wish.filter(|_| *fulfilled != Some(record.intent));
                        Record { version: beaten(record.version), lease: *lease, wish, ..record }
                    },
                )
            }
            Request::Release { id, version, .. } => {
                self.record.clone().filter(|record| record.is_held_by(*id) && record.version == *version).map(
                    |record| {
                        let wish = record.wish.filter(|wish| *wish != Wish::NewElection);
                        Record { version: beaten(record.version), holder: None, wish, ..record }
                    },
                )
            }
        };
        match changed {
            Some(record) => {
                self.remembered = self.remembered.max(record.version.token);
                self.record = Some(record.clone());
                Reply::Applied(record)
            }
            None => Reply::Conflict(self.sighting(standing)),
        }
    }

    fn granted(&self, floor: Token, holder: &Holder, lease: Duration) -> Record {
        let (last, intent, paused) = match &self.record {
            Some(record) => (record.version.token, record.intent, record.paused),
            None => (Token::NONE, 0, false),
        };
        let last = last.max(self.remembered).max(floor);
        let token = if self.stuck { last } else { last.next(0) };
        let version = Version { token, beat: 1 };
        Record { version, holder: Some(holder.clone()), lease, intent, wish: None, paused }
    }

    /// What a look tells.
    pub(crate) fn sighting(&self, standing: Standing) -> Sighting {
        let Self { record, remembered, age, holder_gone, .. } = self.clone();
        Sighting { record, remembered, age, holder_gone, standing }
    }

    /// An operator's order.
    pub(crate) fn order(&mut self, change: impl FnOnce(&mut Record)) {
        if let Some(record) = &mut self.record {
            record.intent += 1;
            change(record);
        }
    }

    /// `promote LABEL`, or `depose` if nobody is named.
    pub(crate) fn wish(&mut self, successor: Option<Label>) {
        self.order(|record| record.wish = Some(successor.map_or(Wish::NewElection, Wish::Successor)));
    }
}

fn beaten(version: Version) -> Version {
    Version { beat: version.beat + 1, ..version }
}
