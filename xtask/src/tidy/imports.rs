//! Rules about imports: modules of a crate know each other in one direction only, and as the map draws it.
//!
//! A module imports what its code names by a path: in a `use`, and in an expression. What it re-exports (`pub use`) it does
//! not import, and a name that comes through a re-export counts as of the module that defines it. What a folder's own file
//! (`mod.rs`, `lib.rs`) imports is not asked: it is the face of what is in the folder. Tests may import everything.

use std::collections::{BTreeMap, BTreeSet};

use super::Rule;
use super::tree::{Problem, Tree};

const MAP: &str = "ARCHITECTURE.md";
/// Whose imports are looked at, and what the map calls them.
const CRATES: [(&str, &str); 3] =
    [("core", "crates/primacy-core/src"), ("library", "crates/primacy/src"), ("simulator", "crates/primacy-sim/src")];
/// Which others have no circles. The map does not draw them.
const OTHERS: [&str; 7] = [
    "crates/primacy-bench/src",
    "crates/primacy-chaos/src",
    "crates/primacy-cli/src",
    "crates/primacy-kv/src",
    "crates/primacy-linearizability/src",
    "crates/primacy-papers/src",
    "crates/primacy-servers/src",
];

pub(super) const RULES: &[Rule] = &[
    Rule {
        name: "circles",
        why: "two modules that import each other are one, in two files: give what both need a file of its own",
        check: circles,
        bad: || core(&[("a.rs", "use crate::b::B;\n"), ("b.rs", "fn b() -> crate::a::A {}\n"), ("lib.rs", "")]),
        good: || core(&[("a.rs", "use crate::B;\n"), ("b.rs", "// crate::a\n"), ("lib.rs", "pub use b::B;\n")]),
    },
    Rule {
        name: "drawn-imports",
        why: "a drawing of what knows what that is wrong misleads where it is needed most",
        check: drawn,
        bad: || {
            let map = (MAP, "```text\ncore: a → b\n```\n");
            Tree::of(&[
                map,
                ("crates/primacy-core/src/a.rs", ""),
                ("crates/primacy-core/src/b.rs", "use crate::a::A;\n"),
            ])
        },
        good: || {
            let map = (MAP, "```text\ncore: a →\n  b\n```\n");
            Tree::of(&[
                map,
                ("crates/primacy-core/src/a.rs", "use crate::b::B;\n"),
                ("crates/primacy-core/src/b.rs", ""),
            ])
        },
    },
];

fn core(files: &[(&str, &str)]) -> Tree {
    let paths: Vec<String> = files.iter().map(|(path, _)| format!("{}/{path}", CRATES[0].1)).collect();
    let files: Vec<(&str, &str)> = paths.iter().map(String::as_str).zip(files.iter().map(|(_, text)| *text)).collect();
    Tree::of(&files)
}

/// A module: the names on the way to it from the root of its crate.
type Path = Vec<String>;

/// One name in a `use`, or a path in an expression.
#[derive(Debug, PartialEq, Eq)]
struct Named {
    path: Path,
    /// What it is called where it is imported.
    alias: String,
    is_exported: bool,
}

#[derive(Debug, Default)]
struct Module {
    uses: Vec<Named>,
    mentions: Vec<Path>,
}

/// The modules of a crate, without tests.
struct Modules(BTreeMap<Path, Module>);

impl Modules {
    fn of(tree: &Tree, root: &str) -> Self {
        let mut modules = BTreeMap::new();
        for file in tree.rust() {
            let Some(place) = file.path.strip_prefix(root).and_then(|rest| rest.strip_prefix('/')) else { continue };
            let mut path: Path = place.trim_end_matches(".rs").split('/').map(str::to_owned).collect();
            if path.last().is_some_and(|last| last == "mod" || (path.len() == 1 && last == "lib")) {
                path.pop();
            }
            let is_test = path.iter().any(|part| part == "tests" || part.ends_with("_tests"));
            if is_test || path.first().is_some_and(|first| first == "bin") {
                continue;
            }
            modules.insert(path, Module::of(&file.text));
        }
        Self(modules)
    }

