//! The fencing token: one number per leadership that only grows.

use core::fmt;
use core::str::FromStr;

/// The number of a leadership. Every new leadership of an election has a larger one than all before it (rule R6).
///
/// It fits a signed SQL `BIGINT`: the store's epoch (23 bits, 0 where the store never loses commits) above a counter of
/// 40 bits. A counter that is used up once a millisecond lasts 34 years.
///
/// ```
/// use primacy_core::Token;
/// let first = Token::NONE.next(0);
/// assert_eq!(first.get(), 1);
/// assert!(first.next(1) > first.next(0), "a new epoch of the store outranks every token of the old one");
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(u64);

impl Token {
    /// Below every token that is ever granted.
    pub const NONE: Self = Self(0);
    /// The largest token there can be.
    pub const MAX: Self = Self(i64::MAX as u64);

    const COUNTER_BITS: u32 = 40;

    /// The token with this number, or `None` if it does not fit a signed 64-bit integer.
    pub const fn new(number: u64) -> Option<Self> {
        if number <= Self::MAX.0 { Some(Self(number)) } else { None }
    }

    /// The number itself, as it is stored, printed and handed to a child as `PRIMACY_TOKEN`.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The store's epoch in this token.
    pub const fn epoch(self) -> u32 {
        (self.0 >> Self::COUNTER_BITS) as u32
    }

    /// The counter in this token.
    pub const fn counter(self) -> u64 {
        self.0 & ((1 << Self::COUNTER_BITS) - 1)
    }

    /// The token that a store with this epoch grants after `self`. Larger than `self` unless the counter is used up,
    /// where it stays, and a candidate refuses it as not larger.
    #[must_use]
    pub const fn next(self, epoch: u32) -> Self {
        let epoch = if epoch > self.epoch() { epoch } else { self.epoch() };
        let next = ((epoch as u64) << Self::COUNTER_BITS).saturating_add(self.counter() + 1);
        if next > Self::MAX.0 { self } else { Self(next) }
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The text is not a number from 0 to 9223372036854775807.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a token is a whole number from 0 to 9223372036854775807")]
pub struct ParseTokenError;

impl FromStr for Token {
    type Err = ParseTokenError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse().ok().and_then(Self::new).ok_or(ParseTokenError)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn next_always_grows_until_the_end() {
        let mut token = Token::NONE;
        for epoch in [0, 0, 1, 0, 7, 3, (1 << 23) - 1] {
            let next = token.next(epoch);
            assert!(next > token, "{next} after {token}");
            assert!(next.epoch() >= epoch);
            token = next;
        }
        assert_eq!(Token::MAX.next(0), Token::MAX);
    }

    #[test]
    fn only_signed_numbers_parse() {
        assert_eq!("42".parse(), Ok(Token(42)));
        assert_eq!("9223372036854775807".parse(), Ok(Token::MAX));
        for bad in ["", "-1", "9223372036854775808", "1e3", " 1"] {
            assert_eq!(bad.parse::<Token>(), Err(ParseTokenError), "{bad:?}");
        }
    }
}
