//! Which voters support a leader, as text and as JSON.

use primacy::store::{LeaderSupport, VoterSupport};
use serde::Serialize;

use super::style::Tone;
use super::table::Cell;

/// Which voters support the leader.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Support {
    token: u64,
    supporting: usize,
    is_majority: bool,
    spare: usize,
    voters: Vec<Supporter>,
}

/// Whether one voter does.
#[derive(Clone, Debug, Serialize)]
struct Supporter {
    voter: String,
    answers: bool,
    supports: bool,
    obstacle: Option<String>,
}

impl From<&LeaderSupport> for Support {
    fn from(support: &LeaderSupport) -> Self {
        let voter = |voter: &VoterSupport| Supporter {
            voter: voter.voter.clone(),
            answers: voter.answers,
            supports: voter.obstacle.is_none(),
            obstacle: voter.obstacle.clone(),
        };
        let voters = support.voters.iter().map(voter).collect();
        Self {
            token: support.token.get(),
            supporting: support.count(),
            is_majority: support.is_majority,
            spare: support.spare,
            voters,
        }
    }
}

/// How many support it, and why others do not.
pub(super) fn cell(support: &LeaderSupport) -> Cell {
    let tone = if support.count() == support.voters.len() { Tone::Plain } else { Tone::Notice };
    Cell::new(support.to_string(), tone)
}
