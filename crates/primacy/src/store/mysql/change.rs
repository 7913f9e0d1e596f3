//! A change of what is kept: statements that are made together or not at all.

/// A change: one statement that commits by itself, or the statements of a transaction.
#[derive(Clone, Debug)]
pub(super) struct Change {
    pub(super) statements: Vec<String>,
    /// Which of them says whether it is made: it changes one row, or nothing is done.
    pub(super) decides: usize,
}

impl Change {
    pub(super) fn single(deciding: String) -> Self {
        Self { statements: vec![deciding], decides: 0 }
    }
}
