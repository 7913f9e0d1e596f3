//! The log on standard error: more with `-v`, or what `PRIMACY_LOG` says.

use std::io::{self, IsTerminal as _};
use std::sync::Once;

use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Layer as _};

use super::throttle::Throttle;
use crate::cli::{Common, LogFormat, log_filter};
use crate::failure::Failure;

/// What a command that only looks or orders logs by itself: what it has to say is its output.
pub(crate) const OBSERVING: &str = "error";

/// What `run` logs by itself: each transition of its candidate, who orders over HTTP, and what goes wrong while nobody looks.
pub(crate) const RUNNING: &str = "primacy::run=info,primacy::http::orders=info,warn";

/// What a voter logs by itself: it has nothing else to say, and somebody may look later.
pub(crate) const VOTING: &str = "primacy=info,warn";

/// What an agent logs by itself: each transition of a program, in its own words.
pub(crate) const HOLDING: &str = "primacy::agent=info,primacy::http::orders=info,warn";

/// What a node logs by itself: each transition of its groups, in its own words.
#[cfg(feature = "kv")]
pub(crate) const SERVING: &str = "primacy=info,primacy::driver=warn,primacy_kv=info,warn";

/// Starts logging at this level, unless the command line or the environment wants more or less. A second start does
/// nothing.
pub(crate) fn start(common: &Common, level: &str) {
    static STARTED: Once = Once::new();
    STARTED.call_once(|| subscribe(common, level));
}

fn subscribe(common: &Common, level: &str) {
    let level = match (common.quiet, common.verbose) {
        (true, _) => "error",
        (false, 0) => level,
        // What the driver tells of a leadership, `run` tells with what follows for the program.
        (false, 1) => "primacy=info,primacy::driver=warn,warn",
        (false, 2) => "primacy=debug,info",
        (false, _) => "trace",
    };
    // What cannot be read was refused with the command line.
    let filter = log_filter::from_environment().ok().flatten().unwrap_or_else(|| EnvFilter::new(level));
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(io::stderr)
        .with_ansi(common.log_format == LogFormat::Text && super::coloured(common.color, io::stderr().is_terminal()))
        .with_target(false)
        // A log that cannot be written is no reason to panic: the leader's program is watched all the same.
        .log_internal_errors(false);
    let lines = match common.log_format {
        LogFormat::Text => lines.boxed(),
        LogFormat::Json => lines.json().flatten_event(true).with_current_span(false).with_span_list(false).boxed(),
    };
    let lines = lines.with_filter(Throttle::default());
    let started = tracing_subscriber::registry().with(filter).with(lines).try_init();
    // It fails only where there is a log already.
    drop(started);
}

/// Why a process ends, on standard error, always: for people, or as a line of a log in JSON.
pub(crate) fn last_words(log: &mut dyn io::Write, form: LogFormat, failure: &Failure) {
    // Standard error may be closed; the exit code tells as well.
    let _ = match form {
        LogFormat::Text => writeln!(log, "primacy: {failure}"),
        LogFormat::Json => {
            let line =
                serde_json::json!({ "level": "ERROR", "message": failure.to_string(), "exit_code": failure.code });
            writeln!(log, "{line}")
        }
    };
}
