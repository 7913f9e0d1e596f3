//! Rules about manifests: every package keeps the workspace's lints, and everything comes from one registry.

use super::Rule;
use super::tree::{Problem, Source, Tree};

const REGISTRY: &str = "registry+https://github.com/rust-lang/crates.io-index";

pub(super) const RULES: &[Rule] = &[
    Rule {
        name: "lock-sources",
        why: "whoever builds this fetches from crates.io and nowhere else",
        check: lock_sources,
        bad: || Tree::of(&[("Cargo.lock", "source = \"git+https://example.org/a\"\n")]),
        good: || Tree::of(&[("Cargo.lock", "source = \"registry+https://github.com/rust-lang/crates.io-index\"\n")]),
    },
    Rule {
        name: "inherited-lints",
        why: "a package without the workspace's lints may use unsafe code",
        check: inherited_lints,
        bad: || Tree::of(&[("Cargo.toml", "[workspace]\n"), ("a/Cargo.toml", "[package]\nlicense.workspace = true\n")]),
        good: || {
            Tree::of(&[
                ("Cargo.toml", "[workspace]\n"),
                ("a/Cargo.toml", "[package]\nlicense.workspace = true\n\n[lints]\nworkspace = true\n"),
            ])
        },
    },
    Rule {
        name: "inherited-licence",
        why: "everything here has the same licence",
        check: inherited_licence,
        bad: || Tree::of(&[("a/Cargo.toml", "[package]\nlicense = \"MIT\"\n[lints]\nworkspace = true\n")]),
        good: || Tree::of(&[("a/Cargo.toml", "[package]\nlicense.workspace = true\n[lints]\nworkspace = true\n")]),
    },
    Rule {
        name: "same-bans",
        why: "clippy reads only the nearest clippy.toml, so a package's own must repeat what is forbidden everywhere",
        check: same_bans,
        bad: || Tree::of(&[("clippy.toml", "    { path = \"a\" },\n"), ("a/clippy.toml", "# none\n")]),
        good: || Tree::of(&[("clippy.toml", "    { path = \"a\" },\n"), ("a/clippy.toml", "    { path = \"a\" },\n")]),
    },
];

fn lock_sources(tree: &Tree) -> Vec<Problem> {
    let Some(lock) = tree.file("Cargo.lock") else { return Vec::new() };
    let sources = lock.lines().filter_map(|(number, line)| Some((number, line.strip_prefix("source = ")?)));
    let others = sources.filter(|(_, source)| source.trim_matches('"') != REGISTRY);
    others.map(|(number, source)| lock.problem(number, format!("comes from {source}"))).collect()
}

/// The manifests of packages.
fn packages(tree: &Tree) -> impl Iterator<Item = &Source> {
    let manifests = tree.files().iter().filter(|file| file.path == "Cargo.toml" || file.path.ends_with("/Cargo.toml"));
    manifests.filter(|file| file.lines().any(|(_, line)| line == "[package]"))
}

fn inherited_lints(tree: &Tree) -> Vec<Problem> {
    let without = packages(tree).filter(|file| !file.text.contains("[lints]\nworkspace = true"));
    without.map(|file| file.problem_as_a_whole("does not inherit the workspace's lints")).collect()
}

fn inherited_licence(tree: &Tree) -> Vec<Problem> {
    let without = packages(tree).filter(|file| !file.text.contains("license.workspace = true"));
    without.map(|file| file.problem_as_a_whole("does not inherit the workspace's licence")).collect()
}

fn same_bans(tree: &Tree) -> Vec<Problem> {
    let Some(everywhere) = tree.file("clippy.toml") else { return Vec::new() };
    let bans = everywhere.lines().map(|(_, line)| line).filter(|line| line.contains("path = "));
    let mut problems = Vec::new();
    for ban in bans {
        let own = tree.files().iter().filter(|file| file.path.ends_with("/clippy.toml"));
        let without = own.filter(|file| !file.lines().any(|(_, line)| line == ban));
        problems.extend(without.map(|file| file.problem_as_a_whole(format!("lacks {}", ban.trim()))));
    }
    problems
}
