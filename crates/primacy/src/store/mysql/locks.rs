//! The server's locks with names (`GET_LOCK`) that carry hints, and what their answers say. They decide nothing.
//!
//! Names of locks are the server's, not the database's, are compared without regard to case, and have 64 characters at
//! most. So they hold a digest of the database's name, the election's and what else there is.

use super::super::StoreError;
use super::answer::Answer;
use super::errors::Fault;
use super::packet::text;
use crate::ElectionName;

/// Held by the one of all waiting connections that watches the row.
pub(super) fn poll_lock(election: &ElectionName) -> String {
    format!("CONCAT('primacy.', LEFT(SHA2({}, 256), 40))", digested(election))
}

/// Held by a leader while it leads with this token. Each leadership has its own, so that a connection that a lost leader
/// left behind on the server is in nobody's way.
pub(super) fn leader(election: &ElectionName, token: i64) -> String {
    format!("CONCAT('primacy.lead.', LEFT(SHA2(CONCAT({}, '.', {token}), 256), 40))", digested(election))
}

fn digested(election: &ElectionName) -> String {
    format!("CONCAT(HEX(DATABASE()), '.', HEX({}))", text(election.as_str()))
}

/// The answer of a `GET_LOCK`.
pub(super) fn is_got(answer: Option<Answer>) -> Result<bool, Fault> {
    let row = answer.and_then(|answer| answer.rows.into_iter().next());
    let mut row = row.ok_or_else(|| Fault::damaged("an answer"))?;
    // NULL: the server had no memory for it, or the wait was killed.
    match row.optional_number()? {
        Some(got) => Ok(got == 1),
        None => Err(StoreError::Unreachable("the wait for a lock was ended".into()).into()),
    }
}
