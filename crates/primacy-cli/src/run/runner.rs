//! The runner: campaigns, has the warden start the program while it leads, and ends as the program did.

use std::sync::Arc;

use nix::sys::signal::Signal;
use primacy::select::{Rank, ScoreError, Scores};
use primacy::store::EndReason;
use primacy::{CandidateId, Instant, Phase, StopReason, Timing, clock};
use tokio::sync::watch;
use tracing::{info, warn};

use crate::cli::Common;
use crate::cli::preference::Scoring;
use crate::output::logging;
use crate::panics;
use crate::standing::{CandidateSource, Candidates, CurrentLeadership};

use super::campaign::{Campaign, FirstTrouble, Guard};
use super::command_poll::{CommandPoll, PolledCommand};
use super::hooks::Rests;
use super::next_warden::next_warden;
use super::process_tree::End;
use super::setbacks::Setbacks;
use super::signals::{self, Signals};
use super::status_file::StatusFile;
use super::tell;
use super::waiting::{changed, has_looked, in_vain, trouble_changed, wait_for};
use super::warden_handle::{AttachedWarden, IdleWarden};
use super::wire::{Deadlines, FromWarden, Led, ToWarden};
use super::{Job, LOST, Refusal, UNAVAILABLE, nanos};

mod bury;
mod expectation;
mod hooks;

use bury::leave_it_alive;
use expectation::Expectation;
use hooks::WorkEnd;

/// Runs the job to its end and returns the exit code.
pub(super) fn run(mut job: Job, warden: IdleWarden) -> Result<u8, Refusal> {
    // Should the warden die, what the program started becomes this process's to end.
    if let Err(error) = nix::sys::prctl::set_child_subreaper(true) {
        warn!(%error, "cannot adopt orphans");
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Refusal::system("the system gives no event queue", &error))?;
    panics::end_the_process();
    let ended = runtime.block_on(async {
        let mut signals = Signals::take().map_err(|error| Refusal::system("signals cannot be handled", &error))?;
        let mut setbacks = Setbacks::default();
        // A candidate of a program that stays warm begins only when the work has stopped.
        let warden = match job.hooks {
            Some(_) => match hooks::cleared_and_told(warden, &job, &mut signals, &mut setbacks).await {
                Ok(warden) => FirstWarden::Cleared(warden),
                Err(end) => return end,
            },
            None => FirstWarden::Idle(warden),
        };
        let campaign = job.source.campaign(&job.candidate)?;
        let (led, leads) = watch::channel(None);
        let mut server = None;
        let told = CandidateSource::new(job.source.election(), &job.candidate.label, campaign.state(), leads);
        let told = Arc::new(told);
        // Dropped last: it writes how all has ended.
        let _file = match job.status_file.take() {
            Some(path) => {
                let begun = StatusFile::start(path, Arc::clone(&told));
                Some(begun.map_err(|error| Refusal::system("the status file cannot be written", &error))?)
            }
            None => None,
        };
        if let (Some(listener), Some(store)) = (job.http.take(), job.source.store()) {
            let told = Candidates::one(told, Arc::clone(store));
            let served = listener.serve(Arc::new(told));
            server = Some(served.map_err(|error| Refusal::system("the system gives no thread for HTTP", &error))?);
        }
        let id = campaign.id();
        let attached = match warden {
            FirstWarden::Cleared(warden) => {
                if let Some(id) = id {
                    warden.tell(&ToWarden::Candidate { id: id.to_string() });
                }
                Ok(warden)
            }
            FirstWarden::Idle(warden) => attach(warden, &job, id, &mut signals, &mut setbacks).await,
        };
        let warden = match attached {
            Ok(warden) => warden,
            Err(end) => {
                campaign.withdraw().await;
                return end;
            }
        };
        let ranks = ranks(&job).map_err(no_thread)?;
        let timing = job.candidate.timing;
        let http = server.as_ref().map(|server| server.place.clone());
        let rank = job.candidate.rank;
        let runner = Runner {
            job: Arc::new(job),
            signals,
            campaign,
            led,
            http,
            warden,
            ranks,
            rank,
            timing,
            term: None,
            ending: None,
            immune: false,
            setbacks,
            rests: Rests::default(),
        };
        runner.run().await
    });
    // A warden that is stopped may still be waited for in the background; nobody waits for that.
    runtime.shutdown_background();
    ended
}

