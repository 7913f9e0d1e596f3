//! The database fails over, goes back or changes its credentials while candidates stand: who led, with which tokens, and that no two did.

mod asynchronous;
mod comeback;
mod credentials;
mod crew;
mod database;
mod galera;
mod restore;
mod server;
mod silence;
mod standby;
mod synchronous;
