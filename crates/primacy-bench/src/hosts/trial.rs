//! What happens to leaders and to frames, and what comes of it.

use std::io::{IsTerminal as _, Write as _};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use clap::ValueEnum;
use primacy::clock;
use primacy_core::Timing;
use serde::Serialize;

use super::net::Cut;
use super::site::{Lead, Site};
use crate::entropy::Entropy;

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Part {
    /// The leader's host is lost: it neither hears nor is heard
    Lost,
    /// The leader's host hears nothing, and is heard
    Deaf,
    /// The leader's host is not heard, and hears
    Mute,
    /// Frames are lost by chance
    Loss,
}

impl Part {
    fn cut(self) -> Option<Cut> {
        match self {
            Self::Lost => Some(Cut { deaf: true, mute: true }),
            Self::Deaf => Some(Cut { deaf: true, mute: false }),
            Self::Mute => Some(Cut { deaf: false, mute: true }),
            Self::Loss => None,
        }
    }
}

/// How it is measured.
pub(super) struct Plan {
    pub(super) part: Part,
    pub(super) repeats: usize,
    pub(super) per_mille: u64,
    pub(super) span: Duration,
    pub(super) seed: u64,
}

/// What came of it.
#[derive(Debug, Default, Serialize)]
pub(super) struct Trial {
    /// From each cut to the next grant.
    pub(super) grants_nanos: Vec<u64>,
    /// From each cut to the first instruction of the next leader's program.
    pub(super) programs_nanos: Vec<u64>,
    /// Grants that followed from no cut.
    pub(super) unplanned: usize,
    /// Those of them that went to another host than the one before.
    pub(super) changes: usize,
    pub(super) loss: Option<Loss>,
}

/// Frames that were lost by chance.
#[derive(Debug, Serialize)]
pub(super) struct Loss {
    pub(super) per_mille: u64,
    pub(super) seconds: f64,
    pub(super) passed: u64,
    pub(super) lost: u64,
}

/// Measures it.
pub(super) fn measure(site: &Site, timing: &Timing, plan: &Plan) -> Result<Trial> {
    let mut run = Run { site, leader: site.await_next(0)?, trial: Trial::default() };
    site.await_well()?;
    // The leader while the others were still coming.
    run.note()?;
    run.trial = Trial::default();
    match plan.part.cut() {
        Some(cut) => run.cuts(timing, plan, cut)?,
        None => run.loss(timing, plan)?,
    }
    Ok(run.trial)
}

struct Run<'a> {
    site: &'a Site,
    leader: Lead,
    trial: Trial,
}

impl Run<'_> {
    fn cuts(&mut self, timing: &Timing, plan: &Plan, cut: Cut) -> Result<()> {
        let mut entropy = Entropy(plan.seed);
        let mut progress = Progress::new();
        let mut attempts = plan.repeats * 2;
        while self.trial.grants_nanos.len() < plan.repeats {
            let done = self.trial.grants_nanos.len();
            progress.say(&format!("lease {:?}, {:?}: {done} of {}", timing.lease(), plan.part, plan.repeats));
            self.site.await_well()?;
            // At any moment between two renewals.
            thread::sleep(Duration::from_nanos(entropy.next() % timing.lease().as_nanos() as u64));
            self.note()?;
            let struck = self.leader.host;
            let at = clock::boot_nanos().context("no boot clock")?;
            self.site.net.cut(struck, cut);
            let next = self.site.await_next(self.leader.token)?;
            self.site.net.cut(struck, Cut { deaf: false, mute: false });
            if next.granted > at && next.host != struck {
                self.trial.grants_nanos.push(next.granted - at);
                self.trial.programs_nanos.push(next.began - at);
                self.leader = next;
            } else {
                // It was granted before, and this was heard after: the one that was struck did not lead.
                self.unplanned(next);
            }
            attempts -= 1;
            ensure!(attempts > 0, "leaders change by themselves too often");
        }
        Ok(())
    }

    fn loss(&mut self, timing: &Timing, plan: &Plan) -> Result<()> {
        let mut progress = Progress::new();
        let [passed, lost] = self.site.net.frames();
        let (begin, end) = (Instant::now(), Instant::now() + plan.span);
        self.site.net.lose(plan.per_mille);
        while Instant::now() < end {
            let elapsed = begin.elapsed().as_secs();
            let (lease, grants) = (timing.lease(), self.trial.unplanned);
            progress.say(&format!("lease {lease:?}, frames lost: {elapsed} s of {:?}, {grants} grants", plan.span));
            let soon = end.min(Instant::now() + Duration::from_secs(10));
            while let Some(lead) = self.site.next(self.leader.token, soon)? {
                self.unplanned(lead);
            }
        }
        let now = self.site.net.frames();
        self.trial.loss = Some(Loss {
            per_mille: plan.per_mille,
            seconds: begin.elapsed().as_secs_f64(),
            passed: now[0] - passed,
            lost: now[1] - lost,
        });
        Ok(())
    }

    /// Notes what was granted meanwhile.
    fn note(&mut self) -> Result<()> {
        while let Some(lead) = self.site.next(self.leader.token, Instant::now())? {
            self.unplanned(lead);
        }
        Ok(())
    }

    fn unplanned(&mut self, lead: Lead) {
        self.trial.unplanned += 1;
        self.trial.changes += usize::from(lead.host != self.leader.host);
        self.leader = lead;
    }
}

/// Says how far it is: all the time where somebody looks on, now and then in a file.
struct Progress {
    looks_on: bool,
    last: Option<Instant>,
}

impl Progress {
    fn new() -> Self {
        Self { looks_on: std::io::stderr().is_terminal(), last: None }
    }

    fn say(&mut self, text: &str) {
        let mut stderr = std::io::stderr();
        // Whether anybody reads it is no matter.
        if self.looks_on {
            let _ = write!(stderr, "\r\x1b[K{text}");
        } else if self.last.is_none_or(|last| last.elapsed() > Duration::from_secs(60)) {
            self.last = Some(Instant::now());
            let _ = writeln!(stderr, "{text}");
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.looks_on {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}
