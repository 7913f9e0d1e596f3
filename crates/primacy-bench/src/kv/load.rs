//! The loader: connections that each send a request as soon as the last one is answered, all on this thread.
//!
//! One thread that waits for all sockets at once is the cheapest client that the kernel offers without rings: for each request one
//! `write`, one `read` and a share of an `epoll_wait`. Its own CPU time is told with each figure.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};

use super::codec::{Dialect, Event, Outcome, Request};
use super::connection::{Connection, SCRATCH_BYTES};
use crate::Entropy;

/// What is asked, by how many, and for how long.
pub(super) struct Load<'a> {
    pub(super) dialect: Dialect,
    /// Connections are spread evenly over these.
    pub(super) servers: &'a [SocketAddr],
    pub(super) clients: usize,
    pub(super) request: Request,
    pub(super) keys: &'a [String],
    pub(super) value: &'a [u8],
    pub(super) length: Length,
}

/// When it ends.
#[derive(Clone, Copy)]
pub(super) enum Length {
    /// When each key was named once, in order.
    Keys,
    /// Keys are drawn. After a time that is not counted, this one is.
    Time { warm: Duration, counted: Duration },
}

/// What came of it.
pub(super) struct Answers {
    pub(super) begin: Instant,
    /// How many answers came, with those that are not counted.
    pub(super) all: u64,
    /// How long it lasted, without the time that is not counted.
    pub(super) lasted: Duration,
    /// When each request was done, from the beginning, and how long that took, in nanoseconds.
    pub(super) done: Vec<(u64, u64)>,
    /// How many were not, by what was said.
    pub(super) refused: BTreeMap<String, u64>,
    /// How many may have been.
    pub(super) unknown: BTreeMap<String, u64>,
}

/// How long nothing at all may come.
const PATIENCE: Duration = Duration::from_secs(30);

impl Load<'_> {
    /// Sends requests until the end.
    ///
    /// # Errors
    /// When a connection is lost, or nothing comes for half a minute.
    pub(super) fn run(&self) -> Result<Answers> {
        let mut connections = Vec::new();
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        for nth in 0..self.clients {
            let server = self.servers[nth % self.servers.len()];
            let connection = Connection::open(server, self.dialect, self.value.len())
                .with_context(|| format!("cannot connect to {server}"))?;
            epoll.add(connection.descriptor(), EpollEvent::new(EpollFlags::EPOLLIN, nth as u64))?;
            connections.push(connection);
        }
        let mut keys = Keys { load: self, entropy: Entropy(1), next: 0 };
        let begin = Instant::now();
        let (from, until) = match self.length {
            Length::Keys => (begin, None),
            Length::Time { warm, counted } => (begin + warm, Some(begin + warm + counted)),
        };
        for connection in &mut connections {
            if connection.is_ready()
                && let Some(key) = keys.next()
            {
                connection.ask(self.request, key, self.value, Instant::now())?;
            }
        }
        let mut answers = Answers::new(begin);
        let mut scratch = vec![0; SCRATCH_BYTES];
        let mut events = [EpollEvent::empty(); 64];
        let timeout = EpollTimeout::try_from(PATIENCE)?;
        loop {
            let count = epoll.wait(&mut events, timeout)?;
            ensure!(count > 0, "nothing came for {PATIENCE:?}");
            let mut now = Instant::now();
            for event in &events[..count] {
                let connection = &mut connections[event.data() as usize];
                let asked = connection.asked;
                let Some(event) = connection.read(&mut scratch)? else { continue };
                now = Instant::now();
                if let Event::Answered(outcome) = event {
                    answers.all += 1;
                    if let Some(asked) = asked.filter(|asked| *asked >= from) {
                        answers.add(outcome, asked, now);
                    }
                }
                if until.is_some_and(|until| now >= until) {
                    continue;
                }
                if let Some(key) = keys.next() {
                    connection.ask(self.request, key, self.value, now)?;
                }
            }
            let is_over = match until {
                Some(until) => now >= until,
                None => connections.iter().all(|connection| connection.asked.is_none()) && keys.is_at_end(),
            };
            if is_over {
                answers.lasted = now - from;
                return Ok(answers);
            }
        }
    }
}

impl Answers {
    fn new(begin: Instant) -> Self {
        let [refused, unknown] = [BTreeMap::new(), BTreeMap::new()];
        Self { begin, all: 0, lasted: Duration::ZERO, done: Vec::new(), refused, unknown }
    }

    fn add(&mut self, outcome: Outcome, asked: Instant, now: Instant) {
        match outcome {
            Outcome::Done => self.done.push(((now - self.begin).as_nanos() as u64, (now - asked).as_nanos() as u64)),
            Outcome::Refused(why) => *self.refused.entry(why).or_default() += 1,
            Outcome::Unknown(why) => *self.unknown.entry(why).or_default() += 1,
        }
    }

    /// How many were refused or are not known.
    pub(super) fn failures(&self) -> u64 {
        self.refused.values().chain(self.unknown.values()).sum()
    }
}

/// Which key comes next.
struct Keys<'a> {
    load: &'a Load<'a>,
    entropy: Entropy,
    next: usize,
}

impl<'a> Keys<'a> {
    fn next(&mut self) -> Option<&'a [u8]> {
        let keys = self.load.keys;
        let at = match self.load.length {
            Length::Keys => self.next,
            Length::Time { .. } => (self.entropy.next() % keys.len() as u64) as usize,
        };
        self.next += 1;
        keys.get(at).map(|key| key.as_bytes())
    }

    fn is_at_end(&self) -> bool {
        self.next >= self.load.keys.len()
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn every_key_is_named_once() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let server = listener.local_addr().expect("it is bound");
        let serve = std::thread::spawn(move || {
            let (mut socket, _) = listener.accept().expect("a client");
            let (mut input, mut told) = ([0; 4096], Vec::new());
            while let Ok(length @ 1..) = socket.read(&mut input) {
                told.extend(&input[..length]);
                if told.ends_with(b"abc\r\n") && socket.write_all(b"+OK\r\n").is_err() {
                    break;
                }
            }
            String::from_utf8_lossy(&told).matches("SET").count()
        });
        let keys: Vec<String> = (0..10).map(|n| format!("k{n}")).collect();
        let dialect = Dialect::Resp { wait: 0 };
        let load = Load {
            dialect,
            servers: &[server],
            clients: 1,
            request: Request::Set,
            keys: &keys,
            value: b"abc",
            length: Length::Keys,
        };
        let answers = load.run().expect("the server answers");
        assert_eq!((answers.done.len(), answers.failures()), (10, 0));
        assert_eq!(serve.join().expect("it ends"), 10);
    }
}
