//! The connections of a node to the others: over the voters' port, two for each direction, so that no snapshot delays a beat.
//!
//! Who opens a connection sends over it, and the other one reads. A node that does not read is cut off, and dialed again.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::mem;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use primacy::peers::{Link, LinkDialer, Links, PeerAddress};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::Semaphore;
use tokio::task::AbortHandle;
use tracing::{debug, info, warn};

use super::frames::{Control, Frame, Hello, PROTOCOLS, first_frame, put_frame};
use crate::group::Message;

/// How long the greeting may take.
const GREETING: Duration = Duration::from_secs(3);
/// How long after a failure the other is dialed again: at first, and at most.
const AGAIN: [Duration; 2] = [Duration::from_millis(10), Duration::from_millis(500)];
/// How many bytes may wait for a node that does not read.
const WAITING_MAX: usize = 128 << 20;
/// How much may wait in turn.
const IN_TURN_MAX: usize = 512 << 20;
/// How much waits as bytes when what is put in turn is put.
const IN_TURN: usize = 1 << 20;
/// How many chunks of snapshots for one node are read and not sent.
const CHUNKS: usize = 32;
/// A buffer that is empty keeps no more memory than this.
const KEPT_MAX: usize = 4 << 20;

/// What goes out over one connection.
#[derive(Default)]
pub(super) struct Outbox {
    state: RefCell<Out>,
}

#[derive(Default)]
struct Out {
    /// None while there is no connection.
    writer: Option<Box<dyn AsyncWrite + Unpin>>,
    /// That of the connection's task.
    waker: Option<Waker>,
    /// Why it is over, for its task.
    failure: Option<io::Error>,
    /// What waits.
    bytes: Vec<u8>,
    /// What is put when there is less of it.
    in_turn: VecDeque<InTurn>,
    in_turn_bytes: usize,
    /// What is being sent, and how much of it is.
    under_way: Vec<u8>,
    sent: usize,
}

/// Appends a message.
type Put = Box<dyn FnOnce(&mut Vec<u8>)>;

/// A message of a group that is no bytes yet.
struct InTurn {
    group: u16,
    /// How many it has, about.
    size: usize,
    put: Put,
}

impl fmt::Debug for Outbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outbox").finish_non_exhaustive()
    }
}

impl Outbox {
    /// Puts a frame behind what waits, unless there is no connection. [`flush`](Self::flush) sends it.
    pub(super) fn put(&self, group: Option<u16>, put: impl FnOnce(&mut Vec<u8>)) {
        let mut out = self.state.borrow_mut();
        if out.writer.is_none() {
            return;
        }
        put_frame(&mut out.bytes, group, put);
        if out.waiting() > WAITING_MAX {
            out.does_not_read();
        }
    }

    /// The same for what may be much at once, as answers with values and chunks of snapshots: it becomes bytes when there is little before it,
    /// and more of it may wait. It stays in order.
    pub(super) fn put_in_turn(&self, group: u16, size: usize, put: impl FnOnce(&mut Vec<u8>) + 'static) {
        let mut out = self.state.borrow_mut();
        if out.writer.is_none() || (out.waiting() < IN_TURN && out.in_turn.is_empty()) {
            drop(out);
            return self.put(Some(group), put);
        }
        out.in_turn.push_back(InTurn { group, size, put: Box::new(put) });
        out.in_turn_bytes += size;
        if out.in_turn_bytes > IN_TURN_MAX {
            out.does_not_read();
        }
    }

    /// Sends what the connection takes at once. Its task sends the rest.
    pub(super) fn flush(&self) {
        let mut out = self.state.borrow_mut();
        // Before its task has looked, there is nobody to be woken when there is room: it will send all.
        if !out.bytes.is_empty()
            && let Some(waker) = out.waker.clone()
            && let Poll::Ready(Err(error)) = out.poll_send(&mut Context::from_waker(&waker))
        {
            out.fail(error);
        }
    }

    pub(super) fn is_open(&self) -> bool {
        self.state.borrow().writer.is_some()
    }

    fn open(&self, writer: impl AsyncWrite + Unpin + 'static) {
        *self.state.borrow_mut() = Out { writer: Some(Box::new(writer)), ..Out::default() };
    }

    fn close(&self) {
        *self.state.borrow_mut() = Out::default();
    }

