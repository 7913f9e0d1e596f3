//! Rules about documentation: it is reachable, its links lead somewhere, and what it says of the code is still true.

use super::Rule;
use super::tree::{Problem, Source, Tree, has_word};

const ARCHITECTURE: &str = "ARCHITECTURE.md";
const FAILURES: &str = "docs/manual/past-failures.md";
/// Sources whose documentation is read outside of this repository.
const PUBLISHED: [&str; 3] = ["crates/primacy/src/", "crates/primacy-core/src/", "crates/primacy-kv/src/"];
/// A map that is longer is not read.
const MAP_LINES_MAX: usize = 250;
/// The sections of the map that tell what modules are for, and where those are.
const INSIDE: [(&str, &str); 6] = [
    ("### Inside the core", "crates/primacy-core/src"),
    ("### Inside the library", "crates/primacy/src"),
    ("### Inside the key-value store", "crates/primacy-kv/src"),
    ("### Inside the command", "crates/primacy-cli/src"),
    ("### Inside the simulator", "crates/primacy-sim/src"),
    ("### Inside the papers", "crates/primacy-papers/src"),
];
/// How many hazards and rules there are; the code cites them by number.
const HAZARDS: usize = 60;
const RULES_OF_TIME: usize = 12;

pub(super) const RULES: &[Rule] = &[
    Rule {
        name: "links",
        why: "a link that leads nowhere costs a reader's trust",
        check: links,
        bad: || Tree::of(&[("docs/a.md", "# A\n[b](b.md) [a](#a) [web](https://example.org)\n")]),
        good: || {
            Tree::of(&[
                ("docs/a.md", "# A b `c`\n[up](../b.md) [a](#a-b-c) [b](../b.md#b) [d](../docs)\n"),
                ("b.md", "# B\n"),
            ])
        },
    },
    Rule {
        name: "cited-pages",
        why: "code that sends a reader to a page sends them to one that is there",
        check: cited_pages,
        bad: || Tree::of(&[("a.rs", concat!("//! See `", "b.md`.\n")), ("ab.md", "# B\n")]),
        good: || Tree::of(&[("a.rs", concat!("//! See `", "docs/b.md`.\n")), ("docs/b.md", "# B\n")]),
    },
    Rule {
        name: "published-docs",
        why: "a published crate does not bring these pages: its documentation names them by their subject",
        check: published_docs,
        bad: || {
            Tree::of(&[("crates/primacy-core/src/a.rs", concat!("//! See `", "docs/b.md`.\n")), ("docs/b.md", "# B\n")])
        },
        good: || {
            let comment = concat!("//! See the design page on b.\n// See `", "docs/b.md`.\n");
            Tree::of(&[("crates/primacy-core/src/a.rs", comment), ("docs/b.md", "# B\n")])
        },
    },
    Rule {
        name: "design-pages",
        why: "a page that the map does not name is not found",
        check: design_pages,
        bad: || Tree::of(&[("ARCHITECTURE.md", "# Map\n"), ("docs/design/a.md", "# A\n")]),
        good: || Tree::of(&[("ARCHITECTURE.md", "[a](docs/design/a.md)\n"), ("docs/design/a.md", "# A\n")]),
    },
    Rule {
        name: "map-length",
        why: "the map is read in one sitting",
        check: map_length,
        bad: || Tree::of(&[(ARCHITECTURE, &"line\n".repeat(MAP_LINES_MAX + 1))]),
        good: || Tree::of(&[(ARCHITECTURE, &"line\n".repeat(MAP_LINES_MAX))]),
    },
    Rule {
        name: "mapped-modules",
        why: "who looks for a module by the name that the map gives it must find it",
        check: mapped_modules,
        bad: || {
            let map = "# Map\n### Inside the command\n| module | x |\n|---|---|\n| `a`, `a::b` | `d` |\n";
            Tree::of(&[(ARCHITECTURE, map), ("crates/primacy-cli/src/a.rs", "mod b {}\n"), ("b.rs", "")])
        },
        good: || {
            let map = "# Map\n### Inside the command\n| `a`, `a::b`, `c::d`, `c::f` | `g` |\n## Then\n| `g` | x |\n";
            Tree::of(&[
                (ARCHITECTURE, map),
                ("crates/primacy-cli/src/a.rs", ""),
                ("crates/primacy-cli/src/a/b.rs", ""),
                ("crates/primacy-cli/src/c/mod.rs", "//! C.\npub use other::{\n    d, e,\n};\npub mod f {}\n"),
            ])
        },
    },
    Rule {
        name: "named-files",
        why: "a page that sends a reader to a file sends them to one that is there",
        check: named_files,
        bad: || Tree::of(&[("docs/design/a.md", "`b.rs`, `c/b.rs`\n"), ("a/b.rs", ""), ("cc/b.rs", "")]),
        good: || {
            let page = "`b.rs`, `c/b.rs`, `a/c/b.rs`, `*.rs`\n```text\n`d.rs`\n```\n";
            Tree::of(&[("docs/design/a.md", page), ("a/c/b.rs", "")])
        },
    },
    Rule {
        name: "rules-are-kept-where-the-map-says",
        why: "the map is where a reader looks first for R1 to R12",
        check: rules_anchored,
        bad: || Tree::of(&[("ARCHITECTURE.md", "| R1 | x | `a.rs` |\n"), ("a.rs", "// R10\n")]),
        good: || Tree::of(&[("ARCHITECTURE.md", "| R1 | x | `a.rs` |\n"), ("a.rs", "// R1, R10\n")]),
    },
    Rule {
        name: "numbered-rows",
        why: "the code cites rules and hazards by their number",
        check: numbered_rows,
        bad: || both_tables(HAZARDS - 1),
        good: || both_tables(HAZARDS),
    },
    Rule {
        name: "linked-rules",
        why: "a reader of a page does not know R1 to R12 by heart: write [R5], and `[R5]: ` with the place below",
        check: linked_rules,
        bad: || Tree::of(&[("docs/a.md", "Names are bytes (R5).\n")]),
        good: || Tree::of(&[("docs/a.md", "By [R5], not `R7`.\n\n[R5]: b.md\n"), ("docs/b.md", "# B\n")]),
    },
    Rule {
        name: "named-tests",
        why: "a test that is said to stop a hazard must be there",
        check: named_tests,
        bad: || Tree::of(&[("docs/manual/past-failures.md", "| P1 | x | y | z | test `gone` |\n")]),
        good: || {
            Tree::of(&[
                ("docs/manual/past-failures.md", "| 1 | x | `y` | z | test `here` |\n"),
                ("a.rs", "fn here() {}\n"),
            ])
        },
    },
];

