//! The commands that are run in the place of a program, `--on-elected` and `--on-lost`, and how each of them ends.

use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};
use std::time::Duration;

use nix::unistd::Pid;
use serde::{Deserialize, Serialize};

use super::EXEC;
use super::process_tree::End;
use super::program::Rights;
use super::work::Hook;
use crate::cli::http::TOKEN_VARIABLE;

/// The commands, for `sh -c`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Hooks {
    pub(super) on_elected: String,
    pub(super) on_lost: String,
}

/// For whom a hook is run.
#[derive(Clone, Copy, Debug)]
pub(super) struct HookContext<'a> {
    pub(super) election: &'a str,
    pub(super) label: &'a str,
    pub(super) rights: Rights,
    /// The fencing token, unless the candidate has not led yet.
    pub(super) token: Option<u64>,
}

impl Hooks {
    /// Starts a hook in a process group of its own. It dies with this process.
    pub(super) fn spawn(&self, hook: Hook, context: HookContext<'_>) -> io::Result<Pid> {
        let command = match hook {
            Hook::Elected => &self.on_elected,
            Hook::Lost => &self.on_lost,
        };
        let mut shell = Command::new("/proc/self/exe");
        shell
            .arg0("primacy")
            .args([EXEC, &Pid::this().to_string(), context.rights.word(), "sh", "-c", command])
            .env("PRIMACY_ELECTION", context.election)
            .env("PRIMACY_NAME", context.label)
            .env_remove(TOKEN_VARIABLE)
            .stdin(Stdio::null())
            .process_group(0);
        match context.token {
            Some(token) => shell.env("PRIMACY_TOKEN", token.to_string()),
            // Another runner around this one may have set it.
            None => shell.env_remove("PRIMACY_TOKEN"),
        };
        Ok(Pid::from_raw(i32::try_from(shell.spawn()?.id()).map_err(io::Error::other)?))
    }
}

impl Hook {
    /// What people call it.
    pub(super) const fn option(self) -> &'static str {
        match self {
            Self::Elected => "--on-elected",
            Self::Lost => "--on-lost",
        }
    }
}

/// What became of a hook.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum HookEnd {
    /// It and all that it had started are gone.
    Ended(End),
    /// It was killed on purpose, and all that it had started.
    Killed,
    /// It could not be started.
    NotStarted(String),
}

impl HookEnd {
    /// `on_purpose`: it was killed by the process that had started it.
    pub(super) fn of(end: Option<End>, on_purpose: bool) -> Self {
        match end {
            // It was quicker.
            Some(End::Code(0)) => Self::Ended(End::Code(0)),
            _ if on_purpose => Self::Killed,
            Some(end) => Self::Ended(end),
            None => Self::Ended(End::Signal(nix::sys::signal::Signal::SIGKILL as i32)),
        }
    }

    pub(super) fn is_success(&self) -> bool {
        *self == Self::Ended(End::Code(0))
    }
}

/// How long a candidate stays out of the election after an `--on-elected` that has failed.
#[derive(Debug, Default)]
pub(super) struct Rests {
    failures: u32,
}

impl Rests {
    const LONGEST: Duration = Duration::from_secs(30);

    /// After one more failure.
    pub(super) fn next(&mut self) -> Duration {
        let rest = Duration::from_secs(1 << self.failures.min(5)).min(Self::LONGEST);
        self.failures += 1;
        rest
    }

    /// It has succeeded.
    pub(super) fn clear(&mut self) {
        self.failures = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rests_grow_up_to_half_a_minute_and_begin_anew_after_a_success() {
        let mut rests = Rests::default();
        let seconds = |rests: &mut Rests| rests.next().as_secs();
        assert_eq!([(); 7].map(|()| seconds(&mut rests)), [1, 2, 4, 8, 16, 30, 30]);
        rests.clear();
        assert_eq!(seconds(&mut rests), 1);
    }

    #[test]
    fn a_hook_that_was_quicker_than_its_killer_has_succeeded() {
        assert!(HookEnd::of(Some(End::Code(0)), true).is_success());
        assert_eq!(HookEnd::of(Some(End::Signal(9)), true), HookEnd::Killed);
        assert!(!HookEnd::of(Some(End::Code(1)), false).is_success());
        assert!(!HookEnd::of(None, false).is_success());
    }
}
