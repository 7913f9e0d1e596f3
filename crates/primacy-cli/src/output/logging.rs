//! The log on standard error: warnings by default, more with `-v`, or what `PRIMACY_LOG` says.

use std::io::{self, IsTerminal as _};

use tracing_subscriber::EnvFilter;

use crate::cli::Common;

/// Starts logging. A second start does nothing.
pub(crate) fn start(common: &Common) {
    let level = match (common.quiet, common.verbose) {
        (true, _) => "error",
        (false, 0) => "warn",
        (false, 1) => "primacy=info,warn",
        (false, 2) => "primacy=debug,info",
        (false, _) => "trace",
    };
    let filter = EnvFilter::try_from_env("PRIMACY_LOG").unwrap_or_else(|_| EnvFilter::new(level));
    let started = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr)
        .with_ansi(super::coloured(common.color, io::stderr().is_terminal()))
        .with_target(false)
        .try_init();
    // Who started it before has said how.
    drop(started);
}
