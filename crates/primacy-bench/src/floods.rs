//! What a neighbour without rights costs a healthy leader: its renewals under each flood, beside a calm time, and beside a control
//! in which as much CPU is burnt as the flood took: `cargo xtask bench floods`.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::fs;
use std::io::Write as _;
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use clap::{Args, ValueEnum};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use primacy::store::StoreError;
use primacy::{Candidate, CandidateConfig, Election, ElectionName, Label, Phase, Timing};

use crate::place::{BenchStore, Kind, Site};
use crate::spread::Spread;
use crate::strokes::{Strokes, burn};

/// Which floods, on whom, for how long.
#[derive(Args)]
pub(crate) struct Options {
    /// The floods.
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_value = "notifications,touches,pipes,names,connections,silence"
    )]
    flood: Vec<Flood>,
    /// The lease of the leader and of the two that wait, in milliseconds.
    #[arg(long, default_value_t = 100)]
    lease: u64,
    /// For how long each part lasts.
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// A flood of peers goes on until there were as many names or connections.
    #[arg(long, default_value_t = 0)]
    strokes: u64,
}

/// What the neighbour does without end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Flood {
    /// PostgreSQL: a role without rights on any table notifies on the election's channel.
    Notifications,
    /// SQLite: touches the election's hint file.
    Touches,
    /// SQLite: puts a pipe, a folder, a link and a number in place of the election's hint file, in turn.
    Pipes,
    /// Peers: looks at elections that nobody has claimed, each with a name of its own, and watches some of them.
    Names,
    /// Peers: opens connections, says nonsense on some, breaks off others, and leaves up to 200 open.
    Connections,
    /// Peers: a majority of the voters is stopped, and goes on at the end.
    Silence,
}

impl fmt::Display for Flood {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Notifications => "PostgreSQL, notifications",
            Self::Touches => "SQLite, touched hint files",
            Self::Pipes => "SQLite, planted hint files",
            Self::Names => "peers, unknown elections",
            Self::Connections => "peers, connections",
            Self::Silence => "peers, a silent majority",
        })
    }
}

impl Flood {
    fn kind(self) -> Kind {
        match self {
            Self::Notifications => Kind::Postgres,
            Self::Touches | Self::Pipes => Kind::Sqlite,
            Self::Names | Self::Connections | Self::Silence => Kind::Peers,
        }
    }
}

pub(crate) fn run(options: &Options, machine: &str, primacy: &Path) -> Result<()> {
    println!("{machine}");
    println!("one leader and two that wait, with a lease of {} ms, {} s each", options.lease, options.seconds);
    for &flood in &options.flood {
        let span = Duration::from_secs(options.seconds);
        let lease = Duration::from_millis(options.lease);
        let place = BenchStore::start(flood.kind(), primacy)?;
        if flood == Flood::Notifications {
            place.sql("CREATE ROLE stranger LOGIN PASSWORD 'x'")?;
        }
        if flood == Flood::Silence {
            println!("{flood:<28} {}", silence(&place, lease, span)?);
            continue;
        }
        let before = (place.kind == Kind::Peers).then(|| Burden::measure(&place)).transpose()?;
        let calm = watch(&place, lease, span, 0, |_, _| Ok(()))?;
        println!("{flood:<28} calm     {calm}");
        let least = if place.kind == Kind::Peers { options.strokes } else { 0 };
        let voters = place.addresses();
        let flooded = watch(&place, lease, span, least, |site, strokes| attack(flood, &voters, site, strokes))?;
        println!("{flood:<28} flooded  {flooded}");
        // What the flood took beyond what a calm time takes, for all together.
        let burnt = (flooded.attacker + flooded.server).saturating_sub(calm.server);
        let share = burnt.as_secs_f64() / flooded.elapsed.as_secs_f64();
        let control = watch(&place, lease, span, 0, |_, strokes| {
            burn(share, strokes);
            Ok(())
        })?;
        println!("{flood:<28} control  {control}");
        if let Some(before) = before {
            println!("{flood:<28} voters   {before} before, {} after all of this", Burden::measure(&place)?);
        }
    }
    Ok(())
}

