//! Bad input: one clear line, the right exit code, nothing changed.

use std::os::unix::fs::PermissionsExt as _;

use crate::support::{Ended, World, primacy};

fn run(words: &[&str]) -> Ended {
    Ended::of(primacy(words).output().expect("it starts"))
}

#[test]
fn urls_that_name_no_store() {
    for command in [&["status"][..], &["pause"], &["doctor"], &["run", "--", "true"]] {
        let with = |url: &str| run(&[&["--store", url], command].concat());
        with("zookeeper://a,b,c/d").is_one_line(2, "unknown store scheme 'zookeeper:'");
        with("/var/lib/x.db").is_one_line(2, "is not a store URL");
        with("").is_one_line(2, "is not a store URL");
        with("sqlite:").is_one_line(2, "sqlite:");
        with("sqlite::memory:").is_one_line(2, ":memory:");
        with("odd\u{1b}[31m:x").is_one_line(2, "odd\\u{1b}[31m");
        with(&format!("{}:x", "y".repeat(10_000))).is_one_line(2, "unknown store scheme 'yyy");
    }
}

#[test]
fn stores_that_cannot_be_opened() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| format!("sqlite:{}", folder.path().join(name).display());
    for command in ["status", "list", "members", "watch", "history", "depose", "pause", "resume", "doctor"] {
        run(&[command, "--store", &at("none.db"), "--wait", "0s"]).is_one_line(69, "none.db");
        run(&[command, "--store", &at("no/folder.db"), "--wait", "0s"]).is_one_line(69, "no");
    }
    assert_eq!(folder.path().read_dir().expect("a folder").count(), 0, "observers leave nothing behind");

    std::fs::write(folder.path().join("text.db"), "this is no database, but long enough to look like one".repeat(99))
        .expect("written");
    run(&["status", "--store", &at("text.db"), "--wait", "0s"]).is_one_line(69, "text.db");
    run(&["run", "--store", &at("text.db"), "--wait", "0s", "--", "true"]).is_one_line(69, "text.db");
    run(&["run", "--store", "sqlite:/proc/primacy.db", "--wait", "0s", "--", "true"]).is_one_line(69, "/proc");
}

#[test]
fn the_default_store_is_in_a_private_state_folder_that_observers_do_not_create() {
    let home = tempfile::tempdir().expect("a folder");
    let with_home = |words: &[&str]| {
        let mut command = primacy(words);
        command.env("HOME", home.path()).env_remove("XDG_STATE_HOME");
        Ended::of(command.output().expect("it starts"))
    };
    with_home(&["status"]).is_one_line(69, ".local/state/primacy");
    assert_eq!(home.path().read_dir().expect("a folder").count(), 0);
    let ended = with_home(&["run", "--", "true"]);
    assert_eq!(ended.code, 0, "{ended:?}");
    let mode = home.path().join(".local/state/primacy").metadata().expect("it was created").permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
    assert_eq!(with_home(&["history"]).out.lines().count(), 2);
}

/// Without a home folder that can be written, the default store is nowhere.
#[test]
fn a_default_store_that_cannot_be_made_is_refused_with_the_way_to_name_another() {
    for (home, folder) in
        [("/proc/nobody", "/proc/nobody/.local/state/primacy"), ("/proc", "/proc/.local/state/primacy")]
    {
        let mut command = primacy(&["run", "--", "true"]);
        let ended = command.env("HOME", home).env_remove("XDG_STATE_HOME").env_remove("STATE_DIRECTORY").output();
        let ended = Ended::of(ended.expect("it starts"));
        assert!(ended.err.contains(folder) && ended.err.contains("--store"), "{ended:?}");
    }
}

/// Each place and each cause is named once, however many layers an error comes through.
#[test]
fn an_unreachable_database_is_told_without_repetition() {
    let told = |url: &str| run(&["status", "--store", url, "--wait", "0s"]);
    let one = told("postgres://u@127.0.0.1:1/d");
    one.is_one_line(69, "postgresql://u@127.0.0.1:1/d");
    assert_eq!(one.err.matches("://").count(), 1, "{one:?}");
    let two = told("postgres://u@127.0.0.1:1,127.0.0.1:2/d");
    two.is_one_line(69, "127.0.0.1:2/d");
    assert_eq!(two.err.matches("127.0.0.1:1").count(), 1, "{two:?}");
    let mysql = told("mysql://u@127.0.0.1:1/d");
    mysql.is_one_line(69, "mysql://u@127.0.0.1:1/d");
    assert_eq!(mysql.err.matches("://").count(), 1, "{mysql:?}");
    assert!(!mysql.err.contains("Input/output error"), "{mysql:?}");
}

