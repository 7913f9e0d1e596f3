//! Scores as people and programs give them: decimal numbers of which more is better.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::str::FromStr;

use crate::ids::escape;

/// How good a candidate is by one measure, in the measure's own unit: more is better. Counted in thousandths.
///
/// Where less is better, as with latency, give the negative number. Fixed point rather than floating point: it has a
/// total order and no value that is not a number, `0.1` is `0.1`, and every machine computes the same class of it. More
/// than three decimals are rounded; a measure that is finer than that is given in a smaller unit. At most
/// [`Score::MOST`] either way, which holds byte positions in a log and transaction numbers.
///
/// Source: Becker et al. 2011 §3.3.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Score(i64);

/// Why a number is no score. Each says what to give instead.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ScoreError {
    /// Not a decimal number.
    #[error("'{text}' is not a number; write a score such as 0.7, or several by priority such as 3,0.25")]
    NotANumber {
        /// The text, escaped.
        text: String,
    },
    /// Infinite, or no number at all in the sense of floating point.
    #[error("a score must be finite; leave it out while it is not known")]
    NotFinite,
    /// Further from 0 than [`Score::MOST`].
    #[error("a score is from -{most} to {most}; give it in a larger unit", most = Score::MOST)]
    TooLarge,
    /// More than [`SCORES_MAX`] scores.
    #[error("{scores} scores are too many; give at most {SCORES_MAX}, those that matter most")]
    TooMany {
        /// How many.
        scores: usize,
    },
}

impl Score {
    /// The best score there is; its negative is the worst.
    pub const MOST: Self = Self(1_000_000_000_000_000_000);

    /// The score of this many thousandths.
    ///
    /// # Errors
    /// [`ScoreError::TooLarge`] beyond [`Score::MOST`].
    pub const fn from_thousandths(thousandths: i64) -> Result<Self, ScoreError> {
        if thousandths.unsigned_abs() > Self::MOST.0.unsigned_abs() {
            return Err(ScoreError::TooLarge);
        }
        Ok(Self(thousandths))
    }

    /// The score in thousandths.
    pub const fn thousandths(self) -> i64 {
        self.0
    }
}

impl From<i32> for Score {
    fn from(whole: i32) -> Self {
        Self(i64::from(whole) * 1_000)
    }
}

/// The nearest score to a number that a program has computed.
impl TryFrom<f64> for Score {
    type Error = ScoreError;

    fn try_from(number: f64) -> Result<Self, Self::Error> {
        if !number.is_finite() {
            return Err(ScoreError::NotFinite);
        }
        // A cast cuts off towards zero, and saturates: what is too large stays so.
        let half = if number < 0.0 { -0.5 } else { 0.5 };
        Self::from_thousandths((number * 1_000.0 + half) as i64)
    }
}

/// A decimal number, such as `0.7`, `-12` or `1.5e3`. Space around it is ignored, as after the output of a command.
impl FromStr for Score {
    type Err = ScoreError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let text = text.trim();
        if let Some(thousandths) = decimal(text) {
            return Self::from_thousandths(thousandths);
        }
        let is_named = text.bytes().any(|byte| byte.is_ascii_alphabetic() && !byte.eq_ignore_ascii_case(&b'e'));
        match text.parse::<f64>() {
            Ok(number) if is_named || number.is_finite() => Self::try_from(number),
            Ok(_) => Err(ScoreError::TooLarge),
            Err(_) => Err(ScoreError::NotANumber { text: escape(text) }),
        }
    }
}

/// As short as it can be: `0.7`, `-12`.
impl fmt::Display for Score {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, thousandths) = (self.0.unsigned_abs() / 1_000, self.0.unsigned_abs() % 1_000);
        let sign = if self.0 < 0 { "-" } else { "" };
        match thousandths {
            0 => write!(f, "{sign}{whole}"),
            _ if thousandths % 100 == 0 => write!(f, "{sign}{whole}.{}", thousandths / 100),
            _ if thousandths % 10 == 0 => write!(f, "{sign}{whole}.{:02}", thousandths / 10),
            _ => write!(f, "{sign}{whole}.{thousandths:03}"),
        }
    }
}

/// The thousandths of a decimal number without exponent, saturated; `None` when it is not one. Exact where a
/// floating-point number has too few digits.
fn decimal(text: &str) -> Option<i64> {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    let (whole, part) = digits.split_once('.').unwrap_or((digits, ""));
    let is_number = whole.bytes().chain(part.bytes()).all(|byte| byte.is_ascii_digit());
    if !is_number || whole.len() + part.len() == 0 {
        return None;
    }
    let digit = |byte: u8| i64::from(byte - b'0');
    let part = part.bytes().map(digit).chain([0; 4]);
    let rounded_up = part.clone().nth(3).is_some_and(|fourth| fourth >= 5);
    let thousandths = whole
        .bytes()
        .map(digit)
        .chain(part.take(3))
        .fold(0, |sum: i64, digit| sum.saturating_mul(10).saturating_add(digit))
        .saturating_add(i64::from(rounded_up));
    Some(if text.starts_with('-') { -thousandths } else { thousandths })
}

