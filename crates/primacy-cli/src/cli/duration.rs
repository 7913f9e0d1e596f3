//! Durations as people write them on the command line: `250ms`, `10s`, `2m`, `1m 30s`.

use std::time::Duration;

use jiff::SignedDuration;
use jiff::fmt::friendly::SpanParser;

/// What is accepted, for messages and help.
pub(crate) const ACCEPTED: &str = "write a number with its unit, such as 250ms, 10s, 2m, 1h or 1m 30s";

/// Nothing that primacy waits for takes longer.
const MOST: SignedDuration = SignedDuration::from_hours(24 * 365);

/// Reads a duration. Zero is accepted with a unit only (`0s`), and the setting itself may still refuse it.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    let refused = || ACCEPTED.to_owned();
    // The friendly format also has `10:00:00` and `5 seconds ago`, which say nothing clear here.
    if text.contains([':', ',', '+', '-']) || text.contains("ago") {
        return Err(refused());
    }
    let duration: SignedDuration = SpanParser::new().parse_duration(text.trim()).map_err(|_| refused())?;
    if duration > MOST {
        return Err("longer than a year".to_owned());
    }
    Duration::try_from(duration).map_err(|_| refused())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_people_write_is_read() {
        let cases = [
            ("250ms", 250),
            ("10s", 10_000),
            ("2m", 120_000),
            ("1m 30s", 90_000),
            ("1m30s", 90_000),
            ("1.5s", 1_500),
            ("1h", 3_600_000),
            ("10 seconds", 10_000),
            ("0s", 0),
        ];
        for (text, millis) in cases {
            assert_eq!(parse(text), Ok(Duration::from_millis(millis)), "{text}");
        }
    }

    #[test]
    fn what_is_absurd_or_unclear_is_refused() {
        for text in [
            "",
            " ",
            "0",
            "10",
            "-1s",
            "1s ago",
            "1e309",
            "1e309s",
            "5 parsecs",
            "10:00:00",
            "99999999999999h",
            "NaNs",
            "∞s",
        ] {
            assert!(parse(text).is_err(), "{text:?}: {:?}", parse(text));
        }
    }
}