#[test]
fn a_refused_duration_is_shown_as_it_was_written() {
    run(&["run", "--lease", "48h", "--", "true"]).is_one_line(2, "a lease of 48h is not supported");
    run(&["run", "--lease", "10s", "--grace", "2m", "--", "true"]).is_one_line(2, "a grace of 2m does not fit");
}

/// A terminal breaks lines where it likes; a text that has its own breaks in the middle of a sentence gets both.
#[test]
fn the_footers_of_help_break_no_sentence() {
    let commands = [
        &[][..],
        &["run"],
        &["status"],
        &["list"],
        &["members"],
        &["watch"],
        &["history"],
        &["promote"],
        &["depose"],
        &["pause"],
        &["resume"],
        &["forget"],
        &["doctor"],
        &["simulate"],
        &["peer"],
        &["peer", "certs"],
        &["peer", "revoke"],
        &["peer", "list"],
        &["peer", "add"],
        &["peer", "remove"],
        &["peer", "replace"],
        &["schema"],
        &["completions"],
        &["man"],
    ];
    for words in commands {
        for option in ["--help", "--help-all"] {
            let mut command = primacy(&[words, &[option]].concat());
            let ended = Ended::of(command.env("COLUMNS", "1000").output().expect("it starts"));
            let (_, footer) = ended.out.split_once("\nExamples:\n").unwrap_or_else(|| panic!("{words:?}: {ended:?}"));
            let sentences = footer.lines().filter(|line| !line.is_empty() && !line.starts_with("  "));
            for line in sentences {
                assert!(line.ends_with(['.', ':']), "{words:?}: {line}");
            }
        }
    }
}

#[test]
fn durations_that_make_no_sense() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = format!("sqlite:{}", folder.path().join("primacy.db").display());
    let with = |option: &str, value: &str| run(&["run", "--store", &store, option, value, "--", "true"]);
    for bad in ["0", "-1s", "1e309", "1e309s", "5 parsecs", "", "ten", "10", "1s ago"] {
        with("--lease", bad).is_one_line(2, "write a number with its unit, such as 250ms");
        with("--grace", bad).is_one_line(2, "write a number with its unit");
        with("--renew", bad).is_one_line(2, "write a number with its unit");
        with("--wait", bad).is_one_line(2, "write a number with its unit");
    }
    with("--lease", "0s").is_one_line(2, "choose 100ms to 24h");
    with("--lease", "1ms").is_one_line(2, "choose 100ms to 24h");
    with("--lease", "25h").is_one_line(2, "choose 100ms to 24h");
    with("--lease", "99999999999999h").is_one_line(2, "lease");
    with("--grace", "10s").is_one_line(2, "does not fit in a lease of 10s");
    with("--renew", "5s").is_one_line(2, "renewing every 5s");
    with("--renew", "5s").is_one_line(2, "choose at most 4.249s (the default is 2.125s), or a longer lease");
    with("--renew", "0s").is_one_line(2, "each at least 1ms");
    assert_eq!(folder.path().read_dir().expect("a folder").count(), 0, "nothing was opened");
}

