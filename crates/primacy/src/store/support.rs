//! How many voters support a leader.

use std::fmt;

use crate::Token;

/// Which voters support the leader of an election.
///
/// A leader is granted its lease by a majority. With each renewal the others support it, too, unless they cannot be reached. What
/// it has beyond a majority is what may fail without an end of its leadership.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LeaderSupport {
    /// The term that the voters were asked about.
    pub token: Token,
    /// All who vote; during a reconfiguration the old and the new ones.
    pub voters: Vec<VoterSupport>,
    /// Whether those that support it are a majority; during a reconfiguration of the old and of the new ones.
    pub is_majority: bool,
    /// How many of those that support it may be lost, whichever they are, and it can still renew its lease.
    pub spare: usize,
}

/// Whether one voter supports the leader.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct VoterSupport {
    /// Its name and where it listens.
    pub voter: String,
    /// Why it does not support the leader, for people; `None` if it does.
    pub obstacle: Option<String>,
    /// Whether it has answered.
    pub answers: bool,
}

impl LeaderSupport {
    /// How many voters support the leader.
    pub fn count(&self) -> usize {
        self.voters.iter().filter(|voter| voter.obstacle.is_none()).count()
    }
}

impl fmt::Display for LeaderSupport {
    /// How many support it, how many more may be lost, and why others do not.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (count, all) = (self.count(), self.voters.len());
        match count == all {
            true => write!(f, "all {all} support the leader")?,
            false => write!(f, "{count} of {all} support the leader")?,
        }
        match self.spare {
            _ if !self.is_majority => f.write_str(", which is no majority: it cannot renew its lease")?,
            0 => f.write_str("; none of them may be lost")?,
            spare => write!(f, "; {spare} of them may be lost")?,
        }
        for voter in &self.voters {
            if let Some(obstacle) = &voter.obstacle {
                write!(f, "; {}: {obstacle}", voter.voter)?;
            }
        }
        Ok(())
    }
}
