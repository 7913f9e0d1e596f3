//! Three servers of ZooKeeper.

use std::fmt::Write as _;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;

use anyhow::Result;
use tempfile::TempDir;

use super::cluster::{Cluster, Setup, Store, told};
use super::codec::Dialect;
use super::process::{Process, addresses, require, require_file};

const SERVERS: usize = 3;
const JARS: &str = "/usr/share/java";
const CLASSES: [&str; 3] = ["zookeeper", "slf4j-api", "slf4j-nop"];
const TICK_MS: u32 = 2_000;

struct ZooKeeper;

pub(super) fn start(setup: &Setup<'_>, folder: TempDir) -> Result<Cluster> {
    require("java", "openjdk-17-jre-headless")?;
    let jars = CLASSES.map(|name| Path::new(JARS).join(name).with_extension("jar"));
    for jar in &jars {
        require_file(jar, "libzookeeper-java")?;
    }
    let classes = jars.map(|jar| jar.to_string_lossy().into_owned()).join(":");
    let all = addresses(SERVERS * 3)?;
    let (servers, others) = all.split_at(SERVERS);
    let mut ensemble = String::new();
    for nth in 0..SERVERS {
        writeln!(ensemble, "server.{}={}:{}", nth + 1, others[nth], others[nth + SERVERS].port())?;
    }
    let mut processes = Vec::new();
    for (nth, server) in servers.iter().enumerate() {
        let own = folder.path().join(nth.to_string());
        fs::create_dir_all(own.join("data"))?;
        fs::write(own.join("data/myid"), (nth + 1).to_string())?;
        let config = own.join("zoo.cfg");
        fs::write(
            &config,
            format!(
                "tickTime={TICK_MS}\ninitLimit=10\nsyncLimit=5\ndataDir={}\nclientPort={}\nclientPortAddress=127.0.0.1\n\
                 maxClientCnxns=0\nadmin.enableServer=false\n4lw.commands.whitelist=srvr\n{ensemble}",
                own.join("data").display(),
                server.port(),
            ),
        )?;
        let config = config.to_string_lossy();
        let words = ["java", "-Xmx1g", "-cp", &classes, "org.apache.zookeeper.server.quorum.QuorumPeerMain", &config];
        processes.push(Process::start(words.map(str::to_owned).into(), own, setup.flush_delay)?);
    }
    Ok(Cluster { processes, servers: servers.to_vec(), store: Box::new(ZooKeeper), folder })
}

impl Store for ZooKeeper {
    fn dialect(&self) -> Dialect {
        Dialect::ZooKeeper
    }

    fn leader(&self, servers: &[SocketAddr]) -> Option<usize> {
        let modes: Vec<String> = servers.iter().filter_map(|server| mode(*server)).collect();
        let followers = modes.iter().filter(|mode| *mode == "follower").count();
        if modes.len() != servers.len() || followers != servers.len() - 1 {
            return None;
        }
        modes.iter().position(|mode| mode == "leader")
    }

    fn leads(&self, server: SocketAddr) -> bool {
        mode(server).as_deref() == Some("leader")
    }

    fn settings(&self) -> String {
        format!(
            "tickTime {TICK_MS} ms, initLimit 10, syncLimit 5, 1 GiB of heap; its own protocol, a session for each client"
        )
    }
}

/// What a server says that it is.
fn mode(server: SocketAddr) -> Option<String> {
    let told = told(server, b"srvr").ok()?;
    told.lines().find_map(|line| line.strip_prefix("Mode: ").map(str::to_owned))
}
