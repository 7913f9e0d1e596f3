//! Reads that wait until it is certain that their leader was still the one when they had come.

use alloc::vec::Vec;
use core::mem;

use super::super::flaws::{Flaw, Planted};

/// How a read makes certain that nothing was committed that its leader does not know of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reading {
    /// The leader believes in its lease, at some moment between the read's coming and its answer.
    Lease,
    /// A quorum answers a beat that was sent after the read had come. It needs no clock.
    Quorum,
}

/// Those that wait.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Reads {
    lease: Vec<u64>,
    /// Each with the first beat that confirms it.
    quorum: Vec<(u64, u64)>,
    /// A check has held. A planted bug remembers that.
    has_held: bool,
}

impl Reads {
    pub(super) fn is_empty(&self) -> bool {
        self.lease.is_empty() && self.quorum.is_empty()
    }

    /// One has come, when this beat was the last that was sent. It waits, or is answered by a planted bug.
    pub(super) fn came(
        &mut self,
        tag: u64,
        how: Reading,
        round: u64,
        may: bool,
        planted: Planted,
    ) -> impl Iterator<Item = u64> {
        let is_held = how == Reading::Lease && may && self.has_held && planted.is(Flaw::ChecksBeforeArrival);
        let first = if planted.is(Flaw::RoundConfirmsLaterReads) { round.max(1) } else { round + 1 };
        match how {
            _ if is_held => {}
            Reading::Lease => self.lease.push(tag),
            Reading::Quorum => self.quorum.push((first, tag)),
        }
        is_held.then_some(tag).into_iter()
    }

    /// The lease is believed in now: those that have come are answered.
    pub(super) fn check(&mut self, planted: Planted) -> impl Iterator<Item = u64> {
        self.has_held = planted.is(Flaw::ChecksBeforeArrival);
        mem::take(&mut self.lease).into_iter()
    }

    /// A quorum has answered this beat, and those before it count for nothing more.
    pub(super) fn confirmed(&mut self, round: u64) -> impl Iterator<Item = u64> {
        let (confirmed, waiting) = mem::take(&mut self.quorum).into_iter().partition(|(first, _)| *first <= round);
        self.quorum = waiting;
        let confirmed: Vec<(u64, u64)> = confirmed;
        confirmed.into_iter().map(|(_, tag)| tag)
    }
}