/// The tables of rules and of this many hazards.
fn both_tables(hazards: usize) -> Tree {
    let rules: String = (1..=RULES_OF_TIME).map(|number| format!("| R{number} | x |\n")).collect();
    let hazards: String = (1..=hazards).map(|number| format!("| {number} | x |\n")).collect();
    Tree::of(&[(ARCHITECTURE, &rules), (FAILURES, &hazards)])
}

/// The targets of the links of a page.
fn targets(page: &Source) -> impl Iterator<Item = (usize, &str)> {
    page.prose().flat_map(|(number, line)| {
        let inline = line.match_indices("](").filter_map(move |(at, _)| {
            let rest = &line[at + 2..];
            Some((number, &rest[..rest.find(')')?]))
        });
        let defined = line.starts_with('[').then(|| line.split_once("]: ")).flatten();
        inline.chain(defined.map(|(_, target)| (number, target)))
    })
}

fn links(tree: &Tree) -> Vec<Problem> {
    let mut problems = Vec::new();
    for page in tree.markdown() {
        for (number, target) in targets(page) {
            if !target.contains("://") && !target.starts_with("mailto:") && !leads_somewhere(tree, page, target) {
                problems.push(page.problem(number, format!("the link to {target} leads nowhere")));
            }
        }
    }
    problems
}

fn leads_somewhere(tree: &Tree, page: &Source, target: &str) -> bool {
    let (path, anchor) = target.split_once('#').map_or((target, None), |(path, anchor)| (path, Some(anchor)));
    let path = if path.is_empty() { page.path.clone() } else { resolve(&page.path, path) };
    match (tree.file(&path), anchor) {
        (Some(other), Some(anchor)) if other.is_markdown() => other.prose().any(|(_, line)| {
            let heading = line.trim_start_matches('#');
            heading.len() < line.len() && slug(heading) == anchor
        }),
        _ => tree.exists(&path),
    }
}

/// A relative path, as seen from the folder of `page`.
fn resolve(page: &str, path: &str) -> String {
    let mut parts: Vec<&str> = page.split('/').collect();
    parts.pop();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            _ => parts.push(part),
        }
    }
    parts.join("/")
}

/// What a heading is called in a link.
fn slug(heading: &str) -> String {
    let heading = heading.trim().to_lowercase();
    let kept = heading.chars().filter(|character| character.is_alphanumeric() || " -_".contains(*character));
    kept.map(|character| if character == ' ' { '-' } else { character }).collect()
}

