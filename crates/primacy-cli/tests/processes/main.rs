//! Real runners on a real file, killed, stopped and disturbed, with a witness that knows nothing of primacy.

mod deaths;
mod lifecycle;
mod operators;
mod pauses;
mod trouble;
mod world;
