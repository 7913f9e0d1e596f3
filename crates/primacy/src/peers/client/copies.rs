//! Finds two processes that answer as one voter, because one runs on a copy of the other's folder, and voters whose file went back.
//!
//! Each process of a voter draws a random number, and each write of its file counts up a generation; both are told to each client
//! that connects. A restart is another process with a later generation, since a voter writes its file before it answers. So these
//! are proofs of a copy, or of a file that is older than one that has been seen: a process that answers again after another
//! did, and another process whose generation is not later. Only connections count that were begun after the other process was
//! noted: an answer may be late.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use primacy_core::quorum::VoterId;
use tracing::error;

use crate::peers::config::PeerAddress;
use crate::{Instant, clock};

/// For how many voters the processes that answered are remembered.
const VOTERS_MOST: usize = 64;

/// How many earlier processes of a voter are remembered.
const FORMER_MOST: usize = 16;

/// For how long after a proof a voter is not counted.
const DOUBT: Duration = Duration::from_secs(60);

/// Finds copies of voters: which processes have answered as which voter.
#[derive(Debug, Default)]
pub(crate) struct CopyDetector(Mutex<BTreeMap<VoterId, ProcessHistory>>);

#[derive(Debug)]
struct ProcessHistory {
    process: Vec<u8>,
    generation: u64,
    noted: Instant,
    former: VecDeque<Vec<u8>>,
    /// Until when it is not counted, and why.
    doubted: Option<(Instant, String)>,
}

impl CopyDetector {
    /// A connection that was begun then has been answered by this process of a voter, whose file has been written this many times.
    ///
    /// # Errors
    /// If it is proven that two processes answer as this voter, or that its file went back: then it must not be counted.
    pub(crate) fn note(
        &self,
        process: (VoterId, &[u8], u64),
        peer: &PeerAddress,
        began: Instant,
    ) -> Result<(), String> {
        self.saw(process, peer, began, clock::now())
    }

    fn saw(
        &self,
        (voter, process, generation): (VoterId, &[u8], u64),
        peer: &PeerAddress,
        began: Instant,
        now: Instant,
    ) -> Result<(), String> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if process.len() != size_of::<u128>() {
            // An earlier release does not keep the generation: after it the count begins anew, and that is no older file.
            all.remove(&voter);
            return Ok(());
        }
        if generation == 0 {
            return Ok(()); // it has not begun
        }
        if all.len() >= VOTERS_MOST && !all.contains_key(&voter) {
            return Ok(());
        }
        let new = || ProcessHistory {
            process: process.to_vec(),
            generation,
            noted: now,
            former: VecDeque::new(),
            doubted: None,
        };
        let known = all.entry(voter).or_insert_with(new);
        let proof = known.saw(process, generation, began, now);
        if let Some(proof) = proof {
            let is_news = known.doubted.as_ref().is_none_or(|(until, _)| *until <= now);
            let why = format!("{proof}: see 'Copies of a voter' in the manual");
            if is_news {
                error!(%peer, %voter, "{why}");
            }
            known.doubted = Some((now + DOUBT, why));
        }
        match &known.doubted {
            Some((until, why)) if now < *until => Err(why.clone()),
            _ => Ok(()),
        }
    }
}

impl ProcessHistory {
    /// What this answer proves.
    fn saw(&mut self, process: &[u8], generation: u64, began: Instant, now: Instant) -> Option<&'static str> {
        if process == self.process {
            self.generation = self.generation.max(generation);
            return None;
        }
        if began <= self.noted {
            return None;
        }
        let has_been = self.former.iter().any(|former| former == process);
        let is_later = generation > self.generation;
        if is_later {
            self.former.push_back(std::mem::replace(&mut self.process, process.to_vec()));
            if self.former.len() > FORMER_MOST {
                self.former.pop_front();
            }
            (self.generation, self.noted) = (generation, now);
        }
        match (has_been, is_later) {
            (true, _) => Some("two processes answer as this voter, one of them with a copy of the other's folder"),
            (false, false) => Some("this voter's file went back: it is a copy, or an older state was restored"),
            (false, true) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const VOTER: VoterId = VoterId::from_bits(1);

    /// Each answer is the process, its generation, when the connection was begun, and when it was answered.
    fn told(answers: &[(u8, u64, u64, u64)]) -> Vec<bool> {
        let seen = CopyDetector::default();
        let peer = "a@h:1".parse().expect("an address");
        let at = |seconds| Instant::ZERO + Duration::from_secs(seconds);
        let one = |(process, generation, began, now): &(u8, u64, u64, u64)| {
            seen.saw((VOTER, &[*process; 16], *generation), &peer, at(*began), at(*now)).is_ok()
        };
        answers.iter().map(one).collect()
    }

    #[test]
    fn a_voter_that_restarts_again_and_again_is_itself() {
        assert!(told(&[(1, 5, 0, 1), (1, 9, 2, 3), (2, 10, 4, 5), (2, 10, 6, 7), (3, 11, 8, 9)]).iter().all(|ok| *ok));
    }

    #[test]
    fn an_answer_that_is_late_proves_nothing() {
        // The first process answered before it ended, which is heard after the second has.
        assert_eq!(told(&[(1, 5, 0, 1), (2, 6, 3, 4), (1, 5, 2, 5), (2, 6, 6, 7)]), [true; 4]);
    }

    #[test]
    fn two_that_answer_by_turns_are_a_copy_and_are_not_counted_for_a_while() {
        let by_turns = told(&[(1, 5, 0, 1), (2, 6, 2, 3), (1, 9, 4, 5), (1, 9, 6, 7), (1, 9, 70, 71)]);
        assert_eq!(by_turns, [true, true, false, false, true]);
        assert_eq!(told(&[(1, 5, 0, 1), (2, 6, 2, 3), (1, 5, 4, 5)]), [true, true, false], "without a write since");
    }

    #[test]
    fn a_count_that_begins_anew_after_an_earlier_release_is_no_older_file() {
        let seen = CopyDetector::default();
        let peer = "a@h:1".parse().expect("an address");
        let at = |seconds| Instant::ZERO + Duration::from_secs(seconds);
        let one = |process: &[u8], generation, began| {
            seen.saw((VOTER, process, generation), &peer, at(began), at(began + 1)).is_ok()
        };
        assert!(one(&[1; 16], 1_000, 0));
        assert!(one(&[], 0, 2), "it says neither");
        assert!(one(&[2; 16], 1, 4));
        assert!(one(&[3; 16], 2, 6) && !one(&[4; 16], 1, 8), "from then on it is counted again");
    }

    #[test]
    fn a_file_that_went_back_is_noticed() {
        assert_eq!(told(&[(1, 50, 0, 1), (2, 20, 2, 3)]), [true, false]);
        assert_eq!(told(&[(1, 50, 0, 1), (2, 50, 2, 3)]), [true, false], "both began with the same file");
        assert_eq!(told(&[(1, 50, 0, 1), (2, 0, 2, 3)]), [true, true], "it has not begun");
    }
}
