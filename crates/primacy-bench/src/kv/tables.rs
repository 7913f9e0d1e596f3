//! Tables for people, as they stand on the page of the measurements.

use std::fmt::Write as _;

use super::cluster::System;
use super::codec::Request;
use super::goals::{self, number};
use super::probe::Recovery;
use super::results::{At, Figure, Results, percentile};

const SYSTEMS: [System; 5] = [System::Primacy, System::Etcd, System::ZooKeeper, System::RedisWait, System::Redis];

/// All of them.
pub(super) fn all(results: &Results) -> String {
    let parts =
        [setups(results), goals::table(results), loads(results), costs(results), losses(results), others(results)];
    format!("{}\n\n{}", results.machine, parts.join("\n"))
}

fn setups(results: &Results) -> String {
    results.setups.iter().map(|(system, settings)| format!("* {system}: {settings}\n")).collect()
}

/// A row for each piece of work, a column for each store: requests a second, and milliseconds at the median and at 99 %.
fn loads(results: &Results) -> String {
    let mut text = String::from("| work |");
    SYSTEMS.iter().for_each(|system| text += &format!(" {system} |"));
    text += &format!("\n|---|{}\n", "---|".repeat(SYSTEMS.len()));
    let works = [
        ("writes, 1 client at the leader", Request::Set, 1, At::Leader, 0),
        ("writes, 50 clients", Request::Set, 50, At::Leader, 0),
        ("writes, 200 clients", Request::Set, 200, At::Leader, 0),
        ("writes, 50 clients at all nodes", Request::Set, 50, At::All, 0),
        ("linearizable reads, 50 clients at the leader", Request::Get, 50, At::Leader, 0),
        ("linearizable reads, 50 clients at a follower", Request::Get, 50, At::Follower, 0),
        ("reads of what the server has, 50 clients", Request::LocalGet, 50, At::Leader, 0),
        ("flush + 2 ms: writes, 1 client", Request::Set, 1, At::Leader, 2_000),
        ("flush + 2 ms: writes, 50 clients", Request::Set, 50, At::Leader, 2_000),
        ("flush + 2 ms: writes, 200 clients", Request::Set, 200, At::Leader, 2_000),
    ];
    for (what, request, clients, at, delay) in works {
        text += &format!("| {what} |");
        for system in SYSTEMS {
            let cell = results.figure(system, request, clients, at, delay).map_or(String::new(), cell);
            text += &format!(" {cell} |");
        }
        text.push('\n');
    }
    text
}

fn cell(figure: &Figure) -> String {
    let [half, most] = [figure.median(|run| run.median_us), figure.median(|run| run.p99_us)];
    let rates = || figure.runs.iter().map(|run| run.per_second);
    let thousands = |value: f64| {
        let whole = value.round() as u64;
        if whole < 1_000 { whole.to_string() } else { format!("{},{:03}", whole / 1_000, whole % 1_000) }
    };
    format!(
        "{} ({} to {}); {} / {}",
        thousands(figure.median(|run| run.per_second)),
        thousands(percentile(rates(), 0)),
        thousands(percentile(rates(), 100)),
        number(half / 1e3),
        number(most / 1e3)
    )
}

/// CPU time for each request.
fn costs(results: &Results) -> String {
    let mut text = String::from(
        "| store | work | clients | at | loader, µs of CPU | servers, leader first | longest, ms | load | runs |\n\
         |---|---|---|---|---|---|---|---|---|\n",
    );
    for Figure { system, work, runs } in results.loads.iter().filter(|figure| figure.work.flush_delay_us == 0) {
        let servers = (0..runs[0].server_cpu_us.len())
            .map(|nth| percentile(runs.iter().filter_map(|run| run.server_cpu_us.get(nth).copied()), 50))
            .map(|micros| format!("{micros:.0}"));
        let servers: Vec<String> = servers.collect();
        let of = |value: fn(&super::results::Run) -> f64, percent| percentile(runs.iter().map(value), percent);
        let _ = writeln!(
            text,
            "| {system} | {:?} | {} | {:?} | {:.1} | {} | {} | {} to {} | {} |",
            work.request,
            work.clients,
            work.at,
            of(|run| run.loader_cpu_us, 50),
            servers.join(", "),
            number(of(|run| run.max_us / 1e3, 100)),
            of(|run| run.load, 0),
            of(|run| run.load, 100),
            runs.len(),
        );
    }
    text
}

