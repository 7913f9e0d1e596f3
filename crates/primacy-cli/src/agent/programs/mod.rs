//! Programs that the agent starts itself, each by a runner of its own that leads through the agent's socket as any other.
//!
//! The runner and its warden keep all promises about the program, also when this agent is dead. Here it is only seen to that one
//! runner of each program lives, and that it ends when it should. The design page says what survives what.

mod backoff;
mod lock;
mod process;
mod start;
mod supervisor;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use nix::sys::signal::Signal;
use nix::unistd::{AccessFlags, access, getpid};
use primacy::Label;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tracing::{debug, warn};

use super::settings::Program;
use crate::cli::{Common, LogFormat};
use crate::run::process_tree::{children, reap};
use crate::run::signals::restore;
use crate::standing::{Candidates, ProgramState};
use lock::LockFolder;
use process::RunnerProcess;
use start::{RunnerSettings, Started};
use supervisor::Supervisor;

/// How long an end that is not waited for waits for programs that are being started, and how often it looks.
const STARTS_WITHIN: Duration = Duration::from_secs(1);
const LOOK: Duration = Duration::from_millis(10);
/// How often it is said what is awaited.
const SAY_AGAIN: Duration = Duration::from_secs(30);

/// What is to run of a program.
type Wanted = Option<Arc<Program>>;

/// What runners are started with beside their programs.
#[derive(Clone, Debug)]
pub(super) struct Surroundings {
    /// Where they find the agent, or why they cannot.
    pub(super) socket: Result<PathBuf, String>,
    /// The name of their candidates.
    pub(super) label: Label,
    pub(super) log: Log,
    /// How many files a process may have open unless it asks for more; `None`: any number.
    pub(super) open_files: Option<u64>,
}

/// How much is logged, and how.
#[derive(Clone, Copy, Debug)]
pub(super) struct Log {
    format: LogFormat,
    verbose: u8,
    quiet: bool,
}

impl Log {
    pub(super) const fn of(common: &Common) -> Self {
        Self { format: common.log_format, verbose: common.verbose, quiet: common.quiet }
    }
}

/// Begins to start a runner, which gets the lock.
type Begin = Box<dyn Fn(&Arc<Program>, File) -> io::Result<Started>>;

/// What all programs of this agent share.
struct Place {
    settings: Arc<RunnerSettings>,
    begin: Begin,
    locks: LockFolder,
    /// The runners that live, by the names of their programs.
    runners: RefCell<BTreeMap<String, Rc<RunnerProcess>>>,
    /// How many are being started.
    starting: Cell<usize>,
}

/// The programs that this agent keeps started.
pub(super) struct Programs {
    surroundings: Surroundings,
    place: Option<Rc<Place>>,
    wanted: BTreeMap<String, watch::Sender<Wanted>>,
    tasks: JoinSet<()>,
    told: Arc<Candidates>,
}

impl Programs {
    /// None yet.
    pub(super) fn new(surroundings: Surroundings, told: &Arc<Candidates>) -> Self {
        Self { surroundings, place: None, wanted: BTreeMap::new(), tasks: JoinSet::new(), told: Arc::clone(told) }
    }

    /// Begins with these, and ends what an agent before this one has started and is not among them.
    ///
    /// # Errors
    /// If none can be started here, and why.
    pub(super) fn begin(&mut self, programs: &[Program]) -> Result<(), String> {
        let has_locks = self.surroundings.locks().is_ok_and(|folder| folder.is_dir());
        if programs.is_empty() && !has_locks {
            return Ok(());
        }
        match self.place() {
            Ok(place) => {
                let names =
                    place.locks.names().map_err(|error| format!("the locks of programs cannot be listed: {error}"))?;
                names.iter().for_each(|name| self.want(&place, name, None));
            }
            Err(why) if programs.is_empty() => warn!("programs of an agent before this one are left alone: {why}"),
            Err(why) => return Err(why),
        }
        self.keep(programs)
    }

    /// From now on these are to run, and no others. What is wanted as before goes on.
    ///
    /// # Errors
    /// If none can be started here, and why.
    pub(super) fn keep(&mut self, programs: &[Program]) -> Result<(), String> {
        while self.tasks.try_join_next().is_some() {}
        let names: BTreeSet<&str> = programs.iter().map(|program| program.name.as_str()).collect();
        for (_, wanted) in self.wanted.iter().filter(|(name, _)| !names.contains(name.as_str())) {
            wanted.send_if_modified(|wanted| wanted.take().is_some());
        }
        if programs.is_empty() {
            return Ok(());
        }
        let place = self.place()?;
        programs.iter().for_each(|program| self.want(&place, &program.name, Some(Arc::new(program.clone()))));
        Ok(())
    }

    /// Asks all of them to end.
    pub(super) fn end(&mut self) {
        if let Err(why) = self.keep(&[]) {
            debug!("{why}");
        }
    }

