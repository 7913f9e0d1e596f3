//! Numbers as clients write them: integers as strictly as Redis reads them, and decimals that are added exactly.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

/// An integer in its one canonical form: no sign `+`, no leading zero, no space.
pub(crate) fn integer(text: &[u8]) -> Option<i64> {
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    let canonical = match digits {
        [] => false,
        [b'0'] => text.len() == 1,
        [first, ..] => *first != b'0' && digits.len() <= 19 && digits.iter().all(u8::is_ascii_digit),
    };
    if !canonical {
        return None;
    }
    core::str::from_utf8(text).ok()?.parse().ok()
}

/// The text of an integer.
pub(crate) fn integer_text(number: i64) -> Vec<u8> {
    use core::fmt::Write as _;
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = write!(text, "{number}");
    text.into_bytes()
}

/// How many digits a [`Decimal`] has behind the point: what Redis prints.
const FRACTION: u32 = 17;
const ONE: i128 = 10_i128.pow(FRACTION);
/// Longer texts are no numbers.
const TEXT_MAX: usize = 512;

/// A decimal number with 17 digits behind the point and up to 21 before it. Sums are exact, so they are the same on
/// every machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Decimal(i128);

impl Decimal {
    /// Nothing.
    pub const ZERO: Self = Self(0);

    /// Reads digits with an optional sign, point and exponent. What is beyond the last digit is rounded to the nearest,
    /// halves away from zero. `None` if it is anything else, or too large.
    pub fn parse(text: &[u8]) -> Option<Self> {
        if text.len() > TEXT_MAX {
            return None;
        }
        let (negative, text) = sign(text);
        let (mantissa, exponent) = match text.iter().position(|byte| matches!(byte, b'e' | b'E')) {
            Some(at) => (&text[..at], small_integer(&text[at + 1..])?),
            None => (text, 0),
        };
        let (whole, fraction) = match mantissa.iter().position(|byte| *byte == b'.') {
            Some(at) => (&mantissa[..at], &mantissa[at + 1..]),
            None => (mantissa, &b""[..]),
        };
        if whole.len() + fraction.len() == 0 {
            return None;
        }
        let mut number = 0_i128;
        // The power of ten by which `number` is too small.
        let mut power = exponent - i32::try_from(fraction.len()).ok()?;
        let mut is_full = false;
        for digit in whole.iter().chain(fraction) {
            if !digit.is_ascii_digit() {
                return None;
            }
            let longer = number.checked_mul(10).and_then(|number| number.checked_add(i128::from(digit - b'0')));
            match longer.filter(|_| !is_full) {
                Some(longer) => number = longer,
                None => (is_full, power) = (true, power + 1),
            }
        }
        let scaled = shifted(number, power + FRACTION.cast_signed())?;
        Some(Self(if negative { -scaled } else { scaled }))
    }

    /// The exact sum. `None` if it is too large.
    pub fn checked_add(self, other: Self) -> Option<Self> {
        self.0.checked_add(other.0).map(Self)
    }

    /// The number of units of the last digit.
    pub(crate) const fn units(self) -> i128 {
        self.0
    }

    /// As many units of the last digit.
    pub(crate) const fn of_units(units: i128) -> Self {
        Self(units)
    }
}

/// Without an exponent, and without zeros at the end.
impl fmt::Display for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (size, one) = (self.0.unsigned_abs(), ONE.unsigned_abs());
        let (whole, mut fraction) = (size / one, size % one);
        let minus = if self.0 < 0 { "-" } else { "" };
        write!(f, "{minus}{whole}")?;
        let mut width = FRACTION as usize;
        if fraction == 0 {
            return Ok(());
        }
        while fraction.is_multiple_of(10) {
            fraction /= 10;
            width -= 1;
        }
        write!(f, ".{fraction:0width$}")
    }
}

fn sign(text: &[u8]) -> (bool, &[u8]) {
    match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        _ => (false, text),
    }
}

/// An exponent. One that is far out of range is as good as 100,000.
fn small_integer(text: &[u8]) -> Option<i32> {
    let (negative, digits) = sign(text);
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let size = digits.iter().fold(0_i32, |size, digit| (size * 10 + i32::from(digit - b'0')).min(100_000));
    Some(if negative { -size } else { size })
}

/// `number` times ten to that power, rounded.
fn shifted(number: i128, power: i32) -> Option<i128> {
    if number == 0 {
        return Some(0);
    }
    match 10_i128.checked_pow(power.unsigned_abs()) {
        Some(factor) if power >= 0 => number.checked_mul(factor),
        Some(factor) => Some(number / factor + i128::from(number % factor >= factor - factor / 2)),
        None if power >= 0 => None,
        None => Some(0),
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn integers_have_one_form() {
        for (text, number) in [("0", 0), ("-1", -1), ("9223372036854775807", i64::MAX)] {
            assert_eq!(integer(text.as_bytes()), Some(number));
        }
        assert_eq!(integer(b"-9223372036854775808"), Some(i64::MIN));
        for text in ["", "-", "+1", "01", "-0", " 1", "1 ", "1.0", "9223372036854775808", "00", "12345678901234567890"]
        {
            assert_eq!(integer(text.as_bytes()), None, "{text}");
        }
    }

    fn sum(first: &str, second: &str) -> Option<String> {
        let sum = Decimal::parse(first.as_bytes())?.checked_add(Decimal::parse(second.as_bytes())?)?;
        Some(sum.to_string())
    }

    #[test]
    fn decimals_are_added_exactly() {
        for (first, second, expected) in [
            ("10.50", "0.1", "10.6"),
            ("5.0e3", "2.0e2", "5200"),
            ("10.6", "-5", "5.6"),
            ("0.1", "0.2", "0.3"),
            ("1", "-1.5", "-0.5"),
            ("-0", "0", "0"),
            (".5", "5.", "5.5"),
            ("+1", "1E-2", "1.01"),
            ("1e-18", "0", "0"),
            ("5e-18", "0", "0.00000000000000001"),
            ("1234567.1", "0.1", "1234567.2"),
            ("1e20", "1", "100000000000000000001"),
            ("0e999999999999", "1", "1"),
            ("0.00000000000000000000000000000000000000000000000000001", "2", "2"),
        ] {
            assert_eq!(sum(first, second).as_deref(), Some(expected), "{first} + {second}");
        }
    }

    #[test]
    fn other_texts_are_no_decimals() {
        for text in ["", "-", ".", "e1", "1e", "1e+", " 1", "1 ", "1.2.3", "0x1p3", "inf", "nan", "1e22", "1e999999999"]
        {
            assert_eq!(Decimal::parse(text.as_bytes()), None, "{text}");
        }
        assert_eq!(sum("1e21", "1e21"), None, "a sum may be too large");
    }

    proptest! {
        #[test]
        fn a_decimal_is_read_back(units in (i128::MIN + 1)..i128::MAX) {
            let number = Decimal(units);
            prop_assert_eq!(Decimal::parse(number.to_string().as_bytes()), Some(number));
        }

        #[test]
        fn any_text_is_read_or_refused(text: Vec<u8>) {
            Decimal::parse(&text);
            integer(&text);
        }

        #[test]
        fn integers_are_read_back(number: i64) {
            prop_assert_eq!(integer(&integer_text(number)), Some(number));
        }
    }
}
