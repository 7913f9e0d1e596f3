//! A store that exists for as long as it is measured: one server or three, all processes of this run on 127.0.0.1.

use std::fmt;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use tempfile::TempDir;

use super::codec::{Dialect, Request};
use super::load::{Length, Load};
use super::process::{Process, wait_until};

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(super) enum System {
    /// Three nodes `primacy kv`.
    Primacy,
    /// One Redis that flushes before it answers.
    Redis,
    /// Redis with two replicas, which have each write in memory before it is answered.
    RedisWait,
    /// Three nodes.
    Etcd,
    /// Three nodes with a heartbeat of 10 ms and an election time-out of 50 ms.
    EtcdFast,
    /// Three servers.
    ZooKeeper,
}

impl fmt::Display for System {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Primacy => "primacy kv",
            Self::Redis => "Redis, one, fsync always",
            Self::RedisWait => "Redis, WAIT 2",
            Self::Etcd => "etcd",
            Self::EtcdFast => "etcd, 10/50 ms",
            Self::ZooKeeper => "ZooKeeper",
        })
    }
}

/// How it is started.
#[derive(Clone, Debug)]
pub(super) struct Setup<'a> {
    pub(super) system: System,
    /// The command that is measured.
    pub(super) primacy: &'a Path,
    /// How much longer than the disk each flush takes.
    pub(super) flush_delay: Duration,
    /// Of primacy's groups.
    pub(super) lease: Duration,
    pub(super) groups: u16,
}

/// What is particular to a store.
pub(super) trait Store: Sync {
    fn dialect(&self) -> Dialect;

    /// Which server leads, as soon as all others follow it and have what it has.
    fn leader(&self, servers: &[SocketAddr]) -> Option<usize>;

    /// Whether this one leads.
    fn leads(&self, server: SocketAddr) -> bool;

    /// What is not the default, or decides about the figures.
    fn settings(&self) -> String;
}

/// The servers. They end with this, and their folder goes.
pub(super) struct Cluster {
    pub(super) processes: Vec<Process>,
    /// Where clients connect to each.
    pub(super) servers: Vec<SocketAddr>,
    pub(super) store: Box<dyn Store>,
    pub(super) folder: TempDir,
}

impl Cluster {
    /// Waits until all servers work together; which of them leads.
    pub(super) fn await_leader(&mut self) -> Result<usize> {
        let mut leader = None;
        let Self { processes, servers, store, .. } = self;
        wait_until("the servers to work together", || {
            leader = store.leader(servers);
            processes.iter_mut().try_for_each(Process::check)?;
            Ok(leader.is_some())
        })?;
        leader.context("it leads")
    }

    /// Gives each key a value.
    pub(super) fn fill(&self, keys: &[String], value: &[u8]) -> Result<()> {
        let load = Load {
            dialect: self.store.dialect(),
            servers: &self.servers[..1],
            clients: keys.len().min(50),
            request: Request::Make,
            keys,
            value,
            length: Length::Keys,
        };
        let answers = load.run()?;
        anyhow::ensure!(answers.failures() == 0, "keys cannot be made: {:?}, {:?}", answers.refused, answers.unknown);
        Ok(())
    }

    /// CPU time of each server.
    pub(super) fn cpu(&self) -> Vec<Duration> {
        self.processes.iter().map(Process::cpu).collect()
    }

    pub(super) fn dialect(&self) -> Dialect {
        self.store.dialect()
    }

    /// All servers but one.
    pub(super) fn others(&self, than: usize) -> Vec<SocketAddr> {
        let others = self.servers.iter().enumerate().filter(|(nth, _)| *nth != than);
        others.map(|(_, server)| *server).collect()
    }
}

/// What a server says to a question on a connection that ends then.
pub(super) fn told(server: SocketAddr, question: &[u8]) -> Result<String> {
    let mut socket = TcpStream::connect(server)?;
    socket.set_read_timeout(Some(Duration::from_secs(1)))?;
    socket.write_all(question)?;
    let mut told = Vec::new();
    socket.read_to_end(&mut told)?;
    Ok(String::from_utf8_lossy(&told).into_owned())
}
