//! `primacy-papers registers`: how the registers protocol splits as published, and what each repair is for.

use std::io::{self, Write};

use primacy_papers::registers::{self, Choices, PRESETS, Preset, Survey};
use primacy_sim::BatchArgs;

#[derive(clap::Args)]
pub(crate) struct Registers {
    /// What the paper leaves open, as a list such as `published,timed`; without it, every preset. `help` lists them
    #[arg(long)]
    choices: Option<String>,
    /// How many seeds
    #[arg(long, default_value_t = 1_000)]
    seeds: u64,
    #[command(flatten)]
    batch: BatchArgs,
    /// Tell the whole of this seed instead
    #[arg(long, requires = "choices")]
    replay: Option<u64>,
}

/// Every preset, or one set of choices with the stories of what it did first.
pub(crate) fn show(args: &Registers) -> io::Result<bool> {
    let mut out = io::stdout().lock();
    let seeds = args.batch.seeds(args.seeds);
    let Some(list) = &args.choices else {
        let survey = |preset: &Preset| registers::survey(seeds.clone(), args.batch.threads, preset.choices);
        print_heads(&mut out)?;
        for preset in PRESETS {
            print_survey(&mut out, preset.name, &survey(preset), preset.text)?;
        }
        return Ok(true);
    };
    if list == "help" {
        return writeln!(out, "{}", Choices::help()).map(|()| true);
    }
    let choices = match Choices::parse(list) {
        Ok(choices) => choices,
        Err(error) => return writeln!(io::stderr(), "{error}").map(|()| false),
    };
    if let Some(seed) = args.replay {
        for line in registers::run_seed(seed, choices, true).lines {
            writeln!(out, "{line}")?;
        }
        return Ok(true);
    }
    writeln!(out, "{choices}")?;
    let survey = registers::survey(seeds, args.batch.threads, choices);
    print_heads(&mut out)?;
    print_survey(&mut out, "", &survey, "")?;
    writeln!(out, "{:#?}", survey.counts)?;
    if let Some(seed) = survey.splits.0 {
        let outcome = registers::run_seed(seed, choices, true);
        writeln!(out, "\nseed {seed}: two leaders")?;
        print_story(&mut out, &outcome, outcome.overlap.as_ref().map(|overlap| overlap.at))?;
    }
    if let Some(seed) = survey.evictions.0 {
        let outcome = registers::run_seed(seed, choices, true);
        writeln!(out, "\nseed {seed}: a live process is evicted")?;
        print_story(&mut out, &outcome, outcome.eviction.as_ref().map(|eviction| eviction.at))?;
    }
    Ok(true)
}

fn print_story(out: &mut impl Write, outcome: &registers::Outcome, moment: Option<u64>) -> io::Result<()> {
    for line in moment.into_iter().flat_map(|moment| outcome.story(moment)) {
        writeln!(out, "{line}")?;
    }
    Ok(())
}

/// The registers protocol as published must go on failing where it is known to, and its repaired form nowhere.
pub(crate) fn compare(threads: usize) -> io::Result<bool> {
    const SEEDS: u64 = 500;
    let mut out = io::stdout().lock();
    let mut good = true;
    print_heads(&mut out)?;
    for preset in PRESETS {
        let survey = registers::survey(0..SEEDS, threads, preset.choices);
        print_survey(&mut out, preset.name, &survey, preset.text)?;
        if !preset.agrees(&survey) {
            good = false;
            let (splits, evicts) = (preset.splits, preset.evicts);
            writeln!(out, "VOID: the table of presets says {splits:?} and {evicts:?} of {}", preset.name)?;
        }
    }
    Ok(good)
}

fn print_heads(out: &mut impl Write) -> io::Result<()> {
    writeln!(
        out,
        "{:<24} {:>7} {:>12} {:>7} {:>9} {:>9} {:>7}",
        "registers as published", "seeds", "two leaders", "first", "longest", "evicted", "first"
    )
}

fn print_survey(out: &mut impl Write, name: &str, survey: &Survey, text: &str) -> io::Result<()> {
    let first = |seed: Option<u64>| seed.map_or_else(|| "-".to_owned(), |seed| seed.to_string());
    let ((split, splits), (evicted, evictions)) = (survey.splits, survey.evictions);
    let (split, evicted) = (first(split), first(evicted));
    let longest = survey.longest as f64 / 1e9;
    writeln!(
        out,
        "{name:<24} {:>7} {splits:>12} {split:>7} {longest:>7.3} s {evictions:>9} {evicted:>7}  {text}",
        survey.seeds
    )
}
