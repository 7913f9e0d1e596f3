//! The socket by which programs on a peer's machine reach all voters, without addresses and certificates of their own.
//!
//! A program that connects names the voter that is meant. The peer connects to that one, proves who it is, and greets it with the role
//! of the user on the socket. When that voter has greeted back, the peer passes bytes on, both ways, and looks at none. So a
//! question and its answer are those of the two ends: a peer that is slow, or stops, costs answers and nothing else. Who may
//! connect is decided by the rights to the socket and its folder.

use std::ffi::OsString;
use std::fs::{self, File, Permissions, TryLockError};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use nix::unistd::geteuid;
use socket2::{Domain, SockAddr, Socket, Type};
use tokio::net::{UnixListener, UnixStream};

use super::listener::{Listener, NAME_MOST, greeting, refuse};
use super::principal::{self, Authentication, Principal};
use super::settings::PeerError;
use crate::peers::client::dial::{connect, greet};
use crate::peers::config::{PeerAddress, Role};
use crate::peers::disk::try_lock;
use crate::peers::wire::channel::{self, HANDSHAKE, Receiver, Sender};
use crate::peers::wire::{self, Body, Hello, RefusalFrame, Welcome};

/// Its user and group may use it.
const MODE: u32 = 0o660;

const OTHER: &str = "another process listens there";

/// Connections that wait to be taken.
const BACKLOG: i32 = 1_024;

/// The file of a socket, as long as this lives.
#[derive(Debug)]
pub(super) struct SocketFile {
    path: PathBuf,
    /// Device and number of the file: somebody may have put another in its place.
    id: (u64, u64),
    /// Without it, of two peers that replace what a dead one left, the later could remove the socket of the earlier.
    _lock: File,
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if fs::symlink_metadata(&self.path).is_ok_and(|file| (file.dev(), file.ino()) == self.id) {
            // What stays is replaced by the next peer.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Listens at this path. What a dead process has left there is replaced.
///
/// # Errors
/// If another process listens there, something else than a socket is there, or everybody may change the folder.
pub(super) fn bind(path: &Path) -> Result<(UnixListener, SocketFile), PeerError> {
    let failed = |why: String| PeerError::Socket { path: path.to_path_buf(), why };
    let in_words = |error: io::Error| failed(error.to_string());
    // The process may change its working directory later.
    let path = &std::path::absolute(path).map_err(in_words)?;
    let address = SockAddr::unix(path).map_err(|_| failed("its path is too long: 107 bytes fit".to_owned()))?;
    let folder = path.parent().unwrap_or(Path::new("/"));
    if fs::metadata(folder).map_err(in_words)?.mode() & 0o002 != 0 {
        return Err(failed(
            "everybody may put another socket in its place: choose a folder that others cannot write to".to_owned(),
        ));
    }
    let lock = lock(path).map_err(failed)?;
    clear(path, &address).map_err(failed)?;
    let listener = listener(&address).map_err(in_words)?;
    // The creation mask has narrowed it.
    fs::set_permissions(path, Permissions::from_mode(MODE)).map_err(in_words)?;
    let file = fs::symlink_metadata(path).map_err(in_words)?;
    Ok((listener, SocketFile { path: path.clone(), id: (file.dev(), file.ino()), _lock: lock }))
}

/// The right to put a socket at this path and to remove it, which one peer at a time has.
fn lock(path: &Path) -> Result<File, String> {
    let mut beside = OsString::from(path);
    beside.push(".lock");
    try_lock(Path::new(&beside)).map_err(|error| match error {
        TryLockError::WouldBlock => OTHER.to_owned(),
        TryLockError::Error(error) => format!("{}: {error}", beside.display()),
    })
}

/// Removes the socket of a process that is gone.
fn clear(path: &Path, address: &SockAddr) -> Result<(), String> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error.to_string()),
        Ok(file) if !file.file_type().is_socket() => return Err("something else than a socket is there".to_owned()),
        Ok(_) => {}
    }
    let trial = Socket::new(Domain::UNIX, Type::STREAM.nonblocking(), None).and_then(|socket| socket.connect(address));
    match trial {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            fs::remove_file(path).map_err(|error| error.to_string())
        }
        // One that takes no more connections lives.
        Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(error.to_string()),
        _ => Err(OTHER.to_owned()),
    }
}