/// What a store's servers hold, and how long they take for a look.
struct Burden {
    memory: u64,
    files: usize,
    looks: Spread,
}

impl Burden {
    const LOOKS: usize = 2_000;

    fn measure(place: &BenchStore) -> Result<Self> {
        let site = place.site();
        let store = Election::open(&site.url, &site.election)?.store().clone();
        let election = ElectionName::new(site.election.clone())?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let looks = runtime.block_on(async {
            let mut admin = store.admin().await?;
            let mut looks = Vec::with_capacity(Self::LOOKS);
            for _ in 0..Self::LOOKS {
                let begin = Instant::now();
                admin.snapshot(&election).await?;
                looks.push(begin.elapsed());
            }
            Ok::<_, StoreError>(looks)
        })?;
        Ok(Self { memory: place.memory(), files: place.files(), looks: Spread::of(looks) })
    }
}

impl fmt::Display for Burden {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { memory, files, looks } = self;
        let [median, p99] = [50, 99].map(|percent| looks.percentile(percent));
        let memory = *memory as f64 / f64::from(1 << 20);
        write!(f, "{memory:.1} MiB, {files} files and threads, a look {median:.2?} (p99 {p99:.2?})")
    }
}

/// What was seen of an election for a while.
struct Seen {
    elapsed: Duration,
    renewals: u64,
    leaderships: usize,
    longest: Duration,
    strokes: u64,
    /// CPU time of the neighbour, of the server, and of the candidates.
    attacker: Duration,
    server: Duration,
    candidates: Duration,
    files: usize,
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let share = |cpu: Duration| cpu.as_secs_f64() / self.elapsed.as_secs_f64() * 100.0;
        write!(
            f,
            "{:>6.1} renewals a second, {:>6.1?} between two at most, {} lost; {:>7.0} strokes a second; CPU: neighbour {:>5.1} %, \
             server {:>5.1} %, candidates {:>5.1} %; {} files and threads more at the end",
            self.renewals as f64 / self.elapsed.as_secs_f64(),
            self.longest,
            self.leaderships.saturating_sub(1),
            self.strokes as f64 / self.elapsed.as_secs_f64(),
            share(self.attacker),
            share(self.server),
            share(self.candidates),
            self.files,
        )
    }
}

/// What the leaders tell, by token: the latest beat, and when it came.
#[derive(Default)]
struct Log {
    beats: BTreeMap<u64, (u64, u64)>,
    last: Option<Instant>,
    longest: Duration,
}

impl Log {
    fn note(&mut self, token: u64, beat: u64) {
        let now = Instant::now();
        if let Some(last) = self.last.replace(now) {
            self.longest = self.longest.max(now.duration_since(last));
        }
        let beats = self.beats.entry(token).or_insert((beat, beat));
        beats.1 = beats.1.max(beat);
    }

    fn renewals(&self) -> u64 {
        self.beats.values().map(|(first, last)| last - first).sum()
    }
}

/// Three candidates of a new election, and what their leaders tell.
struct Campaign {
    site: Site,
    log: Arc<Mutex<Log>>,
    runtime: tokio::runtime::Runtime,
}

