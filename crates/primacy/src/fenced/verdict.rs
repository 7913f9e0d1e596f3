//! What every dialect concludes from a row and from an error.

use super::{Dialect, FenceError};
use crate::{ElectionName, Token};

/// What the code of a database error means for a fence.
pub(super) enum Kind {
    Busy,
    NoTable(Dialect),
    Other,
}

impl Kind {
    pub(super) fn of(self, error: impl std::error::Error + Send + Sync + 'static) -> FenceError {
        match self {
            Self::Busy => FenceError::Busy(Box::new(error)),
            Self::NoTable(dialect) => FenceError::NoTable { dialect },
            Self::Other => FenceError::Database(Box::new(error)),
        }
    }
}

/// What the row that is held now says about the token. `None` if there was none to hold.
pub(super) fn judge(held: Option<i64>, election: &ElectionName, token: Token) -> Result<Verdict, FenceError> {
    let Some(held) = held else { return Ok(Verdict::Raise) };
    // A number below zero was never granted; it is raised like any other that is too small.
    let highest = u64::try_from(held).ok().and_then(Token::new).unwrap_or_default();
    match highest.cmp(&token) {
        std::cmp::Ordering::Less => Ok(Verdict::Raise),
        std::cmp::Ordering::Equal => Ok(Verdict::Holds),
        std::cmp::Ordering::Greater => Err(FenceError::Stale { election: election.clone(), token, highest }),
    }
}

/// What to do about a token that is not stale.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Nothing: the fence holds.
    Holds,
    /// Raise the row first: it is smaller, or missing.
    Raise,
}

/// The number as SQL keeps it.
pub(super) fn signed(token: Token) -> i64 {
    i64::try_from(token.get()).expect("a token fits a signed 64-bit integer, as Token::new sees to")
}
