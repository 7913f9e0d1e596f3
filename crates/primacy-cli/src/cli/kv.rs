//! `primacy kv`: which node a process is, where its clients come, and what is asked of a node that runs.
#![cfg(feature = "kv")]

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use primacy::peers::tls::ServerFiles;
use primacy::peers::{PeerAddress, PeerSettings};
use primacy::store::{self, Store};
use primacy::{Timing, TimingSettings};
use primacy_kv::server::clients;
use std::sync::Arc;

use super::peer::{PeerArgs, Voters};
use super::{duration, examples, store_url};
use crate::failure::Failure;

/// What a node is called that is alone.
const ALONE: &str = "kv";
/// How far the port of a node alone is from that of its clients: as Redis's cluster bus.
const BUS: u16 = 10_000;

/// `primacy kv`.
#[derive(Args, Clone, Debug)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct KvArgs {
    /// Which of the nodes this is [default: kv, alone]
    ///
    /// PRIMACY_NAME in the environment says the same.
    #[arg(long, env = "PRIMACY_NAME", hide_env = true, value_name = "NAME", requires = "peers")]
    name: Option<String>,
    /// All nodes, this one too
    ///
    /// One to nine, separated by commas; three or five as a rule. The same for all of them. Without, this node is alone.
    #[arg(long, value_name = "NAME@HOST:PORT,...", requires = "name")]
    peers: Option<Voters>,
    /// The node's folder, which is this process's alone
    ///
    /// No other process may use it, ever, and no copy of it. The default is kv-NAME in the state directory.
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Where clients of Redis are served
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:6379")]
    listen: SocketAddr,
    /// Where to listen for the other nodes [default: the port that --peers says]
    #[arg(long, value_name = "ADDR:PORT", hide_short_help = true, requires = "peers")]
    listen_peers: Option<SocketAddr>,
    /// How many groups the keys are in
    ///
    /// Each has a leader. 1 to 1,024; that never changes later.
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=1_024))]
    groups: u16,
    /// How long a leader's grant lasts unless renewed
    ///
    /// That is the wait when a whole host is lost.
    #[arg(long, value_name = "DUR", default_value = "1s", value_parser = duration::parse, allow_hyphen_values = true)]
    lease: Duration,
    /// What reads rest on: lease or quorum
    ///
    /// The leader's lease, or the answers of a majority, which need no clock.
    #[arg(long, value_enum, value_name = "HOW", default_value_t = Reads::Lease, hide_possible_values = true)]
    reads: Reads,
    /// The file with the password of clients, in its first line
    #[arg(long, value_name = "FILE")]
    password_file: Option<PathBuf>,
    /// The certificate that clients see, and those between that and its authority's, in PEM: with it they come over TLS
    #[arg(long, value_name = "FILE", requires = "tls_key", hide_short_help = true)]
    tls_cert: Option<PathBuf>,
    /// The key of that certificate, in PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert", hide_short_help = true)]
    tls_key: Option<PathBuf>,
    /// The authority of clients' certificates, in PEM: who has none is refused
    #[arg(long, value_name = "FILE", requires = "tls_cert", hide_short_help = true)]
    tls_client_ca: Option<PathBuf>,
    /// How much keys may take [default: half of the memory]
    ///
    /// Such as 512MiB: keys, values, and what belongs to them.
    #[arg(long, value_name = "SIZE", value_parser = size)]
    memory: Option<usize>,
    /// The longest value
    #[arg(long, value_name = "SIZE", default_value = "8MiB", value_parser = size, hide_short_help = true)]
    value_max: usize,
    /// After how many bytes of log a group takes a snapshot [default: as many as its keys take]
    ///
    /// By default 8MiB at least and 64MiB at most. Never so many that the logs of all groups have more than an eighth of --memory.
    #[arg(long, value_name = "SIZE", value_parser = size, hide_short_help = true)]
    snapshot_every: Option<usize>,
    /// The folder that `primacy peer certs` has filled
    ///
    /// Nodes on several machines prove by it to each other who they are.
    #[arg(long, value_name = "DIR", conflicts_with = "plaintext", requires = "peers")]
    certs: Option<PathBuf>,
    /// Believe every node that can connect
    ///
    /// Among nodes on loopback that needs not be said.
    #[arg(long, requires = "peers", hide_short_help = true)]
    plaintext: bool,
    #[command(subcommand)]
    pub(crate) command: Option<KvCommand>,
}

