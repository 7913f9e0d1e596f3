//! `primacy peer`: which voter a process is, and how it proves that to the others.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, Subcommand};
use primacy::peers::tls::{Identity, Revocations, Tls, TlsError};
use primacy::peers::{AddressError, NamePattern, PeerAddress, PeerError, PeerSettings, Reconfiguration};
use primacy::{Timing, TimingSettings};

use super::http::HttpArgs;
use super::{examples, store_url};
use crate::failure::Failure;

/// The longest path of a socket, in bytes.
const SOCKET_PATH_MOST: usize = 107;

/// `primacy peer`.
#[derive(Args, Clone, Debug)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct PeerArgs {
    /// Which of the peers this is
    #[arg(long, env = "PRIMACY_NAME", value_name = "NAME", required = true)]
    name: Option<String>,
    /// All that vote, this one too
    ///
    /// One to nine, separated by commas; three or five as a rule. The same for all of them.
    #[arg(long, value_name = "NAME@HOST:PORT,...", required = true)]
    peers: Option<Voters>,
    /// Where to listen [default: the port that --peers says]
    ///
    /// The default is everywhere, or on loopback if its host is that, at the port that --peers says.
    #[arg(long, value_name = "ADDR:PORT")]
    listen: Option<SocketAddr>,
    /// The folder of its voter's file, which is this process's alone
    ///
    /// No other process may use it, ever. The default is peer-NAME in the state directory.
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// The socket by which programs on this machine reach all voters
    ///
    /// They give --store peers://PATH, and need no certificates. Its user and group may, as far as its folder lets them to
    /// it. The default is socket in --dir.
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// The folder that `primacy peer certs` has filled
    ///
    /// Both sides of each connection prove who they are.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["cert", "key", "ca", "plaintext"])]
    certs: Option<PathBuf>,
    /// Its certificate, for its name, and those between that and the authority's, in PEM
    #[arg(long, value_name = "FILE", requires_all = ["key", "ca"], conflicts_with = "plaintext", hide_short_help = true)]
    cert: Option<PathBuf>,
    /// The key of its certificate, in PEM
    #[arg(long, value_name = "FILE", requires = "cert", hide_short_help = true)]
    key: Option<PathBuf>,
    /// The certificate of the authority that signs those of all, in PEM
    #[arg(long, value_name = "FILE", requires = "cert", hide_short_help = true)]
    ca: Option<PathBuf>,
    /// The certificates that the authority has revoked, in PEM: with --certs or --cert. It is read anew when it changes [default:
    /// ca.crl in --certs, from when on it is there]
    #[arg(long, value_name = "FILE", conflicts_with = "plaintext", hide_short_help = true)]
    crl: Option<PathBuf>,
    /// The names in the certificates of those who may order and exchange voters, separated by commas; '*' stands for any
    /// characters
    #[arg(
        long,
        value_name = "NAMES",
        value_delimiter = ',',
        default_value = "operator,operator-*",
        hide_short_help = true
    )]
    operators: Vec<NamePattern>,
    /// The names in the certificates of those who may only look. All other names but those of voters are candidates
    #[arg(
        long,
        value_name = "NAMES",
        value_delimiter = ',',
        default_value = "observer,observer-*",
        hide_short_help = true
    )]
    observers: Vec<NamePattern>,
    /// Believe everybody who can connect
    ///
    /// Among peers on loopback that needs not be said.
    #[arg(long)]
    plaintext: bool,
    /// A command for sh whose first line of output is how many requests arrive here, in a unit that is the same for all peers:
    /// for candidates with --score-oracle
    #[arg(long, value_name = "CMD", hide_short_help = true)]
    pub(crate) requests_command: Option<String>,
    /// How often to run it, and for how long at most: 50ms to 1h
    #[arg(long, value_name = "DUR", default_value = "10s", value_parser = super::preference::interval, requires = "requests_command", hide_short_help = true)]
    pub(crate) requests_every: Duration,
    #[command(flatten)]
    pub(crate) http: HttpArgs,
    #[command(subcommand)]
    pub(crate) command: Option<PeerCommand>,
}

