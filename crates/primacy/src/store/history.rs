//! Past leaderships: the words for why they ended, and the list of them that is kept in the memory of a process.

use std::time::{SystemTime, UNIX_EPOCH};

use super::{Holder, Term};
use crate::Token;

/// Why a term is over that another candidate ended by taking the lease.
pub(crate) const TAKEN_OVER: &str = "taken-over";

/// Why the term is over that stands in the history for the moment in which an election was forgotten.
pub(crate) const FORGOTTEN: &str = "forgotten";

/// Whose that term is.
pub(crate) const NOBODY: &str = "nobody";

/// How many terms the history keeps of each election.
pub(super) const TERMS_KEPT: u32 = 1_000;

/// Milliseconds since 1970 by the wall clock, for people only.
pub(super) fn unix_ms() -> i64 {
    #[expect(clippy::disallowed_methods, reason = "it only informs people")]
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

/// The last leaderships of an election, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct TermHistory {
    terms: Vec<Term>,
    /// The highest token of which it is known that it was granted: a claim alone is no grant among peers.
    #[cfg(feature = "peers")]
    proven: Token,
}

impl TermHistory {
    /// A leadership begins. That before it has ended for this reason, if it has not already.
    pub(crate) fn open(&mut self, token: Token, holder: &Holder, ended: &str) {
        if let Some(last) = self.terms.last() {
            self.close(last.token, ended);
        }
        self.terms.push(Term {
            token,
            id: holder.id,
            label: holder.label.clone(),
            granted_unix_ms: unix_ms(),
            ended: None,
        });
        if self.terms.len() > TERMS_KEPT as usize {
            self.terms.remove(0);
        }
    }

    /// A leadership ends, unless it has already.
    pub(crate) fn close(&mut self, token: Token, reason: &str) {
        if let Some(term) = self.terms.iter_mut().rev().find(|term| term.token == token && term.ended.is_none()) {
            term.ended = Some((unix_ms(), reason.to_owned()));
        }
    }

    /// What was known of a leadership is known better.
    #[cfg(feature = "peers")]
    pub(crate) fn put(&mut self, term: Term) {
        match self.terms.iter_mut().find(|known| known.token == term.token) {
            Some(known) => *known = term,
            None => self.terms.push(term),
        }
        if self.terms.len() > TERMS_KEPT as usize {
            self.terms.remove(0);
        }
    }

    /// The candidate with this token has led. Returns whether that was not known.
    #[cfg(feature = "peers")]
    pub(crate) fn prove(&mut self, token: Token) -> bool {
        let is_news = token > self.proven;
        self.proven = self.proven.max(token);
        is_news
    }

    /// The last leadership that is known to have been one.
    #[cfg(feature = "peers")]
    pub(crate) fn proven(&self) -> Option<&Term> {
        self.terms.iter().rev().find(|term| term.token <= self.proven)
    }

    /// What was claimed after that, and may have been granted.
    #[cfg(feature = "peers")]
    pub(crate) fn claimed(&self) -> Option<&Term> {
        self.terms.last().filter(|term| term.token > self.proven && !super::is_of_forgetting(term))
    }

    /// A leadership has never been one.
    #[cfg(feature = "peers")]
    pub(crate) fn strike(&mut self, token: Token) {
        self.terms.retain(|term| term.token != token);
    }

    /// The highest token among them.
    pub(crate) fn highest(&self) -> Token {
        self.terms.last().map_or(Token::NONE, |term| term.token)
    }

    /// The newest of them, the newest first.
    pub(crate) fn newest(&self, limit: u32) -> impl Iterator<Item = &Term> {
        self.terms.iter().rev().take(limit as usize)
    }
}
