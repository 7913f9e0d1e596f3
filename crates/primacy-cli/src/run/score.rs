//! A candidate's score as a command says it: run again and again on a thread of its own, and killed when it is late.

use std::io::{self, PipeReader, PipeWriter, Read as _};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use primacy::select::{Rank, Scores};
use primacy::{Instant, Label, clock};
use tokio::sync::mpsc;
use tracing::{info, warn};

use crate::cli::preference::Scoring;
use crate::output::shorten;
use crate::output::span::span;

/// The most that is read of a command's output.
const OUTPUT_MOST: usize = 4_096;

/// The ranks that follow from what the command says. Dropping it ends the command and the thread.
pub(super) struct Ranks {
    news: mpsc::UnboundedReceiver<Option<Rank>>,
    /// Closed to end the thread.
    stop: Option<PipeWriter>,
    thread: Option<JoinHandle<()>>,
}

impl Ranks {
    /// Begins to run the command for the candidate with this label.
    pub(super) fn start(scoring: Scoring, label: Label, election: String) -> io::Result<Self> {
        let (outbox, news) = mpsc::unbounded_channel();
        let (stopped, stop) = io::pipe()?;
        let source = Source { scoring, label, election, stopped };
        let thread = thread::Builder::new().name("primacy-score".into()).spawn(move || source.run(&outbox))?;
        Ok(Self { news, stop: Some(stop), thread: Some(thread) })
    }

    /// The next rank that differs from the one before. Cancel-safe.
    pub(super) async fn next(ranks: &mut Option<Self>) -> Option<Rank> {
        if let Some(ranks) = ranks
            && let Some(rank) = ranks.news.recv().await
        {
            return rank;
        }
        std::future::pending().await
    }
}

impl Drop for Ranks {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // One that panicked has said so.
            let _ = thread.join();
        }
    }
}

struct Source {
    scoring: Scoring,
    label: Label,
    election: String,
    stopped: PipeReader,
}

/// Why a command brought no score.
enum Silence {
    /// Nobody wants to know any more.
    Stopped,
    /// It failed.
    Failed(String),
}

impl From<io::Error> for Silence {
    fn from(error: io::Error) -> Self {
        Self::Failed(error.to_string())
    }
}

impl Source {
    fn run(mut self, outbox: &mpsc::UnboundedSender<Option<Rank>>) {
        let mut last = None;
        let mut fails = false;
        loop {
            let until = clock::now() + self.scoring.every;
            match self.rank(until) {
                Ok(rank) => {
                    if std::mem::replace(&mut fails, false) {
                        info!("the score command answers again");
                    }
                    if last.replace(rank) != Some(rank) && outbox.send(rank).is_err() {
                        return;
                    }
                }
                Err(Silence::Stopped) => return,
                Err(Silence::Failed(why)) => {
                    if !std::mem::replace(&mut fails, true) {
                        warn!(%why, "the score command gave no score; the last one stays");
                    }
                }
            }
            if !matches!(self.wait(&[], until), Ok(woken) if !woken.stopped) {
                return;
            }
        }
    }

    fn rank(&mut self, until: Instant) -> Result<Option<Rank>, Silence> {
        let output = self.ask(until)?;
        let line = output.lines().next().unwrap_or_default();
        let scores: Scores = line.parse().map_err(failed)?;
        self.scoring.selector.rank(&self.label, &scores).map_err(failed)
    }

    /// What the command prints, if it ends well in time. Whatever it leaves behind in its process group is killed.
    fn ask(&self, until: Instant) -> Result<String, Silence> {
        // By way of the hidden command, which has the kernel kill it when this process dies.
        let mut child = Command::new("/proc/self/exe")
            .arg0("primacy")
            .args([super::EXEC, &Pid::this().to_string(), "sh", "-c", &self.scoring.command])
            .env("PRIMACY_ELECTION", &self.election)
            .env("PRIMACY_NAME", self.label.as_str())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .process_group(0)
            .spawn()?;
        let said = self.listen(&mut child, until);
        if let Ok(group) = i32::try_from(child.id()) {
            // It has not been waited for yet, so that its number is still its own.
            let _ = killpg(Pid::from_raw(group), Signal::SIGKILL);
        }
        let status = child.wait()?;
        let said = said?;
        if !status.success() {
            return Err(Silence::Failed(format!("it ended with {status}")));
        }
        Ok(String::from_utf8_lossy(&said).into_owned())
    }

    /// Reads until the command ends.
    fn listen(&self, child: &mut Child, until: Instant) -> Result<Vec<u8>, Silence> {
        let ended =
            rustix::process::pidfd_open(rustix::process::Pid::from_child(child), rustix::process::PidfdFlags::empty())
                .map_err(io::Error::from)?;
        let mut stdout = child.stdout.take();
        let mut said = Vec::new();
        loop {
            let mut watched = vec![ended.as_fd()];
            watched.extend(stdout.as_ref().map(|stdout| stdout.as_fd()));
            let woken = self.wait(&watched, until)?;
            if woken.stopped {
                return Err(Silence::Stopped);
            }
            let (has_ended, has_said) = (woken.ready[0], woken.ready.get(1) == Some(&true));
            if has_said && let Some(open) = &mut stdout {
                if !read_some(open, &mut said)? {
                    stdout = None;
                }
            } else if has_ended {
                return Ok(said);
            } else if woken.late {
                return Err(Silence::Failed(format!("it took longer than {}", span(self.scoring.every))));
            }
        }
    }

    fn wait(&self, watched: &[BorrowedFd<'_>], until: Instant) -> io::Result<Woken> {
        let mut fds = vec![PollFd::new(self.stopped.as_fd(), PollFlags::POLLIN)];
        fds.extend(watched.iter().map(|fd| PollFd::new(*fd, PollFlags::POLLIN)));
        loop {
            // Rounded up, or the last millisecond would be spent polling.
            let left = until.since(clock::now());
            let left = PollTimeout::try_from(left + Duration::from_millis(1)).unwrap_or(PollTimeout::MAX);
            match poll(&mut fds, left) {
                Err(nix::errno::Errno::EINTR) => {}
                Err(error) => return Err(error.into()),
                Ok(woken) if woken > 0 || clock::now() >= until => {
                    let mut ready = fds.iter().map(|fd| fd.any().unwrap_or(false));
                    let stopped = ready.next() == Some(true);
                    return Ok(Woken { stopped, ready: ready.collect(), late: woken == 0 });
                }
                Ok(_) => {}
            }
        }
    }
}

struct Woken {
    stopped: bool,
    ready: Vec<bool>,
    late: bool,
}

/// `false` at the end. What is too much is read and forgotten.
fn read_some(from: &mut ChildStdout, said: &mut Vec<u8>) -> io::Result<bool> {
    let mut chunk = [0; OUTPUT_MOST];
    let count = from.read(&mut chunk)?;
    let room = OUTPUT_MOST - said.len();
    said.extend_from_slice(&chunk[..count.min(room)]);
    Ok(count > 0)
}

fn failed(error: impl std::fmt::Display) -> Silence {
    Silence::Failed(shorten(&error.to_string(), 200))
}