    /// The module in which that path of this module ends. `None` if it leads out of the crate.
    fn resolve(&self, from: &[String], path: &[String]) -> Option<Path> {
        self.resolve_within(from, path, 8)
    }

    /// A name may be re-exported from a re-export, but not for ever.
    fn resolve_within(&self, from: &[String], path: &[String], depth: u8) -> Option<Path> {
        let (mut at, mut rest) = match path.first()?.as_str() {
            "crate" => (Vec::new(), &path[1..]),
            "self" => (from.to_vec(), &path[1..]),
            "super" => {
                let up = path.iter().take_while(|part| *part == "super").count();
                (from.get(..from.len().checked_sub(up)?)?.to_vec(), &path[up..])
            }
            first => {
                let is_child = self.0.contains_key(&[from, &[first.to_owned()]].concat());
                is_child.then(|| (from.to_vec(), path))?
            }
        };
        while let Some((first, after)) = rest.split_first() {
            let child = [at.as_slice(), std::slice::from_ref(first)].concat();
            if !self.0.contains_key(&child) {
                break;
            }
            (at, rest) = (child, after);
        }
        if let (Some(name), Some(module)) = (rest.first(), self.0.get(&at))
            && depth > 0
            && let Some(named) = module.uses.iter().find(|named| named.alias == *name)
        {
            return self.resolve_within(&at, &named.path, depth - 1);
        }
        self.0.contains_key(&at).then_some(at)
    }

    /// Which modules import which.
    fn imports(&self) -> BTreeSet<(Path, Path)> {
        let mut imports = BTreeSet::new();
        for (path, module) in &self.0 {
            let used = module.uses.iter().filter(|named| !named.is_exported).map(|named| &named.path);
            let found = used.chain(&module.mentions).filter_map(|named| self.resolve(path, named));
            imports.extend(found.filter(|other| other != path).map(|other| (path.clone(), other)));
        }
        imports
    }
}

/// Of what is directly in a folder, what imports what.
fn within(imports: &BTreeSet<(Path, Path)>, folder: &[String]) -> BTreeMap<String, BTreeSet<String>> {
    let mut graph: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let part = |path: &Path| path.strip_prefix(folder).and_then(|rest| rest.first().cloned());
    for (from, to) in imports {
        if let (Some(from), Some(to)) = (part(from), part(to))
            && from != to
        {
            graph.entry(from).or_default().insert(to);
        }
    }
    graph
}

/// All that can be reached from here.
fn reached<'a>(graph: &'a BTreeMap<String, BTreeSet<String>>, from: &'a str) -> BTreeSet<&'a str> {
    let (mut seen, mut open) = (BTreeSet::new(), vec![from]);
    while let Some(next) = open.pop() {
        open.extend(graph.get(next).into_iter().flatten().map(String::as_str).filter(|other| seen.insert(*other)));
    }
    seen
}

/// Those that reach each other.
fn circles_in(graph: &BTreeMap<String, BTreeSet<String>>) -> BTreeSet<Vec<&str>> {
    let all: BTreeMap<&str, BTreeSet<&str>> = graph.keys().map(|name| (name.as_str(), reached(graph, name))).collect();
    let mut circles = BTreeSet::new();
    for (name, reached) in all.iter().filter(|(name, reached)| reached.contains(*name)) {
        let comes_back = |other: &&&str| all.get(**other).is_some_and(|others| others.contains(name));
        circles.insert(reached.iter().filter(comes_back).copied().collect());
    }
    circles
}

fn circles(tree: &Tree) -> Vec<Problem> {
    let mut found = Vec::new();
    for root in CRATES.iter().map(|(_, root)| *root).chain(OTHERS) {
        let modules = Modules::of(tree, root);
        let imports = modules.imports();
        let folders: BTreeSet<&[String]> =
            modules.0.keys().filter_map(|path| path.split_last()).map(|(_, up)| up).collect();
        for folder in folders {
            let place = [&[root.to_owned()], folder].concat().join("/");
            let graph = within(&imports, folder);
            let told = |circle: Vec<&str>| Problem::of(&place, &format!("import each other: {}", circle.join(" ")));
            found.extend(circles_in(&graph).into_iter().map(told));
        }
    }
    found
}