/// What is asked of a node, or of its folder.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum KvCommand {
    /// Show how a running node and its groups are
    #[command(after_help = examples::KV_STATUS)]
    Status(NodeArgs),
    /// Say in sentences how one group is, and who could lead it
    #[command(after_help = examples::KV_EXPLAIN)]
    Explain {
        /// The group's number
        #[arg(value_name = "GROUP")]
        group: u16,
        #[command(flatten)]
        node: NodeArgs,
    },
    /// Have a new node take the place of a lost one of the same name
    #[command(after_help = examples::KV_REPLACE)]
    Replace {
        /// What it is called
        #[arg(value_name = "NODE")]
        name: String,
        #[command(flatten)]
        node: NodeArgs,
    },
    /// Have a running node take snapshots of all groups now
    #[command(after_help = examples::KV_SNAPSHOT)]
    Snapshot(NodeArgs),
    /// Read a stopped node's folder without changing it, and say what is there
    #[command(after_help = examples::KV_CHECK)]
    Check {
        /// The node's folder
        #[arg(value_name = "DIR")]
        dir: PathBuf,
    },
}

/// Which node is asked: one that runs on this machine.
#[derive(Args, Clone, Debug)]
pub(crate) struct NodeArgs {
    /// Its folder [default: that of a node alone]
    #[arg(long, value_name = "DIR", env = "PRIMACY_KV_DIR")]
    dir: Option<PathBuf>,
}

impl NodeArgs {
    pub(crate) fn folder(&self) -> PathBuf {
        self.dir.clone().unwrap_or_else(|| store_url::node_folder(ALONE))
    }
}

/// What a read rests on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Reads {
    /// The leader's lease
    Lease,
    /// The answers of a majority
    Quorum,
}

/// A node as it is told to be, checked.
pub(crate) struct NodeOptions {
    pub(crate) folder: PathBuf,
    pub(crate) voter: PeerSettings,
    pub(crate) store_url: String,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) groups: u16,
    pub(crate) timing: Timing,
    pub(crate) reads: Reads,
    pub(crate) memory: Option<usize>,
    pub(crate) snapshot_every: Option<usize>,
    pub(crate) clients: clients::Settings,
}

impl KvArgs {
    /// How the node takes part, checked as a whole.
    pub(crate) fn options(&self) -> Result<NodeOptions, Failure> {
        let name = self.name.clone().unwrap_or_else(|| ALONE.to_owned());
        let peers = match &self.peers {
            Some(Voters(peers)) => peers.clone(),
            None => {
                let port = self.listen.port().checked_add(BUS).ok_or_else(|| {
                    Failure::usage(format!(
                        "a node alone talks to itself at the port of --listen and {BUS}: choose a port below {}, or name the node with \
                         --name a --peers a@127.0.0.1:PORT",
                        u16::MAX - BUS
                    ))
                })?;
                let place = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port);
                vec![
                    format!("{name}@{place}")
                        .parse::<PeerAddress>()
                        .map_err(|error| Failure::usage(error.to_string()))?,
                ]
            }
        };
        let folder = self.dir.clone().unwrap_or_else(|| store_url::node_folder(&name));
        let folder = std::path::absolute(&folder).map_err(|error| Failure::usage(format!("--dir: {error}")))?;
        let (certs, places) = (self.certs.clone(), peers.iter().map(ToString::to_string).collect::<Vec<_>>().join(","));
        let mut store_url = format!("peers://{places}");
        if let Some(certs) = &certs {
            let certs = std::path::absolute(certs).map_err(|error| Failure::usage(format!("--certs: {error}")))?;
            let path = certs.to_str().filter(|path| !path.contains(['?', '&', '=']));
            let path = path.ok_or_else(|| Failure::usage("--certs: choose a folder without ?, & and = in its path"))?;
            store_url += &format!("?certs={path}&name={name}");
        } else if self.plaintext {
            store_url += "?plaintext=yes";
        }
        let voter = PeerArgs::of_node(name, peers, self.listen_peers, folder.join("voter"), certs, self.plaintext);
        let store = store::from_url(&store_url).map_err(|error| Failure::usage(error.to_string()))?;
        let timing = Timing::new(TimingSettings::new(self.lease)).map_err(|error| Failure::usage(error.to_string()))?;
        let options = NodeOptions {
            folder,
            voter: voter.settings()?,
            store_url,
            store,
            groups: self.groups,
            timing,
            reads: self.reads,
            memory: self.memory.or_else(half_of_memory),
            snapshot_every: self.snapshot_every,
            clients: self.clients()?,
        };
        Ok(options)
    }

    fn clients(&self) -> Result<clients::Settings, Failure> {
        let mut settings = clients::Settings::new(self.listen);
        settings.value_max = self.value_max;
        if let Some(file) = &self.password_file {
            let text = std::fs::read(file)
                .map_err(|error| Failure::usage(format!("--password-file: {}: {error}", file.display())))?;
            let line = text.split(|byte| matches!(byte, b'\n' | b'\r')).next().unwrap_or_default();
            let password = clients::Password::new(line);
            settings.password = Some(password.ok_or_else(|| {
                Failure::usage(format!(
                    "--password-file: the first line of {} has to have 1 to 512 bytes",
                    file.display()
                ))
            })?);
        }
        if let (Some(certificate), Some(key)) = (self.tls_cert.clone(), self.tls_key.clone()) {
            settings.tls = Some(ServerFiles::new(certificate, key).with_clients(self.tls_client_ca.clone()));
        }
        settings.check().map_err(|error| Failure::usage(error.to_string()))?;
        Ok(settings)
    }
}

