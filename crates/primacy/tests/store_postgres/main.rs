//! The PostgreSQL store on real servers: that it conforms, and what the conformance suite cannot know of.

mod conforms;
mod support;
