//! `primacy-model`: tries all that the protocols can do within stated bounds, and prints what it found.
//!
//! `primacy-model` runs every search, compares those that merge states with those that do not, walks at random where there is too much
//! to search, and hunts every planted bug; `--quick` does the small searches only; a word runs those whose name contains it, and
//! `--except=NAME` leaves the one with that name out; `--longer=N` lets every search go on for N more ticks, which is a matter of
//! patience and memory. Build it with `--profile sim`: it lives on speed.

use std::io::{self, Write};
use std::process::ExitCode;

use primacy_sim::search::{Hunt, Search, hunts, print_hunts, print_searches, searches, timed};
use primacy_sim::{group_model, hold_model, log_model, model, quorum};

const EXCEPT: &str = "--except=";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match run(&arguments, &mut io::stdout().lock()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(_) => ExitCode::from(74),
    }
}

fn run(arguments: &[String], out: &mut impl Write) -> io::Result<bool> {
    let known = |argument: &str| {
        argument == "--quick"
            || argument.starts_with(EXCEPT)
            || argument.strip_prefix("--longer=").is_some_and(is_number)
    };
    if let Some(unknown) = arguments.iter().find(|argument| argument.starts_with('-') && !known(argument)) {
        writeln!(io::stderr(), "unknown option {unknown}; there are --quick, --except=NAME and --longer=N")?;
        return Ok(false);
    }
    let quick = arguments.iter().any(|argument| argument == "--quick");
    let longer = arguments.iter().find_map(|argument| argument.strip_prefix("--longer=")?.parse().ok()).unwrap_or(0i8);
    let words: Vec<&str> = arguments.iter().map(String::as_str).filter(|word| !word.starts_with("--")).collect();
    let except: Vec<&str> = arguments.iter().filter_map(|argument| argument.strip_prefix(EXCEPT)).collect();
    let is_wanted = |name: &str| {
        let is_meant = words.is_empty() || words.iter().any(|word| name.contains(word));
        is_meant && !except.contains(&name)
    };
    let mut good = print_searches(out, all_searches(quick, longer).filter(|search| is_wanted(search.name)))?;

    writeln!(out, "{:<40} {:>9} {:>9} {:>7}", "merged and not", "states", "merged", "time")?;
    for (name, compare) in comparisons().filter(|(name, _)| is_wanted(name)) {
        let ((states, merged, differ), took) = timed(compare);
        writeln!(out, "{name:<40} {states:>9} {merged:>9} {:>6.1}s", took.as_secs_f64())?;
        if let Some(differ) = differ {
            writeln!(out, "    DIFFER\n{differ}")?;
            good = false;
        }
        out.flush()?;
    }

    writeln!(out, "\n{:<40} {:>9} {:>9} {:>7}", "walks at random", "steps", "committed", "time")?;
    for setup in log_model::walked().into_iter().filter(|setup| is_wanted(setup.name)) {
        let (walked, took) = timed(|| walks(&setup));
        match walked {
            Ok((steps, committed)) => {
                writeln!(out, "{:<40} {steps:>9} {committed:>9} {:>6.1}s", setup.name, took.as_secs_f64())?;
            }
            Err(history) => {
                writeln!(out, "{:<40}\n{history}", setup.name)?;
                good = false;
            }
        }
        out.flush()?;
    }

    writeln!(out)?;
    Ok(good & print_hunts(out, bugs().filter(|bug| is_wanted(bug.name)))?)
}

/// The complete searches, each for this many more ticks.
fn all_searches(quick: bool, longer: i8) -> impl Iterator<Item = Search> {
    let lease = searches(if quick { model::smoke() } else { model::catalogue() }, longer);
    let registers = searches(if quick { group_model::smoke() } else { group_model::catalogue() }, longer);
    let hold = searches(if quick { hold_model::smoke() } else { hold_model::catalogue() }, longer);
    let quorum = searches(if quick { quorum::smoke() } else { quorum::catalogue() }, longer);
    let log = searches(if quick { log_model::smoke() } else { log_model::catalogue() }, longer);
    lease.chain(registers).chain(hold).chain(quorum).chain(log)
}

/// A search that is done with states merged and without: how many states there are, how many are left, and how they differ.
type Comparison = Box<dyn FnOnce() -> (usize, usize, Option<String>)>;

/// The searches that are done with states merged and without.
fn comparisons() -> impl Iterator<Item = (&'static str, Comparison)> {
    let quorum = quorum::compared().into_iter();
    let quorum = quorum.map(|setup| (setup.name, Box::new(move || quorum::compare(&setup)) as Comparison));
    let log = log_model::compared().into_iter();
    quorum.chain(log.map(|setup| (setup.name, Box::new(move || log_model::compare(&setup)) as Comparison)))
}

/// Five hundred walks through this: how many steps there were, and how many entries were committed; or what broke something.
fn walks(setup: &log_model::Setup) -> Result<(usize, usize), String> {
    (0..500).try_fold((0, 0), |(steps, committed), seed| {
        let (more, entries) = log_model::walk(setup, seed, 1_000).map_err(|told| format!("seed {seed}:\n{told}"))?;
        Ok((steps + more, committed + entries))
    })
}

/// The planted bugs.
fn bugs() -> impl Iterator<Item = Hunt> {
    let others = hunts(model::canaries()).chain(hunts(group_model::canaries())).chain(hunts(hold_model::canaries()));
    others.chain(hunts(quorum::canaries())).chain(hunts(log_model::canaries()))
}

fn is_number(text: &str) -> bool {
    text.parse::<i8>().is_ok()
}
