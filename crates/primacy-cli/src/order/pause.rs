//! `primacy pause` and `primacy resume`.

use primacy::Token;
use primacy::store::{Order, OrderKind, OrderOutcome};

use super::refusals::{UNKNOWN, no_record, no_such_election};
use crate::failure::Failure;
use crate::output::Output;
use crate::output::lead::Lead;
use crate::output::schema::{self, SCHEMA, State};
use crate::reach::Reach;

/// Which of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Switch {
    Pause,
    Resume,
}

impl Switch {
    const fn word(self) -> &'static str {
        match self {
            Self::Pause => "pause",
            Self::Resume => "resume",
        }
    }

    const fn kind(self) -> OrderKind {
        match self {
            Self::Pause => OrderKind::Pause,
            Self::Resume => OrderKind::Resume,
        }
    }
}

pub(crate) async fn run(switch: Switch, reach: &mut Reach, output: &mut Output) -> Result<u8, Failure> {
    // Twice is once: neither needs to insist on a token after an attempt without an answer, but the order's answer
    // then says "already".
    let order = Order { kind: switch.kind(), token: None };
    let seen = reach.snapshot().await?.value.map_or(Token::NONE, |snapshot| snapshot.record.version.token);
    let given = reach.order(order, seen).await?;
    let (result, before) = match &given.ordered {
        OrderOutcome::Written(before) => ("written", Some(before)),
        OrderOutcome::Already(before) if given.doubtful => ("written", Some(before)),
        OrderOutcome::Already(before) => ("already", Some(before)),
        OrderOutcome::TokenChanged(before) => ("token-changed", Some(before)),
        OrderOutcome::NoRecord(before) => ("no-record", Some(before)),
        OrderOutcome::NoSuchElection => ("no-such-election", None),
    };
    // What has become of the order is known, whether or not what follows is seen.
    let after = reach.snapshot().await.ok().map(|after| after.now());
    let election = reach.election();
    output.json(&schema::Order {
        schema: SCHEMA,
        store: reach.location(),
        order: switch.word(),
        successor: None,
        now: false,
        result,
        outcome: None,
        waited_ms: None,
        before: before.map(|before| State::of(election, Some(before))),
        after: after.as_ref().map(|after| State::of(election, after.as_ref())),
    })?;
    match given.ordered {
        OrderOutcome::NoRecord(before) => Err(no_record(reach, &before)),
        OrderOutcome::NoSuchElection => Err(no_such_election(reach)),
        OrderOutcome::TokenChanged(_) => Err(Failure::unavailable(UNKNOWN)),
        OrderOutcome::Written(_) | OrderOutcome::Already(_) => {
            output.text(&format!("{}\n", said(switch, result == "already", Lead::of(after.flatten().as_ref()))))?;
            Ok(0)
        }
    }
}

fn said(switch: Switch, already: bool, lead: Lead<'_>) -> String {
    let already = if already { " already" } else { "" };
    match (switch, lead) {
        (Switch::Pause, Lead::Led(holder, _)) => {
            format!(
                "paused{already}: {} goes on to lead, and nobody takes its place until: primacy resume",
                holder.label
            )
        }
        (Switch::Pause, _) => format!("paused{already}: nobody takes the lease until: primacy resume"),
        (Switch::Resume, Lead::Led(holder, _)) if already.is_empty() => {
            format!("resumed: {} leads, and others may take its place once it stops", holder.label)
        }
        (Switch::Resume, _) if already.is_empty() => "resumed: candidates may take the lease".to_owned(),
        (Switch::Resume, _) => "was not paused".to_owned(),
    }
}
