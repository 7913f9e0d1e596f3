//! Candidates that stand by what they measure, over ways that are held back: the best placed one leads.

use std::sync::Arc;
use std::time::Duration;

use primacy::peers::{PeerAddress, PeersStore};
use primacy::select::{FailBack, Metric, Names, Rank, Score};
use primacy::store::{LatencyReport, Store as _, Waiting};
use primacy::{
    Candidate, CandidateConfig, Election, ElectionName, Label, Leadership, MeasuredPreference, Phase, SetupError,
    Timing,
};
use primacy_servers::Proxy;

use crate::cluster::{Cluster, PATIENCE, within};

const SITES: usize = 5;

/// Round trips between the sites in milliseconds. Each metric finds another site best, by at least 20 ms.
const TRIPS: [[u64; SITES]; SITES] =
    [[0, 160, 100, 140, 40], [160, 0, 60, 30, 120], [100, 60, 0, 40, 60], [140, 30, 40, 0, 100], [40, 120, 60, 100, 0]];

/// Who is worse by less, in milliseconds, is as good.
const NEARLY: u64 = 10;

/// Where requests arrive.
const REQUESTS: [i32; SITES] = [300, 100, 10, 0, 100];

/// A voter at each site, and the ways to it from each site.
struct World {
    cluster: Cluster,
    ways: Vec<Vec<Proxy>>,
}

impl World {
    async fn start() -> Self {
        let cluster = Cluster::start(SITES).await;
        let way = |trip: u64, voter: &PeerAddress| {
            let way = Proxy::to(voter.port()).expect("a free port");
            way.delay(Duration::from_millis(trip) / 2);
            way
        };
        let ways =
            TRIPS.iter().map(|trips| trips.iter().zip(&cluster.addresses).map(|(trip, to)| way(*trip, to)).collect());
        let ways = ways.collect();
        Self { cluster, ways }
    }

    fn tell_requests(&self) {
        for (n, requests) in REQUESTS.into_iter().enumerate() {
            self.cluster.requests(n).tell(Some(Score::from(requests)));
        }
    }

    /// The voters as they are seen from a site.
    fn store(&self, site: usize) -> Arc<PeersStore> {
        let names = self.cluster.addresses.iter().map(PeerAddress::name);
        let places = names.zip(&self.ways[site]).map(|(name, way)| format!("{name}@{}", way.address()));
        Arc::new(PeersStore::new(places.map(|place| place.parse().expect("an address")).collect(), None))
    }

    /// The election as it is seen from a site.
    fn election(&self, name: &str, site: usize) -> Election {
        Election::new(self.store(site), ElectionName::new(name).expect("valid"))
    }

    fn campaign(&self, metric: Metric, site: usize) -> Candidate {
        let mut config = CandidateConfig::new(label(site));
        config.measured_preference = Some(measured(metric));
        config.timing = timing();
        config.fail_back = FailBack::After(Duration::from_millis(500));
        self.election(metric.name(), site).campaign_with(config).expect("the system has a thread")
    }
}

fn timing() -> Timing {
    Timing::with_lease(Duration::from_secs(4)).expect("long enough")
}

fn measured(metric: Metric) -> MeasuredPreference {
    let classes = if metric == Metric::RequestRate { vec!["5:1".parse().expect("classes")] } else { Vec::new() };
    let measured = MeasuredPreference::new(vec![metric], Names::default(), classes).expect("it can be measured");
    measured.measured_every(Duration::from_millis(100))
}

fn label(site: usize) -> Label {
    Label::new(format!("site-{site}")).expect("valid")
}