/// A number of bytes, with a unit or without.
fn size(text: &str) -> Result<usize, String> {
    let wrong = || format!("'{text}' is no size: write 4096, 64KiB, 512MiB or 2GiB");
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let shift = match text[digits..].trim().to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        "t" | "tb" | "tib" => 40,
        _ => return Err(wrong()),
    };
    let number: usize = text[..digits].parse().map_err(|_| wrong())?;
    number.checked_mul(1 << shift).filter(|size| *size > 0).ok_or_else(wrong)
}

/// Half of what this machine has, or may use.
fn half_of_memory() -> Option<usize> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: usize = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    let limit = std::fs::read_to_string("/sys/fs/cgroup/memory.max").ok().and_then(|text| text.trim().parse().ok());
    Some(kib.saturating_mul(1_024).min(limit.unwrap_or(usize::MAX)) / 2)
}

#[cfg(test)]
mod tests {
    use super::super::{Cli, Command};
    use super::*;
    use clap::Parser as _;

    fn options(words: &[&str]) -> Result<NodeOptions, Failure> {
        let cli = Cli::try_parse_from(["primacy", "kv"].iter().chain(words)).expect("known words");
        let Command::Kv(args) = cli.command else { panic!("asked for kv") };
        args.options()
    }

    #[test]
    fn one_alone_has_its_voter_on_loopback() {
        let alone = options(&["--listen", "127.0.0.1:7000", "--dir", "/x"]).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(alone.store_url, "peers://kv@127.0.0.1:17000");
        assert_eq!(alone.voter.listen.to_string(), "127.0.0.1:17000");
        assert_eq!(alone.voter.folder, PathBuf::from("/x/voter"));
        let refused = options(&["--listen", "127.0.0.1:60000"]).err().expect("there is no such port");
        assert!(refused.code == 2 && refused.to_string().contains("--peers"), "{refused}");
    }

    #[test]
    fn everybody_is_served_only_with_a_password() {
        let refused = options(&["--listen", "0.0.0.0:7000"]).err().expect("it is open to all");
        assert!(refused.code == 2 && refused.to_string().contains("password"), "{refused}");
    }

    #[test]
    fn sizes_have_units() {
        assert_eq!((size("4096"), size("64KiB"), size("2g")), (Ok(4_096), Ok(65_536), Ok(2 << 30)));
        for wrong in ["", "0", "1.5G", "x", "1PiB", "99999999999999999999"] {
            assert!(size(wrong).is_err(), "{wrong}");
        }
    }
}
