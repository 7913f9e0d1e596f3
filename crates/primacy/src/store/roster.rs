//! The members of an election as observers are shown them.

use std::time::Duration;

use super::{Member, Record, Waiting};
use primacy_core::registers::Candidacy;

/// How many events are kept of each election.
pub(super) const EVENTS_KEPT: u32 = 1_000;

/// For how long after its last beat a process counts as alive for observers: three leases of the usual two rounds. A
/// leader decides by counters and its own clock, and sooner.
pub(super) fn fresh_for(round: Duration) -> Duration {
    (round * 6).max(Duration::from_secs(1))
}

/// What a member says that it does, for people.
const NOTES: [&str; 2] = ["waits", "never leads"];

/// Adds the candidates of live processes to those that announced themselves, in the order in which they lead.
pub(super) fn add_members(candidates: &mut Vec<Waiting>, record: &Record, round: Duration, mut members: Vec<Member>) {
    let fresh = fresh_for(round);
    members.retain(|member| member.age.is_some_and(|age| age <= fresh));
    members.sort_by_key(|member| {
        let rank = member.candidacy.rank;
        (rank.is_none(), rank, member.descriptor.id, member.candidacy.id)
    });
    for Member { candidacy: Candidacy { id, label, data, rank }, age, .. } in members {
        if record.is_held_by(id) || candidates.iter().any(|waiting| waiting.who.id == id) {
            continue;
        }
        let note = NOTES[usize::from(rank.is_none())].to_owned();
        candidates.push(Waiting { who: super::Holder { id, label, data }, note, rank, age });
    }
}