/// What belongs to peers beside being one.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum PeerCommand {
    /// Make certificates for peers and candidates, and the authority that signs them
    #[command(after_help = examples::PEER_CERTS)]
    Certs(CertsArgs),
    /// Revoke certificates that `primacy peer certs` has made, before they expire
    #[command(after_help = examples::PEER_REVOKE)]
    Revoke {
        /// The folder with the authority that has signed them
        #[arg(value_name = "DIR")]
        folder: PathBuf,
        /// Names, for all that was made for them until now, or files with a '/' in their paths
        #[arg(value_name = "NAME|CERT", required = true)]
        certificates: Vec<String>,
    },
    /// Show who votes
    #[command(after_help = examples::PEER_LIST)]
    List,
    /// Take in voters, which run already and wait
    #[command(after_help = examples::PEER_ADD)]
    Add {
        /// Those to take in
        #[arg(value_name = "NAME@HOST:PORT", required = true)]
        peers: Vec<PeerAddress>,
    },
    /// Take out voters, whether they still run or not
    #[command(after_help = examples::PEER_REMOVE)]
    Remove {
        /// Those to take out
        #[arg(value_name = "NAME", required = true)]
        names: Vec<String>,
    },
    /// Have a new voter, which runs already and waits, take the place of another
    #[command(after_help = examples::PEER_REPLACE)]
    Replace {
        /// The voter to take out
        #[arg(value_name = "NAME")]
        name: String,
        /// The voter to take in. It may have the same name and address
        #[arg(value_name = "NAME@HOST:PORT")]
        peer: PeerAddress,
    },
    /// Finish an exchange of voters, and tell all voters who votes by now
    ///
    /// A voter that was away while most of the voters that it knows were taken out believes nobody but an operator.
    #[command(after_help = examples::PEER_CONFIRM)]
    Confirm,
}

impl PeerCommand {
    /// Which voters come and go.
    pub(crate) fn reconfiguration(&self) -> Reconfiguration {
        match self {
            Self::Certs(_) | Self::Revoke { .. } | Self::List | Self::Confirm => Reconfiguration::default(),
            Self::Add { peers } => Reconfiguration { add: peers.clone(), remove: Vec::new() },
            Self::Remove { names } => Reconfiguration { add: Vec::new(), remove: names.clone() },
            Self::Replace { name, peer } => Reconfiguration { add: vec![peer.clone()], remove: vec![name.clone()] },
        }
    }
}

/// `primacy peer certs`.
#[derive(Args, Clone, Debug)]
pub(crate) struct CertsArgs {
    /// Where to: if there is an authority, it signs again
    #[arg(value_name = "DIR")]
    pub(crate) folder: PathBuf,
    /// For whom: 1 to 63 of a to z, 0 to 9, '-' and '.'. A certificate that is there is replaced
    #[arg(value_name = "NAME", required = true)]
    pub(crate) names: Vec<String>,
    /// How long they last
    #[arg(long, value_name = "N", default_value_t = 365, value_parser = clap::value_parser!(u32).range(1..=7_300))]
    pub(crate) days: u32,
}

/// The voters, as they are named on the command line.
#[derive(Clone, Debug)]
pub(crate) struct Voters(pub(crate) Vec<PeerAddress>);

impl FromStr for Voters {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        PeerAddress::list(text).map(Self)
    }
}

