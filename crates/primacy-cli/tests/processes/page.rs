//! The page of one election in a real browser: what it shows in each state, and what it does when something changes while it is open.

use std::net::SocketAddr;
use std::process::Command;

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::browser::Browser;
use crate::http_events::Follower;
use crate::telling::Telling;
use crate::voters::{Cluster, free_port};
use crate::world::{BRIEF, World, send};

/// Long enough that only what a test does ends it.
const LONG: &[&str] = &["--lease", "10m", "--grace", "1s"];

/// A candidate with the page at this address.
fn with_page(world: &World, name: &str, address: SocketAddr, options: &[&str]) -> Telling {
    Telling::of(world.witness(name, &[options, &["--http", &address.to_string()]].concat(), &[]))
}

pub(crate) fn free_address() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], free_port()))
}

/// Runs to its end, and succeeds.
fn done(mut command: Command) {
    let output = command.output().expect("primacy starts");
    assert!(output.status.success(), "{output:?}");
}

/// One that shows the page, and never leads.
fn onlooker(world: &World) -> Telling {
    Telling::start_with(world, "onlooker", &["--never", "onlooker", "--lease", "2s", "--grace", "200ms"])
}

#[test]
fn its_files_are_served_with_their_kinds_and_a_policy_that_loads_nothing_else() {
    let world = World::new();
    let first = Telling::start_with(&world, "web-1", LONG);
    let files = [
        ("/", "text/html", "<!doctype html>"),
        ("/page/page.css", "text/css", ":root"),
        ("/page/page.js", "text/javascript", "import "),
        ("/page/icon.svg", "image/svg+xml", "<svg"),
    ];
    for (path, kind, begins) in files {
        let answer = first.get(path);
        let head = answer.0.to_lowercase();
        assert_eq!(answer.status(), 200, "{path}");
        assert!(head.contains(&format!("content-type: {kind}")) && answer.body().contains(begins), "{path}: {head}");
        let policy = "content-security-policy: default-src 'none'; script-src 'self';";
        assert!(head.contains(policy) && head.contains("frame-ancestors 'none'"), "{path}: {head}");
        assert!(head.contains("x-content-type-options: nosniff") && head.contains("cache-control: no-store"), "{head}");
        assert_eq!(first.by("POST", path).status(), 405, "{path}");
    }
    assert_eq!(first.get("/page/other.js").status(), 404);
}

#[test]
fn it_shows_who_leads_for_how_long_still_who_is_next_and_why() {
    let mut world = World::new();
    let Some(browser) = Browser::start(&world) else { return };
    let first = Telling::start_with(&world, "web-1", &["--lease", "10s", "--data", "http://10.0.0.1:8080"]);
    let led = world.expect_start_after(0);
    let _second = world.start("web-2", &["--lease", "10s"], &[]);
    world.await_candidates(1);
    let _third = world.start("web-3", &["--lease", "10s"], &[]);
    world.await_candidates(2);
    browser.open(first.address, "");
    browser.until_says("#who", &format!("web-1 leads with token {}", led.token));
    assert_eq!(browser.says("#state"), "led");
    assert_eq!(browser.says("#data"), "http://10.0.0.1:8080");
    browser.until_says("#next-why", "web-2 is next: it is the first in the waiting order of 2.");
    let waiting =
        browser.until("[...document.querySelectorAll('#candidates .label')].map((label) => label.innerText).join()");
    assert_eq!(waiting, "web-2,web-3");
    browser.until_says("#candidates li", "waits for the lease that web-1 holds");
    browser.until_says("#sentences", "web-1 leads because it was granted token");
    browser.until_says("#keeper-says", "answers");
    browser.until_says("#terms li", "leads now");
    assert_eq!(browser.value("document.title"), "default: web-1 leads – primacy");
    assert_eq!(browser.says("#orders"), "", "it takes no orders");

    // The lease that remains becomes less from one moment to the next, and is never more than the lease.
    let samples = browser.until(
        "(() => {
            const meter = document.querySelector('#left');
            const seen = (window.seen ??= []);
            if (meter.value !== seen.at(-1)) seen.push(meter.value);
            return seen.length > 40 && seen;
        })()",
    );
    let samples: Vec<f64> = samples.as_array().expect("a list").iter().filter_map(Value::as_f64).collect();
    assert!(samples.iter().all(|left| *left > 0.0 && *left <= 10_000.0), "{samples:?}");
    let fallen = samples.windows(2).filter(|pair| pair[1] < pair[0]).count();
    assert!(fallen > 30, "{samples:?}");
    assert!(browser.says("#left-text").ends_with("s left of 10 s"), "{}", browser.says("#left-text"));
}

