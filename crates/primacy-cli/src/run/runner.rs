//! The runner: campaigns, has the warden start the program while it leads, and ends as the program did.

use std::sync::Arc;

use nix::sys::signal::Signal;
use primacy::select::{Rank, ScoreError, Scores};
use primacy::store::{EndReason, StoreError};
use primacy::{Candidate, Instant, Leadership, Membership, Phase, Status, StopReason, Timing, Trouble, clock};
use tokio::sync::watch;
use tracing::{info, warn};

use crate::cli::preference::Scoring;
use crate::output::logging;

use super::link::{Link, Warden};
use super::said::{Asking, Said};
use super::signals::{self, Signals};
use super::wire::{Deadlines, End, FromWarden, ToWarden};
use super::{Job, LOST, Refusal, UNAVAILABLE};

/// Runs the job to its end and returns the exit code.
pub(super) fn run(job: Job, warden: Warden) -> Result<u8, Refusal> {
    // Should the warden die, what the program started becomes this process's to end.
    if let Err(error) = nix::sys::prctl::set_child_subreaper(true) {
        warn!(%error, "cannot adopt orphans");
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Refusal::system("the system gives no event queue", &error))?;
    // A panic must not unwind through a leadership, which would release it: the warden releases, once all is dead.
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        hook(info);
        std::process::abort();
    }));
    let ended = runtime.block_on(async {
        let signals = Signals::take().map_err(|error| Refusal::system("signals cannot be handled", &error))?;
        let candidate = job
            .election
            .campaign_with(job.candidate.clone())
            .map_err(|error| Refusal::new(UNAVAILABLE, error.to_string()))?;
        let link = watch_over(warden, &job, &candidate).await?;
        let ranks = ranks(&job).map_err(|error| Refusal::system("the system gives no thread for the score", &error))?;
        let timing = job.candidate.timing;
        Runner { job: Arc::new(job), signals, candidate, link, ranks, timing, ending: false }.run().await
    });
    // A warden that is stopped may still be waited for in the background; nobody waits for that.
    runtime.shutdown_background();
    ended
}

/// Has a warden watch over the candidate; another one, if the first dies before it does.
async fn watch_over(mut warden: Warden, job: &Job, candidate: &Candidate) -> Result<Link, Refusal> {
    const ATTEMPTS: u32 = 3;
    let refused = |error| Refusal::system("the warden process cannot be started", &error);
    for _ in 1..ATTEMPTS {
        match warden.watch_over(job, candidate.id()).await {
            Ok(link) => return Ok(link),
            Err(error) => warn!(%error, "the warden did not start; starting another"),
        }
        warden = Warden::start().map_err(refused)?;
    }
    warden.watch_over(job, candidate.id()).await.map_err(refused)
}

/// Begins to ask for the candidate's score, if a command says it.
fn ranks(job: &Job) -> std::io::Result<Option<Ranks>> {
    let Some(Scoring { mut selector, command, every }) = job.scoring.clone() else { return Ok(None) };
    let label = job.candidate.label.clone();
    let variables = vec![
        ("PRIMACY_ELECTION", job.election.name().as_str().to_owned()),
        ("PRIMACY_NAME", label.as_str().to_owned()),
    ];
    let asking = Asking { what: "score", command, every, variables };
    let rank = move |line: &str| {
        let scores: Scores = line.parse().map_err(|error: ScoreError| error.to_string())?;
        selector.rank(&label, &scores).map_err(|error| error.to_string())
    };
    Said::start(asking, rank).map(Some)
}

/// The ranks that follow from what a command says.
type Ranks = Said<Option<Rank>>;

struct Runner {
    job: Arc<Job>,
    signals: Signals,
    candidate: Candidate,
    link: Link,
    ranks: Option<Ranks>,
    /// The timing of the leadership, which follows the rounds in the `registers` protocol.
    timing: Timing,
    /// A signal has asked for the end.
    ending: bool,
}

/// What came while the candidate waited.
enum Waited {
    Elected(Leadership),
    Signal(Signal),
    WardenDied,
    NoStore(StoreError),
    Stopped(StopReason),
}

/// How a leadership ended for the program.
enum Led {
    /// The program ended by itself, or was asked to by a signal to the runner.
    Program(End),
    /// The program could not be started.
    NotStarted(String),
    /// The leadership ended first, and the program was stopped.
    Lost,
    /// The warden died, or does not do its work: the program must be killed by the runner.
    WardenFailed,
    /// It was over before the program could be started.
    NeverBegan,
}

