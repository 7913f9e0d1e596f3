//! Every command line of the README, the manual and the tutorials, run word by word.
//!
//! Lines are found by what they look like, so that a new one without a [`Way`] fails. Each is run by `sh` in a folder with
//! the programs that the manual names. Those about peers have hosts of their own: a network namespace in which all the
//! manual's addresses are this machine's, with its folders empty.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use tempfile::TempDir;

use crate::page_texts::PAGES;
use crate::support::primacy;
use crate::ways::LINES;
use crate::ways::Way::{self, Alone, Lasts, Led, MariaDb, No, Peers, Postgres, Says};

/// What the lines about peers need beside them, in the manual's order: `=` stands before its lines, `&` before one that goes
/// on, and `?` before a wait that is over when the command succeeds.
const PEERS: &[&str] = &[
    "=primacy peer certs certs a b c web-1 web-2",
    "=primacy peer certs certs a b c web-1 web-2 operator",
    " primacy peer certs certs a b c d e f web-1 web-2 operator",
    "&primacy peer --name b --certs certs --peers a@10.0.0.1:7400,b@10.0.0.2:7400,c@10.0.0.3:7400",
    "&primacy peer --name c --certs certs --peers a@10.0.0.1:7400,b@10.0.0.2:7400,c@10.0.0.3:7400",
    "=primacy peer --name a --certs certs --peers a@10.0.0.1:7400,b@10.0.0.2:7400,c@10.0.0.3:7400",
    "=export PRIMACY_STORE='peers://a@10.0.0.1:7400,b@10.0.0.2:7400,c@10.0.0.3:7400?certs=certs&name=web-1'",
    "?primacy list",
    "=primacy run --name web-1 -- ./jobs",
    "=primacy run --store 'peers://a@10.0.0.1:7400,b@10.0.0.2:7400,c@10.0.0.3:7400?certs=certs&name=web-1' -- ./jobs",
    "=primacy doctor",
    " kill $a; wait $a",
    "=primacy peer --name a --certs certs --peers a@10.0.0.1:7400,b@10.0.0.2:7400,c@10.0.0.3:7400 --socket /run/primacy/a.socket",
    "=export PRIMACY_STORE=peers:///run/primacy/a.socket",
    "?primacy list",
    "=primacy run --name web-1 -- ./jobs",
    "=primacy run --store peers:///run/primacy/a.socket --turn ring -- ./worker",
    "=primacy run --store peers:///run/primacy/a.socket --score-oracle latency --fail-back 1m -- ./writer",
    "=primacy run --store peers:///run/primacy/a.socket --score-oracle consensus --score-class 10000 -- ./writer",
    "=primacy peer list",
    "=primacy peer revoke certs web-1",
    "=primacy peer revoke certs ./certs/web-2.pem",
    "&primacy peer --name d --certs certs --peers c@10.0.0.3:7400,d@10.0.0.4:7400",
    "&primacy peer --name e --certs certs --peers c@10.0.0.3:7400,e@10.0.0.5:7400",
    "&primacy peer --name f --certs certs --peers c@10.0.0.3:7400,f@10.0.0.6:7400",
    " export PRIMACY_STORE='peers://a@10.0.0.1:7400,b@10.0.0.2:7400,c@10.0.0.3:7400?certs=certs&name=operator'",
    "?primacy peer add d@10.0.0.4:7400 e@10.0.0.5:7400",
    "=primacy peer add d@10.0.0.4:7400 e@10.0.0.5:7400",
    "=primacy peer remove a b",
    "?primacy peer replace c f@10.0.0.6:7400",
    // The last of those that were named so far has been taken out, and may be gone.
    " export PRIMACY_STORE='peers://d@10.0.0.4:7400,e@10.0.0.5:7400,f@10.0.0.6:7400?certs=certs&name=operator'",
    "=primacy peer replace c f@10.0.0.6:7400",
    "=primacy completions bash > /usr/share/bash-completion/completions/primacy",
    "=primacy man --dir /usr/local/share/man/man1",
    " unset PRIMACY_STORE",
    "=primacy run --status-file /run/primacy/status.json -- ./service",
    "&primacy agent",
    "?primacy agent list",
    "=primacy agent list",
    "=primacy run --agent --election billing -- ./billing",
    " kill $!; wait $!",
    "&primacy agent --lease 10s --grace 2s",
    "?primacy agent list",
    " kill $!; wait $!",
    "&primacy agent --http 127.0.0.1:8008",
    "?primacy agent list",
    " kill $!; wait $!",
    " cp -a /etc etc; mkdir etc/primacy; mount --bind etc /etc",
    " printf '[[election]]\nname = \"billing\"\n' > /etc/primacy/agent.toml",
    "=primacy agent check --config /etc/primacy/agent.toml",
    "&primacy agent --config /etc/primacy/agent.toml",
    "?primacy agent list",
    " kill $!; wait $!",
    "=export PRIMACY_STORE=postgresql://jobs@db.example/jobs",
    " primacy status --wait 0s || [ $? = 69 ]",
];

