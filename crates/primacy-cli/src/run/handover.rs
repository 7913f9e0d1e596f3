//! Messages of the runner to its warden that carry a file along: its standard input, or its connection to an agent.

use std::io::{self, IoSlice, IoSliceMut, Read as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    recvmsg, sendmsg,
};

/// Sends a line, and `stdin` with its first byte.
pub(super) fn send(socket: &UnixStream, line: &[u8], stdin: BorrowedFd<'_>) -> io::Result<()> {
    let sent = send_some(socket.as_fd(), line, stdin)?;
    let mut rest = socket;
    io::Write::write_all(&mut rest, &line[sent..])
}

/// Sends as much of a line as there is room for, and a file with its first byte. Returns how much that was.
pub(super) fn send_some(socket: BorrowedFd<'_>, line: &[u8], file: BorrowedFd<'_>) -> io::Result<usize> {
    let fds = [file];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !ancillary.push(SendAncillaryMessage::ScmRights(&fds)) {
        return Err(io::Error::other("no room for one file descriptor"));
    }
    Ok(sendmsg(socket, &[IoSlice::new(line)], &mut ancillary, SendFlags::NOSIGNAL)?)
}

/// Reads some of what has come, and the last file that has come with it.
pub(super) fn read(socket: &UnixStream, chunk: &mut [u8]) -> io::Result<(usize, Option<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let message = recvmsg(socket, &mut [IoSliceMut::new(chunk)], &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
    let file = ancillary.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(fds) => fds.last(),
        _ => None,
    });
    Ok((message.bytes, file.last()))
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
