//! The first message of the runner to its warden, which carries the runner's standard input along.

use std::io::{self, IoSlice, IoSliceMut, Read as _};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    recvmsg, sendmsg,
};

/// Sends a line, and `stdin` with its first byte.
pub(super) fn send(socket: &UnixStream, line: &[u8], stdin: BorrowedFd<'_>) -> io::Result<()> {
    let fds = [stdin];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !ancillary.push(SendAncillaryMessage::ScmRights(&fds)) {
        return Err(io::Error::other("no room for one file descriptor"));
    }
    let sent = sendmsg(socket, &[IoSlice::new(line)], &mut ancillary, SendFlags::NOSIGNAL)?;
    let mut rest = socket;
    io::Write::write_all(&mut rest, &line[sent..])
}

/// Receives a line and the standard input that came with it.
pub(super) fn receive(socket: &UnixStream) -> io::Result<(Vec<u8>, OwnedFd)> {
    let mut first = [0; 1];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let message = recvmsg(socket, &mut [IoSliceMut::new(&mut first)], &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
    if message.bytes == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let stdin = ancillary.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
        _ => None,
    });
    let (1, Some(stdin)) = (message.bytes, stdin) else {
        return Err(io::Error::other("this command is primacy's own; use `primacy run`"));
    };
    let mut line = first.to_vec();
    let mut reader = socket;
    // Byte by byte: what follows the line belongs to the next message.
    let mut byte = [0; 1];
    while line.last() != Some(&b'\n') {
        reader.read_exact(&mut byte)?;
        line.push(byte[0]);
    }
    Ok((line, stdin))
}
