//! A folder with one store, runners that campaign in it, and the lines that their programs tell.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::{BufRead as _, BufReader, PipeWriter};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::time::{ClockId, clock_gettime};
use nix::unistd::Pid;
use tempfile::TempDir;

/// Longer than anything that is awaited takes on a machine that is busy with other tests.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// For leaders that must not lose the lease: neither a disk that takes 2 s for a flush nor a machine that is busy makes it run out.
pub(crate) const STEADY: &[&str] = &["--lease", "6s", "--grace", "1s"];
pub(crate) const STEADY_NANOS: u64 = 6_000_000_000;
/// For leaders whose lease runs out within a test. A busy machine stops their programs late, and all the same in time.
pub(crate) const BRIEF: &[&str] = &["--lease", "4s", "--grace", "1s"];
pub(crate) const BRIEF_NANOS: u64 = 4_000_000_000;

/// Leaves the processor to others before something is looked at again of which nothing tells.
pub(crate) fn pause() {
    thread::sleep(Duration::from_millis(2));
}

/// One line of a witness.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Line {
    pub(crate) word: String,
    pub(crate) token: u64,
    pub(crate) pid: i32,
    pub(crate) name: String,
    /// The kernel's boot clock.
    pub(crate) nanos: u64,
}

/// The time now, by the clock of the lines.
pub(crate) fn now() -> u64 {
    let now = clock_gettime(ClockId::CLOCK_BOOTTIME).expect("Linux has it");
    u64::try_from(Duration::from(now).as_nanos()).expect("it has not run for centuries")
}

impl Line {
    fn parse(text: &str) -> Option<Self> {
        let mut words = text.split(' ');
        let mut next = || words.next();
        Some(Self {
            word: next()?.to_owned(),
            token: next()?.parse().ok()?,
            pid: next()?.parse().ok()?,
            name: next()?.to_owned(),
            nanos: next()?.parse().ok()?,
        })
    }
}

/// A store in a temporary folder and everything that runs on it.
pub(crate) struct World {
    folder: TempDir,
    store: String,
    lines: Receiver<Line>,
    writer: PipeWriter,
    log: Vec<Line>,
}

impl World {
    pub(crate) fn new() -> Self {
        Self::within(TempDir::new().expect("a temporary folder"))
    }

    pub(crate) fn within(folder: TempDir) -> Self {
        let store = format!("sqlite:{}", folder.path().join("primacy.db").display());
        Self::with(folder, store)
    }

    /// A world whose store is elsewhere.
    pub(crate) fn on(store: String) -> Self {
        Self::with(TempDir::new().expect("a temporary folder"), store)
    }

    fn with(folder: TempDir, store: String) -> Self {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        let (sender, lines) = channel();
        thread::spawn(move || {
            for text in BufReader::new(reader).lines().map_while(Result::ok) {
                if let Some(line) = Line::parse(&text) {
                    let _ = sender.send(line);
                }
            }
        });
        Self { folder, store, lines, writer, log: Vec::new() }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn store(&self) -> &str {
        &self.store
    }

    /// `primacy ARGS` on this world's store, not started yet.
    pub(crate) fn primacy<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_primacy"));
        command.args(args).env("PRIMACY_STORE", self.store()).env(MARK, self.folder.path()).stdin(Stdio::null());
        command
    }

    /// Makes a process one of this world's, so that it is not left behind.
    pub(crate) fn mark(&self, command: &mut Command) {
        command.env(MARK, self.folder.path());
    }

    /// A runner of a witness with these arguments, not started yet.
    pub(crate) fn witness(&self, name: &str, options: &[&str], arguments: &[&str]) -> Command {
        let mut command = self.primacy(["run", "--name", name]);
        command.args(options).arg("--").arg("perl");
        command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/processes/witness.pl"));
        command.arg(self.path("witness.lock")).args(arguments);
        command.stdout(self.output());
        command
    }

    /// Where witnesses tell their lines.
    pub(crate) fn output(&self) -> PipeWriter {
        self.writer.try_clone().expect("a pipe can be shared")
    }

    /// Waits until this many candidates have announced themselves, the leader not counted.
    pub(crate) fn await_candidates(&self, count: usize) {
        self.await_candidates_of("default", count);
    }

    /// The same in this election.
    pub(crate) fn await_candidates_of(&self, election: &str, count: usize) {
        let end = Instant::now() + PATIENCE;
        loop {
            let output = self.primacy(["status", "--json", "--election", election]).output().expect("primacy starts");
            let status: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
            let waiting = status["candidates"].as_array().map_or(0, Vec::len);
            if waiting == count {
                return;
            }
            assert!(Instant::now() < end, "{waiting} candidates instead of {count}: {output:?}");
            pause();
        }
    }