#[test]
fn options_of_another_protocol_and_rounds_that_make_no_sense() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = format!("sqlite:{}", folder.path().join("primacy.db").display());
    let with = |options: &[&str]| run(&[&["run", "--store", &store], options, &["--", "true"]].concat());
    for option in [["--round", "1s"], ["--missed", "3"], ["--round-most", "9s"]] {
        with(&option).is_one_line(2, &format!("{} needs --protocol registers", option[0]));
    }
    let registers = |options: &[&str]| with(&[&["--protocol", "registers"], options].concat());
    registers(&["--lease", "10s"]).is_one_line(2, "instead of --lease give --round");
    registers(&["--renew", "1s"]).is_one_line(2, "instead of --renew give --round");
    registers(&["--round", "1ms"]).is_one_line(2, "choose 50ms to 1h");
    registers(&["--missed", "1"]).is_one_line(2, "choose 2 to 100");
    registers(&["--round-most", "1s"]).is_one_line(2, "choose at least the round time");
    registers(&["--grace", "4s"]).is_one_line(2, "does not fit in a lease of 4s");
    registers(&["--turn", "ring"]).is_one_line(2, "leave --turn out");
    for protocol in ["lease", "registers"] {
        let prefers = |options: &[&str]| with(&[&["--protocol", protocol], options].concat());
        prefers(&["--prefer", "a,,b"]).is_one_line(2, "name 2 of the list");
        prefers(&["--prefer", "a", "--never", "a"]).is_one_line(2, "choose one of the two");
        prefers(&["--score", "NaN"]).is_one_line(2, "a score must be finite");
        prefers(&["--score-class", "10"]).is_one_line(2, "give --score or --score-command");
        prefers(&["--score", "1", "--score-class", "0"]).is_one_line(2, "choose at least 0.001");
        prefers(&["--score", "1", "--score-class", "1,1,1,1,1,1,1"]).is_one_line(2, "give at most 6");
        prefers(&["--score", "1e15"]).is_one_line(2, "too far from 0");
        prefers(&["--score-every", "1s"]).is_one_line(2, "give that, too");
        prefers(&["--score-oracle", "consensus"]).is_one_line(2, "needs --store peers://");
        prefers(&["--score-oracle", "fastest"]).is_one_line(2, "choose history, request");
        prefers(&["--score-oracle", "latency,history"]).is_one_line(2, "have --score-command print it");
        prefers(&["--score-oracle", "rotating"]).is_one_line(2, "by --turn ring");
        prefers(&["--score-oracle", "request"]).is_one_line(2, "by --score-class");
        prefers(&["--score-oracle", "latency", "--score-class", "1,2"]).is_one_line(2, "2 scores, and 1 to measure");
        prefers(&["--score-oracle", "latency", "--score", "1"]).is_one_line(2, "cannot be used with");
        prefers(&["--fail-back", "soon"]).is_one_line(2, "or never");
        prefers(&["--turn", "random"]).is_one_line(2, "choose arrival, identity, ring");
    }
    with(&["--protocol", "raft"]).is_one_line(2, "choose one of lease, registers");
    run(&["members", "--store", &store, "--count", "1"]).is_one_line(2, "--watch");
    assert_eq!(folder.path().read_dir().expect("a folder").count(), 0, "nothing was opened");
}