impl Campaign {
    /// Returns when one leads and renews.
    fn start(place: &BenchStore, lease: Duration) -> Result<Self> {
        let site = place.site();
        let log = Arc::new(Mutex::new(Log::default()));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        for label in ["a", "b", "c"] {
            let mut config = CandidateConfig::new(Label::new(label)?);
            config.timing = Timing::with_lease(lease)?;
            let candidate = Election::open(&site.url, &site.election)?.campaign_with(config)?;
            runtime.spawn(follow(candidate, Arc::clone(&log)));
        }
        let campaign = Self { site, log, runtime };
        let settle = async {
            while campaign.log().renewals() <= 3 {
                tokio::time::sleep(lease / 4).await;
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        };
        let patience = Duration::from_secs(30);
        campaign.runtime.block_on(async { tokio::time::timeout(patience, settle).await }).context("nobody leads")?;
        *campaign.log() = Log::default();
        Ok(campaign)
    }

    fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets the candidates go on for this long.
    fn pass(&self, span: Duration) {
        self.runtime.block_on(async { tokio::time::sleep(span).await });
    }
}

/// Watches three candidates of a new election while a neighbour, on a thread of its own, does something for this long, and until it
/// has done it as often.
fn watch(
    place: &BenchStore,
    lease: Duration,
    span: Duration,
    least: u64,
    neighbour: impl FnOnce(&Site, &Strokes) -> Result<()> + Send,
) -> Result<Seen> {
    let campaign = Campaign::start(place, lease)?;
    let strokes = Strokes::default();
    let neighbours_cpu = AtomicU64::new(0);
    let (files, server, own, begin) = (held()?, place.cpu(), crate::proc::cpu(std::process::id()), Instant::now());
    let mut seen = thread::scope(|scope| {
        let attack = scope.spawn(|| {
            let ended = neighbour(&campaign.site, &strokes);
            neighbours_cpu.fetch_add(own_cpu(), Ordering::Relaxed);
            ended
        });
        campaign.pass(span);
        while strokes.count() < least && !attack.is_finished() {
            campaign.pass(Duration::from_millis(100));
        }
        let elapsed = begin.elapsed();
        let (renewals, leaderships, longest) = {
            let log = campaign.log();
            // A time without any renewal at the end counts too.
            let since = log.last.map_or(elapsed, |last| last.elapsed());
            (log.renewals(), log.beats.len(), log.longest.max(since))
        };
        let server = place.cpu().saturating_sub(server);
        let all = crate::proc::cpu(std::process::id()).saturating_sub(own);
        let count = strokes.count();
        strokes.end();
        let Ok(ended) = attack.join() else { bail!("the neighbour has died") };
        ended?;
        let attacker = Duration::from_nanos(neighbours_cpu.load(Ordering::Relaxed));
        let candidates = all.saturating_sub(attacker);
        Ok(Seen { elapsed, renewals, leaderships, longest, strokes: count, attacker, server, candidates, files: 0 })
    })?;
    seen.files = held()?.saturating_sub(files);
    if seen.leaderships == 0 {
        bail!("nobody led");
    }
    Ok(seen)
}

/// Notes each renewal of each leadership.
async fn follow(mut candidate: Candidate, log: Arc<Mutex<Log>>) {
    while let Ok(leadership) = candidate.elected().await {
        let mut phases = leadership.phases();
        loop {
            let beat = match &*phases.borrow_and_update() {
                Phase::Leading { version, .. } => version.beat,
                _ => break,
            };
            log.lock().unwrap_or_else(PoisonError::into_inner).note(leadership.token().get(), beat);
            if phases.changed().await.is_err() {
                break;
            }
        }
    }
}

/// Files and threads of this process.
fn held() -> Result<usize> {
    Ok(fs::read_dir("/proc/self/fd")?.count() + fs::read_dir("/proc/self/task")?.count())
}

/// CPU time of this thread, in nanoseconds.
fn own_cpu() -> u64 {
    let text = fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split(' ').next().and_then(|nanos| nanos.parse().ok()).unwrap_or_default()
}

fn attack(flood: Flood, voters: &[SocketAddr], site: &Site, strokes: &Strokes) -> Result<()> {
    match flood {
        Flood::Notifications => notify(site, strokes),
        Flood::Touches => touch(&hint_file(site)?, strokes),
        Flood::Pipes => plant(&hint_file(site)?, strokes),
        Flood::Names => look(site, strokes),
        Flood::Connections => connect(voters, strokes),
        Flood::Silence => Ok(()),
    }
}

fn notify(site: &Site, strokes: &Strokes) -> Result<()> {
    let mut config: tokio_postgres::Config = site.url.replacen("//primacy:", "//stranger:", 1).parse()?;
    config.password("x");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let (client, connection) = config.connect(tokio_postgres::NoTls).await?;
        let connection = tokio::spawn(connection);
        // As in the statements of primacy.
        let channel = "'primacy_' || left(encode(sha256(convert_to($1::text, 'UTF8')), 'hex'), 32)";
        let statement = client.prepare(&format!("SELECT pg_notify({channel}, $2)")).await?;
        while strokes.go_on() {
            client.execute(&statement, &[&site.election, &strokes.note().to_string()]).await?;
        }
        drop(client);
        connection.await??;
        Ok(())
    })
}

