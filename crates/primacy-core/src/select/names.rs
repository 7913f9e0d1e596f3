//! Who is preferred by name, in which order, and who may never lead.

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;
use core::str::FromStr;

use crate::Label;
use crate::ids::{NameError, escape};

/// The most patterns in one list.
pub const PATTERNS_MAX: usize = 100;

/// Which labels are meant: one exactly, or all that fit, where each `*` stands for any bytes or none.
///
/// Compared byte for byte, as labels are (rule R5). There is no way to mean only a star: in a label it fits itself.
///
/// ```
/// use primacy_core::Label;
/// use primacy_core::select::Pattern;
/// let pattern: Pattern = "web-*.eu".parse()?;
/// assert!(pattern.fits(&Label::new("web-17.eu")?));
/// assert!(!pattern.fits(&Label::new("web-17.us")?));
/// # Ok::<(), primacy_core::NameError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pattern(Label);

impl Pattern {
    /// The pattern with this text.
    ///
    /// # Errors
    /// When it could not be a label, but for its stars: it is empty, longer than 128 bytes, or has control characters.
    pub fn new(text: impl Into<String>) -> Result<Self, NameError> {
        Label::new(text).map(Self)
    }

    /// Whether `label` is meant.
    pub fn fits(&self, label: &Label) -> bool {
        self.fits_name(label.as_str())
    }

    /// Whether all that fits the other pattern fits this one, too, as far as their texts show.
    pub fn covers(&self, other: &Self) -> bool {
        self.fits(&other.0)
    }

    /// Whether this name is meant, of an election or in a certificate.
    pub fn fits_name(&self, name: &str) -> bool {
        let (pattern, name) = (self.0.as_str().as_bytes(), name.as_bytes());
        let (mut at, mut seen) = (0, 0);
        // The last star, and where in the name what follows it was tried: only that one ever has to take more.
        let mut star: Option<(usize, usize)> = None;
        while seen < name.len() {
            if pattern.get(at) == Some(&b'*') {
                star = Some((at, seen));
                at += 1;
            } else if pattern.get(at) == Some(&name[seen]) {
                (at, seen) = (at + 1, seen + 1);
            } else if let Some((of_star, tried)) = star {
                star = Some((of_star, tried + 1));
                (at, seen) = (of_star + 1, tried + 1);
            } else {
                return false;
            }
        }
        pattern[at..].iter().all(|byte| *byte == b'*')
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for Pattern {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::new(text)
    }
}

/// Why patterns were refused. Each says what to write instead.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NamesError {
    /// One of them is no name.
    #[error("name {number} of the list does not do: {error}; separate names by single commas, such as web-1,web-*")]
    NoName {
        /// Which one, counted from 1.
        number: usize,
        /// What is wrong with it.
        error: NameError,
    },
    /// The same one twice in a list.
    #[error("'{pattern}' is there twice; leave one out")]
    Twice {
        /// The pattern, escaped.
        pattern: String,
    },
    /// The same one is preferred and may never lead.
    #[error("'{pattern}' is preferred and may never lead; choose one of the two")]
    Both {
        /// The pattern, escaped.
        pattern: String,
    },
    /// More than [`PATTERNS_MAX`] in a list.
    #[error("{patterns} names are too many; give at most {PATTERNS_MAX}, or patterns such as web-*")]
    TooMany {
        /// How many.
        patterns: usize,
    },
}

/// Patterns in order of preference. On a command line they are separated by commas: `web-1,web-*`.
///
/// Space around a pattern in such a list is left out; a label that has a comma, or space at an end, is given through
/// [`Patterns::new`], or with a star in its place.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Patterns(Vec<Pattern>);

impl Patterns {
    /// These patterns, the first of which is preferred most.
    ///
    /// # Errors
    /// When there are more than [`PATTERNS_MAX`], or one is there twice.
    pub fn new(patterns: Vec<Pattern>) -> Result<Self, NamesError> {
        if patterns.len() > PATTERNS_MAX {
            return Err(NamesError::TooMany { patterns: patterns.len() });
        }
        let again = patterns.iter().enumerate().find(|(index, pattern)| patterns[..*index].contains(pattern));
        match again {
            Some((_, pattern)) => Err(NamesError::Twice { pattern: pattern.to_string() }),
            None => Ok(Self(patterns)),
        }
    }

    /// The patterns, the first of which is preferred most.
    pub fn as_slice(&self) -> &[Pattern] {
        &self.0
    }

    /// Which pattern is the first that means `label`, counted from 0.
    pub fn first_fitting(&self, label: &Label) -> Option<usize> {
        self.0.iter().position(|pattern| pattern.fits(label))
    }
}

impl FromStr for Patterns {
    type Err = NamesError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let pattern = |(index, text): (usize, &str)| {
            Pattern::new(text.trim()).map_err(|error| NamesError::NoName { number: index + 1, error })
        };
        Self::new(text.split(',').enumerate().map(pattern).collect::<Result<_, _>>()?)
    }
}

impl fmt::Display for Patterns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().enumerate().try_for_each(|(index, pattern)| {
            let comma = if index == 0 { "" } else { "," };
            write!(f, "{comma}{pattern}")
        })
    }
}