    /// Asks all that were asked to end once more. It is not waited for, but for those that are being started: nobody else would
    /// ask them.
    pub(super) async fn end_again(&self) {
        let Some(place) = &self.place else { return };
        place.runners.borrow().values().for_each(|runner| runner.ask_to_end());
        let started = async {
            while place.starting.get() > 0 {
                tokio::time::sleep(LOOK).await;
            }
        };
        if tokio::time::timeout(STARTS_WITHIN, started).await.is_err() {
            warn!("a program that does not start is left; it ends with the next agent");
        }
    }

    /// Returns when nothing is left of any of them. What is awaited is said after this time, and again later. Cancel-safe.
    pub(super) async fn ended(&mut self, patience: Duration) {
        let mut say_in = patience;
        while !self.tasks.is_empty() {
            tokio::select! {
                _ = self.tasks.join_next() => {}
                () = tokio::time::sleep(say_in) => {
                    say_in = SAY_AGAIN;
                    for ProgramState { name, pid, why, .. } in self.told.programs().all() {
                        let runner = pid.map(|pid| format!("runner {pid}"));
                        let awaited = runner.or(why).unwrap_or_else(|| "its lock".to_owned());
                        warn!("program {name} has not ended yet: {awaited}");
                    }
                }
            }
        }
    }

    /// Reaps what has become a child of this process by the death of its parent, as all do that are left behind where this process
    /// is the first.
    pub(super) fn reap_orphans(&self) {
        if let Some(place) = &self.place {
            place.reap_orphans(None);
        }
    }

    fn want(&mut self, place: &Rc<Place>, name: &str, wanted: Wanted) {
        if let Some(known) = self.wanted.get(name).filter(|known| !known.is_closed()) {
            known.send_if_modified(|now| {
                let differs = *now != wanted;
                *now = wanted;
                differs
            });
            return;
        }
        let (tell, wanted) = watch::channel(wanted);
        self.wanted.insert(name.to_owned(), tell);
        self.tasks.spawn_local(Supervisor::new(name, place, wanted, &self.told).run());
    }

    fn place(&mut self) -> Result<Rc<Place>, String> {
        if let Some(place) = &self.place {
            return Ok(Rc::clone(place));
        }
        let Surroundings { socket, label, log, open_files } = self.surroundings.clone();
        let socket = socket?;
        if socket.to_str().is_none() {
            return Err(format!("the path of the socket {} is no UTF-8", socket.display()));
        }
        access(&socket, AccessFlags::R_OK | AccessFlags::W_OK)
            .map_err(|error| format!("a runner could not connect to {}: {error}", socket.display()))?;
        // Runners that are deaf to SIGTERM could not be ended, and children are not waited for where SIGCHLD is ignored.
        restore(&[Signal::SIGTERM, Signal::SIGCHLD]).map_err(|error| format!("signals cannot be handled: {error}"))?;
        let locks = LockFolder::make(self.surroundings.locks()?)?;
        let settings = Arc::new(RunnerSettings { socket, label, log, open_files });
        let place = Rc::new(Place::new(settings, locks));
        self.place = Some(Rc::clone(&place));
        Ok(place)
    }
}

impl Place {
    fn new(settings: Arc<RunnerSettings>, locks: LockFolder) -> Self {
        let starts = Arc::clone(&settings);
        let begin: Begin = Box::new(move |program, lock| starts.begin(program, lock));
        Self { settings, begin, locks, runners: RefCell::default(), starting: Cell::default() }
    }

    /// One was started, as this process, or was not.
    fn has_started(&self, process: Option<i32>) {
        self.starting.update(|count| count - 1);
        // Deaths that were left out meanwhile, unless the parent of orphans is another one.
        if getpid().as_raw() == 1 {
            self.reap_orphans(process);
        }
    }

    fn reap_orphans(&self, spared: Option<i32>) {
        // A runner that is being started is not known yet.
        if self.starting.get() > 0 {
            return;
        }
        let own: BTreeSet<i32> = self.runners.borrow().values().map(|runner| runner.pid).chain(spared).collect();
        for child in children().unwrap_or_default() {
            if !own.contains(&child.as_raw()) {
                reap(child);
            }
        }
    }
}

impl Surroundings {
    /// The folder for locks: where the service keeps what outlives it, or beside the socket.
    fn locks(&self) -> Result<PathBuf, String> {
        // systemd separates several with a colon; paths with one are not possible there.
        let state = std::env::var("STATE_DIRECTORY").unwrap_or_default();
        if let Some(folder) = state.split(':').find(|path| path.starts_with('/')) {
            return Ok(Path::new(folder).join("programs"));
        }
        let mut beside = OsString::from(self.socket.clone()?);
        beside.push(".programs");
        Ok(PathBuf::from(beside))
    }
}