/// The warden that was started before anything else.
enum FirstWarden {
    Idle(IdleWarden),
    /// The work of a program that stays warm has stopped, and it knows of no candidate yet.
    Cleared(AttachedWarden),
}

/// Tells the warden what it is for, or starts others until one listens.
async fn attach(
    warden: IdleWarden,
    job: &Job,
    id: Option<CandidateId>,
    signals: &mut Signals,
    setbacks: &mut Setbacks,
) -> Result<AttachedWarden, Result<u8, Refusal>> {
    match warden.watch_over(job, id).await {
        Ok(warden) => Ok(warden),
        Err(error) => next_warden(format!("could not be started: {error}"), job, id, signals, setbacks).await,
    }
}

/// Begins to ask for the candidate's score, if a command says it.
fn ranks(job: &Job) -> std::io::Result<Option<Ranks>> {
    let Some(Scoring { mut selector, command, every }) = job.scoring.clone() else { return Ok(None) };
    let label = job.candidate.label.clone();
    let variables = vec![
        ("PRIMACY_ELECTION", job.source.election().as_str().to_owned()),
        ("PRIMACY_NAME", label.as_str().to_owned()),
    ];
    // That the command fails is said once, and by nobody else: also where the store has not been reached yet.
    logging::start(&job.common, logging::RUNNING);
    let command = PolledCommand { what: "score", command, every, variables };
    let rank = move |line: &str| {
        let scores: Scores = line.parse().map_err(|error: ScoreError| error.to_string())?;
        selector.rank(&label, &scores).map_err(|error| error.to_string())
    };
    CommandPoll::start(command, rank).map(Some)
}

/// The ranks that follow from what a command says.
type Ranks = CommandPoll<Option<Rank>>;

fn no_thread(error: std::io::Error) -> Refusal {
    Refusal::system("the system gives no thread for the score", &error)
}

struct Runner {
    job: Arc<Job>,
    signals: Signals,
    campaign: Campaign,
    /// The leadership, for those who ask.
    led: watch::Sender<Option<CurrentLeadership>>,
    /// Where those ask, until it was told.
    http: Option<String>,
    warden: AttachedWarden,
    ranks: Option<Ranks>,
    /// How the candidate stands by preference.
    rank: Option<Rank>,
    /// The timing of the leadership, which follows the rounds in the `registers` protocol.
    timing: Timing,
    /// With hooks: the lease as the warden was told of it last.
    term: Option<Deadlines>,
    /// A signal that has asked for the end.
    ending: Option<Signal>,
    /// Some of the program may not be killed by this user, and lives.
    immune: bool,
    setbacks: Setbacks,
    /// How long it keeps out of the election after hooks that failed.
    rests: Rests,
}

/// What came while the candidate waited.
enum WaitEnd {
    Elected(Guard),
    Signal(Signal),
    WardenDied,
    NoStore(String),
    /// It has waited for as long as it should, and why it does not lead.
    InVain(String),
    Stopped(StopReason),
}

/// How a leadership ended for the program.
enum TermEnd {
    /// The program ended by itself, or was asked to by a signal to the runner.
    Program(End),
    /// The program could not be started.
    NotStarted(String),
    /// The leadership ended first, and the program was stopped.
    Lost(Option<EndReason>),
    /// The warden died, or does not do its work: the program must be killed by the runner.
    WardenFailed,
    /// It was over before the program could be started.
    NeverBegan,
    /// The agent grants no time for `--on-lost`.
    NoGrace,
    /// The runner was asked to end, and some of the program lives on.
    Immune,
    /// No hook will run any more.
    Work(WorkEnd),
    /// The warden is gone, as it says, and the runner has stopped the work of a program that stays warm by itself.
    StoppedAlone(String),
}