/// The drawing of a crate: lists of modules, of which each knows only those in lists after its own, and those in the same
/// brackets.
fn drawing(map: &str, name: &str) -> Vec<Vec<String>> {
    let start = format!("{name}: ");
    let mut lines = map.lines().skip_while(|line| !line.starts_with(&start));
    let first = lines.next().and_then(|line| line.strip_prefix(&start)).unwrap_or_default();
    let rest = lines.take_while(|line| line.starts_with("  "));
    let text = std::iter::once(first).chain(rest).collect::<Vec<_>>().join(" ");
    let names = |part: &str| part.split_whitespace().filter(|word| !"()".contains(word)).map(str::to_owned).collect();
    text.split('→').map(names).collect()
}

fn drawn(tree: &Tree) -> Vec<Problem> {
    let Some(map) = tree.file(MAP) else { return Vec::new() };
    let mut problems = Vec::new();
    for (name, root) in CRATES {
        let modules = Modules::of(tree, root);
        let drawing = drawing(&map.text, name);
        let place = |module: &str| drawing.iter().position(|list| list.iter().any(|drawn| drawn == module));
        let there: BTreeSet<&String> = modules.0.keys().filter_map(|path| path.first()).collect();
        for module in there.iter().filter(|module| place(module).is_none()) {
            problems.push(map.problem_as_a_whole(format!("the drawing of `{name}` lacks `{module}`")));
        }
        for module in drawing.iter().flatten().filter(|module| !there.contains(module)) {
            problems
                .push(map.problem_as_a_whole(format!("the drawing of `{name}` has `{module}`, which is not there")));
        }
        let graph = within(&modules.imports(), &[]);
        let circles = circles_in(&graph);
        let is_listed = |one: &str, two: &str| circles.iter().any(|all| all.contains(&one) && all.contains(&two));
        for (from, to) in graph.iter().flat_map(|(from, all)| all.iter().map(move |to| (from, to))) {
            if let (Some(one), Some(two)) = (place(from), place(to))
                && two <= one
                && !(one == two && is_listed(from, to))
            {
                problems
                    .push(map.problem_as_a_whole(format!("in the drawing of `{name}`, `{from}` is not before `{to}`")));
            }
        }
    }
    problems
}

impl Module {
    fn of(text: &str) -> Self {
        let code = code(text);
        let mut module = Self::default();
        let mut expressions = String::new();
        let mut lines = code.lines();
        while let Some(line) = lines.next() {
            let Some((visibility, start)) = use_of(line) else {
                expressions.push_str(line);
                expressions.push('\n');
                continue;
            };
            let mut item = start.to_owned();
            while !item.contains(';')
                && let Some(line) = lines.next()
            {
                item.push_str(line);
            }
            let item = item.split(';').next().unwrap_or_default();
            // Also `pub(crate) use`, which is as much a name for others.
            names(&mut module.uses, &[], item.trim(), !visibility.is_empty());
        }
        module.mentions = mentions(&expressions);
        module
    }
}

/// How visible a `use` is that begins on this line, and what comes after the word.
fn use_of(line: &str) -> Option<(&str, &str)> {
    let line = line.trim_start();
    let visibility = match line.strip_prefix("pub") {
        None => "",
        Some(rest) if rest.starts_with('(') => &line[..=line.find(')')?],
        Some(_) => "pub",
    };
    Some((visibility, line[visibility.len()..].trim_start().strip_prefix("use ")?))
}

