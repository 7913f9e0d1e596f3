//! `primacy forget`: removes an election that nobody uses any more.

use primacy::store::{ForgetOutcome, Hindrance};

use crate::failure::Failure;
use crate::order::no_such_election;
use crate::output::Output;
use crate::output::namesakes::named;
use crate::output::schema::{self, SCHEMA, State};
use crate::reach::Reach;

pub(super) async fn run(reach: &mut Reach, output: &mut Output) -> Result<u8, Failure> {
    let forgotten = reach.forget().await?;
    let (result, before) = match &forgotten {
        ForgetOutcome::Done(before) => ("written", Some(before)),
        ForgetOutcome::Already(before) => ("already", Some(before)),
        ForgetOutcome::Refused(hindrance, before) => (word(*hindrance), Some(before)),
        ForgetOutcome::NoSuchElection => ("no-such-election", None),
    };
    let after = reach.snapshot().await?.now();
    let election = reach.election().clone();
    output.json(&schema::Order {
        schema: SCHEMA,
        store: reach.location(),
        order: "forget",
        successor: None,
        now: false,
        result,
        outcome: None,
        waited_ms: None,
        before: before.map(|before| State::of(&election, Some(before))),
        after: Some(State::of(&election, after.as_ref())),
    })?;
    let token = after.map(|snapshot| snapshot.record.version.token).unwrap_or_default();
    let kept = format!("if it begins again, its tokens go on above {token}");
    match forgotten {
        ForgetOutcome::Done(_) => output.text(&format!("{election} is forgotten; {kept}\n"))?,
        ForgetOutcome::Already(_) => output.text(&format!("{election} was forgotten before; {kept}\n"))?,
        ForgetOutcome::NoSuchElection => return Err(no_such_election(reach)),
        ForgetOutcome::Refused(hindrance, now) => {
            let holder = now.record.holder.as_ref().map_or_else(|| "somebody".to_owned(), named);
            return Err(Failure::refused(match hindrance {
                Hindrance::Led => {
                    format!("{holder} leads in {election}; nothing was changed. Stop its candidates first")
                }
                Hindrance::Unknown => format!(
                    "{holder} held the lease of {election}, and it cannot be told whether that is over; nothing was changed. \
                     Stop its candidates and try again; if it stays so: primacy depose --now --force"
                ),
                Hindrance::Paused => format!(
                    "{election} is paused, and the pause would be forgotten too; nothing was changed. First: primacy resume"
                ),
                Hindrance::Candidates => {
                    let names: Vec<_> = now.candidates.iter().take(10).map(|one| one.who.label.to_string()).collect();
                    format!(
                        "candidates wait in {election} ({}); nothing was changed. Stop them first; one that was killed is \
                         left out two leases and a half later",
                        names.join(", ")
                    )
                }
            }));
        }
    }
    Ok(0)
}

const fn word(hindrance: Hindrance) -> &'static str {
    match hindrance {
        Hindrance::Led => "led",
        Hindrance::Unknown => "unknown",
        Hindrance::Paused => "paused",
        Hindrance::Candidates => "candidates",
    }
}
