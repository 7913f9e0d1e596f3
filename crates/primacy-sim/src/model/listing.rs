//! What searches came to, as tables for people.

use std::io::{self, Write};
use std::time::{Duration, Instant};

use super::search::Outcome;

/// A search that has not been run, or the hunt for a planted bug.
pub struct Search {
    /// For the table.
    pub name: &'static str,
    /// Runs it on so many threads.
    pub run: Box<dyn FnOnce(usize) -> Outcome>,
}

impl std::fmt::Debug for Search {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
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
        let (outcome, took) = timed(|| (search.run)(threads()));
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

/// Hunts bugs, and prints which property each breaks first. Whether all were found.
///
/// # Errors
/// If nothing can be written.
pub fn print_hunts(out: &mut impl Write, bugs: impl IntoIterator<Item = Search>) -> io::Result<bool> {
    let mut good = true;
    writeln!(out, "{:<40} {:>9} {:>6} {:>7}  breaks", "planted bug", "states", "steps", "time")?;
    for bug in bugs {
        let (outcome, took) = timed(|| (bug.run)(threads()));
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
