//! How long nobody leads after a leader has gone, by what happened to it.

use std::fmt;
use std::path::Path;
use std::time::Duration;

use anyhow::{Result, bail};
use nix::sys::signal::Signal;
use primacy::clock;
use serde::Serialize;

use crate::place::{BenchStore, Kind};
use crate::runners::{Manner, Runners, Start, send};
use crate::spread::Spread;

/// What happens to a leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Event {
    /// SIGTERM to the runner.
    GracefulStop,
    /// kill -9 of the program.
    ProgramDeath,
    /// kill -9 of the runner.
    RunnerDeath,
    /// An operator's order.
    Depose,
    /// Runner, warden and program stopped at once, as if the host were lost.
    SilentLoss,
}

impl Event {
    pub(crate) const ALL: [Self; 5] =
        [Self::GracefulStop, Self::ProgramDeath, Self::RunnerDeath, Self::Depose, Self::SilentLoss];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::GracefulStop => "graceful stop",
            Self::ProgramDeath => "kill -9 of the program",
            Self::RunnerDeath => "kill -9 of the runner",
            Self::Depose => "depose",
            Self::SilentLoss => "silent loss",
        }
    }
}

/// The measured gaps of one kind of event.
#[derive(Serialize)]
pub(crate) struct Failover {
    pub(crate) store: Kind,
    pub(crate) event: Event,
    pub(crate) candidates: usize,
    pub(crate) manner: Manner,
    #[serde(flatten)]
    pub(crate) gaps: Gaps,
}

/// How long nobody led, after each event.
#[derive(Default, Serialize)]
pub struct Gaps {
    /// To the next grant. None for crews.
    pub grants_nanos: Vec<u64>,
    /// To the first instruction of the next leader's program, or of its work in a crew.
    pub gaps_nanos: Vec<u64>,
}

impl Failover {
    /// Starts runners, and measures this many events among them.
    pub(crate) fn measure(
        primacy: &Path,
        place: &BenchStore,
        event: Event,
        processes: usize,
        repeats: usize,
        manner: Manner,
    ) -> Result<Self> {
        let mut runners = Runners::launch(primacy, place.site(), processes, manner)?;
        let leader = runners.await_start(0)?;
        let repeats = u32::try_from(repeats)?;
        let gaps = gaps(&mut runners, leader, event, processes, repeats, |_| Duration::ZERO)?;
        let candidates = processes * manner.each();
        Ok(Self { store: place.kind, event, candidates, manner, gaps })
    }
}

/// How long nobody led after each of this many events. Before each the runners are complete again, and then left alone for as long as
/// `pause` says of the nth.
pub fn gaps(
    runners: &mut Runners,
    mut leader: Start,
    event: Event,
    processes: usize,
    repeats: u32,
    pause: impl Fn(u32) -> Duration,
) -> Result<Gaps> {
    let mut gaps = Gaps::default();
    for nth in 0..repeats {
        runners.await_waiting(processes)?;
        std::thread::sleep(pause(nth));
        leader = runners.latest(leader);
        let at = clock::boot_nanos().unwrap_or(0);
        let next = strike(runners, event, &leader)?;
        gaps.gaps_nanos.push(next.nanos.saturating_sub(at));
        gaps.grants_nanos.extend(runners.granted(&next)?.map(|granted| granted.saturating_sub(at)));
        leader = next;
        while runners.all.len() < processes {
            runners.add()?;
        }
    }
    Ok(gaps)
}

fn strike(runners: &mut Runners, event: Event, leader: &Start) -> Result<Start> {
    let [runner, warden, program] = runners.processes_of(leader)?;
    match event {
        Event::GracefulStop => send(runner, Signal::SIGTERM),
        Event::ProgramDeath => send(program, Signal::SIGKILL),
        Event::RunnerDeath => send(runner, Signal::SIGKILL),
        Event::Depose => {
            let ordered = runners.primacy().args(["depose", "--no-wait", "--quiet"]).output()?;
            if !ordered.status.success() {
                let why = String::from_utf8_lossy(&ordered.stderr);
                bail!("the order was refused ({}): {}", ordered.status, why.trim());
            }
        }
        Event::SilentLoss => [runner, warden, program].into_iter().for_each(|pid| send(pid, Signal::SIGSTOP)),
    }
    let next = runners.await_start(leader.token)?;
    match event {
        Event::Depose => {}
        Event::SilentLoss => {
            // Gone for good: a lost host does not come back to campaign.
            [runner, warden, program].into_iter().for_each(|pid| send(pid, Signal::SIGKILL));
            runners.remove(&leader.name)?;
        }
        _ => runners.remove(&leader.name)?,
    }
    Ok(next)
}

impl fmt::Display for Failover {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let spread = |nanos: &[u64]| Spread::of(nanos.iter().copied().map(Duration::from_nanos).collect());
        let Self { store, event, candidates, manner, gaps } = self;
        let what = format!("{store:<10} {:<23} {candidates:>5} candidates, {manner}", event.name());
        if !gaps.grants_nanos.is_empty() {
            writeln!(f, "{what}, to the grant    {}", spread(&gaps.grants_nanos))?;
        }
        write!(f, "{what}, to the program  {}", spread(&gaps.gaps_nanos))
    }
}
