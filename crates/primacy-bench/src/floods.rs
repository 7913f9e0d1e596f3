//! What a neighbour without rights costs a healthy leader: its renewals under each flood, beside a calm time, and beside a control
//! in which as much CPU is burnt as the flood took: `cargo xtask bench floods`.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use clap::{Args, ValueEnum};
use primacy::{Candidate, CandidateConfig, Election, Label, Phase, Timing};

use crate::place::{Kind, Place, Site};

/// Which floods, on whom, for how long.
#[derive(Args)]
pub(crate) struct Options {
    /// The floods.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "notifications,touches,pipes")]
    flood: Vec<Flood>,
    /// The lease of the leader and of the two that wait, in milliseconds.
    #[arg(long, default_value_t = 100)]
    lease: u64,
    /// For how long each part lasts.
    #[arg(long, default_value_t = 10)]
    seconds: u64,
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
}

impl fmt::Display for Flood {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Notifications => "PostgreSQL, notifications",
            Self::Touches => "SQLite, touched hint files",
            Self::Pipes => "SQLite, planted hint files",
        })
    }
}

impl Flood {
    fn kind(self) -> Kind {
        match self {
            Self::Notifications => Kind::Postgres,
            Self::Touches | Self::Pipes => Kind::Sqlite,
        }
    }
}