impl PeerArgs {
    /// The voter of a node of the key-value store.
    #[cfg(feature = "kv")]
    pub(crate) fn of_node(
        name: String,
        peers: Vec<PeerAddress>,
        listen: Option<SocketAddr>,
        dir: PathBuf,
        certs: Option<PathBuf>,
        plaintext: bool,
    ) -> Self {
        let roles = primacy::peers::RoleNames::default();
        Self {
            name: Some(name),
            peers: Some(Voters(peers)),
            listen,
            dir: Some(dir),
            socket: None,
            certs,
            cert: None,
            key: None,
            ca: None,
            crl: None,
            operators: roles.operators,
            observers: roles.observers,
            plaintext,
            requests_command: None,
            requests_every: Duration::from_secs(10),
            http: HttpArgs::default(),
            command: None,
        }
    }

    /// How this process takes part, checked as a whole.
    pub(crate) fn settings(&self) -> Result<PeerSettings, Failure> {
        let (Some(name), Some(Voters(voters))) = (self.name.clone(), self.peers.clone()) else {
            return Err(Failure::usage("--name and --peers are missing; see primacy peer --help"));
        };
        let Some(own) = voters.iter().find(|peer| peer.name() == name) else {
            return Err(Failure::usage(PeerError::Stranger { name }.to_string()));
        };
        let listen = self.listen.unwrap_or_else(|| default_listen(own, has_ipv6()));
        let identity = self.identity(&name);
        if identity.is_none() && self.crl.is_some() {
            return Err(Failure::usage("--crl goes with --certs, or with --cert, --key and --ca"));
        }
        let tls = identity.map(|identity| Tls::load(&identity).map(Arc::new)).transpose();
        let tls = tls.map_err(|error| {
            let is_missing =
                matches!(&error, TlsError::File { file, .. } if !file.exists() && Some(file) != self.crl.as_ref());
            let hint = if is_missing { "; make certificates with primacy peer certs" } else { "" };
            let is_in = |folder: &PathBuf| matches!(&error, TlsError::File { file, .. } if file.starts_with(folder));
            let option = if self.certs.as_ref().is_some_and(is_in) { "--certs: " } else { "" };
            Failure::usage(format!("{option}{error}{hint}"))
        })?;
        let is_private = listen.ip().is_loopback() && voters.iter().all(PeerAddress::is_here);
        if tls.is_none() && !self.plaintext && !is_private {
            return Err(Failure::usage(
                "peers on other machines talk over TLS: make certificates with primacy peer certs, and name their folder \
                 with --certs (or give --plaintext, where everybody on the network may lead)",
            ));
        }
        let folder = self.dir.clone().unwrap_or_else(|| store_url::voter_folder(&name));
        let socket = self.socket.clone().or_else(|| default_socket(&folder));
        let drift_ppm = TimingSettings::new(Timing::DEFAULT_LEASE).drift_ppm;
        let mut settings = PeerSettings::new(name, listen, voters, folder);
        (settings.socket, settings.drift_ppm, settings.tls) = (socket, drift_ppm, tls);
        settings.roles.operators.clone_from(&self.operators);
        settings.roles.observers.clone_from(&self.observers);
        Ok(settings)
    }

    /// Whether it is to have a socket, or just has one where that is possible.
    pub(crate) const fn asks_for_socket(&self) -> bool {
        self.socket.is_some()
    }

    fn identity(&self, name: &str) -> Option<Identity> {
        let mut identity = if let Some(folder) = &self.certs {
            Identity::within(folder, name)
        } else {
            Identity::new(self.cert.clone()?, self.key.clone()?, self.ca.clone()?)
        };
        if let Some(list) = &self.crl {
            identity.revocations = Revocations::Required(list.clone());
        }
        Some(identity)
    }
}

/// Where a peer listens that is told nothing else: where others can reach it at the address that they were told.
fn default_listen(own: &PeerAddress, has_ipv6: bool) -> SocketAddr {
    let everywhere = match own.host().parse() {
        Ok(address @ (IpAddr::V4(_) | IpAddr::V6(_))) if own.is_here() => address,
        Ok(IpAddr::V4(_)) => Ipv4Addr::UNSPECIFIED.into(),
        Ok(IpAddr::V6(_)) => Ipv6Addr::UNSPECIFIED.into(),
        Err(_) if own.is_here() => Ipv4Addr::LOCALHOST.into(),
        // A name may stand for addresses of either kind, and this takes both.
        Err(_) if has_ipv6 => Ipv6Addr::UNSPECIFIED.into(),
        Err(_) => Ipv4Addr::UNSPECIFIED.into(),
    };
    SocketAddr::new(everywhere, own.port())
}