/// Pages that comments cite: by their path, or by its end.
fn cited_pages(tree: &Tree) -> Vec<Problem> {
    let is_there =
        |page: &str| tree.exists(page) || tree.markdown().any(|file| file.path.ends_with(&format!("/{page}")));
    let mut problems = Vec::new();
    for file in tree.rust() {
        for (number, line) in file.lines() {
            let is_comment = line.trim_start().starts_with("//");
            let cited = quoted(line).filter(|text| text.ends_with(".md") && !text.contains([' ', '*']));
            let gone = cited.filter(|text| (is_comment || text.starts_with("docs/")) && !is_there(text));
            problems.extend(gone.map(|page| file.problem(number, format!("there is no page {page}"))));
        }
    }
    problems
}

/// Documentation comments of published crates that name a page of this repository by its path.
fn published_docs(tree: &Tree) -> Vec<Problem> {
    let mut problems = Vec::new();
    let is_published = |file: &&Source| PUBLISHED.iter().any(|folder| file.path.starts_with(folder));
    for file in tree.rust().filter(is_published) {
        for (number, line) in file.lines() {
            let is_documentation = ["///", "//!"].iter().any(|mark| line.trim_start().starts_with(mark));
            if is_documentation && quoted(line).any(|text| text.starts_with("docs/") && text.ends_with(".md")) {
                problems.push(file.problem(number, "names a page by its path, which the published crate lacks"));
            }
        }
    }
    problems
}

fn design_pages(tree: &Tree) -> Vec<Problem> {
    let Some(map) = tree.file(ARCHITECTURE) else { return Vec::new() };
    let pages = tree.markdown().filter(|page| page.path.starts_with("docs/design/"));
    let hidden = pages.filter(|page| !targets(map).any(|(_, target)| target.split('#').next() == Some(&page.path)));
    hidden.map(|page| page.problem_as_a_whole(format!("no link to it in {ARCHITECTURE}"))).collect()
}

fn map_length(tree: &Tree) -> Vec<Problem> {
    let Some(map) = tree.file(ARCHITECTURE) else { return Vec::new() };
    let lines = map.text.lines().count();
    let long = (lines > MAP_LINES_MAX).then(|| format!("has {lines} lines; at most {MAP_LINES_MAX}"));
    long.into_iter().map(|what| map.problem_as_a_whole(what)).collect()
}

/// Modules in the first column of the tables of the map.
fn mapped_modules(tree: &Tree) -> Vec<Problem> {
    let Some(map) = tree.file(ARCHITECTURE) else { return Vec::new() };
    let (mut problems, mut root) = (Vec::new(), None);
    for (number, line) in map.prose() {
        if line.starts_with('#') {
            root = INSIDE.iter().find(|(heading, _)| *heading == line).map(|(_, root)| *root);
            if root.is_none() && line.starts_with("### Inside") {
                problems.push(map.problem(number, "tidy does not know where these modules are"));
            }
        }
        let Some(root) = root.filter(|_| line.starts_with('|')) else { continue };
        let named = cells(line).first().copied().map(quoted).into_iter().flatten();
        let gone = named.filter(|module| !is_module(tree, root, module));
        problems.extend(gone.map(|module| map.problem(number, format!("there is no module {module} in {root}"))));
    }
    problems
}

/// Whether a crate has a file, a folder or a program of this name, or its parent has such a module or exports another's.
fn is_module(tree: &Tree, root: &str, module: &str) -> bool {
    let path = module.replace("::", "/");
    let is_there = [format!("{root}/{path}.rs"), format!("{root}/{path}"), format!("{root}/bin/{path}")];
    let (parent, name) = path.rsplit_once('/').unwrap_or(("", &path));
    let faces = match parent {
        "" => vec![format!("{root}/lib.rs")],
        parent => vec![format!("{root}/{parent}.rs"), format!("{root}/{parent}/mod.rs")],
    };
    let exports = |face: &Source| {
        let mut items = face.text.split("\npub use ").skip(1).map(|rest| rest.split(';').next().unwrap_or(rest));
        items.any(|item| has_word(item, name)) || face.text.contains(&format!("pub mod {name} {{"))
    };
    is_there.iter().any(|path| tree.exists(path)) || faces.iter().filter_map(|face| tree.file(face)).any(exports)
}

