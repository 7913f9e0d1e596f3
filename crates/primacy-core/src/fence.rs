//! The resource's side of a leadership: refuse what an older leader sends.

use crate::Token;

/// Remembers the highest token that a resource has seen and refuses smaller ones.
///
/// This is what makes leadership safe to act on: a paused process cannot know that its lease has ended, but the
/// resource that it writes to can. Keep the fence's [`highest`](Self::highest) token as durably as the
/// data that it protects, and check under the same lock or in the same transaction as the write.
///
/// ```
/// use primacy_core::{Fence, Token};
/// let (old, new) = (Token::new(7).unwrap(), Token::new(8).unwrap());
/// let mut fence = Fence::default();
/// assert!(fence.admit(old).is_ok());
/// assert!(fence.admit(new).is_ok());
/// assert!(fence.admit(old).is_err(), "the deposed leader's late write is refused");
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Fence {
    highest: Token,
}

/// A write came from a leadership that has been superseded. It must not be applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("token {offered} is stale: this resource has already seen token {highest}")]
pub struct StaleToken {
    /// The token of the refused write.
    pub offered: Token,
    /// The highest token seen before.
    pub highest: Token,
}

impl Fence {
    /// A fence that has already seen `highest`, for example as read back from where it is kept.
    pub const fn resume(highest: Token) -> Self {
        Self { highest }
    }

    /// The highest token seen.
    pub const fn highest(&self) -> Token {
        self.highest
    }

    /// Admits a write with this token, and remembers it.
    ///
    /// # Errors
    /// When a larger token has been seen, or the token is [`Token::NONE`]. The fence is unchanged then.
    pub fn admit(&mut self, token: Token) -> Result<(), StaleToken> {
        if token < self.highest || token == Token::NONE {
            return Err(StaleToken { offered: token, highest: self.highest });
        }
        self.highest = token;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_below_the_highest_and_never_nobody() {
        let mut fence = Fence::default();
        assert!(fence.admit(Token::NONE).is_err(), "a write without leadership");
        let token = |n| Token::new(n).expect("small");
        assert_eq!(fence.admit(token(5)), Ok(()));
        assert_eq!(fence.admit(token(5)), Ok(()), "a leader writes many times");
        assert_eq!(fence.admit(token(4)), Err(StaleToken { offered: token(4), highest: token(5) }));
        assert_eq!(Fence::resume(token(9)).admit(token(8)).map_err(|stale| stale.highest), Err(token(9)));
    }
}
