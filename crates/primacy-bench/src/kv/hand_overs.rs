//! An operator moves the leader of a group, again and again, while many write to that group through all nodes.

use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

use super::cluster::{Cluster, Setup};
use super::codec::Request;
use super::load::{Answers, Length, Load};
use super::losses::keys_of_group;
use super::nodes::{promote, replicas};
use super::process::wait_until;
use super::results::{HandOvers, Results, percentile};
use super::start::start;
use super::throughput::value;

/// The group that is moved.
const GROUP: u16 = 0;
/// How many of its keys are written.
const KEYS: usize = 1_000;
/// From one order to the next; gaps are searched in this time after an order, and in as much before it.
const PERIOD: Duration = Duration::from_millis(2_000);
const WATCHED: Duration = Duration::from_millis(900);

/// Hands over this many times, under that many writers.
pub(super) fn measure(
    setup: &Setup<'_>,
    times: u32,
    writers: usize,
    bytes: usize,
    results: &mut Results,
) -> Result<()> {
    let mut cluster = start(setup)?;
    let keys: Vec<String> = keys_of_group(GROUP, setup.groups).take(KEYS).collect();
    let value = value(bytes);
    cluster.fill(&keys, &value)?;
    cluster.await_leader()?;
    let load = Load {
        dialect: cluster.dialect(),
        servers: &cluster.servers,
        clients: writers,
        request: Request::Set,
        keys: &keys,
        value: &value,
        length: Length::Time { warm: PERIOD, counted: PERIOD * (times + 1) },
    };
    let (answers, orders) = thread::scope(|scope| {
        let orders = scope.spawn(|| orders(setup, &cluster, times));
        let answers = load.run()?;
        let orders = orders.join().map_err(|_| anyhow::anyhow!("the operator has panicked"))??;
        anyhow::Ok((answers, orders))
    })?;
    let failed = answers.refused.iter().chain(&answers.unknown);
    failed.for_each(|(why, count)| println!("{count} writes: {why}"));
    let hand_overs = HandOvers {
        lease_ms: setup.lease.as_millis() as u64,
        writers,
        gaps_ms: orders.iter().map(|at| gap(&answers, *at, WATCHED)).collect(),
        calm_gaps_ms: orders.iter().map(|at| gap(&answers, *at - WATCHED, WATCHED)).collect(),
        longest_write_ms: orders.iter().map(|at| longest(&answers, *at)).collect(),
        writes: answers.done.len() as u64,
        refused: answers.refused.values().sum(),
        unknown: answers.unknown.values().sum(),
        load: super::load_average(),
    };
    println!("{}", line(&hand_overs));
    results.hand_overs.retain(|other| (other.lease_ms, other.writers) != (hand_overs.lease_ms, writers));
    results.hand_overs.push(hand_overs);
    results.save()
}

/// Orders one hand-over after the other; when each was ordered.
fn orders(setup: &Setup<'_>, cluster: &Cluster, times: u32) -> Result<Vec<Instant>> {
    let begin = Instant::now() + PERIOD * 2;
    let mut orders = Vec::new();
    for nth in 0..times {
        thread::sleep((begin + PERIOD * nth).saturating_duration_since(Instant::now()));
        let leads = |nth: &usize| {
            replicas(cluster.servers[*nth]).is_ok_and(|all| all.first().is_some_and(|replica| replica.is_led_here))
        };
        // A leader that the disk holds up gives back of itself.
        let mut leader = None;
        wait_until("a leader of the group", || {
            leader = (0..cluster.servers.len()).find(leads);
            Ok(leader.is_some())
        })?;
        let leader = leader.context("nobody leads the group")?;
        let next = (leader + 1) % cluster.servers.len();
        let mut command = promote(setup.primacy, cluster, GROUP, next)?;
        orders.push(Instant::now());
        let output = command.stdin(Stdio::null()).output()?;
        ensure!(output.status.success(), "the order is refused: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(orders)
}

/// Those that were done from then on, for so long: when, and how long they took, in milliseconds.
fn within(answers: &Answers, from: Instant, length: Duration) -> impl Iterator<Item = (f64, f64)> {
    let from = from.saturating_duration_since(answers.begin).as_nanos() as u64;
    let to = from + length.as_nanos() as u64;
    let chosen = answers.done.iter().filter(move |(at, _)| (from..to).contains(at));
    chosen.map(|(at, took)| (*at as f64 / 1e6, *took as f64 / 1e6))
}

/// The longest time between two that were done.
fn gap(answers: &Answers, from: Instant, length: Duration) -> f64 {
    let mut times: Vec<f64> = within(answers, from, length).map(|(at, _)| at).collect();
    times.sort_by(f64::total_cmp);
    times.windows(2).map(|pair| pair[1] - pair[0]).fold(0.0, f64::max)
}

fn longest(answers: &Answers, from: Instant) -> f64 {
    within(answers, from, WATCHED).map(|(_, took)| took).fold(0.0, f64::max)
}

fn line(hand_overs: &HandOvers) -> String {
    let spread = |values: &[f64]| {
        let [half, most, max] = [50, 99, 100].map(|percent| percentile(values.iter().copied(), percent));
        format!("{half:.1} / {most:.1} / {max:.1} ms")
    };
    let HandOvers { writers, gaps_ms, calm_gaps_ms, longest_write_ms, writes, refused, unknown, load, .. } = hand_overs;
    format!(
        "hand-over under {writers} writers, n = {}: longest gap {} (median / 99 % / max), in calm {}; longest write {}; of {writes} \
         writes {refused} refused, {unknown} unknown; load {load}",
        gaps_ms.len(),
        spread(gaps_ms),
        spread(calm_gaps_ms),
        spread(longest_write_ms),
    )
}
