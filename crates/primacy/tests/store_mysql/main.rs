//! What this store adds to what the conformance suite asks of all: real servers, their faults and their settings.

mod conformance;
mod support;
