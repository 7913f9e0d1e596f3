//! What was measured, as it is kept: a file that a long series can fill in pieces, from which tables and plots are made.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};

use super::cluster::System;
use super::codec::Request;
use super::probe::Recovery;

/// All of it.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Results {
    pub(super) machine: String,
    /// Versions and settings of the stores.
    pub(super) setups: Vec<(System, String)>,
    pub(super) loads: Vec<Figure>,
    pub(super) losses: Vec<Losses>,
    pub(super) hand_overs: Vec<HandOvers>,
    pub(super) rests: Vec<Rest>,
    pub(super) restarts: Vec<Restart>,
    pub(super) traces: Vec<Trace>,
    #[serde(skip)]
    pub(super) file: PathBuf,
}

/// Where clients connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(super) enum At {
    Leader,
    Follower,
    All,
}

/// One piece of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Work {
    pub(super) request: Request,
    pub(super) clients: usize,
    pub(super) at: At,
    /// How much longer than the disk each flush takes.
    pub(super) flush_delay_us: u64,
    pub(super) bytes: usize,
}

/// One piece of work on one store, several times.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Figure {
    pub(super) system: System,
    #[serde(flatten)]
    pub(super) work: Work,
    pub(super) runs: Vec<Run>,
}

/// One run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Run {
    pub(super) per_second: f64,
    pub(super) median_us: f64,
    pub(super) p99_us: f64,
    pub(super) max_us: f64,
    pub(super) refused: u64,
    pub(super) unknown: u64,
    /// CPU time for each request, in microseconds: the loader's, and each server's, the leader first.
    pub(super) loader_cpu_us: f64,
    pub(super) server_cpu_us: Vec<f64>,
    /// How many tasks wanted a core in the last minute of it.
    pub(super) load: f64,
}

/// How a server is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Blow {
    /// `kill -9` of the leader's process.
    Kill,
    /// SIGSTOP of all processes of the leader's node, as if its host were frozen.
    Freeze,
}

/// Losses of the leader.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Losses {
    pub(super) system: System,
    pub(super) blow: Blow,
    /// Of primacy.
    pub(super) lease_ms: u64,
    pub(super) each: Vec<Recovery>,
}

/// Hand-overs that an operator orders, while many write.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct HandOvers {
    pub(super) lease_ms: u64,
    pub(super) writers: usize,
    /// The longest time without a write of the group that was done, for each hand-over.
    pub(super) gaps_ms: Vec<f64>,
    /// The longest time of a single write.
    pub(super) longest_write_ms: Vec<f64>,
    /// The longest gaps in as much time before each.
    pub(super) calm_gaps_ms: Vec<f64>,
    pub(super) writes: u64,
    pub(super) refused: u64,
    pub(super) unknown: u64,
    pub(super) load: f64,
}

/// Three nodes to which nobody speaks.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Rest {
    pub(super) system: System,
    pub(super) groups: u16,
    /// How many nodes lead some of them; 0 if that was not told.
    #[serde(default)]
    pub(super) leaders: usize,
    pub(super) lease_ms: u64,
    pub(super) seconds: f64,
    /// The share of a core of each node, in per cent, the leader first.
    pub(super) cpu_percent: Vec<f64>,
    /// Segments with data among the nodes in a second.
    pub(super) messages_per_second: f64,
    pub(super) memory_mib: Vec<f64>,
    pub(super) load: f64,
}

/// A node, or all three, started again over much data.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Restart {
    pub(super) what: String,
    pub(super) data_mib: u64,
    pub(super) value_bytes: usize,
    /// Until it has all that the others have, or until a write is done.
    pub(super) seconds: Vec<f64>,
    pub(super) load: f64,
}

/// Where the CPU time of a write goes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Trace {
    pub(super) clients: usize,
    pub(super) per_second: f64,
    pub(super) median_us: f64,
    /// For each thread of each process: whose it is, its CPU time and the time that it waited for a core, in microseconds per write.
    pub(super) threads: Vec<ThreadShare>,
    /// Parts of the node's own account, in microseconds: median and 99 %.
    pub(super) stages: Vec<(String, f64, f64)>,
    pub(super) load: f64,
}

/// What a thread took for each write.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct ThreadShare {
    pub(super) process: String,
    pub(super) thread: String,
    pub(super) cpu_us: f64,
    pub(super) waited_us: f64,
    /// How often it was put on a core, per write.
    pub(super) switches: f64,
}

impl Results {
    /// What is there already, or nothing.
    pub(super) fn load(file: &Path, machine: &str) -> Result<Self> {
        let mut results = match fs::read(file) {
            Ok(text) => serde_json::from_slice(&text).with_context(|| format!("{} is not ours", file.display()))?,
            Err(_) => Self {
                machine: machine.to_owned(),
                setups: Vec::new(),
                loads: Vec::new(),
                losses: Vec::new(),
                hand_overs: Vec::new(),
                rests: Vec::new(),
                restarts: Vec::new(),
                traces: Vec::new(),
                file: PathBuf::new(),
            },
        };
        results.file = file.to_owned();
        Ok(results)
    }

    pub(super) fn save(&self) -> Result<()> {
        let text = serde_json::to_vec_pretty(self)?;
        fs::write(&self.file, text).with_context(|| format!("cannot write {}", self.file.display()))
    }

    /// Remembers how a store is set up.
    pub(super) fn set_up(&mut self, system: System, settings: String) {
        self.setups.retain(|(other, _)| *other != system);
        self.setups.push((system, settings));
    }

    /// Adds a run to those of the same work.
    pub(super) fn add(&mut self, system: System, work: Work, run: Run) {
        match self.loads.iter_mut().find(|figure| figure.system == system && figure.work == work) {
            Some(figure) => figure.runs.push(run),
            None => self.loads.push(Figure { system, work, runs: vec![run] }),
        }
    }

    /// The figure of a piece of work.
    pub(super) fn figure(
        &self,
        system: System,
        request: Request,
        clients: usize,
        at: At,
        delay_us: u64,
    ) -> Option<&Figure> {
        self.loads.iter().find(|figure| {
            let Work { request: asked, clients: many, at: place, flush_delay_us, .. } = figure.work;
            figure.system == system && (asked, many, place, flush_delay_us) == (request, clients, at, delay_us)
        })
    }
}

/// The median; of an even number the lower one.
pub(super) fn median(values: impl Iterator<Item = f64>) -> f64 {
    percentile(values, 50)
}

/// The smallest value that at least this share of all do not exceed.
pub(super) fn percentile(values: impl Iterator<Item = f64>, percent: usize) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let rank = (values.len() * percent).div_ceil(100).max(1);
    values.get(rank - 1).copied().unwrap_or(f64::NAN)
}

impl Figure {
    /// The median over all runs of something.
    pub(super) fn median(&self, of: fn(&Run) -> f64) -> f64 {
        median(self.runs.iter().map(of))
    }
}
