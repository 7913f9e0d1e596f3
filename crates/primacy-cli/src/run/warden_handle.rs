//! The runner's end of the line to its warden.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use nix::unistd::Pid;
use tokio::io::{AsyncBufReadExt as _, BufReader, Interest};

use super::process_tree::{self, Pauses, ProcessTree};
use super::wire::{Deadlines, FromWarden, Hello, Led, ToWarden};
use super::{Job, WARDEN, handover};
use primacy::CandidateId;

/// A warden that was started and not yet told about a candidate.
pub(super) struct IdleWarden {
    process: Child,
    socket: UnixStream,
    /// Children that this process had before.
    spared: Vec<Pid>,
}

/// A warden that watches over a candidate.
pub(super) struct AttachedWarden {
    process: Child,
    reader: BufReader<tokio::net::unix::OwnedReadHalf>,
    writer: tokio::net::unix::OwnedWriteHalf,
    /// Part of a line that has come so far.
    line: Vec<u8>,
    program: Option<Pid>,
    spared: Vec<Pid>,
}

/// How long a warden may take to answer what takes it no time but to start a process. Longer than that takes on a machine that is busy.
pub(super) const ANSWERS_WITHIN: Duration = Duration::from_secs(5);

impl IdleWarden {
    /// Starts the process, in a group of its own: what the terminal sends is the runner's to handle.
    pub(super) fn start() -> io::Result<Self> {
        let spared = process_tree::children()?;
        let (socket, other) = UnixStream::pair()?;
        let process = Command::new("/proc/self/exe")
            .arg0("primacy")
            .arg(WARDEN)
            .stdin(Stdio::from(OwnedFd::from(other)))
            .process_group(0)
            .spawn()?;
        Ok(Self { process, socket, spared })
    }

    /// Tells it whom it watches over, and waits until it does.
    pub(super) async fn watch_over(self, job: &Job, id: Option<CandidateId>) -> io::Result<AttachedWarden> {
        let hello = Hello {
            store: job.source.store_url().map(str::to_owned),
            election: job.source.election().as_str().to_owned(),
            id: id.map(|id| id.to_string()),
            label: job.candidate.label.as_str().to_owned(),
            command: job.command.iter().map(|word| word.as_bytes().to_vec()).collect(),
            hooks: job.hooks.clone(),
            grace_ns: job.grace_ns(),
            rights: job.rights,
            isolate: job.isolate,
            patience_ms: u64::try_from(job.candidate.timing.lease().as_millis()).unwrap_or(u64::MAX),
            has_lock: job.lock.is_some(),
        };
        let Self { process, socket, spared } = self;
        let mut warden = Self::connect(process, socket, spared, hello, job.lock.as_ref().map(|lock| lock.as_fd()))?;
        // A warden that hangs is no warden.
        match tokio::time::timeout(ANSWERS_WITHIN, warden.next()).await {
            Ok(Some(FromWarden::Ready)) => Ok(warden),
            _ => {
                // It has started nothing yet.
                let ended = warden.end_warden().await;
                Err(io::Error::other(format!("the warden process did not answer, and {ended}")))
            }
        }
    }

    fn connect(
        process: Child,
        socket: UnixStream,
        spared: Vec<Pid>,
        hello: Hello,
        lock: Option<BorrowedFd<'_>>,
    ) -> io::Result<AttachedWarden> {
        handover::send(&socket, &line(&ToWarden::Hello(hello))?, io::stdin().as_fd(), lock)?;
        socket.set_nonblocking(true)?;
        let (reader, writer) = tokio::net::UnixStream::from_std(socket)?.into_split();
        Ok(AttachedWarden { process, reader: BufReader::new(reader), writer, line: Vec::new(), program: None, spared })
    }
}

impl AttachedWarden {
    /// Tells the warden something. What cannot be sent to a warden that hangs is dropped: it acts on what it heard
    /// last, which is an earlier deadline, never a later one.
    pub(super) fn tell(&self, message: &ToWarden) {
        if let Ok(line) = line(message)
            && let Err(error) = self.writer.try_write(&line)
        {
            tracing::debug!(%error, "the warden does not listen");
        }
    }