/// The most scores that a candidate has: a [`Rank`](super::Rank) has two elements more, for its name and for its
/// [`Turn`](super::Turn) among equals.
pub const SCORES_MAX: usize = super::Rank::ELEMENTS_MAX - 2;

/// A candidate's scores in order of priority: a later one decides only where all before it are in the same class.
///
/// On a command line they are separated by commas: `3,0.25` is two scores. None is one of its values too: a candidate
/// whose scores are not known.
///
/// Source: Becker et al. 2011 §5.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Scores(Vec<Score>);

impl Scores {
    /// These scores, the first of which counts most.
    ///
    /// # Errors
    /// [`ScoreError::TooMany`] when there are more than [`SCORES_MAX`].
    pub fn new(scores: Vec<Score>) -> Result<Self, ScoreError> {
        if scores.len() > SCORES_MAX {
            return Err(ScoreError::TooMany { scores: scores.len() });
        }
        Ok(Self(scores))
    }

    /// The scores, the first of which counts most.
    pub fn as_slice(&self) -> &[Score] {
        &self.0
    }
}

impl FromStr for Scores {
    type Err = ScoreError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::new(text.split(',').map(str::parse).collect::<Result<_, _>>()?)
    }
}

impl fmt::Display for Scores {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().enumerate().try_for_each(|(index, score)| {
            let comma = if index == 0 { "" } else { "," };
            write!(f, "{comma}{score}")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn numbers_are_read_exactly() {
        let numbers = [
            ("0.7", 700),
            ("3", 3_000),
            ("-12.5", -12_500),
            (" 0.25\n", 250),
            ("+.5", 500),
            ("5.", 5_000),
            ("-0", 0),
            ("0.0004", 0),
            ("0.0005", 1),
            ("-0.0005", -1),
            ("0.9996", 1_000),
            ("1.5e3", 1_500_000),
            ("1E-2", 10),
            ("000000000000000000000001", 1_000),
            ("999999999999999.999", 999_999_999_999_999_999),
            ("1000000000000000", 1_000_000_000_000_000_000),
        ];
        for (text, thousandths) in numbers {
            assert_eq!(text.parse(), Ok(Score(thousandths)), "{text:?}");
        }
    }

    #[test]
    fn what_is_no_finite_number_of_sensible_size_is_refused() {
        for text in ["inf", "-inf", "Infinity", "NaN", "nan"] {
            assert_eq!(text.parse::<Score>(), Err(ScoreError::NotFinite), "{text:?}");
        }
        for text in ["1000000000000000.001", "-1e16", "1e400", "99999999999999999999999999999999999999999999"] {
            assert_eq!(text.parse::<Score>(), Err(ScoreError::TooLarge), "{text:?}");
        }
        for text in ["", ".", "-", "1.2.3", "0x10", "one", "--1", "1 2", "\u{1b}1", "1_000"] {
            let error = text.parse::<Score>().expect_err("no number");
            assert!(matches!(error, ScoreError::NotANumber { .. }), "{text:?}: {error}");
        }
        for number in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            assert_eq!(Score::try_from(number), Err(ScoreError::NotFinite));
        }
        assert_eq!(Score::try_from(f64::MAX), Err(ScoreError::TooLarge));
        assert_eq!(Score::from_thousandths(i64::MIN), Err(ScoreError::TooLarge));
    }

    #[test]
    fn computed_numbers_become_the_nearest_score() {
        let numbers = [(0.7, 700), (-0.7, -700), (0.000_4, 0), (-0.000_6, -1), (1e-300, 0), (123.456_9, 123_457)];
        for (number, thousandths) in numbers {
            assert_eq!(Score::try_from(number), Ok(Score(thousandths)), "{number}");
        }
    }

    #[test]
    fn several_scores_are_read_in_order() {
        let scores: Scores = "3, 0.25,-1".parse().expect("three scores");
        assert_eq!(scores.as_slice(), [Score(3_000), Score(250), Score(-1_000)]);
        assert_eq!(scores.to_string(), "3,0.25,-1");
        assert_eq!("1,1,1,1,1,1,1,1".parse::<Scores>(), Err(ScoreError::TooMany { scores: 8 }));
        assert_eq!("1,,2".parse::<Scores>(), Err(ScoreError::NotANumber { text: String::new() }));
        assert_eq!(
            "1,fast".parse::<Scores>().expect_err("no number").to_string(),
            "'fast' is not a number; write a score such as 0.7, or several by priority such as 3,0.25"
        );
        assert_eq!(
            "1e16".parse::<Scores>().expect_err("too large").to_string(),
            "a score is from -1000000000000000 to 1000000000000000; give it in a larger unit"
        );
    }
}
