//! Which voters answer and do not know yet who votes by now.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use primacy_core::quorum::VoterId;

use super::super::connection::{ConnectionHandle, ConnectionState};
use super::{Pool, VoterEvent};
use crate::peers::wire::Body;

/// How many times a voter that is behind is asked whether it has caught up, and the pause between.
const CATCH_UP_TURNS: u32 = 10;
const CATCH_UP_PAUSE: Duration = Duration::from_millis(100);

impl Pool {
    /// The voters that answer by the numbers of earlier voters, with these numbers. One that is told of later voters asks the others,
    /// so it is given a moment.
    pub(in super::super) async fn behind(&mut self) -> BTreeMap<VoterId, u64> {
        let number = self.cluster.number();
        let mut behind = BTreeMap::new();
        let mut open = BTreeSet::new();
        for (voter, _) in self.cluster.addresses() {
            if let Some(ConnectionState::Up { voter: there, cluster: Some(known), gives_evidence, .. }) =
                self.connection(voter).map(ConnectionHandle::state)
                && there == voter
                && known.number() < number
            {
                behind.insert(voter, known.number());
                // One of an earlier release does not tell its number.
                open.extend(gives_evidence.then_some(voter));
            }
        }
        for turn in 0..CATCH_UP_TURNS {
            open.retain(|voter| behind.contains_key(voter));
            if open.is_empty() {
                break;
            }
            if turn > 0 {
                tokio::time::sleep(CATCH_UP_PAUSE).await;
            }
            let (tag, mut asked) = (self.tag(), open.clone());
            open.iter().for_each(|voter| self.ask(*voter, tag, Body::Behind(number)));
            while !asked.is_empty() {
                match self.heard().await {
                    VoterEvent::Answer(voter, same, body) if same == tag => {
                        asked.remove(&voter);
                        match *body {
                            Body::Behind(own) if own >= number => drop(behind.remove(&voter)),
                            Body::Behind(own) => drop(behind.insert(voter, own)),
                            _ => {}
                        }
                    }
                    VoterEvent::Lost(voter, same) if same == tag => drop(asked.remove(&voter)),
                    _ => {}
                }
            }
        }
        behind
    }
}