fn hint_file(site: &Site) -> Result<PathBuf> {
    let path = site.url.strip_prefix("sqlite:").context("not a file")?;
    Ok(PathBuf::from(format!("{path}.hints")).join(&site.election))
}

fn touch(file: &Path, strokes: &Strokes) -> Result<()> {
    let opened = fs::OpenOptions::new().write(true).open(file)?;
    while strokes.go_on() {
        opened.set_modified(std::time::SystemTime::now())?;
        strokes.note();
    }
    Ok(())
}

fn plant(file: &Path, strokes: &Strokes) -> Result<()> {
    while strokes.go_on() {
        drop(fs::remove_file(file).or_else(|_| fs::remove_dir(file)));
        // A leader may have made its own again just now.
        let planted = match strokes.note() % 4 {
            0 => nix::unistd::mkfifo(file, nix::sys::stat::Mode::S_IRWXU).map_err(Into::into),
            1 => fs::create_dir(file),
            2 => std::os::unix::fs::symlink("/dev/zero", file),
            _ => fs::write(file, "9223372036854775807\n"),
        };
        drop(planted);
        thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

/// One in this number of names is also watched.
const WATCHED: u64 = 100;
/// How many watches a neighbour has open.
const WATCHES: usize = 8;

/// Four neighbours at once.
fn look(site: &Site, strokes: &Strokes) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let looker = || async {
        let store = Election::open(&site.url, &site.election)?.store().clone();
        let mut watches = VecDeque::new();
        let mut admin = store.admin().await?;
        while strokes.go_on() {
            let number = strokes.note();
            let name = ElectionName::new(format!("nobody-{number}"))?;
            if admin.snapshot(&name).await.is_err() {
                admin = store.admin().await?;
            }
            if number.is_multiple_of(WATCHED) {
                watches.push_back(store.hints(&name).await?);
                if watches.len() > WATCHES {
                    watches.pop_front();
                }
            }
        }
        anyhow::Ok(())
    };
    runtime.block_on(async { tokio::try_join!(looker(), looker(), looker(), looker()) }).map(drop)
}

/// How many connections a neighbour has open.
const OPEN: usize = 200;

fn connect(voters: &[SocketAddr], strokes: &Strokes) -> Result<()> {
    let mut open = VecDeque::new();
    for voter in voters.iter().cycle() {
        if !strokes.go_on() {
            break;
        }
        let number = strokes.note();
        // Local ports may run out for a moment.
        let Ok(mut connection) = TcpStream::connect_timeout(voter, Duration::from_secs(2)) else {
            thread::sleep(Duration::from_millis(5));
            continue;
        };
        if number.is_multiple_of(3) {
            // It may be closed already.
            let _ = connection.write_all(&number.to_le_bytes());
        }
        if number.is_multiple_of(2) {
            open.push_back(connection);
        }
        if open.len() > OPEN {
            open.pop_front();
        }
    }
    Ok(())
}

/// What candidates and voters hold open before a majority of the voters is stopped, at the end of that, and a while later.
fn silence(place: &BenchStore, lease: Duration, span: Duration) -> Result<String> {
    const AFTER: Duration = Duration::from_secs(10);
    let campaign = Campaign::start(place, lease)?;
    let files = || Ok::<_, anyhow::Error>((held()?, place.files()));
    let before = files()?;
    let voters: Vec<Pid> = place.servers().into_iter().skip(1).map(|pid| Pid::from_raw(pid.cast_signed())).collect();
    voters.iter().try_for_each(|voter| kill(*voter, Signal::SIGSTOP))?;
    campaign.pass(span);
    let during = files()?;
    voters.iter().try_for_each(|voter| kill(*voter, Signal::SIGCONT))?;
    campaign.pass(AFTER);
    let after = files()?;
    let leads = campaign.log().last.is_some_and(|last| last.elapsed() < lease * 4);
    Ok(format!(
        "files and threads of candidates and of voters: {before:?} before, {during:?} after {span:?} of silence, {after:?} {AFTER:?} \
         later, when {} leads",
        if leads { "somebody" } else { "nobody" }
    ))
}
