//! A faulty network between a client and a server: connections that hang, lag, break, or lose an answer.
//!
//! A TCP stream never loses bytes from its middle, so a network that is cut *holds* them until it heals, as
//! retransmission would, or until the connection is killed and they are lost for good.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddrV4, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::host::PATIENCE;
use crate::{Problem, Result};

/// One of the two ways through a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// What the client says.
    ToServer,
    /// What the server answers.
    ToClient,
}

/// A port, mostly on 127.0.0.1, that leads to another one there, with faults on demand.
#[derive(Debug)]
pub struct Proxy {
    here: SocketAddrV4,
    network: Arc<Network>,
}

#[derive(Debug)]
struct Network {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    target: u16,
    /// For [`Direction::ToServer`] and [`Direction::ToClient`].
    held: [bool; 2],
    /// As `held`.
    delay: [Duration; 2],
    /// Whether new connections take a round trip of that delay before they carry anything.
    is_far: bool,
    /// How often a client has begun to speak, or gone on after an answer, on any connection.
    flights: u64,
    refusing: bool,
    losing_answer: bool,
    closed: bool,
    next: u64,
    connections: Vec<Connection>,
}

#[derive(Debug)]
struct Connection {
    id: u64,
    ends: [TcpStream; 2],
    /// How many ways still carry something.
    ways: u8,
    /// Whether bytes wait to be passed on, for each way.
    waiting: [bool; 2],
    /// Since when it carries what is said each way.
    begins: [Instant; 2],
    /// Which way something went last.
    last: Direction,
}

impl Connection {
    fn kill(&self) {
        for end in &self.ends {
            let _ = end.shutdown(Shutdown::Both);
        }
    }
}

impl Proxy {
    /// Leads to this port on 127.0.0.1.
    pub fn to(target: u16) -> Result<Self> {
        Self::at(Ipv4Addr::LOCALHOST, target)
    }

    /// The same for clients that know this machine by another address.
    pub fn at(address: Ipv4Addr, target: u16) -> Result<Self> {
        let listener = TcpListener::bind((address, 0));
        let bound = listener.and_then(|listener| Ok((listener.local_addr()?.port(), listener)));
        let (port, listener) = bound.map_err(|error| Problem::new(format!("cannot listen: {error}")))?;
        let state = State {
            target,
            held: [false; 2],
            delay: [Duration::ZERO; 2],
            is_far: false,
            flights: 0,
            refusing: false,
            losing_answer: false,
            closed: false,
            next: 0,
            connections: Vec::new(),
        };
        let network = Arc::new(Network { state: Mutex::new(state), changed: Condvar::new() });
        let own = Arc::clone(&network);
        thread::spawn(move || own.accept(&listener));
        Ok(Self { here: SocketAddrV4::new(address, port), network })
    }

    /// Where clients connect.
    pub fn port(&self) -> u16 {
        self.here.port()
    }

    /// Where clients connect, with the address.
    pub fn address(&self) -> SocketAddrV4 {
        self.here
    }

    /// New connections lead to another port, as when an address moves to another server.
    pub fn point_to(&self, target: u16) {
        self.network.change(|state| state.target = target);
    }

    /// From now on nothing passes either way. New connections are accepted and get no answer.
    pub fn cut(&self) {
        self.network.change(|state| state.held = [true; 2]);
    }

    /// From now on nothing passes this way.
    pub fn hold(&self, way: Direction) {
        self.network.change(|state| state.held[way as usize] = true);
    }

    /// Ends [`cut`](Self::cut), [`hold`](Self::hold), [`refuse`](Self::refuse), [`delay`](Self::delay) and
    /// [`move_away`](Self::move_away). What was held arrives now.
    pub fn heal(&self) {
        self.network.change(|state| {
            state.held = [false; 2];
            state.delay = [Duration::ZERO; 2];
            state.is_far = false;
            state.refusing = false;
            state.losing_answer = false;
        });
    }

    /// From now on whatever arrives is passed on that much later, each way.
    pub fn delay(&self, by: Duration) {
        self.network.change(|state| state.delay = [by; 2]);
    }

    /// From now on a round trip takes this, the one in which a connection is made included: what new
    /// connections carry is late from the first byte on.
    pub fn move_away(&self, round_trip: Duration) {
        self.network.change(|state| (state.delay, state.is_far) = ([round_trip / 2; 2], true));
    }

    /// How many round trips clients have begun: something was said to the server, for the first time on a connection or
    /// after something that came from there. That in which a connection is made is not counted.
    pub fn flights(&self) -> u64 {
        self.network.lock().flights
    }

    /// From now on whatever goes this way is passed on that much later.
    pub fn delay_way(&self, way: Direction, by: Duration) {
        self.network.change(|state| state.delay[way as usize] = by);
    }

    /// From now on new connections are closed at once; those that exist stay.
    pub fn refuse(&self) {
        self.network.change(|state| state.refusing = true);
    }

    /// Breaks all connections; what was held on them is lost. How many there were.
    pub fn kill_connections(&self) -> usize {
        self.network.change(|state| {
            state.connections.iter().for_each(Connection::kill);
            std::mem::take(&mut state.connections).len()
        })
    }

    /// When the server next says anything, that is lost and its connection breaks: the client cannot know whether what
    /// it asked for was done.
    pub fn lose_next_answer(&self) {
        self.network.change(|state| state.losing_answer = true);
    }

    /// Waits until [`lose_next_answer`](Self::lose_next_answer) has happened.
    pub fn await_lost_answer(&self) -> Result<()> {
        self.network.await_that("an answer to be lost", |state| !state.losing_answer)
    }