#[test]
fn a_failover_is_shown_while_it_is_watched() {
    let mut world = World::new();
    let Some(browser) = Browser::start(&world) else { return };
    let first = world.start("web-1", LONG, &[]);
    let led = world.expect_start_after(0);
    let second = Telling::start_with(&world, "web-2", LONG);
    world.await_candidates(1);
    browser.open(second.address, "");
    browser.until_says("#who", "web-1 leads with token 1");
    browser.until_says("#terms", "leads now");
    browser.run(
        "window.since = 'before'; document.querySelector('#news').textContent === '' || window.stop();",
        Vec::new(),
    );
    first.send(Signal::SIGKILL);
    let next = world.expect_start_after(led.token);
    browser.until_says("#who", &format!("web-2 leads with token {}", next.token));
    // Readers of screens are told, once.
    browser.until("document.querySelector('#news').textContent.includes('web-2 leads')");
    browser.until("document.querySelectorAll('#terms li').length === 2");
    browser.until_says("#terms li:nth-child(2)", "its process died");
    browser.until_says("#terms li:nth-child(1)", "leads now");
    assert_eq!(browser.value("window.since"), "before", "the page was not loaded again");
    world.assert_never_two();
}

#[test]
fn a_leader_that_goes_silent_is_not_shown_as_one() {
    let mut world = World::new();
    let Some(browser) = Browser::start(&world) else { return };
    let eye = onlooker(&world);
    browser.open(eye.address, "");
    browser.until_says("#who", "Nobody has ever led.");
    assert_eq!(browser.says("#state"), "never led");
    let first = world.start("web-1", BRIEF, &[]);
    let led = world.expect_start_after(0);
    browser.until_says("#who", "web-1 leads with token 1");
    let warden = first.warden();
    [first.pid(), warden].into_iter().for_each(|pid| send(pid, Signal::SIGSTOP));
    browser.until_says("#state", "unknown");
    browser.until_says("#who", "Who leads is unknown: web-1 had token 1, and has not renewed its lease.");
    assert!(!browser.all().contains("web-1 leads with"), "{}", browser.all());
    assert_eq!(browser.says("#lease"), "");
    browser.until_says("#terms", "It went silent.");
    browser.until_says("#next-why", "Nobody is next: all that wait never lead.");
    [warden, first.pid()].into_iter().for_each(|pid| send(pid, Signal::SIGCONT));
    let next = world.expect_start_after(led.token);
    browser.until_says("#who", &format!("web-1 leads with token {}", next.token));
    first.send(Signal::SIGTERM);
    browser.until_says("#state", "nobody leads");
    browser.until_says("#who", &format!("Nobody leads. The last token is {}.", next.token));
    browser.until_says("#terms", "it was asked to stop");
}

#[test]
fn an_election_that_is_forgotten_is_shown_as_that() {
    let mut world = World::new();
    let Some(browser) = Browser::start(&world) else { return };
    done(world.primacy(["run", "--name", "web-0", "--", "true"]));
    done(world.primacy(["forget", "default"]));
    let eye = onlooker(&world);
    browser.open(eye.address, "");
    browser.until_says("#who", "Nobody leads: the election is forgotten.");
    assert_eq!(browser.says("#state"), "forgotten");
    browser.until_says("#terms", "an operator had the election forgotten");
    let _first = world.start("web-1", BRIEF, &[]);
    let led = world.expect_start_after(0);
    browser.until_says("#who", &format!("web-1 leads with token {}", led.token));
}