/// In the voter's folder, unless the system cannot have a socket there: nobody has asked for this one.
fn default_socket(folder: &Path) -> Option<PathBuf> {
    let path = std::path::absolute(folder.join("socket")).ok()?;
    (path.as_os_str().len() <= SOCKET_PATH_MOST).then_some(path)
}

fn has_ipv6() -> bool {
    Path::new("/proc/net/if_inet6").exists()
}

#[cfg(test)]
mod tests {
    use super::super::{Cli, Command};
    use super::*;
    use clap::Parser as _;

    fn settings(words: &[&str]) -> Result<PeerSettings, Failure> {
        let words = ["primacy", "peer", "--name", "a"].iter().chain(words);
        let cli = Cli::try_parse_from(words).expect("known words");
        let Command::Peer(args) = cli.command else { panic!("asked for peer") };
        args.settings()
    }

    #[test]
    fn a_peer_listens_where_the_others_look_for_it() {
        for (own, has_ipv6, listen) in [
            ("a@10.0.0.1:7400", true, "0.0.0.0:7400"),
            ("a@127.0.0.1:7400", true, "127.0.0.1:7400"),
            ("a@127.0.0.2:7400", true, "127.0.0.2:7400"),
            ("a@[2001:db8::1]:7400", true, "[::]:7400"),
            ("a@[::1]:7400", true, "[::1]:7400"),
            ("a@db.example:7400", true, "[::]:7400"),
            ("a@db.example:7400", false, "0.0.0.0:7400"),
            ("a@localhost:7400", true, "127.0.0.1:7400"),
        ] {
            let own: PeerAddress = own.parse().expect(own);
            assert_eq!(default_listen(&own, has_ipv6).to_string(), listen, "{own}");
        }
    }

    #[test]
    fn plain_text_leaves_the_machine_only_if_that_is_said() {
        let here = ["--peers", "a@127.0.0.1:1,b@[::1]:2"];
        assert!(settings(&here).is_ok());
        let far = ["--peers", "a@127.0.0.1:1,b@10.0.0.1:2"];
        let open = [&here[..], &["--listen", "0.0.0.0:1"]].concat();
        for words in [&far[..], &open] {
            let refused = settings(words).expect_err("it should be refused");
            assert!(refused.code == 2 && refused.to_string().contains("primacy peer certs"), "{refused}");
            assert!(settings(&[words, &["--plaintext"]].concat()).is_ok());
        }
    }

    #[test]
    fn a_socket_that_nobody_asked_for_is_left_out_where_none_can_be() {
        let here = ["--peers", "a@127.0.0.1:1", "--dir"];
        let socket = |words: &[&str]| settings(&[&here, words].concat()).expect("it fits").socket;
        assert_eq!(socket(&["/x"]), Some("/x/socket".into()));
        assert_eq!(socket(&["/x", "--socket", "/run/a"]), Some("/run/a".into()));
        let deep = format!("/{}", "x".repeat(100));
        assert_eq!(socket(&[&deep]), None);
        let asked = format!("{deep}/socket");
        assert_eq!(socket(&[&deep, "--socket", &asked]), Some(asked.into()), "one who asks for it is told why not");
    }

    #[test]
    fn a_stranger_is_told_how_to_be_named() {
        let refused = settings(&["--peers", "b@127.0.0.1:1"]).expect_err("it should be refused");
        assert!(refused.code == 2 && refused.to_string().contains("as a@HOST:PORT"), "{refused}");
    }
}