    /// Starts a runner of a witness.
    pub(crate) fn start(&self, name: &str, options: &[&str], arguments: &[&str]) -> Runner {
        Runner::start(self.witness(name, options, arguments))
    }

    /// Waits for a line.
    pub(crate) fn expect(&mut self, what: &str, wanted: impl Fn(&Line) -> bool) -> Line {
        let end = Instant::now() + PATIENCE;
        loop {
            match self.lines.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok(line) => {
                    self.log.push(line.clone());
                    if wanted(&line) {
                        return line;
                    }
                }
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                    panic!("waited {PATIENCE:?} for {what}; the last lines were {:#?}", self.last_words())
                }
            }
        }
    }

    /// The same for a line that may have come before others that were waited for.
    pub(crate) fn expect_ever(&mut self, what: &str, wanted: impl Fn(&Line) -> bool) {
        if !self.log().iter().any(&wanted) {
            self.expect(what, wanted);
        }
    }

    /// Waits until a witness starts with a token above this one.
    pub(crate) fn expect_start_after(&mut self, token: u64) -> Line {
        self.expect(&format!("a start with a token above {token}"), |line| line.word == "start" && line.token > token)
    }

    /// Everything that was told so far, also what nobody waited for.
    pub(crate) fn log(&mut self) -> &[Line] {
        self.log.extend(self.lines.try_iter());
        &self.log
    }

    fn last_words(&self) -> Vec<&Line> {
        self.log.iter().filter(|line| line.word != "beat").rev().take(12).collect()
    }

    /// The witnesses' verdict: no two programs ever ran at once, and tokens only grew.
    pub(crate) fn assert_never_two(&mut self) {
        let log = self.log();
        let mut spans: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
        for line in log.iter().filter(|line| line.token > 0) {
            assert_ne!(line.word, "overlap", "a program started while another's lock was held: {line:?}");
            assert_ne!(line.word, "refused", "a fenced write was refused although only one ran: {line:?}");
            let span = spans.entry(line.token).or_insert((line.nanos, line.nanos));
            *span = (span.0.min(line.nanos), span.1.max(line.nanos));
        }
        assert!(!spans.is_empty(), "no witness ever ran: the test shows nothing");
        for ((token, (_, end)), (next, (start, _))) in spans.iter().zip(spans.iter().skip(1)) {
            assert!(end < start, "token {token} was at work until {end}, and {next} from {start}");
        }
    }
}

impl Drop for World {
    /// A test that fails leaves nothing behind, neither what it had started nor what had lost its parent.
    fn drop(&mut self) {
        let end = Instant::now() + PATIENCE / 4;
        loop {
            let left = marked(self.folder.path());
            if left.is_empty() || Instant::now() > end {
                return;
            }
            left.into_iter().for_each(|pid| send(pid, Signal::SIGKILL));
            pause();
        }
    }
}

/// The variable that says to which world a process belongs. All its descendants inherit it.
const MARK: &str = "PRIMACY_TEST_WORLD";

/// The processes of the world in this folder.
fn marked(folder: &Path) -> Vec<i32> {
    let mark = format!("{MARK}={}", folder.display());
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let is_marked = |pid: &i32| {
        let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|variable| variable == mark.as_bytes())
    };
    pids.filter(is_marked).collect()
}

#[test]
fn a_test_that_fails_leaves_nothing_behind() {
    let failed = thread::spawn(|| {
        let mut world = World::new();
        let runner = world.start("a", STEADY, &["ignore-term", "fork"]);
        let led = world.expect_start_after(0);
        // Nobody's children any more, as when a test forgets them.
        let warden = runner.warden();
        std::mem::forget(runner);
        let folder = world.folder.path().to_owned();
        // Runner, warden, program, and its child, which it starts last.
        let end = Instant::now() + PATIENCE;
        while marked(&folder).len() < 4 {
            assert!(Instant::now() < end, "{:?} are not all", marked(&folder));
            pause();
        }
        std::panic::panic_any((folder, [warden, led.pid]));
    });
    let payload = failed.join().expect_err("it panics");
    let (folder, pids) = payload.downcast::<(PathBuf, [i32; 2])>().map(|payload| *payload).expect("what it told");
    assert_eq!(marked(&folder), [0; 0]);
    assert!(!pids.into_iter().any(lives));
}

