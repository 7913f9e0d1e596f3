//! `primacy agent`: one process for each host that campaigns for programs that it did not start.
//!
//! Programs connect to its Unix socket and hold leaderships over it, in any language. The manual's page on the agent says how to
//! run one, the one on its socket what is said there, and the design page why nobody else leads while a program may believe that
//! it does. What it starts itself, in `programs`, holds its leaderships in the same way.

mod hold;
mod peer_process;
mod programs;
mod proof;
mod questions;
mod rights;
mod service;
mod settings;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs::{DirBuilder, Permissions};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use nix::sys::signal::Signal;
use nix::unistd::geteuid;
use primacy::peers::local_socket::{self, SocketFile};
use primacy::{ElectionName, Fleet, Label, Token, clock};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::net::{UnixListener, UnixStream};
use tokio::runtime::Runtime;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tracing::{debug, info, warn};

use crate::cli::agent::{AgentArgs, AgentCommand};
use crate::cli::{Common, names, store_url};
use crate::failure::Failure;
use crate::http::HttpListener;
use crate::observed::Observations;
use crate::output::Output;
use crate::panics;
use crate::run::signals::SignalStream;
use crate::secret;
use crate::standing::{Candidates, ProcessKind};

use crate::agent_wire::{self, Channel, Frame, HoldFrame, PROTOCOL, RefusalCode, Request, TokenText};
use programs::{Log, Programs, Surroundings};
use rights::{Caller, Rule};
use settings::Settings;

/// The user and the group of the socket may connect.
const MODE: u32 = 0o660;
/// How long a program may take to say what it wants.
const REQUEST_WITHIN: Duration = Duration::from_secs(10);
/// What two readings of one clock may differ by: some programs read it in steps of 10 ms.
const CLOCK_TOLERANCE_NS: u64 = 20_000_000;
/// How many connections there are at most; which part of them one user has that is not trusted, and which part is kept for those who
/// are.
const CONNECTIONS_MAX: usize = 4_096;
const SHARE_OF_USER: usize = 2;
const RESERVE: usize = 16;
/// How many are told at once who holds what.
const LISTS_MAX: usize = 8;
/// How many files a connection may take: itself, and two for a proof.
const FILES_OF_CONNECTION: usize = 3;
/// How long no connection is taken after one could not be.
const PAUSE: Duration = Duration::from_millis(100);

/// What all connections share.
struct Agent {
    name: Label,
    fleet: Fleet,
    settings: RefCell<Settings>,
    /// What needs a restart to change is still as here.
    started_with: Settings,
    /// The candidates of programs, by the numbers of their holds.
    candidates: Arc<Candidates>,
    /// Those of programs, by the numbers of their connections.
    holds: RefCell<BTreeMap<u64, HoldFrame>>,
    connections_max: usize,
    /// How many connections each user has.
    connections: RefCell<BTreeMap<u32, usize>>,
    observations: Observations,
    /// How many more are told at once who holds what.
    lists: Semaphore,
    /// Whether the agent is asked to end.
    ending: watch::Receiver<bool>,
}

/// Why a program does not get what it asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Refusal {
    code: RefusalCode,
    why: String,
}

impl Refusal {
    fn new(code: RefusalCode, why: impl AsRef<str>) -> Self {
        // Of a store that has failed it may have a password in it.
        Self { code, why: secret::without(why.as_ref()) }
    }

    fn malformed(why: impl AsRef<str>) -> Self {
        Self::new(RefusalCode::Malformed, why)
    }

    fn not_allowed(caller: &Caller, what: &str, election: &ElectionName) -> Self {
        warn!("{caller} may not {what} '{election}': refused");
        let why = format!("{caller} may not {what} '{election}'; the agent's configuration says who may");
        Self::new(RefusalCode::NotAllowed, why)
    }

    /// Says so, if the other end still listens.
    fn tell(&self, channel: &Channel) {
        let told = channel.tell(&Frame::Refused { code: self.code, why: self.why.clone() });
        if let Err(error) = told {
            debug!(%error, "a refusal cannot be told");
        }
    }
}

