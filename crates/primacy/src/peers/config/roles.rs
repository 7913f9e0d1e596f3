//! Which role the name in a certificate stands for.

use std::str::FromStr;

pub use primacy_core::quorum::Role;
use primacy_core::select::Pattern;

/// The names of certificates, for which `*` stands for any characters: `operator`, `operator-*`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamePattern(Pattern);

/// Why this is no pattern of names.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' names no certificate: give 1 to 63 of the characters a to z, 0 to 9, '-' and '.', and at most one '*'")]
pub struct PatternError(String);

impl FromStr for NamePattern {
    type Err = PatternError;

    fn from_str(text: &str) -> Result<Self, PatternError> {
        let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-.*".contains(c);
        let is_right = (1..=63).contains(&text.len()) && text.chars().all(fits) && text.matches('*').count() <= 1;
        let pattern = Pattern::new(text).ok().filter(|_| is_right);
        pattern.map(Self).ok_or_else(|| PatternError(primacy_core::ids::escape(text)))
    }
}

/// Which certificates are those of operators and of observers, by the names in them. That of a voter is the voter's, and any
/// other that the authority has signed is a candidate's.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RoleNames {
    /// Who may order and exchange voters.
    pub operators: Vec<NamePattern>,
    /// Who may only look.
    pub observers: Vec<NamePattern>,
}

impl Default for RoleNames {
    fn default() -> Self {
        let pattern = |text: String| text.parse().expect("a word, or one with a star, is a pattern");
        let both = |name: &str| vec![pattern(name.to_owned()), pattern(format!("{name}-*"))];
        Self { operators: both("operator"), observers: both("observer") }
    }
}

impl RoleNames {
    /// That of a certificate with this name, which is not that of a voter.
    pub(crate) fn role(&self, name: &str) -> Role {
        let is_one = |patterns: &[NamePattern]| patterns.iter().any(|pattern| pattern.0.fits_name(name));
        if is_one(&self.operators) {
            Role::Operator
        } else if is_one(&self.observers) {
            Role::Observer
        } else {
            Role::Candidate
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_have_one_star_at_most() {
        let fits = |pattern: &str, name: &str| pattern.parse::<NamePattern>().expect(pattern).0.fits_name(name);
        assert!(fits("*", "anything") && fits("ops-*", "ops-1") && fits("*.ops", "a.ops") && fits("a*c", "abc"));
        assert!(!fits("ops-*", "ops") && !fits("a*a", "a") && !fits("ops", "ops-1"));
        for wrong in ["", "a**", "*a*", "Ops", "a b", &"x".repeat(64)] {
            assert!(wrong.parse::<NamePattern>().is_err(), "{wrong:?}");
        }
    }
}
