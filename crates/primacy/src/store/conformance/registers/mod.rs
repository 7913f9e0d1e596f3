//! Checks of the registers: of what processes are told, of what a leader may change, and of what an observer sees.

mod duties;
mod observed;
mod party;
mod rounds;

pub(super) use duties::{by_the_leader_only, comebacks, eviction, eviction_races, round_time};
pub(super) use observed::{apart, events, members, names, nobody};
pub(super) use party::Party;
pub(super) use rounds::{beats, crowd, head, join_again, leave, numbers, record, without};