#[test]
fn pauses_and_orders_that_nobody_has_followed_yet_are_shown() {
    let mut world = World::new();
    let Some(browser) = Browser::start(&world) else { return };
    let _first = world.start("web-1", &["--lease", "10m", "--grace", "4m"], &["ignore-term"]);
    world.expect_start_after(0);
    let second = Telling::start_with(&world, "web-2", LONG);
    world.await_candidates(1);
    browser.open(second.address, "");
    browser.until_says("#who", "web-1 leads");
    done(world.primacy(["pause"]));
    browser.until_says("#paused", "paused");
    browser.until_says("#next-why", "Nobody is next: an operator has paused the election.");
    done(world.primacy(["resume"]));
    browser.until("document.querySelector('#paused').hidden");
    done(world.primacy(["promote", "web-2", "--no-wait"]));
    browser.until_says("#pending", "An operator has ordered that web-2 leads. web-1 stops its work first.");
    browser.until_says("#next-why", "web-2 is to be next, as an operator has ordered.");
}

#[test]
fn a_server_that_goes_away_and_comes_back_is_noticed_without_a_reload() {
    let mut world = World::new();
    let Some(browser) = Browser::start(&world) else { return };
    let address = free_address();
    let first = with_page(&world, "web-1", address, LONG);
    let led = world.expect_start_after(0);
    browser.open(address, "");
    browser.until_says("#who", "web-1 leads with token 1");
    browser.run("window.since = 'before';", Vec::new());
    drop(first);
    browser.until_says("#trouble", "No answer from the server since");
    let says = browser.until_says("#who", "Who leads is not known now.");
    assert!(says.contains("web-1 led with token 1"), "{says}");
    assert_eq!(browser.says("#state"), "not known now");
    assert_eq!(browser.value("document.querySelector('#election').classList.contains('old')"), true);
    assert_eq!(browser.says("#lease"), "");
    assert!(!browser.all().contains("leads now"), "{}", browser.all());
    let _again = with_page(&world, "web-2", address, LONG);
    let next = world.expect_start_after(led.token);
    browser.until_says("#who", &format!("web-2 leads with token {}", next.token));
    browser.until("document.querySelector('#trouble').textContent === ''");
    assert_eq!(browser.value("document.querySelector('#election').classList.contains('old')"), false);
    browser.until("document.querySelector('#news').textContent.includes('web-2 leads')");
    assert_eq!(browser.value("window.since"), "before");
}

#[test]
fn a_server_that_stands_still_claims_no_leader_when_the_lease_has_run_out() {
    let mut world = World::new();
    let Some(browser) = Browser::start(&world) else { return };
    let first = Telling::start_with(&world, "web-1", BRIEF);
    world.expect_start_after(0);
    browser.open(first.address, "");
    browser.until_says("#who", "web-1 leads with token 1");
    let warden = first.runner.warden();
    [first.runner.pid(), warden].into_iter().for_each(|pid| send(pid, Signal::SIGSTOP));
    browser.until_says("#who", "The lease of web-1 with token 1 has run out; who leads is unknown.");
    assert_eq!(browser.value("document.querySelector('#left').value"), 0);
    assert_eq!(browser.says("#state"), "unknown");
    browser.until_says("#trouble", "it does not answer");
    browser.until_says("#who", "Who leads is not known now.");
    [warden, first.runner.pid()].into_iter().for_each(|pid| send(pid, Signal::SIGCONT));
    browser.until("document.querySelector('#trouble').textContent === ''");
    browser.until_says("#who", "web-1 leads with token 2");
}

#[test]
fn among_peers_it_shows_which_voters_support_the_leader() {
    let cluster = Cluster::planned(3).start();
    let mut world = cluster.world();
    let Some(browser) = Browser::start(&world) else { return };
    let first = Telling::start_with(&world, "web-1", BRIEF);
    world.expect_start_after(0);
    browser.open(first.address, "");
    browser.until_says("#keeper-title", "Voters");
    browser.until_says("#keeper-says", "3 of 3 support the leader; 1 more may be lost.");
    cluster.voter(2).send(Signal::SIGSTOP);
    browser.until_says("#keeper-says", "2 of 3 support the leader; 0 more may be lost.");
    browser.until_says("#voters", "silent");
    cluster.voter(1).send(Signal::SIGSTOP);
    browser.until_says("#trouble", "The store does not answer since");
    browser.until_says("#who", "Who leads is not known now.");
    (1..3).for_each(|n| cluster.voter(n).send(Signal::SIGCONT));
    browser.until("document.querySelector('#trouble').textContent === ''");
    browser.until_says("#who", "web-1 leads with token");
}