/// `primacy agent`, and what belongs to it.
pub(crate) fn run(args: &AgentArgs, common: &Common, runtime: &Runtime, output: &mut Output) -> Result<u8, Failure> {
    let local = tokio::task::LocalSet::new();
    match &args.command {
        Some(AgentCommand::List) => local.block_on(runtime, questions::list(args.socket.clone(), output)),
        Some(AgentCommand::Check) => check(args, output),
        None => {
            panics::end_the_process();
            local.block_on(runtime, serve(args, common))
        }
    }
}

/// Says whether the configuration is right.
fn check(args: &AgentArgs, output: &mut Output) -> Result<u8, Failure> {
    let settings = settings_of(args)?;
    let counted = |count: usize, what: &str| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
    let mut told = counted(settings.rules.len(), "election");
    if !settings.programs.is_empty() {
        told += &format!(", {}", counted(settings.programs.len(), "program"));
    }
    output.text(&format!("the configuration is right: {told}\n"))?;
    Ok(0)
}

fn settings_of(args: &AgentArgs) -> Result<Settings, Failure> {
    match &args.config {
        Some(path) => Settings::read(path),
        None => Ok(Settings::open(args.timing()?)),
    }
}

async fn serve(args: &AgentArgs, common: &Common) -> Result<u8, Failure> {
    let settings = settings_of(args)?;
    let mut common = common.clone();
    common.store = common.store.or_else(|| settings.store.clone());
    let store = common.open_store()?;
    if common.uses_default_store() {
        store_url::create_default_folder().map_err(|error| {
            let folder = store_url::default_folder();
            Failure::unavailable(format!("the folder {} cannot be created: {error}", folder.display()))
        })?;
    }
    let name = args.name.clone().or_else(|| settings.name.clone());
    let name = name.unwrap_or_else(names::default_host);
    let path = args.socket.clone().or_else(|| settings.socket.clone());
    let path = path.unwrap_or_else(|| agent_wire::default_socket(geteuid().is_root()));
    HttpListener::check(&args.http)?;
    let http = HttpListener::bind(&args.http)?;
    let failed = |error: std::io::Error| Failure::unavailable(format!("signals cannot be handled: {error}"));
    // Before anybody may know that it listens.
    let mut ends = SignalStream::take(&[Signal::SIGTERM, Signal::SIGINT]).map_err(failed)?;
    let mut reloads = SignalStream::take(&[Signal::SIGHUP]).map_err(failed)?;
    let Rlimit { current: open_files, .. } = getrlimit(Resource::Nofile);
    let connections_max = raise_open_files();
    let (listener, place, _file) = match service::socket()? {
        Some(listener) => (listener, "the socket of the service manager".to_owned(), None),
        None => {
            let (listener, file) = listen(&path, settings.group)?;
            (listener, path.display().to_string(), Some(file))
        }
    };
    let surroundings =
        Surroundings { socket: path_of(&listener), label: name.clone(), log: Log::of(&common), open_files };
    let (end, ending) = watch::channel(false);
    let candidates = Arc::new(Candidates::new(Arc::clone(&store), ProcessKind::Agent));
    let no_thread = |error| Failure::unavailable(format!("the system gives no thread for HTTP: {error}"));
    let http = http.map(|http| http.serve(Arc::clone(&candidates))).transpose().map_err(no_thread)?;
    if let Some(server) = &http {
        info!("tells over HTTP who leads, on {}", server.place);
    }
    let agent = Rc::new(Agent {
        name,
        fleet: Fleet::new(Arc::clone(&store)),
        candidates,
        started_with: settings.clone(),
        settings: RefCell::new(settings),
        holds: RefCell::default(),
        connections_max,
        connections: RefCell::default(),
        observations: Observations::new(store),
        lists: Semaphore::new(LISTS_MAX),
        ending,
    });
    info!(store = %agent.fleet.store().location(), "agent {} listens on {place}", agent.name);
    let mut connections = JoinSet::new();
    let mut programs = Programs::new(surroundings, &agent.candidates);
    let begun = programs.begin(&agent.settings.borrow().programs);
    begun.map_err(|why| Failure::unavailable(format!("the programs of --config cannot be started: {why}")))?;
    // As the first process of a container it is the parent of all that has lost its own.
    let deaths = (nix::unistd::getpid().as_raw() == 1).then(|| SignalStream::take(&[Signal::SIGCHLD]));
    let mut deaths = deaths.transpose().map_err(failed)?;
    let mut watchdog = service::Watchdog::start();
    service::ready();
    loop {
        tokio::select! {
            taken = listener.accept() => match taken {
                Ok((stream, _)) => {
                    let agent = Rc::clone(&agent);
                    connections.spawn_local(async move { connection(&agent, stream).await });
                }
                Err(error) => {
                    debug!(%error, "a connection cannot be taken");
                    tokio::time::sleep(PAUSE).await;
                }
            },
            Some(_) = connections.join_next() => {}
            () = watchdog.beat() => {}
            () = reloads.next() => {
                service::reloading();
                reload(&agent, &mut programs, args);
                service::ready();
            }
            () = next_of(&mut deaths) => programs.reap_orphans(),
            () = ends.next() => break,
        }
    }
    service::stopping();
    // Its own runners first: told of an agent that ends, they would look for the next one. Nobody comes any more, and who is here
    // is told.
    programs.end();
    drop(listener);
    end.send_replace(true);
    let left = agent.holds.borrow().values().filter(|hold| hold.token.is_some()).count();
    if left > 0 {
        info!("asked to end: {left} programs are told to stop their work; once more, and it is not waited for");
    }
    let grace = agent.settings.borrow().rules.iter().map(|rule| rule.timing.grace()).max();
    let grace = grace.unwrap_or_default() + Duration::from_secs(1);
    let gone = async {
        let ended = async {
            programs.ended(grace).await;
            while connections.join_next().await.is_some() {}
        };
        tokio::pin!(ended);
        loop {
            tokio::select! {
                () = &mut ended => return,
                () = watchdog.beat() => {}
            }
        }
    };
    let is_gone = tokio::select! {
        () = gone => true,
        () = ends.next() => false,
    };
    if !is_gone {
        programs.end_again().await;
        warn!("ends without waiting: leaderships that are left last until their deadlines");
        #[expect(clippy::disallowed_methods, reason = "a guard that is dropped gives back what programs believe in")]
        std::process::exit(0);
    }
    info!("agent {} has ended", agent.name);
    Ok(0)
}

