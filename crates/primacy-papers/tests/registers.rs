//! The registers protocol as published: each flaw in the smallest seed that shows it, and none in the repaired form.

use primacy_papers::registers::{Choices, Clocks, History, PRESETS, Preset, run_seed, survey};

/// What an ordinary test run can afford. `primacy-papers registers` runs any number.
const SEEDS: u64 = 150;

fn preset(name: &str) -> &'static Preset {
    Preset::named(name).expect("it is in the table")
}

#[test]
fn each_flaw_shows_in_its_smallest_seed() {
    for preset in PRESETS {
        if let Some(seed) = preset.splits {
            let overlap = run_seed(seed, preset.choices, false).overlap.expect(preset.name);
            assert_ne!(overlap.first.0, overlap.second.0, "{}: a process beside itself", preset.name);
            assert!(overlap.span > 0, "{}: for no time at all", preset.name);
        }
        if let Some(seed) = preset.evicts {
            let eviction = run_seed(seed, preset.choices, false).eviction.expect(preset.name);
            assert!(eviction.after < eviction.lease, "{}", preset.name);
        }
    }
}

#[test]
fn the_smallest_seeds_are_the_smallest() {
    for name in ["published", "kept", "counts-forced-retries", "forced-leader"] {
        let found = survey(0..SEEDS, 2, preset(name).choices);
        assert!(preset(name).agrees(&found), "{name}: {found:?}");
        assert!(found.splits.1 > 0, "{name}");
    }
}

#[test]
fn the_repaired_form_fails_nowhere_and_does_everything() {
    for name in ["repaired", "before-commit", "counts-sleeping"] {
        let found = survey(0..SEEDS, 2, preset(name).choices);
        assert_eq!((found.splits, found.evictions), ((None, 0), (None, 0)), "{name}");
        let counts = found.counts;
        for (what, count) in [
            ("rounds", counts.rounds / 100),
            ("aborts", counts.aborted),
            ("time-outs of the database", counts.timed_out),
            ("stops", counts.paused),
            ("kills", counts.crashed),
            ("leaders", counts.leaders),
            ("evictions", counts.evicted),
            ("rejoins", counts.rejoined),
            ("longer rounds", counts.growths),
        ] {
            assert!(count > 100, "{name} is void: only {count} {what}");
        }
    }
}

#[test]
fn a_story_ends_with_the_two_leaders() {
    let preset = preset("published");
    let seed = preset.splits.expect("it splits");
    let outcome = run_seed(seed, preset.choices, true);
    let moment = outcome.overlap.as_ref().expect("again").at;
    let story: Vec<String> = outcome.story(moment).map(ToString::to_string).collect();
    assert!(story.len() > 10, "{story:#?}");
    assert!(story.iter().any(|line| line.contains("TWO LEADERS")), "{story:#?}");
    assert_eq!(outcome.fingerprint, run_seed(seed, preset.choices, false).fingerprint);
}

#[test]
fn choices_are_read_as_they_are_written() {
    for preset in PRESETS {
        assert_eq!(Choices::parse(preset.name), Ok(preset.choices));
        assert_eq!(Choices::parse(&preset.choices.to_string()), Ok(preset.choices), "{}", preset.name);
    }
    let mixed = Choices::parse("repaired,per-read,clocks-wall").expect("a preset and two words");
    assert_eq!(mixed, Choices { history: History::PerRead, clocks: Clocks::Wall, ..Choices::REPAIRED });
    let error = Choices::parse("timed,published").expect_err("a preset comes first");
    assert!(error.starts_with("no such choice: published\n") && error.contains("swapped"), "{error}");
}