/// How good each site is in milliseconds, by trying all majorities: less is better.
fn brute_force(metric: Metric) -> [u64; SITES] {
    let majorities = (0_u32..1 << SITES).filter(|set| set.count_ones() as usize > SITES / 2);
    let majorities: Vec<Vec<usize>> =
        majorities.map(|set| (0..SITES).filter(|n| set & 1 << n != 0).collect()).collect();
    let requests = REQUESTS.map(|requests| u64::try_from(requests).expect("not less than none"));
    std::array::from_fn(|site| {
        let trips = TRIPS[site];
        let consensus = majorities.iter().filter_map(|all| all.iter().map(|n| trips[*n]).max()).min().expect("some");
        let mean =
            trips.iter().zip(requests).map(|(trip, rate)| trip * rate).sum::<u64>() / requests.iter().sum::<u64>();
        match metric {
            Metric::ConsensusLatency => consensus,
            Metric::MeanLatency => consensus + mean,
            Metric::WorstLatency => consensus + trips.iter().max().expect("some"),
            _ => 1_000 - requests[site],
        }
    })
}

/// Until all who wait know where they stand, and stand as brute force says they should.
async fn all_stand_right(world: &World, led: &Leadership, metric: Metric, figures: &[u64; SITES]) {
    let mut renewals = led.phases();
    let name = ElectionName::new(metric.name()).expect("valid");
    let mut admin = world.cluster.store().admin().await.expect("a majority is up");
    let knows = |waiting: &&Waiting| waiting.rank.is_some_and(|rank| !rank.elements().contains(&i32::MAX));
    let mut stand = Vec::new();
    let waiting = async {
        loop {
            let seen = admin.snapshot(&name).await.expect("a majority is up").expect("somebody leads");
            let known = seen.candidates.iter().filter(knows);
            stand = known.filter_map(|waiting| (0..SITES).find(|site| label(*site) == waiting.who.label)).collect();
            // Who is nearly as good as another may come before it.
            if stand.len() == SITES && stand.is_sorted_by(|one, other| figures[*one] <= figures[*other] + NEARLY) {
                return;
            }
            // Looking all the time would make the ways seem long.
            renewals.changed().await.expect("it leads");
        }
    };
    let in_time = tokio::time::timeout(PATIENCE, waiting).await;
    assert!(in_time.is_ok(), "{metric}: after {PATIENCE:?} they stand {stand:?}, and their figures are {figures:?}");
}

/// Until the leader has renewed so often that all who are next have looked since.
async fn all_have_looked(leader: &Leadership) {
    let mut phases = leader.phases();
    let beat = |phase: &Phase| match phase {
        Phase::Leading { version, .. } => version.beat,
        other => panic!("it leads no more: {other:?}"),
    };
    let enough = beat(&phases.borrow_and_update()) + 4;
    within("renewals", phases.wait_for(|phase| beat(phase) >= enough)).await.expect("it leads");
}

/// While another leads all learn where they stand; then it goes.
async fn the_best_placed_leads(metric: Metric) {
    let figures = brute_force(metric);
    let best = (0..SITES).min_by_key(|site| figures[*site]).expect("there are some");
    let mut world = World::start().await;
    world.tell_requests();
    let mut config = CandidateConfig::new(Label::new("before").expect("valid"));
    config.rank = Rank::new(&[0, i32::MAX]).ok();
    config.timing = timing();
    let before = Election::new(world.cluster.store(), ElectionName::new(metric.name()).expect("valid"));
    let mut before = before.campaign_with(config).expect("the system has a thread");
    let led = within("the first leader", before.elected()).await.expect("elected");

    let candidates: Vec<Candidate> = (0..SITES).map(|site| world.campaign(metric, site)).collect();
    all_stand_right(&world, &led, metric, &figures).await;
    all_have_looked(&led).await;
    drop(led);
    before.withdraw().await;
    let mut others = candidates;
    let mut best = others.remove(best);
    // The one that should lead in its place gives it back as soon as it is told to.
    for mut other in others {
        tokio::spawn(async move {
            while let Ok(led) = other.elected().await {
                led.lost().await;
            }
        });
    }
    let led = within("the best placed one to lead", best.elected()).await.expect("elected");
    assert!(led.is_current());
    drop((led, best));
    for n in 0..SITES {
        world.cluster.kill(n).await;
    }
}

