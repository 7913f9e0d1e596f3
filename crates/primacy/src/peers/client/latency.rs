//! Round-trip times to the voters: each is asked, again and again, what it can answer without its disk.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use primacy_core::quorum::VoterId;
use tracing::debug;

use super::endpoints::VoterEndpoints;
use super::pool::{Pool, VoterEvent};
use crate::clock;
use crate::peers::config::PeerAddress;
use crate::peers::wire::Body;
use crate::select::Score;
use crate::store::{BoxFuture, LatencyProbe, LatencyReport, VoterLatency};

/// How many recent round trips of a voter are kept. Their median counts.
const TRIPS: usize = 9;

/// How many answers in a row must be lost until a voter counts as away. One lost answer says nothing about its round trip.
const MISSES: u32 = 3;

/// What is known of the round trip to one voter.
#[derive(Debug, Default)]
struct VoterRoundTrip {
    /// The last ones, the oldest first.
    trips: VecDeque<Duration>,
    misses: u32,
    requests: Option<Score>,
}

impl VoterRoundTrip {
    fn answered(&mut self, trip: Duration, requests: Option<u64>) {
        self.misses = 0;
        self.trips.push_back(trip);
        if self.trips.len() > TRIPS {
            self.trips.pop_front();
        }
        let thousandths = requests.map(|requests| i64::try_from(requests).unwrap_or(i64::MAX));
        self.requests = thousandths.map(|thousandths| Score::from_thousandths(thousandths).unwrap_or(Score::MOST));
    }

    fn missed(&mut self) {
        self.misses = self.misses.saturating_add(1);
        if self.misses >= MISSES {
            // When it answers again, its round trip may be another.
            *self = Self { misses: self.misses, ..Self::default() };
        }
    }

    /// The lower one of two in the middle: what makes a round trip seem long is rarely the network.
    fn round_trip(&self) -> Option<Duration> {
        let mut trips: Vec<Duration> = self.trips.iter().copied().collect();
        trips.sort_unstable();
        trips.get(trips.len().saturating_sub(1) / 2).copied()
    }
}

/// The round trips to all voters.
#[derive(Debug, Default)]
pub(super) struct RoundTrips(BTreeMap<VoterId, VoterRoundTrip>);

impl RoundTrips {
    /// Asks every voter once, and waits until each has answered or will not.
    pub(super) async fn measure(&mut self, pool: &mut Pool) {
        pool.settle().await;
        let tag = pool.tag();
        // While voters are exchanged, those that vote until then: the new ones are asked from then on.
        let voters: BTreeSet<VoterId> = pool.cluster.voters().values().map(|(voter, _)| *voter).collect();
        self.0.retain(|voter, _| voters.contains(voter));
        let mut asked = BTreeMap::new();
        for voter in voters {
            // One that is not there would be asked when it comes, and its absence would be measured.
            if pool.can_echo(voter) {
                asked.insert(voter, clock::now());
                pool.ask(voter, tag, Body::Echo(true));
            } else {
                self.0.entry(voter).or_default().missed();
            }
        }
        while !asked.is_empty() {
            match pool.heard().await {
                VoterEvent::Answer(voter, same, body) if same == tag => {
                    let now = clock::now();
                    let round_trip = self.0.entry(voter).or_default();
                    match (asked.remove(&voter), &*body) {
                        (Some(since), Body::Echoed(echoed)) => round_trip.answered(now.since(since), echoed.requests),
                        _ => round_trip.missed(),
                    }
                }
                VoterEvent::Lost(voter, same) if same == tag => {
                    asked.remove(&voter);
                    self.0.entry(voter).or_default().missed();
                }
                _ => {}
            }
        }
    }

    /// What is known by now, by the names of the voters.
    pub(super) fn report(&self, pool: &Pool) -> LatencyReport {
        let place = |(voter, address): &(VoterId, PeerAddress)| {
            let round_trip = self.0.get(voter);
            VoterLatency {
                name: address.name().to_owned(),
                address: address.place(),
                round_trip: round_trip.and_then(VoterRoundTrip::round_trip),
                requests: round_trip.and_then(|round_trip| round_trip.requests),
            }
        };
        LatencyReport { voters: pool.cluster.voters().values().map(place).collect() }
    }
}

/// Measures for one candidate, over connections of its own: a question of an election waits for no other.
pub(super) struct PeersLatencyProbe {
    endpoints: VoterEndpoints,
    name: String,
    /// Once a majority has been reached.
    pool: Option<Pool>,
    round_trips: RoundTrips,
}

impl PeersLatencyProbe {
    pub(super) fn new(endpoints: VoterEndpoints, name: String) -> Self {
        Self { endpoints, name, pool: None, round_trips: RoundTrips::default() }
    }
}

impl LatencyProbe for PeersLatencyProbe {
    fn round(&mut self) -> BoxFuture<'_, LatencyReport> {
        Box::pin(async {
            let pool = match &mut self.pool {
                Some(pool) => pool,
                none => match Pool::open(&self.endpoints, &self.name, None).await {
                    Ok(pool) => none.insert(pool),
                    Err(error) => {
                        debug!(%error, "the ways to the voters cannot be measured yet");
                        return LatencyReport::default();
                    }
                },
            };
            self.round_trips.measure(pool).await;
            self.round_trips.report(pool)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(count: u64) -> Duration {
        Duration::from_millis(count)
    }

    #[test]
    fn a_round_trip_is_as_long_as_it_mostly_is_and_follows_when_it_changes() {
        let mut round_trip = VoterRoundTrip::default();
        assert_eq!(round_trip.round_trip(), None);
        for (trip, median) in [(30, 30), (10, 10), (20, 20), (900, 20), (21, 21), (900, 21)] {
            round_trip.answered(ms(trip), None);
            assert_eq!(round_trip.round_trip(), Some(ms(median)), "after {trip}");
        }
        (0..TRIPS / 2 + 1).for_each(|_| round_trip.answered(ms(70), None));
        assert_eq!(round_trip.round_trip(), Some(ms(70)));
    }

    #[test]
    fn one_lost_answer_is_nothing_and_three_in_a_row_are_a_voter_that_is_away() {
        let mut round_trip = VoterRoundTrip::default();
        round_trip.answered(ms(10), Some(1_500));
        round_trip.missed();
        round_trip.missed();
        round_trip.answered(ms(10), Some(1_500));
        round_trip.missed();
        round_trip.missed();
        assert_eq!((round_trip.round_trip(), round_trip.requests), (Some(ms(10)), "1.5".parse().ok()));
        round_trip.missed();
        assert_eq!((round_trip.round_trip(), round_trip.requests), (None, None));
        round_trip.answered(ms(80), None);
        assert_eq!(
            (round_trip.round_trip(), round_trip.requests),
            (Some(ms(80)), None),
            "what was before is forgotten"
        );
        round_trip.answered(ms(80), Some(u64::MAX));
        assert_eq!(round_trip.requests, Some(Score::MOST));
    }
}
