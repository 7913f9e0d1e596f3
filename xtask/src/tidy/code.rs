//! Rules about Rust source: what each file must have, and what none may contain.

use std::fs;

use super::Rule;
use super::tree::{Problem, Source, Tree};
use crate::shell::{Shell, say};

/// A longer file is hardly about one thing.
const LINES_MAX: usize = 600;

/// Files that are longer, and how long they may be. No file may be added, no number raised; `cargo xtask fix` lowers them.
const LONG_FILES: &str = "xtask/long-files.txt";

/// Tests that may sleep, and why no event can be awaited there.
const SLEEPERS: &[(&str, &str)] = &[(
    "crates/primacy-cli/tests/processes/world.rs",
    "other processes tell nothing of what is looked at there, and who asks without a pause takes a processor from them",
)];

pub(super) const RULES: &[Rule] = &[
    Rule {
        name: "module-sentence",
        why: "the first sentences of all modules are the real table of contents",
        check: module_sentence,
        bad: || Tree::of(&[("src/a.rs", "//! Half a\n//!\n//! sentence.\nfn a() {}\n")]),
        good: || Tree::of(&[("src/a.rs", "//! Says what\n//! it is for.\n//!\n//! And more\nfn a() {}\n")]),
    },
    Rule {
        name: "file-length",
        why: "one concept per file",
        check: file_length,
        bad: || Tree::of(&[("src/a.rs", "//! Long.\n"), (LONG_FILES, "src/a.rs 700\n")]),
        good: || Tree::of(&[("src/a.rs", "//! Short.\n"), (LONG_FILES, "")]),
    },
    Rule {
        name: "unfinished",
        why: "what is not finished does not land",
        check: unfinished,
        bad: || Tree::of(&[("src/a.rs", concat!("fn a() { to", "do!() }\n"))]),
        good: || Tree::of(&[("src/a.rs", "fn todo() {}\n")]),
    },
    Rule {
        name: "sleeping-test",
        why: "a test that sleeps is slow or flaky; await the event, or give a reason in xtask/src/tidy/code.rs",
        check: sleeping_test,
        bad: || Tree::of(&[("a/tests/a.rs", "//! A.\nthread::sleep(A);\n")]),
        good: || Tree::of(&[("a/src/a.rs", "thread::sleep(A);\n#[cfg(test)]\nmod tests {}\n")]),
    },
    Rule {
        name: "silenced",
        why: "`expect` with a reason goes away when it is not needed any more; `allow` and a bare `ignore` stay",
        check: silenced,
        bad: || Tree::of(&[("src/a.rs", concat!("#[al", "low(dead_code)]\n"))]),
        good: || {
            Tree::of(&[(
                "src/a.rs",
                "#[expect(dead_code, reason = \"r\")]\n#[expect(\n    a,\n    reason = \"r\"\n)]\n",
            )])
        },
    },
    Rule {
        name: "unsafe",
        why: "the kernel is reached through crates that keep its rules",
        check: no_unsafe,
        bad: || Tree::of(&[("src/a.rs", concat!("fn a() { un", "safe { b() } }\n"))]),
        good: || Tree::of(&[("src/a.rs", concat!("// un", "safe { b() }\nlet a = \"unsafe\";\n"))]),
    },
];

fn module_sentence(tree: &Tree) -> Vec<Problem> {
    let opening = |file: &Source| {
        let words = file.lines().map_while(|(_, line)| line.strip_prefix("//!")).map(str::trim);
        words.take_while(|words| !words.is_empty()).collect::<Vec<_>>().join(" ")
    };
    let is_sentence = |text: &str| text.ends_with(['.', '?', ':']);
    let files = tree.rust().filter(|file| !is_sentence(&opening(file)));
    files.map(|file| file.problem(1, "does not open with a sentence (`//! …`) that says what it is for")).collect()
}

fn file_length(tree: &Tree) -> Vec<Problem> {
    let mut problems = Vec::new();
    let excused = long_files(tree);
    for file in tree.rust() {
        let lines = file.text.lines().count();
        match excused.iter().find(|(path, _)| *path == file.path) {
            None if lines > LINES_MAX => {
                problems.push(file.problem_as_a_whole(format!("has {lines} lines; at most {LINES_MAX}")));
            }
            Some((_, most)) if lines > *most => {
                problems.push(file.problem_as_a_whole(format!("has {lines} lines; it had {most} and may only shrink")));
            }
            Some((_, most)) if loose(lines, *most) => {
                let lower = format!("has only {lines} lines; `cargo xtask fix` lowers its number in {LONG_FILES}");
                problems.push(file.problem_as_a_whole(lower));
            }
            _ => {}
        }
    }
    problems
}

/// Whether a number must be lowered. A little slack spares a change of it with every line.
fn loose(lines: usize, most: usize) -> bool {
    lines <= LINES_MAX || most > lines + 50
}

