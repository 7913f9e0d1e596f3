//! A store in a folder of its own, candidates that act as a test says, and the command.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::sync::Arc;
use std::time::Duration;

use primacy::registers;
use primacy::select::Rank;
use primacy::store::{Announcement, EndReason, Holder, Record, Reply, Request, Session, Snapshot, Store, Why};
use primacy::{CandidateId, ElectionName, Label, Token};
use serde_json::Value;
use tempfile::TempDir;
use tokio::runtime::Runtime;

/// Longer than any test: nothing expires by itself.
pub(crate) const LONG: Duration = Duration::from_secs(600);
/// What a healthy machine never needs.
const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) struct World {
    pub(crate) folder: TempDir,
    url: String,
    store: Arc<dyn Store>,
    runtime: Runtime,
}

impl World {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let url = format!("sqlite:{}", folder.path().join("primacy.db").display());
        let store = primacy::store::from_url(&url).expect("a valid URL");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        Self { folder, url, store, runtime }
    }

    /// A store in which web-1 leads and the others wait.
    pub(crate) fn led(waiting: &[&str]) -> (Self, Vec<Peer>) {
        let world = Self::new();
        let mut peers = vec![world.peer("web-1")];
        world.acquire(&mut peers[0], LONG);
        for label in waiting {
            let mut peer = world.peer(label);
            world.announce(&mut peer);
            peers.push(peer);
        }
        (world, peers)
    }

    pub(crate) fn election() -> ElectionName {
        ElectionName::new("default").expect("valid")
    }

    pub(crate) fn peer(&self, label: &str) -> Peer {
        let holder = Holder {
            id: CandidateId::from_bits(u128::from(std::process::id()) << 64 | u128::from(next())),
            label: Label::new(label).expect("a valid label"),
            data: format!("http://{label}:8080"),
        };
        let session = self.runtime.block_on(self.store.session(&Self::election(), &holder)).expect("a session");
        Peer { session, holder }
    }

    fn step(&self, peer: &mut Peer, request: Request) -> Reply {
        self.runtime.block_on(peer.session.step(request)).expect("the store answers")
    }

    /// The peer takes the lease, whatever stands in the row.
    pub(crate) fn acquire(&self, peer: &mut Peer, lease: Duration) -> Record {
        let Reply::Seen(seen) = self.step(peer, Request::Look { announce: None }) else { panic!("a look is seen") };
        let expect = seen.record.as_ref().map(Record::expectation);
        let holder = peer.holder.clone();
        match self.step(peer, Request::Acquire { expect, floor: Token::NONE.into(), holder, lease }) {
            Reply::Applied(record) => record,
            other => panic!("{other:?}"),
        }
    }

    /// The same above all tokens that are remembered.
    pub(crate) fn acquire_above(&self, peer: &mut Peer, lease: Duration) -> Record {
        let Reply::Seen(seen) = self.step(peer, Request::Look { announce: None }) else { panic!("a look is seen") };
        let (expect, holder) = (seen.record.as_ref().map(Record::expectation), peer.holder.clone());
        match self.step(peer, Request::Acquire { expect, floor: seen.remembered.into(), holder, lease }) {
            Reply::Applied(record) => record,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn announce(&self, peer: &mut Peer) {
        self.step(peer, Request::Look { announce: Some(Announcement { why: Why::NotLooked, rank: Rank::default() }) });
    }

    pub(crate) fn leave(&self, peer: &mut Peer) {
        self.step(peer, Request::Leave);
    }

    pub(crate) fn release(&self, peer: &mut Peer, reason: EndReason) {
        let version = self.snapshot().expect("an election").record.version;
        let request = Request::Release { id: peer.holder.id, version, reason };
        assert!(matches!(self.step(peer, request), Reply::Applied(_)), "the peer holds the lease");
    }

    /// A process takes a round of the registers protocol.
    pub(crate) fn round(&self, request: registers::RegistryRequest) -> registers::RegistryReply {
        self.runtime.block_on(async {
            let mut registry = self.store.registry(&Self::election()).await.expect("a registry");
            registry.round(request).await.expect("the store answers")
        })
    }

    /// Each process joins with one candidate, in this order.
    pub(crate) fn join(&self, labels: &[&str]) {
        for (n, label) in (1..).zip(labels) {
            let (id, label) = (CandidateId::from_bits(n), Label::new(*label).expect("a valid label"));
            let rank = Some(Rank::default());
            let candidates = vec![registers::Candidacy { id, label, data: String::new(), rank }];
            let process = registers::ProcessId::from_bits(n);
            self.round(registers::RegistryRequest::Join { process, candidates, rank, came_back: None, round: LONG });
        }
    }

    pub(crate) fn snapshot(&self) -> Option<Snapshot> {
        self.runtime.block_on(async {
            let mut admin = self.store.admin().await.expect("a desk");
            admin.snapshot(&Self::election()).await.expect("an answer")
        })
    }

    /// Waits until the election is as it should be.
    pub(crate) fn until(&self, is_so: impl Fn(&Snapshot) -> bool) -> Snapshot {
        self.runtime.block_on(async {
            let mut hints = self.store.hints(&Self::election()).await.expect("hints");
            let mut admin = self.store.admin().await.expect("a desk");
            let awaited = async {
                loop {
                    match admin.snapshot(&Self::election()).await.expect("an answer") {
                        Some(snapshot) if is_so(&snapshot) => return snapshot,
                        // Hints can be missing where many watch; looking again is the safety net.
                        _ => drop(tokio::time::timeout(Duration::from_millis(50), hints.next()).await),
                    }
                }
            };
            tokio::time::timeout(PATIENCE, awaited).await.expect("it comes true")
        })
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = primacy(words);
        command.env("PRIMACY_STORE", &self.url);
        command
    }

    /// Runs the command to its end.
    pub(crate) fn run(&self, words: &[&str]) -> Ended {
        Ended::of(self.command(words).output().expect("the command starts"))
    }

    /// Runs the command with a variable of the environment.
    pub(crate) fn with(&self, words: &[&str], (name, value): (&str, &str)) -> Ended {
        Ended::of(self.command(words).env(name, value).output().expect("the command starts"))
    }

    /// Runs the command with `--json` and reads its one answer.
    pub(crate) fn json(&self, words: &[&str]) -> (u8, Value) {
        let ended = self.run(&[words, &["--json"]].concat());
        (ended.code, serde_json::from_str(&ended.out).unwrap_or_else(|error| panic!("{error}: {ended:?}")))
    }

    /// Starts the command, to be read line by line.
    pub(crate) fn start(&self, words: &[&str]) -> Running {
        let mut child =
            self.command(words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the command starts");
        let out = BufReader::new(child.stdout.take().expect("it is piped"));
        Running { child, out }
    }
}

/// The command without anything of this process's environment that it would read.
pub(crate) fn primacy(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_primacy"));
    command.args(words).stdin(Stdio::null()).env("TZ", "UTC");
    for name in
        ["PRIMACY_STORE", "PRIMACY_ELECTION", "PRIMACY_NAME", "PRIMACY_LOG", "STATE_DIRECTORY", "RUST_BACKTRACE"]
    {
        command.env_remove(name);
    }
    command
}

/// A different number each time.
fn next() -> u64 {
    static LAST: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
    LAST.fetch_add(1, std::sync::atomic::Ordering::Relaxed)
}

/// A candidate whose steps the test takes for it.
pub(crate) struct Peer {
    session: Box<dyn Session>,
    pub(crate) holder: Holder,
}

/// A command that has ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: u8,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Ended {
    pub(crate) fn of(output: Output) -> Self {
        let text = |bytes| String::from_utf8(bytes).expect("output is UTF-8");
        let code = output.status.code().unwrap_or_else(|| panic!("it was killed: {:?}", output.status));
        Self { code: u8::try_from(code).expect("an exit code"), out: text(output.stdout), err: text(output.stderr) }
    }

    /// Refused with one clear line, and nothing else.
    #[track_caller]
    pub(crate) fn is_one_line(&self, code: u8, says: &str) {
        assert_eq!(self.code, code, "{self:?}");
        assert_eq!(self.out, "", "{self:?}");
        assert!(self.err.starts_with("primacy: ") && self.err.ends_with('\n'), "{self:?}");
        assert_eq!(self.err.lines().count(), 1, "{self:?}");
        assert!(self.err.trim_end().chars().all(|character| !character.is_control()), "{self:?}");
        assert!(self.err.len() < 500, "{self:?}");
        assert!(self.err.contains(says), "{says:?} in {self:?}");
    }
}

/// A command that runs.
pub(crate) struct Running {
    child: Child,
    out: BufReader<ChildStdout>,
}

impl Running {
    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        self.out.read_line(&mut line).expect("it can be read");
        assert!(line.ends_with('\n'), "it ended instead: {line:?}");
        line
    }

    pub(crate) fn json_line(&mut self) -> Value {
        serde_json::from_str(&self.line()).expect("JSON on each line")
    }

    /// Reads no more: the writer finds a closed pipe.
    pub(crate) fn close(self) -> Child {
        self.child
    }

    pub(crate) fn kill(mut self) {
        self.child.kill().expect("it can be killed");
        self.child.wait().expect("it ends");
    }

    pub(crate) fn end(self) -> Ended {
        let Self { mut child, mut out } = self;
        let mut text = String::new();
        std::io::Read::read_to_string(&mut out, &mut text).expect("it can be read");
        let mut err = String::new();
        if let Some(stderr) = &mut child.stderr {
            std::io::Read::read_to_string(stderr, &mut err).expect("it can be read");
        }
        let code = child.wait().expect("it ends").code().expect("it was not killed");
        Ended { code: u8::try_from(code).expect("an exit code"), out: text, err }
    }
}
