//! The command `primacy-papers`: search the published forms, hunt their flaws by seed, tell their stories.

use std::io::{self, Write};
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use primacy_papers::searches::{SEEDED, held, hunts};
use primacy_sim::search::{print_hunts, print_searches};
use registers::Registers;

mod registers;

#[derive(Parser)]
#[command(about = "The elections of five papers as they were published, and what breaks them", version)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// All that continuous integration runs: every search, every flaw by seed, the registers protocol as published
    Check {
        /// How many threads
        #[arg(long, default_value_t = 2)]
        threads: usize,
    },
    /// Search the repaired forms to the end, and the published ones for the shortest history of each flaw
    Search {
        /// Only those whose names contain one of these
        words: Vec<String>,
    },
    /// Hunt the flaws of the published forms by seed, every one or one
    Canaries {
        /// Only this one
        name: Option<String>,
        /// The first seed
        #[arg(long, default_value_t = 0)]
        from: u64,
        /// Go on this long instead of the stated number of seeds
        #[arg(long)]
        within: Option<u64>,
        /// Also count in how many of this many seeds each is found
        #[arg(long, default_value_t = 0)]
        share: u64,
    },
    /// Show how the registers protocol splits as published, and what each repair is for
    Registers(Registers),
}

fn main() -> ExitCode {
    let done = match Args::parse().command {
        Command::Check { threads } => check(threads),
        Command::Search { words } => search(&words),
        Command::Canaries { name, from, within, share } => hunt(name.as_deref(), from, within, share),
        Command::Registers(args) => registers::show(&args),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        // The reader of the output has gone.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(_) => ExitCode::from(2),
    }
}

fn check(threads: usize) -> io::Result<bool> {
    let searched = search(&[])?;
    let hunted = hunt(None, 0, None, 0)?;
    Ok(registers::compare(threads)? && searched && hunted)
}

fn search(words: &[String]) -> io::Result<bool> {
    let wanted = |name: &str| words.is_empty() || words.iter().any(|word| name.contains(word.as_str()));
    let complete = held().into_iter().filter(|search| wanted(search.name));
    let flaws = hunts().into_iter().filter(|hunt| wanted(hunt.name));
    let mut out = io::stdout().lock();
    Ok(print_searches(&mut out, complete)? & print_hunts(&mut out, flaws)?)
}

fn hunt(name: Option<&str>, from: u64, within: Option<u64>, share: u64) -> io::Result<bool> {
    let mut out = io::stdout().lock();
    let mut all = true;
    writeln!(out, "{:<26} {:>6} of {:<6} {:<12} flaw", "as published", "seeds", "at most", "found by")?;
    for seeded in SEEDED.iter().filter(|seeded| name.is_none_or(|name| name == seeded.name)) {
        let within = within.unwrap_or(seeded.within);
        let found = seeded.hunt(from, within);
        let by = if found.is_some() { "Leaders" } else { "NOT FOUND" };
        all &= found.is_some();
        let seeds = found.unwrap_or(within);
        write!(out, "{:<26} {seeds:>6} of {within:<7} {by:<12} {}", seeded.name, seeded.symptom)?;
        if share > 0 {
            let found = (from..from + share).filter(|seed| seeded.shows(*seed)).count();
            write!(out, " (in {found} of {share} seeds)")?;
        }
        writeln!(out)?;
    }
    Ok(all)
}
