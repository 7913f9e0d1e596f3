//! What the store must reach, and what it aims at, beside what was measured.

use std::fmt::Write as _;

use super::cluster::System;
use super::codec::Request;
use super::results::{At, Blow, Figure, Losses, Rest, Results, percentile};

/// One of them.
struct Goal {
    what: &'static str,
    measured: Option<f64>,
    must: f64,
    aim: f64,
    unit: &'static str,
    /// Whether more is better.
    is_floor: bool,
}

/// A table of all goals.
pub(super) fn table(results: &Results) -> String {
    let mut text = String::from("| goal | measured | must | aim | |\n|---|---|---|---|---|\n");
    for Goal { what, measured, must, aim, unit, is_floor } in goals(results) {
        let reaches = |measured: f64, limit: f64| if is_floor { measured >= limit } else { measured <= limit };
        let verdict = match measured {
            None => "not measured",
            Some(measured) if reaches(measured, aim) => "aim met",
            Some(measured) if reaches(measured, must) => "met",
            Some(_) => "**missed**",
        };
        let measured = measured.map_or("–".to_owned(), |measured| format!("{}{unit}", number(measured)));
        let sign = if is_floor { "≥" } else { "≤" };
        // Writing to a string cannot fail.
        let _ = writeln!(text, "| {what} | {measured} | {sign} {must}{unit} | {sign} {aim}{unit} | {verdict} |");
    }
    text
}

/// With as many digits as say something.
pub(super) fn number(value: f64) -> String {
    let digits = if value >= 100.0 {
        0
    } else if value >= 10.0 {
        1
    } else {
        2
    };
    format!("{value:.digits$}")
}

fn goals(results: &Results) -> Vec<Goal> {
    let figure = |system, request, clients, at| results.figure(system, request, clients, at, 0);
    let rate = |figure: &Figure| figure.median(|run| run.per_second);
    let ratio = |one: Option<&Figure>, other: Option<f64>| Some(rate(one?) / other?);
    let sets = |clients| {
        let etcd = figure(System::Etcd, Request::Set, clients, At::Leader).map(rate);
        ratio(figure(System::Primacy, Request::Set, clients, At::Leader), etcd)
    };
    let gets = |system, at| figure(system, Request::Get, 50, at);
    let etcd_gets = [At::Leader, At::Follower].into_iter().filter_map(|at| gets(System::Etcd, at).map(rate));
    let p99 = figure(System::Primacy, Request::Set, 50, At::Leader).map(|figure| figure.median(|run| run.p99_us) / 1e3);
    let lost = |blow, lease_ms, percent: usize| {
        let is_it = |one: &&Losses| (one.system, one.blow, one.lease_ms) == (System::Primacy, blow, lease_ms);
        let losses = results.losses.iter().find(is_it)?;
        Some(percentile(losses.each.iter().map(|one| one.one_ms), percent))
    };
    let moved = results.hand_overs.first();
    let rest = |groups: u16, leaders: usize| {
        let is_it = |rest: &&Rest| (rest.groups, rest.leaders, rest.lease_ms) == (groups, leaders, 1_000);
        results.rests.iter().find(is_it)
    };
    let worst = |values: &[f64]| values.iter().copied().fold(0.0, f64::max);
    let messages = rest(16, 1).zip(rest(1, 1)).map(|(many, one)| many.messages_per_second / one.messages_per_second);
    let restart = results.restarts.iter().map(|restart| worst(&restart.seconds)).reduce(f64::max);
    let floor = |what, measured, must, aim| Goal { what, measured, must, aim, unit: " ×", is_floor: true };
    let limit = |what, measured, must, aim, unit| Goal { what, measured, must, aim, unit, is_floor: false };
    vec![
        floor("writes by 50 clients, of etcd's", sets(50), 3.0, 5.0),
        limit("the same, 99 %", p99, 15.0, 10.0, " ms"),
        floor("writes by 1 client, of etcd's", sets(1), 2.6, 4.0),
        floor("writes by 200 clients, of etcd's", sets(200), 3.0, 5.0),
        floor(
            "linearizable reads at the leader by 50 clients, of Redis' reads",
            ratio(gets(System::Primacy, At::Leader), gets(System::Redis, At::Leader).map(rate)),
            0.67,
            0.9,
        ),
        floor(
            "the same through a follower, of etcd's better ones",
            ratio(gets(System::Primacy, At::Follower), etcd_gets.reduce(f64::max)),
            2.5,
            3.0,
        ),
        limit("`kill -9` of the leader to the first write, median", lost(Blow::Kill, 1_000, 50), 25.0, 15.0, " ms"),
        limit("the same, 99 %", lost(Blow::Kill, 1_000, 99), 60.0, 30.0, " ms"),
        limit("frozen host, lease 1 s, 99 %", lost(Blow::Freeze, 1_000, 99), 1_100.0, 1_050.0, " ms"),
        limit("frozen host, lease 100 ms, 99 %", lost(Blow::Freeze, 100, 99), 150.0, 125.0, " ms"),
        limit(
            "hand-over under 50 writers, longest gap, 99 %",
            moved.map(|moved| percentile(moved.gaps_ms.iter().copied(), 99)),
            30.0,
            10.0,
            " ms",
        ),
        limit(
            "the same, writes refused or unknown",
            moved.map(|moved| (moved.refused + moved.unknown) as f64),
            0.0,
            0.0,
            "",
        ),
        limit(
            "a node at rest, 16 groups, one leads",
            rest(16, 1).map(|rest| worst(&rest.cpu_percent)),
            1.0,
            0.5,
            " % of a core",
        ),
        limit("the same, all three lead", rest(16, 3).map(|rest| worst(&rest.cpu_percent)), 1.0, 0.5, " % of a core"),
        limit("messages of 16 elections, of those of one", messages, 1.2, 1.05, " ×"),
        limit("restart with 1 GiB, the slowest", restart, 10.0, 5.0, " s"),
    ]
}
