//! Three nodes at rest, and nodes that start again over much data.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

use super::cluster::{Cluster, Setup, System};
use super::codec::{Event, Outcome, Request};
use super::connection::{Connection, SCRATCH_BYTES};
use super::load::{Length, Load};
use super::nodes;
use super::process::wait_until;
use super::results::{Rest, Restart, Results};
use super::start::start;
use super::throughput::value;
use crate::proc;

/// What starting has left to do is over by then: the next file of the log becomes ready a MiB in each quarter of a second.
const SETTLED_AFTER: Duration = Duration::from_secs(20);

/// What nodes cost to which nobody speaks, where one of them leads all groups, or each of them some.
pub(super) fn measure(setup: &Setup<'_>, leaders: usize, seconds: u64, results: &mut Results) -> Result<()> {
    let mut cluster = start(setup)?;
    let leader = nodes::spread(setup.primacy, &mut cluster, leaders)?;
    thread::sleep(SETTLED_AFTER);
    let mut order: Vec<usize> = (0..cluster.servers.len()).collect();
    order.sort_by_key(|nth| *nth != leader);
    let cost = || anyhow::Ok((Instant::now(), cluster.cpu(), messages(&cluster)?));
    let before = cost()?;
    thread::sleep(Duration::from_secs(seconds));
    let after = cost()?;
    let led = nodes::led_by(&cluster)?;
    ensure!(led == leaders, "{led} nodes lead by the end, and not {leaders}");
    let elapsed = (after.0 - before.0).as_secs_f64();
    let percent = |nth: &usize| (after.1[*nth] - before.1[*nth]).as_secs_f64() / elapsed * 100.0;
    let memory = |nth: &usize| {
        let family = cluster.processes[*nth].family();
        family.into_iter().map(proc::memory).sum::<u64>() as f64 / f64::from(1 << 20)
    };
    let rest = Rest {
        system: setup.system,
        groups: setup.groups,
        leaders,
        lease_ms: setup.lease.as_millis() as u64,
        seconds: elapsed,
        cpu_percent: order.iter().map(percent).collect(),
        messages_per_second: after.2.saturating_sub(before.2) as f64 / elapsed,
        memory_mib: order.iter().map(memory).collect(),
        load: super::load_average(),
    };
    println!("{rest:?}");
    let key = |rest: &Rest| (rest.system, rest.groups, rest.leaders, rest.lease_ms);
    results.rests.retain(|other| key(other) != key(&rest));
    results.rests.push(rest);
    results.save()
}

/// How many segments with data the processes of a store have sent each other, by the kernel's count for each connection.
fn messages(cluster: &Cluster) -> Result<u64> {
    let ports = |pid: u32| {
        let sockets: BTreeSet<String> = fs::read_dir(format!("/proc/{pid}/fd"))
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|file| fs::read_link(file.path()).ok()?.to_str().map(str::to_owned))
            .collect();
        sockets
    };
    let own: BTreeSet<String> = cluster.processes.iter().flat_map(|process| process.family()).flat_map(ports).collect();
    let output = Command::new("ss").args(["-tineHO", "state", "established"]).output();
    let output = output.context("cannot run ss, of the Debian package iproute2")?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let counts = text.lines().filter_map(|line| {
        let word = |name: &str| line.split_whitespace().find_map(|word| word.strip_prefix(name));
        let inode = word("ino:")?;
        if !own.contains(&format!("socket:[{inode}]")) {
            return None;
        }
        word("data_segs_out:")?.parse::<u64>().ok()
    });
    Ok(counts.sum())
}

/// Fills primacy's nodes, and starts one of them, then all of them, this many times.
pub(super) fn restarts(setup: &Setup<'_>, mib: u64, times: usize, bytes: usize, results: &mut Results) -> Result<()> {
    ensure!(setup.system == System::Primacy, "only primacy's nodes are filled");
    let mut cluster = start(setup)?;
    let (count, value) = (mib * (1 << 20) / bytes as u64, value(bytes));
    let keys: Vec<String> = (0..count).map(|n| format!("key:{n:08}")).collect();
    let began = Instant::now();
    let leader = cluster.await_leader()?;
    let load = Load {
        dialect: cluster.dialect(),
        servers: &cluster.servers[leader..=leader],
        clients: 200,
        request: Request::Set,
        keys: &keys,
        value: &value,
        length: Length::Keys,
    };
    let answers = load.run()?;
    ensure!(answers.failures() == 0, "not all was written: {:?}", answers.refused);
    println!("{mib} MiB in values of {bytes} bytes are written after {:.1?}", began.elapsed());
    let mut keep = |what: &str, seconds: Vec<f64>| {
        println!("{what}: {seconds:.2?} s; load {}", super::load_average());
        results.restarts.retain(|other| other.what != what || other.data_mib != mib);
        let what = what.to_owned();
        results.restarts.push(Restart {
            what,
            data_mib: mib,
            value_bytes: bytes,
            seconds,
            load: super::load_average(),
        });
        results.save()
    };
    let mut seconds = Vec::new();
    for _ in 0..times {
        let leader = cluster.await_leader()?;
        let follower = (leader + 1) % cluster.servers.len();
        cluster.processes[follower].kill();
        let began = Instant::now();
        cluster.processes[follower].start_again()?;
        cluster.await_leader()?;
        seconds.push(began.elapsed().as_secs_f64());
    }
    keep("a follower is killed and started, until it has all", seconds)?;
    let mut seconds = Vec::new();
    for _ in 0..times {
        cluster.await_leader()?;
        cluster.processes.iter_mut().for_each(super::process::Process::kill);
        let began = Instant::now();
        cluster.processes.iter_mut().try_for_each(super::process::Process::start_again)?;
        wait_until("a write", || Ok(cluster.servers.iter().any(|server| writes(&cluster, *server, &value))))?;
        seconds.push(began.elapsed().as_secs_f64());
    }
    keep("all nodes are killed and started, until a write is done", seconds)
}

/// Whether a server takes a write, within a while.
fn writes(cluster: &Cluster, server: std::net::SocketAddr, value: &[u8]) -> bool {
    let Ok(mut connection) = Connection::open(server, cluster.dialect(), value.len()) else { return false };
    let mut scratch = vec![0; SCRATCH_BYTES];
    if connection.ask(Request::Set, b"key:00000000", value, Instant::now()).is_err() {
        return false;
    }
    let end = Instant::now() + Duration::from_millis(200);
    while Instant::now() < end {
        match connection.read(&mut scratch) {
            Ok(Some(Event::Answered(outcome))) => return outcome == Outcome::Done,
            Ok(_) => thread::sleep(Duration::from_millis(1)),
            Err(_) => return false,
        }
    }
    false
}
