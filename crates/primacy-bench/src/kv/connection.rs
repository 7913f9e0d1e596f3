//! One connection of the loader, which never waits: it is told when there is something to read.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Instant;

use anyhow::{Context as _, Result, bail, ensure};

use super::codec::{Codec, Dialect, Event, Request};

/// With at most one request under way.
pub(super) struct Connection {
    stream: TcpStream,
    codec: Box<dyn Codec>,
    /// What has come and is not complete.
    input: Vec<u8>,
    output: Vec<u8>,
    /// Whether requests may be sent.
    is_greeted: bool,
    /// When the request under way was sent.
    pub(super) asked: Option<Instant>,
}

/// What is read at once.
pub(super) const SCRATCH_BYTES: usize = 1 << 16;

impl Connection {
    /// Connects, which on this machine takes no time, and says what is said first.
    pub(super) fn open(address: SocketAddr, dialect: Dialect, value_bytes: usize) -> std::io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        let mut codec = dialect.codec(value_bytes);
        let mut output = Vec::new();
        let is_greeted = !codec.greeting(&mut output);
        (&stream).write_all(&output)?;
        stream.set_nonblocking(true)?;
        output.clear();
        Ok(Self { stream, codec, input: Vec::new(), output, is_greeted, asked: None })
    }

    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }

    pub(super) fn is_ready(&self) -> bool {
        self.is_greeted && self.asked.is_none()
    }

    /// Sends a request.
    pub(super) fn ask(&mut self, request: Request, key: &[u8], value: &[u8], now: Instant) -> Result<()> {
        self.codec.request(request, key, value, &mut self.output);
        self.asked = Some(now);
        self.flush()
    }

    fn flush(&mut self) -> Result<()> {
        let sent = self.stream.write(&self.output)?;
        // A socket takes more than a request at once.
        ensure!(sent == self.output.len(), "the server reads nothing");
        self.output.clear();
        Ok(())
    }

    /// Reads what there is. An answer ends the request.
    pub(super) fn read(&mut self, scratch: &mut [u8]) -> Result<Option<Event>> {
        let length = match self.stream.read(scratch) {
            Ok(0) => bail!("the server has closed the connection"),
            Ok(length) => length,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
            Err(error) => return Err(error).context("the connection is lost"),
        };
        let (used, event) = if self.input.is_empty() {
            let (used, event) = self.codec.receive(&scratch[..length], &mut self.output)?;
            self.input.extend(&scratch[used..length]);
            (used, event)
        } else {
            self.input.extend(&scratch[..length]);
            let (used, event) = self.codec.receive(&self.input, &mut self.output)?;
            self.input.drain(..used);
            (used, event)
        };
        match event {
            Some(Event::Greeted) => self.is_greeted = true,
            Some(Event::Answered(_)) => self.asked = None,
            // What the codec has to say otherwise goes with the next request.
            None if used > 0 && !self.output.is_empty() => self.flush()?,
            None => {}
        }
        Ok(event)
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.output.clear();
        self.codec.farewell(&mut self.output);
        // It ends anyway.
        let _ = self.stream.write(&self.output);
    }
}
