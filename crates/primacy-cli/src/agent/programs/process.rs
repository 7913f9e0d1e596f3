//! The process of a runner, by a file that means it and no later one with its number.

use std::io;
use std::os::fd::OwnedFd;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::agent::proof::watch;
use crate::run::supervised::ProcessMark;

/// A process that this agent, or one before it, has started.
#[derive(Debug)]
pub(super) struct RunnerProcess {
    pub(super) pid: i32,
    /// It becomes readable when the process has ended.
    file: AsyncFd<OwnedFd>,
}

impl RunnerProcess {
    /// A child of this process that was not waited for.
    ///
    /// # Errors
    /// If the system gives no file for it.
    pub(super) fn child(pid: i32) -> io::Result<Self> {
        let number = Pid::from_raw(pid).ok_or_else(|| io::Error::other("no process has this number"))?;
        let file = pidfd_open(number, PidfdFlags::empty())?;
        Ok(Self { pid, file: watch(file, Interest::READABLE)? })
    }

    /// The process that is marked so, unless it is gone.
    pub(super) fn marked(mark: ProcessMark) -> Option<Self> {
        // First the file, then the mark: as long as what the file means lives, its number means nothing else.
        let process = Self::child(mark.pid).ok()?;
        let now = ProcessMark::of(nix::unistd::Pid::from_raw(mark.pid)).ok()?;
        (now == mark).then_some(process)
    }

    /// Asks it to end.
    pub(super) fn ask_to_end(&self) {
        // It may be gone.
        let _ = pidfd_send_signal(self.file.get_ref(), Signal::TERM);
        // One that stands still would not hear it.
        let _ = pidfd_send_signal(self.file.get_ref(), Signal::CONT);
    }

    /// Returns when it has ended. Cancel-safe.
    pub(super) async fn ended(&self) {
        // A file that cannot be waited for says nothing: what counts is the lock.
        if self.file.readable().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_number_that_means_another_process_now_is_nobody() {
        let mark = ProcessMark::of(nix::unistd::Pid::this()).expect("it lives");
        assert_eq!(RunnerProcess::marked(mark).map(|process| process.pid), Some(mark.pid));
        let earlier = ProcessMark { began: mark.began - 1, ..mark };
        assert!(RunnerProcess::marked(earlier).is_none());
        assert!(RunnerProcess::marked(ProcessMark { pid: i32::MAX, ..mark }).is_none());
    }

    #[tokio::test]
    async fn the_end_of_a_process_is_an_event() {
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().expect("it starts");
        let process = RunnerProcess::child(i32::try_from(child.id()).expect("pids are small")).expect("it lives");
        let early = std::future::poll_fn(|cx| {
            let ended = std::pin::pin!(process.ended());
            std::task::Poll::Ready(ended.poll(cx).is_ready())
        });
        assert!(!early.await);
        process.ask_to_end();
        process.ended().await;
        process.ended().await;
        assert!(!child.wait().expect("it was started").success());
    }
}
