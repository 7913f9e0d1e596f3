//! Connections of a program's own protocol between peers: how they are opened and taken. A peer greets another with the name of the program's protocol, and the other lets
//! it through if it comes from a peer.
//!
//! The greeting is that of the peers' own protocol, so versions, clusters and certificates count as they do there. After the
//! welcome no frame follows.

use std::io;
use std::sync::Arc;

use primacy_core::quorum::VoterId;
use tokio::sync::OwnedSemaphorePermit;
use tracing::debug;

use super::known_voters::KnownVoters;
use super::link::{Link, LinkQueue, LinkStream, UNTAKEN_MOST};
use super::listener::{Listener, refuse, shown};
use super::principal::{Authentication, Principal};
use crate::peers::client::dial::{check_name, connect, greet, in_time};
use crate::peers::config::PeerAddress;
use crate::peers::tls::Tls;
use crate::peers::wire::channel::{self, Receiver, Sender};
use crate::peers::wire::{self, Body, Hello, VERSION};

/// The longest name of a protocol.
const PROTOCOL_MOST: usize = 64;

fn is_protocol(name: &str) -> bool {
    (1..=PROTOCOL_MOST).contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_graphic())
}

/// The connections of a program that other peers open to this one, and the way to open some. When this is dropped, such
/// connections are refused.
#[derive(Debug)]
pub struct Links {
    queue: Arc<LinkQueue>,
    dialer: LinkDialer,
}

impl Links {
    pub(super) const fn new(queue: Arc<LinkQueue>, dialer: LinkDialer) -> Self {
        Self { queue, dialer }
    }

    /// Waits for the next one. One that nobody takes within 10 s is closed, and while 64 wait, others are refused. From here on
    /// it belongs to the runtime of the caller, which need not be that of the peer; both are to have their drivers on. Never ends
    /// if the peer ends first, and [`Peer::run`](super::Peer::run) tells why.
    ///
    /// The program decides what to do with a protocol that it does not know: as a rule, to drop the link.
    pub async fn accept(&mut self) -> Link {
        loop {
            let mut link = self.queue.next().await;
            match link.stream.rehome() {
                Ok(()) => return link,
                Err(error) => debug!(peer = link.peer, %error, "a connection of a program could not be taken"),
            }
        }
    }

    /// What opens them. It may be used while no voter has met another yet, and in any runtime.
    pub fn dialer(&self) -> LinkDialer {
        self.dialer.clone()
    }
}

impl Drop for Links {
    fn drop(&mut self) {
        self.queue.close();
    }
}

/// Opens connections of a program to other peers. Clones do the same.
#[derive(Clone, Debug)]
pub struct LinkDialer {
    /// What this peer is called.
    pub(super) name: String,
    pub(super) voter: VoterId,
    pub(super) tls: Option<Arc<Tls>>,
    /// Whether all voters are on this machine: then plain text must not leave it.
    pub(super) stays_here: bool,
    pub(super) known: KnownVoters,
}

