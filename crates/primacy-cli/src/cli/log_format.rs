//! How lines of the log are written.

use clap::ValueEnum;

/// The form of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// For people
    Text,
    /// A JSON object on each line
    Json,
}