impl Runner {
    async fn run(mut self) -> Result<u8, Refusal> {
        loop {
            let leadership = match self.wait().await {
                Waited::Elected(leadership) => leadership,
                Waited::Signal(signal) => return Ok(self.leave(signals::exit_code(signal)).await),
                Waited::WardenDied => {
                    self = self.replace_warden().await?;
                    continue;
                }
                Waited::NoStore(error) => {
                    self.leave(UNAVAILABLE).await;
                    return Err(Refusal::new(UNAVAILABLE, error.to_string()));
                }
                Waited::Stopped(reason) => {
                    self.leave(UNAVAILABLE).await;
                    return Err(Refusal::new(UNAVAILABLE, reason.to_string()));
                }
            };
            let led = self.lead(&leadership).await;
            // R9: the program is dead by now, and only now is the lease given back.
            match led {
                Led::Program(end) => {
                    drop(leadership);
                    return Ok(self.leave(end.exit_code()).await);
                }
                Led::NotStarted(message) => {
                    drop(leadership);
                    self.leave(126).await;
                    return Err(Refusal::new(126, format!("the program could not be started: {message}")));
                }
                Led::Lost if self.job.once => {
                    drop(leadership);
                    return Ok(self.leave(LOST).await);
                }
                Led::Lost | Led::NeverBegan => drop(leadership),
                Led::WardenFailed => {
                    self = self.replace_warden_under(leadership).await?;
                    if self.ending {
                        return Ok(self.leave(signals::exit_code(Signal::SIGKILL)).await);
                    }
                    if self.job.once {
                        return Ok(self.leave(LOST).await);
                    }
                }
            }
        }
    }

    // ---- waiting ----

    async fn wait(&mut self) -> Waited {
        let mut status = self.candidate.status();
        let mut membership = self.candidate.membership();
        let (mut told, mut told_id) = (None, None);
        let give_up = tokio::time::sleep(self.job.wait);
        tokio::pin!(give_up);
        let mut patient = true;
        loop {
            let trouble = first_trouble(&status.borrow_and_update());
            let id = membership.as_mut().and_then(|membership| membership.borrow_and_update().view.id);
            // One that never leads does not look, and is told of the store by its registers alone.
            if let Some(trouble) = trouble.filter(|_| id.is_none()) {
                // Waiting does not help where someone has to act first.
                let hopeless = matches!(trouble.error, StoreError::Unusable(_));
                if hopeless || !patient {
                    return Waited::NoStore(trouble.error);
                }
            }
            if has_looked(&status.borrow()) || id.is_some() {
                logging::start(&self.job.common, logging::RUNNING);
            }
            narrate(&status.borrow(), &mut told);
            if let Some(id) = id.filter(|id| told_id.replace(*id) != Some(*id)) {
                info!("this process takes part as number {id}");
            }
            tokio::select! {
                biased;
                signal = self.signals.next() => if signals::ends(signal) {
                    return Waited::Signal(signal);
                },
                message = self.link.next() => if message.is_none() {
                    return Waited::WardenDied;
                },
                elected = self.candidate.elected() => return match elected {
                    Ok(leadership) => Waited::Elected(leadership),
                    Err(reason) => Waited::Stopped(reason),
                },
                _ = status.changed() => {}
                () = changed(&mut membership) => {}
                rank = Ranks::next(&mut self.ranks) => self.candidate.prefer(rank),
                () = &mut give_up, if patient => patient = false,
            }
        }
    }

    // ---- leading ----

    async fn lead(&mut self, leadership: &Leadership) -> Led {
        // The first look may have won at once, before anything else was seen of it.
        logging::start(&self.job.common, logging::RUNNING);
        let mut phases = leadership.phases();
        let token = leadership.token().get();
        let first = phases.borrow_and_update().clone();
        let Phase::Leading { until, version, timing } = first else { return Led::NeverBegan };
        self.timing = timing;
        let term = Deadlines::of(until, version, &timing);
        self.link.tell(&ToWarden::Lead { token, term });
        info!("leading {} with token {token}", self.job.election.name());
        let mut lost = false;
        let mut watching = true;
        let mut overrule_at = None;
        loop {
            tokio::select! {
                biased;
                () = sleep_until(overrule_at) => return Led::WardenFailed,
                message = self.link.next() => match message {
                    Some(FromWarden::Gone { overdue, .. }) if (overdue || lost) && !self.ending => return Led::Lost,
                    Some(FromWarden::Gone { end, .. }) => return Led::Program(end),
                    Some(FromWarden::NotStarted { .. }) if lost => return Led::Lost,
                    Some(FromWarden::NotStarted { message }) => return Led::NotStarted(message),
                    Some(FromWarden::Ready | FromWarden::Started { .. }) => {}
                    None => return Led::WardenFailed,
                },
                signal = self.signals.next() => {
                    self.link.tell(&ToWarden::Forward { signal: signal as i32 });
                    if signals::ends(signal) {
                        self.ending = true;
                        self.candidate.begin_withdrawal();
                    }
                }
                rank = Ranks::next(&mut self.ranks) => self.candidate.prefer(rank),
                changed = phases.changed(), if watching => {
                    watching = changed.is_ok();
                    let phase = phases.borrow_and_update().clone();
                    lost |= self.pass_on(&phase);
                    overrule_at = Instant::earliest(overrule_at, self.overrule_at(&phase));
                }
            }
        }
    }