/// The names of a tree of `use`.
fn names(all: &mut Vec<Named>, before: &[String], tree: &str, is_exported: bool) {
    if let Some(open) = tree.find('{') {
        let head: Path = [before, &parts(&tree[..open])].concat();
        let close = tree.rfind('}').filter(|close| *close > open).unwrap_or(tree.len());
        let inner = &tree[open + 1..close];
        let (mut depth, mut start) = (0, 0);
        for (at, character) in inner.char_indices().chain([(inner.len(), ',')]) {
            match character {
                '{' => depth += 1,
                '}' => depth -= 1,
                ',' if depth == 0 => {
                    let part = inner[start..at].trim();
                    if !part.is_empty() {
                        names(all, &head, part, is_exported);
                    }
                    start = at + 1;
                }
                _ => {}
            }
        }
        return;
    }
    let (path, alias) = tree.split_once(" as ").map_or((tree, None), |(path, alias)| (path, Some(alias.trim())));
    let mut path = [before, &parts(path)].concat();
    path.pop_if(|last| last == "self");
    let Some(last) = path.last().cloned() else { return };
    all.push(Named { path, alias: alias.map_or(last, str::to_owned), is_exported });
}

fn parts(path: &str) -> Path {
    path.split("::").map(str::trim).filter(|part| !part.is_empty()).map(str::to_owned).collect()
}

/// The paths of several names in expressions and types.
fn mentions(code: &str) -> Vec<Path> {
    let words = code.split(|character: char| !(character.is_alphanumeric() || character == '_' || character == ':'));
    let paths =
        words.map(|word| word.trim_end_matches(':')).filter(|word| word.contains("::") && !word.starts_with(':'));
    let paths: BTreeSet<Path> = paths.map(parts).filter(|path| path.len() > 1).collect();
    paths.into_iter().collect()
}

/// Without comments, texts, and what only tests see.
fn code(text: &str) -> String {
    let tests = text.find("#[cfg(test)]\nmod tests {").unwrap_or(text.len());
    let mut lines = Vec::new();
    let mut is_for_tests = false;
    for line in text[..tests].lines() {
        let line = line.split("//").next().unwrap_or_default();
        // The item after it, of which all imports and modules have one line.
        let skips = std::mem::replace(&mut is_for_tests, line.trim() == "#[cfg(test)]");
        // A path in a text is no import.
        let outside: String = line.split('"').step_by(2).collect::<Vec<_>>().join("\"\"");
        lines.push(if skips { String::new() } else { outside });
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> Path {
        parts(text)
    }

    #[test]
    fn trees_of_names_are_taken_apart() {
        let module =
            Module::of("use super::{a::{self, B as C}, d};\npub(crate) use crate::e::F;\nfn g() { h::i(); }\n");
        let shown: Vec<_> =
            module.uses.iter().map(|named| (named.path.join("::"), named.alias.as_str(), named.is_exported)).collect();
        let expected = [
            ("super::a", "a", false),
            ("super::a::B", "C", false),
            ("super::d", "d", false),
            ("crate::e::F", "F", true),
        ];
        assert_eq!(shown, expected.map(|(path, alias, exported)| (path.to_owned(), alias, exported)));
        assert_eq!(module.mentions, [path("h::i")]);
    }

    #[test]
    fn names_count_as_of_where_they_are_defined() {
        let tree = core(&[
            ("lib.rs", "pub use a::A;\n"),
            ("a.rs", ""),
            ("b/mod.rs", "pub use c::{D, e};\nmod c;\n"),
            ("b/c.rs", "use super::super::a::A;\n"),
            (
                "f.rs",
                "use crate::{A, b::D};\n// use crate::b::x;\n#[cfg(test)]\nmod tests {\n    use crate::b::c;\n}\n",
            ),
        ]);
        let imports: Vec<_> = Modules::of(&tree, CRATES[0].1).imports().into_iter().collect();
        let expected = [("b::c", "a"), ("f", "a"), ("f", "b::c")].map(|(from, to)| (path(from), path(to)));
        assert_eq!(imports, expected);
    }

    #[test]
    fn circles_are_named_once_and_what_only_leads_to_them_is_not() {
        let edges = [("a", "b"), ("b", "c"), ("c", "b"), ("c", "d"), ("e", "f"), ("f", "e")];
        let mut graph: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for (from, to) in edges {
            graph.entry(from.to_owned()).or_default().insert(to.to_owned());
        }
        assert_eq!(circles_in(&graph), [vec!["b", "c"], vec!["e", "f"]].into());
    }
}
