//! What the loader speaks: for each of the stores the cheapest client that can be, with one request under way on each connection.

mod etcd;
mod resp;
mod zookeeper;

use anyhow::Result;
use serde::{Deserialize, Serialize};

/// A client's side of a connection, without the socket.
pub(super) trait Codec {
    /// What is said first; whether nothing may be asked before it is answered, by [`Event::Greeted`].
    fn greeting(&mut self, out: &mut Vec<u8>) -> bool {
        let _ = out;
        false
    }

    /// Adds a request.
    fn request(&mut self, request: Request, key: &[u8], value: &[u8], out: &mut Vec<u8>);

    /// Looks at what has come: how much of it is done with, and what it says. What the other side wants to hear of it, other than
    /// requests, goes to `out`.
    ///
    /// # Errors
    /// When it is not in the protocol.
    fn receive(&mut self, input: &[u8], out: &mut Vec<u8>) -> Result<(usize, Option<Event>)>;

    /// What is said last.
    fn farewell(&mut self, out: &mut Vec<u8>) {
        let _ = out;
    }
}

/// What is asked of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Request {
    /// Makes a key, where a key must be made before it is written.
    Make,
    /// Writes a value.
    Set,
    /// Reads a value, linearizably where the store can.
    Get,
    /// Reads what this server has, which may be old.
    LocalGet,
}

/// What a connection tells.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// Requests may be sent.
    Greeted,
    /// The request is answered.
    Answered(Outcome),
}

/// What came of a request.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// It was done.
    Done,
    /// It was not, as far as the store says.
    Refused(String),
    /// Nobody knows.
    Unknown(String),
}

/// Which protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dialect {
    /// RESP, and after each write `WAIT` for this many replicas, if any.
    Resp { wait: u8 },
    /// gRPC over HTTP/2 without TLS.
    Etcd,
    /// ZooKeeper's own.
    ZooKeeper,
}

impl Dialect {
    /// A client that reads values of this many bytes.
    pub(super) fn codec(self, value_bytes: usize) -> Box<dyn Codec> {
        match self {
            Self::Resp { wait } => Box::new(resp::Resp::new(wait, value_bytes)),
            Self::Etcd => Box::new(etcd::Etcd::new(value_bytes)),
            Self::ZooKeeper => Box::new(zookeeper::ZooKeeper::new(value_bytes)),
        }
    }
}
