//! How far away those are that keep elections, and where requests arrive: what a candidate's score can be measured by.

use std::collections::BTreeMap;
use std::time::Duration;

use primacy_core::contest::PeerId;
use primacy_core::select::{Measurements, Metric, Score, Scores};

use super::BoxFuture;

/// Measures the ways from here to those that keep elections.
pub trait LatencyProbe: Send {
    /// Asks all of them once, and returns what is known by then. Ends in a few seconds, also if nobody answers. Dropped before it has
    /// ended, it has measured nothing.
    fn round(&mut self) -> BoxFuture<'_, LatencyReport>;
}

/// What is known of the ways from here. Nothing, before those that keep elections have been reached for the first time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LatencyReport {
    /// Those that keep elections, each at a place of its own, in a fixed order.
    pub voters: Vec<VoterLatency>,
}

/// One of those that keep elections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VoterLatency {
    /// For people.
    pub name: String,
    /// Where it listens.
    pub address: String,
    /// How long a question there and its answer take, without anything being written; `None` while it does not answer.
    pub round_trip: Option<Duration>,
    /// How many requests arrive there in a unit of time, if it tells.
    pub requests: Option<Score>,
}

impl LatencyReport {
    /// The scores of a candidate that runs here, the first of which counts most; `None` while one of them cannot be said.
    ///
    /// A majority is one of all places. Of those that do not answer nothing else is counted. The requests of the candidate are
    /// those of the place that is nearest.
    pub fn scores(&self, metrics: &[Metric]) -> Option<Scores> {
        self.facts().scores(metrics, HERE, 0).ok().flatten()
    }

    /// Whether any place says how many requests arrive there.
    pub fn tells_requests(&self) -> bool {
        self.voters.iter().any(|place| place.requests.is_some())
    }

    fn facts(&self) -> Measurements {
        let places: BTreeMap<PeerId, &VoterLatency> = (1..).map(PeerId).zip(&self.voters).collect();
        let mut facts = Measurements::new(places.keys().copied());
        for (peer, place) in &places {
            if let Some(trip) = place.round_trip {
                facts.set_round_trip(HERE, *peer, trip);
            }
            if let Some(requests) = place.requests {
                facts.set_rate(*peer, thousandths(requests));
            }
        }
        let nearest =
            self.voters.iter().filter(|place| place.round_trip.is_some()).min_by_key(|place| place.round_trip);
        if let Some(requests) = nearest.and_then(|place| place.requests) {
            facts.set_rate(HERE, thousandths(requests));
        }
        facts
    }
}

/// The candidate, which is none of the places.
const HERE: PeerId = PeerId(0);

fn thousandths(requests: Score) -> u64 {
    u64::try_from(requests.thousandths()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Places at these round trips in milliseconds, where this many requests arrive; `-` for one that does not say.
    fn report(places: &[(Option<u64>, &str)]) -> LatencyReport {
        let place = |(at, (trip, requests)): (usize, &(Option<u64>, &str))| VoterLatency {
            name: format!("p{at}"),
            address: format!("p{at}:1"),
            round_trip: trip.map(Duration::from_millis),
            requests: requests.parse().ok(),
        };
        LatencyReport { voters: places.iter().enumerate().map(place).collect() }
    }

    fn told(report: &LatencyReport, metric: Metric) -> Option<String> {
        report.scores(&[metric]).map(|scores| scores.to_string())
    }

    #[test]
    fn a_candidate_is_scored_by_its_ways_to_all_and_by_where_requests_arrive() {
        let five = [(Some(0), "1"), (Some(20), "0.5"), (Some(30), "-"), (Some(90), "2.5"), (Some(100), "-")];
        let five = report(&five);
        assert_eq!(told(&five, Metric::ConsensusLatency).as_deref(), Some("-30000"));
        assert_eq!(told(&five, Metric::WorstLatency).as_deref(), Some("-130000"));
        // 30 + (1 × 0 + 0.5 × 20 + 2.5 × 90) / 4 ms.
        assert_eq!(told(&five, Metric::MeanLatency).as_deref(), Some("-88750"));
        assert_eq!(told(&five, Metric::RequestRate).as_deref(), Some("1"), "those of the nearest");
        let both = five.scores(&[Metric::ConsensusLatency, Metric::RequestRate]).expect("both are known");
        assert_eq!(both.to_string(), "-30000,1");
    }

    #[test]
    fn who_does_not_answer_is_left_out_and_without_a_majority_nothing_is_known() {
        let three = report(&[(Some(5), "-"), (Some(40), "-"), (None, "7")]);
        assert_eq!(told(&three, Metric::ConsensusLatency).as_deref(), Some("-40000"), "a majority is of all");
        assert_eq!(told(&three, Metric::WorstLatency).as_deref(), Some("-80000"));
        assert_eq!(told(&three, Metric::MeanLatency).as_deref(), Some("-40000"), "no requests arrive where nobody is");
        assert_eq!(told(&three, Metric::RequestRate), None, "the nearest does not say");
        assert!(three.tells_requests());
        let one = report(&[(Some(5), "9"), (None, "-"), (None, "-")]);
        for metric in [Metric::ConsensusLatency, Metric::MeanLatency, Metric::WorstLatency] {
            assert_eq!(told(&one, metric), None);
            assert_eq!(told(&LatencyReport::default(), metric), None);
        }
    }

    #[test]
    fn without_any_requests_the_mean_is_the_time_to_a_majority() {
        for requests in ["-", "0", "-3"] {
            let three = report(&[(Some(5), requests), (Some(40), requests), (Some(90), requests)]);
            assert_eq!(told(&three, Metric::MeanLatency), told(&three, Metric::ConsensusLatency), "{requests}");
        }
    }
}
