//! What HTTP costs, and what its clients cost a leader: `cargo xtask bench http`. Requests a second of an agent with few and with many
//! elections; and the renewals of a leader while clients are slow, many, or talk nonsense, beside a calm time, and beside a control in
//! which as much CPU is burnt.

use std::fmt;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use clap::{Args, ValueEnum};
use tempfile::TempDir;
use tokio::io::AsyncWriteExt as _;
use tokio::sync::mpsc;

use crate::agents;
use crate::proc::{self, OwnProcess};
use crate::spread::Spread;
use crate::strokes::{Strokes, burn};

/// What is measured.
#[derive(Args)]
pub(crate) struct Options {
    /// Numbers of elections of one agent, whose requests a second are measured
    #[arg(long, value_delimiter = ',', default_value = "10,1000")]
    elections: Vec<usize>,
    /// How often it is asked for each figure
    #[arg(long, default_value_t = 50_000)]
    requests: usize,
    /// What clients do to a leader
    #[arg(long, value_enum, value_delimiter = ',', default_value = "crowd,nonsense,scrapes")]
    attack: Vec<Attack>,
    /// The lease of that leader, in milliseconds
    #[arg(long, default_value_t = 1_000)]
    lease: u64,
    /// For how long each part lasts
    #[arg(long, default_value_t = 60)]
    seconds: u64,
}

/// What clients do without end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Attack {
    /// 10,000 connections, each of which says a byte a second of a request that never ends
    Crowd,
    /// Requests with bytes changed, left out and put in, and heads that are too long
    Nonsense,
    /// Questions that are answered from the store, and metrics, as fast as they come
    Scrapes,
}

impl fmt::Display for Attack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Crowd => "10,000 slow connections",
            Self::Nonsense => "nonsense",
            Self::Scrapes => "questions and metrics",
        })
    }
}

/// How long anything may take that is no part of a measurement.
const PATIENCE: Duration = Duration::from_secs(60);
/// How many clients ask at once for a rate.
const CLIENTS: usize = 4;

pub(crate) fn run(options: &Options, machine: &str, primacy: &Path) -> Result<()> {
    println!("{machine}");
    for &elections in &options.elections {
        println!("{}", rates(options, primacy, elections)?);
    }
    if !options.attack.is_empty() {
        println!("a leader on SQLite with a lease of {} ms, {} s each", options.lease, options.seconds);
    }
    let span = Duration::from_secs(options.seconds);
    for &attack in &options.attack {
        let leader = Leader::start(primacy, options.lease)?;
        let calm = leader.watch(span, |_| Ok(()))?;
        println!("{attack:<24} calm     {calm}");
        let attacked = leader.watch(span, |strokes| attack.carry_out(leader.address, strokes))?;
        println!("{attack:<24} attacked {attacked}");
        // What the attack took beyond what a calm time takes, of clients and server together.
        let share = (attacked.cpu.saturating_sub(calm.cpu)).as_secs_f64() / attacked.elapsed.as_secs_f64();
        let control = leader.watch(span, |strokes| {
            burn(share, strokes);
            Ok(())
        })?;
        println!("{attack:<24} control  {control}");
    }
    Ok(())
}

/// What an answer is worth.
struct Answer {
    text: String,
    took: Duration,
}

/// Asks once, over a connection of its own, as the server wants it.
fn ask(address: SocketAddr, path: &str, patience: Duration) -> Result<Answer> {
    let begin = Instant::now();
    let mut stream = TcpStream::connect_timeout(&address, patience)?;
    stream.set_read_timeout(Some(patience))?;
    stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").as_bytes())?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    ensure!(text.starts_with("HTTP/1.1 200") || text.starts_with("HTTP/1.1 503"), "{path}: {text}");
    Ok(Answer { text, took: begin.elapsed() })
}

fn free_address() -> Result<SocketAddr> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?)
}

/// How fast an agent that leads in this many elections answers.
fn rates(options: &Options, primacy: &Path, elections: usize) -> Result<String> {
    let (folder, address) = (tempfile::tempdir()?, free_address()?);
    let agent = agents::Agent::telling(primacy, &folder, address)?;
    let mut command = agent.program(&["--called", "a", "--many", &elections.to_string()])?;
    let mut program = OwnProcess(command.stdout(Stdio::piped()).spawn()?);
    program.await_ready()?;
    let (mut tables, each) = (Vec::new(), options.requests / CLIENTS);
    for (path, each) in [("/leader?election=e1", each), ("/metrics", 25)] {
        let (begin, before) = (Instant::now(), proc::cpu(agent.pid()));
        let clients = if path == "/metrics" { 1 } else { CLIENTS };
        let answers = thread::scope(|scope| {
            let client = || (0..each).map(|_| Ok(ask(address, path, PATIENCE)?.took)).collect::<Result<Vec<_>>>();
            let asking: Vec<_> = (0..clients).map(|_| scope.spawn(client)).collect();
            asking
                .into_iter()
                .map(|one| one.join().map_err(|_| anyhow::anyhow!("a client has died"))?)
                .collect::<Result<Vec<_>>>()
        })?;
        let (elapsed, cpu) = (begin.elapsed(), proc::cpu(agent.pid()).saturating_sub(before));
        let answers = answers.concat();
        let (rate, by_core) =
            (answers.len() as f64 / elapsed.as_secs_f64(), answers.len() as f64 / cpu.as_secs_f64().max(1e-9));
        tables.push(format!(
            "{elections:>5} elections  {path:<20} {rate:>7.0} a second with {clients} clients, {by_core:>7.0} for a second of CPU; {}",
            Spread::of(answers)
        ));
    }
    Ok(tables.join("\n"))
}

