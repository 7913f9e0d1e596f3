//! Why a node does not run, in the words of `primacy kv`, with what to do and the exit code.

use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::path::PathBuf;

use primacy::peers::tls::ServerFiles;
use primacy::peers::{FileError, PeerError};
use primacy_kv::server::clients::ServeError;
use primacy_kv::server::identity::IdentityError;
use primacy_kv::server::node::NodeError;
use primacy_kv::server::snapshots::SnapshotFileError;
use primacy_kv::wal::OpenError;

use super::super::peer;
use crate::cli::kv::{KvArgs, NodeOptions, unusable};
use crate::failure::{Failure, code};

/// What a node was told, as far as what is said of its failures depends on it.
pub(super) struct NodeContext {
    name: String,
    folder: PathBuf,
    tls: Option<ServerFiles>,
    is_alone: bool,
    has_others: bool,
    has_listen_peers: bool,
}

impl NodeContext {
    pub(super) fn of(args: &KvArgs, options: &NodeOptions) -> Self {
        Self {
            name: options.voter.name.clone(),
            folder: options.folder.clone(),
            tls: options.clients.tls.clone(),
            is_alone: args.is_alone(),
            has_others: options.voter.voters.len() > 1,
            has_listen_peers: args.has_listen_peers(),
        }
    }

    /// The failure that ends this node.
    pub(super) fn failure(&self, error: &NodeError) -> Failure {
        match error {
            NodeError::Voter(error) => self.of_voter(error),
            NodeError::Serve(error) => self.of_clients(error),
            NodeError::Identity(IdentityError::Another { .. }) => Failure::usage(error.to_string()),
            NodeError::Identity(IdentityError::Unusable { folder, source }) => Failure::unavailable(format!(
                "--dir: {}: not a folder that this user can make and write in ({source}): choose another one",
                folder.display()
            )),
            error if error.is_of_disk() => Failure::new(code::OUTPUT, self.of_disk(error)),
            error => Failure::unavailable(error.to_string()),
        }
    }

    fn of_clients(&self, error: &ServeError) -> Failure {
        match (error, &self.tls) {
            (ServeError::Listen { address, source }, _) => {
                let free = free(source, address, "choose another one with --listen");
                Failure::unavailable(format!("cannot listen on {address} for clients: {source}; {free}"))
            }
            (ServeError::Tls(error), Some(files)) => unusable(error, files),
            (error, _) => Failure::usage(error.to_string()),
        }
    }

    fn of_voter(&self, error: &PeerError) -> Failure {
        let (name, folder) = (&self.name, self.folder.display());
        match error {
            PeerError::Listen { address, source } => {
                let (whose, other) = if self.is_alone {
                    (
                        "the port of --listen plus 10000, which a node alone takes too",
                        "choose another port with --listen",
                    )
                } else if self.has_listen_peers {
                    ("the address of --listen-peers", "choose another one with --listen-peers")
                } else {
                    ("the port of this node in --peers", "choose another one with --listen-peers")
                };
                let free = free(source, address, other);
                Failure::unavailable(format!("cannot listen on {address}, {whose}: {source}; {free}"))
            }
            PeerError::OtherVoters { kept, told, .. } => Failure::usage(format!(
                "the node in {folder} belongs together with {kept}, and --peers names {told}: --peers stays as it was at the first start. \
                 A lost node comes back under its name: primacy kv replace NAME"
            )),
            PeerError::Removed { .. } => Failure::unavailable(format!(
                "the node in {folder} was taken out by primacy kv replace, and another '{name}' is in its place. That folder can be \
                 removed. To have a node here again, start it with an empty folder, and {}",
                self.replace()
            )),
            PeerError::Copied { address, .. } => Failure::unavailable(format!(
                "another process answers as this node at {address}: one of the two runs on a copy of the other's folder, so this one ends. \
                 If {folder} is the copy, remove it. If not, stop the other, start this one with an empty folder, and {}",
                self.replace()
            )),
            PeerError::File(FileError::Damaged { file, why }) => {
                Failure::new(code::OUTPUT, self.damaged(&format!("{} is damaged: {why}", file.display())))
            }
            error => peer::failure(error),
        }
    }

    fn of_disk(&self, error: &NodeError) -> String {
        match error {
            NodeError::Open(OpenError::Damaged { path, position, why }) => {
                self.damaged(&format!("{} is damaged at byte {position}: {why}", path.display()))
            }
            NodeError::Open(OpenError::SegmentMissing { path, why }) => {
                self.missing(&format!("{} is missing: {why}", path.display()))
            }
            NodeError::Open(OpenError::Foreign { path, why }) => {
                format!(
                    "{} does not belong here: {why}. Put back what was there; otherwise {}",
                    path.display(),
                    self.anew()
                )
            }
            NodeError::Open(OpenError::Missing { folder }) => {
                self.missing(&format!("there is no log in {}, where this node had one", folder.display()))
            }
            NodeError::Identity(IdentityError::Missing { path, .. }) => {
                self.missing(&format!("{} is missing, and there is a log beside it", path.display()))
            }
            NodeError::Identity(IdentityError::Damaged { path, why, .. }) => {
                self.damaged(&format!("{} is damaged: {why}", path.display()))
            }
            NodeError::SnapshotFile(SnapshotFileError::Damaged { path, why }) => {
                self.damaged(&format!("{}: {why}", path.display()))
            }
            NodeError::ReplicaMissing { group, folder } => {
                self.damaged(&format!("the log in {} has no replica of group {group}", folder.display()))
            }
            NodeError::Broken { group, why, .. } => self.damaged(&format!("group {group} cannot go on here: {why}")),
            error => error.to_string(),
        }
    }

    fn damaged(&self, what: &str) -> String {
        format!("{what}. Neither repair it nor bring an older copy back: {}", self.anew())
    }

    fn missing(&self, what: &str) -> String {
        format!("{what}. Put it back if it was moved; otherwise {}", self.anew())
    }

    /// How a node is had again that has lost what it kept.
    fn anew(&self) -> String {
        if self.has_others {
            format!("move the node's folder away, start it again, and {}", self.replace())
        } else {
            format!(
                "no other node has what was in it. Move {} away to begin with an empty store",
                self.folder.display()
            )
        }
    }

    fn replace(&self) -> String {
        format!(
            "run this on another node's machine, with that one's folder: primacy kv replace {} --dir DIR",
            self.name
        )
    }
}

/// How an address can be listened at, or what to do instead.
fn free(error: &io::Error, address: &SocketAddr, other: &str) -> String {
    match error.kind() {
        ErrorKind::AddrInUse => format!("end what listens there, or {other}"),
        ErrorKind::AddrNotAvailable => format!("this machine does not have the address {}: {other}", address.ip()),
        _ => other.to_owned(),
    }
}