#[test]
fn peers_that_cannot_vote_and_certificates_that_cannot_be() {
    let home = tempfile::tempdir().expect("a folder");
    let with_home = |words: &[&str]| {
        let mut command = primacy(words);
        command.env("HOME", home.path()).env_remove("XDG_STATE_HOME");
        Ended::of(command.output().expect("it starts"))
    };
    let peer = |words: &[&str]| with_home(&[&["peer", "--name", "a"], words].concat());
    with_home(&["peer"]).is_one_line(2, "is missing");
    peer(&[]).is_one_line(2, "--peers");
    peer(&["--peers", "a"]).is_one_line(2, "write NAME@HOST:PORT");
    peer(&["--peers", "a@h:1,a@h:2"]).is_one_line(2, "stands twice");
    peer(&["--peers", "b@127.0.0.1:1"]).is_one_line(2, "'a' is not among the voters");
    peer(&["--peers", "a@10.0.0.1:1"]).is_one_line(2, "make certificates with primacy peer certs");
    peer(&["--peers", "a@10.0.0.1:1", "--certs", "/nonexistent"]).is_one_line(2, "/nonexistent/");
    peer(&["--peers", "a@10.0.0.1:1", "--cert", "a.pem"]).is_one_line(2, "--ca");
    peer(&["--peers", "a@10.0.0.1:1", "--certs", "c", "--plaintext"]).is_one_line(2, "cannot be used with");
    peer(&["--peers", "a@127.0.0.1:1", "--listen", "here"]).is_one_line(2, "'here' is no value for --listen");
    run(&["status", "--store", "peers://a@10.0.0.1:1"]).is_one_line(2, "made by 'primacy peer certs'");
    run(&["status", "--store", "peers://a@127.0.0.1:1?cert=x"]).is_one_line(2, "cert, key and ca");
    run(&["status", "--store", "peers://a@127.0.0.1:1", "--wait", "0s"]).is_one_line(69, "a@127.0.0.1:1");

    let certs = home.path().join("certs");
    let certs = certs.to_str().expect("UTF-8");
    run(&["peer", "certs"]).is_one_line(2, "is missing");
    run(&["peer", "certs", certs, "Web"]).is_one_line(2, "as in the name of a host");
    run(&["peer", "certs", certs, "a", "--days", "0"]).is_one_line(2, "--days");
    assert_eq!(home.path().read_dir().expect("a folder").count(), 0, "nothing was made");
    run(&["peer", "revoke", certs, "a"]).is_one_line(2, "there is no authority in");
    assert_eq!(run(&["peer", "certs", certs, "a"]).code, 0);
    run(&["peer", "revoke"]).is_one_line(2, "is missing");
    run(&["peer", "revoke", certs, "b"]).is_one_line(2, "no certificate of 'b' is known in");
    run(&["peer", "revoke", certs, "./none.pem"]).is_one_line(2, "./none.pem: no certificate can be read from it");
    peer(&["--peers", "a@127.0.0.1:1", "--crl", "list"]).is_one_line(2, "--crl goes with --certs");
    peer(&["--peers", "a@127.0.0.1:1", "--certs", certs, "--crl", "none.crl"]).is_one_line(2, "none.crl: No such file");
    run(&["status", "--store", "peers://a@127.0.0.1:1?crl=list"]).is_one_line(2, "crl goes with certs and name");
    let once = run(&["peer", "revoke", certs, "a"]);
    assert!(once.code == 0 && once.out.contains("is revoked\nlist: "), "{once:?}");
    let twice = run(&["peer", "revoke", certs, "a"]);
    assert!(twice.code == 0 && twice.out.contains("was revoked before"), "{twice:?}");
    peer(&["--peers", "a@127.0.0.1:1", "--certs", certs]).is_one_line(2, "a.pem has been revoked: make one by");
    std::fs::remove_file(format!("{certs}/ca.key")).expect("it was made");
    run(&["peer", "certs", certs, "b"]).is_one_line(2, "ca.key is missing");
    run(&["peer", "certs", "/proc/certs", "b"]).is_one_line(74, "/proc");
}

#[test]
fn relative_folders_are_in_the_working_directory() {
    let folder = tempfile::tempdir().expect("a folder");
    let within = |words: &[&str]| Ended::of(primacy(words).current_dir(&folder).output().expect("it starts"));
    for certs in ["certs", "new/certs", "./here", "slash/"] {
        let ended = within(&["peer", "certs", certs, "a", "b", "c"]);
        assert_eq!((ended.code, ended.err.as_str()), (0, ""), "{certs}");
        assert!(folder.path().join(certs).join("ca.pem").is_file(), "{certs}");
    }
    let ended = within(&["run", "--quiet", "--store", "sqlite:primacy.db", "--", "true"]);
    assert_eq!((ended.code, ended.err.as_str()), (0, ""));
    let ended = within(&["man", "--dir", "man1"]);
    assert_eq!((ended.code, ended.err.as_str()), (0, ""));
}

#[test]
fn an_empty_variable_counts_as_none() {
    let folder = tempfile::tempdir().expect("a folder");
    let with = |words: &[&str], variables: &[(&str, &str)]| {
        let mut command = primacy(words);
        command.env("HOME", folder.path()).env_remove("XDG_STATE_HOME").envs(variables.iter().copied());
        Ended::of(command.output().expect("it starts"))
    };
    let empty: Vec<_> =
        ["PRIMACY_STORE", "PRIMACY_ELECTION", "PRIMACY_NAME", "PRIMACY_LOG"].map(|name| (name, "")).into();
    let names = "echo $PRIMACY_ELECTION $PRIMACY_NAME";
    let ended = with(&["run", "--quiet", "--", "sh", "-c", names], &empty);
    assert_eq!((ended.code, ended.err.as_str()), (0, ""), "{ended:?}");
    assert!(ended.out.starts_with("default ") && ended.out.trim_end().contains(':'), "{ended:?}");
    assert!(folder.path().join(".local/state/primacy/primacy.db").is_file(), "the default store");
    with(&["peer", "--peers", "a@127.0.0.1:1"], &empty).is_one_line(2, "--name");
    with(&["status", "--election", ""], &empty).is_one_line(2, "it is empty");
}

