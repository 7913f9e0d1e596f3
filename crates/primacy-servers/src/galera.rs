//! A private Galera cluster: several MariaDB servers that certify each other's writes.

use std::fs;
use std::path::{Path, PathBuf};

use crate::host::{Account, PATIENCE, Port, random_word, wait_until};
use crate::keeper::tail;
use crate::mariadb::{self, MariaDb, MariaDbOptions, USERS};
use crate::template::Template;
use crate::{Problem, Result};

/// How a [`Galera`] cluster is set up.
#[derive(Clone, Debug)]
pub struct GaleraOptions {
    /// How many nodes there are.
    pub nodes: usize,
    /// The provider's options, such as `("evs.suspect_timeout", "PT1S")`.
    pub provider: Vec<(String, String)>,
    /// The settings of each node's server.
    pub server: MariaDbOptions,
}

/// Three nodes with Galera's own timing: a lost node stops all writes for six seconds.
impl Default for GaleraOptions {
    fn default() -> Self {
        Self { nodes: 3, provider: Vec::new(), server: MariaDbOptions::default() }
    }
}

impl GaleraOptions {
    /// Three nodes that miss each other within about a second, for tests that lose nodes often.
    pub fn quick() -> Self {
        let timing = [
            ("evs.keepalive_period", "PT0.2S"),
            // It must fit into the install timeout several times, or the survivors of a node that died split up.
            ("evs.join_retrans_period", "PT0.2S"),
            ("evs.inactive_check_period", "PT0.1S"),
            ("evs.suspect_timeout", "PT1S"),
            ("evs.inactive_timeout", "PT3S"),
            ("evs.install_timeout", "PT1.5S"),
        ];
        let provider = timing.map(|(name, value)| (name.to_string(), value.to_string())).into();
        Self { provider, ..Self::default() }
    }
}

/// A running cluster, which ends with this value.
#[derive(Debug)]
pub struct Galera {
    nodes: Vec<MariaDb>,
    /// For replication and transfers of state.
    _ports: Vec<Port>,
}

impl Galera {
    /// Starts a new, empty cluster and waits until all nodes are members.
    pub fn start(options: &GaleraOptions) -> Result<Self> {
        let template = template()?;
        let name = random_word()?;
        let ports = (0..options.nodes * 3).map(|_| Port::free()).collect::<Result<Vec<_>>>()?;
        let members: Vec<String> = ports.chunks(3).map(|ports| format!("127.0.0.1:{}", ports[0].number())).collect();
        let nodes = ports.chunks(3).enumerate().map(|(index, ports)| {
            let mut server = replicated(&options.server, &provider(ports, &options.provider))?;
            server = server.set("wsrep_cluster_name", &name);
            server = server.set("wsrep_cluster_address", &format!("gcomm://{}", members.join(",")));
            server = server.set("wsrep_node_name", &format!("node{index}"));
            server = server.set("wsrep_node_address", &members[index]);
            server = server.set("wsrep_sst_receive_address", &format!("127.0.0.1:{}", ports[2].number()));
            MariaDb::over(&template, &server)
        });
        let nodes = nodes.collect::<Result<Vec<_>>>()?;
        let cluster = Self { nodes, _ports: ports };
        for node in 0..cluster.nodes.len() {
            cluster.start_again(node)?;
        }
        (0..cluster.nodes.len()).try_for_each(|node| cluster.await_size(node, cluster.nodes.len()))?;
        Ok(cluster)
    }

    /// Whether the library is there that makes a cluster of servers.
    pub fn is_installed() -> bool {
        library().is_ok()
    }

    /// One of the nodes, counted from 0. After [`kill9`](Self::kill9), [`start_again`](Self::start_again) of the cluster
    /// lets it fetch what it has missed; its own [`MariaDb::start_again`] makes it copy everything from another node.
    pub fn node(&self, node: usize) -> &MariaDb {
        &self.nodes[node]
    }

    /// All nodes.
    pub fn nodes(&self) -> &[MariaDb] {
        &self.nodes
    }

    /// One URL with all nodes.
    pub fn url(&self) -> String {
        let url = self.nodes[0].url();
        let own = format!("127.0.0.1:{}", self.nodes[0].port());
        let all: Vec<String> = self.nodes.iter().map(|node| format!("127.0.0.1:{}", node.port())).collect();
        url.replace(&own, &all.join(","))
    }

    /// Kills a node.
    pub fn kill9(&self, node: usize) -> Result<()> {
        self.nodes[node].kill9()
    }

    /// Ends a node in an orderly way: it tells the others.
    pub fn stop(&self, node: usize) -> Result<()> {
        self.nodes[node].stop()
    }

    /// Starts a node that was stopped or killed. If no other node runs, the cluster begins again with what this one has.
    pub fn start_again(&self, node: usize) -> Result<()> {
        let server = &self.nodes[node];
        let mut more = Vec::new();
        if let Some(position) = self.recovered(server)? {
            more.push(format!("--wsrep-start-position={position}"));
        }
        if !self.nodes.iter().any(MariaDb::is_running) {
            mark_safe_to_bootstrap(&server.data())?;
            more.push("--wsrep-new-cluster".to_string());
        }
        server.launch_with(&more)
    }

