//! Runs a program on exactly one of several machines: `primacy run`, and the warden that outlives it.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use primacy::{CandidateConfig, Fleet};

use crate::agent_wire;
use crate::cli::agent::SOCKET_VARIABLE;
use crate::cli::hooks::HookConflict;
use crate::cli::preference::{Preference, Scoring};
use crate::cli::{Common, Part, RunArgs, store_url};
use crate::failure::Failure;
use crate::http::HttpListener;
use crate::output::{self, logging};
use campaign::Source;
use hooks::Hooks;
use program::Rights;

mod campaign;
pub(crate) mod command_poll;
mod handover;
mod hooks;
pub(crate) mod isolate;
mod next_warden;
pub(crate) mod process_tree;
pub(crate) mod program;
mod runner;
mod setbacks;
pub(crate) mod signals;
mod status_file;
pub(crate) mod supervised;
mod tell;
mod through_agent;
mod waiting;
pub(crate) mod warden;
mod warden_handle;
mod wire;
mod work;

/// The hidden command that becomes the program.
pub(crate) const EXEC: &str = "__exec";
/// The hidden command that makes a namespace for the program and stays outside.
pub(crate) const GATE: &str = "__gate";
/// The hidden command that is the first process of the namespace.
pub(crate) const INIT: &str = "__init";
/// The hidden command that is a runner which an agent has started.
pub(crate) const SUPERVISED: &str = "__supervised";
/// The hidden command that is the warden.
pub(crate) const WARDEN: &str = "__warden";

/// The exit code when the store cannot be reached or read in time.
const UNAVAILABLE: u8 = 69;
/// The exit code when a hook has failed, and nothing else can be done about it (`EX_SOFTWARE`).
const HOOK_FAILED: u8 = 70;
/// The exit code when primacy's own processes cannot be started, or do not stay (`EX_OSERR`).
const NO_WARDEN: u8 = 71;
/// The exit code of `--once` when the leadership is lost, and of `--try` and `--for` when it was not had
/// (`EX_TEMPFAIL`).
const LOST: u8 = 75;
/// The exit code when the end was asked for and what the program left may not be killed (`EX_NOPERM`).
const IMMUNE: u8 = 77;

/// What `primacy run` is asked to do, checked.
struct Job {
    common: Common,
    source: Source,
    candidate: CandidateConfig,
    /// Empty if there are hooks.
    command: Vec<OsString>,
    /// What is run instead of a program that is started and ended.
    hooks: Option<Hooks>,
    once: bool,
    /// For how long to wait for the leadership, if not for ever.
    patience: Option<Patience>,
    /// Whether the program may gain rights.
    rights: Rights,
    /// Whether the program gets a PID namespace of its own.
    isolate: bool,
    /// Where the candidate's score comes from, if it changes.
    scoring: Option<Scoring>,
    /// For how long to try to reach the store for the first time.
    wait: Duration,
    /// Where it tells who leads.
    http: Option<HttpListener>,
    /// The file in which it tells how it stands.
    status_file: Option<PathBuf>,
    /// What the agent that has started this runner finds locked for as long as the runner or its warden lives.
    lock: Option<OwnedFd>,
}

impl Job {
    /// How long what is run may take to stop, in nanoseconds.
    fn grace_ns(&self) -> u64 {
        nanos(self.candidate.timing.grace())
    }
}

fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

/// For how long to wait for the leadership.
#[derive(Clone, Copy, Debug)]
enum Patience {
    /// Not at all, if it is not free.
    Try,
    /// For how long each time.
    For(Duration),
}

/// Why `primacy run` ends without a program's exit code.
struct Refusal {
    message: String,
    code: u8,
}

impl Refusal {
    fn new(code: u8, message: impl Into<String>) -> Self {
        Self { message: message.into(), code }
    }

    fn system(what: &str, error: &io::Error) -> Self {
        Self::new(UNAVAILABLE, format!("{what}: {error}"))
    }
}

/// `primacy run`, for an agent with its lock.
pub(crate) fn main(args: RunArgs, common: Common, lock: Option<OwnedFd>) -> ExitCode {
    let ended =
        check(args, &common).map(|job| Job { lock, ..job }).and_then(|job| match warden_handle::IdleWarden::start() {
            // The warden first, while this process has one thread and has promised nothing.
            Ok(warden) => {
                // Until the store was reached, or a score command runs, this process's last words say all there is to say.
                if common.verbose > 0 {
                    logging::start(&common, logging::RUNNING);
                }
                runner::run(job, warden)
            }
            Err(error) => Err(Refusal::new(NO_WARDEN, format!("the warden process cannot be started: {error}"))),
        });
    match ended {
        Ok(code) => ExitCode::from(code),
        Err(refusal) => {
            output::plain_failure(common.log_format, &Failure::new(refusal.code, refusal.message));
            ExitCode::from(refusal.code)
        }
    }
}

