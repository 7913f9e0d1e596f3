//! One peer's connections to the others: frames over TCP without blocking, each held back for as long as its way takes.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::mem;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use anyhow::Result;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::time::TimeSpec;
use primacy_core::Instant;
use primacy_core::contest::PeerId;

use super::network::Network;
use super::wire::{FRAME_BYTES_MAX, Frame, Wire as _};
use primacy_bench::Entropy;

/// The time of all peers of a group, which live in one process.
#[derive(Clone, Copy)]
pub(super) struct Clock(std::time::Instant);

impl Clock {
    pub(super) fn start() -> Self {
        Self(std::time::Instant::now())
    }

    pub(super) fn now(self) -> Instant {
        Instant::ZERO + self.0.elapsed()
    }
}

/// What comes from another peer.
pub(super) enum Inbound {
    /// It can be reached.
    Up,
    /// Its connection has ended.
    Down,
    Frame(Box<Frame>),
}

pub(super) struct Links {
    me: PeerId,
    listener: TcpListener,
    network: Arc<Network>,
    entropy: Entropy,
    /// Connections of which it is not known yet whose they are.
    strangers: Vec<Stream>,
    open: BTreeMap<PeerId, Stream>,
    /// What has come, and when it may be seen: in order for each peer, also across connections.
    inboxes: BTreeMap<PeerId, VecDeque<(Instant, Inbound)>>,
}

impl Links {
    /// Connects to those that run already; the others will connect to this one. `listener` does not block.
    ///
    /// # Errors
    /// If one of them cannot be reached.
    pub(super) fn connect(
        me: PeerId,
        listener: TcpListener,
        running: &[SocketAddr],
        network: Arc<Network>,
        seed: u64,
    ) -> Result<Self> {
        let strangers = running.iter().map(|address| Stream::new(TcpStream::connect(address)?, me));
        let strangers = strangers.collect::<io::Result<_>>()?;
        let entropy = Entropy(seed);
        Ok(Self { me, listener, network, entropy, strangers, open: BTreeMap::new(), inboxes: BTreeMap::new() })
    }

    /// Waits until something can be read or written, somebody writes to `control`, or that time has come. Says whether
    /// `control` can be read.
    ///
    /// # Errors
    /// If the system cannot wait.
    pub(super) fn wait(&mut self, control: &UnixStream, until: Option<Instant>, clock: Clock) -> Result<bool> {
        let until = Instant::earliest(until, self.next_due());
        let timeout = until.map(|until| TimeSpec::from_duration(until.since(clock.now())));
        let streams = self.strangers.iter().chain(self.open.values());
        let mut fds = vec![
            PollFd::new(control.as_fd(), PollFlags::POLLIN),
            PollFd::new(self.listener.as_fd(), PollFlags::POLLIN),
        ];
        fds.extend(streams.map(|stream| {
            let wants_out = if stream.unsent.is_empty() { PollFlags::empty() } else { PollFlags::POLLOUT };
            PollFd::new(stream.tcp.as_fd(), PollFlags::POLLIN | wants_out)
        }));
        match ppoll(&mut fds, timeout, None) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
        let is_ready = |fd: &PollFd<'_>| fd.any().unwrap_or(true);
        let (is_controlled, is_called) = (is_ready(&fds[0]), is_ready(&fds[1]));
        let is_readable: Vec<bool> = fds.iter().skip(2).map(is_ready).collect();
        let (strange, open) = is_readable.split_at(self.strangers.len());
        self.read(strange, open, clock.now());
        if is_called {
            self.accept();
        }
        Ok(is_controlled)
    }

    fn accept(&mut self) {
        while let Ok((tcp, _)) = self.listener.accept() {
            // One that breaks at once is no connection.
            self.strangers.extend(Stream::new(tcp, self.me));
        }
    }

    fn read(&mut self, strange: &[bool], open: &[bool], now: Instant) {
        let peers: Vec<PeerId> = self.open.keys().copied().collect();
        for peer in peers.into_iter().zip(open).filter(|(_, is_readable)| **is_readable).map(|(peer, _)| peer) {
            let Some(stream) = self.open.get_mut(&peer) else { continue };
            let (frames, is_open) = stream.read();
            frames.into_iter().for_each(|frame| self.arrives(peer, Inbound::Frame(Box::new(frame)), now));
            if !is_open {
                self.close(peer, now);
            }
        }
        for (mut stream, is_readable) in mem::take(&mut self.strangers).into_iter().zip(strange) {
            let (frames, is_open) = if *is_readable { stream.read() } else { (Vec::new(), true) };
            let mut frames = frames.into_iter();
            match frames.next() {
                Some(Frame::Hello { peer }) if is_open => {
                    // It has been started again, and the end of the old connection was not read yet.
                    self.close(peer, now);
                    self.open.insert(peer, stream);
                    self.arrives(peer, Inbound::Up, now);
                    frames.for_each(|frame| self.arrives(peer, Inbound::Frame(Box::new(frame)), now));
                }
                None if is_open => self.strangers.push(stream),
                _ => {}
            }
        }
    }

