//! What the stores of this crate share: the words of the history, for how long announcements count, and how damaged
//! tables are mended.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::select::Rank;

/// What to do about damaged tables, where the tokens are in `$table`. What gives the tokens up is never advised: those that
/// follow would be as small as those of leaders that resources have seen, and an old leader would not be refused.
#[cfg(any(feature = "sqlite", feature = "postgres", feature = "mysql"))]
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
#[cfg(any(feature = "sqlite", feature = "postgres", feature = "mysql"))]
pub(super) use repair;

/// Why a term is over that another candidate ended by taking the lease.
pub(crate) const TAKEN_OVER: &str = "taken-over";

/// Why the term is over that stands in the history for the moment in which an election was forgotten.
pub(crate) const FORGOTTEN: &str = "forgotten";

/// Whose that term is.
pub(crate) const NOBODY: &str = "nobody";

/// How many terms the history keeps of each election.
pub(super) const TERMS_KEPT: u32 = 1_000;

/// For how long an announcement counts. A candidate announces itself once per lease length; the store knows the
/// holder's, and how long the candidate has let pass since its last announcement.
pub(super) fn fresh_for(holders_lease: Option<Duration>, since_last: Option<Duration>) -> Duration {
    /// Where there is no row yet: three leases of the default length.
    const WITHOUT_A_ROW: Duration = Duration::from_secs(30);
    const LONGEST: Duration = Duration::from_secs(3 * 86_400);
    let period = holders_lease.max(since_last);
    period.map_or(WITHOUT_A_ROW, |period| period.saturating_mul(5) / 2).clamp(Duration::from_millis(250), LONGEST)
}

/// After how many times its freshness an announcement is forgotten.
pub(super) const FORGOTTEN_AFTER: u32 = 10;

/// The rank of one that waits, as observers are shown it: none of one that never asks.
pub(crate) fn shown_rank(rank: Rank) -> Option<Rank> {
    (rank != Rank::LAST).then_some(rank)
}

/// Milliseconds since 1970 by the wall clock, for people only.
pub(super) fn unix_ms() -> i64 {
    #[expect(clippy::disallowed_methods, reason = "it only informs people")]
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn freshness_follows_the_slower_of_lease_and_habit() {
        assert_eq!(fresh_for(None, None), Duration::from_secs(30));
        assert_eq!(fresh_for(Some(Duration::from_secs(10)), None), Duration::from_secs(25));
        assert_eq!(fresh_for(Some(Duration::from_secs(10)), Some(Duration::from_secs(20))), Duration::from_secs(50));
        assert_eq!(fresh_for(Some(Duration::ZERO), None), Duration::from_millis(250));
    }
}
