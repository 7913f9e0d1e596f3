//! `primacy list`: every election of the store.

use crate::failure::Failure;
use crate::output::schema::{self, Millis, SCHEMA, State};
use crate::output::{Output, report};
use crate::reach::{Reach, aged};

pub(super) async fn run(reach: &mut Reach, output: &mut Output) -> Result<u8, Failure> {
    let answer = reach.elections().await?;
    let age = answer.age();
    let elections: Vec<_> = answer.value.into_iter().map(|snapshot| aged(snapshot, age)).collect();
    let store = reach.location();
    output.text(&report::list(&elections, &store, output.palette))?;
    output.json(&schema::List {
        schema: SCHEMA,
        store,
        answer_age_ms: Millis(age),
        elections: elections.iter().map(|snapshot| State::of(&snapshot.election, Some(snapshot))).collect(),
    })?;
    Ok(0)
}