impl LinkDialer {
    /// Opens one to this peer, for a protocol of 1 to 64 printable ASCII characters without spaces. It takes 2 s at most.
    ///
    /// # Errors
    /// If it does not answer in time, is another peer or none of the voters, or does not let it through: because it belongs to
    /// another cluster, takes no connections of programs, or has more than its program takes.
    pub async fn dial(&self, peer: &PeerAddress, protocol: &str) -> io::Result<Link> {
        if !is_protocol(protocol) {
            let name = primacy_core::ids::escape(protocol);
            let why =
                format!("'{name}' names no protocol: give 1 to {PROTOCOL_MOST} printable characters without spaces");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        if !self.known.is_voter(peer.name()) {
            return Err(io::Error::other(format!("'{}' is not among the voters", peer.name())));
        }
        if self.tls.is_none() && self.stays_here && !peer.is_here() {
            let why = format!("'{}' speaks plain text, and therefore with peers on its machine only", self.name);
            return Err(io::Error::other(why));
        }
        in_time(self.greet(peer, protocol)).await
    }

    async fn greet(&self, peer: &PeerAddress, protocol: &str) -> io::Result<Link> {
        let wire = connect(peer, self.tls.as_deref()).await?;
        let hello = Hello {
            version: VERSION,
            cluster: self.known.cluster_id(),
            name: self.name.clone(),
            protocol: protocol.to_owned(),
            voter: wire::voter_bytes(self.voter),
            ..Hello::default()
        };
        let (welcome, sender, receiver) = greet(wire, hello).await?;
        check_name(&welcome, peer)?;
        if !welcome.is_link {
            let why = format!("'{}' runs a release of primacy that carries no connections of programs", peer.name());
            return Err(io::Error::other(why));
        }
        let cluster = welcome.cluster.map(|cluster| cluster.id).unwrap_or_default();
        if self.known.is_other(&cluster) {
            return Err(io::Error::other(format!("'{}' belongs to another cluster", peer.name())));
        }
        let parted = self.known.clone().parted(peer.name().to_owned(), cluster);
        Ok(Link {
            peer: peer.name().to_owned(),
            voter: Some(wire::voter(&welcome.voter).map_err(channel::invalid)?),
            protocol: protocol.to_owned(),
            stream: LinkStream::new(channel::whole(sender, receiver), parted, None),
        })
    }
}

impl Listener {
    /// Lets a connection of a program through, if it comes from a peer and the program here takes some. It is one of those that
    /// there may be as long as it stands.
    pub(super) async fn link(
        &self,
        hello: Hello,
        (mut sender, receiver): (Sender, Receiver),
        principal: Principal,
        taken: OwnedSemaphorePermit,
    ) -> io::Result<()> {
        let principal = Principal { claim: wire::role(hello.role), ..principal };
        let peer = match self.linked(&hello, &principal) {
            Ok(peer) => peer,
            Err(why) => return refuse(&mut sender, why, false).await,
        };
        let own = self.own.name();
        let Some(queue) = self.links.as_ref().filter(|queue| !queue.is_closed()) else {
            let why =
                format!("'{own}' takes no connections of programs: start there too what speaks '{}'", hello.protocol);
            return refuse(&mut sender, why, false).await;
        };
        let Some(room) = queue.reserve() else {
            let why = format!("{UNTAKEN_MOST} connections wait at '{own}' for its program, which takes none");
            return refuse(&mut sender, why, true).await;
        };
        let voter = Some(&hello.voter).filter(|voter| !voter.is_empty()).map(|voter| wire::voter(voter));
        let voter = voter.transpose().map_err(channel::invalid)?;
        let welcome = wire::Welcome { is_link: true, ..self.welcome(&principal) };
        let sending = tokio::time::timeout(channel::HANDSHAKE, sender.send(0, Body::Welcome(welcome)));
        sending.await.map_err(|_| io::ErrorKind::TimedOut)??;
        let parted = self.known.clone().parted(peer.clone(), hello.cluster);
        let stream = LinkStream::new(channel::whole(sender, receiver), parted, Some(taken));
        let number = queue.put(Link { peer: peer.clone(), voter, protocol: hello.protocol, stream }, room);
        tokio::time::sleep(queue.patience).await;
        if queue.expire(number) {
            return Err(io::Error::other(format!("the program of '{own}' has not taken the connection of '{peer}'")));
        }
        Ok(())
    }

    /// Which peer it is that wants to talk to the program of this one.
    ///
    /// # Errors
    /// If it is none, of another cluster, or means another.
    fn linked(&self, hello: &Hello, principal: &Principal) -> Result<String, String> {
        if let Some(why) = self.objection(hello) {
            return Err(why);
        }
        if !is_protocol(&hello.protocol) {
            return Err(format!("'{}' names no protocol", shown(&hello.protocol)));
        }
        let own = self.own.name();
        if principal.is_relayed || principal.claim.is_some() {
            return Err(format!(
                "programs of peers talk to '{own}' themselves, and not through another or for another"
            ));
        }
        let claimed = match principal.authentication {
            Authentication::Nothing => Some(hello.name.as_str()),
            Authentication::Certificate(_) => principal.own_name(),
            Authentication::Socket(_) => None,
        };
        let who = claimed.map_or_else(|| shown(&hello.name), shown);
        match claimed {
            Some(name) if self.known.is_voter(name) => Ok(name.to_owned()),
            _ => Err(format!(
                "programs of voters talk to each other only, and '{who}' is none for '{own}': use the certificate of a voter"
            )),
        }
    }
}

#[cfg(test)]
mod tests;
