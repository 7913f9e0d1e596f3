//! Keeps one program started: takes its lock, starts its runner, and starts it again after it has ended. It begins with whatever an
//! agent before it has left.

use std::fs::File;
use std::ops::ControlFlow;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, ExitStatus};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use nix::sys::signal::Signal;
use primacy::clock;
use tokio::sync::watch;
use tracing::{debug, info, warn};

use super::backoff::Backoff;
use super::lock::{LockFile, LockText, Look};
use super::process::RunnerProcess;
use super::start::Started;
use super::{Place, Wanted};
use crate::agent::settings::Program;
use crate::output::span::span;
use crate::run::supervised::ProcessMark;
use crate::standing::{Candidates, ProgramPhase, ProgramState};

/// How soon to look again at a lock that is not free, at first and at most.
const AGAIN: Duration = Duration::from_millis(20);
const AGAIN_MOST: Duration = Duration::from_secs(1);
/// How long what is found there passes by itself as a rule.
const PASSES_WITHIN: Duration = Duration::from_secs(1);
/// How long the end of a program waits for a warden whose runner is dead. What it has not stopped then, it goes on with.
const WARDEN_WITHIN: Duration = Duration::from_secs(5);
/// How long a start goes on that is not wanted any more.
const START_WITHIN: Duration = Duration::from_secs(2);

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
    /// How long its lock has been looked at without use.
    looked: Duration,
}

/// Where a program stands, by its lock.
enum Found {
    /// Nothing is left of a runner, and the next one can have the lock.
    Free(File),
    /// A runner lives, which leads through this agent.
    Runner(RunnerProcess, LockText),
    /// Its runner is dead. Its warden lives, and needs nobody to end the program.
    Warden(LockText),
    /// Who has the lock is none of this agent's, and why.
    Foreign(String),
    /// It cannot be told now, and why.
    Unknown(String),
}

impl Supervisor {
    pub(super) fn new(name: &str, place: &Rc<Place>, wanted: watch::Receiver<Wanted>, told: &Arc<Candidates>) -> Self {
        let program = wanted.borrow().clone();
        let state = ProgramState {
            name: name.to_owned(),
            election: program.as_ref().map(|program| program.election.clone()).unwrap_or_default(),
            state: ProgramPhase::Waiting,
            pid: None,
            restarts: 0,
            why: None,
        };
        if program.is_some() {
            told.programs().note(state.clone());
        }
        Self {
            place: Rc::clone(place),
            lock: place.locks.lock(name),
            wanted,
            told: Arc::clone(told),
            state,
            backoff: Backoff::new(),
            said: None,
            has_run: false,
            looked: Duration::ZERO,
        }
    }

    /// Returns when nothing is to run any more, and nothing does.
    pub(super) async fn run(mut self) {
        while self.step().await.is_continue() {}
        self.told.programs().forget(&self.state.name);
    }

    /// Does what is to be done next. `Break`: nothing is.
    async fn step(&mut self) -> ControlFlow<()> {
        let found = self.find().await;
        let is_wanted = self.wanted.borrow_and_update().is_some();
        let waits = if is_wanted { ProgramPhase::Waiting } else { ProgramPhase::Stopping };
        match found {
            Found::Free(lock) => return self.use_lock(lock).await,
            Found::Runner(process, text) => {
                let (name, pid) = (&self.state.name, process.pid);
                info!("program {name}: runner {pid}, which an agent before this one has started, goes on");
                self.state.election = election_of(&text);
                self.follow(process, &text.started_with).await;
            }
            Found::Warden(_) if !is_wanted && self.looked >= WARDEN_WITHIN => {
                warn!("program {}: its warden is still ending what is left of it", self.state.name);
                return ControlFlow::Break(());
            }
            Found::Warden(text) => {
                self.state.election = election_of(&text);
                let why = "what its last runner has left is being ended".to_owned();
                self.note(ProgramPhase::Stopping, None, Some(why));
                self.look_again().await;
            }
            Found::Foreign(_) if !is_wanted => return ControlFlow::Break(()),
            Found::Foreign(why) => {
                self.say(&why);
                self.note(waits, None, Some(why));
                self.look_again().await;
            }
            // As long as it may live it is not left, wanted or not.
            Found::Unknown(why) => {
                if self.looked >= PASSES_WITHIN {
                    self.say(&why);
                }
                self.note(waits, None, Some(why));
                self.look_again().await;
            }
        }
        ControlFlow::Continue(())
    }