/// The next of these signals, if they are taken at all. Cancel-safe.
async fn next_of(signals: &mut Option<SignalStream>) {
    match signals {
        Some(signals) => signals.next().await,
        None => std::future::pending().await,
    }
}

/// Listens at this path, for its user and this group.
fn listen(path: &Path, group: Option<u32>) -> Result<(UnixListener, SocketFile), Failure> {
    let failed = |why: String| Failure::unavailable(why).with("choose another place with --socket");
    let path = &std::path::absolute(path).map_err(|error| failed(error.to_string()))?;
    if let Some(folder) = path.parent().filter(|folder| !folder.exists()) {
        let made = DirBuilder::new().mode(0o755).create(folder);
        made.map_err(|error| failed(format!("the folder {} cannot be made: {error}", folder.display())))?;
    }
    // Users of the folder's group could tell programs that they lead.
    let folder = path.parent().unwrap_or(path);
    if std::fs::metadata(folder).map_err(|error| failed(error.to_string()))?.mode() & 0o020 != 0 {
        let folder = folder.display();
        return Err(failed(format!("the group of {folder} may put another socket in its place: chmod g-w {folder}")));
    }
    // Nobody of another group connects before it is this one's.
    let mode = if group.is_some() { MODE & 0o700 } else { MODE };
    let bound = local_socket::bind(path, mode).map_err(|error| failed(error.to_string()))?;
    if let Some(group) = group {
        let changed = std::os::unix::fs::lchown(path, None, Some(group));
        let changed = changed.and_then(|()| std::fs::set_permissions(path, Permissions::from_mode(MODE)));
        changed.map_err(|error| failed(format!("the socket cannot be given to the group {group}: {error}")))?;
    }
    Ok(bound)
}

