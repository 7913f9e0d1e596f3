//! Rules about manifests: every package keeps the workspace's lints, and everything comes from one registry.

use super::Rule;
use super::tree::{Problem, Source, Tree};

const REGISTRY: &str = "registry+https://github.com/rust-lang/crates.io-index";

pub(super) const RULES: &[Rule] = &[
    Rule {
        name: "lock-sources",
        why: "a build fetches from crates.io and from nowhere else",
        check: lock_sources,
        bad: || Tree::of(&[("Cargo.lock", "source = \"git+https://example.org/a\"\n")]),
        good: || Tree::of(&[("Cargo.lock", "source = \"registry+https://github.com/rust-lang/crates.io-index\"\n")]),
    },
    Rule {
        name: "one-version",
        why: "an example in a workspace of its own is built with what is here already, and brings nothing that is not",
        check: one_version,
        bad: || Tree::of(&[("Cargo.lock", &locked("a", "1.0.0")), ("b/Cargo.lock", &locked("a", "1.0.1"))]),
        good: || Tree::of(&[("Cargo.lock", &locked("a", "1.0.0")), ("b/Cargo.lock", &locked("a", "1.0.0"))]),
    },
    Rule {
        name: "same-settings",
        why: "a workspace of its own inherits nothing, so that it must repeat lints, edition and licence",
        check: same_settings,
        bad: || Tree::of(&[("Cargo.toml", "[workspace.package]\nedition = 2\n"), ("b/Cargo.toml", "[workspace]\n")]),
        good: || {
            let settings = "[workspace]\n\n[workspace.package]\nedition = 2\n\n[other]\n";
            Tree::of(&[("Cargo.toml", settings), ("b/Cargo.toml", settings)])
        },
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

/// The files of this name, in the root and below.
fn named<'a>(tree: &'a Tree, name: &'a str) -> impl Iterator<Item = &'a Source> {
    tree.files().iter().filter(move |file| file.path.rsplit('/').next() == Some(name))
}

fn lock_sources(tree: &Tree) -> Vec<Problem> {
    let mut problems = Vec::new();
    for lock in named(tree, "Cargo.lock") {
        let sources = lock.lines().filter_map(|(number, line)| Some((number, line.strip_prefix("source = ")?)));
        let others = sources.filter(|(_, source)| source.trim_matches('"') != REGISTRY);
        problems.extend(others.map(|(number, source)| lock.problem(number, format!("comes from {source}"))));
    }
    problems
}

/// A lock file with one package.
fn locked(name: &str, version: &str) -> String {
    format!("[[package]]\nname = \"{name}\"\nversion = \"{version}\"\nsource = \"{REGISTRY}\"\n")
}

fn one_version(tree: &Tree) -> Vec<Problem> {
    let packages = |file: &Source| -> Vec<String> {
        let packages = file.text.split("[[package]]\n").skip(1).filter(|package| package.contains("\nsource = "));
        packages.map(|package| package.lines().take(2).collect::<Vec<_>>().join(", ")).collect()
    };
    let Some(everywhere) = tree.file("Cargo.lock") else { return Vec::new() };
    let known = packages(everywhere);
    let mut problems = Vec::new();
    for lock in named(tree, "Cargo.lock") {
        let others = packages(lock).into_iter().filter(|package| !known.contains(package));
        problems.extend(others.map(|other| lock.problem_as_a_whole(format!("has {other}, which Cargo.lock has not"))));
    }
    problems
}

/// What every workspace has alike.
const SETTINGS: [&str; 3] = ["[workspace.package]", "[workspace.lints.rust]", "[workspace.lints.clippy]"];

fn same_settings(tree: &Tree) -> Vec<Problem> {
    let section = |file: &Source, name: &str| -> Vec<String> {
        let lines = file.text.lines().skip_while(|line| *line != name);
        lines.take_while(|line| !line.is_empty()).map(str::to_owned).collect()
    };
    let Some(everywhere) = tree.file("Cargo.toml") else { return Vec::new() };
    let workspaces = named(tree, "Cargo.toml").filter(|file| file.text.lines().any(|line| line == "[workspace]"));
    let mut problems = Vec::new();
    for workspace in workspaces {
        let other = SETTINGS.iter().filter(|name| section(workspace, name) != section(everywhere, name));
        problems.extend(other.map(|name| workspace.problem_as_a_whole(format!("{name} differs from Cargo.toml's"))));
    }
    problems
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
