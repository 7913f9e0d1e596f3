//! Help, completions and manual pages.

use std::process::Stdio;

use crate::support::{Ended, World, primacy};

const COMMANDS: [&str; 20] = [
    "run",
    "agent",
    "status",
    "list",
    "members",
    "watch",
    "history",
    "promote",
    "depose",
    "pause",
    "resume",
    "forget",
    "doctor",
    "simulate",
    "peer",
    "kv",
    "schema",
    "completions",
    "man",
    "version",
];

fn run(words: &[&str]) -> Ended {
    Ended::of(primacy(words).output().expect("it starts"))
}

#[test]
fn every_command_explains_itself_with_examples() {
    for words in COMMANDS.iter().map(std::slice::from_ref).chain([&["peer", "certs"][..]]) {
        let (ended, command) = (run(&[words, &["--help"]].concat()), words.join(" "));
        assert_eq!((ended.code, ended.err.as_str()), (0, ""), "{command}");
        assert!(ended.out.contains("Examples:\n  primacy "), "{command}: {}", ended.out);
    }
    let all = run(&["--help"]);
    assert!(COMMANDS.iter().all(|command| all.out.contains(&format!("\n  {command} "))), "{}", all.out);
    assert!(run(&["--version"]).out.starts_with("primacy "));
}

/// A screen of 40 lines and 100 columns holds the help of each command; `--help-all` has what it leaves out.
#[test]
fn help_fits_on_one_screen_and_all_of_it_is_there() {
    let peer = ["certs", "revoke", "list", "add", "remove", "replace", "confirm"].map(|word| vec!["peer", word]);
    let kv = ["status", "explain", "replace", "snapshot", "check"].map(|word| vec!["kv", word]);
    let agent = ["list", "check"].map(|word| vec!["agent", word]);
    for words in [vec![]].into_iter().chain(COMMANDS.map(|word| vec![word])).chain(peer).chain(kv).chain(agent) {
        let help = |option: &str| {
            let mut command = primacy(&[&words[..], &[option]].concat());
            Ended::of(command.env("COLUMNS", "100").output().expect("it starts")).out
        };
        let (short, all) = (help("--help"), help("--help-all"));
        assert!(short.lines().count() <= 40, "{words:?} has {} lines:\n{short}", short.lines().count());
        assert!(short.lines().all(|line| line.chars().count() <= 100), "{words:?}:\n{short}");
        let options = |page: &str| -> Vec<String> {
            let names = page.lines().map(str::trim_start).filter(|line| line.starts_with('-'));
            let long = names.filter_map(|line| line.split([' ', ',', '.']).find(|word| word.starts_with("--")));
            long.map(str::to_owned).collect()
        };
        let (some, every) = (options(&short), options(&all));
        assert!(some.iter().all(|option| every.contains(option)), "{words:?}: {some:?} of {every:?}");
        assert!(some.contains(&"--help-all".to_owned()) && every.contains(&"--color".to_owned()), "{words:?}");
    }
    let all = run(&["run", "--help-all"]).out;
    for option in ["--renew", "--never", "--score-oracle", "--turn", "--round-most", "--allow-privileges", "--data"] {
        assert!(all.contains(&format!(" {option} <")) || all.contains(&format!(" {option}\n")), "{option}: {all}");
    }
}

#[test]
fn help_and_version_are_words_too() {
    let same = |words: &[&str], option: &[&str]| {
        let (by_word, by_option) = (run(words), run(option));
        assert_eq!((by_word.code, by_word.err.as_str()), (0, ""), "{words:?}");
        assert_eq!(by_word.out, by_option.out, "{words:?}");
    };
    same(&["help"], &["--help-all"]);
    same(&["help", "run"], &["run", "--help-all"]);
    same(&["help", "peer", "certs"], &["peer", "certs", "--help-all"]);
    same(&["peer", "help", "certs"], &["peer", "certs", "--help-all"]);
    same(&["run", "-h"], &["run", "--help"]);
    same(&["version"], &["--version"]);
    run(&["help", "rum"]).is_one_line(2, "'rum'");
}

#[test]
fn help_does_not_print_secrets_of_the_environment() {
    let output = primacy(&["--help"]).env("PRIMACY_STORE", "postgres://u:hunter2@db/x").output().expect("it starts");
    assert!(!Ended::of(output).out.contains("hunter2"));
}

#[test]
fn completions_and_the_page_name_every_command() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let ended = run(&["completions", shell]);
        assert_eq!(ended.code, 0);
        assert!(COMMANDS.iter().all(|command| ended.out.contains(command)), "{shell}");
        assert!(
            !ended.out.contains("__warden") && !ended.out.contains("__exec"),
            "the helpers' commands are nobody's business: {shell}"
        );
    }
    let page = run(&["man"]).out;
    assert!(page.contains(".TH primacy 1") && page.contains("primacy\\-promote(1)"), "{page}");
    let folder = tempfile::tempdir().expect("a folder");
    let new = folder.path().join("new/man1");
    assert_eq!(run(&["man", "--dir", new.to_str().expect("UTF-8")]).code, 0);
    // Each has its page, and so have `primacy`, the two commands of `primacy agent`, the seven of `primacy peer` and the five of
    // `primacy kv`.
    assert_eq!(new.read_dir().expect("a folder").count(), COMMANDS.len() + 15);
    run(&["man", "--dir", "/proc/man"]).is_one_line(74, "/proc/man");
}

#[test]
fn output_that_cannot_be_written_is_a_failure_but_a_closed_pipe_is_not() {
    let (world, _peers) = World::led(&[]);
    let full = || std::fs::File::options().write(true).open("/dev/full").expect("Linux has it");
    let store = format!("sqlite:{}", world.folder.path().join("primacy.db").display());
    for words in [&["status"][..], &["status", "--json"], &["man"], &["--help"]] {
        let output = primacy(words).env("PRIMACY_STORE", &store).stdout(Stdio::from(full())).output().expect("starts");
        Ended::of(output).is_one_line(74, "the output cannot be written");
        let mut child = primacy(words)
            .env("PRIMACY_STORE", &store)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("starts");
        drop(child.stdout.take());
        let ended = Ended::of(child.wait_with_output().expect("it ends"));
        assert_eq!((ended.code, ended.err.as_str()), (0, ""), "{words:?}");
    }
}
