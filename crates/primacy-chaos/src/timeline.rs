//! What happened when, for people: printed as it happens, and kept for the report.

use std::fmt::Display;
use std::io::Write as _;

use crate::clock::Moment;

/// How many lines a report has of it.
const REPORTED: usize = 60;

/// The story of a run.
#[derive(Debug)]
pub(crate) struct Timeline {
    start: Moment,
    /// Which store's, where several runs print at once.
    prefix: String,
    quiet: bool,
    lines: Vec<String>,
}

impl Timeline {
    pub(crate) fn new(prefix: String, quiet: bool) -> Self {
        Self { start: Moment::now(), prefix, quiet, lines: Vec::new() }
    }

    /// Something happened just now.
    pub(crate) fn tell(&mut self, what: impl Display) {
        self.tell_at(Moment::now(), what);
    }

    /// Something happened.
    pub(crate) fn tell_at(&mut self, at: Moment, what: impl Display) {
        let line = format!("{} {:8.3}  {what}", self.prefix, at.since(self.start).as_secs_f64());
        if !self.quiet {
            say(&line);
        }
        self.lines.push(line);
    }

    fn last(&self, count: usize) -> &[String] {
        &self.lines[self.lines.len().saturating_sub(count)..]
    }

    /// The end of the story, if nobody has read it yet.
    pub(crate) fn for_report(&self) -> Vec<String> {
        if self.quiet { self.last(REPORTED).to_vec() } else { Vec::new() }
    }
}

/// Prints a line for people. A reader that has gone away is no reason to stop.
pub(crate) fn say(line: &str) {
    let _ = writeln!(std::io::stdout().lock(), "{line}");
}
