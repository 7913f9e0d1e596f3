//! Telling the server to give up a statement whose answer nobody awaits.

use std::fmt;
use std::io;
use std::net::IpAddr;
use std::path::PathBuf;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres::{CancelToken, NoTls};
use tracing::debug;

use super::host::Host;
use super::tls::Authorities;
use super::url::{Tls, TlsMode};

/// How to cancel what runs on a connection.
pub(super) struct CancelHandle {
    token: CancelToken,
    address: Address,
    /// What its certificate must name.
    name: String,
    mode: TlsMode,
    tls: Tls,
}

enum Address {
    Tcp(IpAddr, u16),
    Unix(PathBuf),
}

impl fmt::Debug for CancelHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stop").field("name", &self.name).finish_non_exhaustive()
    }
}

impl CancelHandle {
    /// For a connection to `host`, whose name stood for `address`.
    pub(super) fn new(token: CancelToken, host: &Host, address: Option<IpAddr>, mode: TlsMode, tls: &Tls) -> Self {
        let (name, address) = match (host, address) {
            (Host::Tcp { name, port }, Some(address)) => (name.clone(), Address::Tcp(address, *port)),
            (Host::Socket { folder, port }, _) => {
                (String::new(), Address::Unix(folder.join(format!(".s.PGSQL.{port}"))))
            }
            (Host::Tcp { name, port }, None) => (name.clone(), Address::Tcp(IpAddr::from([127, 0, 0, 1]), *port)),
        };
        Self { token, address, name, mode, tls: tls.clone() }
    }

    /// The request may come before the statement that it means, so it is repeated; in the end the line is cut.
    pub(super) async fn until_it_ends(self, mut connection: JoinHandle<()>) {
        const TRIES: u32 = 3;
        // Long, since who hangs up on PgBouncer may harm it.
        const REQUEST: Duration = Duration::from_secs(10);
        const EFFECT: Duration = Duration::from_secs(1);
        for _ in 0..TRIES {
            match timeout(REQUEST, self.once()).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => debug!(%error, "an abandoned step could not be cancelled"),
                Err(_) => debug!("the request to cancel an abandoned step found no way"),
            }
            if timeout(EFFECT, &mut connection).await.is_ok() {
                return;
            }
        }
        connection.abort();
    }

    async fn once(&self) -> Result<(), String> {
        match &self.address {
            Address::Tcp(address, port) => {
                self.send(TcpStream::connect((*address, *port)).await.map_err(|error| error.to_string())?).await
            }
            Address::Unix(path) => self.send(UnixStream::connect(path).await.map_err(|error| error.to_string())?).await,
        }
    }

    async fn send<S>(&self, stream: S) -> Result<(), String>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let stream = UntilClosed(stream);
        let sent = match self.mode {
            TlsMode::Disable => {
                let mut plain = NoTls;
                let tls = MakeTlsConnect::<UntilClosed<S>>::make_tls_connect(&mut plain, &self.name);
                self.token.cancel_query_raw(stream, tls.map_err(|error| error.to_string())?).await
            }
            TlsMode::VerifyFull => {
                let mut authorities = Authorities::connector(&self.tls)?;
                let tls = MakeTlsConnect::<UntilClosed<S>>::make_tls_connect(&mut authorities, &self.name);
                self.token.cancel_query_raw(stream, tls.map_err(|error| error.to_string())?).await
            }
        };
        sent.map_err(|error| error.to_string())
    }
}

/// A stream that is closed only after the other side has closed it, which says that the request has been taken. Who
/// closes at once, as the driver does, brings PgBouncer 1.18 down with all its connections (pgbouncer/pgbouncer#801).
struct UntilClosed<S>(S);

impl<S: AsyncRead + Unpin> AsyncRead for UntilClosed<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().0).poll_read(cx, buf)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for UntilClosed<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().0).poll_write(cx, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().0).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let stream = &mut self.get_mut().0;
        loop {
            let mut space = [0; 64];
            let mut unread = ReadBuf::new(&mut space);
            match ready!(Pin::new(&mut *stream).poll_read(cx, &mut unread)) {
                Ok(()) if !unread.filled().is_empty() => {}
                Ok(()) | Err(_) => return Pin::new(stream).poll_shutdown(cx),
            }
        }
    }
}