    /// Sends what [`flush`](Self::flush) has left, until that fails.
    async fn send(&self) -> io::Error {
        std::future::poll_fn(|context| {
            let mut out = self.state.borrow_mut();
            if let Some(failure) = out.failure.take() {
                return Poll::Ready(failure);
            }
            out.waker = Some(context.waker().clone());
            match out.poll_send(context) {
                Poll::Ready(Err(error)) => Poll::Ready(error),
                Poll::Ready(Ok(())) | Poll::Pending => Poll::Pending,
            }
        })
        .await
    }
}

impl Out {
    /// How many bytes wait, or are being sent.
    fn waiting(&self) -> usize {
        self.bytes.len() + self.under_way.len() - self.sent
    }

    /// Puts what is next in turn.
    fn put_next(&mut self) {
        while self.waiting() < IN_TURN
            && let Some(InTurn { group, size, put }) = self.in_turn.pop_front()
        {
            self.in_turn_bytes -= size;
            put_frame(&mut self.bytes, Some(group), put);
        }
    }

    fn does_not_read(&mut self) {
        self.fail(io::Error::other("it does not read what it is sent"));
    }

    /// Ready when nothing waits.
    fn poll_send(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            self.put_next();
            let Self { writer: Some(writer), bytes, under_way, sent, .. } = self else { return Poll::Ready(Ok(())) };
            if *sent == under_way.len() {
                under_way.clear();
                under_way.shrink_to(KEPT_MAX);
                *sent = 0;
                if bytes.is_empty() {
                    return Pin::new(writer).poll_flush(context);
                }
                mem::swap(bytes, under_way);
            }
            match ready!(Pin::new(&mut *writer).poll_write(context, &under_way[*sent..]))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                count => *sent += count,
            }
        }
    }

    /// It is over: nothing more is taken, and its task tells why.
    fn fail(&mut self, failure: io::Error) {
        let waker = self.waker.take();
        *self = Self { failure: Some(failure), ..Self::default() };
        waker.into_iter().for_each(Waker::wake);
    }
}

/// Which of a pair of connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    /// This node has opened it.
    Out,
    /// The other one has.
    In,
}

/// What a node makes of its connections.
pub(super) trait Nodes {
    /// What it says about itself.
    fn hello(&self) -> Hello;
    /// Whether it has to do with one that says that, at the other end of that name.
    ///
    /// # Errors
    /// Why it has not.
    fn admit(&self, peer: &str, hello: &Hello) -> Result<(), String>;
    /// There is a new connection.
    fn met(&self, peer: usize, kind: usize, direction: Direction, hello: Hello);
    /// A connection has ended.
    fn parted(&self, peer: usize, kind: usize, direction: Direction);
    /// What belongs to no group.
    fn control(&self, peer: usize, hello: &Hello, control: Control);
    /// What belongs to a group.
    fn message(&self, hello: &Hello, group: u16, message: Message);
    /// Returns when groups take messages.
    fn ready(&self) -> impl Future<Output = ()>;
}

/// The other nodes, and what goes to them.
#[derive(Debug)]
pub(super) struct Wires {
    pub(super) peers: Vec<PeerAddress>,
    /// Of each peer, one for each kind.
    pub(super) outboxes: Vec<[Outbox; 2]>,
    /// Of each peer, for chunks of snapshots.
    pub(super) chunks: Vec<Arc<Semaphore>>,
}

impl Wires {
    pub(super) fn new(peers: Vec<PeerAddress>) -> Self {
        let outboxes = peers.iter().map(|_| <[Outbox; 2]>::default()).collect();
        let chunks = peers.iter().map(|_| Arc::new(Semaphore::new(CHUNKS))).collect();
        Self { peers, outboxes, chunks }
    }
}

/// Keeps connections to all peers, and takes those that they open. Never ends.
pub(super) async fn keep<N: Nodes + 'static>(node: Rc<N>, wires: Rc<Wires>, mut links: Links) {
    for peer in 0..wires.peers.len() {
        for kind in 0..PROTOCOLS.len() {
            let (node, wires, dialer) = (Rc::clone(&node), Rc::clone(&wires), links.dialer());
            tokio::task::spawn_local(async move { dial(&*node, &wires, &dialer, peer, kind).await });
        }
    }
    let mut taken: Vec<[Option<AbortHandle>; 2]> = wires.peers.iter().map(|_| [None, None]).collect();
    loop {
        let link = links.accept().await;
        let peer = wires.peers.iter().position(|peer| peer.name() == link.peer);
        let kind = PROTOCOLS.iter().position(|protocol| *protocol == link.protocol);
        let (Some(peer), Some(kind)) = (peer, kind) else {
            debug!(peer = link.peer, protocol = link.protocol, "a connection that nobody here knows");
            continue;
        };
        // What an older one still brings belongs to a node that has given it up.
        if let Some(older) = taken[peer][kind].take() {
            older.abort();
        }
        let node = Rc::clone(&node);
        let task = tokio::task::spawn_local(async move {
            if let Err(error) = take(&*node, link, peer, kind).await {
                debug!(%error, "a connection of another node has ended");
            }
        });
        taken[peer][kind] = Some(task.abort_handle());
    }
}

