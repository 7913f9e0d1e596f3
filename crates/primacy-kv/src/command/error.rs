//! Requests that are refused before anything is done, in the words of Redis.

use alloc::borrow::Cow;
use alloc::format;
use alloc::string::String;

use crate::resp::{Reply, Text};

/// Why a request is refused: a code in capitals, and the reason.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct CommandError(Text);

/// How much of a request an error repeats.
const QUOTED_MAX: usize = 128;

impl CommandError {
    pub(super) const SYNTAX: Self = Self::new("ERR syntax error");
    pub(super) const NOT_AN_INTEGER: Self = Self::new("ERR value is not an integer or out of range");
    pub(super) const NOT_A_FLOAT: Self = Self::new("ERR value is not a valid float");
    pub(super) const KEY_TOO_LONG: Self = Self::new("ERR the key is longer than this store allows");
    pub(super) const VALUE_TOO_LONG: Self = Self::new("ERR string exceeds maximum allowed size");
    /// The keys of one command, or of one transaction, are in several hash slots.
    pub const CROSS_SLOT: Self = Self::new("CROSSSLOT Keys in request don't hash to the same slot");

    pub(super) const fn new(text: &'static str) -> Self {
        Self(Cow::Borrowed(text))
    }

    pub(super) fn of(text: String) -> Self {
        Self(text.into())
    }

    pub(super) fn wrong_number(name: &str) -> Self {
        Self::of(format!("ERR wrong number of arguments for '{name}' command"))
    }

    pub(super) fn expire_time(name: &str) -> Self {
        Self::of(format!("ERR invalid expire time in '{name}' command"))
    }

    pub(super) fn unknown_command(arguments: &[&[u8]]) -> Self {
        let mut first = String::new();
        for argument in arguments.iter().skip(1) {
            let Some(room) = QUOTED_MAX.checked_sub(first.len()).filter(|room| *room > 0) else { break };
            first += &format!("'{}' ", shortened(argument, room));
        }
        let name = shortened(arguments.first().copied().unwrap_or_default(), QUOTED_MAX);
        Self::of(format!("ERR unknown command '{name}', with args beginning with: {first}"))
    }

    pub(super) fn unknown_subcommand(container: &str, name: &[u8]) -> Self {
        let (name, container) = (shortened(name, QUOTED_MAX), container.to_uppercase());
        Self::of(format!("ERR unknown subcommand '{name}'. Try {container} HELP."))
    }

    pub(super) fn unsupported_option(option: &[u8]) -> Self {
        Self::of(format!("ERR Unsupported option {}", shortened(option, QUOTED_MAX)))
    }

    /// What the client is told.
    pub fn reply(&self) -> Reply {
        Reply::Error(self.0.clone())
    }
}

fn shortened(text: &[u8], max: usize) -> Cow<'_, str> {
    String::from_utf8_lossy(&text[..text.len().min(max)])
}
