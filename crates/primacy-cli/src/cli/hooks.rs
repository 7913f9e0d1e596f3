//! The options of `run` for programs that stay warm.

use clap::Args;

use crate::failure::Failure;

/// What is run in the place of a program.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Options for programs that stay warm")]
pub(crate) struct HookArgs {
    /// Instead of a program: a command for sh that has the work begin, when this candidate leads
    #[arg(long, value_name = "CMD", hide_short_help = true)]
    on_elected: Option<String>,
    /// A command for sh that has the work stop, and succeeds only when it has
    ///
    /// It is run when the leadership is lost, and before the candidate campaigns. The lease is given back when it has succeeded.
    #[arg(long, value_name = "CMD", hide_short_help = true)]
    on_lost: Option<String>,
}

/// Why hooks do not go together with what else is asked for, if they do not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HookConflict {
    /// With a program.
    Program,
    /// With a PID namespace.
    Isolate,
}

impl HookConflict {
    pub(crate) fn of(has_program: bool, isolates: bool) -> Option<Self> {
        has_program.then_some(Self::Program).or_else(|| isolates.then_some(Self::Isolate))
    }

    /// The same for people, who have written options with this before them.
    pub(crate) fn message(self, dashes: &str) -> String {
        match self {
            Self::Program => {
                format!("{dashes}on-elected and {dashes}on-lost stand in the place of a program: leave it or them out")
            }
            Self::Isolate => format!(
                "{dashes}isolate is for a program that dies with primacy; what {dashes}on-elected has begun must outlive it: \
                 leave {dashes}isolate out"
            ),
        }
    }
}

impl HookArgs {
    /// The commands for both, if they are given: `--on-elected` first.
    pub(crate) fn check(&self) -> Result<Option<(String, String)>, Failure> {
        for (option, command) in [("--on-elected", &self.on_elected), ("--on-lost", &self.on_lost)] {
            if command.as_ref().is_some_and(|command| command.trim().is_empty()) {
                return Err(Failure::usage(format!(
                    "{option} has no command; if there is nothing to do, say so with {option} true"
                )));
            }
        }
        match (&self.on_elected, &self.on_lost) {
            (None, None) => Ok(None),
            (Some(elected), Some(lost)) => Ok(Some((elected.clone(), lost.clone()))),
            (Some(_), None) => Err(Failure::usage(
                "--on-elected needs --on-lost, too: without it nobody would know when the work has stopped",
            )),
            (None, Some(_)) => Err(Failure::usage("--on-lost needs --on-elected, too")),
        }
    }
}
