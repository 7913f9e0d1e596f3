//! Keeps one program started: takes its lock, starts its runner, and starts it again after it has ended. It begins with whatever an
//! agent before it has left.

use std::fs::File;
use std::io;
use std::ops::ControlFlow;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, ExitStatus};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use nix::sys::signal::Signal;
use primacy::{Instant, clock};
use tokio::sync::{oneshot, watch};
use tracing::{debug, info, warn};

use super::backoff::Backoff;
use super::lock::{LockFile, LockText};
use super::process::RunnerProcess;
use super::{Place, Wanted};
use crate::agent::settings::Program;
use crate::output::span::span;
use crate::standing::{Candidates, ProgramPhase, ProgramState};

/// How soon to look again whether the runner that has a lock has said which process it is.
const LOOK_AGAIN: Duration = Duration::from_millis(50);
/// How long that may take.
const SAYS_WITHIN: Duration = Duration::from_secs(5);

/// What keeps one program started.
pub(super) struct Supervisor {
    place: Rc<Place>,
    lock: LockFile,
    /// What is to run: it changes when the configuration is read again, and is nothing when the program is to end.
    wanted: watch::Receiver<Wanted>,
    told: Arc<Candidates>,
    state: ProgramState,
    backoff: Backoff,
    /// Why it could not be started for the last time, if that was said.
    said: Option<String>,
    /// Whether it has run under this agent.
    has_run: bool,
}

/// When a lock is free.
type Freed = oneshot::Receiver<io::Result<()>>;

impl Supervisor {
    pub(super) fn new(name: &str, place: &Rc<Place>, wanted: watch::Receiver<Wanted>, told: &Arc<Candidates>) -> Self {
        let state = ProgramState {
            name: name.to_owned(),
            election: String::new(),
            state: ProgramPhase::Waiting,
            pid: None,
            restarts: 0,
            why: None,
        };
        Self {
            place: Rc::clone(place),
            lock: place.locks.lock(name),
            wanted,
            told: Arc::clone(told),
            state,
            backoff: Backoff::new(),
            said: None,
            has_run: false,
        }
    }

    /// Returns when nothing is to run any more, and nothing does.
    pub(super) async fn run(mut self) {
        loop {
            let lock = match self.lock.try_take() {
                Ok(Some(lock)) => lock,
                Ok(None) => match self.outlive().await {
                    ControlFlow::Continue(()) => continue,
                    ControlFlow::Break(()) => break,
                },
                Err(_) if self.wanted.borrow_and_update().is_none() => break,
                Err(error) => {
                    self.put_off(format!("its lock cannot be had: {error}")).await;
                    continue;
                }
            };
            let Some(program) = self.wanted.borrow_and_update().clone() else { break };
            self.state.election.clone_from(&program.election);
            match self.start(&program, lock).await {
                Ok((child, process)) => {
                    let name = &self.state.name;
                    info!("program {name}: runner {} is started for election {}", process.pid, program.election);
                    self.state.restarts += u64::from(self.has_run);
                    self.follow_child(child, process, &self.place.settings.started_with(&program)).await;
                }
                Err(why) => self.put_off(why).await,
            }
        }
        self.told.programs().forget(&self.state.name);
    }

    /// Starts a runner, which gets the lock. It is registered by [`Self::follow`] before anything else can happen.
    async fn start(&self, program: &Arc<Program>, lock: File) -> Result<(Child, RunnerProcess), String> {
        self.place.starting.update(|count| count + 1);
        let started = match self.place.settings.begin(program, lock) {
            Ok(started) => started.await.unwrap_or_else(|_| Err("its runner was not started".to_owned())),
            Err(error) => Err(format!("its runner cannot be started: {error}")),
        };
        self.place.starting.update(|count| count - 1);
        let child = started?;
        let pid = i32::try_from(child.id()).map_err(|error| error.to_string())?;
        // One without a file is found again by its lock.
        let process = RunnerProcess::child(pid).map_err(|error| format!("runner {pid} cannot be followed: {error}"))?;
        Ok((child, process))
    }

    /// Waits for the end of a runner that was started here.
    async fn follow_child(&mut self, mut child: Child, process: RunnerProcess, started_with: &str) {
        let began = clock::now();
        let is_asked = self.follow(process, started_with).await;
        let how = match child.wait() {
            Ok(status) => end_of(status),
            Err(error) => format!("has ended: {error}"),
        };
        self.rest(is_asked, &how, began).await;
    }

    /// Waits until nothing is left of a runner that has the lock, or of one whose warden has it. `Break`: it is none of this
    /// agent's, and nothing is to run here.
    async fn outlive(&mut self) -> ControlFlow<()> {
        let mut freed = match self.lock.await_free() {
            Ok(freed) => freed,
            Err(error) => {
                self.put_off(format!("its lock cannot be waited for: {error}")).await;
                return ControlFlow::Continue(());
            }
        };
        let began = clock::now();
        let text = tokio::select! {
            _ = &mut freed => return ControlFlow::Continue(()),
            text = text_of_runner(&self.lock) => text,
        };
        if !self.place.settings.is_own(&text.started_with) {
            return self.leave_alone(freed, &text).await;
        }
        self.state.election = election_of(&text);
        let Some(process) = text.runner.and_then(RunnerProcess::marked) else {
            // Its warden lives, and needs nobody to end the program.
            self.note(ProgramPhase::Stopping, None, Some("what its last runner has left is being ended".to_owned()));
            self.freed(freed).await;
            return ControlFlow::Continue(());
        };
        info!(
            "program {}: runner {}, which an agent before this one has started, goes on",
            self.state.name, process.pid
        );
        let is_asked = self.follow(process, &text.started_with).await;
        self.freed(freed).await;
        self.rest(is_asked, "has ended", began).await;
        ControlFlow::Continue(())
    }

