//! Where the time of a write goes: what each thread of the loader and of the nodes uses for it, by the kernel's account, and what the
//! stages take, by what each of them adds.

use std::collections::BTreeMap;
use std::fs;
use std::time::{Duration, Instant};

use anyhow::Result;

use super::bare_copy;
use super::cluster::{Cluster, Setup};
use super::codec::Request;
use super::load::{Length, Load};
use super::nodes;
use super::results::{Results, ThreadShare, Trace, percentile};
use super::start::start;
use super::throughput::value;

/// What a thread has used so far: CPU time and time in the queue for a core, in nanoseconds, and how often it got one.
type Account = BTreeMap<(usize, u32), (String, [u64; 3])>;

/// Writes by this many clients at the leader.
pub(super) fn measure(
    setup: &Setup<'_>,
    clients: usize,
    bytes: usize,
    length: Duration,
    results: &mut Results,
) -> Result<()> {
    let mut cluster = start(setup)?;
    let keys: Vec<String> = (0..10_000).map(|n| format!("key:{n:08}")).collect();
    let value = value(bytes);
    cluster.fill(&keys, &value)?;
    let leader = nodes::gather(setup.primacy, &mut cluster)?;
    let load = Load {
        dialect: cluster.dialect(),
        servers: &cluster.servers[leader..=leader],
        clients,
        request: Request::Set,
        keys: &keys,
        value: &value,
        length: Length::Time { warm: Duration::ZERO, counted: length },
    };
    let before = account(&cluster);
    let answers = load.run()?;
    let after = account(&cluster);
    let writes = answers.all as f64;
    let mut shares: BTreeMap<(String, String), [f64; 3]> = BTreeMap::new();
    for ((owner, thread), (name, used)) in &after {
        let begun = before.get(&(*owner, *thread)).map_or([0; 3], |(_, used)| *used);
        let process = match *owner {
            0 => "client",
            nth if nth == leader + 1 => "leader",
            _ => "follower",
        };
        let sum = shares.entry((process.to_owned(), name.clone())).or_default();
        for (sum, (used, begun)) in sum.iter_mut().zip(used.iter().zip(begun)) {
            *sum += used.saturating_sub(begun) as f64;
        }
    }
    let threads = shares.into_iter().map(|((process, thread), [cpu, waited, switches])| {
        // A follower's is the mean of all.
        let of = if process == "follower" { (cluster.servers.len() - 1) as f64 } else { 1.0 } * writes;
        ThreadShare { process, thread, cpu_us: cpu / of / 1e3, waited_us: waited / of / 1e3, switches: switches / of }
    });
    let mut threads: Vec<ThreadShare> = threads.filter(|thread| thread.cpu_us >= 0.05).collect();
    threads.sort_by(|one, other| {
        (&one.process, other.cpu_us).partial_cmp(&(&other.process, one.cpu_us)).unwrap_or(std::cmp::Ordering::Equal)
    });
    let trace = Trace {
        clients,
        per_second: answers.done.len() as f64 / answers.lasted.as_secs_f64(),
        median_us: percentile(answers.done.iter().map(|(_, took)| *took as f64 / 1e3), 50),
        threads,
        stages: if clients == 1 { stages(setup, &mut cluster, &keys, &value, length)? } else { Vec::new() },
        load: super::load_average(),
    };
    println!(
        "{clients} clients: {:.0} writes a second, {:.0} us at the median; load {}",
        trace.per_second, trace.median_us, trace.load
    );
    for ThreadShare { process, thread, cpu_us, waited_us, switches } in &trace.threads {
        println!(
            "  {process:<9} {thread:<16} {cpu_us:>6.1} us, waited for a core {waited_us:>6.1} us, was woken {switches:.2} times"
        );
    }
    for (stage, half, most) in &trace.stages {
        println!("  {stage:<38} {half:>6.0} us at the median, {most:>6.0} at 99 %");
    }
    results.traces.retain(|other| other.clients != clients);
    results.traces.push(trace);
    results.save()
}

/// Of the loader (0) and of each server.
fn account(cluster: &Cluster) -> Account {
    let mut account = Account::new();
    let own = std::iter::once((0, vec![std::process::id()]));
    let servers = cluster.processes.iter().enumerate().map(|(nth, process)| (nth + 1, process.family()));
    for (owner, pid) in own.chain(servers).flat_map(|(owner, family)| family.into_iter().map(move |pid| (owner, pid))) {
        for task in fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten() {
            let read = |name: &str| fs::read_to_string(task.path().join(name)).unwrap_or_default();
            let numbers: Vec<u64> = read("schedstat").split_whitespace().filter_map(|word| word.parse().ok()).collect();
            let (Some(used), Some(thread)) =
                (numbers.first_chunk::<3>(), task.file_name().to_str().and_then(|name| name.parse().ok()))
            else {
                continue;
            };
            account.insert((owner, thread), (read("comm").trim().to_owned(), *used));
        }
    }
    account
}

/// What one client waits for, with more and more of a write's way in it: median and 99 %, in microseconds.
fn stages(
    setup: &Setup<'_>,
    cluster: &mut Cluster,
    keys: &[String],
    value: &[u8],
    length: Duration,
) -> Result<Vec<(String, f64, f64)>> {
    let leader = cluster.await_leader()?;
    let one = |cluster: &Cluster, server: usize, request: Request| {
        let load = Load {
            dialect: cluster.dialect(),
            servers: &cluster.servers[server..=server],
            clients: 1,
            request,
            keys,
            value,
            length: Length::Time { warm: Duration::ZERO, counted: length },
        };
        let answers = load.run()?;
        let spread = |percent| percentile(answers.done.iter().map(|(_, took)| *took as f64 / 1e3), percent);
        anyhow::Ok((spread(50), spread(99)))
    };
    let flushes = flushes(cluster.folder.path(), value)?;
    let copies = bare_copy::measure(cluster.folder.path(), value, length)?;
    let spread = |times: &[Duration]| {
        let at = |percent| percentile(times.iter().map(|time| time.as_secs_f64() * 1e6), percent);
        (at(50), at(99))
    };
    let alone = nodes::start_alone(setup)?;
    alone.fill(keys, value)?;
    let follower = (leader + 1) % cluster.servers.len();
    let stage = |what: &str, (half, most): (f64, f64)| (what.to_owned(), half, most);
    Ok(vec![
        stage("a flush by itself", spread(&flushes)),
        stage("three threads that only copy and flush", spread(&copies)),
        stage("a read at the leader", one(cluster, leader, Request::Get)?),
        stage("a write on a node alone", one(&alone, 0, Request::Set)?),
        stage("a write at the leader of three", one(cluster, leader, Request::Set)?),
        stage("a read through a follower", one(cluster, follower, Request::Get)?),
        stage("a write through a follower", one(cluster, follower, Request::Set)?),
    ])
}

/// How long this disk takes to keep one value after the other in a file that has its room already.
fn flushes(folder: &std::path::Path, value: &[u8]) -> Result<Vec<Duration>> {
    const COUNT: usize = 500;
    let mut disk = bare_copy::Disk::new(folder, "flushes", value.len())?;
    let flush = |_| {
        let began = Instant::now();
        disk.keep(value)?;
        anyhow::Ok(began.elapsed())
    };
    (0..COUNT).map(flush).collect()
}
