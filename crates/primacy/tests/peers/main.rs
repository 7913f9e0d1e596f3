//! Elections among peers over real sockets, with voters that come and go.

mod cluster;
mod conformance;
mod elections;
mod exchange;
mod oracles;
