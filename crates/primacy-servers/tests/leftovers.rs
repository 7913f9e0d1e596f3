//! A test that is killed leaves neither servers nor folders.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::{env, fs, io};

use primacy_servers::{MariaDb, MariaDbOptions, Postgres, PostgresOptions};

const VICTIM: &str = "PRIMACY_SERVERS_VICTIM";

/// Not a test by itself: the process that the test below kills.
#[test]
fn victim() {
    if env::var_os(VICTIM).is_none() {
        return;
    }
    let postgres = Postgres::start(&PostgresOptions::default()).expect("it starts");
    let mariadb = MariaDb::start(&MariaDbOptions::default()).expect("it starts");
    for (folder, pid) in [(postgres.folder(), postgres.pid()), (mariadb.folder(), mariadb.pid())] {
        writeln!(io::stderr(), "started {} {}", folder.display(), pid.expect("it runs")).expect("somebody reads");
    }
    // Until it is killed.
    let _ = io::stdin().read_line(&mut String::new());
}

/// The victim, and the folders and processes of its servers.
fn start_victim() -> (Child, Vec<(String, String)>) {
    let mut command = Command::new(env::current_exe().expect("it has a place"));
    command.args(["--exact", "victim", "--nocapture"]).env(VICTIM, "1");
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut victim = command.spawn().expect("it is this program");
    let lines = BufReader::new(victim.stderr.take().expect("it is a pipe")).lines().map_while(Result::ok);
    let started = lines.filter_map(|line| {
        let (folder, pid) = line.strip_prefix("started ")?.split_once(' ')?;
        Some((folder.to_string(), pid.to_string()))
    });
    let started: Vec<(String, String)> = started.take(2).collect();
    assert_eq!(started.len(), 2, "both servers run");
    for (folder, pid) in &started {
        assert!(Path::new(folder).is_dir());
        assert!(is_alive(pid));
    }
    (victim, started)
}

fn kill(mut victim: Child) {
    victim.kill().expect("it runs");
    victim.wait().expect("it was killed");
}

#[test]
fn a_killed_test_leaves_nothing() {
    let (victim, started) = start_victim();
    kill(victim);
    for (folder, pid) in &started {
        await_end(|| !Path::new(folder).exists() && !is_alive(pid), folder);
    }
}

#[test]
fn even_killed_keepers_leave_nothing_for_long() {
    let (victim, started) = start_victim();
    for (folder, pid) in &started {
        let keeper = after_name(pid).expect("the server runs").1;
        Command::new("kill").args(["-KILL", &keeper]).status().expect("every system has it");
        await_end(|| !is_alive(pid), folder);
    }
    kill(victim);
    let next = Postgres::start(&PostgresOptions::default()).expect("it starts");
    for (folder, _) in &started {
        assert!(!Path::new(folder).exists(), "the next server's start has removed it");
    }
    drop(next);
}

fn is_alive(pid: &str) -> bool {
    after_name(pid).is_some_and(|(state, _)| state != "Z")
}

/// A process's state and parent.
fn after_name(pid: &str) -> Option<(String, String)> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (state, rest) = stat.rsplit_once(") ")?.1.split_once(' ')?;
    Some((state.to_string(), rest.split_once(' ')?.0.to_string()))
}

/// Others' ends are no event for this process; each turn runs a program, which takes about a millisecond.
fn await_end(holds: impl Fn() -> bool, what: &str) {
    for _ in 0..20_000 {
        if holds() {
            return;
        }
        Command::new("true").status().expect("every system has it");
    }
    panic!("{what} is still there");
}
