//! Many elections of one process over the connections of one.

use std::sync::Arc;
use std::time::Duration;

use primacy::store::{Holder, Order, OrderKind, Store, Why};
use primacy::{
    Candidate, CandidateConfig, DeadLeaderRelease, Fleet, Instant, Label, Leadership, Phase, Status, Timing,
    TimingSettings, clock,
};

use crate::cluster::{Cluster, within};
use crate::distance::Site;
use crate::far::site;

/// Longer than a machine stalls. Nothing here waits for its end.
const LEASE: Duration = Duration::from_secs(8);

/// Far more often than the lease asks for: renewals are counted here.
const RENEW_EVERY: Duration = Duration::from_millis(330);

fn name(n: usize) -> String {
    format!("e{n}")
}

/// Campaigns in this many elections.
fn campaign(fleet: &Fleet, label: &str, elections: usize) -> Vec<Candidate> {
    let settings = TimingSettings { renew_every: Some(RENEW_EVERY), ..TimingSettings::new(LEASE) };
    campaign_with(fleet, label, elections, Timing::new(settings).expect("valid"))
}

fn campaign_with(fleet: &Fleet, label: &str, elections: usize, timing: Timing) -> Vec<Candidate> {
    let one = |n| {
        let mut config = CandidateConfig::new(Label::new(label).expect("valid"));
        config.timing = timing;
        fleet.election(&name(n)).expect("valid").campaign_with(config).expect("the system has a thread")
    };
    (0..elections).map(one).collect()
}

async fn all_led(candidates: &mut [Candidate]) -> Vec<Leadership> {
    let mut led = Vec::new();
    for candidate in candidates {
        led.push(within("a leadership", candidate.elected()).await.expect("elected"));
    }
    led
}

async fn all_wait(candidates: &[Candidate]) {
    for candidate in candidates {
        let held = |status: &Status| matches!(status, Status::Waiting { why: Why::Held { .. }, .. });
        within("a place in line", candidate.status().wait_for(held)).await.expect("it takes part");
    }
}

/// Until the lease has been renewed this often.
async fn renewals(led: &Leadership, count: usize) {
    let mut phases = led.phases();
    let mut before = None;
    for _ in 0..=count {
        let renewed = |phase: &Phase| matches!(phase, Phase::Leading { version, .. } if Some(*version) != before);
        let phase = within("a renewal", phases.wait_for(renewed)).await.expect("it leads").clone();
        if let Phase::Leading { version, .. } = phase {
            before = Some(version);
        }
    }
}