/// The command lines of a page: in blocks those that are no output, in sentences those that are more than a name.
fn lines_of(page: &str) -> Vec<String> {
    let mut lines = Vec::new();
    let mut block: Option<(&str, bool)> = None;
    // A block may stand in a list.
    for line in page.lines().map(str::trim_start) {
        if let Some(kind) = line.strip_prefix("```") {
            block = if block.is_some() { None } else { Some((kind, false)) };
            continue;
        }
        match &mut block {
            Some((kind @ ("sh" | ""), prompts)) => {
                let prompted = line.strip_prefix("$ ");
                *prompts |= prompted.is_some();
                let line = prompted.unwrap_or(line);
                let command = line.split("   #").next().unwrap_or(line).trim_end();
                // A block with prompts shows output, too; a picture has no commands.
                let counts = prompted.is_some() || (!*prompts && (*kind == "sh" || begins_like_one(command)));
                if counts && !command.is_empty() {
                    lines.push(command.to_owned());
                }
            }
            // What a unit of systemd runs.
            Some(("ini", _)) => {
                lines.extend(line.strip_prefix("ExecStart=/usr/local/bin/").map(str::to_owned));
            }
            Some(_) => {}
            None => {
                let quoted = line.split('`').skip(1).step_by(2);
                let whole = |text: &&str| begins_like_one(text) && !text.contains(['[', '<']) && !text.ends_with("...");
                lines.extend(quoted.filter(whole).map(str::to_owned));
            }
        }
    }
    lines
}

/// Whether a page has this line. One that no page has is not run.
fn is_in_pages(line: &str) -> bool {
    PAGES.iter().any(|(_, text)| lines_of(text).iter().any(|other| other == line))
}

fn begins_like_one(text: &str) -> bool {
    ["primacy ", "cargo "].iter().any(|program| text.starts_with(program))
}

fn way(line: &str) -> Option<Way> {
    LINES.iter().find(|(known, _)| *known == line).map(|(_, way)| *way)
}

#[test]
fn every_line_of_the_pages_has_its_way_to_be_run() {
    for (page, text) in PAGES {
        for line in lines_of(text).iter().filter(|line| !line.contains("NAME")) {
            assert!(way(line).is_some(), "{page}: say in LINES how this line is run:\n{line}");
        }
    }
    for (line, way) in LINES {
        let among_peers = PEERS.iter().any(|other| other.strip_prefix(['=', '&']) == Some(line));
        assert!(*way != Peers || among_peers, "PEERS does not run this line: {line}");
    }
}

#[test]
fn a_program_can_depend_on_what_the_readme_says() {
    let (_, readme) = PAGES.iter().find(|(page, _)| *page == "README.md").expect("it is a page");
    let block = readme.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next()).expect("it has a block");
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("it is built here");
    let dependencies = block.replace("../primacy/", &format!("{}/", root.display()));
    let folder = tempfile::tempdir().expect("a temporary folder");
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).expect("there is room");
    write("Cargo.toml", &format!("[package]\nname = \"it\"\nedition = \"2024\"\n\n[workspace]\n\n{dependencies}"));
    fs::create_dir(folder.path().join("src")).expect("it is new");
    write("src/main.rs", "fn main() {}");
    fs::copy(root.join("Cargo.lock"), folder.path().join("Cargo.lock")).expect("there is room");
    let tree = Command::new(env!("CARGO"))
        .args(["tree", "--offline", "--edges", "features"])
        .current_dir(folder.path())
        .output();
    let tree = tree.expect("it is built by it");
    ended("cargo tree", &tree, 0);
    assert!(String::from_utf8_lossy(&tree.stdout).contains("primacy feature \"sqlite\""));
}

