//! Sets of choices that are looked at, and what continuous integration must find in each.

use super::choices::{Aborted, AfterAbort, AfterSlow, Choices, Clocks, Forced, History, LeaseFrom, Orders};

/// A set of choices.
#[derive(Clone, Copy, Debug)]
pub struct Preset {
    /// Its name on the command line.
    pub name: &'static str,
    /// The choices.
    pub choices: Choices,
    /// Within how many seeds two leaders must be found; `None` if never.
    pub splits: Option<u64>,
    /// Within how many seeds a wrong eviction must be found; `None` if never.
    pub evicts: Option<u64>,
    /// What it stands for.
    pub text: &'static str,
}

impl Preset {
    /// The preset of this name.
    pub fn named(name: &str) -> Option<&'static Self> {
        PRESETS.iter().find(|preset| preset.name == name)
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

const fn preset(name: &'static str, choices: Choices, text: &'static str) -> Preset {
    Preset { name, choices, splits: None, evicts: None, text }
}

/// All presets.
pub const PRESETS: &[Preset] = &[
    preset("published", Choices::PUBLISHED, "the paper to the letter"),
    preset(
        "kept",
        Choices { aborted: Aborted::Kept, ..Choices::PUBLISHED },
        "the paper's listing: aborted rounds leave what they assigned",
    ),
    preset("hopsfs", HOPSFS, "HopsFS when it reported two leaders (hops#99)"),
    preset(
        "counts-slow-retries",
        Choices { after_slow: AfterSlow::AtOnce, ..COUNTS_READS },
        "repaired, but counts reads, and slow rounds are followed at once",
    ),
    preset(
        "counts-forced-retries",
        Choices { forced: Forced::AtOnce, ..COUNTS_READS },
        "repaired, but counts reads, and line 22 retries at once",
    ),
    preset(
        "counts-aborted-retries",
        Choices { after_abort: AfterAbort::AtOnce, aborted: Aborted::Kept, ..COUNTS_READS },
        "repaired, but counts reads, keeps those of aborted rounds, and retries at once",
    ),
    preset("counts-sleeping", COUNTS_READS, "repaired, but counts reads, and sleeps before each round"),
    preset(
        "keeps",
        Choices { aborted: Aborted::Kept, ..Choices::REPAIRED },
        "repaired, but aborted rounds leave traces",
    ),
    preset(
        "rolls-back",
        Choices { aborted: Aborted::RolledBack, ..Choices::REPAIRED },
        "repaired, but variables are assigned before the commit",
    ),
    preset(
        "after-commit",
        Choices { lease_from: LeaseFrom::AfterCommit, ..Choices::REPAIRED },
        "repaired, but the lease begins when the commit is answered",
    ),
    preset(
        "before-commit",
        Choices { lease_from: LeaseFrom::BeforeCommit, ..Choices::REPAIRED },
        "repaired, and line 20 where it was published",
    ),
    preset("clocks-beyond", Choices { clocks: Clocks::BeyondMu, ..Choices::REPAIRED }, "repaired, on clocks beyond mu"),
    preset("wall-clock", Choices { clocks: Clocks::Wall, ..Choices::REPAIRED }, "repaired, on wall clocks"),
    preset(
        "forced-leader",
        Choices { orders: Orders::ForceLead, ..Choices::REPAIRED },
        "repaired, and operators force leaders without waiting",
    ),
    preset("repaired", Choices::REPAIRED, "time instead of reads, nothing believed before its commit, R1"),
];