pub(crate) fn run(options: &Options, machine: &str, primacy: &Path) -> Result<()> {
    println!("{machine}");
    println!("one leader and two that wait, with a lease of {} ms, {} s each", options.lease, options.seconds);
    for &flood in &options.flood {
        let span = Duration::from_secs(options.seconds);
        let lease = Duration::from_millis(options.lease);
        let place = Place::start(flood.kind(), primacy)?;
        if flood == Flood::Notifications {
            place.sql("CREATE ROLE stranger LOGIN PASSWORD 'x'")?;
        }
        let calm = watch(&place, lease, span, |_, _| Ok(0))?;
        println!("{flood:<28} calm     {calm}");
        let flooded = watch(&place, lease, span, |site, over| attack(flood, site, over))?;
        println!("{flood:<28} flooded  {flooded}");
        // What the flood took beyond what a calm time takes, from whomever.
        let burnt = (flooded.attacker + flooded.server).saturating_sub(calm.server);
        let share = burnt.as_secs_f64() / flooded.elapsed.as_secs_f64();
        let control = watch(&place, lease, span, |_, over| Ok(burn(share, over)))?;
        println!("{flood:<28} control  {control}");
    }
    Ok(())
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

/// Watches three candidates of a new election while a neighbour, on a thread of its own, does something until it is told that it is
/// over; it says how often.
fn watch(
    place: &Place,
    lease: Duration,
    span: Duration,
    neighbour: impl FnOnce(&Site, &AtomicBool) -> Result<u64> + Send,
) -> Result<Seen> {
    let site = place.site();
    let log = Arc::new(Mutex::new(Log::default()));
    let over = AtomicBool::new(false);
    let neighbours_cpu = AtomicU64::new(0);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    for label in ["a", "b", "c"] {
        let mut config = CandidateConfig::new(Label::new(label)?);
        config.timing = Timing::with_lease(lease)?;
        let candidate = Election::open(&site.url, &site.election)?.campaign_with(config)?;
        runtime.spawn(follow(candidate, Arc::clone(&log)));
    }
    let leads = |log: &Log| log.renewals() > 3;
    let settle = async {
        while !leads(&log.lock().unwrap_or_else(PoisonError::into_inner)) {
            tokio::time::sleep(lease / 4).await;
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    };
    runtime.block_on(async { tokio::time::timeout(Duration::from_secs(30), settle).await }).context("nobody leads")?;
    *log.lock().unwrap_or_else(PoisonError::into_inner) = Log::default();
    let (files, server, own, begin) = (held()?, place.cpu(), crate::proc::cpu(std::process::id()), Instant::now());
    let mut seen = thread::scope(|scope| {
        let attack = scope.spawn(|| {
            let strokes = neighbour(&site, &over);
            neighbours_cpu.fetch_add(own_cpu(), Ordering::Relaxed);
            strokes
        });
        runtime.block_on(async { tokio::time::sleep(span).await });
        let elapsed = begin.elapsed();
        let (renewals, leaderships, longest) = {
            let log = log.lock().unwrap_or_else(PoisonError::into_inner);
            // A time without any renewal at the end counts too.
            let since = log.last.map_or(elapsed, |last| last.elapsed());
            (log.renewals(), log.beats.len(), log.longest.max(since))
        };
        let server = place.cpu().saturating_sub(server);
        let all = crate::proc::cpu(std::process::id()).saturating_sub(own);
        over.store(true, Ordering::Relaxed);
        let Ok(strokes) = attack.join() else { bail!("the neighbour has died") };
        let attacker = Duration::from_nanos(neighbours_cpu.load(Ordering::Relaxed));
        let candidates = all.saturating_sub(attacker);
        let strokes = strokes?;
        Ok(Seen { elapsed, renewals, leaderships, longest, strokes, attacker, server, candidates, files: 0 })
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

fn attack(flood: Flood, site: &Site, over: &AtomicBool) -> Result<u64> {
    match flood {
        Flood::Notifications => notify(site, over),
        Flood::Touches => touch(&hint_file(site)?, over),
        Flood::Pipes => plant(&hint_file(site)?, over),
    }
}

fn notify(site: &Site, over: &AtomicBool) -> Result<u64> {
    let mut config: tokio_postgres::Config = site.url.replacen("//primacy:", "//stranger:", 1).parse()?;
    config.password("x");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let (client, connection) = config.connect(tokio_postgres::NoTls).await?;
        let connection = tokio::spawn(connection);
        // As in the statements of primacy.
        let channel = "'primacy_' || left(encode(sha256(convert_to($1::text, 'UTF8')), 'hex'), 32)";
        let statement = client.prepare(&format!("SELECT pg_notify({channel}, $2)")).await?;
        let mut strokes = 0;
        while !over.load(Ordering::Relaxed) {
            client.execute(&statement, &[&site.election, &strokes.to_string()]).await?;
            strokes += 1;
        }
        drop(client);
        connection.await??;
        Ok(strokes)
    })
}

fn hint_file(site: &Site) -> Result<PathBuf> {
    let path = site.url.strip_prefix("sqlite:").context("not a file")?;
    Ok(PathBuf::from(format!("{path}.hints")).join(&site.election))
}

fn touch(file: &Path, over: &AtomicBool) -> Result<u64> {
    let opened = fs::OpenOptions::new().write(true).open(file)?;
    let mut strokes = 0;
    while !over.load(Ordering::Relaxed) {
        opened.set_modified(std::time::SystemTime::now())?;
        strokes += 1;
    }
    Ok(strokes)
}

fn plant(file: &Path, over: &AtomicBool) -> Result<u64> {
    let mut strokes: u64 = 0;
    while !over.load(Ordering::Relaxed) {
        drop(fs::remove_file(file).or_else(|_| fs::remove_dir(file)));
        // A leader may have made its own again just now.
        let planted = match strokes % 4 {
            0 => nix::unistd::mkfifo(file, nix::sys::stat::Mode::S_IRWXU).map_err(Into::into),
            1 => fs::create_dir(file),
            2 => std::os::unix::fs::symlink("/dev/zero", file),
            _ => fs::write(file, "9223372036854775807\n"),
        };
        drop(planted);
        strokes += 1;
        thread::sleep(Duration::from_millis(1));
    }
    Ok(strokes)
}

/// Burns this number of cores until it is told that it is over. Nothing is counted.
fn burn(cores: f64, over: &AtomicBool) -> u64 {
    const SLICE: Duration = Duration::from_millis(5);
    let threads = cores.ceil().max(1.0) as usize;
    let busy = SLICE.mul_f64((cores / threads as f64).clamp(0.0, 1.0));
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    let begin = Instant::now();
                    while begin.elapsed() < busy {
                        std::hint::spin_loop();
                    }
                    thread::sleep(SLICE.saturating_sub(begin.elapsed()));
                }
            });
        }
    });
    0
}
