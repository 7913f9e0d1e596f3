//! The connection of a candidate to its agent: how it begins, what is said, and how it ends.

use std::io;
use std::os::fd::AsRawFd as _;
use std::path::Path;
use std::time::Duration;

use nix::sys::socket::{Shutdown, shutdown};
use primacy::{Label, clock};
use tokio::net::UnixStream;
use tracing::debug;

use crate::agent_wire::{ANSWER_MOST, Channel, Heard, HoldRequest, PROTOCOL, ProofKind, Request, Said};

/// How long the agent may take to speak first.
const HELLO_WITHIN: Duration = Duration::from_secs(10);

/// Connects, and requests a hold.
///
/// # Errors
/// Why that could not be done.
pub(super) async fn ask(socket: &Path, election: &str, label: &Label, data: &str) -> Result<Channel, String> {
    let place = socket.display();
    let asked = async {
        let stream = UnixStream::connect(socket).await.map_err(|error| error.to_string())?;
        let mut channel = Channel::new(stream);
        let line = channel.next_within(ANSWER_MOST).await.map_err(|error| error.to_string())?;
        let line = line.ok_or("it has closed the connection")?;
        match Heard::read(&line).map_err(|error| error.to_string())? {
            (Heard::Agent { protocol: PROTOCOL }, _) => {}
            (Heard::Agent { protocol }, _) => return Err(format!("it speaks version {protocol} of the protocol")),
            (Heard::Refused { why, .. }, _) => return Err(why),
            _ => return Err("it does not speak as an agent does".to_owned()),
        }
        let now_ns = clock::boot_nanos().ok_or("the boot clock cannot be read")?;
        let request = Request::Hold(HoldRequest {
            protocol: PROTOCOL,
            election: election.to_owned(),
            now_ns,
            name: Some(label.as_str().to_owned()),
            data: Some(data.to_owned()),
            // This process is not the one that works.
            proof: ProofKind::None,
        });
        let line = serde_json::to_vec(&request).map_err(|error| error.to_string())?;
        channel.write(line).await.map_err(|error| error.to_string())?;
        Ok(channel)
    };
    let asked = tokio::time::timeout(HELLO_WITHIN, asked).await.unwrap_or_else(|_| Err("it is silent".to_owned()));
    asked.map_err(|why| format!("no agent answers on {place}: {why}"))
}

/// Says something, and does not wait.
///
/// # Errors
/// If the agent does not read, or the connection has ended. Part of it may have been said.
pub(super) fn say(channel: &Channel, said: &Said) -> io::Result<()> {
    say_by(channel.stream(), said)
}

fn say_by(stream: &UnixStream, said: &Said) -> io::Result<()> {
    let mut line = serde_json::to_vec(said).map_err(io::Error::other)?;
    line.push(b'\n');
    match stream.try_write(&line) {
        Ok(count) if count == line.len() => Ok(()),
        Ok(_) => Err(io::ErrorKind::WouldBlock.into()),
        Err(error) => Err(error),
    }
}

/// Ends a connection on which nothing is worked for. What it has told of leaderships, and was not read, is given back.
pub(super) fn leave(channel: Channel) {
    let (stream, tokens) = channel.into_unread_tokens();
    for token in tokens {
        if let Err(error) = say_by(&stream, &Said::Stopped { token }) {
            debug!(%error, "a leadership that nobody took lasts until its deadline");
        }
    }
    close_stream(&stream);
}

/// Ends the connection also for the warden, which has a file of it.
pub(super) fn close(channel: &Channel) {
    close_stream(channel.stream());
}

fn close_stream(stream: &UnixStream) {
    if let Err(error) = shutdown(stream.as_raw_fd(), Shutdown::Both) {
        debug!(%error, "the connection to the agent has ended before");
    }
}

/// The next line, if there is a connection. Cancel-safe.
pub(super) async fn next(channel: &mut Option<Channel>) -> io::Result<Option<Vec<u8>>> {
    match channel {
        Some(channel) => channel.next_within(ANSWER_MOST).await,
        None => std::future::pending().await,
    }
}
