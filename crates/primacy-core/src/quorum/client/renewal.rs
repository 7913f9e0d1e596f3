//! A holder's renewals: the one that it asks for, and the one that it takes back.

use alloc::vec::Vec;
use core::cmp::Ordering;
use core::time::Duration;

use super::{Output, QuorumClient, Step};
use crate::lease::{Holder, Version};
use crate::quorum::VoterId;
use crate::quorum::port::{Ask, GrantProgress, VoterView};

/// What the record becomes by a change of one's own.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct RecordChange {
    /// The version before it.
    pub(super) version: Version,
    /// `None`: it is released.
    pub(super) holder: Option<Holder>,
    pub(super) lease: Duration,
    pub(super) completed_order: u64,
}

impl QuorumClient {
    /// Whether it asks for a renewal, or withdraws one.
    pub(super) fn is_renewing(&self) -> bool {
        let is_renewal = self.change.as_ref().is_some_and(|change| change.holder.is_some());
        is_renewal && self.step != Step::Idle
    }

    /// Asks for the renewal after the last, or first takes back one that a majority has not answered, for all that is known.
    pub(super) fn begin_renewal(&mut self, change: RecordChange, out: &mut Vec<Output>) {
        let Version { token, beat } = change.version;
        if self.renewal.token == token && self.renewal.beat > beat && !self.flawed_reuses_beats() {
            self.withdraw(change, out);
        } else {
            self.renew(change, out);
        }
    }

    /// Asks for the next renewal.
    pub(super) fn renew(&mut self, change: RecordChange, out: &mut Vec<Output>) {
        let RecordChange { version, holder: Some(holder), lease, completed_order } = &change else { return };
        let (term, id, beat) = (version.token, holder.id, version.beat.saturating_add(1));
        self.step = Step::Changing;
        self.renewal = Version { token: term, beat };
        self.ask_all(&Ask::Renew { term, id, beat, lease: *lease, completed_order: *completed_order }, out);
        self.change = Some(change);
    }

    /// Takes the last renewal back, before another one is asked for: a holder that is heard and hears nothing shall not
    /// be waited for any longer than one that is gone, and a voter that has promised it is bound by what it had
    /// promised before. Answers to it count for nothing from here on.
    pub(super) fn withdraw(&mut self, change: RecordChange, out: &mut Vec<Output>) {
        let Some(id) = change.holder.as_ref().map(|holder| holder.id) else { return };
        let Version { token: term, beat } = self.renewal;
        self.step = Step::Withdrawing;
        self.ask_all(&Ask::Withdraw { term, id, beat }, out);
        self.change = Some(RecordChange { version: self.renewal, ..change });
    }

    /// A voter that has not heard of the holder's term, or has supported somebody else in it, or in a later one that was not granted as
    /// far as it knows, and is free, is asked to support it too: so the holder does not depend on those alone whose support it won
    /// by, and loses nobody for good. Its answer to that is the one that counts.
    pub(super) fn catch_up(&mut self, from: VoterId, view: &VoterView, out: &mut Vec<Output>) -> bool {
        let change = self.change.as_ref().filter(|_| self.step != Step::Withdrawing);
        let Some(RecordChange { version, holder: Some(holder), lease, completed_order }) = change else { return false };
        let may = match view.term.cmp(&version.token) {
            Ordering::Less => view.is_open_to(holder.id),
            Ordering::Equal => !view.supports(holder.id) && view.bound.is_none(),
            Ordering::Greater => view.bound.is_none() && !view.is_granted() && !view.is_forgotten(),
        };
        let may = may && !self.caught_up.contains(&from);
        if may {
            let granted =
                Some(GrantProgress { beat: version.beat.saturating_add(1), completed_order: *completed_order });
            let (term, holder, lease, seen) = (version.token, holder.clone(), *lease, self.claimed_with);
            out.push(Output::Send {
                to: from,
                round: self.round,
                ask: Ask::Claim { term, holder, lease, seen, granted },
            });
            self.caught_up.insert(from);
        }
        may
    }
}
