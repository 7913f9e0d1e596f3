//! What searches came to, as tables for people.

use std::fmt;
use std::io::{self, Write};
use std::time::{Duration, Instant};

use super::outcome::{Outcome, Searched};
use super::visit::{hunt, search};

/// A complete search that has not been run.
pub struct Search {
    /// For the table.
    pub name: &'static str,
    run: Box<dyn FnOnce(usize) -> Outcome>,
}

impl fmt::Debug for Search {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl Search {
    /// The search of this model.
    pub fn new(model: impl Searched) -> Self {
        Self { name: model.name(), run: Box::new(|threads| search(model, threads)) }
    }

    /// Visits every state, on this many threads.
    pub fn run(self, threads: usize) -> Outcome {
        (self.run)(threads)
    }
}

/// A hunt that has not been run: a planted bug or a published flaw, and what it must break.
pub struct Hunt {
    /// For the table.
    pub name: &'static str,
    /// The property.
    pub breaks: &'static str,
    /// How many steps the shortest history has, if that is known.
    pub steps: Option<usize>,
    run: Box<dyn FnOnce(&'static str, Duration) -> Outcome>,
}

impl fmt::Debug for Hunt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.name, self.breaks)
    }
}

impl Hunt {
    /// The hunt in this model for the shortest history that breaks this property.
    pub fn new(model: impl Searched, breaks: &'static str) -> Self {
        let name = model.name();
        Self { name, breaks, steps: None, run: Box::new(|breaks, patience| hunt(model, breaks, patience)) }
    }

    /// The same, of which it is known how many steps the shortest history has.
    #[must_use]
    pub fn found_after(self, steps: usize) -> Self {
        Self { steps: Some(steps), ..self }
    }

    /// Looks for the shortest history, for this long at most.
    pub fn run(self, patience: Duration) -> Outcome {
        (self.run)(self.breaks, patience)
    }
}

/// Runs complete searches, and prints a line for each with its properties below. Whether all found what they should.
///
/// # Errors
/// If nothing can be written.
pub fn print_searches(out: &mut impl Write, searches: impl IntoIterator<Item = Search>) -> io::Result<bool> {
    let mut good = true;
    let mut total = (0, 0);
    writeln!(out, "{:<34} {:>10} {:>11} {:>6} {:>7}", "complete search", "states", "generated", "depth", "time")?;
    for search in searches {
        let (outcome, took) = timed(|| search.run(threads()));
        let Outcome { name, states, generated, depth, .. } = outcome;
        writeln!(out, "{name:<34} {states:>10} {generated:>11} {depth:>6} {:>6.1}s", took.as_secs_f64())?;
        write!(out, "{outcome}")?;
        out.flush()?;
        good &= outcome.is_good();
        total = (total.0 + states, total.1 + generated);
    }
    writeln!(out, "{:<34} {:>10} {:>11}\n", "together", total.0, total.1)?;
    Ok(good)
}

/// No hunt needs more than seconds.
const PATIENCE: Duration = Duration::from_secs(120);

/// Hunts bugs, and prints which property each breaks first. Whether all were found.
///
/// # Errors
/// If nothing can be written.
pub fn print_hunts(out: &mut impl Write, bugs: impl IntoIterator<Item = Hunt>) -> io::Result<bool> {
    let mut good = true;
    writeln!(out, "{:<40} {:>9} {:>6} {:>7}  breaks", "planted bug", "states", "steps", "time")?;
    for bug in bugs {
        let (outcome, took) = timed(|| bug.run(PATIENCE));
        let Outcome { name, states, .. } = outcome;
        let (property, steps) = outcome.counterexample().unwrap_or(("NOT FOUND", 0));
        good &= steps > 0;
        writeln!(out, "{name:<40} {states:>9} {steps:>6} {:>6.1}s  {property}", took.as_secs_f64())?;
        out.flush()?;
    }
    Ok(good)
}

fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// What came of it, and how long it took.
#[expect(clippy::disallowed_methods, reason = "it times the search, and no election")]
pub fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let start = Instant::now();
    let done = work();
    (done, start.elapsed())
}
