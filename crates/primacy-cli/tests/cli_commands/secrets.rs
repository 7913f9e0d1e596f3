//! Passwords: refused on the command line, and shown nowhere.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::net::TcpListener;
use std::process::{Child, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::support::{Ended, primacy};

const CANARY: &str = "c4n4ry-b1rd";

/// The commands that ask a store.
const ASKING: [&[&str]; 10] = [
    &["status", "--explain"],
    &["list"],
    &["watch", "--count", "1"],
    &["history"],
    &["promote", "web-2"],
    &["depose"],
    &["pause"],
    &["forget", "billing"],
    &["doctor"],
    &["run", "--", "true"],
];

#[test]
fn a_password_on_the_command_line_is_refused() {
    let urls = [
        format!("postgres://u:{CANARY}@127.0.0.1:1/d"),
        format!("postgresql://u@127.0.0.1:1/d?password={CANARY}"),
        format!("mysql://u:{CANARY}@127.0.0.1:1/d"),
        format!("mariadb://:{CANARY}@127.0.0.1:1/d"),
        format!("host=127.0.0.1 password={CANARY}"),
    ];
    for url in &urls {
        for command in ASKING {
            let before = [&["--store", url], command].concat();
            let joined = format!("--store={url}");
            let after = [&command[..1], &[joined.as_str()], &command[1..]].concat();
            for words in [before, after] {
                let ended = Ended::of(primacy(&words).output().expect("it starts"));
                ended.is_one_line(2, "put the URL into PRIMACY_STORE");
                assert!(!ended.err.contains(CANARY), "{ended:?}");
            }
        }
    }
}

#[test]
fn a_password_in_the_wrong_place_is_not_repeated() {
    let url = format!("postgres://u:{CANARY}@127.0.0.1:1/d");
    for words in [
        &[url.as_str()][..],
        &["status", &url],
        &["status", "--sotre", &url],
        &["status", &format!("--stroe={url}")],
        &["run", "--lease", &url, "--", "true"],
        &["promote", "a", "--token", &url],
        &["completions", &url],
        &["status", "--color", &url],
    ] {
        let ended = Ended::of(primacy(words).output().expect("it starts"));
        assert_eq!((ended.code, ended.out.as_str()), (2, ""), "{ended:?}");
        assert!(!ended.err.contains(CANARY), "{ended:?}");
    }
}

#[test]
fn a_password_in_the_environment_serves_and_is_not_shown() {
    // Somebody answers, but speaks another language.
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let deaf = listener.local_addr().expect("an address").port();
    std::thread::spawn(move || listener.incoming().for_each(drop));
    let mut urls = Vec::new();
    for scheme in ["postgres", "postgresql", "mysql", "mariadb"] {
        urls.push(format!("{scheme}://u:{CANARY}@127.0.0.1:1/d"));
        urls.push(format!("{scheme}://u:{CANARY}@127.0.0.1:{deaf}/d"));
        // Refused, each for a reason of its own.
        urls.push(format!("{scheme}://u:{CANARY}@127.0.0.1:1/d?no-such-option={CANARY}"));
        urls.push(format!("{scheme}://u:{CANARY}@127.0.0.1:99999/d"));
        urls.push(format!("{scheme}://u:{CANARY}/@127.0.0.1:1/d"));
    }
    urls.push(format!("host=h password={CANARY}"));
    urls.push(format!("zookeeper://u:{CANARY}@h"));
    for url in &urls {
        for command in ASKING {
            for more in [&["--wait", "0s"][..], &["--wait", "0s", "--json"]] {
                let words = [more, command].concat();
                let mut command = primacy(&words);
                command.env("PRIMACY_STORE", url).env("PRIMACY_LOG", "trace").env("RUST_LOG", "trace");
                let ended = Ended::of(command.output().expect("it starts"));
                assert!([2, 69].contains(&ended.code), "{url} {words:?} {ended:?}");
                assert!(!ended.out.contains(CANARY) && !ended.err.contains(CANARY), "{url} {words:?} {ended:?}");
            }
        }
    }
}

/// The command lines of a process and of all that it has started.
fn command_lines(pid: u32, found: &mut Vec<String>) {
    found.push(fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default());
    for task in fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten() {
        let children = fs::read_to_string(task.path().join("children")).unwrap_or_default();
        children
            .split_whitespace()
            .filter_map(|child| child.parse().ok())
            .for_each(|child| command_lines(child, found));
    }
}

fn all_there_is_to_read(mut runner: Child) -> String {
    let mut text = String::new();
    runner.stderr.take().expect("it is piped").read_to_string(&mut text).expect("text");
    runner.wait().expect("it ends");
    text
}

#[test]
fn runner_warden_and_program_hide_a_real_password() {
    for url in [primacy_servers::postgres_url(), primacy_servers::mysql_url()] {
        let password = url.split('@').next().and_then(|user| user.rsplit(':').next()).expect("it has one");
        assert!(password.len() >= 6, "too short to be found by accident only");
        let start = |words: &[&str]| {
            let mut command = primacy(words);
            command.env("PRIMACY_STORE", &url).env("PRIMACY_ELECTION", "secrets").env("PRIMACY_LOG", "trace");
            command.stdout(Stdio::piped()).stderr(Stdio::piped());
            command
        };
        let mut runner = start(&["run", "--name", "web-1", "--", "sh", "-c", "echo runs; exec sleep 1000"]);
        // Whatever is logged goes into a file, so that nobody waits for a full pipe.
        let log = tempfile::NamedTempFile::new().expect("a file");
        let mut runner = runner.stderr(log.reopen().expect("a file")).spawn().expect("it starts");
        let mut first = String::new();
        let mut out = BufReader::new(runner.stdout.take().expect("it is piped"));
        out.read_line(&mut first).expect("text");
        assert_eq!(first, "runs\n");

        let mut lines = Vec::new();
        command_lines(runner.id(), &mut lines);
        assert!(lines.len() >= 3, "runner, warden, program: {lines:?}");
        assert!(lines.iter().all(|line| !line.contains(password)), "{lines:?}");
        for words in ASKING.iter().filter(|words| !["run", "promote", "depose", "forget", "watch"].contains(&words[0]))
        {
            for json in [&[][..], &["--json"]] {
                let words = [*words, json].concat();
                let ended = Ended::of(start(&words).output().expect("it starts"));
                assert!(!ended.out.is_empty() && ended.code < 69, "{ended:?}");
                assert!(!ended.out.contains(password) && !ended.err.contains(password), "{words:?} {ended:?}");
            }
        }
        kill(Pid::from_raw(i32::try_from(runner.id()).expect("small")), Signal::SIGTERM).expect("it runs");
        runner.wait().expect("it ends");
        let log = fs::read_to_string(log.path()).expect("text");
        assert!(log.contains("TRACE") || log.contains("DEBUG"), "the log says much: {log}");
        assert!(!log.contains(password), "{log}");

        // A wrong password is no secret of the server's, but it is the user's.
        let wrong = url.replace(password, CANARY);
        let runner = start(&["run", "--wait", "0s", "--", "true"]).env("PRIMACY_STORE", wrong).spawn().expect("starts");
        let said = all_there_is_to_read(runner);
        assert!(said.contains("primacy: ") && !said.contains(CANARY), "{said}");
    }
}