    /// When the runner kills a warden that has not killed the program by then, and does its work.
    fn overrule_at(&self, phase: &Phase) -> Option<Instant> {
        let allowance = self.timing.kill() / 2;
        match phase {
            Phase::Leading { .. } => None,
            Phase::Draining { by, .. } => Some(*by + allowance),
            _ => Some(clock::now() + allowance),
        }
    }

    /// Tells the warden of a new phase. `true` if the program must stop for another reason than the runner's own end.
    fn pass_on(&mut self, phase: &Phase) -> bool {
        let withdrawn = matches!(phase.stop_reason(), Some(EndReason::Withdrawn));
        match phase {
            Phase::Leading { until, version, timing } => {
                self.timing = *timing;
                let term = Deadlines::of(*until, *version, timing);
                self.link.tell(&ToWarden::Extend(term));
                return false;
            }
            Phase::Draining { reason, by } => {
                let signal = (!withdrawn).then_some(Signal::SIGTERM as i32);
                self.link.tell(&ToWarden::Stop { signal, kill_at: clock::to_boot_nanos(*by) });
                if !withdrawn {
                    info!("stopping the program: {reason}");
                }
            }
            Phase::Ended { reason } => {
                self.link.tell(&ToWarden::Kill);
                warn!("killing the program: {reason}");
            }
            _ => self.link.tell(&ToWarden::Kill),
        }
        !withdrawn
    }

    // ---- the end ----

    /// Withdraws, and lets the warden go once nothing is left that it would have to clean up. A second signal to end
    /// does not wait for the store.
    async fn leave(self, code: u8) -> u8 {
        let Self { mut signals, candidate, link, .. } = self;
        let impatient = async { while !signals::ends(signals.next().await) {} };
        tokio::select! {
            _ = candidate.withdraw() => link.farewell().await,
            // The warden finds the runner dead, and releases in its place.
            () = impatient => {}
        }
        code
    }

    async fn replace_warden_under(self, leadership: Leadership) -> Result<Self, Refusal> {
        let (rest, link) = self.without_warden();
        link.bury().await;
        drop(leadership);
        warn!("the warden died or hung; its program was killed, and the leadership given up");
        rest.with_new_warden().await
    }

    async fn replace_warden(self) -> Result<Self, Refusal> {
        let (rest, link) = self.without_warden();
        link.bury().await;
        warn!("the warden died; starting another");
        rest.with_new_warden().await
    }

    fn without_warden(self) -> (Unwatched, Link) {
        let Self { job, signals, candidate, link, ranks, timing, ending } = self;
        // What the score's command has started must not be taken for what the program has.
        drop(ranks);
        (Unwatched { job, signals, candidate, timing, ending }, link)
    }
}

/// A runner whose warden is gone.
struct Unwatched {
    job: Arc<Job>,
    signals: Signals,
    candidate: Candidate,
    timing: Timing,
    ending: bool,
}

impl Unwatched {
    async fn with_new_warden(self) -> Result<Runner, Refusal> {
        let Self { job, signals, candidate, timing, ending } = self;
        let refused = |error| Refusal::system("the warden process cannot be started", &error);
        let warden = Warden::start().map_err(refused)?;
        let link = watch_over(warden, &job, &candidate).await?;
        let ranks = ranks(&job).map_err(refused)?;
        Ok(Runner { job, signals, candidate, link, ranks, timing, ending })
    }
}

/// Waits until the membership changes, if there is one.
async fn changed(membership: &mut Option<watch::Receiver<Membership>>) {
    if let Some(membership) = membership
        && membership.changed().await.is_ok()
    {
        return;
    }
    // One whose group has ended does not change any more.
    std::future::pending().await
}

async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep(at.since(clock::now())).await,
        None => std::future::pending().await,
    }
}

/// Trouble with a store that has never answered.
fn first_trouble(status: &Status) -> Option<Trouble> {
    match status {
        Status::Waiting { trouble: Some(trouble), .. } if !trouble.ever_reached => Some(trouble.clone()),
        _ => None,
    }
}

/// Whether the store has answered at least once.
fn has_looked(status: &Status) -> bool {
    !matches!(status, Status::Waiting { why: primacy::store::Why::NotLooked, .. }) && first_trouble(status).is_none()
}

/// Says what a waiting candidate waits for, once for each new answer.
fn narrate(status: &Status, told: &mut Option<String>) {
    let Status::Waiting { why, .. } = status else { return };
    if matches!(why, primacy::store::Why::NotLooked | primacy::store::Why::Asking) {
        return;
    }
    let line = why.to_string();
    if told.as_ref() != Some(&line) {
        info!("this candidate {line}");
        *told = Some(line);
    }
}
