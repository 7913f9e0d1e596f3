//! Real runners on a real file, killed, stopped and disturbed, with a witness that knows nothing of primacy.

#![expect(clippy::disallowed_methods, reason = "patience with other processes, not leases, is measured here")]

mod agent;
mod agent_rights;
mod browser;
mod clients;
mod deaths;
mod hooks;
mod hooks_hindered;
mod hooks_through_agent;
mod host_socket;
mod http;
mod http_events;
mod http_openapi;
mod http_orders;
mod http_places;
mod isolate;
#[cfg(feature = "kv")]
mod kv;
#[cfg(feature = "kv")]
mod kv_flushes;
#[cfg(feature = "kv")]
mod kv_founding;
#[cfg(feature = "kv")]
mod kv_usage;
mod lifecycle;
mod metrics;
#[cfg(feature = "kv")]
mod nodes;
mod operators;
mod oracles;
mod outages;
mod page;
mod page_looks;
mod page_many;
mod page_orders;
mod patience;
mod pauses;
mod peers;
mod peers_refused;
mod programs;
mod programs_ends;
mod reconfiguration;
mod registers;
mod rights;
mod strangers;
mod tap;
mod telling;
mod through_agent;
mod trouble;
mod undying;
mod voters;
mod wardens;
mod words;
mod world;