#[tokio::test]
async fn who_is_nearest_to_a_majority_leads_by_consensus() {
    the_best_placed_leads(Metric::ConsensusLatency).await;
}

#[tokio::test]
async fn who_is_nearest_to_the_requests_leads_by_latency() {
    the_best_placed_leads(Metric::MeanLatency).await;
}

#[tokio::test]
async fn who_is_near_to_all_leads_by_the_worst_case() {
    the_best_placed_leads(Metric::WorstLatency).await;
}

#[tokio::test]
async fn who_is_where_most_requests_arrive_leads_by_request() {
    the_best_placed_leads(Metric::RequestRate).await;
}

/// What is measured from a site, once that holds.
async fn until(store: &PeersStore, what: &str, holds: impl Fn(&LatencyReport) -> bool) -> LatencyReport {
    let mut probe = store.latency_probe(&label(0)).expect("peers can be measured");
    let measuring = async {
        loop {
            let report = probe.round().await;
            if holds(&report) {
                return report;
            }
            tokio::task::yield_now().await;
        }
    };
    within(what, measuring).await
}

#[tokio::test]
async fn round_trips_and_requests_are_those_of_each_voter() {
    let world = World::start().await;
    world.tell_requests();
    let store = world.store(0);
    let seen = until(&store, "an answer of all", |seen| {
        seen.voters.len() == SITES && seen.voters.iter().all(|place| place.round_trip.is_some())
    });
    for (n, place) in seen.await.voters.iter().enumerate() {
        assert_eq!(place.name, world.cluster.addresses[n].name());
        assert_eq!(place.requests, Some(Score::from(REQUESTS[n])), "{place:?}");
        let trip = place.round_trip.expect("it answers");
        assert!(trip >= Duration::from_millis(TRIPS[0][n]), "sooner than the way is long: {place:?}");
    }
}

/// Availability does not hang on what is measured.
#[tokio::test]
async fn who_cannot_measure_leads_all_the_same() {
    let mut cluster = Cluster::start(3).await;
    let election = |name| Election::new(cluster.store(), ElectionName::new(name).expect("valid"));
    // No voter tells how many requests arrive.
    let mut config = CandidateConfig::new(label(0));
    config.measured_preference = Some(measured(Metric::RequestRate));
    let mut unknown = election("unknown").campaign_with(config.clone()).expect("the system has a thread");
    drop(within("one whose score is not known", unknown.elected()).await.expect("elected"));
    unknown.withdraw().await;

    config.measured_preference = Some(measured(Metric::WorstLatency));
    let mut candidate = election("known").campaign_with(config).expect("the system has a thread");
    drop(within("one that has measured", candidate.elected()).await.expect("elected"));
    let store = cluster.store();
    cluster.kill(2).await;
    drop(within("one while a voter is away", candidate.elected()).await.expect("elected"));
    let away = until(&store, "a voter to be missed", |seen| seen.voters.iter().any(|place| place.round_trip.is_none()));
    let away = away.await;
    assert_eq!(away.voters[2].round_trip, None);
    assert!(away.scores(&[Metric::WorstLatency]).is_some(), "a majority answers: {away:?}");
    cluster.run(2).await;
    let all = |seen: &LatencyReport| seen.voters.iter().all(|place| place.round_trip.is_some());
    until(&store, "the voter to be found again", all).await;
    drop(candidate);
    for n in 0..3 {
        cluster.kill(n).await;
    }
}

#[tokio::test]
async fn where_there_is_one_store_there_is_nothing_to_measure() {
    let store = Arc::new(primacy::store::memory::MemoryStore::default());
    let mut config = CandidateConfig::new(label(0));
    config.measured_preference = Some(measured(Metric::WorstLatency));
    let refused = Election::new(store, ElectionName::new("test").expect("valid")).campaign_with(config);
    assert!(matches!(refused, Err(SetupError::NothingToMeasure)));
}