impl Runner {
    async fn run(mut self) -> Result<u8, Refusal> {
        loop {
            let leadership = match self.wait().await {
                WaitEnd::Elected(leadership) => leadership,
                WaitEnd::Signal(signal) => return Ok(self.leave(signals::exit_code(signal)).await),
                WaitEnd::WardenDied => {
                    let (how, ..) = self.bury(None).await;
                    if let Some(end) = self.renew_warden(how).await {
                        return self.leave_with(end).await;
                    }
                    continue;
                }
                WaitEnd::NoStore(why) => {
                    self.leave(UNAVAILABLE).await;
                    return Err(Refusal::new(UNAVAILABLE, why));
                }
                WaitEnd::InVain(why) => {
                    info!("gives up{why}");
                    return Ok(self.leave(LOST).await);
                }
                WaitEnd::Stopped(reason) => {
                    self.leave(UNAVAILABLE).await;
                    return Err(Refusal::new(UNAVAILABLE, reason.to_string()));
                }
            };
            let led = if self.job.hooks.is_some() {
                self.lead_hooks(&leadership).await
            } else {
                self.tell_led(&leadership);
                self.lead(&leadership).await
            };
            self.led.send_replace(None);
            let token = leadership.token().get();
            // R9: the program is dead by now, and only now is the lease given back.
            match led {
                TermEnd::Program(end) => {
                    tell::giving_back(token, None);
                    drop(leadership);
                    return Ok(self.leave(end.exit_code()).await);
                }
                TermEnd::NotStarted(message) => {
                    drop(leadership);
                    self.leave(126).await;
                    return Err(Refusal::new(126, format!("the program could not be started: {message}")));
                }
                TermEnd::Lost(reason) => {
                    tell::giving_back(token, reason.as_ref());
                    drop(leadership);
                    if self.job.once {
                        return Ok(self.leave(LOST).await);
                    }
                }
                TermEnd::NeverBegan => drop(leadership),
                TermEnd::NoGrace => {
                    drop(leadership);
                    self.leave(UNAVAILABLE).await;
                    return Err(Refusal::new(UNAVAILABLE, hooks::NO_GRACE_OF_AGENT));
                }
                TermEnd::Work(end) => {
                    if let Some(end) = self.work_over(leadership, end).await {
                        return self.leave_with(end).await;
                    }
                }
                TermEnd::WardenFailed => {
                    let (how, ..) = self.bury(None).await;
                    warn!("the program was killed, since its warden died or hung");
                    tell::giving_back(token, None);
                    drop(leadership);
                    if let Some(end) = self.go_on_without(how, signals::exit_code(Signal::SIGKILL)).await {
                        return self.leave_with(end).await;
                    }
                }
                TermEnd::StoppedAlone(how) => {
                    tell::giving_back(token, None);
                    drop(leadership);
                    if let Some(end) = self.go_on_without(how, 0).await {
                        return self.leave_with(end).await;
                    }
                }
                TermEnd::Immune => leave_it_alive(),
            }
        }
    }

    /// Nothing runs any more, and the warden is gone. `code`: how the runner ends if a signal has asked for that.
    async fn go_on_without(&mut self, how: String, code: u8) -> Option<Result<u8, Refusal>> {
        if self.ending.is_some() {
            return Some(Ok(code));
        }
        if self.job.once {
            return Some(Ok(LOST));
        }
        self.renew_warden(how).await
    }

    /// Those who ask are told of this leadership from now on.
    fn tell_led(&self, leadership: &Guard) {
        let (token, phases) = (leadership.token(), leadership.phases());
        self.led.send_replace(Some(CurrentLeadership { token, phases, told: None }));
    }

    /// From now on the candidate stands like this.
    fn prefer(&mut self, rank: Option<Rank>) {
        self.rank = rank;
        self.campaign.prefer(rank);
    }

    /// From now on it says what happens.
    fn start_log(&mut self) {
        logging::start(&self.job.common, logging::RUNNING);
        if let Some(place) = self.http.take() {
            info!("tells over HTTP who leads, on {place}");
        }
    }

    // ---- waiting ----

