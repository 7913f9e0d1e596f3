//! The runner's end of the line to its warden.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use nix::unistd::Pid;
use tokio::io::{AsyncBufReadExt as _, BufReader};

use super::family::Family;
use super::wire::{Deadlines, FromWarden, Hello, ToWarden};
use super::{Job, WARDEN, handover};
use primacy::CandidateId;

/// A warden that was started and not yet told about a candidate.
pub(super) struct Warden {
    process: Child,
    socket: UnixStream,
}

/// A warden that watches over a candidate.
pub(super) struct Link {
    process: Child,
    reader: BufReader<tokio::net::unix::OwnedReadHalf>,
    writer: tokio::net::unix::OwnedWriteHalf,
    /// Part of a line that has come so far.
    line: Vec<u8>,
    program: Option<Pid>,
}

impl Warden {
    /// Starts the process, in a group of its own: what the terminal sends is the runner's to handle.
    pub(super) fn start() -> io::Result<Self> {
        let (socket, other) = UnixStream::pair()?;
        let process = Command::new("/proc/self/exe")
            .arg0("primacy")
            .arg(WARDEN)
            .stdin(Stdio::from(OwnedFd::from(other)))
            .process_group(0)
            .spawn()?;
        Ok(Self { process, socket })
    }

    /// Tells it whom it watches over, and waits until it does.
    pub(super) async fn watch_over(self, job: &Job, id: CandidateId) -> io::Result<Link> {
        let hello = Hello {
            store: job.store_url.clone(),
            election: job.election.name().as_str().to_owned(),
            id: id.to_string(),
            label: job.candidate.label.as_str().to_owned(),
            command: job.command.iter().map(|word| word.as_bytes().to_vec()).collect(),
            patience_ms: u64::try_from(job.candidate.timing.lease().as_millis()).unwrap_or(u64::MAX),
        };
        handover::send(&self.socket, &line(&ToWarden::Hello(hello))?, io::stdin().as_fd())?;
        self.socket.set_nonblocking(true)?;
        let (reader, writer) = tokio::net::UnixStream::from_std(self.socket)?.into_split();
        let mut link =
            Link { process: self.process, reader: BufReader::new(reader), writer, line: Vec::new(), program: None };
        match link.next().await {
            Some(FromWarden::Ready) => Ok(link),
            _ => Err(io::Error::other("the warden process does not answer")),
        }
    }
}

impl Link {
    /// Tells the warden something. What cannot be sent to a warden that hangs is dropped: it acts on what it heard
    /// last, which is an earlier deadline, never a later one.
    pub(super) fn tell(&self, message: &ToWarden) {
        if let Ok(line) = line(message)
            && let Err(error) = self.writer.try_write(&line)
        {
            tracing::debug!(%error, "the warden does not listen");
        }
    }

    /// What the warden says next; `None` when it is gone. Cancel-safe.
    pub(super) async fn next(&mut self) -> Option<FromWarden> {
        loop {
            match self.reader.read_until(b'\n', &mut self.line).await {
                Ok(0) | Err(_) => return None,
                Ok(_) => {}
            }
            let message = serde_json::from_slice(&std::mem::take(&mut self.line));
            match message {
                Ok(FromWarden::Started { pid }) => {
                    self.program = Some(Pid::from_raw(pid));
                    return Some(FromWarden::Started { pid });
                }
                Ok(message @ FromWarden::Gone { .. }) => {
                    self.program = None;
                    return Some(message);
                }
                Ok(message) => return Some(message),
                Err(error) => tracing::warn!(%error, "the warden said something that makes no sense"),
            }
        }
    }

    /// The warden is gone: does its work. Kills the program and all that it started, and waits until they are dead.
    /// The kernel has killed the program itself already.
    pub(super) async fn bury(mut self) {
        let program = self.program;
        // Waiting for deaths blocks; signals wait that long.
        let buried = tokio::task::spawn_blocking(move || {
            let _ = self.process.kill();
            let _ = self.process.wait();
            if let Some(program) = program {
                Family::of(program).extinguish(None);
            }
        });
        let _ = buried.await;
    }

    /// The candidate has withdrawn: lets the warden go, too.
    pub(super) async fn farewell(self) {
        self.tell(&ToWarden::Farewell);
        let Self { mut process, reader, writer, .. } = self;
        let gone = tokio::task::spawn_blocking(move || process.wait());
        // A warden that is stopped would hold the runner up; it finds out when it goes on.
        let _ = tokio::time::timeout(Duration::from_secs(1), gone).await;
        drop((reader, writer));
    }
}

impl Deadlines {
    /// The deadlines of a lease that is believed until `until`.
    pub(super) fn of(until: primacy::Instant, version: primacy::store::Version, timing: &primacy::Timing) -> Self {
        let nanos = |span: Duration| u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
        let kill_at = primacy::clock::to_boot_nanos(until).saturating_sub(nanos(timing.kill()));
        // The runner's own word comes first, unless it hangs.
        let stop_at = kill_at.saturating_sub(nanos(timing.grace())).saturating_add(nanos(timing.kill() / 2));
        Self { stop_at, kill_at, token: version.token.get(), beat: version.beat }
    }
}

fn line(message: &ToWarden) -> io::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    Ok(line)
}
