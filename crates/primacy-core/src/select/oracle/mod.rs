//! Oracles: where a peer's score comes from, and the six of the paper.
//!
//! A peer scores itself only and tells the others the result. A score may be *stated*, by a flag, a command's output or
//! the program, or be *measured*, by one of the six [`Metric`]s from what the peer knows of the others, its [`Measurements`].
//! Several metrics in order of priority give [`Scores`], which a [`Selector`](super::Selector) turns into a rank in
//! classes that do not flap.
//!
//! ```
//! use std::time::Duration;
//! use primacy_core::contest::PeerId;
//! use primacy_core::select::{Measurements, Metric, Oracle, ScoreOracle};
//!
//! let [a, b, c] = [1, 2, 3].map(PeerId);
//! let mut facts = Measurements::new([a, b, c]);
//! facts.set_round_trip(a, b, Duration::from_millis(10));
//! facts.set_round_trip(a, c, Duration::from_millis(80));
//! let fastest = Oracle { metric: Metric::ConsensusLatency, peer: a, facts };
//! assert_eq!(fastest.score(0).unwrap().to_string(), "-10000", "10 ms with b, in microseconds, and less is better");
//! ```
//!
//! Source: Becker et al. 2011 §2 and §3.3.

mod facts;

use alloc::string::String;
use core::fmt;
use core::str::FromStr;

pub use facts::Measurements;

use super::score::{Score, ScoreError, Scores};
use crate::contest::PeerId;
use crate::ids::escape;

/// Gives a peer's own score: the paper's `get-score`.
///
/// Two calls with the same knowledge give the same score on every machine: no floating point, no clock, no randomness.
pub trait ScoreOracle {
    /// The score in this election, of which more is better; `None` while too little is known. Only
    /// [`Metric::Rotating`] looks at the epoch.
    fn score(&self, epoch: u64) -> Option<Score>;
}

/// A score that was stated: by a flag, by the last line of a command, or by the program whenever it likes.
impl ScoreOracle for Option<Score> {
    fn score(&self, _epoch: u64) -> Option<Score> {
        *self
    }
}

/// What a measured score is about.
///
/// Latencies are scores in microseconds with their sign turned, exact to the nanosecond; counts are given in thousands,
/// exact to one, so that a transaction number of ZooKeeper's kind fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Metric {
    /// The longest history: least to fetch before it can lead.
    History,
    /// The most requests from clients.
    RequestRate,
    /// The shortest time to hear from a majority.
    ConsensusLatency,
    /// The shortest mean time of a request, by equation 1.
    MeanLatency,
    /// The shortest time of the slowest request, by equation 2.
    WorstLatency,
    /// One after another by id, one in each epoch: for comparison.
    Rotating,
}

impl Metric {
    /// All six.
    pub const ALL: [Self; 6] = [
        Self::History,
        Self::RequestRate,
        Self::ConsensusLatency,
        Self::MeanLatency,
        Self::WorstLatency,
        Self::Rotating,
    ];

    /// The name by which it is chosen on a command line: the paper's.
    pub const fn name(self) -> &'static str {
        match self {
            Self::History => "history",
            Self::RequestRate => "request",
            Self::ConsensusLatency => "consensus",
            Self::MeanLatency => "latency",
            Self::WorstLatency => "worst-case",
            Self::Rotating => "rotating",
        }
    }
}

impl Measurements {
    /// The score of a peer in an epoch, or `None` while too little is known.
    pub fn score(&self, metric: Metric, peer: PeerId, epoch: u64) -> Option<Score> {
        match metric {
            Metric::History => self.history(peer).map(more),
            Metric::RequestRate => self.rate(peer).map(more),
            Metric::ConsensusLatency => self.consensus_nanos(peer).map(less),
            Metric::MeanLatency => self.mean_nanos(peer).map(less),
            Metric::WorstLatency => self.worst_nanos(peer).map(less),
            Metric::Rotating => self.turn(epoch).map(|turn| Score::from(i32::from(turn == peer))),
        }
    }

    /// The scores of a peer by several metrics, the first of which counts most; `None` while one is not known.
    ///
    /// # Errors
    /// [`ScoreError::TooMany`] when there are more than [`SCORES_MAX`](super::SCORES_MAX).
    pub fn scores(&self, metrics: &[Metric], peer: PeerId, epoch: u64) -> Result<Option<Scores>, ScoreError> {
        let scores = metrics.iter().map(|metric| self.score(*metric, peer, epoch));
        scores.collect::<Option<_>>().map(Scores::new).transpose()
    }
}

/// There is no metric of this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no oracle '{name}'; choose history, request, consensus, latency, worst-case or rotating")]
pub struct UnknownMetric {
    /// The name, escaped.
    name: String,
}

