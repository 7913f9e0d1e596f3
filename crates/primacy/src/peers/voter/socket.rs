//! The socket by which programs on a peer's machine reach all voters, without addresses and certificates of their own.
//!
//! A program that connects names the voter that is meant. The peer connects to that one, proves who it is, and greets it with the role
//! of the user on the socket. When that voter has greeted back, the peer passes bytes on, both ways, and looks at none. So a
//! question and its answer are those of the two ends: a peer that is slow, or stops, costs answers and nothing else. Who may
//! connect is decided by the rights to the socket and its folder.

use std::io;
use std::path::Path;

use nix::unistd::geteuid;
use tokio::net::{UnixListener, UnixStream};

use super::listener::{Listener, NAME_MOST, greeting, refuse};
use super::principal::{self, Authentication, Principal};
use super::settings::PeerError;
use crate::peers::client::dial::{connect, greet};
use crate::peers::config::{PeerAddress, Role};
use crate::peers::local_socket::{self, SocketError, SocketFile};
use crate::peers::wire::channel::{self, HANDSHAKE, Receiver, Sender};
use crate::peers::wire::{self, Body, Hello, RefusalFrame, Welcome};

/// Its user and group may use it.
const MODE: u32 = 0o660;

/// Listens at this path.
///
/// # Errors
/// As [`local_socket::bind`].
pub(super) fn bind(path: &Path) -> Result<(UnixListener, SocketFile), PeerError> {
    local_socket::bind(path, MODE).map_err(|SocketError { path, why }| PeerError::Socket { path, why })
}

impl Listener {
    /// Serves somebody on this machine, or passes everything on to the voter that is meant.
    pub(super) async fn serve_here(&self, stream: UnixStream) -> io::Result<()> {
        let role = principal::of_user(stream.peer_cred()?.uid(), geteuid().as_raw());
        let (mut sender, mut receiver) = channel::channel(Box::new(stream));
        let hello = greeting(&mut receiver).await?;
        if !hello.protocol.is_empty() {
            let why =
                format!("programs of peers talk over the network, and not through the socket of '{}'", self.own.name());
            return refuse(&mut sender, why, false).await;
        }
        let there = match self.beyond(&hello, role) {
            Ok(None) => {
                return self.converse(hello, sender, receiver, Principal::new(Authentication::Socket(role))).await;
            }
            Ok(Some(peer)) => self.connect(&peer, hello, role).await.map_err(|error| error.to_string()),
            Err(why) => Err(why),
        };
        match there {
            Ok((welcome, to, from)) => {
                sender.send(0, Body::Welcome(welcome)).await?;
                channel::pass_on((sender, receiver), (to, from)).await
            }
            Err(why) => sender.send(0, Body::Refused(RefusalFrame { why, is_passing: true, is_denied: false })).await,
        }
    }

    /// The other peer that is meant, if it is another.
    fn beyond(&self, hello: &Hello, role: Role) -> Result<Option<PeerAddress>, String> {
        if hello.to.is_empty() {
            return Ok(None);
        }
        let peer: PeerAddress = hello.to.parse().map_err(|error| format!("{error}"))?;
        let is_own = peer == self.own
            || self.known.cluster.borrow().as_ref().and_then(|own| own.address_of(self.voter)) == Some(&peer);
        if is_own {
            return Ok(None);
        }
        if self.tls.is_none() && self.stays_here && !peer.is_here() {
            return Err(format!(
                "'{}' speaks plain text, and therefore with peers on its machine only",
                self.own.name()
            ));
        }
        let votes =
            self.known.cluster.borrow().as_ref().is_some_and(|own| own.addresses().any(|(_, known)| *known == peer));
        if role < Role::Operator && !votes && !self.told.contains(&peer) {
            return Err(format!(
                "'{}' knows of no voter {peer}, and passes others than operators on to voters only",
                self.own.name()
            ));
        }
        Ok(Some(peer))
    }

    /// Greets another voter for somebody with this role. Nothing that it says goes there before that voter has greeted back.
    async fn connect(&self, peer: &PeerAddress, hello: Hello, role: Role) -> io::Result<(Welcome, Sender, Receiver)> {
        let claim = wire::role(hello.role).map_or(role, |claim| claim.min(role));
        let name: String = hello.name.chars().take(NAME_MOST).collect();
        let Hello { version, cluster, to, .. } = hello;
        let hello = Hello { version, cluster, name, to, role: wire::role_number(claim), ..Hello::default() };
        let connected =
            tokio::time::timeout(HANDSHAKE, async { greet(connect(peer, self.tls.as_deref()).await?, hello).await });
        let connected = connected.await;
        connected.unwrap_or_else(|_| Err(io::Error::new(io::ErrorKind::TimedOut, "it does not answer")))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use primacy_core::quorum::VoterId;

    use super::super::{Peer, PeerSettings};
    use super::*;
    use crate::peers::client::dial::{EstablishedConnection, Transport, dial};
    use crate::peers::config::{Cluster, RoleNames, certs};
    use crate::peers::tls::{Identity, Tls};

    const PATIENCE: Duration = Duration::from_secs(20);

    fn settings(folder: &Path, name: &str, voters: &[PeerAddress]) -> PeerSettings {
        let own = voters.iter().find(|voter| voter.name() == name).expect("one of them");
        let certs = folder.join("certs");
        PeerSettings {
            name: name.to_owned(),
            listen: own.place().parse().expect("an address"),
            voters: voters.to_vec(),
            folder: folder.join(name),
            socket: Some(folder.join(name).join("socket")),
            drift_ppm: 20_000,
            roles: RoleNames::default(),
            tls: Some(Arc::new(Tls::load(&Identity::within(&certs, name)).expect("they fit"))),
        }
    }

    /// Those who come through the peer that founds the cluster have not that right.
    #[tokio::test]
    async fn nobody_founds_a_cluster_in_the_name_of_the_peer_on_the_way() {
        let folder = tempfile::tempdir().expect("a folder for the test");
        let names = ["a", "b", "c"].map(str::to_owned);
        certs::make(&folder.path().join("certs"), &names, 1).expect("they can be made");
        let free = || std::net::TcpListener::bind("127.0.0.1:0").and_then(|held| held.local_addr()).expect("a port");
        let voters =
            names.each_ref().map(|name| format!("{name}@{}", free()).parse::<PeerAddress>().expect("an address"));
        // c is not there, so that they wait.
        let a = Peer::start(settings(folder.path(), "a", &voters)).await.expect("it starts");
        let b = Peer::start(settings(folder.path(), "b", &voters)).await.expect("it starts");
        let ids = [a.voter(), b.voter(), VoterId::from_bits(7)];
        let roster = voters.iter().zip(ids).map(|(peer, id)| (peer.name().to_owned(), (id, peer.clone()))).collect();
        let cluster = Cluster::of(roster);

        let transport = Transport::Socket(folder.path().join("a/socket").into());
        let EstablishedConnection { voter, mut sender, mut receiver, .. } =
            dial(&voters[1], &transport, Vec::new(), "a program").await.expect("a passes it on");
        assert_eq!(voter, b.voter());
        sender.send(0, Body::Found((&cluster).into())).await.expect("it is sent");
        let end = tokio::time::timeout(PATIENCE, receiver.next()).await.expect("b ends the connection");
        assert!(!matches!(end, Ok(Some(_))), "{end:?}");
        let again = dial(&voters[1], &transport, Vec::new(), "a program").await.expect("b is well");
        assert!(again.cluster.is_none());
    }
}