/// Everything that can be refused before anything is started.
fn check(args: RunArgs, common: &Common) -> Result<Job, Refusal> {
    let usage = |failure: Failure| Refusal::new(2, failure.to_string());
    let label = args.label();
    let Part { timing, protocol, preference } = args.part(&label).map_err(usage)?;
    HttpListener::check(&args.http).map_err(usage)?;
    args.check_agent().map_err(usage)?;
    let hooks = check_hooks(&args)?;
    if hooks.is_some() && timing.grace().is_zero() {
        return Err(Refusal::new(
            2,
            "--grace 0s leaves no time for --on-lost: give it as long as that may take, as with --grace 5s",
        ));
    }
    if args.limit.is_some_and(|limit| limit.is_zero()) {
        return Err(Refusal::new(2, "--for 0s waits for nothing; --try asks once and does not wait"));
    }
    if signals::is_ignored(nix::sys::signal::Signal::SIGCHLD) {
        // The kernel would reap the program by itself, and nobody would learn how it ended, or that it did.
        return Err(Refusal::new(2, "SIGCHLD is ignored; start primacy with its default disposition"));
    }
    let name = args.command.first().map_or(OsStr::new("sh"), OsString::as_os_str);
    program::check(name).map_err(|unusable| Refusal::new(unusable.code, unusable.message))?;
    if args.isolate && args.allow_privileges && !process_tree::may_kill_all() {
        return Err(Refusal::new(2, "--isolate takes all rights of other users away: leave --allow-privileges out"));
    }
    if args.isolate {
        isolate::check().map_err(|why| Refusal::new(NO_WARDEN, format!("--isolate cannot be had here: {why}")))?;
    }
    let mut candidate = CandidateConfig::new(label);
    candidate.timing = timing;
    candidate.data = args.data;
    candidate.protocol = protocol;
    let Preference { rank, fail_back, turn, scoring, measured } = preference;
    (candidate.rank, candidate.fail_back, candidate.turn) = (rank, fail_back, turn.unwrap_or_default());
    candidate.measured_preference = measured;
    let source = match args.agent {
        Some(socket) => {
            let named = || std::env::var_os(SOCKET_VARIABLE).filter(|path| !path.is_empty()).map(PathBuf::from);
            let socket = socket.or_else(named);
            Source::Agent {
                election: common.election.clone(),
                socket: socket.unwrap_or_else(agent_wire::agent_of_host),
            }
        }
        None => store(&candidate, common)?,
    };
    let http = HttpListener::bind(&args.http).map_err(|failure| Refusal::new(failure.code, failure.to_string()))?;
    Ok(Job {
        common: common.clone(),
        source,
        candidate,
        command: args.command,
        hooks,
        once: args.once,
        patience: if args.try_once { Some(Patience::Try) } else { args.limit.map(Patience::For) },
        rights: Rights::of_program(args.allow_privileges),
        isolate: args.isolate,
        scoring,
        wait: common.wait.unwrap_or(Common::DEFAULT_WAIT),
        http,
        status_file: args.status_file,
        lock: None,
    })
}

/// The store in which this candidate takes part.
fn store(candidate: &CandidateConfig, common: &Common) -> Result<Source, Refusal> {
    let usage = |failure: Failure| Refusal::new(2, failure.to_string());
    let store = common.open_store().map_err(usage)?;
    let url = common.store_url().map_err(usage)?;
    if common.uses_default_store() {
        store_url::create_default_folder().map_err(|error| {
            let folder = store_url::default_folder();
            let what = format!("the folder {} cannot be created; name another place with --store", folder.display());
            Refusal::system(&what, &error)
        })?;
    }
    if candidate.measured_preference.is_some() && store.latency_probe(&candidate.label).is_none() {
        return Err(Refusal::new(
            2,
            "--score-oracle measures the ways to voters: it needs --store peers://..., and with another store there are --score \
             and --score-command",
        ));
    }
    // What it asks and the hints that it hears share connections to the voters.
    let election = Fleet::new(store).election(common.election.as_str());
    let election = election.map_err(|error| Refusal::new(2, error.to_string()))?;
    Ok(Source::Store { election, url })
}

/// The hooks, if they are what is asked for.
fn check_hooks(args: &RunArgs) -> Result<Option<Hooks>, Refusal> {
    let hooks = args.hooks.check().map_err(|failure| Refusal::new(2, failure.to_string()))?;
    let Some((on_elected, on_lost)) = hooks else {
        let is_named = !args.command.is_empty();
        return is_named.then_some(None).ok_or_else(|| Refusal::new(2, "name a program to run after --"));
    };
    match HookConflict::of(!args.command.is_empty(), args.isolate) {
        Some(conflict) => Err(Refusal::new(2, conflict.message("--"))),
        None => Ok(Some(Hooks { on_elected, on_lost })),
    }
}
