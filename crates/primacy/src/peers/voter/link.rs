//! Connections of a program's own protocol between peers, which come over the voters' port: those that wait to be taken, and
//! what the program reads from and writes to.

use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use primacy_core::quorum::VoterId;
use prost::bytes::{Buf as _, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

use crate::peers::wire::channel::Wire;

/// Links that nobody has taken: there are no more of them at a time.
pub(super) const UNTAKEN_MOST: usize = 64;

/// A link that nobody takes ends after this.
const UNTAKEN_LONGEST: Duration = Duration::from_secs(10);

/// A connection between the programs of two peers.
#[derive(Debug)]
#[non_exhaustive]
pub struct Link {
    /// What the other peer is called. Over TLS it has proven that; in plain text it only says so.
    pub peer: String,
    /// Its voter, as it says itself; a peer that has lost its folder is another one. `None` if it does not say.
    pub voter: Option<VoterId>,
    /// The protocol that the one that has connected wants to speak.
    pub protocol: String,
    /// What goes through it is the program's own.
    pub stream: LinkStream,
}

/// What the program of another peer writes and reads.
///
/// What is flushed leaves at once (`TCP_NODELAY`). It fails within 10 s when the other host is lost and something is under way. Reading
/// fails when the other is not among the voters any more, or its certificate would not be accepted any more: so somebody is to
/// read from it all the time.
pub struct LinkStream {
    wire: Box<dyn Wire>,
    /// What was read behind the greeting.
    begun: Bytes,
    /// Ends when the other is a fellow no more, and tells why.
    parted: Pin<Box<dyn Future<Output = String> + Send>>,
    is_over: bool,
    /// Among the connections that there may be at one time.
    _taken: Option<OwnedSemaphorePermit>,
}

impl fmt::Debug for LinkStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LinkStream").field("is_over", &self.is_over).finish_non_exhaustive()
    }
}

impl LinkStream {
    pub(super) fn new(
        (wire, begun): (Box<dyn Wire>, Bytes),
        parted: impl Future<Output = String> + Send + 'static,
        taken: Option<OwnedSemaphorePermit>,
    ) -> Self {
        Self { wire, begun, parted: Box::pin(parted), is_over: false, _taken: taken }
    }

    /// Moves it to the runtime that this is called in.
    pub(super) fn rehome(&mut self) -> io::Result<()> {
        self.wire.rehome()
    }

    /// Looks whether the other is a fellow still. Only who reads is woken when that changes.
    fn look(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        self.go_on()?;
        if let Poll::Ready(why) = self.parted.as_mut().poll(cx) {
            self.is_over = true;
            return Err(io::Error::new(io::ErrorKind::ConnectionAborted, format!("the connection ends: {why}")));
        }
        Ok(())
    }

    fn go_on(&self) -> io::Result<()> {
        if self.is_over { Err(io::ErrorKind::ConnectionAborted.into()) } else { Ok(()) }
    }
}

impl AsyncRead for LinkStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        this.look(cx)?;
        if this.begun.is_empty() {
            return Pin::new(&mut this.wire).poll_read(cx, buf);
        }
        let count = this.begun.len().min(buf.remaining());
        buf.put_slice(&this.begun[..count]);
        this.begun.advance(count);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for LinkStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        this.go_on()?;
        Pin::new(&mut this.wire).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        this.go_on()?;
        Pin::new(&mut this.wire).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.wire.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        this.go_on()?;
        Pin::new(&mut this.wire).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().wire).poll_shutdown(cx)
    }
}

/// The links that a program has not taken yet.
#[derive(Debug)]
pub(super) struct LinkQueue {
    room: Arc<Semaphore>,
    /// A link that nobody takes ends after this.
    pub(super) patience: Duration,
    untaken: Mutex<Untaken>,
    arrived: Notify,
}

#[derive(Debug, Default)]
struct Untaken {
    /// The program takes no more.
    is_closed: bool,
    /// Of the last one that came.
    number: u64,
    links: VecDeque<(u64, Link, OwnedSemaphorePermit)>,
}

impl Default for LinkQueue {
    fn default() -> Self {
        Self::new(UNTAKEN_LONGEST)
    }
}

impl LinkQueue {
    pub(super) fn new(patience: Duration) -> Self {
        let room = Arc::new(Semaphore::new(UNTAKEN_MOST));
        Self { room, patience, untaken: Mutex::default(), arrived: Notify::new() }
    }

    /// Has the program take no more, and closes what it has not taken.
    pub(super) fn close(&self) {
        let mut untaken = self.lock();
        untaken.is_closed = true;
        untaken.links.clear();
    }

    fn lock(&self) -> MutexGuard<'_, Untaken> {
        self.untaken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn is_closed(&self) -> bool {
        self.lock().is_closed
    }

    /// Room for one more, if there is some.
    pub(super) fn reserve(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.room).try_acquire_owned().ok()
    }

    /// Puts it where the program takes it from. Returns its number here.
    pub(super) fn put(&self, link: Link, room: OwnedSemaphorePermit) -> u64 {
        let mut untaken = self.lock();
        untaken.number += 1;
        let number = untaken.number;
        if !untaken.is_closed {
            untaken.links.push_back((number, link, room));
        }
        drop(untaken);
        self.arrived.notify_one();
        number
    }

    /// Closes that one, if it has not been taken. Returns whether that was so.
    pub(super) fn expire(&self, number: u64) -> bool {
        let mut untaken = self.lock();
        let place = untaken.links.iter().position(|(other, ..)| *other == number);
        place.and_then(|place| untaken.links.remove(place)).is_some()
    }

    /// The next one, once it has come. One caller at a time.
    pub(super) async fn next(&self) -> Link {
        loop {
            let next = self.lock().links.pop_front();
            if let Some((_, link, _)) = next {
                return link;
            }
            self.arrived.notified().await;
        }
    }
}
