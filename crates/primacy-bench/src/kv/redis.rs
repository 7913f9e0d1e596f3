//! Redis: one server that flushes before it answers, or one with replicas, each flushed once a second.

use std::net::SocketAddr;

use anyhow::Result;
use tempfile::TempDir;

use super::cluster::{Cluster, Setup, Store, told};
use super::codec::Dialect;
use super::process::{Process, addresses, require, wait_until};

struct Redis {
    replicas: u8,
}

/// Starts it with this many replicas.
pub(super) fn start(setup: &Setup<'_>, replicas: u8, folder: TempDir) -> Result<Cluster> {
    require("redis-server", "redis-server")?;
    let servers = addresses(usize::from(replicas) + 1)?;
    let (master, flush) = (servers[0], if replicas == 0 { "always" } else { "everysec" });
    let mut processes = Vec::new();
    for server in &servers {
        let port = server.port().to_string();
        let own = folder.path().join(&port);
        let mut words: Vec<String> = ["redis-server", "--port", &port, "--bind", "127.0.0.1", "--save", ""]
            .into_iter()
            .chain(["--appendonly", "yes", "--appendfsync", flush, "--repl-diskless-sync-delay", "0"])
            .map(str::to_owned)
            .collect();
        if *server != master {
            words.extend(["--replicaof".to_owned(), format!("127.0.0.1 {}", master.port())]);
        }
        let mut process = Process::start(words, own, setup.flush_delay)?;
        // A replica that comes before its master tries again after a second.
        wait_until("the port of a Redis", || {
            process.check()?;
            Ok(super::process::listens(*server))
        })?;
        processes.push(process);
    }
    Ok(Cluster { processes, servers, store: Box::new(Redis { replicas }), folder })
}

impl Store for Redis {
    fn dialect(&self) -> Dialect {
        Dialect::Resp { wait: self.replicas }
    }

    fn leader(&self, servers: &[SocketAddr]) -> Option<usize> {
        let linked =
            |server: &SocketAddr| info(*server, "replication").is_ok_and(|told| told.contains("master_link_status:up"));
        servers[1..].iter().all(linked).then_some(0)
    }

    fn leads(&self, server: SocketAddr) -> bool {
        info(server, "replication").is_ok_and(|told| told.contains("role:master"))
    }

    fn settings(&self) -> String {
        match self.replicas {
            0 => "appendonly yes, appendfsync always".to_owned(),
            replicas => format!(
                "{replicas} replicas, appendonly yes, appendfsync everysec; SET and WAIT {replicas} in one packet"
            ),
        }
    }
}

/// A part of what a server tells about itself, in RESP.
pub(super) fn info(server: SocketAddr, part: &str) -> Result<String> {
    told(server, format!("INFO {part}\r\nQUIT\r\n").as_bytes())
}
