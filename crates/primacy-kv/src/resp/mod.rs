//! RESP, what Redis and its clients speak: requests are read as their bytes come, replies are written in version 2 or 3.

mod inline;
mod reply;
mod request;

pub use reply::{Protocol, Reply, Text};
pub use request::{Decoder, Limits, ProtocolError, Request};
