//! For how long a hung client may hold the fence, in what servers count.

#[cfg(any(feature = "postgres", feature = "mysql", feature = "sqlx-postgres", feature = "sqlx-mysql", test))]
use std::time::Duration;

/// Milliseconds, rounded up: 0 would switch a server's timeout off, and more than fits makes it an error.
#[cfg(any(feature = "postgres", feature = "sqlx-postgres", test))]
pub(super) fn millis(within: Duration) -> i64 {
    let millis = within.as_nanos().div_ceil(1_000_000);
    i64::try_from(millis).unwrap_or(i64::MAX).clamp(1, i64::from(i32::MAX))
}

/// Whole seconds, rounded up; at most a year.
#[cfg(any(feature = "mysql", feature = "sqlx-mysql", test))]
pub(super) fn seconds(within: Duration) -> u64 {
    let whole = within.as_secs().saturating_add(u64::from(within.subsec_nanos() > 0));
    whole.clamp(1, 31_536_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_is_never_none_and_always_fits() {
        assert_eq!((millis(Duration::ZERO), seconds(Duration::ZERO)), (1, 1));
        assert_eq!(millis(Duration::from_micros(1_001)), 2);
        assert_eq!(seconds(Duration::from_millis(1_001)), 2);
        assert_eq!((millis(Duration::MAX), seconds(Duration::MAX)), (2_147_483_647, 31_536_000));
    }
}
