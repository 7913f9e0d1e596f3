//! Spans of time as people read them.

use std::time::Duration;

/// `3m 12s`, `2.1s`, `0.4ms`: two units at most, rounded down, so that what is left is never overstated.
pub(crate) fn span(span: Duration) -> String {
    let (secs, millis, micros) = (span.as_secs(), span.as_millis(), span.as_micros());
    match secs {
        0 if micros < 10_000 => format!("{}.{}ms", micros / 1_000, micros % 1_000 / 100),
        0 => format!("{millis}ms"),
        1..10 if millis % 1_000 < 100 => format!("{secs}s"),
        1..10 => format!("{secs}.{}s", millis % 1_000 / 100),
        10..60 => format!("{secs}s"),
        60..3_600 => two(secs / 60, "m", secs % 60, "s"),
        3_600..86_400 => two(secs / 3_600, "h", secs % 3_600 / 60, "m"),
        _ => two(secs / 86_400, "d", secs % 86_400 / 3_600, "h"),
    }
}

fn two(big: u64, big_unit: &str, small: u64, small_unit: &str) -> String {
    if small == 0 { format!("{big}{big_unit}") } else { format!("{big}{big_unit} {small}{small_unit}") }
}

/// The same for a promise of how long something takes at most: rounded up, and to a tenth of a second below a minute.
pub(crate) fn bound(bound: Duration) -> String {
    let millis = u64::try_from(bound.as_millis()).unwrap_or(u64::MAX);
    match bound.as_secs() {
        0 => format!("{}ms", millis.saturating_add(1)),
        1..60 => {
            let tenths = millis.div_ceil(100);
            format!("{}.{}s", tenths / 10, tenths % 10).replace(".0s", "s")
        }
        secs => span(Duration::from_secs(secs.saturating_add(1))),
    }
}

/// `2.1s ago`, or that it is not known.
pub(crate) fn ago(age: Option<Duration>) -> String {
    age.map_or_else(|| "at an unknown time".to_owned(), |age| format!("{} ago", span(age)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_read_well_at_every_size() {
        let cases = [
            (0, "0.0ms"),
            (450, "0.4ms"),
            (9_999, "9.9ms"),
            (250_000, "250ms"),
            (1_000_000, "1s"),
            (2_199_000, "2.1s"),
            (59_999_000, "59s"),
            (60_000_000, "1m"),
            (192_000_000, "3m 12s"),
            (3_600_000_000, "1h"),
            (8_580_000_000, "2h 23m"),
            (1_053_000_000_000, "12d 4h"),
        ];
        for (micros, text) in cases {
            assert_eq!(span(Duration::from_micros(micros)), text);
        }
    }

    #[test]
    fn bounds_are_never_understated() {
        for (millis, text) in [(7, "8ms"), (2_000, "2s"), (10_583, "10.6s"), (59_999, "60s"), (60_500, "1m 1s")] {
            assert_eq!(bound(Duration::from_millis(millis)), text);
        }
        assert!(bound(Duration::MAX).ends_with('h'));
    }
}