/// A folder with the programs that the manual names, where a line is run.
struct Sandbox {
    folder: TempDir,
    /// Whose end this awaits.
    runners: Mutex<Vec<Child>>,
}

/// The manual's programs, which do their work at once, and what stands for those that are elsewhere.
const PROGRAMS: &[(&str, &str)] = &[
    ("scheduler", "exit 0"),
    ("service", "exit 0"),
    ("billing", "exit 0"),
    ("worker", "exit 0"),
    ("relay", "exit 0"),
    ("writer", "exit 0"),
    ("jobs", "exit 0"),
    ("report", "exit 0"),
    ("migrate", "exit 0"),
    ("worker-that-forks", "exit 0"),
    ("how-fresh", "echo 7"),
    ("announce", "echo announced"),
    ("promote", "echo promoted"),
    ("demote", "exit 0"),
    // No manager of services is disturbed.
    ("bin/systemctl", "echo \"$@\""),
    // The administrator of a server of the test.
    ("bin/mariadb", "[ \"$1 $2\" = '-u root' ] && exec /usr/bin/env -S \"$MARIADB\""),
];

impl Sandbox {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        fs::create_dir(folder.path().join("bin")).expect("it is new");
        for (name, script) in PROGRAMS {
            let file = folder.path().join(name);
            fs::write(&file, format!("#!/bin/sh\n{script}\n")).expect("written");
            fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).expect("it is ours");
        }
        Self { folder, runners: Mutex::default() }
    }

    /// `command`, as somebody in this folder would run it.
    fn command(&self, mut command: Command) -> Command {
        let here = self.folder.path();
        let primacy = Path::new(env!("CARGO_BIN_EXE_primacy")).parent().expect("it is in a folder").display();
        let path = std::env::var("PATH").unwrap_or_default();
        command.current_dir(here).env("HOME", here).env("PATH", format!("{}/bin:{primacy}:{path}", here.display()));
        command.env_remove("XDG_STATE_HOME").stdin(Stdio::null()).process_group(0);
        command
    }

    /// `sh` with this line.
    fn line(&self, line: &str) -> Command {
        let mut shell = Command::new("sh");
        // That of the test says what the environment must not.
        for name in ["PRIMACY_STORE", "PRIMACY_ELECTION", "PRIMACY_NAME", "PRIMACY_LOG", "STATE_DIRECTORY"] {
            shell.env_remove(name);
        }
        shell.args(["-c", line]);
        self.command(shell)
    }

    fn runs(&self, line: &str) -> Output {
        self.line(line).output().expect("there is a shell")
    }

    /// web-1 leads, and web-2 waits.
    fn led(self) -> Self {
        for (name, ready) in [
            ("web-1", "primacy watch --until-leader --quiet --wait 20s"),
            ("web-2", "until primacy status --json | jq -e '.candidates | length == 1'; do :; done"),
        ] {
            let mut runner = primacy(&["run", "--name", name, "--data", "http://10.0.0.1:8080", "--", "sleep", "1000"]);
            runner.stdout(Stdio::null()).stderr(Stdio::null());
            self.runners.lock().expect("no panic").push(self.command(runner).spawn().expect("it starts"));
            let output = self.runs(ready);
            assert!(output.status.success(), "{output:?}");
        }
        self
    }

    /// Runs it until it says this.
    fn says(&self, line: &str, wanted: &str) {
        let mut child =
            self.line(line).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("there is a shell");
        let mut out = BufReader::new(child.stdout.take().expect("it is piped")).lines().map_while(Result::ok);
        let said = out.any(|line| line.contains(wanted));
        end(&mut child);
        // A shell that is ended does not wait for what it has started: that has ended once nobody can write any more.
        out.for_each(drop);
        std::io::copy(&mut child.stderr.take().expect("it is piped"), &mut std::io::sink()).expect("it can be read");
        assert!(said, "{line}: it has not said {wanted}");
    }
}

/// Ends a process and its group.
fn end(child: &mut Child) {
    let _ = killpg(Pid::from_raw(i32::try_from(child.id()).expect("pids are small")), Signal::SIGTERM);
    let _ = child.wait();
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        self.runners.lock().expect("no panic").iter_mut().for_each(end);
    }
}

#[track_caller]
fn ended(line: &str, output: &Output, code: i32) {
    let [out, err] = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes));
    assert_eq!(output.status.code(), Some(code), "{line}\n{out}{err}");
}

