//! The real command against a real file: what it prints, its exit codes, and what it leaves alone.

mod doctor;
mod examples;
mod json;
mod lines;
mod members;
mod observe;
mod orders;
mod page_texts;
mod pages;
mod schema;
mod secrets;
mod simulate;
mod support;
mod usage;
mod watch;
mod ways;