    async fn wait(&mut self) -> WaitEnd {
        let mut status = self.campaign.status();
        let mut membership = self.campaign.group_status();
        let mut agent = self.campaign.agent_troubles();
        let mut waiting = tell::Waiting::default();
        let mut told_id = None;
        // What takes longer than anybody would watch in silence is told at once.
        let mut said = self.job.wait <= Common::DEFAULT_WAIT || self.job.common.verbose > 0;
        let give_up = tokio::time::sleep(self.job.wait);
        let limit = wait_for(self.job.patience);
        tokio::pin!(give_up, limit);
        let (mut patient, mut in_time) = (true, true);
        loop {
            let of_agent = agent.as_mut().map(|trouble| trouble.borrow_and_update().clone());
            let trouble = FirstTrouble::of(&status.borrow_and_update(), of_agent.as_ref(), patient);
            let id = membership.as_mut().and_then(|membership| membership.borrow_and_update().view.id);
            // One that never leads does not look, and is told of the store by its registers alone.
            if let Some(trouble) = trouble.filter(|_| id.is_none()) {
                if trouble.is_hopeless || !patient || !in_time {
                    return WaitEnd::NoStore(trouble.why);
                }
                if !std::mem::replace(&mut said, true) {
                    self.start_log();
                    tell::not_reached(of_agent.is_some(), &trouble.why, self.job.wait);
                }
            }
            if has_looked(&status.borrow()) || id.is_some() {
                self.start_log();
            }
            waiting.tell(&status.borrow());
            if let Some(why) = in_vain(&status.borrow(), self.job.patience, patient, in_time) {
                return WaitEnd::InVain(why);
            }
            if let Some(id) = id.filter(|id| told_id.replace(*id) != Some(*id)) {
                info!("this process takes part as number {id}");
            }
            tokio::select! {
                biased;
                signal = self.signals.next() => if signals::ends(signal) {
                    return WaitEnd::Signal(signal);
                },
                message = self.warden.next() => if message.is_none() {
                    return WaitEnd::WardenDied;
                },
                elected = self.campaign.elected() => return match elected {
                    Ok(leadership) => WaitEnd::Elected(leadership),
                    Err(reason) => WaitEnd::Stopped(reason),
                },
                _ = status.changed() => {}
                () = changed(&mut membership) => {}
                () = trouble_changed(&mut agent) => {}
                rank = Ranks::next(&mut self.ranks) => self.prefer(rank),
                () = &mut give_up, if patient => patient = false,
                () = &mut limit, if in_time => in_time = false,
            }
        }
    }

    // ---- leading ----

    async fn lead(&mut self, leadership: &Guard) -> TermEnd {
        // The first look may have won at once, before anything else was seen of it.
        self.start_log();
        let mut phases = leadership.phases();
        let token = leadership.token().get();
        let first = phases.borrow_and_update().clone();
        let Phase::Leading { until, version, timing } = first else { return TermEnd::NeverBegan };
        self.timing = timing;
        let term = Deadlines::of(until, version, &timing);
        self.warden.lead(self.leading(leadership, term), leadership.connection());
        info!("this candidate leads {} with token {token}", self.job.source.election());
        self.immune = false;
        let mut reason = None;
        let (mut watching, mut late) = (true, false);
        let (mut by_itself, mut answer) = (false, Expectation::of_an_answer());
        let mut overrule_at = None;
        loop {
            tokio::select! {
                biased;
                () = sleep_until(overrule_at) => return TermEnd::WardenFailed,
                message = self.warden.next() => {
                    answer.answered();
                    match message {
                        Some(FromWarden::Gone { end, overdue }) => {
                            tell::gone(end, overdue || late);
                            let lost = overdue || (reason.is_some() && !by_itself);
                            if overdue && reason.is_none() {
                                tell::ending(token, &phases.borrow(), true);
                            }
                            let is_lost = lost && self.ending.is_none();
                            return if is_lost { TermEnd::Lost(reason) } else { TermEnd::Program(end) };
                        }
                        Some(FromWarden::NotStarted { .. }) if reason.is_some() => return TermEnd::Lost(reason),
                        Some(FromWarden::NotStarted { message }) => return TermEnd::NotStarted(message),
                        Some(message @ (FromWarden::Immune { .. } | FromWarden::Undying)) => {
                            tell::lives_on(&message);
                            // The warden does what can be done.
                            (self.immune, overrule_at) = (true, None);
                            self.led.send_replace(None);
                            if self.ending.is_some() {
                                return TermEnd::Immune;
                            }
                            // It has ended, and nobody else could lead for as long as this lives.
                            if reason.is_none() {
                                by_itself = true;
                                self.campaign.resign();
                            }
                        }
                        Some(_) => {}
                        None => return TermEnd::WardenFailed,
                    }
                }
                () = sleep_until(answer.next(&self.timing)) => if answer.is_in_vain(&self.timing) {
                    return TermEnd::WardenFailed;
                },
                signal = self.signals.next() => {
                    self.warden.tell(&ToWarden::Forward { signal: signal as i32 });
                    if signals::ends(signal) {
                        if self.immune {
                            return TermEnd::Immune;
                        }
                        if self.ending.replace(signal).is_none() {
                            info!("{signal}: the program is told to stop");
                        }
                        self.campaign.shutdown();
                    }
                }
                rank = Ranks::next(&mut self.ranks) => self.prefer(rank),
                changed = phases.changed(), if watching => {
                    watching = changed.is_ok();
                    let phase = phases.borrow_and_update().clone();
                    tell::ending(token, &phase, false);
                    late |= matches!(phase, Phase::Overdue { .. });
                    reason = self.pass_on(&phase).or(reason);
                    if !self.immune {
                        overrule_at = Instant::earliest(overrule_at, self.overrule_at(&phase));
                    }
                }
            }
        }
    }