#[test]
fn a_voter_shows_the_elections_of_all() {
    let mut cluster = Cluster::planned(3);
    let addresses = [(); 3].map(|()| free_address());
    for (n, address) in addresses.iter().enumerate() {
        let mut command = cluster.command(n);
        command.args(["--http", &address.to_string()]);
        cluster.run_by(n, command);
    }
    (0..3).for_each(|n| drop(cluster.voter(n).await_event("ready")));
    let mut world = cluster.world();
    let Some(browser) = Browser::start(&world) else { return };
    browser.open(addresses[0], "");
    browser.until_says("#none", "no election at the moment");
    let _first = world.start("web-1", BRIEF, &[]);
    world.expect_start_after(0);
    // The only one is shown without a choice, and when there is another both are in a table.
    browser.until_says("#who", "web-1 leads with token 1");
    browser.until_says("#keeper-says", "3 of 3 support the leader");
    done(world.primacy(["run", "--election", "billing", "--name", "web-2", "--", "true"]));
    browser.until_says("tr[data-key='billing'] .state", "nobody leads");
    browser.until_says("tr[data-key='default'] .state", "led");
    assert_eq!(browser.value("document.querySelectorAll('#rows tr').length"), 2);
}

#[test]
fn where_no_stream_is_to_be_had_it_asks_all_the_same() {
    let mut world = World::new();
    let Some(browser) = Browser::start(&world) else { return };
    let first = world.start("web-1", LONG, &[]);
    let led = world.expect_start_after(0);
    let second = Telling::start_with(&world, "web-2", LONG);
    world.await_candidates(1);
    // As many as there may be.
    let _others: Vec<_> = (0..32).map(|_| Follower::start(second.address, "")).collect();
    assert_eq!(second.get("/v1/elections/default/events").status(), 503);
    browser.open(second.address, "");
    browser.until_says("#who", "web-1 leads with token 1");
    first.send(Signal::SIGKILL);
    let next = world.expect_start_after(led.token);
    browser.until_says("#who", &format!("web-2 leads with token {}", next.token));
    browser.until_says("#terms", "its process died");
}

#[test]
fn a_tab_that_nobody_looks_at_asks_nothing_and_is_as_new_as_ever_when_it_is_looked_at() {
    let mut world = World::new();
    let Some(browser) = Browser::start(&world) else { return };
    let first = world.start("web-1", LONG, &[]);
    let led = world.expect_start_after(0);
    let second = Telling::start_with(&world, "web-2", LONG);
    world.await_candidates(1);
    browser.open(second.address, "");
    browser.until_says("#terms", "leads now");
    browser.look_away(true);
    first.send(Signal::SIGKILL);
    let next = world.expect_start_after(led.token);
    let asked = "performance.getEntriesByType('resource').length";
    let before = browser.value(asked);
    // It has heard nothing for so long that it says so, and asks all the same no more.
    browser.until_says("#who", "Who leads is not known now.");
    assert_eq!(browser.value(asked), before);
    assert!(!browser.all().contains("web-2 leads"), "{}", browser.all());
    browser.look_away(false);
    browser.until_says("#who", &format!("web-2 leads with token {}", next.token));
    browser.until_says("#terms", "its process died");
}

#[test]
fn a_lease_that_cannot_be_followed_has_no_countdown_and_a_calm_page_has_a_slow_one() {
    let mut world = World::new();
    let Some(browser) = Browser::start(&world) else { return };
    let brief = Telling::start_with(&world, "web-1", &["--lease", "600ms", "--grace", "100ms"]);
    world.expect_start_after(0);
    browser.open(brief.address, "");
    browser.until_says("#who", "web-1 led when last asked with token");
    browser.until_says("#left-text", "of 600 ms: too short to be followed here");
    assert_eq!(browser.value("document.querySelector('#left').hidden"), true);
    drop(brief);
    let mut world = World::new();
    let long = Telling::start_with(&world, "web-1", &["--lease", "30s"]);
    world.expect_start_after(0);
    browser.prefers("prefers-reduced-motion", "reduce");
    browser.open(long.address, "");
    let says = browser.until_says("#left-text", " s left of 30 s");
    assert!(!says.contains('.'), "{says}");
}