fn losses(results: &Results) -> String {
    let mut text = String::from(
        "| store | event | lease | n | a key of its is written, ms: median / 99 % / max | a key of each group | refused, unknown, cut off | load |\n\
         |---|---|---|---|---|---|---|---|\n",
    );
    for losses in &results.losses {
        let spread = |of: fn(&Recovery) -> f64| {
            [50, 99, 100].map(|percent| number(percentile(losses.each.iter().map(of), percent))).join(" / ")
        };
        let sum = |of: fn(&Recovery) -> u64| losses.each.iter().map(of).sum::<u64>();
        let lease = if losses.system == System::Primacy { format!("{} ms", losses.lease_ms) } else { String::new() };
        let _ = writeln!(
            text,
            "| {} | {:?} | {lease} | {} | {} | {} | {}, {}, {} | {} |",
            losses.system,
            losses.blow,
            losses.each.len(),
            spread(|one| one.one_ms),
            spread(|one| one.all_ms),
            sum(|one| one.refused),
            sum(|one| one.unknown),
            sum(|one| one.cut_off),
            number(percentile(losses.each.iter().map(|one| one.load), 50)),
        );
    }
    text
}

/// Hand-overs, rest, restarts and the trace.
fn others(results: &Results) -> String {
    let mut text = String::new();
    for moved in &results.hand_overs {
        let spread = |values: &[f64]| {
            [50, 99, 100].map(|percent| number(percentile(values.iter().copied(), percent))).join(" / ")
        };
        let _ = writeln!(
            text,
            "* hand-over under {} writers, lease {} ms, n = {}: longest gap {} ms (median / 99 % / max), in calm {}; longest write {}; \
             {} writes, {} refused, {} unknown; load {}",
            moved.writers,
            moved.lease_ms,
            moved.gaps_ms.len(),
            spread(&moved.gaps_ms),
            spread(&moved.calm_gaps_ms),
            spread(&moved.longest_write_ms),
            moved.writes,
            moved.refused,
            moved.unknown,
            moved.load,
        );
    }
    for rest in &results.rests {
        let list = |values: &[f64]| values.iter().map(|value| number(*value)).collect::<Vec<_>>().join(", ");
        let _ = writeln!(
            text,
            "* at rest, {} groups, led by {} nodes, lease {} ms, {:.0} s: {} % of a core (leader first), {:.1} messages a second, {} MiB; load {}",
            rest.groups,
            rest.leaders,
            rest.lease_ms,
            rest.seconds,
            list(&rest.cpu_percent),
            rest.messages_per_second,
            list(&rest.memory_mib),
            rest.load,
        );
    }
    for restart in &results.restarts {
        let seconds: Vec<String> = restart.seconds.iter().map(|seconds| number(*seconds)).collect();
        let _ = writeln!(
            text,
            "* {}, {} MiB: {} s; load {}",
            restart.what,
            restart.data_mib,
            seconds.join(", "),
            restart.load
        );
    }
    for trace in &results.traces {
        let _ = writeln!(
            text,
            "\n{} clients, {:.0} writes a second, {:.0} µs at the median, load {}:\n\n| process | thread | CPU, µs | waits for a core, µs | woken |\n|---|---|---|---|---|",
            trace.clients, trace.per_second, trace.median_us, trace.load
        );
        for thread in &trace.threads {
            let _ = writeln!(
                text,
                "| {} | {} | {:.1} | {:.1} | {:.2} |",
                thread.process, thread.thread, thread.cpu_us, thread.waited_us, thread.switches
            );
        }
        if !trace.stages.is_empty() {
            text += "\n| what one client waits for | median, µs | 99 %, µs |\n|---|---|---|\n";
        }
        for (stage, half, most) in &trace.stages {
            let _ = writeln!(text, "| {stage} | {half:.0} | {most:.0} |");
        }
    }
    text
}
