//! How a peer takes part, and why it cannot.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use primacy_core::quorum::VoterId;

use super::file::FileError;
use crate::peers::config::{PeerAddress, RoleNames};
use crate::peers::tls::Tls;

/// How a peer takes part.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PeerSettings {
    /// What it is called. One of `voters`.
    pub name: String,
    /// Where it listens. The port may be 0, for any.
    pub listen: SocketAddr,
    /// All that vote, itself too, as all of them are told.
    pub voters: Vec<PeerAddress>,
    /// The folder of its voter's file. No other process may use it, ever.
    pub folder: PathBuf,
    /// Where programs on this machine reach all voters without certificates: anyone who may use this socket may lead.
    /// Its user and group may, as far as its folder lets them to it.
    pub socket: Option<PathBuf>,
    /// By how much the rate of its clock may be wrong, in parts per million.
    pub drift_ppm: u32,
    /// Which certificates are those of operators and of observers.
    pub roles: RoleNames,
    /// How peers and candidates prove to each other who they are. Without, everybody who can connect is believed.
    pub tls: Option<Arc<Tls>>,
}

impl PeerSettings {
    /// A peer without a socket and without TLS, whose clock's rate is right within 2 %.
    pub fn new(name: String, listen: SocketAddr, voters: Vec<PeerAddress>, folder: PathBuf) -> Self {
        let roles = RoleNames::default();
        Self { name, listen, voters, folder, socket: None, drift_ppm: 20_000, roles, tls: None }
    }
}

/// Why a peer cannot vote.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PeerError {
    /// Its file cannot be used.
    #[error(transparent)]
    File(#[from] FileError),
    /// It does not stand among those that vote.
    #[error("'{name}' is not among the voters; name it as one of them, as {name}@HOST:PORT")]
    Stranger {
        /// What it is called.
        name: String,
    },
    /// Its certificate is for another: nobody would believe that it is the one.
    #[error("the certificate is for '{certified}', not for '{name}'; make one by 'primacy peer certs'")]
    Certificate {
        /// What it is called.
        name: String,
        /// Whom its certificate names first.
        certified: String,
    },
    /// It cannot listen.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// Where.
        address: SocketAddr,
        /// Why not.
        source: io::Error,
    },
    /// Its socket cannot be had.
    #[error("cannot listen on {}: {why}", path.display())]
    Socket {
        /// Where.
        path: PathBuf,
        /// Why not.
        why: String,
    },
    /// Its file is that of another of the voters.
    #[error("the voter in {} is not '{name}': give each peer the folder that it had before", folder.display())]
    Another {
        /// What it is called.
        name: String,
        /// Its folder.
        folder: PathBuf,
    },
    /// The voters have been exchanged, and it is none of them any more.
    #[error(
        "this voter ({voter}) was taken out by an exchange of voters: it votes no more, and its folder can be removed. To have \
         it vote again, start it with an empty folder, and take it in with 'primacy peer add'"
    )]
    Removed {
        /// Who it was.
        voter: VoterId,
    },
    /// Another process answers as this voter, at the address by which all know it.
    #[error(
        "another process answers as this voter ({voter}) at {address}: one of the two runs on a copy of the other's folder. Two \
         would vote twice, so this one ends. If the other is the copy, stop it, take the voter out and in again with an empty \
         folder (primacy peer replace); if this one is, remove {}",
        folder.display()
    )]
    Copied {
        /// Who it is.
        voter: VoterId,
        /// Where the other answers.
        address: PeerAddress,
        /// The folder of this one.
        folder: PathBuf,
    },
    /// Its file names other voters than it was told now.
    #[error("the voter in {} votes together with {kept}, not with {told}: name the same voters as before. They are exchanged by 'primacy peer add' and 'remove'", folder.display())]
    OtherVoters {
        /// Its folder.
        folder: PathBuf,
        /// As the file says.
        kept: String,
        /// As it was told.
        told: String,
    },
}
