//! The programs of this folder, started, stopped and killed as their users do it.

use std::io::{BufRead, BufReader, PipeReader, PipeWriter, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command};
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use primacy::clock;
use primacy_servers::{Postgres, PostgresOptions};

/// Far more than anything here takes; a test that reaches it has failed.
const PATIENCE: Duration = Duration::from_secs(30);

/// The output of all programs of a test, in the order in which they wrote it.
struct Output {
    writer: PipeWriter,
    lines: Receiver<String>,
    read: Vec<String>,
}

impl Output {
    fn new() -> Self {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        let (line, lines) = mpsc::channel();
        std::thread::spawn(move || {
            let read = BufReader::<PipeReader>::new(reader).lines();
            read.map_while(Result::ok).try_for_each(|read| line.send(read))
        });
        Self { writer, lines, read: Vec::new() }
    }

    fn start(&self, program: &str, arguments: &[&str], database: &str) -> Program {
        let mut command = Command::new(program);
        command.args(arguments).env("DATABASE_URL", database);
        Program(command.stdout(self.writer.try_clone().expect("a handle")).spawn().expect("it starts"))
    }

    /// The next line that has this in it; those before it are passed over.
    fn next(&mut self, part: &str) -> String {
        let deadline = clock::now() + PATIENCE;
        loop {
            let left = deadline.since(clock::now());
            let line = self.lines.recv_timeout(left).unwrap_or_else(|_| panic!("no '{part}' in {:?}", self.read));
            self.read.push(line.clone());
            if line.contains(part) {
                return line;
            }
        }
    }
}

/// A program, which is killed with its test.
struct Program(Child);

impl Program {
    fn pid(&self) -> u32 {
        self.0.id()
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.pid().cast_signed()), signal).expect("it runs");
    }

    /// Its exit code, once it has ended by itself.
    fn ends(&mut self) -> Option<i32> {
        self.0.wait().expect("a child").code()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn the_tutorial_shows_the_worker_as_it_is() {
    let worker: String = include_str!("../drain_on_sigterm.rs")
        .lines()
        .filter(|line| !line.starts_with("#![expect"))
        .map(|line| format!("{line}\n"))
        .collect();
    let tutorial = include_str!("../../docs/tutorials/rust.md");
    assert!(tutorial.contains(&worker), "copy examples/drain_on_sigterm.rs into docs/tutorials/rust.md");
}

fn token(line: &str) -> u64 {
    line.rsplit(' ').next().and_then(|token| token.parse().ok()).expect("a token at the end of the line")
}

#[test]
fn a_worker_drains_on_sigterm_before_the_next_one_leads() {
    let folder = tempfile::tempdir().expect("a folder");
    let url = format!("sqlite:{}", folder.path().join("primacy.db").display());
    let mut output = Output::new();
    let start = |output: &Output| output.start(env!("CARGO_BIN_EXE_drain_on_sigterm"), &[&url], "");
    let mut first = start(&output);
    let began = token(&output.next("leads with token"));
    let second = start(&output);
    output.next("begins a step");
    first.signal(Signal::SIGTERM);
    let next = output.next("leads with token");
    assert!(next.starts_with(&format!("worker-{} leads", second.pid())) && token(&next) > began, "{next}");
    let of_first = format!("worker-{}", first.pid());
    let before: Vec<_> = output.read.iter().filter_map(|line| line.strip_prefix(&of_first)).map(str::trim).collect();
    let [.., begun, ended, drained] = &before[..] else { panic!("{before:?}") };
    assert_eq!((*begun, *ended), ("begins a step", "ends a step"), "{before:?}");
    assert!(drained.starts_with("has drained: "), "{before:?}");
    assert_eq!(first.ends(), Some(0));
}

/// What a copy of the service answers: status and body.
fn leader(address: &str) -> (String, String) {
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.write_all(b"GET /leader HTTP/1.0\r\n\r\n").expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it answers");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
    (head.split(' ').nth(1).unwrap_or_default().to_owned(), body.trim_end().to_owned())
}

/// Asks until all these give this answer.
fn all_say(addresses: &[&str], is_meant: impl Fn(&(String, String)) -> bool) -> (String, String) {
    let deadline = clock::now() + PATIENCE;
    loop {
        let answers: Vec<_> = addresses.iter().map(|address| leader(address)).collect();
        if answers.iter().all(|answer| is_meant(answer) && *answer == answers[0]) {
            return answers[0].clone();
        }
        assert!(clock::now() < deadline, "{answers:?}");
    }
}

#[test]
fn every_copy_of_a_service_says_who_leads_also_after_the_leader_was_killed() {
    let folder = tempfile::tempdir().expect("a folder");
    let url = format!("sqlite:{}", folder.path().join("primacy.db").display());
    let mut output = Output::new();
    let start = |output: &mut Output| {
        let program = output.start(env!("CARGO_BIN_EXE_who_leads"), &[&url], "");
        (program, output.next("127.0.0.1:"))
    };
    let (first, at) = start(&mut output);
    let port = |address: &str| address.rsplit(':').next().unwrap_or_default().to_owned();
    let expected = |address: &str| ("200".to_owned(), format!("web-{} at http://{address}/", port(address)));
    assert_eq!(all_say(&[&at], |(status, _)| status == "200"), expected(&at));
    let (mut second, second_at) = start(&mut output);
    assert_eq!(all_say(&[&at, &second_at], |(status, _)| status == "200"), expected(&at));
    first.signal(Signal::SIGKILL);
    let led_by_second = expected(&second_at);
    all_say(&[&second_at], |answer| *answer == led_by_second);
    second.signal(Signal::SIGINT);
    assert_eq!(second.ends(), Some(0));
}

#[test]
fn a_worker_goes_on_where_a_killed_one_was_and_a_deposed_one_is_refused() {
    let server = Postgres::start(&PostgresOptions::default()).expect("it starts");
    let jobs = "INSERT INTO jobs SELECT FROM generate_series(1, 3)";
    let table = "CREATE TABLE jobs (id bigserial PRIMARY KEY, done_by bigint)";
    server.sql_as_user(&format!("{table}; {jobs}")).expect("a table");
    let mut output = Output::new();
    let start = |output: &Output| output.start(env!("CARGO_BIN_EXE_fenced_worker"), &[], &server.url());
    let first = start(&output);
    let before = token(&output.next("leads with token"));
    output.next("job 3 done");
    let second = start(&output);
    first.signal(Signal::SIGKILL);
    let next = output.next("leads with token");
    assert!(next.starts_with(&format!("worker-{} leads", second.pid())), "{next}");
    server.sql_as_user(jobs).expect("more of them");
    output.next("job 6 done");
    let done = server.sql("SELECT string_agg(done_by::text, ' ' ORDER BY id) FROM jobs").expect("answers");
    let after = token(&next);
    assert!(after > before);
    assert_eq!(done, format!("{before} {before} {before} {after} {after} {after}"));
    // As a later grant does, of which this worker does not know yet.
    server.sql(&format!("UPDATE primacy_token SET token = token + 1; {jobs}")).expect("done");
    let refused = output.next("stops: ");
    assert!(refused.contains(&format!("token {after} of the election 'jobs' is stale")), "{refused}");
    let late = server.sql(&format!("SELECT count(*) FROM jobs WHERE id > 6 AND done_by = {after}")).expect("answers");
    assert_eq!(late, "0", "the deposed leader has written");
}
