//! The SQLite store on real files: what the conformance suite cannot know of.

#[path = "../support/actor.rs"]
mod actor;
mod copies;
mod files;
mod fleet;
mod hints;
mod hostile_hints;
mod locks;
#[path = "../support/logged.rs"]
mod logged;
mod mounts;
#[path = "../support/namesakes.rs"]
mod namesakes;
mod processes;
mod registers;
mod rows;
mod support;
