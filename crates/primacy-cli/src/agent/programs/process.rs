//! The process of a runner, by a file that means it and no later one with its number.

use std::cell::RefCell;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::process::{Child, ExitStatus};
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open, pidfd_send_signal};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tracing::debug;

use crate::agent::proof::watch;
use crate::run::supervised::ProcessMark;

/// How often a child is asked about that has no file.
const LOOK: Duration = Duration::from_secs(1);

/// A process that this agent, or one before it, has started.
#[derive(Debug)]
pub(super) struct RunnerProcess {
    pub(super) pid: i32,
    /// It becomes readable when the process has ended. Only a child may be without.
    file: Option<AsyncFd<OwnedFd>>,
    /// One that this agent has started, and that was not waited for.
    child: Option<RefCell<Child>>,
}

impl RunnerProcess {
    /// A child of this process that was not waited for.
    pub(super) fn child(child: Child) -> Self {
        let pid = child.id().cast_signed();
        let file = file_of(pid).and_then(|file| watch(file, Interest::READABLE));
        let file = file.inspect_err(|error| debug!(%error, "there is no file for runner {pid}")).ok();
        Self { pid, file, child: Some(RefCell::new(child)) }
    }

    /// The process that is marked so; `None` when it is dead.
    ///
    /// # Errors
    /// If it cannot be told now whether it lives.
    pub(super) fn marked(mark: &ProcessMark) -> io::Result<Option<Self>> {
        // First the file, then the mark: as long as what the file means lives, its number means nothing else.
        let file = file_of(mark.pid);
        if file.as_ref().is_err_and(|error| error.raw_os_error() == Some(Errno::SRCH.raw_os_error())) {
            return Ok(None);
        }
        if ProcessMark::of(nix::unistd::Pid::from_raw(mark.pid))? != *mark {
            return Ok(None);
        }
        let file = file?;
        // The dead have their numbers until they are waited for.
        if poll(&mut [PollFd::new(file.as_fd(), PollFlags::POLLIN)], PollTimeout::ZERO)? > 0 {
            return Ok(None);
        }
        Ok(Some(Self { pid: mark.pid, file: Some(watch(file, Interest::READABLE)?), child: None }))
    }

    /// Asks it to end.
    pub(super) fn ask_to_end(&self) {
        // One that stands still would not hear the first.
        for signal in [Signal::TERM, Signal::CONT] {
            // It may be gone.
            let _ = match (&self.file, &self.child) {
                (Some(file), _) => pidfd_send_signal(file.get_ref(), signal),
                // Until it is waited for its number means nothing else.
                (None, Some(child)) if matches!(child.borrow_mut().try_wait(), Ok(None)) => {
                    Pid::from_raw(self.pid).map_or(Ok(()), |pid| kill_process(pid, signal))
                }
                _ => Ok(()),
            };
        }
    }

    /// Returns when it has ended, and how a child did if that can be told. Cancel-safe.
    pub(super) async fn ended(&self) -> Option<ExitStatus> {
        if let Some(file) = &self.file
            && file.readable().await.is_err()
            && self.child.is_none()
        {
            // A file that cannot be waited for says nothing.
            std::future::pending::<()>().await;
        }
        let child = self.child.as_ref()?;
        loop {
            let ended = child.borrow_mut().try_wait();
            match ended {
                Ok(None) => tokio::time::sleep(LOOK).await,
                Ok(ended) => return ended,
                // It was waited for elsewhere.
                Err(_) => return None,
            }
        }
    }
}

fn file_of(pid: i32) -> io::Result<OwnedFd> {
    let number = Pid::from_raw(pid).ok_or_else(|| io::Error::other("no process has this number"))?;
    Ok(pidfd_open(number, PidfdFlags::empty())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_number_that_means_another_process_now_is_nobody() {
        let mark = ProcessMark::of(nix::unistd::Pid::this()).expect("it lives");
        let found =
            |mark: &ProcessMark| RunnerProcess::marked(mark).expect("it can be told").map(|process| process.pid);
        assert_eq!(found(&mark), Some(mark.pid));
        assert_eq!(found(&ProcessMark { began: mark.began - 1, ..mark.clone() }), None);
        assert_eq!(found(&ProcessMark { pid: i32::MAX, ..mark }), None);
    }

    #[tokio::test]
    async fn the_end_of_a_process_is_an_event_also_without_a_file() {
        for has_file in [true, false] {
            let child = std::process::Command::new("sleep").arg("1000").spawn().expect("it starts");
            let mut process = RunnerProcess::child(child);
            let mark = ProcessMark::of(nix::unistd::Pid::from_raw(process.pid)).expect("it lives");
            process.file = process.file.filter(|_| has_file);
            let early = std::future::poll_fn(|cx| {
                let ended = std::pin::pin!(process.ended());
                std::task::Poll::Ready(ended.poll(cx).is_ready())
            });
            assert!(!early.await);
            process.ask_to_end();
            assert!(!process.ended().await.expect("it is a child").success());
            process.ended().await;
            assert!(RunnerProcess::marked(&mark).expect("it can be told").is_none());
        }
    }

    #[tokio::test]
    async fn one_that_is_dead_and_has_its_number_still_is_nobody() {
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().expect("it starts");
        let mark = ProcessMark::of(nix::unistd::Pid::from_raw(child.id().cast_signed())).expect("it lives");
        let process = RunnerProcess::marked(&mark).expect("it can be told").expect("it lives");
        child.kill().expect("it is ours");
        process.ended().await;
        assert!(RunnerProcess::marked(&mark).expect("it can be told").is_none());
        child.wait().expect("it was started");
    }
}
