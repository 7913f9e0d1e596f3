//! Three nodes `primacy kv`.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Result, ensure};
use tempfile::TempDir;

use super::cluster::{Cluster, Setup, Store};
use super::codec::Dialect;
use super::process::{Process, addresses};
use super::redis::info;

/// Their names.
const NAMES: [&str; 3] = ["a", "b", "c"];

struct Nodes {
    groups: u16,
    lease: Duration,
}

/// One node, which keeps its groups alone.
pub(super) fn start_alone(setup: &Setup<'_>) -> Result<Cluster> {
    let (folder, servers) = (tempfile::tempdir()?, addresses(1)?);
    let (listen, groups) = (servers[0].to_string(), setup.groups.to_string());
    let primacy = std::path::absolute(setup.primacy)?.to_string_lossy().into_owned();
    let words = [&primacy, "kv", "--dir", "data", "--listen", &listen, "--groups", &groups];
    let words = words.map(str::to_owned).into();
    let processes = vec![Process::start(words, folder.path().join("alone"), setup.flush_delay)?];
    let store = Nodes { groups: setup.groups, lease: setup.lease };
    let mut cluster = Cluster { processes, servers, store: Box::new(store), folder };
    cluster.await_leader()?;
    Ok(cluster)
}

pub(super) fn start(setup: &Setup<'_>, folder: TempDir) -> Result<Cluster> {
    let all = addresses(NAMES.len() * 2)?;
    let (servers, peers) = all.split_at(NAMES.len());
    let list: Vec<String> = NAMES.iter().zip(peers).map(|(name, peer)| format!("{name}@{peer}")).collect();
    let list = list.join(",");
    // The voters' list for `promote`, beside their folders.
    std::fs::write(folder.path().join("store"), format!("peers://{list}"))?;
    let (groups, lease) = (setup.groups.to_string(), format!("{}ms", setup.lease.as_millis()));
    let primacy = std::path::absolute(setup.primacy)?.to_string_lossy().into_owned();
    let mut processes = Vec::new();
    for (name, server) in NAMES.iter().zip(servers) {
        let listen = server.to_string();
        let words = [&primacy, "kv", "--name", name, "--peers", &list, "--dir", "data", "--listen", &listen]
            .into_iter()
            .chain(["--groups", &groups, "--lease", &lease]);
        let words = words.map(str::to_owned).collect();
        processes.push(Process::start(words, folder.path().join(name), setup.flush_delay)?);
    }
    let store = Nodes { groups: setup.groups, lease: setup.lease };
    Ok(Cluster { processes, servers: servers.to_vec(), store: Box::new(store), folder })
}

impl Store for Nodes {
    fn dialect(&self) -> Dialect {
        Dialect::Resp { wait: 0 }
    }

    /// The one that leads the first group.
    fn leader(&self, servers: &[SocketAddr]) -> Option<usize> {
        let replicas = servers.iter().map(|server| replicas(*server)).collect::<Result<Vec<_>>>().ok()?;
        let groups = usize::from(self.groups);
        let is_complete =
            replicas.iter().all(|one| one.len() == groups && one.iter().all(|group| group.leader.is_some()));
        let is_level =
            replicas.iter().all(|one| one.iter().zip(&replicas[0]).all(|(one, other)| one.applied == other.applied));
        if !is_complete || !is_level {
            return None;
        }
        replicas.iter().position(|one| one[0].is_led_here)
    }

    fn leads(&self, server: SocketAddr) -> bool {
        replicas(server).is_ok_and(|all| all[0].is_led_here)
    }

    fn settings(&self) -> String {
        format!("{} groups, lease {} ms", self.groups, self.lease.as_millis())
    }
}

/// What a node says of its replica of a group.
#[derive(Debug, Default)]
pub(super) struct Replica {
    pub(super) leader: Option<String>,
    pub(super) is_led_here: bool,
    pub(super) applied: u64,
    pub(super) keys: u64,
}

/// What a node says of all its replicas, from `INFO`: `group3:leader=b,role=follower,applied=12,keys=4`.
pub(super) fn replicas(server: SocketAddr) -> Result<Vec<Replica>> {
    let told = info(server, "")?;
    let groups: Vec<Replica> = told.lines().filter_map(replica).collect();
    ensure!(!groups.is_empty(), "the node tells of no group");
    Ok(groups)
}

fn replica(line: &str) -> Option<Replica> {
    let (number, facts) = line.trim_end().strip_prefix("group")?.split_once(':')?;
    number.parse::<u16>().ok()?;
    let mut replica = Replica::default();
    for (key, value) in facts.split(',').filter_map(|fact| fact.split_once('=')) {
        match key {
            "leader" => replica.leader = (!value.is_empty()).then(|| value.to_owned()),
            "role" => replica.is_led_here = value == "leader",
            "applied" => replica.applied = value.parse().ok()?,
            "keys" => replica.keys = value.parse().ok()?,
            _ => {}
        }
    }
    Some(replica)
}

/// Has the node that leads the first group lead all of them; which it is.
pub(super) fn gather(primacy: &Path, cluster: &mut Cluster) -> Result<usize> {
    spread(primacy, cluster, 1)
}

/// Has this many nodes lead the groups in turn, from the one that leads the first group on; which that is.
pub(super) fn spread(primacy: &Path, cluster: &mut Cluster, leaders: usize) -> Result<usize> {
    let first = cluster.await_leader()?;
    for group in 0..replicas(cluster.servers[first])?.len() {
        let node = (first + group % leaders) % cluster.servers.len();
        if !replicas(cluster.servers[node])?[group].is_led_here {
            let output = promote(primacy, cluster, group as u16, node)?.output()?;
            let said = String::from_utf8_lossy(&output.stderr);
            ensure!(output.status.success(), "group {group} is not moved: {said}");
        }
    }
    cluster.await_leader()
}

/// How many nodes lead groups.
pub(super) fn led_by(cluster: &Cluster) -> Result<usize> {
    let mut count = 0;
    for server in &cluster.servers {
        count += usize::from(replicas(*server)?.iter().any(|replica| replica.is_led_here));
    }
    Ok(count)
}

/// Orders that a node lead a group from now on, and says whether that was done.
pub(super) fn promote(primacy: &Path, cluster: &Cluster, group: u16, node: usize) -> Result<Command> {
    let store = std::fs::read_to_string(cluster.folder.path().join("store"))?;
    let mut command = Command::new(primacy);
    command.args(["promote", "--store", &store, "--election", &format!("kv/{group}"), NAMES[node]]);
    Ok(command)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_tells_of_a_replica() {
        let replica = replica("group3:leader=b,role=leader,applied=12,keys=4\r").expect("it is one");
        assert_eq!(
            (replica.leader.as_deref(), replica.is_led_here, replica.applied, replica.keys),
            (Some("b"), true, 12, 4)
        );
        assert!(super::replica("groups_led_here:3").is_none());
    }
}
