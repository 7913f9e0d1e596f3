//! Many elections of one process over the few connections of a fleet at an SQL server: the same for each kind of server.

use std::time::Duration;

use primacy::{Candidate, Election, Fleet, Leadership, clock};
use primacy_servers::Proxy;

use crate::many::{all_led, all_wait, campaign, campaign_in, renewals, within};

/// Short enough that its end may be awaited, and longer than a machine stalls.
const LEASE: Duration = Duration::from_secs(8);

/// A server, and what these tests do to it behind the elections' back. It belongs to one test.
pub(crate) trait Backstage {
    /// The connections of a fleet at rest, at most.
    const CONNECTIONS: usize;
    /// The round trips in a second of a fleet with hints at which nothing happens, at most.
    const RESTING: f64;

    /// The store, by this port if one is given.
    fn url(&self, port: Option<u16>) -> String;

    fn port(&self) -> u16;

    /// Until the elections have no more connections than this.
    async fn until_connections(&self, most: usize);

    /// Locks the rows of the elections `e0` and so on, as many as this.
    async fn hold(&mut self, elections: usize);

    /// Ends the locks.
    async fn let_go(&mut self);

    /// Has each statement fail that changes the row of this election.
    async fn refuse(&mut self, election: &str);

    /// The end of that.
    async fn allow(&mut self);

    /// Ends all connections of the elections.
    async fn end_connections(&mut self);

    /// Locks the table until steps have waited for it, but for less than a second.
    async fn lock_table_for_a_while(&mut self);

    /// How many terms there were in all elections.
    async fn terms(&self) -> usize;

    fn fleet(&self) -> Fleet {
        Fleet::open(&self.url(None)).expect("a valid URL")
    }

    fn fleet_behind(&self, proxy: &Proxy) -> Fleet {
        Fleet::open(&self.url(Some(proxy.port()))).expect("a valid URL")
    }
}

pub(crate) async fn forty_elections_share_a_few_connections_and_are_taken_over_one_by_one<B: Backstage>(server: B) {
    const LEASE: Duration = Duration::from_secs(60);
    let [first, second] = [server.fleet(), server.fleet()];
    let mut leaders = campaign(&first, "a", 40, LEASE);
    let mut led = all_led(&mut leaders).await;
    server.until_connections(B::CONNECTIONS).await;
    let mut others = campaign(&second, "b", 40, LEASE);
    all_wait(&others).await;
    server.until_connections(B::CONNECTIONS * 2).await;
    for n in [7, 31, 0] {
        led.remove(n).resign().await;
        let taken = within("the other process", others[n].elected()).await.expect("elected");
        assert!(taken.is_current() && led.iter().all(Leadership::is_current), "of the others nobody notices");
        drop((taken, others.remove(n), leaders.remove(n)));
    }
    drop((led, leaders));
    let led = all_led(&mut others).await;
    assert!(led.iter().all(Leadership::is_current));
    server.until_connections(B::CONNECTIONS).await;
}

/// The candidate has the lease soon after the leader has resigned, and long before it would have looked by itself.
async fn hears(resigning: Leadership, waiting: &mut Candidate) -> Duration {
    let began = clock::now();
    resigning.resign().await;
    let elected = tokio::time::timeout(Duration::from_secs(8), waiting.elected()).await;
    drop(elected.expect("hears of it").expect("leads"));
    clock::now().since(began)
}

/// Also where one of the two has connections of its own. Tells how long it took.
pub(crate) async fn who_waits_in_a_fleet_hears_of_a_resignation<B: Backstage>(server: B) -> String {
    const LEASE: Duration = Duration::from_secs(60);
    const ELECTIONS: usize = 12;
    let [first, second] = [server.fleet(), server.fleet()];
    let mut leaders = campaign(&first, "a", ELECTIONS, LEASE);
    let mut led = all_led(&mut leaders).await;
    let mut waiting = campaign(&second, "b", ELECTIONS - 1, LEASE);
    all_wait(&waiting).await;
    let alone = |name: &str| Election::open(&server.url(None), name).expect("a valid URL");
    let mut apart = campaign_in(&alone("e11"), "c", LEASE);
    all_wait(std::slice::from_ref(&apart)).await;
    let to_apart = hears(led.remove(ELECTIONS - 1), &mut apart).await;
    let mut spans = Vec::new();
    for (resigning, waiting) in led.into_iter().zip(&mut waiting) {
        spans.push(hears(resigning, waiting).await);
    }
    spans.sort_unstable();
    let mut apart = campaign_in(&alone("apart"), "c", LEASE);
    let resigning = within("a leadership", apart.elected()).await.expect("elected");
    let mut waits = campaign_in(&second.election("apart").expect("valid"), "b", LEASE);
    all_wait(std::slice::from_ref(&waits)).await;
    let from_apart = hears(resigning, &mut waits).await;
    format!(
        "from a resignation to the next leadership: {spans:?}; from a fleet to one apart {to_apart:?}, the other way round {from_apart:?}"
    )
}

