//! The `lease` protocol as text scripts with printed outcomes: `tests/scenarios/*.txt`, reviewed as a diff.
//!
//! `BLESS=1 cargo test -p primacy-core --test scenarios` writes what happens now into the scripts.

mod stage;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use stage::Stage;

const END_OF_COMMAND: &str = "----";

/// Carries out every block of a script and returns the script with the outcomes that it has now.
///
/// A block is one or more commands, `----`, and what they print: lines that begin with a time. All else is kept.
fn replay(script: &str) -> String {
    let mut stage = Stage::default();
    let mut out = String::new();
    let mut lines = script.lines().peekable();
    let mut commands = Vec::new();
    while let Some(line) = lines.next() {
        writeln!(out, "{line}").expect("a String takes every write");
        if line == END_OF_COMMAND {
            let printed: String = commands.drain(..).map(|command: &str| stage.command(command)).collect();
            out.push_str(&printed);
            // What was printed before.
            while lines.next_if(|line| line.starts_with(|first: char| first.is_ascii_digit())).is_some() {}
        } else if !line.is_empty() && !line.starts_with('#') {
            commands.push(line);
        }
    }
    assert!(commands.is_empty(), "commands without {END_OF_COMMAND}: {commands:?}");
    format!("{}\n", out.trim_end())
}

fn scripts() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scenarios");
    let mut paths: Vec<_> = std::fs::read_dir(&folder)
        .expect("the folder of scripts is part of the crate")
        .map(|entry| entry.expect("a readable folder").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "txt"))
        .collect();
    paths.sort();
    paths
}

/// The first lines that differ, for a failure that can be read without another tool.
fn first_difference(expected: &str, actual: &str) -> String {
    let mut pairs = expected.lines().zip(actual.lines()).enumerate();
    match pairs.find(|(_, (expected, actual))| expected != actual) {
        Some((index, (expected, actual))) => format!("line {}:\n  - {expected}\n  + {actual}", index + 1),
        None => "one is longer than the other".to_owned(),
    }
}

#[test]
fn every_script_prints_what_it_says() {
    let bless = std::env::var_os("BLESS").is_some();
    let mut wrong = Vec::new();
    let scripts = scripts();
    assert!(scripts.len() >= 20, "only {} scripts", scripts.len());
    for path in scripts {
        let expected = std::fs::read_to_string(&path).expect("a readable script");
        let actual = replay(&expected);
        if actual != expected {
            if bless {
                std::fs::write(&path, &actual).expect("a writable script");
            } else {
                wrong.push(format!("{}: {}", path.display(), first_difference(&expected, &actual)));
            }
        }
    }
    assert!(wrong.is_empty(), "BLESS=1 accepts these changes:\n{}", wrong.join("\n"));
}
