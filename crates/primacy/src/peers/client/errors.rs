//! What goes wrong with peers, as any store says it.

use primacy_core::lease::CallError;

use super::pool::Pool;
use crate::store::StoreError;

/// What peers say to one that wants to be a member, or see members.
pub(super) fn no_registers() -> StoreError {
    StoreError::Unusable("peers keep no registers: the registers protocol and its members need a database".to_owned())
}

/// What a call without an end is for a candidate or an operator.
pub(super) fn failure(error: CallError, pool: &Pool) -> StoreError {
    match error {
        _ if let Some(why) = pool.denied() => StoreError::Unusable(why),
        CallError::NotDone => StoreError::Unreachable(pool.reasons()),
        CallError::Unknown => StoreError::Unknown(pool.reasons()),
    }
}
