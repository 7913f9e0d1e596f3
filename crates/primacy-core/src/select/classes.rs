//! A score turned into an equivalence class that does not flap when the score wavers at a border.

use core::fmt;
use core::str::FromStr;

use super::score::{Score, ScoreError};

/// Turns one changing [`Score`] into classes of equal width, and stays in a class until a border is passed by a margin.
///
/// Class k reaches from k × width up to, and without, (k + 1) × width. The first score decides by that alone. From then
/// on the class changes upwards when the score is at least a margin above the upper border, downwards when it is more
/// than a margin below the lower one, and it changes only as far as such borders lie behind. So:
///
/// * a score that stays within one margin of the first never changes the class;
/// * a score that wavers by no more than two margins, from the highest to the lowest, changes it in one direction only;
/// * a score that only rises, or only falls, crosses each border once, at the same score however large its steps are.
///
/// The class goes into a [`Rank`](super::Rank) with its sign turned, since more score is better and less rank leads. A
/// score that is not known has class 0 there, as one from 0 up to the width.
///
/// As text: `10:2` is a width of 10 and a margin of 2; `10` alone has the usual margin of half a width, with which a
/// score that wavers by less than a width does not flap.
///
/// Source: Becker et al. 2011 §5 (equivalence ranges, "10 ms, 20 ms, etc."). The margin is ours: the paper's ranges flap.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Classes {
    /// In thousandths, at least 1.
    width: i64,
    /// In thousandths, 0 to `width`.
    margin: i64,
    /// Of the last score; none before the first. Fits an `i32` after `turned`.
    class: Option<i64>,
}

/// Why classes or a score for them were refused. Nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ClassesError {
    /// The width is not positive.
    #[error(
        "a width of {width} is too small; choose at least 0.001, and give scores in a smaller unit where that is coarse"
    )]
    Width {
        /// What was asked for.
        width: Score,
    },
    /// The margin is negative or wider than a class.
    #[error("a margin of {margin} does not fit classes of width {width}; choose 0 to {width}")]
    Margin {
        /// The width.
        width: Score,
        /// The margin that was asked for.
        margin: Score,
    },
    /// The score lies more classes from 0 than a rank can hold.
    #[error("a score of {score} is too far from 0 for classes of width {width}; choose a width of at least {least}")]
    TooFar {
        /// The score.
        score: Score,
        /// The width.
        width: Score,
        /// The least width with which the score has a class, when the margin stays.
        least: Score,
    },
    /// Not written as a width, or a width, a colon and a margin.
    #[error("classes are written WIDTH or WIDTH:MARGIN, such as 10:2: {0}")]
    NotANumber(ScoreError),
}

/// The furthest class from 0 in either direction: its negative fits an `i32` too.
const CLASS_MOST: i64 = i32::MAX as i64;

impl Classes {
    /// A class for each thousandth, without margin: every difference counts. For scores that people set; what is
    /// measured needs a width, or the candidate that is ahead by noise is the better one.
    pub const EACH: Self = Self { width: 1, margin: 0, class: None };

    /// Classes of this width with this margin.
    ///
    /// # Errors
    /// When the width is less than 0.001, or the margin is negative or more than the width.
    pub fn new(width: Score, margin: Score) -> Result<Self, ClassesError> {
        if width < Self::EACH.width() {
            return Err(ClassesError::Width { width });
        }
        if !(Score::default()..=width).contains(&margin) {
            return Err(ClassesError::Margin { width, margin });
        }
        Ok(Self { width: width.thousandths(), margin: margin.thousandths(), class: None })
    }

    /// Classes of this width with a margin of half of it.
    ///
    /// # Errors
    /// When the width is less than 0.001.
    pub fn with_width(width: Score) -> Result<Self, ClassesError> {
        Self::new(width, within(width.thousandths() / 2))
    }

    /// How wide a class is.
    pub fn width(&self) -> Score {
        within(self.width)
    }

    /// By how much a border must be passed.
    pub fn margin(&self) -> Score {
        within(self.margin)
    }

    /// Takes the next score and gives the element of a rank for its class: the better the score, the smaller it is.
    ///
    /// # Errors
    /// [`ClassesError::TooFar`] when the score lies more than 2,147,483,647 classes from 0. The class stays as it was.
    pub fn observe(&mut self, score: Score) -> Result<i32, ClassesError> {
        let element = self.element(score)?;
        self.settle(element);
        Ok(element)
    }

    /// Forgets the scores so far: the next one is a first one.
    pub fn forget(&mut self) {
        self.class = None;
    }

    /// What [`observe`](Self::observe) would give.
    pub(super) fn element(&self, score: Score) -> Result<i32, ClassesError> {
        let thousandths = score.thousandths();
        // No sum overflows: all three are at most `Score::MOST`, a ninth of what fits.
        let lowest = (thousandths - self.margin).div_euclid(self.width);
        let highest = (thousandths + self.margin).div_euclid(self.width);
        let class = self.class.unwrap_or(thousandths.div_euclid(self.width)).clamp(lowest, highest);
        if lowest < -CLASS_MOST || highest > CLASS_MOST {
            let furthest = (thousandths.unsigned_abs() + self.margin.unsigned_abs()).cast_signed();
            let least = within(furthest / CLASS_MOST + 1);
            return Err(ClassesError::TooFar { score, width: self.width(), least });
        }
        // Within ± `CLASS_MOST`, which an `i32` holds.
        Ok(-class as i32)
    }