fn listener(address: &SockAddr) -> io::Result<UnixListener> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM.nonblocking(), None)?;
    // Before it has a path, so that at no moment others may connect.
    let socket = File::from(OwnedFd::from(socket));
    socket.set_permissions(Permissions::from_mode(MODE))?;
    let socket = Socket::from(OwnedFd::from(socket));
    socket.bind(address)?;
    socket.listen(BACKLOG)?;
    UnixListener::from_std(OwnedFd::from(socket).into())
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

    fn refused(path: &Path) -> String {
        bind(path).expect_err("it must be refused").to_string()
    }

    #[tokio::test]
    async fn only_its_user_and_group_may_use_it_and_it_goes_with_its_owner() {
        let folder = tempfile::tempdir().expect("a folder for the test");
        let path = folder.path().join("socket");
        let (listener, file) = bind(&path).expect("it is free");
        assert_eq!(fs::metadata(&path).expect("it is there").mode() & 0o7777, 0o660);
        assert!(refused(&path).ends_with("another process listens there"), "{}", refused(&path));
        drop((listener, file));
        assert!(!path.exists());
    }

    #[tokio::test]
    async fn what_a_dead_process_left_is_replaced_and_anything_else_is_not() {
        let folder = tempfile::tempdir().expect("a folder for the test");
        let path = folder.path().join("socket");
        drop(std::os::unix::net::UnixListener::bind(&path).expect("it is free"));
        let (listener, file) = bind(&path).expect("nobody listens there");

        // Another one has taken its place: that one stays.
        fs::remove_file(&path).expect("it is there");
        assert!(refused(&path).ends_with("another process listens there"), "{}", refused(&path));
        let other = std::os::unix::net::UnixListener::bind(&path).expect("it is free");
        drop((listener, file));
        assert!(path.exists());
        drop(other);
        fs::remove_file(&path).expect("it is there");

        fs::write(&path, "precious").expect("it can be written");
        assert!(refused(&path).contains("something else than a socket"), "{}", refused(&path));
        assert_eq!(fs::read(&path).expect("it is there"), b"precious");
    }

    /// Each has a voter's folder of its own, and the same socket was asked for.
    #[tokio::test]
    async fn of_many_that_replace_what_a_dead_process_left_one_listens() {
        const MANY: usize = 4;
        let folder = tempfile::tempdir().expect("a folder for the test");
        let path = folder.path().join("socket");
        let runtime = tokio::runtime::Handle::current();
        for turn in 0..200 {
            drop(std::os::unix::net::UnixListener::bind(&path).expect("it is free"));
            let together = std::sync::Barrier::new(MANY);
            let one = || {
                let _runtime = runtime.enter();
                together.wait();
                bind(&path)
            };
            let tried: Vec<_> = std::thread::scope(|scope| {
                let threads: Vec<_> = (0..MANY).map(|_| scope.spawn(one)).collect();
                threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
            });
            let mut had = tried.into_iter().filter_map(Result::ok);
            let (listener, _file) = had.next().expect("nobody listened there");
            assert!(had.next().is_none(), "turn {turn}: two listen at one path, and one of them in vain");
            let _caller = UnixStream::connect(&path).await.expect("it listens");
            tokio::time::timeout(PATIENCE, listener.accept()).await.expect("it is this one's").expect("it is taken");
        }
    }

    #[tokio::test]
    async fn a_folder_of_everybody_and_a_path_too_long_are_refused() {
        let folder = tempfile::tempdir().expect("a folder for the test");
        let path = folder.path().join("socket");
        fs::set_permissions(folder.path(), Permissions::from_mode(0o1777)).expect("it is ours");
        assert!(refused(&path).contains("everybody may put another socket in its place"), "{}", refused(&path));
        assert!(refused(&folder.path().join("x".repeat(108))).contains("107 bytes"));
        assert!(refused(&folder.path().join("nowhere/socket")).contains("No such file"));
    }
}