#[test]
fn a_variable_that_does_not_fit_is_named() {
    let with = |words: &[&str], variable: (&str, &str)| {
        Ended::of(primacy(words).env(variable.0, variable.1).output().expect("it starts"))
    };
    with(&["run", "--", "true"], ("PRIMACY_NAME", "a\nb")).is_one_line(2, "is no value for PRIMACY_NAME: ");
    with(&["status"], ("PRIMACY_ELECTION", "a\nb")).is_one_line(2, "is no value for PRIMACY_ELECTION: ");
    for bad in ["garbage=xx,,=", "primacy=loud", "=", "primacy=debug,=", "[", "a=b=c"] {
        with(&["status"], ("PRIMACY_LOG", bad)).is_one_line(2, "is no value for PRIMACY_LOG: ");
        with(&["run", "--", "true"], ("PRIMACY_LOG", bad)).is_one_line(2, "write a filter such as primacy=debug");
    }
    let (world, _peers) = World::led(&[]);
    for good in ["debug", "primacy=debug", "primacy=debug,info", "off", "warn,primacy::line=trace", "3"] {
        assert_eq!(world.with(&["status"], ("PRIMACY_LOG", good)).code, 0, "{good}");
    }
}

#[test]
fn names_that_are_none() {
    let (world, _peers) = World::led(&["web-2"]);
    let before = world.snapshot();
    let long = "x".repeat(10_240);
    for (name, says) in [
        ("", "it is empty"),
        ("two\nlines", "control character U+000A"),
        ("\u{1b}]0;title\u{7}", "control character U+001B"),
        (long.as_str(), "it has 10240 bytes; give 1 to 128"),
    ] {
        world.run(&["status", "--election", name]).is_one_line(2, says);
        world.run(&["promote", name]).is_one_line(2, says);
        world.run(&["run", "--name", name, "--", "true"]).is_one_line(2, says);
    }
    world.run(&["run", "--data", &long, "--", "true"]).is_one_line(2, "it has 10240 bytes; give at most 1024");
    world
        .run(&["promote", "Robert'); DROP TABLE primacy_election;--"])
        .is_one_line(1, "no candidate called Robert'); DROP TABLE");
    let record = |snapshot: Option<primacy::store::Snapshot>| snapshot.map(|snapshot| snapshot.record);
    assert_eq!(record(world.snapshot()), record(before));
}

#[test]
fn names_with_quotes_are_names_like_others() {
    let (world, _peers) = World::led(&[]);
    let name = "it's \"quoted\"; DROP TABLE primacy_election; -- %_\\";
    let (code, status) = world.json(&["status", "--election", name]);
    assert_eq!((code, &status["election"], &status["state"]), (1, &name.into(), &"never".into()));
    let ended = world.run(&["run", "--election", name, "--name", "o'neil", "--", "true"]);
    assert_eq!(ended.code, 0, "{ended:?}");
    let (_, list) = world.json(&["list"]);
    let names: Vec<_> =
        list["elections"].as_array().expect("a list").iter().map(|election| &election["election"]).collect();
    assert_eq!(names, [&serde_json::Value::from("default"), &serde_json::Value::from(name)]);
}

#[test]
fn words_that_mean_nothing() {
    run(&[]).is_one_line(2, "say what to do: one of run, status");
    run(&["statsu"]).is_one_line(2, "similar subcommand exists: 'status'");
    run(&["status", "--explian"]).is_one_line(2, "'--explain'");
    run(&["run"]).is_one_line(2, "write the program to run after --");
    run(&["promote"]).is_one_line(2, "<CANDIDATE> is missing");
    run(&["promote", "a", "--token", "9223372036854775808"]).is_one_line(2, "a token is a whole number");
    run(&["watch", "--count", "0"]).is_one_line(2, "--count");
    run(&["history", "--limit", "1e9"]).is_one_line(2, "--limit");
    run(&["completions", "tcsh"]).is_one_line(2, "choose one of bash");
    run(&["status", "--json", "--json"]).is_one_line(2, "--json");
    run(&["status", "extra\u{1b}[2Jword"]).is_one_line(2, "extra");
}

#[test]
fn words_that_are_not_text() {
    use std::os::unix::ffi::OsStrExt as _;
    let odd = std::ffi::OsStr::from_bytes(b"caf\xe9");
    let output = primacy(&["status", "--election"]).arg(odd).output().expect("it starts");
    Ended::of(output).is_one_line(2, "UTF-8");
}
