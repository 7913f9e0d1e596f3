//! `primacy-model`: tries all that the protocols can do within stated bounds, and prints what it found.
//!
//! `primacy-model` runs every search, compares those that merge states with those that do not, and hunts every planted bug; `--quick`
//! does the small searches only; a word runs those whose name contains it, and `--except=NAME` leaves the one with that name out;
//! `--longer=N` lets every search go on for N more ticks, which is a matter of patience and memory. Build it with `--profile sim`:
//! it lives on speed.

use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Duration;

use primacy_sim::model::{
    self, Outcome, Search, hunt_in, hunt_merged, print_hunts, print_searches, search, search_merged, timed,
};
use primacy_sim::{company, quorum};

/// No canary needs more than seconds.
const PATIENCE: Duration = Duration::from_secs(120);

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
    let wanted = |search: &Search| is_wanted(search.name);
    let mut good = print_searches(out, searches(quick, longer).into_iter().filter(wanted))?;

    writeln!(out, "{:<40} {:>9} {:>9} {:>7}", "merged and not", "states", "merged", "time")?;
    for setup in quorum::compared().into_iter().filter(|setup| is_wanted(setup.name)) {
        let ((states, merged, differ), took) = timed(|| quorum::compare(&setup));
        writeln!(out, "{:<40} {states:>9} {merged:>9} {:>6.1}s", setup.name, took.as_secs_f64())?;
        if let Some(differ) = differ {
            writeln!(out, "    DIFFER\n{differ}")?;
            good = false;
        }
        out.flush()?;
    }

    writeln!(out)?;
    Ok(good & print_hunts(out, bugs().into_iter().filter(wanted))?)
}

/// The complete searches, each for so many more ticks.
fn searches(quick: bool, longer: i8) -> Vec<Search> {
    let mut all = Vec::new();
    for mut setup in if quick { model::smoke() } else { model::catalogue() } {
        setup.horizon = setup.horizon.saturating_add_signed(longer);
        all.push(Search { name: setup.name, run: Box::new(|threads| model::check(setup, threads)) });
    }
    for mut setup in if quick { company::smoke() } else { company::catalogue() } {
        setup.horizon = setup.horizon.saturating_add_signed(longer);
        all.push(Search { name: setup.name, run: Box::new(|threads| search(company::Company(setup), threads)) });
    }
    for mut setup in if quick { quorum::smoke() } else { quorum::catalogue() } {
        setup.horizon = setup.horizon.saturating_add_signed(longer);
        all.push(Search { name: setup.name, run: Box::new(|threads| search_grant(setup, threads)) });
    }
    all
}

/// The planted bugs.
fn bugs() -> Vec<Search> {
    let mut all = Vec::new();
    for canary in model::canaries() {
        let name = canary.setup.name;
        all.push(Search { name, run: Box::new(move |_| model::hunt(&canary, PATIENCE)) });
    }
    for company::Canary { setup, breaks } in company::canaries() {
        let name = setup.name;
        all.push(Search { name, run: Box::new(move |_| hunt_in(company::Company(setup), breaks, PATIENCE)) });
    }
    for quorum::Canary { setup, breaks } in quorum::canaries() {
        let (name, is_merged) = (setup.name, setup.merged);
        let model = quorum::Grant(setup);
        let hunt = move |_| if is_merged { hunt_merged(model, breaks) } else { hunt_in(model, breaks, PATIENCE) };
        all.push(Search { name, run: Box::new(hunt) });
    }
    all
}

fn search_grant(setup: quorum::Setup, threads: usize) -> Outcome {
    let is_merged = setup.merged;
    let model = quorum::Grant(setup);
    if is_merged { search_merged(model, threads) } else { search(model, threads) }
}

fn is_number(text: &str) -> bool {
    text.parse::<i8>().is_ok()
}
