//! Rules about every text file: whitespace, and words that do not belong here.

use super::Rule;
use super::tree::{Problem, Source, Tree, has_word};

pub(super) const RULES: &[Rule] = &[
    Rule {
        name: "whitespace",
        why: "invisible differences make noise in reviews",
        check: whitespace,
        bad: || Tree::of(&[("a.md", "one \ntwo\n")]),
        good: || Tree::of(&[("a.md", "one\ntwo\n"), ("tests/golden/a.txt", "as it was printed "), ("empty", "")]),
    },
    Rule {
        name: "machine-paths",
        why: "a path of one machine is wrong on every other",
        check: machine_paths,
        bad: || Tree::of(&[("a.md", concat!("see /ho", "me/someone/file\n"))]),
        good: || Tree::of(&[("a.md", "see /home/ann, https://example.org/home/, and crates/work/a\n")]),
    },
    Rule {
        name: "words",
        why: "the repository speaks of the project alone",
        check: words,
        bad: || Tree::of(&[("a.md", concat!("from arti", "factory\n"))]),
        good: || Tree::of(&[("a.md", "an AIX box; a store session; PAID\n")]),
    },
    Rule {
        name: "named-subject",
        why: "a sentence says who does it: the asker, a voter, a candidate that waits",
        check: named_subject,
        bad: || Tree::of(&[("a.md", concat!("It is told to who", "ever asks.\n"))]),
        good: || Tree::of(&[("a.rs", concat!("fn who", "ever_asks_is_told() {}\n")), ("a.md", "The asker is told.\n")]),
    },
];

/// Golden files hold what was printed, to the byte.
fn is_golden(file: &Source) -> bool {
    ["/golden/", "/snapshots/", "/testdata/"].iter().any(|folder| file.path.contains(folder))
}

fn whitespace(tree: &Tree) -> Vec<Problem> {
    let mut problems = Vec::new();
    for file in tree.files().iter().filter(|file| !is_golden(file)) {
        // `lines` would take a carriage return for a part of the line's end.
        for (index, line) in file.text.split('\n').enumerate() {
            if line.ends_with([' ', '\t', '\r']) {
                problems.push(file.problem(index + 1, "whitespace at the end of the line"));
            }
        }
        if !file.text.is_empty() && (!file.text.ends_with('\n') || file.text.ends_with("\n\n")) {
            problems.push(file.problem_as_a_whole("does not end with one newline"));
        }
    }
    problems
}

fn machine_paths(tree: &Tree) -> Vec<Problem> {
    /// Somebody who has no machine.
    const EXAMPLE: &str = "/ann";
    let folders = ["work", "root", "home", "Users"].map(|folder| format!("/{folder}"));
    each_line(tree, |line| {
        let found = folders.iter().find(|folder| {
            line.match_indices(folder.as_str()).any(|(at, _)| {
                let before = line[..at].chars().next_back();
                let rest = &line[at + folder.len()..];
                let after = rest.chars().next();
                // Inside of a longer path, an address or a word it means something else.
                !before.is_some_and(|c| c.is_alphanumeric() || ".-_/:)}*".contains(c))
                    && !after.is_some_and(|c| c.is_alphanumeric() || "-_".contains(c))
                    && !rest.starts_with(EXAMPLE)
            })
        });
        found.map(|folder| format!("names the machine path {folder}"))
    })
}

fn words(tree: &Tree) -> Vec<Problem> {
    let words = [
        concat!("A", "I"),
        concat!("Cla", "ude"),
        concat!("Anth", "ropic"),
        concat!("L", "LM"),
        concat!("help", "er session"),
        concat!("sub", "agent"),
        concat!("issues", " show"),
        concat!("arti", "factory"),
        concat!("cod", "eload"),
        concat!("/tmp/", "target-"),
    ];
    each_line(tree, |line| {
        words.iter().find(|word| has_word(line, word)).map(|word| format!("contains the word `{word}`"))
    })
}

fn named_subject(tree: &Tree) -> Vec<Problem> {
    let words = [concat!("who", "ever"), concat!("Who", "ever"), concat!("whom", "ever")];
    each_line(tree, |line| {
        let found = words.iter().find(|word| has_word(line, word))?;
        Some(format!("says `{found}`: name the subject"))
    })
}

fn each_line(tree: &Tree, find: impl Fn(&str) -> Option<String>) -> Vec<Problem> {
    let mut problems = Vec::new();
    for file in tree.files() {
        problems.extend(file.lines().filter_map(|(number, line)| Some(file.problem(number, find(line)?))));
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn carriage_returns_and_missing_ends_are_seen() {
        assert_eq!(whitespace(&Tree::of(&[("a", "one\r\n")])).len(), 1);
        assert_eq!(whitespace(&Tree::of(&[("a", "one")])).len(), 1);
        assert_eq!(whitespace(&Tree::of(&[("a", "one\n\n")])).len(), 1);
    }
}
