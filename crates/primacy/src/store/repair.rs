//! What to do about damaged tables.

/// What to do about damaged tables, where the tokens are in `$table`. What gives the tokens up is never advised: those that
/// follow would be as small as those of leaders that resources have seen, and an old leader would not be refused.
macro_rules! repair {
    ($table:literal) => {
        concat!(
            "Stop all candidates and mend the tables, or restore a backup, and then raise the tokens in ",
            $table,
            " above every one that was granted (the page on stores says how): where tokens repeat, an old leader is not \
             refused"
        )
    };
}
pub(super) use repair;
