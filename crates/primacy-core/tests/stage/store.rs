//! A store that keeps one row by the rules of all stores, and what operators and accidents do to it.

use std::time::Duration;

use primacy_core::lease::{HandoverRequest, Record, Reply, Request, Sighting, Standing, row};
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
        match request {
            Request::Look { .. } => return Reply::Seen(self.sighting(standing)),
            Request::Leave => return Reply::Left,
            _ => {}
        }
        let changed = row::change(self.record.as_ref(), self.remembered, 0, request).expect("tokens are left");
        let Some(mut record) = changed else { return Reply::Conflict(self.sighting(standing)) };
        if self.stuck && matches!(request, Request::Acquire { .. }) {
            record.version.token = self.remembered;
        }
        self.remembered = self.remembered.max(record.version.token);
        self.record = Some(record.clone());
        Reply::Applied(record)
    }

    /// What a look tells.
    pub(crate) fn sighting(&self, standing: Standing) -> Sighting {
        let Self { record, remembered, age, holder_gone, .. } = self.clone();
        Sighting { record, remembered, age, holder_gone, standing }
    }

    /// An operator's order.
    pub(crate) fn order(&mut self, change: impl FnOnce(&mut Record)) {
        if let Some(record) = &mut self.record {
            record.order_number += 1;
            change(record);
        }
    }

    /// `promote LABEL`, or `depose` if nobody is named.
    pub(crate) fn handover(&mut self, successor: Option<Label>) {
        self.order(|record| {
            record.handover = Some(successor.map_or(HandoverRequest::NewElection, HandoverRequest::Successor))
        });
    }
}