/// A leader that tells over HTTP.
struct Leader {
    process: OwnProcess,
    address: SocketAddr,
    _folder: TempDir,
}

impl Leader {
    fn start(primacy: &Path, lease: u64) -> Result<Self> {
        let (folder, address) = (tempfile::tempdir()?, free_address()?);
        let mut command = Command::new(primacy);
        command.args([
            "run",
            "--quiet",
            "--name",
            "a",
            "--lease",
            &format!("{lease}ms"),
            "--http",
            &address.to_string(),
        ]);
        command.args(["--", "sleep", "infinity"]).stdin(Stdio::null());
        command.env("PRIMACY_STORE", format!("sqlite:{}", folder.path().join("primacy.db").display()));
        let leader = Self { process: OwnProcess(command.spawn()?), address, _folder: folder };
        let end = Instant::now() + PATIENCE;
        while !ask(address, "/leader", PATIENCE).is_ok_and(|answer| answer.text.starts_with("HTTP/1.1 200")) {
            ensure!(Instant::now() < end, "nobody leads");
            thread::sleep(Duration::from_millis(20));
        }
        Ok(leader)
    }

    /// What it has counted by now.
    fn counts(&self) -> Result<Counts> {
        let end = Instant::now() + PATIENCE;
        loop {
            match ask(self.address, "/metrics", PATIENCE) {
                Ok(answer) => return Counts::read(&answer.text),
                Err(error) if Instant::now() >= end => bail!("it tells no metrics: {error:#}"),
                Err(_) => thread::sleep(Duration::from_millis(100)),
            }
        }
    }

    /// Watches it for this long, while clients do something, and one asks whether it leads.
    fn watch(&self, span: Duration, clients: impl FnOnce(&Strokes) -> Result<()> + Send) -> Result<Seen> {
        let before = self.counts()?;
        let cpu = || proc::cpu(self.process.pid()) + proc::own_cpu();
        let (begin, used, strokes) = (Instant::now(), cpu(), Strokes::default());
        let (answers, unanswered) = thread::scope(|scope| -> Result<_> {
            let attack = scope.spawn(|| clients(&strokes));
            let (mut answers, mut unanswered) = (Vec::new(), 0);
            while begin.elapsed() < span {
                match ask(self.address, "/leader", Duration::from_secs(2)) {
                    Ok(answer) => answers.push(answer.took),
                    Err(_) => unanswered += 1,
                }
                thread::sleep(Duration::from_millis(100));
            }
            strokes.end();
            attack.join().map_err(|_| anyhow::anyhow!("the clients have died"))??;
            Ok((answers, unanswered))
        })?;
        let (elapsed, cpu) = (begin.elapsed(), cpu().saturating_sub(used));
        let after = self.counts()?;
        Ok(Seen { elapsed, before, after, answers: Spread::of(answers), unanswered, strokes: strokes.count(), cpu })
    }
}

/// What a leader has counted.
struct Counts {
    renewals: u64,
    ended: u64,
    /// How many renewals took no longer than each of these times.
    within: Vec<(f64, u64)>,
}

impl Counts {
    fn read(text: &str) -> Result<Self> {
        let values = |name: &str| -> Vec<(String, u64)> {
            let of_name = text.lines().filter(|line| line.starts_with(name));
            of_name.filter_map(|line| Some((line.to_owned(), line.rsplit(' ').next()?.parse().ok()?))).collect()
        };
        let bound = |line: &str| -> Option<f64> {
            let (_, rest) = line.split_once("le=\"")?;
            let word = rest.split('"').next()?;
            if word == "+Inf" { Some(f64::INFINITY) } else { word.parse().ok() }
        };
        let renewals = values("primacy_candidate_renewal_seconds_count").first().context("it counts renewals")?.1;
        let within = values("primacy_candidate_renewal_seconds_bucket");
        Ok(Self {
            renewals,
            ended: values("primacy_candidate_leaderships_ended_total").iter().map(|(_, count)| count).sum(),
            within: within.into_iter().filter_map(|(line, count)| Some((bound(&line)?, count))).collect(),
        })
    }
}

