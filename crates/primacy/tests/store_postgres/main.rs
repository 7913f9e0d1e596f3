//! The PostgreSQL store on real servers: that it conforms, and what the conformance suite cannot know of.

#[path = "../support/actor.rs"]
mod actor;
mod announcements;
mod blocked;
mod campaigns;
#[path = "../support/companions.rs"]
mod companions;
mod conforms;
mod costs;
#[path = "../support/far.rs"]
mod distance;
mod doctor;
mod far;
mod fleet;
mod floods;
mod hints;
mod hostile;
#[path = "../support/logged.rs"]
mod logged;
#[path = "../support/many.rs"]
mod many;
#[path = "../support/namesakes.rs"]
mod namesakes;
mod observers;
mod outcomes;
mod register_costs;
mod registers;
mod rights;
mod schema;
mod servers;
#[path = "../support/shared_lines.rs"]
mod shared_lines;
mod support;
#[cfg(feature = "postgres-tls")]
mod tls;
#[path = "../support/watching.rs"]
mod watching;