fn long_files(tree: &Tree) -> Vec<(&str, usize)> {
    let Some(file) = tree.file(LONG_FILES) else { return Vec::new() };
    let entries = file.lines().filter(|(_, line)| !line.starts_with('#'));
    entries
        .filter_map(|(_, line)| line.split_once(' '))
        .filter_map(|(path, most)| Some((path, most.parse().ok()?)))
        .collect()
}

/// Lowers what has become too loose.
pub(crate) fn lower_ratchets(shell: &Shell) -> Result<(), String> {
    let tree = Tree::of_project(shell)?;
    let Some(file) = tree.file(LONG_FILES) else { return Ok(()) };
    let text = lowered(&tree, file);
    if text != file.text {
        fs::write(shell.root().join(LONG_FILES), text).map_err(|error| format!("{LONG_FILES}: {error}"))?;
        say(&format!("  {LONG_FILES} is lower now"));
    }
    Ok(())
}

fn lowered(tree: &Tree, list: &Source) -> String {
    let mut text: String =
        list.lines().filter(|(_, line)| line.starts_with('#')).map(|(_, line)| format!("{line}\n")).collect();
    for (path, most) in long_files(tree) {
        let lines = tree.file(path).map_or(0, |file| file.text.lines().count());
        if lines > LINES_MAX {
            text += &format!("{path} {}\n", if loose(lines, most) { lines } else { most });
        }
    }
    text
}

fn unfinished(tree: &Tree) -> Vec<Problem> {
    let marks = [
        concat!("to", "do!("),
        concat!("unimple", "mented!("),
        concat!("db", "g!("),
        concat!("FIX", "ME"),
        concat!("TO", "DO"),
        concat!("XX", "X"),
    ];
    each_line(tree, Source::lines, |line| {
        marks.iter().find(|mark| line.contains(*mark)).map(|mark| format!("contains `{mark}`"))
    })
}

fn sleeping_test(tree: &Tree) -> Vec<Problem> {
    let mut problems = Vec::new();
    for file in tree.rust().filter(|file| !SLEEPERS.iter().any(|(path, _)| *path == file.path)) {
        let Some(from) = file.tests_from() else { continue };
        let sleeps = file.code().filter(|(number, line)| {
            *number >= from && (line.contains("thread::sleep(") || line.contains("time::sleep("))
        });
        problems.extend(sleeps.map(|(number, _)| file.problem(number, "a test sleeps")));
    }
    problems
}

fn silenced(tree: &Tree) -> Vec<Problem> {
    let (allow, allow_all) = (concat!("#[al", "low("), concat!("#![al", "low("));
    let ignore = concat!("#[ig", "nore]");
    each_line(tree, Source::code, |line| {
        let line = line.trim_start();
        let found = [allow, allow_all, ignore].into_iter().find(|mark| line.starts_with(mark))?;
        Some(format!("`{found}` silences for ever and gives no reason"))
    })
}

fn no_unsafe(tree: &Tree) -> Vec<Problem> {
    let keyword = concat!("un", "safe ");
    let starts = ["{", "fn ", "impl ", "extern "].map(|next| format!("{keyword}{next}"));
    each_line(tree, Source::code, |line| {
        let unsafe_block = starts.iter().any(|start| line.contains(start.as_str()));
        unsafe_block.then(|| "unsafe code".to_string())
    })
}

/// A problem for each line of Rust in which `find` finds something.
fn each_line<'a, Lines: Iterator<Item = (usize, &'a str)>>(
    tree: &'a Tree,
    lines: fn(&'a Source) -> Lines,
    find: impl Fn(&str) -> Option<String>,
) -> Vec<Problem> {
    let mut problems = Vec::new();
    for file in tree.rust() {
        problems.extend(lines(file).filter_map(|(number, line)| Some(file.problem(number, find(line)?))));
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    fn long(lines: usize, list: &str) -> Tree {
        Tree::of(&[("a.rs", &"//! A.\n".repeat(lines)), (LONG_FILES, list)])
    }

    #[test]
    fn long_files_may_only_shrink() {
        assert_eq!(file_length(&long(LINES_MAX, "")).len(), 0);
        assert_eq!(file_length(&long(LINES_MAX + 1, "")).len(), 1);
        assert_eq!(file_length(&long(700, "a.rs 700\n")).len(), 0);
        assert_eq!(file_length(&long(701, "a.rs 700\n")).len(), 1, "it has grown");
        assert_eq!(file_length(&long(649, "a.rs 700\n")).len(), 1, "the number is loose");
    }

    #[test]
    fn loose_numbers_are_lowered_and_short_files_leave() {
        let lower = |lines, list| {
            let tree = long(lines, list);
            lowered(&tree, tree.file(LONG_FILES).expect("it was put there"))
        };
        assert_eq!(lower(640, "# why\na.rs 700\n"), "# why\na.rs 640\n");
        assert_eq!(lower(690, "a.rs 700\n"), "a.rs 700\n");
        assert_eq!(lower(10, "a.rs 700\ngone.rs 700\n"), "");
    }
}