/// Where this process is connected to, or why no runner could.
fn path_of(listener: &UnixListener) -> Result<PathBuf, String> {
    let address = listener.local_addr().map_err(|error| error.to_string())?;
    let path = address.as_pathname().ok_or("the socket that the service manager gave has no path")?;
    std::path::absolute(path).map_err(|error| error.to_string())
}

/// Takes as many open files as the system lets this process have. Returns how many connections these are enough for.
fn raise_open_files() -> usize {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }) {
        debug!(%error, "the limit of open files stays as it is");
    }
    let files = getrlimit(Resource::Nofile).current.and_then(|files| usize::try_from(files).ok());
    CONNECTIONS_MAX.min(files.unwrap_or(usize::MAX) / (FILES_OF_CONNECTION + 1))
}

/// Reads the configuration again. What holds goes on as it is; what comes is judged by the new one.
fn reload(agent: &Agent, programs: &mut Programs, args: &AgentArgs) {
    let Some(path) = &args.config else {
        return warn!("there is no --config to read again");
    };
    match Settings::read(path) {
        Ok(settings) => {
            agent.settings.replace(settings);
            let (before, now) = (&agent.started_with, agent.settings.borrow());
            let stays = |what: &str, differs: bool| {
                if differs {
                    warn!("another {what} counts after a restart of the agent");
                }
            };
            stays("store", before.store != now.store);
            stays("socket", before.socket != now.socket || before.group != now.group);
            stays("name", before.name != now.name);
            info!("{} has been read again", path.display());
            if let Err(why) = programs.keep(&now.programs) {
                warn!("the programs in it cannot be started: {why}");
            }
        }
        Err(failure) => warn!("the configuration stays as it was: {failure}"),
    }
}

/// Serves one connection to its end.
async fn connection(agent: &Rc<Agent>, stream: UnixStream) {
    let Ok(caller) = Caller::of(&stream) else { return };
    let channel = Channel::new(stream);
    let _place = match Place::take(agent, &caller) {
        Ok(place) => place,
        Err(refusal) => return refusal.tell(&channel),
    };
    let sent_ns = clock::boot_nanos().unwrap_or(u64::MAX);
    let hello = Frame::Agent { protocol: PROTOCOL, now_ns: sent_ns };
    if channel.send(&hello, REQUEST_WITHIN).await.is_err() {
        return;
    }
    let (mut channel, mut ending) = (channel, agent.ending.clone());
    let request = tokio::select! {
        line = tokio::time::timeout(REQUEST_WITHIN, channel.next()) => match line {
            Ok(Ok(Some(line))) => request(&line),
            Ok(Ok(None)) => return,
            Ok(Err(error)) => Err(Refusal::malformed(error.to_string())),
            Err(_) => Err(Refusal::malformed("no request has come in time")),
        },
        _ = ending.wait_for(|ends| *ends) => Err(Refusal::new(RefusalCode::Ending, "the agent ends")),
    };
    let received_ns = clock::boot_nanos().unwrap_or(0);
    let refused = match request {
        Err(refusal) => Err((channel, refusal)),
        Ok(Request::Hold(request)) => {
            let now = request.now_ns;
            if now.saturating_add(CLOCK_TOLERANCE_NS) < sent_ns || now > received_ns.saturating_add(CLOCK_TOLERANCE_NS)
            {
                let why = "the program's CLOCK_BOOTTIME is not that of the agent: they must run in one time namespace";
                Err((channel, Refusal::new(RefusalCode::Clock, why)))
            } else {
                // So much may its clock be behind at most.
                let slack = Duration::from_nanos(received_ns.saturating_sub(now));
                hold::serve(agent, request, slack, caller, channel).await
            }
        }
        Ok(Request::Observe { election, .. }) => questions::observe(agent, &election, &caller, channel).await,
        Ok(Request::Order(request)) => questions::order(agent, request, &caller, channel).await,
        Ok(Request::List { .. }) => {
            // What is not read yet is remembered meanwhile.
            match agent.lists.try_acquire() {
                Err(_) if !caller.is_trusted() => Err((channel, Refusal::new(RefusalCode::Busy, "others are asking"))),
                _place => {
                    agent.list(&caller, &channel).await;
                    Ok(())
                }
            }
        }
    };
    if let Err((channel, refusal)) = refused {
        refusal.tell(&channel);
    }
}

