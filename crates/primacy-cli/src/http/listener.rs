//! Where the HTTP server listens, and who connects.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;

use primacy::peers::local_socket::{self, SocketFile};
use tokio::net::{TcpStream, UnixStream};

use crate::cli::http::HttpAddress;

/// Who may connect to a Unix socket: its user and group, as far as its folder lets them to it.
const MODE: u32 = 0o660;

/// A place at which clients connect.
#[derive(Debug)]
pub(super) enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener, PathBuf),
}

/// Who has connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Client {
    /// Somebody at this address.
    Address(IpAddr),
    /// A process of this user of the host, if the system says that.
    User(Option<u32>),
}

impl fmt::Display for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // Without the port, so that the same is not told again and again.
            Self::Address(address) => address.fmt(f),
            Self::User(Some(uid)) => write!(f, "user {uid}"),
            Self::User(None) => f.write_str("a user of this host"),
        }
    }
}

impl Listener {
    /// Listens there. Connections wait. The file of a Unix socket is removed when what comes with it is dropped.
    pub(super) fn bind(address: &HttpAddress) -> io::Result<(Self, Option<SocketFile>)> {
        match address {
            HttpAddress::Tcp(address) => {
                let listener = TcpListener::bind(address)?;
                listener.set_nonblocking(true)?;
                Ok((Self::Tcp(listener), None))
            }
            HttpAddress::Unix(path) => {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
                let inside = runtime.enter();
                let bound = local_socket::bind(path, MODE);
                let bound = bound.map_err(|error| io::Error::other(error.why));
                let bound = bound.and_then(|(listener, file)| Ok((listener.into_std()?, file)));
                drop(inside);
                // The caller may be in another one, in which none may be waited for.
                runtime.shutdown_background();
                bound.map(|(listener, file)| (Self::Unix(listener, path.clone()), Some(file)))
            }
        }
    }

    /// Where that is: with the port that was chosen if 0 was asked for.
    pub(super) fn place(&self) -> io::Result<String> {
        Ok(match self {
            Self::Tcp(listener) => listener.local_addr()?.to_string(),
            Self::Unix(_, path) => HttpAddress::Unix(path.clone()).to_string(),
        })
    }

    /// Whether browsers on this host reach it, and nobody on another one.
    pub(super) fn is_loopback(&self) -> bool {
        matches!(self, Self::Tcp(listener) if listener.local_addr().is_ok_and(|address| address.ip().is_loopback()))
    }

    /// The same for a runtime.
    pub(super) fn listen(&self) -> io::Result<Accepting> {
        Ok(match self {
            Self::Tcp(listener) => Accepting::Tcp(tokio::net::TcpListener::from_std(listener.try_clone()?)?),
            Self::Unix(listener, _) => Accepting::Unix(tokio::net::UnixListener::from_std(listener.try_clone()?)?),
        })
    }
}

/// Takes connections.
#[derive(Debug)]
pub(super) enum Accepting {
    Tcp(tokio::net::TcpListener),
    Unix(tokio::net::UnixListener),
}

/// A connection.
#[derive(Debug)]
pub(super) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Accepting {
    pub(super) async fn accept(&self) -> io::Result<(Stream, Client)> {
        Ok(match self {
            Self::Tcp(listener) => {
                let (stream, address): (_, SocketAddr) = listener.accept().await?;
                (Stream::Tcp(stream), Client::Address(address.ip()))
            }
            Self::Unix(listener) => {
                let (stream, _) = listener.accept().await?;
                let user = stream.peer_cred().ok().map(|user| user.uid());
                (Stream::Unix(stream), Client::User(user))
            }
        })
    }
}