    fn close(&mut self, peer: PeerId, now: Instant) {
        if self.open.remove(&peer).is_some() {
            self.arrives(peer, Inbound::Down, now);
        }
    }

    fn arrives(&mut self, from: PeerId, inbound: Inbound, now: Instant) {
        let lag = self.entropy.between(self.network.lag);
        let due = now + self.network.delay(from, self.me) + lag;
        self.inboxes.entry(from).or_default().push_back((due, inbound));
    }

    /// When the next thing that has come may be seen.
    fn next_due(&self) -> Option<Instant> {
        self.inboxes.values().filter_map(|inbox| Some(inbox.front()?.0)).min()
    }

    /// What may be seen by now, the first first.
    pub(super) fn next(&mut self, now: Instant) -> Option<(PeerId, Inbound)> {
        let fronts = self.inboxes.iter().filter_map(|(peer, inbox)| Some((inbox.front()?.0, *peer)));
        let (_, from) = fronts.min().filter(|(due, _)| *due <= now)?;
        let (_, inbound) = self.inboxes.get_mut(&from)?.pop_front()?;
        Some((from, inbound))
    }

    /// Whether there is a connection to that one.
    pub(super) fn is_open(&self, peer: PeerId) -> bool {
        self.open.contains_key(&peer)
    }

    /// Puts it into the buffer for that one. Without a connection it is lost.
    pub(super) fn send(&mut self, to: PeerId, frame: &Frame) {
        if let Some(stream) = self.open.get_mut(&to) {
            stream.put(frame);
        }
    }

    /// Sends what is in the buffers, as far as it goes without waiting.
    pub(super) fn flush(&mut self, now: Instant) {
        self.strangers.retain_mut(Stream::flush);
        let broken: Vec<PeerId> =
            self.open.iter_mut().filter_map(|(peer, stream)| (!stream.flush()).then_some(*peer)).collect();
        broken.into_iter().for_each(|peer| self.close(peer, now));
    }
}

struct Stream {
    tcp: TcpStream,
    unread: Vec<u8>,
    unsent: Vec<u8>,
}

impl Stream {
    fn new(tcp: TcpStream, me: PeerId) -> io::Result<Self> {
        tcp.set_nonblocking(true)?;
        tcp.set_nodelay(true)?;
        let mut stream = Self { tcp, unread: Vec::new(), unsent: Vec::new() };
        stream.put(&Frame::Hello { peer: me });
        Ok(stream)
    }

    /// Its length, and the frame.
    fn put(&mut self, frame: &Frame) {
        frame.bytes().put(&mut self.unsent);
    }

    /// All frames that have come, and whether more can.
    fn read(&mut self) -> (Vec<Frame>, bool) {
        let mut part = [0; 4_096];
        let is_open = loop {
            match self.tcp.read(&mut part) {
                Ok(0) => break false,
                Ok(count) => self.unread.extend(&part[..count]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => break error.kind() == ErrorKind::WouldBlock,
            }
        };
        let mut frames = Vec::new();
        loop {
            match self.next_frame() {
                Ok(Some(frame)) => frames.push(frame),
                Ok(None) => return (frames, is_open),
                Err(NoFrame) => return (frames, false),
            }
        }
    }

    fn next_frame(&mut self) -> Result<Option<Frame>, NoFrame> {
        let Some((len, rest)) = self.unread.split_first_chunk() else { return Ok(None) };
        let len = usize::try_from(u32::from_le_bytes(*len)).map_err(|_| NoFrame)?;
        if len > FRAME_BYTES_MAX {
            return Err(NoFrame);
        }
        let Some(bytes) = rest.get(..len) else { return Ok(None) };
        let frame = Frame::read(bytes).ok_or(NoFrame)?;
        self.unread.drain(..4 + len);
        Ok(Some(frame))
    }

    /// Says whether it still can be written to.
    fn flush(&mut self) -> bool {
        while !self.unsent.is_empty() {
            match self.tcp.write(&self.unsent) {
                Ok(0) => return false,
                Ok(count) => drop(self.unsent.drain(..count)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return true,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return false,
            }
        }
        true
    }
}

/// What has come is no frame of ours.
struct NoFrame;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_frame_or_too_long_ends_its_connection() {
        for garbage in [&[1, 0, 0, 0, 99][..], &[0, 0, 2, 0]] {
            let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
            let mut other = TcpStream::connect(listener.local_addr().expect("bound")).expect("it listens");
            let mut stream = Stream::new(listener.accept().expect("it calls").0, PeerId(1)).expect("a stream");
            other.write_all(garbage).expect("it listens");
            let mut seen = [0; 1];
            stream.tcp.set_nonblocking(false).expect("a socket");
            stream.tcp.peek(&mut seen).expect("it has come");
            stream.tcp.set_nonblocking(true).expect("a socket");
            assert!(matches!(stream.read(), (frames, false) if frames.is_empty()), "{garbage:?}");
        }
    }
}
