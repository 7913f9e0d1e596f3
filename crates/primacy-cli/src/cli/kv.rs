//! `primacy kv`: which node a process is, where its clients come, and what is asked of a node that runs.
#![cfg(feature = "kv")]

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Arg, Args, Subcommand, ValueEnum};
use primacy::peers::tls::{ServerFiles, ServerTls, TlsError};
use primacy::peers::{AddressError, PeerAddress, PeerSettings};
use primacy::store::{self, Store};
use primacy::{ElectionName, Timing, TimingSettings};
use primacy_kv::server::{clients, identity};
use std::sync::Arc;

use super::peer::{PeerArgs, Voters};
use super::{duration, examples, store_url, usage};
use crate::failure::Failure;

/// What a node is called that is alone.
const ALONE: &str = "kv";
/// How far the port of a node alone is from that of its clients: as Redis's cluster bus.
const BUS: u16 = 10_000;
/// How many groups there are unless somebody says it.
const GROUPS: u16 = 16;
/// The least that keys may take: one value may have as much.
const MEMORY_MIN: usize = 8 << 20;

/// Options of all commands that mean nothing here, and why.
pub(crate) const MEANINGLESS: [(&str, &str); 2] = [
    (
        "store",
        "--store is not for primacy kv: a node keeps its elections itself, in the folder that --dir names; leave it out",
    ),
    (
        "election",
        "--election is not for primacy kv, whose groups are elections of their own: primacy kv explain GROUP shows one; leave it out",
    ),
];

/// They are known, so that they can be refused, and not shown.
fn meaningless() -> [Arg; 2] {
    let hidden = |name: &'static str| Arg::new(name).long(name).global(true).hide(true);
    // The types are those that they have for all commands.
    [hidden("store"), hidden("election").value_parser(clap::value_parser!(ElectionName))]
}

/// `primacy kv`.
#[derive(Args, Clone, Debug)]
#[command(args_conflicts_with_subcommands = true, args = meaningless())]
pub(crate) struct KvArgs {
    /// Which of the nodes this is [default: kv, alone]
    ///
    /// PRIMACY_NAME in the environment says the same.
    #[arg(long, env = "PRIMACY_NAME", hide_env = true, value_name = "NAME")]
    name: Option<String>,
    /// All nodes, this one too
    ///
    /// One to nine, separated by commas; three or five as a rule. The same for all of them. Without, this node is alone.
    #[arg(long, value_name = "NAME@HOST:PORT,...", value_parser = nodes)]
    peers: Option<Voters>,
    /// The node's folder, which is this process's alone
    ///
    /// No other process may use it, ever, and no copy of it. The default is kv-NAME in the state directory.
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Where clients of Redis are served
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:6379", value_parser = address)]
    listen: SocketAddr,
    /// Where to listen for the other nodes [default: the port that --peers says]
    #[arg(long, value_name = "ADDR:PORT", hide_short_help = true, requires = "peers", value_parser = address)]
    listen_peers: Option<SocketAddr>,
    /// How many groups the keys are in [default: 16]
    ///
    /// Each has a leader. 1 to 1,024; that never changes later.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1_024))]
    groups: Option<u16>,
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
    #[arg(long, value_name = "SIZE", value_parser = memory)]
    memory: Option<usize>,
    /// The longest value
    #[arg(long, value_name = "SIZE", default_value = "8MiB", value_parser = size, hide_short_help = true)]
    value_max: usize,
    /// After how many bytes of log a group takes a snapshot [default: as many as its keys take]
    ///
    /// By default 8MiB at least and 64MiB at most. Never more than an eighth of --memory for all groups together, but
    /// 256KiB for each in any case.
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
        /// The group's number, such as 3 or kv/3
        #[arg(value_name = "GROUP", value_parser = group, allow_negative_numbers = true)]
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
#[derive(Args, Clone, Debug, Default)]
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
        let name = self.name()?;
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
        // First, since it refuses in the words of options and not in those of the URL.
        let voter = voter.settings()?;
        let store = store::from_url(&store_url).map_err(|error| Failure::usage(error.to_string()))?;
        let timing = Timing::new(TimingSettings::new(self.lease)).map_err(|error| Failure::usage(error.to_string()))?;
        let options = NodeOptions {
            groups: self.groups(&folder)?,
            folder,
            voter,
            store_url,
            store,
            timing,
            reads: self.reads,
            memory: self.memory.or_else(half_of_memory),
            snapshot_every: self.snapshot_every,
            clients: self.clients()?,
        };
        Ok(options)
    }

    /// Whether it is told of no other nodes.
    pub(crate) const fn is_alone(&self) -> bool {
        self.peers.is_none()
    }

    /// Whether it is told where to listen for other nodes.
    pub(crate) const fn has_listen_peers(&self) -> bool {
        self.listen_peers.is_some()
    }

    fn name(&self) -> Result<String, Failure> {
        let names = |peers: &[PeerAddress]| peers.iter().map(PeerAddress::name).collect::<Vec<_>>().join(", ");
        match (&self.name, &self.peers) {
            (None, None) => Ok(ALONE.to_owned()),
            (Some(name), Some(Voters(peers))) if peers.iter().any(|peer| peer.name() == name) => Ok(name.clone()),
            (Some(name), Some(Voters(peers))) => Err(Failure::usage(format!(
                "--name must be one of {}, which --peers names, and is '{name}'",
                names(peers)
            ))),
            (None, Some(Voters(peers))) => {
                Err(Failure::usage(format!("--name is missing: it says which of {} this node is", names(peers))))
            }
            (Some(name), None) if usage::is_written("--name", std::env::args_os()) => Err(Failure::usage(format!(
                "--name {name} asks for --peers, which names all nodes: --name a --peers a@HOST:PORT,b@HOST:PORT,...; for a node alone \
                 leave --name out"
            ))),
            (Some(name), None) => Err(Failure::usage(format!(
                "PRIMACY_NAME is '{name}' in the environment, and that asks for --peers, which names all nodes; for a node alone leave \
                 PRIMACY_NAME out: unset PRIMACY_NAME"
            ))),
        }
    }

    /// How many groups there are to be, if that does not contradict how many there are.
    fn groups(&self, folder: &Path) -> Result<u16, Failure> {
        let Some(groups) = self.groups else { return Ok(GROUPS) };
        // What cannot be read is told of when the node opens it.
        let founding = identity::read(folder).ok().flatten().and_then(|record| record.founding);
        match founding.map(|founding| founding.groups).filter(|kept| *kept != groups) {
            Some(kept) => Err(Failure::usage(format!(
                "--groups {groups}: the node in {} has {kept} groups, and that never changes: leave --groups out",
                folder.display()
            ))),
            None => Ok(groups),
        }
    }

    fn clients(&self) -> Result<clients::Settings, Failure> {
        let mut settings = clients::Settings::new(self.listen);
        settings.value_max = self.value_max;
        if let Some(file) = &self.password_file {
            let unread = |error: std::io::Error| {
                let why = match error.kind() {
                    std::io::ErrorKind::NotFound => "No such file".to_owned(),
                    _ => error.to_string(),
                };
                Failure::usage(format!(
                    "--password-file: {}: {why}; give a file whose first line is the password of clients",
                    file.display()
                ))
            };
            let text = std::fs::read(file).map_err(unread)?;
            let line = text.split(|byte| matches!(byte, b'\n' | b'\r')).next().unwrap_or_default();
            let password = clients::Password::new(line);
            settings.password = Some(password.ok_or_else(|| {
                Failure::usage(format!(
                    "--password-file: the first line of {} is the password of clients, and has to have 1 to 512 bytes",
                    file.display()
                ))
            })?);
        }
        if let (Some(certificate), Some(key)) = (self.tls_cert.clone(), self.tls_key.clone()) {
            settings.tls = Some(ServerFiles::new(certificate, key).with_clients(self.tls_client_ca.clone()));
        }
        settings.check().map_err(|error| Failure::usage(error.to_string()))?;
        // They are read again when it listens. But wrong usage is told before anything is opened.
        if let Some(files) = &settings.tls {
            ServerTls::load(files.clone()).map_err(|error| unusable(&error, files))?;
        }
        Ok(settings)
    }
}

