//! What many elections of one process cost: `cargo xtask bench elections`. One process leads in all of them, another waits in all of
//! them, and both are watched at rest.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use clap::Args;
use primacy::store::Why;
use primacy::{Candidate, CandidateConfig, Election, Fleet, Label, Status, Timing};

use crate::place::{BenchStore, Kind};
use crate::proc::{self, OwnProcess};

/// How many elections, and how.
#[derive(Args)]
pub(crate) struct Options {
    /// The stores, which are of this run
    #[arg(long, value_enum, value_delimiter = ',', default_value = "peers,sqlite")]
    store: Vec<Kind>,
    /// Numbers of elections
    #[arg(long, value_delimiter = ',', default_value = "1,16,256")]
    elections: Vec<usize>,
    /// The lease of all candidates, in milliseconds
    #[arg(long, default_value_t = 2_000)]
    lease: u64,
    /// For how many seconds they are watched
    #[arg(long, default_value_t = 20)]
    seconds: u64,
    /// Measure candidates that share nothing, too
    #[arg(long)]
    apart: bool,
    /// Be one of the processes, in this many elections. Not for people.
    #[arg(long, hide = true)]
    campaign: Option<usize>,
}

/// Each candidate has looked for others of its name by then, which it does twice at its beginning.
const SETTLED_AFTER: u32 = 6;

/// The measurement; or one of its processes.
pub(crate) fn run(options: &Options, machine: &str, primacy: &Path) -> Result<()> {
    if let Some(elections) = options.campaign {
        return campaign(elections, Duration::from_millis(options.lease), options.apart);
    }
    println!("{machine}, a lease of {} ms", options.lease);
    for &kind in &options.store {
        for &elections in &options.elections {
            for apart in [false, true].into_iter().filter(|apart| options.apart || !apart) {
                println!("{}", measure(options, primacy, kind, elections, apart)?);
            }
        }
    }
    Ok(())
}

/// A process that campaigns.
struct Campaigner(OwnProcess);

impl Campaigner {
    /// Starts it, and returns when it leads in all elections, or waits in all.
    fn start(options: &Options, url: &str, elections: usize, apart: bool) -> Result<(Self, Duration)> {
        let began = Instant::now();
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["elections", "--campaign", &elections.to_string(), "--lease", &options.lease.to_string()]);
        command.args(apart.then_some("--apart")).env("PRIMACY_STORE", url);
        let process = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
        let mut campaigner = Self(OwnProcess(process));
        campaigner.0.await_ready()?;
        Ok((campaigner, began.elapsed()))
    }

    fn cpu(&self) -> Duration {
        proc::cpu(self.0.pid())
    }
}

fn measure(options: &Options, primacy: &Path, kind: Kind, elections: usize, apart: bool) -> Result<String> {
    let place = BenchStore::start(kind, primacy)?;
    let (leader, led_after) = Campaigner::start(options, &place.url(), elections, apart)?;
    let (waiting, _) = Campaigner::start(options, &place.url(), elections, apart)?;
    thread::sleep(Duration::from_millis(options.lease) * SETTLED_AFTER);
    let cost = || -> Result<_> { Ok((leader.cpu(), waiting.cpu(), place.cpu(), place.statements()?)) };
    let (began, before) = (Instant::now(), cost()?);
    thread::sleep(Duration::from_secs(options.seconds));
    let (elapsed, after) = (began.elapsed(), cost()?);
    let share =
        |after: Duration, before: Duration| after.saturating_sub(before).as_secs_f64() / elapsed.as_secs_f64() * 100.0;
    let statements = match after.3.zip(before.3) {
        Some((after, before)) => {
            format!(", {:.0} statements a second", after.saturating_sub(before) as f64 / elapsed.as_secs_f64())
        }
        None => String::new(),
    };
    let (pid, how) = (leader.0.pid(), if apart { "apart" } else { "in a fleet" });
    Ok(format!(
        "{kind:<10} {elections:>4} elections {how:<10}: led after {led_after:.2?}; the leader {:.2} % of a core, {} threads, {} files, \
         {:.0} MB; the one that waits {:.2} %; the store {:.2} %{statements}",
        share(after.0, before.0),
        proc::threads(pid),
        proc::files(pid),
        proc::memory(pid) as f64 / 1e6,
        share(after.1, before.1),
        share(after.2, before.2),
    ))
}

/// Campaigns in all elections until it is ended, and says when it leads in all or waits in all.
fn campaign(elections: usize, lease: Duration, apart: bool) -> Result<()> {
    let url = std::env::var("PRIMACY_STORE").context("PRIMACY_STORE is not set")?;
    let fleet = Fleet::open(&url)?;
    let mut candidates = Vec::new();
    for n in 0..elections {
        let name = format!("e{n}");
        let election = if apart { Election::open(&url, &name)? } else { fleet.election(&name)? };
        let mut config = CandidateConfig::new(Label::new(std::process::id().to_string())?);
        config.timing = Timing::with_lease(lease)?;
        candidates.push(election.campaign_with(config)?);
    }
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    runtime.block_on(async {
        let mut held = Vec::new();
        for candidate in &mut candidates {
            held.push(settled(candidate).await?);
        }
        std::io::stdout().write_all(b"ready\n")?;
        std::future::pending::<Result<()>>().await
    })
}

/// Until it leads, or knows who does.
async fn settled(candidate: &mut Candidate) -> Result<Option<primacy::Leadership>> {
    let mut status = candidate.status();
    let is_settled = |status: &Status| match status {
        Status::Waiting { why, .. } => matches!(why, Why::Held { .. }),
        _ => true,
    };
    let led = matches!(*status.wait_for(is_settled).await?, Status::Leading { .. });
    Ok(if led { Some(candidate.elected().await?) } else { None })
}
