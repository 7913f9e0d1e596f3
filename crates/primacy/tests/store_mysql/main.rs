//! What this store adds to what the conformance suite asks of all: real servers, their faults and their settings.

#[path = "../support/actor.rs"]
mod actor;
mod candidates;
#[path = "../support/companions.rs"]
mod companions;
mod conformance;
mod counts;
#[path = "../support/far.rs"]
mod distance;
mod doctor;
mod far;
mod faults;
mod fleet;
mod galera;
mod hints;
mod locks;
#[path = "../support/logged.rs"]
mod logged;
#[path = "../support/many.rs"]
mod many;
#[path = "../support/namesakes.rs"]
mod namesakes;
mod observers;
mod registers;
mod rights;
mod schema;
mod shadows;
#[path = "../support/shared_lines.rs"]
mod shared_lines;
mod support;
#[cfg(feature = "mysql-tls")]
mod tls;
mod waiting_order;
#[path = "../support/watching.rs"]
mod watching;