/// Why clients cannot come over TLS, with the option that is to blame.
pub(crate) fn unusable(error: &TlsError, files: &ServerFiles) -> Failure {
    let of_certificate = ("--tls-cert", "give the certificate that clients see, in PEM");
    let of_key = ("--tls-key", "give the key of the certificate, in PEM");
    let of_clients = ("--tls-client-ca", "give the certificate of the authority of clients, in PEM");
    let (option, hint) = match error {
        TlsError::File { file, .. } if *file == files.key && files.key != files.certificate => of_key,
        TlsError::File { file, .. } if Some(file) == files.clients.as_ref() => of_clients,
        TlsError::KeyMismatch { .. } => of_key,
        _ => of_certificate,
    };
    let failure = Failure::usage(format!("{option}: {error}"));
    let is_missing = matches!(error, TlsError::File { file, .. } if !file.exists());
    if is_missing { failure.with(hint) } else { failure }
}

/// All nodes.
fn nodes(text: &str) -> Result<Voters, String> {
    text.parse::<Voters>().map_err(|error| match error {
        AddressError::Shape(one) => format!("'{one}' is no node: write NAME@HOST:PORT, as a@10.0.0.1:7400"),
        error => error.to_string(),
    })
}

/// Where to listen.
fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse()
        .map_err(|_| "write IP:PORT, as 127.0.0.1:6379: an IP address, not a name; ports go up to 65535".to_owned())
}

/// The number of a group, as it is said or as it is shown.
fn group(text: &str) -> Result<u16, String> {
    text.strip_prefix("kv/").unwrap_or(text).parse().map_err(|_| {
        format!("write a number from 0 to {}, or to one less than --groups said, as 3 or kv/3", GROUPS - 1)
    })
}

/// How much keys may take.
fn memory(text: &str) -> Result<usize, String> {
    match size(text)? {
        too_little if too_little < MEMORY_MIN => {
            Err(format!("that is too little, since one value may have 8MiB: give {}MiB or more", MEMORY_MIN >> 20))
        }
        size => Ok(size),
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
