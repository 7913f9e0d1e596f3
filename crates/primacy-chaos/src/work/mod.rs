//! The program that candidates run: works as long as it lives, and lets two witnesses see it.
//!
//! It knows nothing of primacy but its environment, and is as bad a program as habits allow: it may ignore what it is
//! told, take its time, and leave a session of its own behind that works, too.

mod table;

use std::io;
use std::os::fd::AsFd as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::Args;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

use crate::clock::Moment;
use crate::rng::Rng;
use crate::witness::{Pen, Word};
use primacy::{ElectionName, Token};
pub(crate) use table::{Fencing, ON_SERVER, Row, WITHIN, create_in_file, open as open_table};
use table::{Mandate, Outcome};

/// The variable with the URL of the fenced table.
pub(crate) const TABLE: &str = "PRIMACY_CHAOS_TABLE";

/// How often it tells that it works.
const BEAT_MS: u8 = 4;
/// How long it waits after a write.
const BETWEEN_WRITES: Duration = Duration::from_millis(2);

/// What the program is asked to do, and how badly.
#[derive(Args, Clone, Debug)]
pub(crate) struct Job {
    /// The file of the unfenced witness.
    #[arg(long)]
    witness: PathBuf,
    /// How to ask the fence.
    #[arg(long, value_enum, default_value_t = Fencing::Library)]
    fencing: Fencing,
    /// Ignore SIGTERM.
    #[arg(long)]
    deaf: bool,
    /// Go on for this many milliseconds after SIGTERM.
    #[arg(long, default_value_t = 0)]
    linger: u64,
    /// Start another process that works in a session of its own.
    #[arg(long)]
    kin: bool,
    /// Hold some of the fenced transactions open for up to this many milliseconds.
    #[arg(long, default_value_t = 0)]
    hold: u64,
    /// Be that other process.
    #[arg(long)]
    is_kin: bool,
}

/// Works until it is ended.
pub(crate) fn main(job: &Job) -> Result<()> {
    let token: u64 = std::env::var("PRIMACY_TOKEN").ok().and_then(|text| text.parse().ok()).context("no token")?;
    let name = std::env::var("PRIMACY_NAME").context("no name")?;
    let pen = Arc::new(Pen::open(&job.witness, token, name)?);
    if job.is_kin {
        nix::unistd::setsid()?;
        return beat(&pen, Word::Kin);
    }
    pen.write(Word::Start)?;
    if job.kin {
        let mut kin = Command::new(std::env::current_exe()?);
        kin.args(["work", "--is-kin", "--witness"]).arg(&job.witness).stdin(Stdio::null());
        kin.spawn()?;
    }
    // Before there is another thread, which could take the signal.
    let mut blocked = SigSet::empty();
    blocked.add(Signal::SIGTERM);
    blocked.thread_block()?;
    if let Ok(table) = std::env::var(TABLE) {
        let election = ElectionName::new(std::env::var("PRIMACY_ELECTION").context("no election")?)?;
        let token = Token::new(token).context("a token that was granted")?;
        let mandate = Mandate { election, token, fencing: job.fencing };
        let (pen, hold) = (Arc::clone(&pen), job.hold);
        thread::Builder::new().name("writer".into()).spawn(move || write_on(&table, &mandate, &pen, hold))?;
    }
    let signals = SignalFd::with_flags(&blocked, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?;
    let mut until = None;
    while until.is_none_or(|until| Moment::now() < until) {
        let mut fds = [PollFd::new(signals.as_fd(), PollFlags::POLLIN)];
        match poll(&mut fds, PollTimeout::from(BEAT_MS)) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
        if signals.read_signal()?.is_some() && !job.deaf {
            pen.write(Word::Told)?;
            until = Some(Moment::now() + Duration::from_millis(job.linger));
        }
        pen.write(Word::Beat)?;
    }
    pen.write(Word::End)?;
    Ok(())
}

/// Tells that it works, for as long as it lives.
fn beat(pen: &Pen, word: Word) -> Result<()> {
    loop {
        pen.write(word)?;
        thread::park_timeout(Duration::from_millis(BEAT_MS.into()));
    }
}

/// Writes through the fence, again and again; also when it was refused.
fn write_on(url: &str, mandate: &Mandate, pen: &Pen, hold: u64) -> io::Result<()> {
    let mut rng = Rng::new(Moment::now().nanos());
    loop {
        if let Ok(mut table) = open_table(url) {
            loop {
                let hold = if hold > 0 && rng.percent(3) { rng.below(hold) } else { 0 };
                match table.write(mandate, Duration::from_millis(hold)) {
                    Outcome::Written => {}
                    Outcome::Refused => pen.write(Word::Refused)?,
                    Outcome::Failed => break,
                }
                thread::park_timeout(BETWEEN_WRITES);
            }
        }
        thread::park_timeout(BETWEEN_WRITES * 10);
    }
}
