//! What each round makes of the registers of an election: the rules that the stores of this crate share.

use std::time::Duration;

use super::registers::{Candidacy, ProcessId, Vars};
use super::{Member, Record, Waiting};
use crate::Label;

/// How many events are kept of each election.
pub(super) const EVENTS_KEPT: u32 = 1_000;

/// Gives the next number to a process that has none.
pub(super) fn joined(vars: &Vars, came_back: Option<Duration>) -> Vars {
    Vars {
        max_id: vars.max_id + 1,
        comebacks: vars.comebacks + u64::from(came_back.is_some()),
        slowest: vars.slowest.max(came_back.unwrap_or_default()),
        ..*vars
    }
}

/// VARS after a change of the round time, or `None` if it has changed since that was decided.
pub(super) fn paced(vars: &Vars, round: Duration, changes: u64) -> Option<Vars> {
    let next = Vars { round, changes: changes + 1, heard: vars.comebacks, slowest: Duration::ZERO, ..*vars };
    (vars.changes == changes).then_some(next)
}

/// What people call a process: as its first candidate, or by its identity if it has none.
pub(super) fn label_of(process: ProcessId, candidates: &[Candidacy]) -> Label {
    let own = || Label::new(process.to_string()).expect("32 digits are a label");
    candidates.first().map_or_else(own, |candidate| candidate.label.clone())
}

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
