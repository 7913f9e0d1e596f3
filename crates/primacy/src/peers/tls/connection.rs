//! A secure connection, which stands only as long as a new one would be accepted.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use rustls::pki_types::{CertificateDer, UnixTime};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;
use tokio_rustls::TlsStream;

use super::trust::ExpectedPeer;
use super::{Tls, TlsConfigs, TlsError, explain, first_name};

/// A connection between two who have proven to each other who they are.
///
/// The certificates of both sides are looked at again every [`LOOK`](super::LOOK), with the authorities and revocations that
/// are known by then. If a new connection would be refused, reading and writing fail from then on with
/// [`TlsError::Ended`], in an error of the kind [`InvalidData`](io::ErrorKind::InvalidData).
#[derive(Debug)]
pub struct Connection<S> {
    pub(super) stream: TlsStream<S>,
    tls: Tls,
    theirs: Vec<CertificateDer<'static>>,
    /// Whom we have connected to.
    expected: ExpectedPeer,
    /// With our certificate of then.
    ours: Arc<TlsConfigs>,
    verified: VerifiedSpan,
    next: Pin<Box<Sleep>>,
    is_over: bool,
}

/// What needs not be proven again: by these rules, between these times.
#[derive(Clone, Copy, Debug)]
struct VerifiedSpan {
    number: u64,
    from: UnixTime,
    until: UnixTime,
}

impl<S> Connection<S> {
    pub(super) fn new(stream: TlsStream<S>, tls: &Tls, ours: Arc<TlsConfigs>, expected: ExpectedPeer) -> Self {
        let theirs = stream.get_ref().1.peer_certificates().unwrap_or_default();
        let theirs: Vec<_> = theirs.iter().map(|certificate| certificate.clone().into_owned()).collect();
        let verified = verified(&ours, &ours, &theirs, &expected);
        let next = Box::pin(tokio::time::sleep(tls.0.interval));
        Self { stream, tls: tls.clone(), theirs, expected, ours, verified, next, is_over: false }
    }

    /// Whom the certificate of the other side names first, or `None` if that is nothing that a peer may be called.
    pub fn peer_name(&self) -> Option<String> {
        first_name(self.theirs.first()?)
    }

    /// Moves what is below to the runtime that this is called in.
    pub(in crate::peers) fn rehome_with(&mut self, below: impl FnOnce(&mut S) -> io::Result<()>) -> io::Result<()> {
        below(self.stream.get_mut().0)?;
        self.next = Box::pin(tokio::time::sleep(self.tls.0.interval));
        Ok(())
    }

    /// Waits until it is time, and looks.
    fn look(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        while self.next.as_mut().poll(cx).is_ready() {
            self.next = Box::pin(tokio::time::sleep(self.tls.0.interval));
            if let Err(why) = self.check() {
                self.is_over = true;
                return Err(io::Error::new(io::ErrorKind::InvalidData, TlsError::Ended { why }));
            }
        }
        self.go_on()
    }

    fn go_on(&self) -> io::Result<()> {
        if self.is_over { Err(io::ErrorKind::NotConnected.into()) } else { Ok(()) }
    }

    /// Why a new connection would be refused now, if it would.
    pub(super) fn check(&mut self) -> Result<(), String> {
        // A clock that cannot be read proves nothing.
        let Some(now) = self.tls.0.wall.current_time() else { return Ok(()) };
        let configs = self.tls.configs();
        let VerifiedSpan { number, from, until } = self.verified;
        if number == configs.number && from <= now && now <= until {
            return Ok(());
        }
        let who = self.peer_name().map(|name| format!(" ('{name}')")).unwrap_or_default();
        let theirs = configs.trust.check(&self.theirs, &self.expected, now);
        theirs.map_err(|error| explain(&error, &format!("the other side's certificate{who}")))?;
        let ours = configs.trust.check(&self.ours.own.cert, &ExpectedPeer::Anybody, now);
        ours.map_err(|error| explain(&error, "our certificate, with which it was made,"))?;
        self.verified = verified(&configs, &self.ours, &self.theirs, &self.expected);
        Ok(())
    }
}

/// For how long the chains that are believed now will be, as far as their dates go.
fn verified(
    rules: &TlsConfigs,
    ours: &TlsConfigs,
    theirs: &[CertificateDer<'_>],
    expected: &ExpectedPeer,
) -> VerifiedSpan {
    let (from, until) = rules.trust.span(theirs, expected);
    VerifiedSpan { number: rules.number, from: from.max(ours.from), until: until.min(ours.until) }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Connection<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        this.look(cx)?;
        Pin::new(&mut this.stream).poll_read(cx, buf)
    }
}

/// Only who reads is woken when it is time to look: each connection is read from all the time.
impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Connection<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        this.go_on()?;
        Pin::new(&mut this.stream).poll_write(cx, buf)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        this.go_on()?;
        Pin::new(&mut this.stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}