    /// Takes over what [`element`](Self::element) gave.
    pub(super) fn settle(&mut self, element: i32) {
        self.class = Some(-i64::from(element));
    }
}

/// [`Classes::EACH`].
impl Default for Classes {
    fn default() -> Self {
        Self::EACH
    }
}

impl FromStr for Classes {
    type Err = ClassesError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let number = |text: &str| text.parse().map_err(ClassesError::NotANumber);
        match text.split_once(':') {
            Some((width, margin)) => Self::new(number(width)?, number(margin)?),
            None => Self::with_width(number(text)?),
        }
    }
}

/// `10:2`, always with the margin.
impl fmt::Display for Classes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.width(), self.margin())
    }
}

/// The score of thousandths that are known to be within bounds.
fn within(thousandths: i64) -> Score {
    Score::from_thousandths(thousandths).unwrap_or(Score::MOST)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;
    use alloc::vec::Vec;

    fn classes(text: &str) -> Classes {
        text.parse().expect("classes")
    }

    fn score(text: &str) -> Score {
        text.parse().expect("a score")
    }

    #[test]
    fn a_border_must_be_passed_by_the_margin() {
        let mut classes = classes("10:2");
        let scores = ["9.999", "10", "11.999", "12", "10", "8", "7.999", "31.999", "-2", "-2.001", "-10"];
        let elements: Vec<i32> = scores.iter().map(|text| classes.observe(score(text)).expect("a class")).collect();
        assert_eq!(elements, [0, 0, 0, -1, -1, -1, 0, -2, 0, 1, 1]);
    }

    #[test]
    fn the_first_score_decides_without_margin() {
        for (text, element) in [("0", 0), ("9.999", 0), ("10", -1), ("-0.001", 1), ("-10", 1), ("-10.001", 2)] {
            assert_eq!(classes("10:5").observe(score(text)), Ok(element), "{text}");
        }
    }

    #[test]
    fn the_paper_elects_in_the_lowest_latency_class() {
        // §5: latency in classes of 10 ms, given as a negative number.
        let element = |latency: &str| classes("10:0").observe(score(latency)).expect("a class");
        assert_eq!(element("-12"), element("-19.9"));
        assert!(element("-9.9") < element("-12") && element("-12") < element("-42"));
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_what_does() {
        let told = |text: &str| text.parse::<Classes>().expect_err("no classes").to_string();
        let width = |width| {
            alloc::format!(
                "a width of {width} is too small; choose at least 0.001, and give scores in a smaller unit where that is coarse"
            )
        };
        assert_eq!(told("0"), width("0"));
        assert_eq!(told("-1"), width("-1"));
        assert_eq!(told("0.0001:0"), width("0"));
        assert_eq!(told("1:2"), "a margin of 2 does not fit classes of width 1; choose 0 to 1");
        assert_eq!(told("1:-0.5"), "a margin of -0.5 does not fit classes of width 1; choose 0 to 1");
        assert!(told("wide").starts_with("classes are written WIDTH or WIDTH:MARGIN, such as 10:2: 'wide' is not"));
        assert!(matches!("inf".parse::<Classes>(), Err(ClassesError::NotANumber(ScoreError::NotFinite))));
        assert_eq!(classes("10").to_string(), "10:5");
        assert_eq!(classes("0.001"), Classes::EACH);
    }

    #[test]
    fn a_score_too_far_from_zero_changes_nothing_and_names_the_width_that_holds_it() {
        for text in ["2147483.648", "-2147483.648", "3000000000", "-1000000000000000", "1000000000000000"] {
            for margin in ["0", "0.001"] {
                let mut each = classes("0.001").clone();
                each.margin = score(margin).thousandths();
                each.observe(score("0.005")).expect("near 0");
                let before = each.clone();
                let Err(ClassesError::TooFar { least, .. }) = each.observe(score(text)) else {
                    panic!("{text} has a class of width 0.001");
                };
                assert_eq!(each, before);
                let mut wider = Classes::new(least, each.margin()).expect("wider");
                assert!(wider.observe(score(text)).is_ok(), "{text} in classes of {least}");
            }
        }
        assert_eq!(Classes::EACH.clone().observe(score("2147483.647")), Ok(-i32::MAX));
        assert_eq!(Classes::EACH.clone().observe(score("-2147483.647")), Ok(i32::MAX));
    }

    #[test]
    fn forgotten_scores_do_not_hold_the_next_one() {
        let mut classes = classes("10:5");
        assert_eq!(classes.observe(score("9")), Ok(0));
        assert_eq!(classes.observe(score("14")), Ok(0));
        classes.forget();
        assert_eq!(classes.observe(score("14")), Ok(-1));
    }
}
