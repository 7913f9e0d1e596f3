//! A token in a frame.

use primacy::Token;
use serde::{Deserialize, Serialize};

/// A token as it is written: not every language reads all digits of a number in JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TokenText(pub(crate) Token);

impl Serialize for TokenText {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0.get())
    }
}

impl<'de> Deserialize<'de> for TokenText {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        token(&text).map(Self).ok_or_else(|| serde::de::Error::custom("it is no token"))
    }
}

/// The token with these digits.
pub(crate) fn token(digits: &str) -> Option<Token> {
    digits.parse().ok().and_then(Token::new)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_digits_of_one() {
        for wrong in ["", "-1", "1.0", "0x1", "18446744073709551616", "x", "9223372036854775808"] {
            assert!(serde_json::from_value::<TokenText>(wrong.into()).is_err(), "{wrong}");
        }
        assert!(serde_json::from_value::<TokenText>(7.into()).is_err(), "a number is none");
    }
}
