//! The database fails over while candidates stand: who led, with which tokens, and that no two did.

mod asynchronous;
mod comeback;
mod crew;
mod galera;
mod restore;
mod server;
mod silence;
mod standby;
mod synchronous;
