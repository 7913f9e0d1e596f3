//! A holder's renewals: the one that it asks for, and the one that it takes back.

use alloc::vec::Vec;
use core::time::Duration;

use super::{Clerk, Output, Step};
use crate::lease::{Holder, Version};
use crate::quorum::VoterId;
use crate::quorum::port::{Ask, Granted, View};

/// What the record becomes by a change of one's own.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Change {
    /// The version before it.
    pub(super) version: Version,
    /// `None`: it is released.
    pub(super) holder: Option<Holder>,
    pub(super) lease: Duration,
    pub(super) fulfilled: u64,
}

impl Clerk {
    /// Whether it asks for a renewal, or withdraws one.
    pub(super) fn is_renewing(&self) -> bool {
        let is_renewal = self.change.as_ref().is_some_and(|change| change.holder.is_some());
        is_renewal && self.step != Step::Idle
    }

    /// Asks for the renewal after the last, or first takes back one that a majority has not answered, for all that is known.
    pub(super) fn begin_renewal(&mut self, change: Change, out: &mut Vec<Output>) {
        let Version { token, beat } = change.version;
        if self.renewal.token == token && self.renewal.beat > beat && !self.flawed_reuses_beats() {
            self.withdraw(change, out);
        } else {
            self.renew(change, out);
        }
    }

    /// Asks for the next renewal.
    pub(super) fn renew(&mut self, change: Change, out: &mut Vec<Output>) {
        let Change { version, holder: Some(holder), lease, fulfilled } = &change else { return };
        let (term, id, beat) = (version.token, holder.id, version.beat.saturating_add(1));
        self.step = Step::Changing;
        self.renewal = Version { token: term, beat };
        self.ask_all(&Ask::Renew { term, id, beat, lease: *lease, fulfilled: *fulfilled }, out);
        self.change = Some(change);
    }

    /// Takes the last renewal back, before another one is asked for: whoever is heard and hears nothing shall not be waited for any
    /// longer than one that is gone, and whoever has promised it is bound by what it had promised before. Answers to it count for
    /// nothing from here on.
    pub(super) fn withdraw(&mut self, change: Change, out: &mut Vec<Output>) {
        let Some(id) = change.holder.as_ref().map(|holder| holder.id) else { return };
        let Version { token: term, beat } = self.renewal;
        self.step = Step::Withdrawing;
        self.ask_all(&Ask::Withdraw { term, id, beat }, out);
        self.change = Some(Change { version: self.renewal, ..change });
    }

    /// A voter that has not heard of the holder's term, or has supported somebody else in it, and is free, is asked to support it
    /// too: so the holder does not depend on those alone whose support it won by. Its answer to that is the one that counts.
    pub(super) fn catch_up(&mut self, from: VoterId, view: &View, out: &mut Vec<Output>) -> bool {
        let change = self.change.as_ref().filter(|_| self.step != Step::Withdrawing);
        let Some(Change { version, holder: Some(holder), lease, fulfilled }) = change else { return false };
        let has_missed = view.term < version.token || (view.term == version.token && !view.supports(holder.id));
        let may = has_missed && view.is_open_to(holder.id) && !self.caught_up.contains(&from);
        if may {
            let granted = Some(Granted { beat: version.beat.saturating_add(1), fulfilled: *fulfilled });
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
