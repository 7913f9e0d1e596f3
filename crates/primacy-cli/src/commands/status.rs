//! `primacy status`: who leads, how fresh the answer is, and who waits.

use primacy::store::Snapshot;

use super::reach::Reach;
use crate::cli::StatusArgs;
use crate::failure::{Failure, code};
use crate::output::lead::Lead;
use crate::output::schema::{self, Millis, SCHEMA, State};
use crate::output::{Output, explain, members, report};

/// How many leaderships an explanation looks back on: the present one and the one before it.
const LOOK_BACK: u32 = 2;

pub(super) async fn run(args: &StatusArgs, reach: &mut Reach, output: &mut Output) -> Result<u8, Failure> {
    let terms = if args.explain { reach.history(LOOK_BACK).await?.value } else { Vec::new() };
    let answer = reach.snapshot().await?;
    let support = match answer.value.as_ref().and_then(Snapshot::leader) {
        Some(_) => reach.support_if_told().await,
        None => None,
    };
    // Another may lead by now, and what is said of it is not said of the one that is shown.
    let token = answer.value.as_ref().map(|snapshot| snapshot.record.version.token);
    let support = support.filter(|support| Some(support.token) == token);
    let members = if args.explain { reach.members_if_told().await } else { None };
    let (snapshot, age) = (answer.now(), answer.age());
    let (snapshot, election, store) = (snapshot.as_ref(), reach.election(), reach.location());
    let sentences = args.explain.then(|| {
        let able = snapshot.map(|snapshot| members::able(snapshot.clone(), members.as_ref()));
        let mut sentences = explain::explain(election, able.as_ref(), &terms);
        sentences.extend(members.iter().flat_map(|members| members::explain(members, snapshot)));
        sentences
    });
    output.text(&report::status(election, (snapshot, support.as_ref()), &store, age, output.palette))?;
    if let Some(sentences) = &sentences {
        output.text(&format!("\n{}\n", sentences.join("\n")))?;
    }
    output.json(&schema::Status {
        schema: SCHEMA,
        store,
        answer_age_ms: Millis(age),
        state: State::of(election, snapshot),
        support: support.as_ref().map(Into::into),
        explanation: sentences,
    })?;
    Ok(verdict(snapshot))
}

/// The exit code that tells whether somebody leads.
pub(super) fn verdict(snapshot: Option<&Snapshot>) -> u8 {
    match Lead::of(snapshot) {
        Lead::Led(..) => 0,
        Lead::Vacant | Lead::Unknown(_) | Lead::Lost | Lead::Forgotten | Lead::Never => code::REFUSED,
    }
}
