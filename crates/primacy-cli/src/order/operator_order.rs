//! What an operator wants of an election's leadership: `promote` or `depose`.

use primacy::Label;
use primacy::store::{HandoverRequest, Holder, OrderKind};

/// What the operator wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum OperatorOrder {
    /// The candidate with this label, or with this id.
    Promote(Label),
    /// Anybody else.
    Depose,
}

impl OperatorOrder {
    pub(super) const fn word(&self) -> &'static str {
        match self {
            Self::Promote(_) => "promote",
            Self::Depose => "depose",
        }
    }

    pub(super) fn handover(&self) -> Option<HandoverRequest> {
        match self {
            Self::Promote(successor) => Some(HandoverRequest::Successor(successor.clone())),
            Self::Depose => None,
        }
    }

    /// Whether this candidate may be the next leader.
    pub(super) fn means(&self, candidate: &Holder) -> bool {
        self.handover().is_none_or(|handover| handover.names(candidate.id, &candidate.label))
    }

    pub(super) fn kind(&self, now: bool) -> OrderKind {
        match self {
            Self::Promote(successor) => OrderKind::Promote { successor: successor.clone(), now },
            Self::Depose => OrderKind::Depose { now },
        }
    }
}