/// Keeps one connection to one peer.
async fn dial<N: Nodes>(node: &N, wires: &Wires, dialer: &LinkDialer, peer: usize, kind: usize) {
    let (address, outbox) = (&wires.peers[peer], &wires.outboxes[peer][kind]);
    let (mut pause, mut told) = (AGAIN[0], false);
    loop {
        let connected = async {
            let mut link = dialer.dial(address, PROTOCOLS[kind]).await?;
            let hello = greet(node, &mut link).await?;
            Ok::<_, io::Error>((link, hello))
        };
        match connected.await {
            Ok((link, hello)) => {
                pause = AGAIN[0];
                let (mut reader, writer) = tokio::io::split(link.stream);
                outbox.open(writer);
                if kind == 0 {
                    info!(peer = address.name(), "connected");
                }
                node.met(peer, kind, Direction::Out, hello);
                let ended = tokio::select! {
                    error = outbox.send() => error,
                    error = silence(&mut reader) => error,
                };
                outbox.close();
                node.parted(peer, kind, Direction::Out);
                if kind == 0 {
                    warn!(peer = address.name(), error = %ended, "disconnected");
                    told = true;
                }
            }
            Err(error) if kind == 0 && !told => {
                told = true;
                info!(peer = address.name(), %error, "not connected yet");
            }
            Err(error) => debug!(peer = address.name(), %error, "not connected"),
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(AGAIN[1]);
    }
}

/// Says who this node is, and hears who the other one is.
async fn greet<N: Nodes>(node: &N, link: &mut Link) -> io::Result<Hello> {
    let mut out = Vec::new();
    put_frame(&mut out, None, |out| Control::Hello(node.hello()).encode(out));
    let greeting = async {
        link.stream.write_all(&out).await?;
        link.stream.flush().await?;
        // Nothing may be read that belongs behind it: the other one waits for this frame, too, or sends nothing.
        let mut head = [0; 6];
        link.stream.read_exact(&mut head).await?;
        let length = u32::from_le_bytes([head[0], head[1], head[2], head[3]]) as usize;
        if length > 1 << 20 {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a greeting is too long"));
        }
        let mut body = vec![0; length];
        link.stream.read_exact(&mut body).await?;
        Ok(body)
    };
    let body = tokio::time::timeout(GREETING, greeting).await.map_err(|_| io::ErrorKind::TimedOut)??;
    match Control::decode(&body) {
        Ok(Control::Hello(hello)) => match node.admit(&link.peer, &hello) {
            Ok(()) => Ok(hello),
            Err(why) => Err(io::Error::other(why)),
        },
        Ok(_) => Err(io::Error::other("it does not greet")),
        Err(error) => Err(io::Error::new(io::ErrorKind::InvalidData, error.to_string())),
    }
}

/// Waits for the end of a connection over which nothing comes.
async fn silence(reader: &mut (impl AsyncRead + Unpin)) -> io::Error {
    match reader.read_u8().await {
        Ok(_) => io::Error::other("it says something where it should be silent"),
        Err(error) => error,
    }
}

/// Reads what another node sends.
async fn take<N: Nodes>(node: &N, mut link: Link, peer: usize, kind: usize) -> io::Result<()> {
    let hello = greet(node, &mut link).await?;
    node.met(peer, kind, Direction::In, hello.clone());
    let _parted = Parted { node, peer, kind };
    let mut bytes = Vec::with_capacity(1 << 16);
    loop {
        let mut taken = 0;
        while let Some(Frame { group, body, length }) = first_frame(&bytes[taken..])? {
            let invalid = |error: crate::wire::Malformed| io::Error::new(io::ErrorKind::InvalidData, error.to_string());
            match group {
                Some(group) => {
                    let message = Message::decode(body).map_err(invalid)?;
                    node.ready().await;
                    node.message(&hello, group, message);
                }
                None => node.control(peer, &hello, Control::decode(body).map_err(invalid)?),
            }
            taken += length;
        }
        bytes.drain(..taken);
        if bytes.is_empty() && bytes.capacity() > 4 << 20 {
            bytes = Vec::with_capacity(1 << 16);
        }
        bytes.reserve(1 << 16);
        if link.stream.read_buf(&mut bytes).await? == 0 {
            return Ok(());
        }
    }
}

/// Tells the end of a connection, however it comes.
struct Parted<'a, N: Nodes> {
    node: &'a N,
    peer: usize,
    kind: usize,
}