    /// The leadership, as the warden is told of it.
    fn leading(&self, leadership: &Guard, term: Deadlines) -> Led {
        Led { token: leadership.token().get(), term, grace_ns: nanos(self.timing.grace()) }
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

    /// Tells the warden of a new phase. Returns why the program must stop, unless it is the runner's own end.
    fn pass_on(&mut self, phase: &Phase) -> Option<EndReason> {
        let withdrawn = matches!(phase.stop_reason(), Some(EndReason::Withdrawn));
        match phase {
            Phase::Leading { until, version, timing } => {
                self.timing = *timing;
                let term = Deadlines::of(*until, *version, timing);
                self.term = Some(term);
                self.warden.tell(&ToWarden::Extend(term));
            }
            Phase::Draining { by, .. } => {
                let signal = (!withdrawn).then_some(Signal::SIGTERM as i32);
                self.warden.tell(&ToWarden::Stop { signal, kill_at: clock::to_boot_nanos(*by) });
            }
            _ => self.warden.tell(&ToWarden::Kill),
        }
        phase.stop_reason().filter(|_| !withdrawn).cloned()
    }

    // ---- the end ----

    /// Withdraws, and lets the warden go once nothing is left that it would have to clean up. A second signal to end
    /// does not wait for the store.
    async fn leave(self, code: u8) -> u8 {
        let Self { mut signals, campaign, warden, .. } = self;
        let impatient = async { while !signals::ends(signals.next().await) {} };
        tokio::select! {
            () = campaign.withdraw() => warden.farewell().await,
            // The warden finds the runner dead, and releases in its place.
            () = impatient => {}
        }
        code
    }

    async fn leave_with(self, end: Result<u8, Refusal>) -> Result<u8, Refusal> {
        let code = end.as_ref().map_or_else(|refusal| refusal.code, |code| *code);
        self.leave(code).await;
        end
    }

    /// Starts another warden. Returns how the runner ends if it must.
    async fn renew_warden(&mut self, how: String) -> Option<Result<u8, Refusal>> {
        if let Some(signal) = self.ending {
            return Some(Ok(signals::exit_code(signal)));
        }
        match next_warden(how, &self.job, self.campaign.id(), &mut self.signals, &mut self.setbacks).await {
            Ok(warden) => self.warden = warden,
            Err(end) => return Some(end),
        }
        match ranks(&self.job) {
            Ok(ranks) => self.ranks = ranks,
            Err(error) => return Some(Err(no_thread(error))),
        }
        None
    }
}

async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep(at.since(clock::now())).await,
        None => std::future::pending().await,
    }
}
