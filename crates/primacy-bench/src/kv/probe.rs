//! Clients of the servers that stay, which write all the time while another server is lost: how long until their writes are done again.
//!
//! A write goes out every few milliseconds, whether or not earlier ones are answered, each on a connection that has nothing under way.
//! So a store that holds writes back and one that refuses them are measured alike.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use serde::{Deserialize, Serialize};

use super::codec::{Dialect, Event, Outcome, Request};
use super::connection::{Connection, SCRATCH_BYTES};

/// Who writes what, and where.
pub(super) struct Probe<'a> {
    pub(super) dialect: Dialect,
    /// Those that stay.
    pub(super) servers: &'a [SocketAddr],
    /// One for each part of the store that may be served before others. The first one is written twice as often as all others together.
    pub(super) keys: &'a [String],
    pub(super) value: &'a [u8],
}

/// From the loss of a server to writes that are done, in milliseconds, of those alone that began after the loss.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Recovery {
    /// The first one of the first key, which the lost server led.
    pub(super) one_ms: f64,
    /// Until every key was written.
    pub(super) all_ms: f64,
    /// Writes of these clients that were not done, from shortly before the loss.
    pub(super) refused: u64,
    /// Writes that may have been done.
    pub(super) unknown: u64,
    /// Connections that were lost with a write under way, or closed.
    pub(super) cut_off: u64,
    /// What the first failure said.
    pub(super) said: Option<String>,
    /// How long a write took before, at the median.
    pub(super) before_ms: f64,
    /// How many tasks wanted a core.
    pub(super) load: f64,
}

/// How often a write goes out; later on every fiftieth of the time since the loss.
const TICK: Duration = Duration::from_millis(1);
const TICK_SHARE: u32 = 50;
/// A server that was lost may have answered just before. Writes that begin later than this were not answered by it.
const LAST_WORDS: Duration = Duration::from_millis(1);
/// How long writes may be without an answer.
const PATIENCE: Duration = Duration::from_secs(60);
/// For how long answers are awaited in the end.
const REST: Duration = Duration::from_millis(500);
/// Connections to a server that wait for its first word.
const GREETINGS_MAX: usize = 4;

impl Probe<'_> {
    /// Writes for some time, then strikes, and returns when all keys were written again. None if `strike` says that it was too late.
    ///
    /// # Errors
    /// When nothing is written for a minute.
    pub(super) fn run(&self, calm: Duration, strike: impl FnOnce() -> bool) -> Result<Option<Recovery>> {
        let mut run = Run::new(self)?;
        let begin = Instant::now();
        run.write_until(begin + calm, None)?;
        let before = run.median_ms();
        (run.recovery, run.before_ms) = (Recovery::default(), before);
        if !strike() {
            return Ok(None);
        }
        let struck = Instant::now();
        run.struck = Some(struck);
        run.write_until(struck + PATIENCE, Some(struck))?;
        run.rest()?;
        Ok(Some(run.result(struck)))
    }
}

struct Run<'a> {
    probe: &'a Probe<'a>,
    epoll: Epoll,
    pool: Vec<Option<(usize, usize, Connection)>>,
    struck: Option<Instant>,
    /// When each key was first written after the loss.
    written: Vec<Option<Instant>>,
    recovery: Recovery,
    before_ms: f64,
    /// How long writes took.
    times: Vec<Duration>,
    ticks: usize,
    scratch: Vec<u8>,
}

impl<'a> Run<'a> {
    fn new(probe: &'a Probe<'a>) -> Result<Self> {
        Ok(Self {
            probe,
            epoll: Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?,
            pool: Vec::new(),
            struck: None,
            written: vec![None; probe.keys.len()],
            recovery: Recovery::default(),
            before_ms: 0.0,
            times: Vec::new(),
            ticks: 0,
            scratch: vec![0; SCRATCH_BYTES],
        })
    }

    /// Until then, or until every key was written after the loss.
    fn write_until(&mut self, end: Instant, struck: Option<Instant>) -> Result<()> {
        let mut due = Instant::now();
        loop {
            let now = Instant::now();
            if now >= end {
                if struck.is_some() {
                    bail!("no write is done for {PATIENCE:?}: {:?}", self.recovery);
                }
                return Ok(());
            }
            if now >= due {
                self.tick(now);
                due = now + struck.map_or(TICK, |struck| TICK.max((now - struck) / TICK_SHARE));
            }
            self.take(due.saturating_duration_since(Instant::now()))?;
            if struck.is_some() && self.written.iter().all(Option::is_some) {
                return Ok(());
            }
        }
    }

