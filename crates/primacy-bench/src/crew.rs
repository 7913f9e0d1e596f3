//! One process of many candidates that uses the library: a crew.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result};
use primacy::{CandidateConfig, Election, Label, Protocol, Rounds, RoundsSettings, Timing, clock};
use tokio::task::JoinSet;

use crate::place::Site;

/// A crew that campaigns there: `each` candidates, with rounds of this many milliseconds.
pub(crate) fn command(own: &Path, site: &Site, name: &str, round: u64, each: usize) -> Command {
    let mut command = Command::new(own);
    command.env("PRIMACY_STORE", &site.url).env("PRIMACY_ELECTION", &site.election).env("PRIMACY_NAME", name);
    command.args(["--crew", &each.to_string(), "--round", &round.to_string()]).stdin(Stdio::null());
    command
}

/// The crew: campaigns until it is ended, and tells each time that one of it leads.
pub(crate) fn campaign(each: usize, round: Duration) -> Result<()> {
    let variable = |key: &str| std::env::var(key).with_context(|| format!("{key} is not set"));
    let name = variable("PRIMACY_NAME")?;
    let election = Election::open(&variable("PRIMACY_STORE")?, &variable("PRIMACY_ELECTION")?)?;
    let rounds = Rounds::new(RoundsSettings::new(round))?;
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    runtime.block_on(async {
        let mut campaigns = JoinSet::new();
        for index in 0..each {
            let mut config = CandidateConfig::new(Label::new(format!("{name}-{index}"))?);
            config.timing = Timing::with_lease(rounds.lease(round))?;
            config.protocol = Protocol::Registers { rounds };
            let mut candidate = election.campaign_with(config)?;
            let name = name.clone();
            campaigns.spawn(async move {
                loop {
                    let leadership = candidate.elected().await?;
                    let nanos = clock::boot_nanos().context("no boot clock")?;
                    let line = format!("{} {} {name} {nanos}\n", leadership.token(), std::process::id());
                    std::io::stdout().write_all(line.as_bytes())?;
                    leadership.lost().await;
                }
            });
        }
        // They end only where something is wrong.
        campaigns.join_next().await.context("a crew of nobody")??
    })
}
