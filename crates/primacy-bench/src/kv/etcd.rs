//! Three nodes of etcd.

use std::net::SocketAddr;

use anyhow::{Context as _, Result};
use serde_json::Value;
use tempfile::TempDir;

use super::cluster::{Cluster, Setup, Store, System, told};
use super::codec::Dialect;
use super::process::{Process, addresses, require};

const NODES: usize = 3;

struct Etcd {
    heartbeat: &'static str,
    election: &'static str,
}

pub(super) fn start(setup: &Setup<'_>, folder: TempDir) -> Result<Cluster> {
    require("etcd", "etcd-server")?;
    let all = addresses(NODES * 2)?;
    let (servers, peers) = all.split_at(NODES);
    let store = match setup.system {
        System::EtcdFast => Etcd { heartbeat: "10", election: "50" },
        _ => Etcd { heartbeat: "100", election: "1000" },
    };
    let members: Vec<String> = peers.iter().enumerate().map(|(nth, peer)| format!("e{nth}=http://{peer}")).collect();
    let members = members.join(",");
    let mut processes = Vec::new();
    for (nth, (server, peer)) in servers.iter().zip(peers).enumerate() {
        let (name, own) = (format!("e{nth}"), folder.path().join(nth.to_string()));
        let (server, peer) = (format!("http://{server}"), format!("http://{peer}"));
        let words = ["etcd", "--name", &name, "--data-dir", "data", "--log-level", "error"]
            .into_iter()
            .chain(["--listen-client-urls", &server, "--advertise-client-urls", &server])
            .chain(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
            .chain(["--initial-cluster", &members, "--initial-cluster-state", "new"])
            .chain(["--heartbeat-interval", store.heartbeat, "--election-timeout", store.election]);
        processes.push(Process::start(words.map(str::to_owned).collect(), own, setup.flush_delay)?);
    }
    Ok(Cluster { processes, servers: servers.to_vec(), store: Box::new(store), folder })
}

impl Store for Etcd {
    fn dialect(&self) -> Dialect {
        Dialect::Etcd
    }

    fn leader(&self, servers: &[SocketAddr]) -> Option<usize> {
        let told: Vec<(String, String)> = servers.iter().filter_map(|server| status(*server).ok()).collect();
        let (_, leader) = told.first()?;
        let agree = told.len() == servers.len() && told.iter().all(|(_, other)| other == leader);
        if agree { told.iter().position(|(member, _)| member == leader) } else { None }
    }

    fn leads(&self, server: SocketAddr) -> bool {
        status(server).is_ok_and(|(member, leader)| member == leader)
    }

    fn settings(&self) -> String {
        format!(
            "heartbeat {} ms, election time-out {} ms; gRPC, a connection for each client",
            self.heartbeat, self.election
        )
    }
}

/// A node's number, and that of whom it follows.
fn status(server: SocketAddr) -> Result<(String, String)> {
    let question = "POST /v3/maintenance/status HTTP/1.0\r\nContent-Length: 2\r\n\r\n{}";
    let told = told(server, question.as_bytes())?;
    let (_, body) = told.split_once("\r\n\r\n").context("no answer")?;
    let body: Value = serde_json::from_str(body)?;
    let text = |value: &Value| value.as_str().map(str::to_owned).context("it tells of no leader");
    Ok((text(&body["header"]["member_id"])?, text(&body["leader"])?))
}
