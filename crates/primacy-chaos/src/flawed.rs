//! A candidate with a planted bug, which campaigns by the library and works for as long as it believes that it leads.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use primacy::internal::Flaw;
use primacy::{CandidateConfig, Election, Label, Leadership, Timing, TimingSettings};

use crate::witness::{Pen, Word};

/// How often it tells that it works.
const BEAT: Duration = Duration::from_millis(2);

/// What such a candidate is asked to be.
#[derive(Args, Clone, Debug)]
pub(crate) struct Candidacy {
    /// The file of the unfenced witness.
    #[arg(long)]
    witness: PathBuf,
    /// Its label.
    #[arg(long)]
    name: String,
    /// Its lease, in milliseconds.
    #[arg(long)]
    lease: u64,
    /// Without the bug, to show that the bug it is.
    #[arg(long)]
    sound: bool,
}

/// Campaigns until it is ended.
pub(crate) fn main(candidacy: &Candidacy) -> Result<()> {
    let election = Election::open(&std::env::var("PRIMACY_STORE")?, "default")?;
    let mut config = CandidateConfig::new(Label::new(candidacy.name.clone())?);
    let lease = Duration::from_millis(candidacy.lease);
    config.timing = Timing::new(TimingSettings { grace: lease / 5, ..TimingSettings::new(lease) })?;
    config.flaw = (!candidacy.sound).then_some(Flaw::LeaseFromReply);
    let mut candidate = election.campaign_with(config)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        loop {
            let leadership = candidate.elected().await?;
            let pen = Pen::open(&candidacy.witness, leadership.token().get(), candidacy.name.clone())?;
            work(&leadership, &pen).await?;
        }
    })
}

/// Works to the last moment in which it believes: it does not hear that it should stop.
async fn work(leadership: &Leadership, pen: &Pen) -> Result<()> {
    let mut word = Word::Start;
    while leadership.is_current() {
        pen.write(word)?;
        word = Word::Beat;
        tokio::time::sleep(BEAT).await;
    }
    Ok(())
}
