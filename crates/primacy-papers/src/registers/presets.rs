//! Sets of choices that are looked at, and the seeds in which each fails first; how choices are read from a command line.

use super::choices::{Aborted, AfterAbort, AfterSlow, Choices, Clocks, Forced, History, LeaseFrom, Orders};
use super::survey::{Outcome, Survey, run_seed};

/// A set of choices.
#[derive(Clone, Copy, Debug)]
pub struct Preset {
    /// Its name on the command line.
    pub name: &'static str,
    /// The choices.
    pub choices: Choices,
    /// The smallest seed with two leaders; `None` if none was ever found.
    pub splits: Option<u64>,
    /// The smallest seed with a wrong eviction; `None` if none was ever found.
    pub evicts: Option<u64>,
    /// What it stands for.
    pub text: &'static str,
}

impl Preset {
    /// The preset of this name.
    pub fn named(name: &str) -> Option<&'static Self> {
        PRESETS.iter().find(|preset| preset.name == name)
    }

    /// Whether a survey from seed 0 found what the table says and nothing else. What it says of larger seeds is tried.
    pub fn agrees(&self, survey: &Survey) -> bool {
        let agrees = |table: Option<u64>, found: Option<u64>, shows: fn(&Outcome) -> bool| match table {
            Some(seed) if seed >= survey.seeds => found.is_none() && shows(&run_seed(seed, self.choices, false)),
            _ => found == table,
        };
        agrees(self.splits, survey.splits.0, |outcome| outcome.overlap.is_some())
            && agrees(self.evicts, survey.evictions.0, |outcome| outcome.eviction.is_some())
    }
}

impl Choices {
    /// Reads a list such as `published,timed`: the name of a preset first if at all, then what differs from it.
    ///
    /// # Errors
    ///
    /// Names the first word that is neither.
    pub fn parse(list: &str) -> Result<Self, String> {
        let mut choices = Self::PUBLISHED;
        for (place, word) in list.split(',').enumerate() {
            match Preset::named(word) {
                Some(preset) if place == 0 => choices = preset.choices,
                _ => choices.take(word).ok_or_else(|| format!("no such choice: {word}\n{}", Self::help()))?,
            }
        }
        Ok(choices)
    }

    /// Every word that [`parse`](Self::parse) takes, with its meaning.
    pub fn help() -> String {
        fn add<T>(lines: &mut Vec<String>, title: &str, words: &[(&str, &str, T)]) {
            lines.push(format!("{title}:"));
            lines.extend(words.iter().map(|(word, text, _)| format!("  {word:<16} {text}")));
        }
        let mut lines = vec!["presets (at most one, first):".to_owned()];
        lines.extend(PRESETS.iter().map(|preset| format!("  {:<22} {}", preset.name, preset.text)));
        add(&mut lines, "a counter that stands still means death", History::WORDS);
        add(&mut lines, "an aborted round leaves", Aborted::WORDS);
        add(&mut lines, "the lease begins", LeaseFrom::WORDS);
        add(&mut lines, "the round after one that asked for the exclusive lock", Forced::WORDS);
        add(&mut lines, "the round after an aborted one", AfterAbort::WORDS);
        add(&mut lines, "the round after a slow one", AfterSlow::WORDS);
        add(&mut lines, "clocks", Clocks::WORDS);
        add(&mut lines, "operators", Orders::WORDS);
        lines.join("\n")
    }
}

/// HopsFS when it reported two leaders: a copy of the variables, and a slow round followed by the next at once.
const HOPSFS: Choices = Choices { aborted: Aborted::Swapped, after_slow: AfterSlow::AtOnce, ..Choices::PUBLISHED };

/// Repaired but for the history, with no round that follows at once but where a preset says so.
const COUNTS_READS: Choices = Choices {
    history: History::PerRead,
    forced: Forced::Sleeps,
    after_abort: AfterAbort::Sleeps,
    after_slow: AfterSlow::Sleeps,
    ..Choices::REPAIRED
};

const fn preset(name: &'static str, choices: Choices, found: Found, text: &'static str) -> Preset {
    Preset { name, choices, splits: found.0, evicts: found.1, text }
}

/// The smallest seeds with two leaders and with a wrong eviction.
type Found = (Option<u64>, Option<u64>);

/// All presets.
pub const PRESETS: &[Preset] = &[
    preset("published", Choices::PUBLISHED, (Some(11), Some(47)), "the paper to the letter"),
    preset(
        "kept",
        Choices { aborted: Aborted::Kept, ..Choices::PUBLISHED },
        (Some(5), Some(5)),
        "the paper's listing: aborted rounds leave what they assigned",
    ),
    preset("hopsfs", HOPSFS, (Some(183), Some(59)), "HopsFS when it reported two leaders (hops#99)"),
    preset(
        "counts-slow-retries",
        Choices { after_slow: AfterSlow::AtOnce, ..COUNTS_READS },
        (None, Some(10)),
        "repaired, but counts reads, and slow rounds are followed at once",
    ),
    preset(
        "counts-forced-retries",
        Choices { forced: Forced::AtOnce, ..COUNTS_READS },
        (Some(120), Some(13)),
        "repaired, but counts reads, and line 22 retries at once",
    ),
    preset(
        "counts-aborted-retries",
        Choices { after_abort: AfterAbort::AtOnce, aborted: Aborted::Kept, ..COUNTS_READS },
        (Some(5), Some(5)),
        "repaired, but counts reads, keeps those of aborted rounds, and retries at once",
    ),
    preset("counts-sleeping", COUNTS_READS, (None, None), "repaired, but counts reads, and sleeps before each round"),
    preset(
        "keeps",
        Choices { aborted: Aborted::Kept, ..Choices::REPAIRED },
        (Some(69), None),
        "repaired, but aborted rounds leave traces",
    ),
    preset(
        "rolls-back",
        Choices { aborted: Aborted::RolledBack, ..Choices::REPAIRED },
        (Some(284), None),
        "repaired, but variables are assigned before the commit",
    ),
    preset(
        "after-commit",
        Choices { lease_from: LeaseFrom::AfterCommit, ..Choices::REPAIRED },
        (Some(145), None),
        "repaired, but the lease begins when the commit is answered",
    ),
    preset(
        "before-commit",
        Choices { lease_from: LeaseFrom::BeforeCommit, ..Choices::REPAIRED },
        (None, None),
        "repaired, and line 20 where it was published",
    ),
    preset(
        "clocks-beyond",
        Choices { clocks: Clocks::BeyondMu, ..Choices::REPAIRED },
        (Some(597), None),
        "repaired, on clocks beyond mu",
    ),
    preset(
        "wall-clock",
        Choices { clocks: Clocks::Wall, ..Choices::REPAIRED },
        (Some(116), Some(353)),
        "repaired, on wall clocks",
    ),
    preset(
        "forced-leader",
        Choices { orders: Orders::ForceLead, ..Choices::REPAIRED },
        (Some(0), None),
        "repaired, and operators force leaders without waiting",
    ),
    preset(
        "repaired",
        Choices::REPAIRED,
        (None, None),
        "time instead of reads, nothing believed before its commit, R1",
    ),
];