impl<N: Nodes> Drop for Parted<'_, N> {
    fn drop(&mut self) {
        self.node.parted(self.peer, self.kind, Direction::In);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// Takes as many bytes as it has room for.
    struct Narrow {
        room: Rc<Cell<usize>>,
        taken: Rc<RefCell<Vec<u8>>>,
        waker: Rc<RefCell<Option<Waker>>>,
    }

    impl AsyncWrite for Narrow {
        fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
            let count = self.room.get().min(bytes.len());
            if count == 0 {
                *self.waker.borrow_mut() = Some(context.waker().clone());
                return Poll::Pending;
            }
            self.room.set(self.room.get() - count);
            self.taken.borrow_mut().extend(&bytes[..count]);
            Poll::Ready(Ok(count))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    #[tokio::test(flavor = "local")]
    async fn what_a_connection_takes_is_sent_at_once_and_the_rest_in_order_when_there_is_room() {
        let (room, taken, waker) = (Rc::new(Cell::new(20)), Rc::new(RefCell::default()), Rc::new(RefCell::default()));
        let outbox = Rc::new(Outbox::default());
        outbox.put(Some(1), |out| out.push(0));
        outbox.open(Narrow { room: Rc::clone(&room), taken: Rc::clone(&taken), waker: Rc::clone(&waker) });
        let own = Rc::clone(&outbox);
        let ends = tokio::task::spawn_local(async move { own.send().await });
        tokio::task::yield_now().await;
        let mut expected = Vec::new();
        for number in 1..=5 {
            outbox.put(Some(number), |out| out.extend([7; 4]));
            outbox.flush();
            put_frame(&mut expected, Some(number), |out| out.extend([7; 4]));
            assert_eq!(*taken.borrow(), expected[..expected.len().min(20)], "no task has run since");
        }
        room.set(1000);
        waker.borrow_mut().take().expect("it waits for room").wake();
        tokio::task::yield_now().await;
        assert_eq!(*taken.borrow(), expected);
        room.set(0);
        outbox.put(None, |out| out.resize(WAITING_MAX + 1, 0));
        let ended = ends.await.expect("it ends");
        assert!(!outbox.is_open() && ended.to_string().contains("does not read"), "{ended}");
    }

    #[tokio::test(flavor = "local")]
    async fn large_answers_wait_in_order_and_end_no_connection() {
        let (room, taken) = (Rc::new(Cell::new(0)), Rc::new(RefCell::default()));
        let waker: Rc<RefCell<Option<Waker>>> = Rc::default();
        let outbox = Rc::new(Outbox::default());
        outbox.open(Narrow { room: Rc::clone(&room), taken: Rc::clone(&taken), waker: Rc::clone(&waker) });
        let own = Rc::clone(&outbox);
        let ends = tokio::task::spawn_local(async move { own.send().await });
        tokio::task::yield_now().await;
        // More than may wait in all.
        let made = Rc::new(Cell::new(0));
        for number in 0..40_u8 {
            let made = Rc::clone(&made);
            outbox.put_in_turn(u16::from(number), 8 << 20, move |out| {
                made.set(made.get() + 1);
                out.resize(out.len() + (8 << 20), number);
            });
        }
        outbox.flush();
        assert_eq!(made.get(), 1, "the others are no bytes yet");
        // What is small and urgent passes them.
        outbox.put(Some(100), |out| out.push(100));
        let mut groups = Vec::new();
        while groups.len() < 41 {
            assert!(!ends.is_finished(), "the connection has ended");
            room.set(1 << 20);
            let waiting = waker.take();
            waiting.into_iter().for_each(Waker::wake);
            tokio::task::yield_now().await;
            let mut taken = taken.borrow_mut();
            while let Some(frame) = first_frame(&taken).expect("it is sound") {
                groups.push(frame.group.expect("it is a group's"));
                let length = frame.length;
                taken.drain(..length);
            }
        }
        let urgent = groups.iter().position(|group| *group == 100);
        assert!(urgent.is_some_and(|place| place <= 2), "{groups:?}");
        groups.retain(|group| *group != 100);
        assert!(groups.iter().copied().eq(0..40), "{groups:?}");
    }
}
