//! When a lease was granted, by what a candidate logs (`primacy run --verbose`).

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use jiff::Timestamp;
use primacy::clock;

/// When the lease with this token was granted, by the log of its candidate, whose program began to run at `began`: both by the machine's boot
/// clock, in nanoseconds.
pub(crate) fn granted(log: &Path, token: u64, began: u64) -> Result<u64> {
    let at = read(&fs::read_to_string(log)?, token);
    let at = at.with_context(|| format!("{} does not tell of token {token}", log.display()))?;
    // How far the wall clock, which logs go by, is ahead.
    let ahead = Timestamp::now().as_nanosecond() - i128::from(clock::boot_nanos().context("no boot clock")?);
    let at = u64::try_from(at.as_nanosecond() - ahead)?;
    ensure!(at <= began, "the wall clock was set while this was measured");
    Ok(at)
}

fn read(log: &str, token: u64) -> Option<Timestamp> {
    let token = format!(" with token {token}");
    let line = log.lines().find(|line| line.contains(" this candidate leads ") && line.ends_with(&token))?;
    line.split(' ').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn when_a_lease_was_granted_is_read_from_the_log() {
        let log = "\
2026-11-22T07:10:44.000001Z  INFO this candidate leads default with token 1
2026-11-22T07:10:44.500000Z  INFO gives back the lease with token 12
2026-11-22T07:10:45.123456Z  INFO this candidate leads default with token 12
";
        let nanos = |token| read(log, token).map(|at| at.as_nanosecond() % 1_000_000_000);
        assert_eq!((nanos(1), nanos(12), nanos(2)), (Some(1_000), Some(123_456_000), None));
    }
}
