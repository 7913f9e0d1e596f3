//! What a command says, such as a candidate's score: run again and again on a thread of its own, and killed when it is late.

use std::io::{self, PipeReader, PipeWriter, Read as _};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;
use primacy::{Instant, clock};
use tokio::sync::mpsc;
use tracing::{info, warn};

use super::process_tree;
use super::program::Rights;
use crate::cli::http::TOKEN_VARIABLE;
use crate::foreign_text::shorten;
use crate::output::span::span;

/// The most that is read of a command's output.
const OUTPUT_MOST: usize = 4_096;

/// A command whose first line of output is wanted, again and again.
#[derive(Clone, Debug)]
pub(crate) struct PolledCommand {
    /// What it says, for the log.
    pub(crate) what: &'static str,
    /// For `sh -c`.
    pub(crate) command: String,
    /// How often to run it, and for how long at most.
    pub(crate) every: Duration,
    /// Variables for its environment.
    pub(crate) variables: Vec<(&'static str, String)>,
}

/// What follows from what a command says. Dropping it ends the command and the thread.
pub(crate) struct CommandPoll<T> {
    news: mpsc::UnboundedReceiver<T>,
    /// Closed to end the thread.
    stop: Option<PipeWriter>,
    thread: Option<JoinHandle<()>>,
}

impl<T: Clone + PartialEq + Send + 'static> CommandPoll<T> {
    /// Begins to run the command; `read` makes of its line what is wanted, or says why that cannot be.
    pub(crate) fn start(
        command: PolledCommand,
        mut read: impl FnMut(&str) -> Result<T, String> + Send + 'static,
    ) -> io::Result<Self> {
        let (outbox, news) = mpsc::unbounded_channel();
        let (stopped, stop) = io::pipe()?;
        let source = Source { command, stopped };
        let name = format!("primacy-{}", source.command.what);
        let thread = thread::Builder::new().name(name).spawn(move || source.run(&mut read, &outbox))?;
        Ok(Self { news, stop: Some(stop), thread: Some(thread) })
    }

    /// The next that differs from the one before. Cancel-safe.
    pub(crate) async fn next(said: &mut Option<Self>) -> T {
        if let Some(said) = said
            && let Some(next) = said.news.recv().await
        {
            return next;
        }
        std::future::pending().await
    }
}

impl<T> Drop for CommandPoll<T> {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // One that panicked has said so.
            let _ = thread.join();
        }
    }
}

struct Source {
    command: PolledCommand,
    stopped: PipeReader,
}

/// Why a command brought nothing.
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
    fn run<T: Clone + PartialEq>(
        self,
        read: &mut dyn FnMut(&str) -> Result<T, String>,
        outbox: &mpsc::UnboundedSender<T>,
    ) {
        let what = self.command.what;
        let mut last = None;
        let mut fails = false;
        loop {
            let until = clock::now() + self.command.every;
            let said = self.ask(until).and_then(|output| {
                read(output.lines().next().unwrap_or_default()).map_err(|why| Silence::Failed(shorten(&why, 200)))
            });
            match said {
                Ok(said) => {
                    if std::mem::replace(&mut fails, false) {
                        info!("the {what} command answers again");
                    }
                    if last.as_ref() != Some(&said) && outbox.send(said.clone()).is_err() {
                        return;
                    }
                    last = Some(said);
                }
                Err(Silence::Stopped) => return,
                Err(Silence::Failed(why)) => {
                    if !std::mem::replace(&mut fails, true) {
                        warn!(%why, "the {what} command gave no {what}; the last one stays");
                    }
                }
            }
            if !matches!(self.wait(&[], until), Ok(woken) if !woken.stopped) {
                return;
            }
        }
    }

    /// What the command prints, if it ends well in time. Whatever it leaves behind in its process group is killed.
    fn ask(&self, until: Instant) -> Result<String, Silence> {
        // By way of the hidden command, which has the kernel kill it when this process dies.
        let mut child = Command::new("/proc/self/exe")
            .arg0("primacy")
            .args([super::EXEC, &Pid::this().to_string(), Rights::Gainable.word(), "sh", "-c", &self.command.command])
            .envs(self.command.variables.iter().map(|(name, value)| (name, value)))
            .env_remove(TOKEN_VARIABLE)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .process_group(0)
            .spawn()?;
        let ended =
            rustix::process::pidfd_open(rustix::process::Pid::from_child(&child), rustix::process::PidfdFlags::empty())
                .map_err(io::Error::from)?;
        let said = self.listen(&mut child, ended.as_fd(), until);
        if let Ok(number) = i32::try_from(child.id()) {
            // It has not been waited for yet, so that its number is still its own.
            let _ = killpg(Pid::from_raw(number), Signal::SIGKILL);
            if kill(Pid::from_raw(number), Signal::SIGKILL) == Err(Errno::EPERM) && child.try_wait()?.is_none() {
                // It has become another user. Another one beside it would be one more that nobody can end.
                let (what, process) = (self.command.what, process_tree::describe(Pid::from_raw(number)));
                warn!("the {what} command is late, and this user may not kill process {process}: it is waited for");
                loop {
                    let woken = self.wait(&[ended.as_fd()], clock::now() + Duration::from_secs(3_600))?;
                    if woken.stopped {
                        return Err(Silence::Stopped);
                    }
                    if woken.ready[0] {
                        break;
                    }
                }
            }
        }
        let status = child.wait()?;
        let said = said?;
        if !status.success() {
            return Err(Silence::Failed(format!("it ended with {status}")));
        }
        Ok(String::from_utf8_lossy(&said).into_owned())
    }

    /// Reads until the command ends.
    fn listen(&self, child: &mut Child, ended: BorrowedFd<'_>, until: Instant) -> Result<Vec<u8>, Silence> {
        let mut stdout = child.stdout.take();
        let mut said = Vec::new();
        loop {
            let mut watched = vec![ended];
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
                return Err(Silence::Failed(format!("it took longer than {}", span(self.command.every))));
            }
        }
    }

    fn wait(&self, watched: &[BorrowedFd<'_>], until: Instant) -> io::Result<Readiness> {
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
                    return Ok(Readiness { stopped, ready: ready.collect(), late: woken == 0 });
                }
                Ok(_) => {}
            }
        }
    }
}

struct Readiness {
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
