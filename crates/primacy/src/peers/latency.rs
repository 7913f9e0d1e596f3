//! How long the ways from here to the voters are: each is asked, again and again, what it can answer without its disk.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use primacy_core::quorum::VoterId;
use tracing::debug;

use super::address::PeerAddress;
use super::pool::{Heard, Places, Pool};
use super::wire::Body;
use crate::clock;
use crate::select::Score;
use crate::store::{BoxFuture, LatencyProbe, LatencyReport, VoterLatency};

/// The round trip of a way is the median of so many.
const TRIPS: usize = 9;

/// A voter that has not answered so often in a row does not answer. One lost answer says nothing about the way.
const MISSES: u32 = 3;

/// What is known of the way to one voter.
#[derive(Debug, Default)]
struct Way {
    /// The last ones, the oldest first.
    trips: VecDeque<Duration>,
    misses: u32,
    requests: Option<Score>,
}

impl Way {
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
            // When it answers again, its way may be another.
            *self = Self { misses: self.misses, ..Self::default() };
        }
    }

    /// The lower one of two in the middle: what makes a way seem long is rarely the way.
    fn round_trip(&self) -> Option<Duration> {
        let mut trips: Vec<Duration> = self.trips.iter().copied().collect();
        trips.sort_unstable();
        trips.get(trips.len().saturating_sub(1) / 2).copied()
    }
}

/// All ways from here.
#[derive(Debug, Default)]
pub(super) struct Ways(BTreeMap<VoterId, Way>);

impl Ways {
    /// Asks every voter once, and waits until each has answered or will not.
    pub(super) async fn measure(&mut self, pool: &mut Pool) {
        pool.settle().await;
        let tag = pool.tag();
        // While voters are exchanged, those that vote until then: the new ones are asked from then on.
        let voters: BTreeSet<VoterId> = pool.cluster.voters().values().map(|(voter, _)| *voter).collect();
        self.0.retain(|voter, _| voters.contains(voter));
        let mut asked = BTreeMap::new();
        for voter in voters {
            // One that is not there would be asked when it comes, which is no matter of the way.
            if pool.can_echo(voter) {
                asked.insert(voter, clock::now());
                pool.ask(voter, tag, Body::Echo(true));
            } else {
                self.0.entry(voter).or_default().missed();
            }
        }
        while !asked.is_empty() {
            match pool.heard().await {
                Heard::Answer(voter, same, body) if same == tag => {
                    let now = clock::now();
                    let way = self.0.entry(voter).or_default();
                    match (asked.remove(&voter), &*body) {
                        (Some(since), Body::Echoed(echoed)) => way.answered(now.since(since), echoed.requests),
                        _ => way.missed(),
                    }
                }
                Heard::Lost(voter, same) if same == tag => {
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
            let way = self.0.get(voter);
            VoterLatency {
                name: address.name().to_owned(),
                address: address.place(),
                round_trip: way.and_then(Way::round_trip),
                requests: way.and_then(|way| way.requests),
            }
        };
        LatencyReport { voters: pool.cluster.voters().values().map(place).collect() }
    }
}

/// Measures for one candidate, over connections of its own: a question of an election waits for no other.
pub(super) struct PeersLatencyProbe {
    places: Places,
    name: String,
    /// Once a majority has been reached.
    pool: Option<Pool>,
    ways: Ways,
}

impl PeersLatencyProbe {
    pub(super) fn new(places: Places, name: String) -> Self {
        Self { places, name, pool: None, ways: Ways::default() }
    }
}

impl LatencyProbe for PeersLatencyProbe {
    fn round(&mut self) -> BoxFuture<'_, LatencyReport> {
        Box::pin(async {
            let pool = match &mut self.pool {
                Some(pool) => pool,
                none => match Pool::open(&self.places, &self.name, None).await {
                    Ok(pool) => none.insert(pool),
                    Err(error) => {
                        debug!(%error, "the ways to the voters cannot be measured yet");
                        return LatencyReport::default();
                    }
                },
            };
            self.ways.measure(pool).await;
            self.ways.report(pool)
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
    fn a_way_is_as_long_as_it_mostly_is_and_follows_when_it_changes() {
        let mut way = Way::default();
        assert_eq!(way.round_trip(), None);
        for (trip, median) in [(30, 30), (10, 10), (20, 20), (900, 20), (21, 21), (900, 21)] {
            way.answered(ms(trip), None);
            assert_eq!(way.round_trip(), Some(ms(median)), "after {trip}");
        }
        (0..TRIPS / 2 + 1).for_each(|_| way.answered(ms(70), None));
        assert_eq!(way.round_trip(), Some(ms(70)));
    }

    #[test]
    fn one_lost_answer_is_nothing_and_three_in_a_row_are_a_voter_that_is_away() {
        let mut way = Way::default();
        way.answered(ms(10), Some(1_500));
        way.missed();
        way.missed();
        way.answered(ms(10), Some(1_500));
        way.missed();
        way.missed();
        assert_eq!((way.round_trip(), way.requests), (Some(ms(10)), "1.5".parse().ok()));
        way.missed();
        assert_eq!((way.round_trip(), way.requests), (None, None));
        way.answered(ms(80), None);
        assert_eq!((way.round_trip(), way.requests), (Some(ms(80)), None), "what was before is forgotten");
        way.answered(ms(80), Some(u64::MAX));
        assert_eq!(way.requests, Some(Score::MOST));
    }
}