impl FromStr for Metric {
    type Err = UnknownMetric;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let found = Self::ALL.into_iter().find(|metric| metric.name() == text);
        found.ok_or_else(|| UnknownMetric { name: escape(text) })
    }
}

impl fmt::Display for Metric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// One of the paper's oracles at one peer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Oracle {
    /// What it scores.
    pub metric: Metric,
    /// Whom it scores: the peer itself.
    pub peer: PeerId,
    /// What that peer knows.
    pub facts: Measurements,
}

impl ScoreOracle for Oracle {
    fn score(&self, epoch: u64) -> Option<Score> {
        self.facts.score(self.metric, self.peer, epoch)
    }
}

fn more(count: u64) -> Score {
    i64::try_from(count).ok().and_then(|count| Score::from_thousandths(count).ok()).unwrap_or(Score::MOST)
}

fn less(count: u64) -> Score {
    Score::from_thousandths(-more(count).thousandths()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::select::{Classes, Names, Selector};
    use alloc::string::ToString;
    use alloc::vec;
    use core::time::Duration;

    const PEERS: [PeerId; 4] = [PeerId(1), PeerId(2), PeerId(3), PeerId(4)];

    #[test]
    fn every_metric_is_chosen_by_its_name() {
        for metric in Metric::ALL {
            assert_eq!(metric.to_string().parse(), Ok(metric));
        }
        let error = "fast\u{1b}".parse::<Metric>().expect_err("no metric").to_string();
        assert!(error.contains("worst-case") && !error.contains('\u{1b}'), "{error}");
    }

    #[test]
    fn a_score_is_stated_by_a_flag_or_a_commands_output() {
        let stated: Option<Score> = " 0.25\n".parse().ok();
        assert_eq!(stated.score(7).map(|score| score.to_string()), Some("0.25".into()));
        assert_eq!(None.score(7), None, "none yet");
    }

    #[test]
    fn counts_are_better_when_larger_and_latencies_when_smaller() {
        let [a, b, c, _] = PEERS;
        let mut facts = Measurements::new([a, b, c]);
        facts.set_history(a, 0x5_0000_0001);
        facts.set_history(b, 0x5_0000_0002);
        facts.set_round_trip(a, b, Duration::from_nanos(5));
        facts.set_round_trip(b, c, Duration::from_nanos(4));
        let score = |metric: Metric, peer| facts.score(metric, peer, 0);
        assert!(score(Metric::History, a) < score(Metric::History, b));
        assert!(score(Metric::ConsensusLatency, a) < score(Metric::ConsensusLatency, b), "by a nanosecond");
        assert_eq!(score(Metric::History, c), None);
        assert_eq!(score(Metric::RequestRate, a), None);
        facts.set_history(c, u64::MAX);
        assert_eq!(facts.score(Metric::History, c, 0), Some(Score::MOST), "as large as a score can be");
    }

    #[test]
    fn rotation_names_the_next_peer_in_each_epoch() {
        let facts = Measurements::new(PEERS);
        let winners = (3..8).map(|epoch| {
            PEERS.into_iter().max_by_key(|peer| facts.score(Metric::Rotating, *peer, epoch)).expect("there are four").0
        });
        assert_eq!(winners.collect::<vec::Vec<_>>(), [4, 1, 2, 3, 4]);
    }

    #[test]
    fn the_fattest_among_the_fastest_leads() {
        // §5: latency in classes of 10 ms, then the longest history. Three of four peers are near each other.
        let [a, b, c, d] = PEERS;
        let mut facts = Measurements::new(PEERS);
        for (from, to, millis) in [(a, b, 12), (a, c, 14), (b, c, 13), (a, d, 80), (b, d, 80), (c, d, 80)] {
            facts.set_round_trip(from, to, Duration::from_millis(millis));
        }
        for (peer, history) in [(a, 900), (b, 920), (c, 910), (d, 999)] {
            facts.set_history(peer, history);
        }
        let both = [Metric::ConsensusLatency, Metric::History];
        let rank = |peer| {
            let classes: Classes = "10000:0".parse().expect("10 ms");
            let mut selector = Selector::new(Names::default(), vec![classes]).expect("one");
            let scores = facts.scores(&both, peer, 0).expect("two").expect("all known");
            selector.rank(&"peer".parse().expect("a label"), &scores).expect("near 0")
        };
        assert_eq!(PEERS.into_iter().min_by_key(|peer| rank(*peer)), Some(b));
        let unknown = Measurements::new(PEERS).scores(&both, a, 0);
        assert_eq!(unknown, Ok(None));
        assert!(facts.scores(&[Metric::History; 8], a, 0).is_err());
    }
}