    /// This candidate leads. With the order goes the connection by which an agent has told it.
    pub(super) fn lead(&self, led: Led, agent: Option<BorrowedFd<'_>>) {
        self.tell_with(&ToWarden::Lead(led), agent);
    }

    /// This candidate leads, and its work must be stopped, since the warden before this one has died. The connection goes along, too.
    pub(super) fn clear(&self, led: Led, agent: Option<BorrowedFd<'_>>) {
        self.tell_with(&ToWarden::Clear { led: Some(led) }, agent);
    }

    fn tell_with(&self, message: &ToWarden, agent: Option<BorrowedFd<'_>>) {
        let Some(agent) = agent else { return self.tell(message) };
        let sent = line(message).and_then(|line| {
            let socket: &tokio::net::UnixStream = self.writer.as_ref();
            socket.try_io(Interest::WRITABLE, || handover::send_some(socket.as_fd(), &line, agent))
        });
        if let Err(error) = sent {
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
                Ok(message @ FromWarden::HookStarted { pid, .. }) => {
                    self.program = Some(Pid::from_raw(pid));
                    return Some(message);
                }
                Ok(message @ (FromWarden::Gone { .. } | FromWarden::HookEnded { .. })) => {
                    self.program = None;
                    return Some(message);
                }
                Ok(message) => return Some(message),
                Err(error) => tracing::warn!(%error, "the warden said something that makes no sense"),
            }
        }
    }

    /// Ends a warden that is gone or hangs, and says how it ended.
    pub(super) async fn end_warden(&mut self) -> String {
        let _ = self.process.kill();
        let mut pauses = Pauses::new();
        loop {
            match self.process.try_wait() {
                Ok(Some(status)) => return format!("ended with {status}"),
                Ok(None) => tokio::time::sleep(pauses.next()).await,
                Err(error) => return format!("could not be waited for: {error}"),
            }
        }
    }

    /// What the warden may have started, for the runner to end in its place. The kernel has killed the program itself
    /// already.
    pub(super) fn bereaved(&mut self) -> ProcessTree {
        // Known or not: the warden may have died before it could tell what it had started.
        ProcessTree::orphans(self.program.take(), std::mem::take(&mut self.spared))
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
        let nanos = primacy::clock::to_boot_nanos;
        // The runner's own word comes first, unless it hangs; and of a short grace in a long lease something is left.
        let behind = (timing.kill() / 2).min(timing.grace() / 2);
        let (stop_at, kill_at) = (nanos(timing.stop_at(until) + behind), nanos(timing.kill_at(until)));
        Self { stop_at, kill_at, token: version.token.get(), beat: version.beat }
    }
}

fn line(message: &ToWarden) -> io::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    Ok(line)
}

#[cfg(test)]
mod tests {
    use super::*;
    use primacy::store::Version;
    use primacy::{Instant, Timing, TimingSettings};

    /// The warden is the runner's understudy: later than the runner itself to tell the program, and as early to kill it.
    #[test]
    fn deadlines_follow_a_lease_that_becomes_longer_or_shorter() {
        let grace = Duration::from_millis(300);
        let first = Timing::new(TimingSettings { grace, ..TimingSettings::new(Duration::from_secs(4)) });
        let first = first.expect("the paper's lease");
        for lease in [600, 4_000, 40_000, 3_600_000].map(Duration::from_millis) {
            let timing = first.with_other_lease(lease).expect("the grace fits");
            let until = Instant::from_nanos(7_200_000_000_000);
            let Deadlines { stop_at, kill_at, .. } = Deadlines::of(until, Version::default(), &timing);
            let nanos = |instant: Instant| primacy::clock::to_boot_nanos(instant);
            assert_eq!(kill_at, nanos(until - timing.kill()), "{lease:?}");
            let told_by_runner = nanos(until - timing.kill() - grace);
            assert!(told_by_runner < stop_at && stop_at < kill_at, "{lease:?}: {told_by_runner} {stop_at} {kill_at}");
        }
    }
}