/// A running `primacy run`.
pub(crate) struct Runner {
    pub(crate) child: Child,
}

impl Runner {
    pub(crate) fn start(mut command: Command) -> Self {
        Self { child: command.spawn().expect("primacy starts") }
    }

    pub(crate) fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).expect("pids are small")
    }

    pub(crate) fn send(&self, signal: Signal) {
        send(self.pid(), signal);
    }

    /// The warden: the only child of a runner. Waits until there is one.
    pub(crate) fn warden(&self) -> i32 {
        let end = Instant::now() + PATIENCE;
        loop {
            if let Some(warden) = self.children().split_whitespace().next().and_then(|pid| pid.parse().ok()) {
                return warden;
            }
            assert!(Instant::now() < end, "a runner without a warden");
            pause();
        }
    }

    fn children(&self) -> String {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.pid())).into_iter().flatten();
        tasks.flatten().filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok()).collect()
    }

    pub(crate) fn wait(&mut self) -> ExitStatus {
        let (sender, ended) = channel();
        let pid = self.pid();
        thread::spawn(move || {
            if ended.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
                send(pid, Signal::SIGKILL); // so that the wait below fails instead of lasting for ever
            }
        });
        let status = self.child.wait().expect("it was started");
        let _ = sender.send(());
        status
    }
}

impl Drop for Runner {
    fn drop(&mut self) {
        let warden: Option<i32> = self.children().split_whitespace().next().and_then(|pid| pid.parse().ok());
        let _ = self.child.kill();
        let _ = self.child.wait();
        // Its warden kills the program, and gives back the lease while there is still a store to give it to.
        let end = Instant::now() + PATIENCE / 4;
        while let Some(warden) = warden.filter(|warden| lives(*warden)) {
            if Instant::now() > end {
                send(warden, Signal::SIGKILL);
            }
            pause();
        }
    }
}

/// Signals a process of this test. One that is to stand still does not do so in a transaction of SQLite or in the witness's fenced write: it
/// would keep all others from the store, and nobody could lead, or from the resource, and the next leader could not write.
pub(crate) fn send(pid: i32, signal: Signal) {
    let strike = |signal| {
        let _ = kill(Pid::from_raw(pid), signal);
    };
    strike(signal);
    let end = Instant::now() + PATIENCE;
    while signal == Signal::SIGSTOP && stands_still(pid) && has_write_lock(pid) {
        assert!(Instant::now() < end, "process {pid} does not stand still without a lock");
        strike(Signal::SIGCONT);
        while has_write_lock(pid) {
            pause();
        }
        strike(signal);
    }
}

/// Waits until all threads of a process stand still; whether it is there.
fn stands_still(pid: i32) -> bool {
    let end = Instant::now() + PATIENCE;
    loop {
        let Ok(tasks) = std::fs::read_dir(format!("/proc/{pid}/task")) else { return false };
        // A thread that is gone by now does nothing, either.
        let stat = |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("stat")).unwrap_or_default();
        let state = |stat: String| stat.rsplit(") ").next().and_then(|rest| rest.chars().next());
        if tasks.flatten().map(stat).map(state).all(|state| matches!(state, Some('T' | 'Z' | 'X' | 't') | None)) {
            return true;
        }
        assert!(Instant::now() < end, "process {pid} does not stand still");
        pause();
    }
}

/// Whether a process has a lock of SQLite, or of the witness's resource, that excludes others.
fn has_write_lock(pid: i32) -> bool {
    // As "1: POSIX  ADVISORY  WRITE 4711 fe:01:1234 120 120".
    let locks = std::fs::read_to_string("/proc/locks").expect("Linux has it");
    locks.lines().map(|line| line.split_whitespace().collect::<Vec<_>>()).any(|words| {
        let is_own = words.contains(&"WRITE") && words.iter().any(|word| word.parse() == Ok(pid));
        words.get(1) == Some(&"POSIX") && is_own
    })
}

/// Whether a process is there and not a zombie.
pub(crate) fn lives(pid: i32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| {
        !matches!(stat.rsplit(") ").next().and_then(|rest| rest.chars().next()), Some('Z' | 'X') | None)
    })
}

/// Waits until a process is gone, and says how long that took.
pub(crate) fn await_death(pid: i32) -> Duration {
    let begin = Instant::now();
    while lives(pid) {
        assert!(begin.elapsed() < PATIENCE, "process {pid} does not die");
        pause();
    }
    begin.elapsed()
}