    /// Waits for a runner that leads through another agent, if anything is to run here.
    async fn leave_alone(&mut self, mut freed: Freed, text: &LockText) -> ControlFlow<()> {
        let runner = text.runner.map_or_else(|| "a runner".to_owned(), |mark| format!("runner {}", mark.pid));
        let why = format!("{runner} of another agent has its lock: end that one, or give one of the two another name");
        self.say(&why);
        self.note(ProgramPhase::Waiting, None, Some(why));
        loop {
            if self.wanted.borrow_and_update().is_none() {
                return ControlFlow::Break(());
            }
            tokio::select! {
                () = changed(&mut self.wanted) => {}
                _ = &mut freed => return ControlFlow::Continue(()),
            }
        }
    }

    /// Waits until a runner has ended, and asks it to as soon as what it was started with is not what is wanted. Returns whether it
    /// was asked.
    async fn follow(&mut self, process: RunnerProcess, started_with: &str) -> bool {
        let process = Rc::new(process);
        (self.has_run, self.said) = (true, None);
        self.place.runners.borrow_mut().insert(self.state.name.clone(), Rc::clone(&process));
        self.note(ProgramPhase::Running, Some(process.pid), None);
        let is_asked = tokio::select! {
            () = process.ended() => false,
            () = until_unlike(&mut self.wanted, &self.place, started_with) => {
                info!("program {}: runner {} is asked to end", self.state.name, process.pid);
                self.note(ProgramPhase::Stopping, Some(process.pid), None);
                process.ask_to_end();
                process.ended().await;
                true
            }
        };
        self.place.runners.borrow_mut().remove(&self.state.name);
        is_asked
    }

    /// Waits for the lock, or for as long as it cannot be waited for.
    async fn freed(&mut self, freed: Freed) {
        if let Ok(Err(error)) = freed.await {
            self.put_off(format!("its lock cannot be waited for: {error}")).await;
        }
    }

    // ---- between two runners ----

    /// A runner has ended: the next is started after a pause, unless this one was asked to end.
    async fn rest(&mut self, is_asked: bool, how: &str, began: Instant) {
        let name = &self.state.name;
        if is_asked {
            info!("program {name}: its runner {how}, as it was asked to");
            self.backoff = Backoff::new();
            return self.note(ProgramPhase::Waiting, None, None);
        }
        let ran = clock::now().since(began);
        let pause = self.backoff.after(ran);
        warn!("program {name}: its runner {how} after {}; it is started again in {}", span(ran), span(pause));
        self.note(ProgramPhase::Waiting, None, Some(format!("its runner {how}")));
        self.pause(pause).await;
    }

    /// It cannot be started, and is tried again after a pause.
    async fn put_off(&mut self, why: String) {
        self.say(&why);
        self.note(ProgramPhase::Waiting, None, Some(why));
        let pause = self.backoff.after(Duration::ZERO);
        self.pause(pause).await;
    }

    /// Says why it does not run, once for each reason.
    fn say(&mut self, why: &str) {
        let name = &self.state.name;
        if self.said.as_deref() == Some(why) {
            return debug!("program {name}: {why}");
        }
        warn!("program {name} cannot be started: {why}");
        self.said = Some(why.to_owned());
    }

    /// Lasts so long, or until something else is to run.
    async fn pause(&mut self, pause: Duration) {
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = changed(&mut self.wanted) => {}
        }
    }

    fn note(&mut self, state: ProgramPhase, pid: Option<i32>, why: Option<String>) {
        (self.state.state, self.state.pid, self.state.why) = (state, pid, why);
        self.told.programs().note(self.state.clone());
    }
}

/// What is written in a lock that somebody has, once it says which process that is, or long after it should have.
async fn text_of_runner(lock: &LockFile) -> LockText {
    let end = clock::now() + SAYS_WITHIN;
    loop {
        // One that cannot be read now may be later.
        let text = lock.text().unwrap_or_default();
        if text.runner.is_some() || clock::now() >= end {
            return text;
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}

fn election_of(text: &LockText) -> String {
    let text: serde_json::Value = serde_json::from_str(&text.started_with).unwrap_or_default();
    text["program"]["election"].as_str().unwrap_or_default().to_owned()
}

/// Returns as soon as something else is wanted than this was started with, or nothing.
async fn until_unlike(wanted: &mut watch::Receiver<Wanted>, place: &Place, started_with: &str) {
    loop {
        let is_wanted = {
            let wanted = wanted.borrow_and_update();
            wanted.as_ref().is_some_and(|program| place.settings.started_with(program) == started_with)
        };
        if !is_wanted {
            return;
        }
        changed(wanted).await;
    }
}

/// Returns when something else is wanted.
async fn changed(wanted: &mut watch::Receiver<Wanted>) {
    if wanted.changed().await.is_err() {
        std::future::pending().await
    }
}

/// How a runner ended, for people.
fn end_of(status: ExitStatus) -> String {
    match (status.code(), status.signal().map(Signal::try_from)) {
        // A runner ends as its program did.
        (Some(code), _) => match Signal::try_from(code - 128) {
            Ok(signal) => format!("ended with code {code}, as by {signal}"),
            Err(_) => format!("ended with code {code}"),
        },
        (None, Some(Ok(signal))) => format!("was ended by {signal}"),
        _ => format!("ended with {status}"),
    }
}
