//! Who votes, for people: where each voter is, and what stands in the way to it.

use std::collections::BTreeMap;

use primacy_core::quorum::{LEAP_MOST, VoterId, beyond_majority};

use super::pool::Pool;
use crate::peers::config::{PeerAddress, Roster};

/// One of the voters.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct VoterStatus {
    /// What it is called, and where it listens.
    pub address: PeerAddress,
    /// Its identity.
    pub voter: VoterId,
    /// What stands in the way to it, or why it does not vote with the others yet. `None` if it can be asked.
    pub trouble: Option<String>,
}

/// Who votes.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Voters {
    /// Steps of exchanges so far: two for each exchange.
    pub number: u64,
    /// Those who vote; during an exchange the old ones.
    pub voters: Vec<VoterStatus>,
    /// During an exchange: the new ones.
    pub incoming: Option<Vec<VoterStatus>>,
}

impl Voters {
    /// How many more voters may be lost, whichever they are: a majority must be left, of the old and of the new ones during an
    /// exchange. None if there is no majority now.
    pub fn spare(&self) -> usize {
        let spare = |all: &[VoterStatus]| {
            let up = all.iter().filter(|place| place.trouble.is_none()).count();
            beyond_majority(up, all.len())
        };
        let of_new = self.incoming.as_deref().map(spare);
        of_new.into_iter().fold(spare(&self.voters), usize::min)
    }

    /// How many answer, and how many more may be lost, as a sentence.
    pub fn strength(&self) -> String {
        let count = self.voters.len();
        let up = self.voters.iter().filter(|place| place.trouble.is_none()).count();
        let answer =
            if up == count { format!("all {count} voters answer") } else { format!("{up} of {count} voters answer") };
        let lost = match (self.spare(), up == count) {
            (0, true) => "none may be lost".to_owned(),
            (0, false) => "no more may be lost".to_owned(),
            (spare, true) => format!("{spare} may be lost"),
            (spare, false) => format!("{spare} more may be lost"),
        };
        format!("{answer}; {lost}")
    }

    /// The command that finishes the exchange that is under way, if one is: the same as has begun it.
    pub fn finish(&self) -> Option<String> {
        let incoming = self.incoming.as_ref()?;
        let misses = |all: &[VoterStatus], one: &VoterStatus| {
            !all.iter().any(|other| (other.voter, &other.address) == (one.voter, &one.address))
        };
        let come = incoming.iter().filter(|new| misses(&self.voters, new)).map(|new| new.address.to_string());
        let go = self.voters.iter().filter(|old| misses(incoming, old)).map(|old| old.address.name().to_owned());
        let (come, go): (Vec<_>, Vec<_>) = (come.collect(), go.collect());
        Some(match (&*come, &*go) {
            (come, []) => format!("primacy peer add {}", come.join(" ")),
            ([], go) => format!("primacy peer remove {}", go.join(" ")),
            ([comes], [goes]) => format!("primacy peer replace {goes} {comes}"),
            _ => "primacy peer add, remove or replace, the same as before".to_owned(),
        })
    }
}

/// Why a voter that answers does not vote with the others. `own`: the number of the voters that it knows of.
fn lag(peer: &PeerAddress, own: u64, number: u64) -> String {
    if number.saturating_sub(own) > LEAP_MOST {
        let name = peer.name();
        format!(
            "it is too many exchanges of voters behind to be brought up to date; start it with an empty folder, then: primacy peer \
             replace {name} {peer}"
        )
    } else {
        "it has not learned yet who votes by now; if it does not catch up: primacy peer confirm".to_owned()
    }
}

/// `behind`: those that know of earlier voters, by [`Pool::behind`].
pub(super) fn voters_of(pool: &Pool, behind: &BTreeMap<VoterId, u64>) -> Voters {
    let number = pool.cluster.number();
    let places = |roster: &Roster| {
        let place = |(voter, address): &(VoterId, PeerAddress)| VoterStatus {
            address: address.clone(),
            voter: *voter,
            trouble: pool.trouble(*voter).or_else(|| Some(lag(address, *behind.get(voter)?, number))),
        };
        roster.values().map(place).collect()
    };
    let cluster = &pool.cluster;
    Voters { number: cluster.number(), voters: places(cluster.voters()), incoming: cluster.incoming().map(places) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(text: &[&str]) -> Vec<VoterStatus> {
        // The number before the name is who it is.
        let place = |text: &&str| {
            let (who, address) = text.split_once('=').expect("an identity");
            let voter = VoterId::from_bits(who.parse().expect("a number"));
            VoterStatus { address: address.parse().expect("an address"), voter, trouble: None }
        };
        text.iter().map(place).collect()
    }

    #[test]
    fn a_voter_that_is_too_far_behind_is_replaced_and_another_is_confirmed() {
        let peer = "c@h:3".parse().expect("an address");
        assert!(lag(&peer, 4, 4 + LEAP_MOST).ends_with("primacy peer confirm"));
        assert!(lag(&peer, 4, 5 + LEAP_MOST).ends_with("primacy peer replace c c@h:3"));
    }

    #[test]
    fn the_command_that_finishes_an_exchange_is_the_one_that_began_it() {
        let old = ["1=a@h:1", "2=b@h:2", "3=c@h:3"];
        for (new, command) in [
            (&["1=a@h:1", "2=b@h:2", "3=c@h:3", "4=d@h:4"][..], "primacy peer add d@h:4"),
            (&["1=a@h:1"], "primacy peer remove b c"),
            (&["1=a@h:1", "2=b@h:2", "4=d@h:4"], "primacy peer replace c d@h:4"),
            (&["1=a@h:1", "2=b@h:2", "4=c@h:3"], "primacy peer replace c c@h:3"),
            // It has moved.
            (&["1=a@h:1", "2=b@h:2", "3=c@h:4"], "primacy peer replace c c@h:4"),
            (&["1=a@h:1", "4=d@h:4"], "primacy peer add, remove or replace, the same as before"),
        ] {
            let voters = Voters { number: 1, voters: places(&old), incoming: Some(places(new)) };
            assert_eq!(voters.finish().as_deref(), Some(command));
        }
        assert_eq!(Voters { number: 0, voters: places(&old), incoming: None }.finish(), None);
    }
}
