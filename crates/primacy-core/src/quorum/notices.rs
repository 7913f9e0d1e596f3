//! Which voters are told that there were later voters, before they are asked anything.

use alloc::collections::BTreeMap;

use super::client::Round;
use super::voter_set::VoterId;

/// The notices of one asker over its present connections.
///
/// A voter that missed a reconfiguration answers no question of the voters that it made. So it is first told the number of
/// these, once, and asks the others who votes ([`Inquiry`](super::Inquiry)). A notice is a question of a [`Round`] of its own,
/// for which nobody waits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BehindNotices {
    /// The number that each voter has taken note of, since it last knew of earlier voters only.
    noted: BTreeMap<VoterId, u64>,
}

impl BehindNotices {
    /// No client counts as many rounds.
    const FIRST: u64 = 1 << 63;

    /// Whether this voter is to be given a notice before it is asked as one of the voters with this number, and as which
    /// round. `known`: the number of the voters that it knew of when the connection was made; `None` where there is no
    /// connection, or it has none.
    pub fn before_question(&self, voter: VoterId, number: u64, known: Option<u64>) -> Option<Round> {
        let is_behind = known.is_some_and(|known| known < number) && self.noted.get(&voter) != Some(&number);
        is_behind.then_some(Round(Self::FIRST | number))
    }

    /// Whether this is the round of a notice.
    pub const fn is_notice(round: Round) -> bool {
        round.0 >= Self::FIRST
    }

    /// A voter has answered a question of this round. If that was a notice, it has taken note of it.
    pub fn answered(&mut self, voter: VoterId, round: Round) {
        if Self::is_notice(round) {
            self.noted.insert(voter, round.0 ^ Self::FIRST);
        }
    }

    /// A voter says that it knows of the voters with the number `known` and of no later ones. If those of `number` are later, it
    /// could not find out yet, and is given a notice again.
    pub fn knows_only(&mut self, voter: VoterId, known: u64, number: u64) {
        if known < number {
            self.noted.remove(&voter);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const VOTER: VoterId = VoterId::from_bits(1);

    #[test]
    fn a_voter_that_is_behind_is_given_a_notice_until_it_takes_note() {
        let mut notices = BehindNotices::default();
        assert_eq!(notices.before_question(VOTER, 3, Some(3)), None, "it is not behind");
        assert_eq!(notices.before_question(VOTER, 3, None), None, "it has no voters yet, or cannot be asked");
        let round = notices.before_question(VOTER, 3, Some(2)).expect("it is behind");
        assert!(BehindNotices::is_notice(round));
        notices.answered(VOTER, Round(7));
        assert_eq!(notices.before_question(VOTER, 3, Some(2)), Some(round), "that was another question");
        notices.answered(VOTER, round);
        assert_eq!(notices.before_question(VOTER, 3, Some(2)), None, "once is enough");
        let later = notices.before_question(VOTER, 4, Some(2));
        assert!(later.is_some_and(|later| later != round), "there were voters after those");
        notices.knows_only(VOTER, 3, 3);
        assert_eq!(notices.before_question(VOTER, 3, Some(2)), None, "it has found out");
        notices.knows_only(VOTER, 2, 3);
        assert_eq!(notices.before_question(VOTER, 3, Some(2)), Some(round), "it could not find out");
    }
}