/// What was seen of a leader for a while.
struct Seen {
    elapsed: Duration,
    before: Counts,
    after: Counts,
    answers: Spread,
    unanswered: usize,
    strokes: u64,
    /// CPU time of the leader's process and of all clients.
    cpu: Duration,
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let renewals = self.after.renewals - self.before.renewals;
        let grown = |(after, before): (&(f64, u64), &(f64, u64))| (after.0, after.1 - before.1);
        let mut within = self.after.within.iter().zip(&self.before.within).map(grown);
        let slowest = within.find(|(_, count)| *count == renewals).map_or(f64::INFINITY, |(bound, _)| bound);
        write!(
            f,
            "{:>5.2} renewals a second, each within {:.0} ms; {} leaderships lost; {:>6.0} strokes a second; CPU {:>5.1} %; /leader: \
             p50 {:.2?} p99 {:.2?} max {:.2?}, {} of {} unanswered in 2 s",
            renewals as f64 / self.elapsed.as_secs_f64(),
            slowest * 1e3,
            self.after.ended - self.before.ended,
            self.strokes as f64 / self.elapsed.as_secs_f64(),
            self.cpu.as_secs_f64() / self.elapsed.as_secs_f64() * 100.0,
            self.answers.percentile(50),
            self.answers.percentile(99),
            self.answers.percentile(100),
            self.unanswered,
            self.unanswered + self.answers.count(),
        )
    }
}

impl Attack {
    fn carry_out(self, address: SocketAddr, strokes: &Strokes) -> Result<()> {
        match self {
            Self::Crowd => crowd(address, strokes),
            Self::Nonsense => at_once(strokes, |number| nonsense(address, number)),
            Self::Scrapes => at_once(strokes, |number| {
                let paths = ["/metrics", "/v1/elections", "/v1/elections/default", "/v1/elections/default/history"];
                // Too many wait, perhaps.
                drop(ask(address, paths[number as usize % paths.len()], PATIENCE));
            }),
        }
    }
}

/// By several clients at once.
fn at_once(strokes: &Strokes, stroke: impl Fn(u64) + Sync) -> Result<()> {
    thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| {
                while strokes.go_on() {
                    stroke(strokes.note());
                }
            });
        }
    });
    Ok(())
}

/// One request that is none, perhaps: as a number has it that is drawn anew for each.
fn nonsense(address: SocketAddr, number: u64) {
    const REQUESTS: [&str; 4] = [
        "GET /leader HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
        "POST /v1/elections/default/depose HTTP/1.1\r\nHost: localhost\r\nContent-Length: 12\r\n\r\n{\"token\": 7}",
        "GET /v1/elections/default/events HTTP/1.1\r\nHost: localhost\r\nLast-Event-ID: 1\r\n\r\n",
        "GET /v1/elections/%00/history?limit=9999999999999999999999 HTTP/1.1\r\nHost: localhost\r\n\r\n",
    ];
    let mut drawn = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut draw = |below: usize| {
        drawn ^= drawn << 13;
        drawn ^= drawn >> 7;
        drawn ^= drawn << 17;
        (drawn % below as u64) as usize
    };
    let mut request = REQUESTS[draw(REQUESTS.len())].as_bytes().to_vec();
    for _ in 0..draw(6) {
        let at = draw(request.len());
        match draw(4) {
            0 => request[at] = draw(256) as u8,
            1 => request.truncate(at.max(1)),
            2 => request.insert(at, draw(256) as u8),
            _ => drop(request.splice(at..at, std::iter::repeat_n(b'x', draw(40 << 10)))),
        }
    }
    let Ok(mut stream) = TcpStream::connect_timeout(&address, Duration::from_secs(1)) else { return };
    // It may be refused at any byte.
    drop(stream.write_all(&request));
    if !draw(2).is_multiple_of(2) {
        drop(stream.set_read_timeout(Some(Duration::from_millis(20))));
        drop(stream.read(&mut [0; 512]));
    }
}

/// Connections that say a byte a second, and come back when they are cut off.
fn crowd(address: SocketAddr, strokes: &Strokes) -> Result<()> {
    const CROWD: usize = 10_000;
    let (made, told) = mpsc::unbounded_channel();
    let slow = move |made: mpsc::UnboundedSender<()>| async move {
        loop {
            if let Ok(mut stream) = tokio::net::TcpStream::connect(address).await {
                // Nobody counts at the end.
                let _ = made.send(());
                let head = b"GET /leader HTTP/1.1\r\nHost: localhost\r\nX: ".iter();
                for byte in head.chain(std::iter::repeat(&b'x')) {
                    if stream.write_all(&[*byte]).await.is_err() {
                        break;
                    }
                    tokio::time::sleep(Duration::from_secs(1)).await;
                }
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    };
    // Those who are left when it is over go with it.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        for _ in 0..CROWD {
            tokio::spawn(slow(made.clone()));
        }
        let mut told = told;
        while strokes.go_on() {
            if let Ok(Some(())) = tokio::time::timeout(Duration::from_millis(100), told.recv()).await {
                strokes.note();
            }
        }
    });
    Ok(())
}
