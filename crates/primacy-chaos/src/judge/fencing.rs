//! Fencing: in the order of their commits, the tokens of the fenced rows never decrease.

use super::{Promise, Verdict};

/// The fenced rows of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rows {
    pub(crate) count: usize,
    /// How many different leaders wrote any.
    pub(crate) leaders: usize,
    /// Rows behind one of a later leader.
    pub(crate) stale: usize,
}

/// Judges the tokens of all rows, in the order of their commits.
pub(crate) fn rows(tokens: &[u64]) -> (Rows, Option<Verdict>) {
    let mut rows = Rows { count: tokens.len(), ..Rows::default() };
    let mut highest = 0;
    let mut first_stale = None;
    for (index, &token) in tokens.iter().enumerate() {
        if token < highest {
            rows.stale += 1;
            first_stale.get_or_insert((index, token, highest));
        } else if token > highest {
            rows.leaders += 1;
            highest = token;
        }
    }
    let verdict = first_stale.map(|(index, token, highest)| {
        let what =
            format!("row {} has token {token}, behind a row with token {highest}; {} such rows", index + 1, rows.stale);
        Verdict::new(Promise::Fencing, what)
    });
    (rows, verdict)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_smaller_token_behind_a_larger_one_is_stale() {
        assert_eq!(rows(&[]), (Rows::default(), None));
        assert_eq!(rows(&[1, 1, 3, 3]), (Rows { count: 4, leaders: 2, stale: 0 }, None));
        let (counted, verdict) = rows(&[1, 3, 1, 3, 2, 4]);
        assert_eq!(counted, Rows { count: 6, leaders: 3, stale: 2 });
        let verdict = verdict.expect("it is stale");
        assert_eq!(verdict.promise, Promise::Fencing);
        assert!(verdict.what.starts_with("row 3 has token 1"), "{verdict}");
    }
}
