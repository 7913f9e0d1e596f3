//! Warns of other live candidates that have this candidate's label: an operator who names the label means either of them.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use primacy_core::lease::Holder;
use tokio::sync::{mpsc, oneshot};
use tracing::{debug, warn};

use crate::command::Command;
use crate::store::{Snapshot, Store, StoreError};
use crate::{CandidateId, ElectionName, Instant, Timing, clock};

/// The bounds of a lease in the times before the first looks.
const LEASES: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(15)];
/// The time between later looks, on average: for namesakes that came later.
const AGAIN: Duration = Duration::from_secs(300);
/// How many looks come sooner than that.
const FIRST_LOOKS: u32 = 2;
/// How long one look may take beside the opening of its connection.
const PATIENCE: Duration = Duration::from_secs(5);
/// How many namesakes are told of.
const TOLD_MOST: usize = 16;

/// Looks for namesakes from time to time, over a connection that is closed after each look, until it is dropped. The driver is
/// asked before each look: of hundreds of members of the `registers` protocol, only those that are next in line look.
pub(crate) async fn watch(
    store: Arc<dyn Store>,
    election: ElectionName,
    me: Holder,
    timing: Timing,
    aligned: bool,
    commands: mpsc::UnboundedSender<Command>,
) {
    let began = clock::now();
    // Who waits says so once in a lease, with the next look that is due after it.
    let lease = timing.lease().clamp(LEASES[0], LEASES[1]);
    let (mut told, mut looks) = (BTreeSet::new(), 0);
    loop {
        let wait = if looks < FIRST_LOOKS { lease * 2 } else { AGAIN };
        let now = clock::now();
        // What the candidates of a fleet ask leaves together.
        let due = if aligned { (now + wait).ceil(wait) } else { now + wait.mul_f64(rand::random_range(1.0..1.25)) };
        tokio::time::sleep(due.since(now)).await;
        let (answer, may_look) = oneshot::channel();
        if commands.send(Command::MayLookForNamesakes { answer }).is_err() {
            return;
        }
        if may_look.await != Ok(true) {
            continue;
        }
        match look(&*store, &election, timing.opening_timeout()).await {
            Ok(seen) => {
                looks += 1;
                if let Some((snapshot, asked_at)) = seen {
                    tell(&snapshot, &me, asked_at.since(began), &mut told);
                }
            }
            Err(error) => debug!(%error, "it is not known whether another candidate has the same label"),
        }
    }
}

async fn look(
    store: &dyn Store,
    election: &ElectionName,
    opening: Duration,
) -> Result<Option<(Snapshot, Instant)>, StoreError> {
    let silent = |_| StoreError::Unreachable(format!("{}: no answer in time", store.location()));
    let mut admin = tokio::time::timeout(opening, store.admin()).await.map_err(silent)??;
    let asked_at = clock::now();
    let snapshot = tokio::time::timeout(PATIENCE, admin.snapshot(election)).await.map_err(silent)??;
    Ok(snapshot.map(|snapshot| (snapshot, asked_at)))
}

fn tell(snapshot: &Snapshot, me: &Holder, since: Duration, told: &mut BTreeSet<CandidateId>) {
    for other in namesakes(snapshot, me, since) {
        if told.len() < TOLD_MOST && told.insert(other.id) {
            warn!(
                election = %snapshot.election,
                "another candidate is called {} too: {other_id}, and this one is {id}. Give each a name of its own; until then \
                 an operator promotes one of them by the first digits of its id",
                me.label,
                other_id = other.id,
                id = me.id,
            );
        }
    }
}

/// The others with this label that were heard of within this time. A candidate's own former run, which a crash has left in the
/// store, has said nothing since this one began.
fn namesakes<'a>(snapshot: &'a Snapshot, me: &Holder, within: Duration) -> impl Iterator<Item = &'a Holder> {
    let leader = snapshot.record.holder.as_ref().map(|holder| (holder, snapshot.age));
    let all = leader.into_iter().chain(snapshot.candidates.iter().map(|waiting| (&waiting.who, waiting.age)));
    let (id, label) = (me.id, me.label.clone());
    all.filter(move |(who, age)| who.id != id && who.label == label && age.is_some_and(|age| age < within))
        .map(|(who, _)| who)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{Record, Waiting};
    use crate::{Label, Token};
    use primacy_core::lease::Version;

    fn who(bits: u128, label: &str) -> Holder {
        Holder { id: CandidateId::from_bits(bits), label: Label::new(label).expect("valid"), data: String::new() }
    }

    #[test]
    fn a_namesake_has_said_something_since_this_candidate_began() {
        let waiting = |bits, label, secs| Waiting {
            who: who(bits, label),
            note: String::new(),
            rank: None,
            age: Some(Duration::from_secs(secs)),
        };
        let snapshot = Snapshot {
            election: ElectionName::new("jobs").expect("valid"),
            record: Record {
                version: Version { token: Token::new(3).expect("small"), beat: 1 },
                holder: Some(who(1, "a")),
                lease: Duration::from_secs(10),
                order_number: 0,
                handover: None,
                paused: false,
            },
            age: Some(Duration::from_secs(4)),
            held_for: None,
            candidates: vec![waiting(2, "a", 1), waiting(3, "a", 11), waiting(4, "b", 1), waiting(5, "a", 1)],
            basis: crate::store::Basis::Record,
        };
        let found = |me, secs| {
            let within = Duration::from_secs(secs);
            namesakes(&snapshot, &who(me, "a"), within).map(|other| other.id.to_bits()).collect::<Vec<_>>()
        };
        assert_eq!(found(5, 12), [1, 2, 3]);
        assert_eq!(found(5, 10), [1, 2], "3 is a former run");
        assert_eq!(found(5, 3), [2], "the leader is a former run, too");
        assert_eq!(found(1, 10), [2, 5]);
        let mut told = BTreeSet::new();
        tell(&snapshot, &who(1, "a"), Duration::from_secs(10), &mut told);
        assert_eq!(told.len(), 2);
    }
}
