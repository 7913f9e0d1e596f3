//! The process at the other end of a connection, by a file that means it and no later one with its number.

use std::io;
use std::os::fd::{AsFd as _, AsRawFd, OwnedFd, RawFd};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{getsockopt, sockopt};
use tokio::net::UnixStream;

/// The process that has connected. Its file becomes readable when all of its threads are dead.
#[derive(Debug)]
pub(super) struct PeerProcess(OwnedFd);

impl PeerProcess {
    /// The one that has connected here.
    ///
    /// # Errors
    /// If the system does not tell it: Linux 6.5 or later does.
    pub(super) fn of(stream: &UnixStream) -> io::Result<Self> {
        Ok(Self(getsockopt(&stream.as_fd(), sockopt::PeerPidfd)?))
    }

    /// Whether it lives. What cannot be told lives no more.
    pub(super) fn lives(&self) -> bool {
        poll(&mut [PollFd::new(self.0.as_fd(), PollFlags::POLLIN)], PollTimeout::ZERO) == Ok(0)
    }
}

impl AsRawFd for PeerProcess {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}