#[test]
fn lines_about_one_host_do_what_they_say() {
    let next = AtomicUsize::new(0);
    // They wait for candidates and leases more than for the processor.
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while let Some((line, way)) = LINES.get(next.fetch_add(1, Ordering::Relaxed)) {
                    match way {
                        _ if !is_in_pages(line) => {}
                        Alone(code) => {
                            ended(line, &Sandbox::new().runs(&format!("{line}\nend=$?; wait; exit $end")), *code)
                        }
                        Led(code) => ended(line, &Sandbox::new().led().runs(line), *code),
                        Says(wanted) => Sandbox::new().says(line, wanted),
                        Lasts(wanted) => Sandbox::new().led().says(line, wanted),
                        Postgres | MariaDb | Peers | No(_) => {}
                    }
                }
            });
        }
    });
}

#[test]
fn lines_about_servers_do_what_they_say() {
    use primacy_servers::{MariaDbOptions, PostgresOptions};
    let postgres = primacy_servers::Postgres::start(&PostgresOptions::default()).expect("it starts");
    let mariadb = primacy_servers::MariaDb::start(&MariaDbOptions::default()).expect("it starts");
    let (user, password, port) = crate::examples::parts(&mariadb.url());
    let client = format!("/usr/bin/mariadb --no-defaults --host=127.0.0.1 --port={port} --user={user} primacy");
    let sandbox = Sandbox::new();
    for (line, _) in LINES.iter().filter(|(line, way)| matches!(way, Postgres | MariaDb) && is_in_pages(line)) {
        let mut command = sandbox.line(line);
        command.env("PRIMACY_STORE", postgres.url()).env("ADMIN_URL", postgres.url());
        command.env("MARIADB", &client).env("MYSQL_PWD", &password);
        ended(line, &command.output().expect("there is a shell"), 0);
    }
    // Both fences are there, and refuse what nobody has elected.
    for refused in [postgres.sql("SELECT primacy_fence('a', 1)"), mariadb.sql("CALL primacy_fence('a', 1)")] {
        let why = format!("{:?}", refused.expect_err("nobody has campaigned"));
        assert!(why.contains("knows no election"), "{why}");
    }
}

/// The addresses of the manual are this machine's, and its folders are empty.
const HOSTS: &str = "\
ip link set lo up
for n in 1 2 3 4 5 6 7; do ip address add 10.0.0.$n/32 dev lo; done
for folder in /run /usr/share/bash-completion /usr/local/share; do mount -t tmpfs tmpfs $folder; done
mkdir -m 755 /run/primacy /usr/share/bash-completion/completions
";

#[test]
fn lines_about_peers_do_what_they_say() {
    let sandbox = Sandbox::new();
    let mut script = format!("set -e\n{HOSTS}");
    for (n, line) in PEERS.iter().enumerate() {
        let (kind, line) = line.split_at(1);
        if kind == "=" && !is_in_pages(line) {
            continue;
        }
        let voter = line.strip_prefix("primacy peer --name ").and_then(|rest| rest.split(' ').next());
        script += &format!("echo 'LINE {n}'\n");
        script += &match (kind, voter) {
            ("?", _) => format!("until {line}; do :; done\n"),
            // It votes until it is ended, at its own address, since one machine stands for all of the manual's.
            (_, Some(name)) => {
                let own = line.split([' ', ',']).find_map(|word| word.strip_prefix(&format!("{name}@")));
                format!("{line} --quiet --listen {} & {name}=$!\n", own.expect("its address is among them"))
            }
            ("&", None) => format!("{line} --quiet &\n"),
            _ => format!("{line}\n"),
        };
    }
    script += "echo COMPLETE\n";
    let mut command = Command::new("timeout");
    // All voters end with the shell, which is the first process of their namespace.
    command.args(["--kill-after=5", "120", "unshare", "--net", "--mount", "--propagation", "private"]);
    command.args(["--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", &script]);
    let output = sandbox.command(command).env_remove("PRIMACY_STORE").output().expect("every system has it");
    let [out, err] = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes));
    if !out.contains("LINE ") {
        return primacy_servers::skipped(&format!("hosts of one's own need root: {err}"));
    }
    let last = out.lines().filter_map(|line| line.strip_prefix("LINE ")?.parse::<usize>().ok()).next_back();
    let last = last.and_then(|n| PEERS.get(n)).unwrap_or(&"");
    assert!(out.lines().any(|line| line == "COMPLETE"), "{last}\n{out}\n{err}");
}