/// Preference by name: these first and in this order, then everybody else, and those never.
///
/// All candidates of an election should have the same lists. Where they differ, as in the middle of a change, the worst
/// is that a less preferred one asks first. Patterns that are added at the end change nothing for those before.
///
/// Sources: HAZARDS, "What users ask for", 4 (preferred leader, region awareness) and 15 (members that never lead).
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Names {
    prefer: Patterns,
    never: Patterns,
}

impl Names {
    /// Prefers the first list, in its order, and lets none of the second ever lead: who is in both never leads.
    ///
    /// # Errors
    /// [`NamesError::Both`] when the same pattern is in both lists, which is a mistake. `never` may mean some of those
    /// that are preferred: `--prefer eu-* --never eu-backup`.
    pub fn new(prefer: Patterns, never: Patterns) -> Result<Self, NamesError> {
        match prefer.0.iter().find(|pattern| never.0.contains(pattern)) {
            Some(pattern) => Err(NamesError::Both { pattern: escape(pattern.0.as_str()) }),
            None => Ok(Self { prefer, never }),
        }
    }

    /// Who is preferred.
    pub const fn prefer(&self) -> &Patterns {
        &self.prefer
    }

    /// Who may never lead.
    pub const fn never(&self) -> &Patterns {
        &self.never
    }

    /// The element of a rank for this label: -100 for who fits the first preferred pattern, -99 for the second and so on,
    /// 0 for everybody else, as for a candidate that knows no names. `None` for who may never lead.
    pub fn place(&self, label: &Label) -> Option<i32> {
        if self.never.first_fitting(label).is_some() {
            return None;
        }
        // Counted from the front, so that a longer list agrees with a shorter one about what both have.
        let ahead = |index| (PATTERNS_MAX - index) as i32;
        Some(self.prefer.first_fitting(label).map_or(0, |index| -ahead(index)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;

    fn fits(pattern: &str, label: &str) -> bool {
        Pattern::new(pattern).expect("a pattern").fits(&Label::new(label).expect("a label"))
    }

    fn names(prefer: &str, never: &str) -> Result<Names, NamesError> {
        Names::new(prefer.parse()?, never.parse()?)
    }

    #[test]
    fn stars_stand_for_any_bytes_or_none() {
        let fitting = [
            ("a", "a"),
            ("*", "a"),
            ("a*", "a"),
            ("*a", "a"),
            ("**a**", "a"),
            ("a*c", "abbbc"),
            ("*b*d", "abcbd"),
            ("a*ab", "aabab"),
            ("*.eu", "web.eu.eu"),
            ("ä*", "äö"),
            ("a*b", "a*b"),
        ];
        for (pattern, label) in fitting {
            assert!(fits(pattern, label), "{pattern} {label}");
        }
        let others =
            [("a", "A"), ("a", "aa"), ("a*", "ba"), ("*a", "ab"), ("a*c", "abcb"), ("a*b*c", "acb"), ("?", "a")];
        for (pattern, label) in others {
            assert!(!fits(pattern, label), "{pattern} {label}");
        }
    }

    #[test]
    fn a_hostile_pattern_is_answered_at_once() {
        let (pattern, label) = ("*a".repeat(63) + "*b", "a".repeat(128));
        assert!(!fits(&pattern, &label));
    }

    #[test]
    fn the_preferred_come_first_then_all_others_and_some_never() {
        let names = names("db-1, eu-*,db-*", "eu-backup,*.test").expect("names");
        let place = |label: &str| names.place(&Label::new(label).expect("a label"));
        let places = [
            ("db-1", Some(-100)),
            ("eu-7", Some(-99)),
            ("db-2", Some(-98)),
            ("web", Some(0)),
            ("eu-backup", None),
            ("db-1.test", None),
        ];
        for (label, expected) in places {
            assert_eq!(place(label), expected, "{label}");
        }
        let longer = Names::new("db-1,eu-*,db-*,more".parse().expect("patterns"), Patterns::default()).expect("names");
        assert_eq!(longer.place(&Label::new("db-1").expect("a label")), Some(-100));
        assert_eq!(Names::default().place(&Label::new("db-1").expect("a label")), Some(0));
    }

    #[test]
    fn lists_that_make_no_sense_are_refused_with_what_does() {
        let told = |prefer, never| names(prefer, never).expect_err("no names").to_string();
        let list = "separate names by single commas, such as web-1,web-*";
        assert_eq!(
            told("a,,b", "c"),
            format!("name 2 of the list does not do: it is empty; give 1 to 128 bytes; {list}")
        );
        assert_eq!(told("", "c"), format!("name 1 of the list does not do: it is empty; give 1 to 128 bytes; {list}"));
        assert_eq!(told("a,b,a", "c"), "'a' is there twice; leave one out");
        assert_eq!(told("a", "b,a"), "'a' is preferred and may never lead; choose one of the two");
        assert!(told("a\u{7}", "b").contains("control character U+0007"));
        let many: alloc::vec::Vec<String> = (0..=PATTERNS_MAX).map(|number| format!("n{number}")).collect();
        assert_eq!(told(&many.join(","), "b"), "101 names are too many; give at most 100, or patterns such as web-*");
        assert!(names(&many[1..].join(","), "b").is_ok());
    }

    #[test]
    fn lists_print_as_they_are_read() {
        let patterns: Patterns = " a ,b*".parse().expect("patterns");
        assert_eq!(patterns.to_string(), "a,b*");
        assert_eq!(Patterns::default().to_string(), "");
    }
}