    /// Waits until something is held that goes this way: with [`Direction::ToClient`] the server has done and answered what it
    /// was asked.
    pub fn await_held(&self, way: Direction) -> Result<()> {
        let waiting = |state: &State| state.connections.iter().any(|connection| connection.waiting[way as usize]);
        self.network.await_that("something to be held", waiting)
    }

    /// How many connections there are.
    pub fn connections(&self) -> usize {
        self.network.lock().connections.len()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.network.change(|state| state.closed = true);
        self.kill_connections();
        // Wakes the thread that waits for clients.
        let _ = TcpStream::connect(self.here);
    }
}

impl Network {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let result = change(&mut self.lock());
        self.changed.notify_all();
        result
    }

    fn await_that(&self, what: &str, holds: impl Fn(&State) -> bool) -> Result<()> {
        let wait = self.changed.wait_timeout_while(self.lock(), PATIENCE, |state| !holds(state));
        let (state, waited) = wait.unwrap_or_else(PoisonError::into_inner);
        drop(state);
        if waited.timed_out() { Err(Problem::new(format!("waited in vain for {what}"))) } else { Ok(()) }
    }

    fn accept(self: Arc<Self>, listener: &TcpListener) {
        for client in listener.incoming() {
            if self.lock().closed {
                return;
            }
            let Ok(client) = client else { continue };
            // A server that is down refuses: the client's connection closes at once.
            let _ = self.connect(client);
        }
    }

    fn connect(self: &Arc<Self>, client: TcpStream) -> std::io::Result<()> {
        let target = {
            let state = self.lock();
            if state.refusing {
                return Ok(());
            }
            state.target
        };
        let server = TcpStream::connect((Ipv4Addr::LOCALHOST, target))?;
        client.set_nodelay(true)?;
        server.set_nodelay(true)?;
        let ends = [client.try_clone()?, server.try_clone()?];
        let id = self.change(|state| {
            state.next += 1;
            // The client may speak after a round trip. The server hears of the connection half of one later.
            let [to, fro] = if state.is_far { state.delay } else { [Duration::ZERO; 2] };
            let begins = [now() + to + fro, now() + to + fro + to];
            let (waiting, last) = ([false; 2], Direction::ToClient);
            state.connections.push(Connection { id: state.next, ends, ways: 2, waiting, begins, last });
            state.next
        });
        let (from_client, to_client) = (client.try_clone()?, client);
        let (from_server, to_server) = (server.try_clone()?, server);
        for (way, mut from, to) in
            [(Direction::ToServer, from_client, to_server), (Direction::ToClient, from_server, to_client)]
        {
            let network = Arc::clone(self);
            // What is on its way is as much as a socket's buffers would hold.
            let (outbox, arrived) = sync_channel(64);
            thread::spawn(move || network.carry(id, way, &arrived, to));
            thread::spawn(move || {
                let mut bytes = vec![0; 32 * 1024];
                while let Ok(count @ 1..) = from.read(&mut bytes) {
                    if outbox.send((now(), bytes[..count].to_vec())).is_err() {
                        return;
                    }
                }
            });
        }
        Ok(())
    }

    fn carry(&self, id: u64, way: Direction, arrived: &Receiver<(Instant, Vec<u8>)>, mut to: TcpStream) {
        for (at, bytes) in arrived {
            if !self.passes(id, way, at) || to.write_all(&bytes).is_err() {
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Write);
        self.change(|state| {
            for connection in state.connections.iter_mut().filter(|connection| connection.id == id) {
                connection.ways -= 1;
            }
            state.connections.retain(|connection| connection.ways > 0);
        });
    }

    /// Waits until what arrived then may go on; false if the connection was broken meanwhile.
    fn passes(&self, id: u64, way: Direction, arrived: Instant) -> bool {
        let mut state = self.lock();
        let mut sent_at = arrived;
        let State { connections, flights, .. } = &mut *state;
        if let Some(connection) = connections.iter_mut().find(|connection| connection.id == id) {
            sent_at = sent_at.max(connection.begins[way as usize]);
            *flights += u64::from(way == Direction::ToServer && connection.last == Direction::ToClient);
            connection.last = way;
        }
        if state.losing_answer && way == Direction::ToClient {
            state.losing_answer = false;
            state.connections.retain(|connection| {
                if connection.id == id {
                    connection.kill();
                }
                connection.id != id
            });
            self.changed.notify_all();
            return false;
        }
        let delay = state.delay[way as usize];
        let exists = |state: &State| state.connections.iter().any(|connection| connection.id == id);
        let delay = if delay.is_zero() { delay } else { (sent_at + delay).saturating_duration_since(now()) };
        if !delay.is_zero() {
            let wait = self
                .changed
                .wait_timeout_while(state, delay, |state| exists(state) && !state.delay[way as usize].is_zero());
            (state, _) = wait.unwrap_or_else(PoisonError::into_inner);
        }
        if state.held[way as usize] {
            set_waiting(&mut state, id, way, true);
            self.changed.notify_all();
            let wait = self.changed.wait_while(state, |state| state.held[way as usize] && exists(state));
            state = wait.unwrap_or_else(PoisonError::into_inner);
            set_waiting(&mut state, id, way, false);
        }
        exists(&state)
    }
}

#[expect(clippy::disallowed_methods, reason = "delays of a test, on a machine that is awake")]
fn now() -> Instant {
    Instant::now()
}

fn set_waiting(state: &mut State, id: u64, way: Direction, waiting: bool) {
    for connection in state.connections.iter_mut().filter(|connection| connection.id == id) {
        connection.waiting[way as usize] = waiting;
    }
}
