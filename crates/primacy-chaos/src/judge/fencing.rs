//! Fencing: in the order of their commits, the tokens of the fenced rows never decrease.

use super::{Promise, Verdict};

/// The fenced rows of a run so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rows {
    pub(crate) count: usize,
    /// How many different leaders wrote any.
    pub(crate) leaders: usize,
    /// Rows behind one of a later leader.
    pub(crate) stale: usize,
    highest: u64,
    /// The number of the last one.
    pub(crate) last: u64,
}

impl Rows {
    /// Takes the next row, in the order of commits; says whether it proves the promise to be broken.
    pub(crate) fn see(&mut self, (number, token): (u64, u64)) -> Option<Verdict> {
        self.count += 1;
        self.last = number;
        if token > self.highest {
            self.leaders += 1;
            self.highest = token;
        }
        (token < self.highest).then(|| {
            self.stale += 1;
            let what = format!("row {number} has token {token}, behind a row with token {}", self.highest);
            Verdict::new(Promise::Fencing, what)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_smaller_token_behind_a_larger_one_is_stale() {
        let mut rows = Rows::default();
        assert!([(1, 1), (2, 1), (3, 4)].into_iter().all(|row| rows.see(row).is_none()));
        let stale = rows.see((4, 3)).expect("it is stale");
        assert_eq!(stale.promise, Promise::Fencing);
        assert!(stale.what.contains("row 4 has token 3, behind a row with token 4"), "{stale}");
        assert_eq!(rows.see((5, 4)), None);
        assert_eq!((rows.count, rows.leaders, rows.stale, rows.last), (5, 2, 1, 5));
    }
}
