//! `primacy history`: past leaderships and why they ended.

use jiff::tz::TimeZone;

use super::reach::Reach;
use crate::cli::HistoryArgs;
use crate::failure::Failure;
use crate::output::lead::Lead;
use crate::output::schema::{self, PastTerm, SCHEMA};
use crate::output::{Output, report};

pub(super) async fn run(args: &HistoryArgs, reach: &mut Reach, output: &mut Output) -> Result<u8, Failure> {
    let terms = reach.history(args.limit).await?.value;
    let snapshot = reach.snapshot().await?.now();
    let election = reach.election();
    if terms.is_empty() && snapshot.is_none() {
        return Err(Failure::refused(format!(
            "nobody has ever campaigned in the election {election} in {}; see primacy list",
            reach.location()
        )));
    }
    let current = match Lead::of(snapshot.as_ref()) {
        Lead::Led(..) => snapshot.as_ref().map(|snapshot| snapshot.record.version.token),
        Lead::Vacant | Lead::Unknown(_) | Lead::Lost | Lead::Forgotten | Lead::Never => None,
    };
    let is_all = terms.len() < args.limit as usize;
    let last = snapshot.as_ref().map(|snapshot| snapshot.record.version.token).unwrap_or_default();
    let oldest = terms.last().map_or(last.next(0), |term| term.token);
    let known_from = Some(oldest).filter(|token| is_all && token.counter() > 1).map(|token| token.get());
    if let Some(token) = known_from {
        output.remark(&format!(
            "the history begins with token {token}: leaderships before it, if there were any, are not known any more (the \
             last 1,000 are kept; the history of an election that was forgotten, or whose voters were replaced, begins anew)"
        ));
    }
    output.text(&report::history(&terms, current, &TimeZone::system(), output.palette))?;
    output.json(&schema::History {
        schema: SCHEMA,
        store: reach.location(),
        election: election.as_str().to_owned(),
        known_from,
        terms: terms.iter().map(|term| PastTerm::new(term, current == Some(term.token))).collect(),
    })?;
    Ok(0)
}
