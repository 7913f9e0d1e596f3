//! Why a command could not do what was asked: one line for people, one code for scripts.

use std::fmt;
use std::process::ExitCode;

use crate::secret;

/// The exit codes that have one meaning in every command.
pub(crate) mod code {
    /// The order was refused, or there is nothing to show.
    pub(crate) const REFUSED: u8 = 1;
    /// Wrong usage: nothing was tried.
    pub(crate) const USAGE: u8 = 2;
    /// What was asked for stands, but has not come true.
    pub(crate) const PENDING: u8 = 3;
    /// The store could not be reached or read (`EX_UNAVAILABLE`).
    pub(crate) const UNAVAILABLE: u8 = 69;
    /// The output could not be written (`EX_IOERR`).
    pub(crate) const OUTPUT: u8 = 74;
}

/// The most characters of a message: it may quote what somebody typed.
const MESSAGE_MOST: usize = 400;

/// The end of a command that failed. Its text is one line without control characters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    /// The exit code.
    pub(crate) code: u8,
    message: String,
}

impl Failure {
    /// Wrong usage.
    pub(crate) fn usage(message: impl AsRef<str>) -> Self {
        Self::new(code::USAGE, message)
    }

    /// Refused, with nothing changed.
    pub(crate) fn refused(message: impl AsRef<str>) -> Self {
        Self::new(code::REFUSED, message)
    }

    /// The store could not be reached or read.
    pub(crate) fn unavailable(message: impl AsRef<str>) -> Self {
        Self::new(code::UNAVAILABLE, message)
    }

    /// A failure with this code.
    pub(crate) fn new(code: u8, message: impl AsRef<str>) -> Self {
        // Also here: what was typed in the wrong place may have been a secret.
        let message = &secret::without(message.as_ref());
        let mut line: String =
            message.chars().take(MESSAGE_MOST).map(|c| if c.is_control() { ' ' } else { c }).collect();
        if line.len() < message.len() {
            line.push('…');
        }
        Self { code, message: line }
    }

    /// The same, with something more to know.
    pub(crate) fn with(self, more: &str) -> Self {
        Self::new(self.code, format!("{}; {more}", self.message))
    }

    /// As the process's exit code.
    pub(crate) fn exit_code(&self) -> ExitCode {
        ExitCode::from(self.code)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}