fn election(name: &str) -> Result<ElectionName, Refusal> {
    ElectionName::new(name).map_err(|error| Refusal::malformed(format!("election: {error}")))
}

fn request(line: &[u8]) -> Result<Request, Refusal> {
    let read: Result<Request, _> = serde_json::from_slice(line);
    let request = read.map_err(|error| Refusal::malformed(format!("the request cannot be read: {error}")))?;
    match request.protocol() {
        PROTOCOL => Ok(request),
        other => {
            Err(Refusal::new(RefusalCode::Protocol, format!("this agent speaks protocol {PROTOCOL}, and not {other}")))
        }
    }
}

/// A connection's place among those of its user.
struct Place<'a> {
    agent: &'a Agent,
    uid: u32,
}

impl<'a> Place<'a> {
    fn take(agent: &'a Agent, caller: &Caller) -> Result<Self, Refusal> {
        let most = agent.connections_max;
        let mut connections = agent.connections.borrow_mut();
        let all: usize = connections.values().sum();
        let own = connections.get(&caller.uid).copied().unwrap_or(0);
        // Some are kept for those who are to repair things.
        let is_full = all >= if caller.is_trusted() { most } else { most - most / RESERVE };
        if is_full || (!caller.is_trusted() && own >= most / SHARE_OF_USER) {
            return Err(Refusal::new(RefusalCode::Busy, "there are too many connections"));
        }
        connections.insert(caller.uid, own + 1);
        Ok(Self { agent, uid: caller.uid })
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut connections = self.agent.connections.borrow_mut();
        if let Some(own) = connections.get_mut(&self.uid) {
            *own -= 1;
            if *own == 0 {
                connections.remove(&self.uid);
            }
        }
    }
}

impl Agent {
    fn rule(&self, election: &ElectionName) -> Result<Rule, Refusal> {
        let rule = self.settings.borrow().rule(election).cloned();
        rule.ok_or_else(|| {
            let why = format!("the agent's configuration has no election '{election}'");
            Refusal::new(RefusalCode::NoSuchElection, why)
        })
    }

    /// A hold begins. Returns its number.
    fn enter(&self, hold: HoldFrame) -> u64 {
        let mut holds = self.holds.borrow_mut();
        let number = holds.last_key_value().map_or(0, |(last, _)| last + 1);
        holds.insert(number, hold);
        number
    }

    fn note(&self, number: u64, standing: &'static str, token: Option<Token>, deadline_ns: Option<u64>) {
        if let Some(hold) = self.holds.borrow_mut().get_mut(&number) {
            hold.standing = standing.into();
            hold.token = token.map(TokenText);
            hold.deadline_ns = deadline_ns;
        }
    }

    fn leave(&self, number: u64) {
        self.candidates.leave(number);
        self.holds.borrow_mut().remove(&number);
    }

    async fn list(&self, caller: &Caller, channel: &Channel) {
        let shown = |hold: &&HoldFrame| caller.is_trusted() || hold.uid == caller.uid;
        let holds = self.holds.borrow().values().filter(shown).cloned().collect();
        // They are the agent's user's.
        let programs = if caller.is_trusted() { self.candidates.programs().all() } else { Vec::new() };
        let name = self.name.as_str().to_owned();
        let frame = Frame::Holds { name, version: env!("CARGO_PKG_VERSION"), holds, programs };
        if let Err(error) = channel.send(&frame, REQUEST_WITHIN).await {
            debug!(%error, "who holds what cannot be told");
        }
    }
}
