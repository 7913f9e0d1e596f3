//! Who votes, and when enough of them agree.

use alloc::collections::BTreeSet;
use core::fmt;

/// The identity of one voter: random bits that are drawn when its file is made, so that a voter whose disk is gone comes back
/// as another one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VoterId(u128);

impl VoterId {
    /// The identity with these bits. They must be random.
    pub const fn from_bits(bits: u128) -> Self {
        Self(bits)
    }

    /// The bits, as they are stored and sent.
    pub const fn to_bits(self) -> u128 {
        self.0
    }
}

impl fmt::Display for VoterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Debug for VoterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "VoterId({self})")
    }
}

/// A membership that no majority could ever be found in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum VoterSetError {
    /// It changes already.
    #[error("the voters are changing already; that change must be finished first")]
    Changing,
    /// Nobody votes.
    #[error("an election among peers needs voters, three or more to survive the loss of one")]
    Empty,
}

/// Who votes. While it changes, a majority of the old voters and one of the new ones must agree (joint majorities: Ongaro,
/// "Consensus: bridging theory and practice", 2014, section 4.3), so that no two majorities ever miss each other.
///
/// Changes are numbered: the voters that came together first have 0, and each step of a change, into the joint phase and out of
/// it, adds one. Two with one number are the same.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct VoterSet {
    number: u64,
    voters: BTreeSet<VoterId>,
    incoming: Option<BTreeSet<VoterId>>,
}

impl VoterSet {
    /// These voters, who have never changed.
    ///
    /// # Errors
    /// If there are none.
    pub fn new(voters: BTreeSet<VoterId>) -> Result<Self, VoterSetError> {
        Self::numbered(0, voters, None)
    }

    /// What was written down or sent of one.
    ///
    /// # Errors
    /// If nobody votes, before the change or after it.
    pub fn numbered(
        number: u64,
        voters: BTreeSet<VoterId>,
        incoming: Option<BTreeSet<VoterId>>,
    ) -> Result<Self, VoterSetError> {
        if voters.is_empty() || incoming.as_ref().is_some_and(BTreeSet::is_empty) {
            return Err(VoterSetError::Empty);
        }
        Ok(Self { number, voters, incoming })
    }

    /// The same while it changes to these voters.
    ///
    /// # Errors
    /// If there are none, or if it changes already: two majorities of different changes could miss each other.
    pub fn joint(self, incoming: BTreeSet<VoterId>) -> Result<Self, VoterSetError> {
        if self.incoming.is_some() {
            return Err(VoterSetError::Changing);
        }
        Self::numbered(self.number.saturating_add(1), self.voters, Some(incoming))
    }

    /// The new voters alone, if it changes: how its change ends.
    #[must_use]
    pub fn settled(&self) -> Option<Self> {
        let voters = self.incoming.clone()?;
        Some(Self { number: self.number.saturating_add(1), voters, incoming: None })
    }

    /// How many steps of changes came before it.
    pub const fn number(&self) -> u64 {
        self.number
    }

    /// Those who vote, or did before the change.
    pub const fn old(&self) -> &BTreeSet<VoterId> {
        &self.voters
    }

    /// Those who vote after the change, while there is one.
    pub const fn incoming(&self) -> Option<&BTreeSet<VoterId>> {
        self.incoming.as_ref()
    }

    /// Everybody who is asked.
    pub fn voters(&self) -> impl Iterator<Item = VoterId> {
        let old = self.voters.iter();
        let new = self.incoming.iter().flatten().filter(|voter| !self.voters.contains(voter));
        old.chain(new).copied()
    }

    /// Whether those of whom `agrees` is true are enough.
    pub fn is_quorum(&self, agrees: impl Fn(VoterId) -> bool) -> bool {
        is_majority(&self.voters, &agrees) && self.incoming.as_ref().is_none_or(|new| is_majority(new, &agrees))
    }

    /// How many of those of whom `agrees` is true may be lost, whichever they are, so that the others are enough.
    pub fn spare(&self, agrees: impl Fn(VoterId) -> bool) -> usize {
        let sets = [Some(&self.voters), self.incoming.as_ref()].into_iter().flatten();
        let spare =
            |set: &BTreeSet<VoterId>| beyond_majority(set.iter().filter(|voter| agrees(**voter)).count(), set.len());
        sets.map(spare).min().unwrap_or_default()
    }
}

/// How many of these voters may be lost, whichever they are, so that a majority of all is left; none if there is no majority now.
pub const fn beyond_majority(count: usize, all: usize) -> usize {
    count.saturating_sub(all / 2 + 1)
}

/// Whether those of whom `agrees` is true are more than half of these.
pub(super) fn is_majority(voters: &BTreeSet<VoterId>, agrees: impl Fn(VoterId) -> bool) -> bool {
    let mut agreed = 0;
    voters.iter().any(|voter| {
        agreed += usize::from(agrees(*voter));
        agreed * 2 > voters.len()
    })
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in super::super) fn voters(count: u128) -> VoterSet {
        VoterSet::new((1..=count).map(VoterId::from_bits).collect()).expect("there are some")
    }

    fn agree(voter_set: &VoterSet, who: &[u128]) -> bool {
        voter_set.is_quorum(|voter| who.contains(&voter.to_bits()))
    }

    #[test]
    fn more_than_half_are_enough_and_half_are_not() {
        for (count, least) in [(1, 1), (2, 2), (3, 2), (4, 3), (5, 3), (9, 5)] {
            let voter_set = voters(count);
            let first = |many: u128| (1..=many).collect::<alloc::vec::Vec<_>>();
            assert!(agree(&voter_set, &first(least)), "{least} of {count}");
            assert!(!agree(&voter_set, &first(least - 1)), "{} of {count}", least - 1);
        }
        assert_eq!(VoterSet::new(BTreeSet::new()), Err(VoterSetError::Empty));
    }

    #[test]
    fn while_voters_change_both_majorities_must_agree() {
        let joint = voters(3).joint((3..=5).map(VoterId::from_bits).collect()).expect("there are some");
        assert_eq!(joint.voters().count(), 5);
        assert_eq!(joint.clone().joint([VoterId::from_bits(6)].into()), Err(VoterSetError::Changing));
        assert!(!agree(&joint, &[1, 2]), "the old ones alone");
        assert!(!agree(&joint, &[4, 5]), "the new ones alone");
        assert!(agree(&joint, &[1, 3, 4]), "two of each");
        assert!(!agree(&joint, &[1, 2, 4]), "one of the new");
    }

    #[test]
    fn each_step_of_a_change_has_the_next_number() {
        let joint = voters(3).joint((2..=4).map(VoterId::from_bits).collect()).expect("there are some");
        let settled = joint.settled().expect("it changes");
        assert_eq!([voters(3).number(), joint.number(), settled.number()], [0, 1, 2]);
        assert!(agree(&settled, &[2, 4]) && !agree(&settled, &[1, 2]), "the new ones alone");
        assert_eq!(settled.settled(), None);
    }
}