    async fn find(&self) -> Found {
        let text = match self.lock.look().await {
            Ok(Look::Taken(lock)) => return Found::Free(lock),
            Ok(Look::Held(text)) => text,
            Err(why) => return Found::Unknown(why),
        };
        let runner = text.runner.as_ref().map_or_else(|| "a runner".to_owned(), |mark| format!("runner {}", mark.pid));
        if !text.started_with.is_empty() && !self.place.settings.is_own(&text.started_with) {
            return Found::Foreign(format!(
                "{runner} of another agent has its lock: end that one, or give one of the two another name"
            ));
        }
        let Some(mark) = &text.runner else {
            return Found::Unknown("who has its lock has not said yet which process it is".to_owned());
        };
        if ProcessMark::here().is_ok_and(|here| here != mark.place) {
            return Found::Foreign(format!(
                "{runner} of an agent on another machine, or in another container, has its lock: end that one, or give each \
                 agent its own $STATE_DIRECTORY"
            ));
        }
        match RunnerProcess::marked(mark) {
            Ok(Some(process)) => Found::Runner(process, text),
            Ok(None) => Found::Warden(text),
            Err(error) => Found::Unknown(format!("whether {runner} lives cannot be told: {error}")),
        }
    }

    /// The lock may be looked at again, after a pause that doubles, or when something else is wanted.
    async fn look_again(&mut self) {
        let pause = self.looked.clamp(AGAIN, AGAIN_MOST);
        self.looked += pause;
        self.pause(pause).await;
    }

    // ---- one runner ----

    /// Starts a runner with the lock, if one is wanted, and waits for its end.
    async fn use_lock(&mut self, lock: File) -> ControlFlow<()> {
        let Some(program) = self.wanted.borrow_and_update().clone() else {
            // What is in it may be secret, and is of no use any more.
            if let Err(why) = self.lock.empty(lock).await {
                warn!("program {}: what it was started with stays on the disk: {why}", self.state.name);
            }
            // Meanwhile it may have become wanted again.
            return if self.wanted.borrow().is_some() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) };
        };
        self.state.election.clone_from(&program.election);
        let started_with = self.place.settings.started_with(&program);
        match self.start(&program, lock, &started_with).await {
            Ok(Some(child)) => {
                let process = RunnerProcess::child(child);
                let name = &self.state.name;
                info!("program {name}: runner {} is started for election {}", process.pid, program.election);
                self.state.restarts += u64::from(self.has_run);
                self.follow(process, &started_with).await;
            }
            Ok(None) if self.wanted.borrow().is_none() => return ControlFlow::Break(()),
            Ok(None) => {}
            Err(why) => self.put_off(why).await,
        }
        ControlFlow::Continue(())
    }

    /// Starts a runner, which gets the lock. `None`: it is not wanted any more, and ends as soon as it begins.
    async fn start(&mut self, program: &Arc<Program>, lock: File, started_with: &str) -> Result<Option<Child>, String> {
        let begun = (self.place.begin)(program, lock);
        let mut started = begun.map_err(|error| format!("its runner cannot be started: {error}"))?;
        self.place.starting.update(|count| count + 1);
        let unwanted = async {
            until_unlike(&mut self.wanted, &self.place, started_with).await;
            tokio::time::sleep(START_WITHIN).await;
        };
        tokio::select! {
            started = &mut started => {
                let pid = started.as_ref().ok().and_then(|started| Some(started.as_ref().ok()?.id().cast_signed()));
                self.place.has_started(pid);
                started.unwrap_or_else(|_| Err("its runner was not started".to_owned())).map(Some)
            }
            () = unwanted => {
                warn!("program {}: its runner does not start, and is not waited for", self.state.name);
                tokio::task::spawn_local(end_late(Rc::clone(&self.place), started));
                Ok(None)
            }
        }
    }

    /// Waits until a runner has ended, and asks it to as soon as what it was started with is not what is wanted. The next one is
    /// started after a pause, unless this one was asked to end.
    async fn follow(&mut self, process: RunnerProcess, started_with: &str) {
        let (process, began) = (Rc::new(process), clock::now());
        (self.has_run, self.said, self.looked) = (true, None, Duration::ZERO);
        self.place.runners.borrow_mut().insert(self.state.name.clone(), Rc::clone(&process));
        self.note(ProgramPhase::Running, Some(process.pid), None);
        let (is_asked, status) = tokio::select! {
            status = process.ended() => (false, status),
            () = until_unlike(&mut self.wanted, &self.place, started_with) => {
                info!("program {}: runner {} is asked to end", self.state.name, process.pid);
                self.note(ProgramPhase::Stopping, Some(process.pid), None);
                process.ask_to_end();
                (true, process.ended().await)
            }
        };
        self.place.runners.borrow_mut().remove(&self.state.name);
        let (how, name) = (status.map_or_else(|| "has ended".to_owned(), end_of), &self.state.name);
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

    // ---- between two runners ----

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
        match self.wanted.borrow().is_some() {
            true => warn!("program {name} cannot be started: {why}"),
            false => warn!("program {name} cannot be ended: {why}"),
        }
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

/// Ends a runner that is not wanted any more once it has begun.
async fn end_late(place: Rc<Place>, started: Started) {
    if let Ok(Ok(child)) = started.await {
        let process = RunnerProcess::child(child);
        process.ask_to_end();
        process.ended().await;
    }
    place.has_started(None);
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

#[cfg(test)]
mod tests;