    /// Two writes, one of them of the first key.
    fn tick(&mut self, now: Instant) {
        let (servers, keys) = (self.probe.servers.len(), self.probe.keys.len());
        self.ticks += 1;
        self.write(self.ticks % servers, 0, now);
        if keys > 1 {
            self.write((self.ticks + 1) % servers, 1 + self.ticks % (keys - 1), now);
        }
    }

    fn write(&mut self, server: usize, key: usize, now: Instant) {
        let of_server =
            |slot: &&mut Option<(usize, usize, Connection)>| slot.as_ref().is_some_and(|one| one.0 == server);
        let idle = self.pool.iter_mut().filter(of_server).flatten().find(|(_, _, one)| one.is_ready());
        if let Some((_, asked, connection)) = idle {
            *asked = key;
            // If it is lost, that is seen when it is read.
            let _ = connection.ask(Request::Set, self.probe.keys[key].as_bytes(), self.probe.value, now);
            return;
        }
        let waits = |one: &(usize, usize, Connection)| one.0 == server && !one.2.is_ready() && one.2.asked.is_none();
        if self.pool.iter().flatten().filter(|one| waits(one)).count() >= GREETINGS_MAX {
            return;
        }
        let address = self.probe.servers[server];
        // Who does not listen now may do so at the next tick.
        let Ok(mut connection) = Connection::open(address, self.probe.dialect, self.probe.value.len()) else { return };
        if connection.is_ready() {
            let _ = connection.ask(Request::Set, self.probe.keys[key].as_bytes(), self.probe.value, now);
        }
        let free = self.pool.iter().position(Option::is_none).unwrap_or(self.pool.len());
        let event = EpollEvent::new(EpollFlags::EPOLLIN, free as u64);
        if self.epoll.add(connection.descriptor(), event).is_err() {
            return;
        }
        let slot = Some((server, key, connection));
        if free == self.pool.len() { self.pool.push(slot) } else { self.pool[free] = slot }
    }

    /// Takes what comes within this time.
    fn take(&mut self, time: Duration) -> Result<()> {
        let mut events = [EpollEvent::empty(); 64];
        let timeout = EpollTimeout::try_from(time.as_micros().div_ceil(1000) as u64)?;
        let count = self.epoll.wait(&mut events, timeout)?;
        for event in &events[..count] {
            let slot = event.data() as usize;
            let Some((_, key, connection)) = self.pool[slot].as_mut() else { continue };
            let (key, asked) = (*key, connection.asked);
            match connection.read(&mut self.scratch) {
                Ok(Some(Event::Answered(outcome))) => self.answered(outcome, key, asked),
                Ok(_) => {}
                Err(error) => {
                    self.recovery.cut_off += 1;
                    self.recovery.said.get_or_insert_with(|| format!("{error:#}"));
                    self.pool[slot] = None;
                }
            }
        }
        Ok(())
    }

    fn answered(&mut self, outcome: Outcome, key: usize, asked: Option<Instant>) {
        let now = Instant::now();
        match outcome {
            Outcome::Done => {
                let Some(asked) = asked else { return };
                self.times.push(now - asked);
                if self.struck.is_some_and(|struck| asked > struck + LAST_WORDS) {
                    self.written[key].get_or_insert(now);
                }
            }
            Outcome::Refused(why) => {
                self.recovery.refused += 1;
                self.recovery.said.get_or_insert(why);
            }
            Outcome::Unknown(why) => {
                self.recovery.unknown += 1;
                self.recovery.said.get_or_insert(why);
            }
        }
    }

    /// Lets writes that are under way come to their end.
    fn rest(&mut self) -> Result<()> {
        let end = Instant::now() + REST;
        while Instant::now() < end && self.pool.iter().flatten().any(|one| one.2.asked.is_some()) {
            self.take(TICK)?;
        }
        let open = self.pool.iter().flatten().filter(|one| one.2.asked.is_some()).count();
        self.recovery.unknown += open as u64;
        if open > 0 {
            self.recovery.said.get_or_insert_with(|| format!("{open} writes without an answer {REST:?} later"));
        }
        Ok(())
    }

    fn median_ms(&mut self) -> f64 {
        self.times.sort_unstable();
        self.times.get(self.times.len() / 2).map_or(0.0, |time| time.as_secs_f64() * 1e3)
    }

    fn result(self, struck: Instant) -> Recovery {
        let times: Vec<f64> =
            self.written.iter().flatten().map(|written| (*written - struck).as_secs_f64() * 1e3).collect();
        Recovery {
            one_ms: times.first().copied().unwrap_or(0.0),
            all_ms: times.iter().copied().fold(0.0, f64::max),
            before_ms: self.before_ms,
            load: super::load_average(),
            ..self.recovery
        }
    }
}