/// Somebody with rights on the table holds the rows of some. The others are renewed as if nothing were.
pub(crate) async fn rows_that_somebody_holds_cost_no_other_election_a_renewal<B: Backstage>(mut server: B) {
    let fleet = server.fleet();
    let mut leaders = campaign(&fleet, "a", 32, LEASE);
    let mut held = all_led(&mut leaders).await;
    let free = held.split_off(20);
    server.hold(20).await;
    // For longer than a lease lasts that is not renewed, as some would be if one had to wait for the end of another.
    renewals(&free.iter().collect::<Vec<_>>(), 4).await;
    for lost in held {
        within("the end of what is held", lost.lost()).await;
        drop(lost);
    }
    assert!(free.iter().all(Leadership::is_current));
    // Nor does what is held keep a grant of another waiting.
    let mut late = campaign(&fleet, "late", 60, LEASE).split_off(40);
    let began = clock::now();
    let late_led = all_led(&mut late).await;
    let took = clock::now().since(began);
    assert!(took < LEASE, "twenty grants took {took:?}");
    server.let_go().await;
    drop(late_led);
    let again = all_led(&mut leaders[..20]).await;
    assert!(again.iter().all(Leadership::is_current) && free.iter().all(Leadership::is_current));
    server.until_connections(B::CONNECTIONS).await;
}

/// A row that fails every statement about it fails its own election, and is then left out of what is sent for the others.
pub(crate) async fn a_row_that_fails_a_statement_costs_no_other_election_a_renewal<B: Backstage>(server: &mut B) {
    let mut leaders = campaign(&server.fleet(), "a", 32, LEASE);
    let mut others = all_led(&mut leaders).await;
    let refused = others.remove(5);
    server.refuse("e5").await;
    renewals(&others.iter().collect::<Vec<_>>(), 4).await;
    within("the end of the one", refused.lost()).await;
    drop(refused);
    assert!(others.iter().all(Leadership::is_current));
    server.allow().await;
    drop(within("the one", leaders[5].elected()).await.expect("elected"));
    assert!(others.iter().all(Leadership::is_current));
}

/// What a network, an administrator or another program may do to a connection at any moment.
pub(crate) async fn broken_and_blocked_connections_cost_no_leadership_while_the_lease_has_room<B: Backstage>(
    mut server: B,
) {
    let proxy = Proxy::to(server.port()).expect("a proxy");
    let mut leaders = campaign(&server.fleet_behind(&proxy), "a", 24, LEASE);
    let led = all_led(&mut leaders).await;
    let all: Vec<_> = led.iter().collect();
    for round in 0..4 {
        renewals(&all, 1).await;
        match round {
            0 => server.end_connections().await,
            1 => assert!(proxy.kill_connections() > 0),
            2 => {
                // The answer to a batch is lost, and what was done is read back.
                proxy.lose_next_answer();
                proxy.await_lost_answer().expect("it was lost");
                proxy.kill_connections();
            }
            _ => server.lock_table_for_a_while().await,
        }
    }
    renewals(&all, 2).await;
    assert!(led.iter().all(Leadership::is_current), "nobody lost anything");
    assert_eq!(server.terms().await, 24, "each led once");
}

/// Beside the round trips of a fleet at rest: fewer than one for eight renewals. Tells how many.
pub(crate) async fn hundreds_of_elections_take_few_connections_and_round_trips<B: Backstage>(server: B) -> String {
    const ELECTIONS: usize = 320;
    const RENEWALS: usize = 2;
    // A candidate looks for others of its name twice at its beginning, which takes as long as the machine is slow, and then for
    // minutes no more. So not every span is one of rest; a fleet that renews one by one has none.
    const SPANS: usize = 12;
    let proxy = Proxy::to(server.port()).expect("a proxy");
    let mut leaders = campaign(&server.fleet_behind(&proxy), "a", ELECTIONS, LEASE);
    let led = all_led(&mut leaders).await;
    let mut told = Vec::new();
    for _ in 0..SPANS {
        let (before, began) = (proxy.flights(), clock::now());
        renewals(&[&led[0]], RENEWALS).await;
        let (cost, took) = (proxy.flights() - before, clock::now().since(began));
        let allowed = (ELECTIONS * RENEWALS / 8) as f64 + took.as_secs_f64() * B::RESTING;
        told.push(format!("{cost} round trips in {took:?}, of {allowed:.0} that are allowed"));
        if cost as f64 <= allowed {
            assert!(led.iter().all(Leadership::is_current), "nobody lost anything");
            let connections = proxy.connections();
            server.until_connections(B::CONNECTIONS).await;
            return format!("{connections} connections for {ELECTIONS} elections; {}", told.join("; "));
        }
    }
    panic!("{told:#?}");
}