/// Files that pages on the design name, by their path or by its end.
fn named_files(tree: &Tree) -> Vec<Problem> {
    let is_there = |name: &str| tree.rust().any(|file| file.path == name || file.path.ends_with(&format!("/{name}")));
    let mut problems = Vec::new();
    let pages = tree.markdown();
    for page in pages.filter(|page| page.path.starts_with("docs/design/") || page.path == ARCHITECTURE) {
        for (number, line) in page.prose() {
            let named = quoted(line).filter(|text| text.ends_with(".rs") && !text.contains([' ', '*']));
            let gone = named.filter(|name| !is_there(name));
            problems.extend(gone.map(|name| page.problem(number, format!("there is no file {name}"))));
        }
    }
    problems
}

/// The cells of a table's row.
fn cells(line: &str) -> Vec<&str> {
    line.trim().trim_matches('|').split('|').map(str::trim).collect()
}

/// What stands between backticks.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

fn rules_anchored(tree: &Tree) -> Vec<Problem> {
    let Some(map) = tree.file(ARCHITECTURE) else { return Vec::new() };
    let mut problems = Vec::new();
    for (number, line) in map.lines() {
        let cells = cells(line);
        let (Some(rule), Some(places)) = (cells.first().filter(|cell| is_rule(cell)), cells.get(2)) else { continue };
        for place in quoted(places) {
            match tree.file(place) {
                None => problems.push(map.problem(number, format!("{rule}: there is no file {place}"))),
                Some(file) if !has_word(&file.text, rule) => {
                    problems.push(map.problem(number, format!("{rule}: {place} does not mention it")));
                }
                Some(_) => {}
            }
        }
    }
    problems
}

fn is_rule(cell: &str) -> bool {
    cell.strip_prefix('R').is_some_and(|number| number.parse::<usize>().is_ok_and(|n| (1..=RULES_OF_TIME).contains(&n)))
}

/// Each mention of a rule on a page is a link, and the page says where that leads.
fn linked_rules(tree: &Tree) -> Vec<Problem> {
    let rules: Vec<String> = (1..=RULES_OF_TIME).map(|number| format!("R{number}")).collect();
    let mut problems = Vec::new();
    for page in tree.markdown().filter(|page| page.path.starts_with("docs/")) {
        for (number, line) in page.prose() {
            for rule in rules.iter().filter(|rule| line.split('`').step_by(2).any(|text| has_word(text, rule))) {
                let (link, place) = (format!("[{rule}]"), format!("\n[{rule}]: "));
                if !line.contains(&link) || !page.text.contains(&place) {
                    problems.push(page.problem(number, format!("{rule} is no link")));
                }
            }
        }
    }
    problems
}

/// The last column of each row names, between backticks, tests, scenario scripts and planted bugs.
fn named_tests(tree: &Tree) -> Vec<Problem> {
    let Some(page) = tree.file(FAILURES) else { return Vec::new() };
    let mut problems = Vec::new();
    for (number, line) in page.lines() {
        let cells = cells(line);
        if cells.first().is_none_or(|cell| cell.trim_start_matches('P').parse::<usize>().is_err()) {
            continue;
        }
        for test in quoted(cells.last().unwrap_or(&"")) {
            if !is_there(tree, test) {
                problems.push(page.problem(number, format!("there is no test `{test}`")));
            }
        }
    }
    problems
}

fn is_there(tree: &Tree, test: &str) -> bool {
    if test.ends_with(".txt") {
        let script = format!("/tests/scenarios/{test}");
        tree.files().iter().any(|file| file.path.ends_with(&script))
    } else if test.contains("Flaw::") {
        tree.rust().any(|file| file.path.starts_with("crates/primacy-sim/") && has_word(&file.text, test))
    } else {
        let definition = format!("fn {test}(");
        tree.rust().any(|file| file.text.contains(&definition))
    }
}

/// The numbers that a page has rows for.
fn rows(page: &Source) -> impl Iterator<Item = &str> {
    page.lines().filter(|(_, line)| line.starts_with('|')).filter_map(|(_, line)| cells(line).first().copied())
}

fn numbered_rows(tree: &Tree) -> Vec<Problem> {
    let rules: Vec<String> = (1..=RULES_OF_TIME).map(|number| format!("R{number}")).collect();
    let hazards: Vec<String> = (1..=HAZARDS).map(|number| number.to_string()).collect();
    let mut problems = Vec::new();
    for (path, wanted) in [(ARCHITECTURE, rules), (FAILURES, hazards)] {
        let Some(page) = tree.file(path) else {
            problems.push(Problem::of(path, "is missing"));
            continue;
        };
        let absent = wanted.iter().filter(|number| !rows(page).any(|row| row == *number));
        problems.extend(absent.map(|number| page.problem_as_a_whole(format!("has no row for {number}"))));
    }
    problems
}
