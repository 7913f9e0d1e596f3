//! Who takes part and in what: candidate identity, readable labels, election names.

use alloc::string::{String, ToString};
use alloc::sync::Arc;
use core::fmt::{self, Write as _};
use core::str::FromStr;

/// The identity of one candidate in one run of its process: 128 random bits, never a host name (rule R5).
///
/// A process that restarts is another candidate, however it is called.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CandidateId(u128);

impl CandidateId {
    /// The identity with these bits. They must be random: two candidates with one identity can both lead.
    pub const fn from_bits(bits: u128) -> Self {
        Self(bits)
    }

    /// The bits, as they are stored.
    pub const fn to_bits(self) -> u128 {
        self.0
    }
}

impl fmt::Display for CandidateId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Debug for CandidateId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CandidateId({self})")
    }
}

impl FromStr for CandidateId {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.len() != 32 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(NameError::NotAnId);
        }
        u128::from_str_radix(text, 16).map(Self).map_err(|_| NameError::NotAnId)
    }
}

/// The most bytes that an election name or a label may have.
pub const NAME_BYTES_MAX: usize = 128;

/// Why a name was refused. Nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NameError {
    /// No bytes at all.
    #[error("it is empty; give 1 to {NAME_BYTES_MAX} bytes")]
    Empty,
    /// More than [`NAME_BYTES_MAX`] bytes.
    #[error("it has {bytes} bytes; give 1 to {NAME_BYTES_MAX}")]
    TooLong {
        /// How many it has.
        bytes: usize,
    },
    /// A control character, such as a newline or an escape.
    #[error("it contains the control character U+{code:04X}; leave it out")]
    Control {
        /// Its code point.
        code: u32,
    },
    /// Not 32 hexadecimal digits.
    #[error("a candidate id is 32 hexadecimal digits")]
    NotAnId,
}

macro_rules! name_type {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Arc<str>);

        impl $name {
            /// Checks and keeps the name.
            ///
            /// # Errors
            /// When it is empty, longer than [`NAME_BYTES_MAX`] bytes, or contains a control character.
            pub fn new(name: impl Into<String>) -> Result<Self, NameError> {
                let name = name.into();
                check_name(&name)?;
                Ok(Self(name.into()))
            }

            /// The name as it was given, for storing and comparing byte by byte. Print with `Display`, which escapes.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&escape(&self.0))
            }
        }

        impl FromStr for $name {
            type Err = NameError;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                Self::new(text.to_string())
            }
        }
    };
}

name_type! {
    /// What is being elected, such as `billing-scheduler`. Compared byte for byte (rule R5).
    ElectionName
}
name_type! {
    /// What people call a candidate, such as `web-3`. Two candidates may share one; nothing is decided by it but
    /// whom an operator's `promote` means, which can name a candidate by its id instead.
    Label
}

impl Default for ElectionName {
    /// `default`: the one that is meant where none is named.
    fn default() -> Self {
        Self("default".into())
    }
}

/// `text` for a terminal or a log: characters that are invisible or steer a terminal are escaped.
pub fn escape(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '\'' | '"' => shown.push(character),
            // A `String` takes every write.
            _ => drop(write!(shown, "{}", character.escape_debug())),
        }
    }
    shown
}

fn check_name(name: &str) -> Result<(), NameError> {
    if name.is_empty() {
        return Err(NameError::Empty);
    }
    if name.len() > NAME_BYTES_MAX {
        return Err(NameError::TooLong { bytes: name.len() });
    }
    match name.chars().find(|character| character.is_control()) {
        Some(control) => Err(NameError::Control { code: u32::from(control) }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;

    #[test]
    fn names_are_bounded_and_printable() {
        assert_eq!(Label::new(""), Err(NameError::Empty));
        assert!(Label::new("x".repeat(128)).is_ok());
        assert_eq!(Label::new("x".repeat(129)), Err(NameError::TooLong { bytes: 129 }));
        assert_eq!(Label::new("a\nb"), Err(NameError::Control { code: 10 }));
        assert_eq!(Label::new("\u{1b}[31m"), Err(NameError::Control { code: 27 }));
        assert!(Label::new("a'; DROP TABLE l;--").is_ok());
    }

    #[test]
    fn case_space_and_accent_make_other_names() {
        let names = ["alpha", "ALPHA", "alpha ", "alphá", "alpha\u{301}"];
        for (i, a) in names.iter().enumerate() {
            for b in &names[i + 1..] {
                assert_ne!(ElectionName::new(*a).expect("valid"), ElectionName::new(*b).expect("valid"));
            }
        }
    }

    #[test]
    fn output_is_escaped() {
        let label = Label::new("evil\u{202e}txt \"q\" \\").expect("no control characters");
        assert_eq!(format!("{label}"), "evil\\u{202e}txt \"q\" \\\\");
    }

    #[test]
    fn ids_print_and_parse() {
        let id = CandidateId::from_bits(0xabc);
        assert_eq!(format!("{id}").parse(), Ok(id));
        assert_eq!("xyz".parse::<CandidateId>(), Err(NameError::NotAnId));
        assert_eq!("+0000000000000000000000000000abc".parse::<CandidateId>(), Err(NameError::NotAnId));
    }
}
