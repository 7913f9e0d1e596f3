//! Elections among peers over real sockets, with voters that come and go.

mod cluster;
mod conformance;
#[path = "../support/far.rs"]
mod distance;
mod elections;
mod far;
mod fleet;
#[path = "../support/logged.rs"]
mod logged;
#[path = "../support/namesakes.rs"]
mod namesakes;
mod oracles;
mod reconfiguration;
