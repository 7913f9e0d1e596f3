//! What every benchmark can be told, and the processes that it starts of itself.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result};

use crate::{crew, runners};

/// How long a round of the registers protocol lasts at first, where nothing else is said.
const ROUND: Duration = Duration::from_secs(2);

/// The options that every benchmark has.
#[derive(clap::Args)]
pub struct CommonOptions {
    /// The primacy binary to measure.
    #[arg(long, default_value = "target/release/primacy")]
    pub primacy: PathBuf,
    /// Where plots and raw figures go.
    #[arg(long, default_value = "bench/out")]
    pub out: PathBuf,
    /// The program that the measured runners run. Not for people.
    #[arg(long, hide = true)]
    sentry: bool,
    /// Be a process with this many candidates. Not for people.
    #[arg(long, hide = true)]
    crew: Option<usize>,
}

impl CommonOptions {
    /// Whether this process is a part that a benchmark has started: the program of a runner, or a process with candidates whose
    /// rounds last this many milliseconds. Then it has done its part. Otherwise it is the benchmark, and the folder for what comes
    /// out is there.
    ///
    /// # Errors
    /// When the part fails, or the folder cannot be made.
    pub fn run_part(&self, round: Option<u64>) -> Result<bool> {
        if self.sentry {
            return runners::sentry().map(|()| true);
        }
        if let Some(each) = self.crew {
            return crew::campaign(each, round.map_or(ROUND, Duration::from_millis)).map(|()| true);
        }
        fs::create_dir_all(&self.out).with_context(|| format!("cannot create {}", self.out.display()))?;
        Ok(false)
    }
}