    /// How far a node has come, from its own logs, as an init script would ask before it starts the server.
    fn recovered(&self, server: &MariaDb) -> Result<Option<String>> {
        let told = server.ask(&["--wsrep-recover"])?;
        let position = told.lines().rev().find_map(|line| line.split("Recovered position: ").nth(1));
        Ok(position.map(|position| position.trim().to_string()))
    }

    /// Cuts a node off from the others. Clients still reach it.
    pub fn cut(&self, node: usize) -> Result<()> {
        self.nodes[node].sql("SET GLOBAL wsrep_provider_options = 'gmcast.isolate=1'").map(drop)
    }

    /// Ends [`cut`](Self::cut).
    pub fn heal(&self, node: usize) -> Result<()> {
        self.nodes[node].sql("SET GLOBAL wsrep_provider_options = 'gmcast.isolate=0'").map(drop)
    }

    /// One of a node's `wsrep_…` status values, such as `wsrep_cluster_status`.
    pub fn status(&self, node: usize, name: &str) -> Result<String> {
        let row = self.nodes[node].sql(&format!("SHOW GLOBAL STATUS LIKE '{name}'"))?;
        Ok(row.split('\t').nth(1).unwrap_or_default().to_string())
    }

    /// Waits until a node is ready in a primary component of this size.
    pub fn await_size(&self, node: usize, size: usize) -> Result<()> {
        self.wait_for(node, &format!("node {node} to be one of {size}"), || {
            Ok(self.status(node, "wsrep_cluster_status")? == "Primary"
                && self.status(node, "wsrep_cluster_size")? == size.to_string()
                && self.status(node, "wsrep_ready")? == "ON")
        })
    }

    /// Waits until a node knows that it is not in a primary component.
    pub fn await_non_primary(&self, node: usize) -> Result<()> {
        self.wait_for(node, &format!("node {node} to know that it is alone"), || {
            Ok(self.status(node, "wsrep_cluster_status")? != "Primary")
        })
    }

    /// A node that comes back ends the connections that it has taken before it is one of the cluster again: a question without
    /// an answer is asked once more.
    fn wait_for(&self, node: usize, what: &str, mut holds: impl FnMut() -> Result<bool>) -> Result<()> {
        let mut unanswered = None;
        let answered = || {
            let answer = holds();
            unanswered = answer.as_ref().err().map(|problem| format!("; {problem}"));
            Ok(answer.unwrap_or(false))
        };
        wait_until(what, PATIENCE, answered).map_err(|problem| {
            let (why, log) = (unanswered.unwrap_or_default(), tail(&self.nodes[node].log()));
            Problem::new(format!("{problem}{why}; it said:\n{log}"))
        })
    }
}

/// Galera refuses to make a cluster from a node that was not the last to leave, unless it is told that this is meant.
fn mark_safe_to_bootstrap(data: &Path) -> Result<()> {
    let state = data.join("grastate.dat");
    let Ok(text) = fs::read_to_string(&state) else { return Ok(()) };
    let text = text.replace("safe_to_bootstrap: 0", "safe_to_bootstrap: 1");
    fs::write(&state, text).map_err(|error| Problem::io(&state, &error))
}

/// A server with what replication needs.
fn replicated(server: &MariaDbOptions, provider: &str) -> Result<MariaDbOptions> {
    let library = library()?;
    let own = [
        ("wsrep_on", "1"),
        ("wsrep_provider", &library.to_string_lossy()),
        ("wsrep_provider_options", provider),
        ("wsrep_sst_method", "rsync"),
        ("binlog_format", "ROW"),
        ("innodb_autoinc_lock_mode", "2"),
    ];
    let mut options = server.clone();
    options.settings = own.map(|(name, value)| (name.to_string(), value.to_string())).into();
    options.settings.extend(server.settings.iter().cloned());
    Ok(options)
}

fn provider(ports: &[Port], asked: &[(String, String)]) -> String {
    let mut options = vec![
        format!("gmcast.listen_addr=tcp://127.0.0.1:{}", ports[0].number()),
        format!("ist.recv_addr=127.0.0.1:{}", ports[1].number()),
        "gcache.size=16M".to_string(),
    ];
    options.extend(asked.iter().map(|(name, value)| format!("{name}={value}")));
    options.join(";")
}

fn library() -> Result<PathBuf> {
    let places = ["/usr/lib/galera", "/usr/lib64/galera-4", "/usr/lib64/galera", "/usr/lib/galera-4"];
    let found = places.iter().map(|folder| Path::new(folder).join("libgalera_smm.so")).find(|file| file.is_file());
    found.ok_or_else(|| {
        Problem::new(
            "Galera is not installed: run `cargo xtask services` as root, or install the Debian package galera-4",
        )
    })
}

/// A data folder that belongs to a cluster already, so that its copies join without a transfer of state.
fn template() -> Result<Template> {
    let ports = (0..2).map(|_| Port::free()).collect::<Result<Vec<_>>>()?;
    let server = replicated(&MariaDbOptions::default(), &provider(&ports, &[]))?;
    let server = server.set("wsrep_cluster_address", "gcomm://");
    mariadb::initialised("galera", Account::ordinary(USERS)?, &server.settings)
}