/// The connections of two processes to the voters, and the round trips over them during twelve renewals, when one leads in all of
/// these elections and the other waits.
async fn cost(elections: usize) -> (usize, u64) {
    let cluster = Cluster::start(3).await;
    let sites = [site(&cluster), site(&cluster)];
    let [first, second] = sites.each_ref().map(|site| Fleet::new(Arc::clone(&site.store)));
    let mut leaders = campaign(&first, "a", elections);
    let led = all_led(&mut leaders).await;
    let waiting = campaign(&second, "b", elections);
    all_wait(&waiting).await;
    // Each has then looked for namesakes, which it does twice at its beginning.
    renewals(&led[0], 20).await;
    let flights = || sites.iter().flat_map(|site: &Site| &site.ways).map(primacy_servers::Proxy::flights).sum::<u64>();
    let before = flights();
    renewals(&led[0], 12).await;
    let cost = flights() - before;
    assert!(led.iter().all(Leadership::is_current), "nobody lost anything");
    let connections = sites.iter().flat_map(|site| &site.ways).map(primacy_servers::Proxy::connections).sum();
    (connections, cost)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sixteen_elections_take_the_connections_of_one_and_at_most_twice_its_round_trips() {
    let ((of_one, one), (of_sixteen, sixteen)) = (cost(1).await, cost(16).await);
    println!("{one} round trips for one election, {sixteen} for sixteen");
    assert_eq!((of_one, of_sixteen), (6, 6), "two processes, three voters");
    assert!(sixteen <= one * 2, "{sixteen} round trips for sixteen elections, {one} for one");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_election_of_a_fleet_has_its_own_end() {
    const ELECTIONS: usize = 8;
    let cluster = Cluster::start(3).await;
    let (first, second) = (Fleet::new(cluster.store()), Fleet::new(cluster.store()));
    let mut leaders = campaign(&first, "a", ELECTIONS);
    let mut led = all_led(&mut leaders).await;
    let mut others = campaign(&second, "b", ELECTIONS);
    all_wait(&others).await;
    // One is deposed, and the others do not notice.
    let order = Order { kind: OrderKind::Depose { now: false }, token: None };
    let mut admin = cluster.store().admin().await.expect("opens");
    let election = first.election(&name(3)).expect("valid");
    admin.order(election.name(), order).await.expect("a majority has it");
    within("the notice", led[3].lost()).await;
    drop(led.remove(3));
    let taken = within("the other process", others[3].elected()).await.expect("elected");
    assert!(taken.is_current() && led.iter().all(Leadership::is_current));
    // One candidate goes, and the thread and the connections of the rest stay.
    drop(leaders.remove(0));
    within("the notice", led[0].lost()).await;
    drop(led.remove(0));
    let taken_too = within("the other process", others[0].elected()).await.expect("elected");
    renewals(&led[0], 3).await;
    assert!(taken_too.is_current() && led.iter().all(Leadership::is_current));
    // A voter goes, and comes again.
    let mut cluster = cluster;
    cluster.kill(1).await;
    renewals(&led[0], 3).await;
    cluster.run(1).await;
    cluster.kill(2).await;
    renewals(&led[0], 3).await;
    assert!(led.iter().all(Leadership::is_current));
}

/// With the process its voter has gone, as on a node that is both.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_leases_of_a_dead_process_are_given_back_together_over_the_connections_of_one() {
    const ELECTIONS: usize = 16;
    let mut cluster = Cluster::start(3).await;
    let [process, warden] = [site(&cluster), site(&cluster)];
    let fleet = Fleet::new(Arc::clone(&process.store));
    let timing = Timing::with_lease(Duration::from_secs(60)).expect("valid");
    let mut leaders = campaign_with(&fleet, "a", ELECTIONS, timing);
    let led = all_led(&mut leaders).await;
    let other = Fleet::new(cluster.store());
    let others = campaign_with(&other, "b", ELECTIONS, timing);
    all_wait(&others).await;
    // All that a process needs which outlives it: what it is called in each election, and the last version that it told of.
    let releases = leaders.iter().zip(&led).map(|(candidate, led)| {
        let Phase::Leading { version, .. } = *led.phases().borrow() else { panic!("it leads") };
        let (id, label) = (candidate.id(), Label::new("a").expect("valid"));
        DeadLeaderRelease {
            store: Arc::clone(&warden.store),
            election: led.election().clone(),
            holder: Holder { id, label, data: String::new() },
            version,
        }
    });
    let releases: Vec<_> = releases.collect();
    cluster.kill(2).await;
    process.ways.iter().for_each(primacy_servers::Proxy::cut);
    let began = clock::now();
    let took = |at: Instant| at.since(began);
    let releasing = async {
        let executed = within("the releases", DeadLeaderRelease::execute_all(releases, crate::cluster::PATIENCE)).await;
        (executed, clock::now())
    };
    let taking = others.into_iter().map(|mut candidate| {
        tokio::spawn(async move {
            let led = within("the other process", candidate.elected()).await.expect("elected");
            (clock::now(), led, candidate)
        })
    });
    let taking: Vec<_> = taking.collect();
    let (executed, released) = releasing.await;
    let mut elected = Vec::new();
    for (taking, before) in taking.into_iter().zip(&led) {
        let (at, next, _candidate) = taking.await.expect("no panic");
        assert!(next.is_current() && next.token() > before.token());
        elected.push(at);
    }
    elected.sort_unstable();
    assert_eq!(executed, vec![true; ELECTIONS]);
    let (first, last) = (took(elected[0]), took(elected[ELECTIONS - 1]));
    println!(
        "{ELECTIONS} are released and left after {:?}; the others lead after {first:?} to {last:?}",
        took(released)
    );
    // The leases would have lasted for a minute.
    assert!(last < Duration::from_secs(15), "{last:?}");
    let connections: usize = warden.ways.iter().map(primacy_servers::Proxy::connections).sum();
    assert!(connections <= 3, "{connections} connections for the releases");
    process.ways.iter().for_each(primacy_servers::Proxy::heal);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fleet_has_one_thread_which_ends_after_its_last_candidate() {
    let threads = || {
        let tasks = std::fs::read_dir("/proc/self/task").expect("Linux lists them");
        let name =
            |task: std::io::Result<std::fs::DirEntry>| std::fs::read_to_string(task.ok()?.path().join("comm")).ok();
        tasks.filter_map(name).filter(|name| name.starts_with("primacy-driver")).count()
    };
    let cluster = Cluster::start(3).await;
    let fleet = Fleet::new(cluster.store());
    let mut candidates = campaign(&fleet, "a", 12);
    let led = all_led(&mut candidates).await;
    assert_eq!(threads(), 1);
    drop(led);
    candidates.truncate(1);
    drop(fleet);
    let again = within("a leadership", candidates[0].elected()).await.expect("elected");
    assert!(again.is_current(), "its candidates outlive the fleet's handle");
    drop(again);
    drop(candidates);
    let gone = async {
        while threads() > 0 {
            tokio::task::yield_now().await;
        }
    };
    within("the thread's end", gone).await;
}
