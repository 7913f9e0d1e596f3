//! How many requests a store answers, and how soon, by one client or many.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use anyhow::Result;

use super::cluster::{Cluster, Setup, System};
use super::codec::Request;
use super::load::{Answers, Length, Load};
use super::nodes;
use super::results::{At, Results, Run, Work, percentile};
use super::start::start;
use crate::proc;

/// What is done in each run.
pub(super) struct Plan {
    pub(super) systems: Vec<System>,
    pub(super) runs: usize,
    pub(super) bytes: usize,
    pub(super) warm: Duration,
    pub(super) counted: Duration,
    /// How much longer than the disk each flush takes, one after the other.
    pub(super) flush_delays: Vec<Duration>,
    pub(super) keys: usize,
}

/// Between two pieces of work, so that what the first one has left to do does not burden the second.
const PAUSE: Duration = Duration::from_millis(500);

/// Each run starts every store anew, one after the other, and the next run begins with the next store.
pub(super) fn measure(plan: &Plan, setup: &Setup<'_>, results: &mut Results) -> Result<()> {
    let keys: Vec<String> = (0..plan.keys).map(|n| format!("key:{n:08}")).collect();
    let value = value(plan.bytes);
    for run in 0..plan.runs {
        for &flush_delay in &plan.flush_delays {
            for nth in 0..plan.systems.len() {
                let system = plan.systems[(nth + run) % plan.systems.len()];
                let setup = Setup { system, flush_delay, ..setup.clone() };
                if let Err(error) = load_all(plan, &setup, &keys, &value, results) {
                    // One store that fails ends no long series, and neither is it passed over.
                    println!("{system} has failed, and is started anew: {error:#}");
                    load_all(plan, &setup, &keys, &value, results)?;
                }
            }
        }
    }
    Ok(())
}

/// Starts a store and has it do each work once.
fn load_all(plan: &Plan, setup: &Setup<'_>, keys: &[String], value: &[u8], results: &mut Results) -> Result<()> {
    let Setup { system, flush_delay, .. } = *setup;
    let mut cluster = start(setup)?;
    results.set_up(system, cluster.store.settings());
    cluster.fill(keys, value)?;
    if system == System::Primacy {
        nodes::gather(setup.primacy, &mut cluster)?;
    }
    let mut runs = Vec::new();
    for (request, clients, at) in works(system, !flush_delay.is_zero()) {
        thread::sleep(PAUSE);
        let flush_delay_us = flush_delay.as_micros() as u64;
        let work = Work { request, clients, at, flush_delay_us, bytes: plan.bytes };
        let run = one(plan, &mut cluster, work, keys, value)?;
        println!("{}", line(system, &work, &run));
        runs.push((work, run));
    }
    // A store that fails at one of them counts in none.
    runs.into_iter().for_each(|(work, run)| results.add(system, work, run));
    results.save()
}

/// Random bytes, which nobody can make shorter.
pub(super) fn value(bytes: usize) -> Vec<u8> {
    let mut entropy = crate::Entropy(7);
    std::iter::repeat_with(|| entropy.next().to_le_bytes()).flatten().take(bytes).collect()
}

fn works(system: System, only_writes: bool) -> Vec<(Request, usize, At)> {
    let mut works =
        vec![(Request::Set, 1, At::Leader), (Request::Set, 50, At::Leader), (Request::Set, 200, At::Leader)];
    if only_writes {
        return works;
    }
    let has_many = !matches!(system, System::Redis | System::RedisWait);
    if has_many {
        works.push((Request::Set, 50, At::All));
    }
    if system != System::RedisWait {
        works.push((Request::Get, 50, At::Leader));
    }
    if has_many {
        works.push((Request::Get, 50, At::Follower));
    }
    if system == System::ZooKeeper {
        works.push((Request::LocalGet, 50, At::Leader));
    }
    works
}

/// Those that clients of this place connect to, and all servers' numbers with the leader first.
fn place(cluster: &mut Cluster, at: At) -> Result<(Vec<SocketAddr>, Vec<usize>)> {
    let leader = cluster.await_leader()?;
    let mut order: Vec<usize> = (0..cluster.servers.len()).collect();
    order.sort_by_key(|nth| *nth != leader);
    let servers = match at {
        At::Leader => vec![cluster.servers[leader]],
        At::Follower => cluster.others(leader)[..1].to_vec(),
        At::All => cluster.servers.clone(),
    };
    Ok((servers, order))
}

fn one(plan: &Plan, cluster: &mut Cluster, work: Work, keys: &[String], value: &[u8]) -> Result<Run> {
    let (servers, order) = place(cluster, work.at)?;
    let load = Load {
        dialect: cluster.dialect(),
        servers: &servers,
        clients: work.clients,
        request: work.request,
        keys,
        value,
        length: Length::Time { warm: plan.warm, counted: plan.counted },
    };
    let cost = |cluster: &Cluster| (proc::cpu(std::process::id()), cluster.cpu());
    let before = cost(cluster);
    let answers = load.run()?;
    let after = cost(cluster);
    let each = |after: Duration, before: Duration| (after - before).as_secs_f64() * 1e6 / answers.all as f64;
    let mut run = run_of(&answers);
    run.loader_cpu_us = each(after.0, before.0);
    run.server_cpu_us = order.iter().map(|nth| each(after.1[*nth], before.1[*nth])).collect();
    Ok(run)
}

pub(super) fn run_of(answers: &Answers) -> Run {
    let micros = || answers.done.iter().map(|(_, took)| *took as f64 / 1e3);
    let sum = |counts: &BTreeMap<String, u64>| counts.values().sum();
    Run {
        per_second: answers.done.len() as f64 / answers.lasted.as_secs_f64(),
        median_us: percentile(micros(), 50),
        p99_us: percentile(micros(), 99),
        max_us: percentile(micros(), 100),
        refused: sum(&answers.refused),
        unknown: sum(&answers.unknown),
        loader_cpu_us: 0.0,
        server_cpu_us: Vec::new(),
        load: super::load_average(),
    }
}

fn line(system: System, work: &Work, run: &Run) -> String {
    let Run { per_second, median_us, p99_us, max_us, refused, unknown, loader_cpu_us, load, .. } = run;
    let servers: Vec<String> = run.server_cpu_us.iter().map(|micros| format!("{micros:.0}")).collect();
    let delay = if work.flush_delay_us > 0 { format!(" flush + {} us", work.flush_delay_us) } else { String::new() };
    format!(
        "{system:<24}{delay} {:<9} {:>3} clients at {:<8}: {per_second:>7.0}/s  p50 {:>7.2} ms  p99 {:>7.2}  max {:>7.2}  \
         cpu us: loader {loader_cpu_us:.1}, servers {}; refused {refused}, unknown {unknown}; load {load}",
        format!("{:?}", work.request).to_lowercase(),
        work.clients,
        format!("{:?}", work.at).to_lowercase(),
        median_us / 1e3,
        p99_us / 1e3,
        max_us / 1e3,
        servers.join(" + "),
    )
}
