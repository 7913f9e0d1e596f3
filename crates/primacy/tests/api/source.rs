//! The modules of a crate as its source has them, and what a path in one of them means.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use syn::{Attribute, Item, UseTree};

/// The path of a module: the name of its crate first.
pub(crate) type ModPath = Vec<String>;

/// What a path means.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Meaning {
    Module(ModPath),
    /// An item of this name in that module.
    Item(ModPath, String),
    /// Something of a crate that is not read.
    Foreign(String),
}

/// One imported or exported name: the path behind it, and what it is called here.
pub(crate) struct Import {
    pub(crate) path: Vec<String>,
    pub(crate) name: String,
}

/// All modules of the crates that are read.
#[derive(Default)]
pub(crate) struct Source {
    pub(crate) modules: BTreeMap<ModPath, Vec<Item>>,
}

impl Source {
    /// Reads a crate with all modules that are in its own build.
    pub(crate) fn read(&mut self, name: &str, root: &Path) {
        self.read_file(vec![name.into()], &root.join("lib.rs"), root.to_owned());
    }

    fn read_file(&mut self, module: ModPath, file: &Path, children: PathBuf) {
        let text = std::fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let parsed = syn::parse_file(&text).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        self.add(module, parsed.items, &children);
    }

    fn add(&mut self, module: ModPath, items: Vec<Item>, folder: &Path) {
        for item in &items {
            let Item::Mod(child) = item else { continue };
            if is_for_tests(&child.attrs) {
                continue;
            }
            let name = child.ident.to_string();
            let path: ModPath = module.iter().cloned().chain([name.clone()]).collect();
            let below = folder.join(&name);
            let beside = folder.join(format!("{name}.rs"));
            match &child.content {
                Some((_, items)) => self.add(path, items.clone(), &below),
                None if beside.exists() => self.read_file(path, &beside, below),
                None => self.read_file(path, &below.join("mod.rs"), below),
            }
        }
        self.modules.insert(module, items);
    }

    /// What this path means in that module. `None`: a name of the language or of the prelude.
    pub(crate) fn resolve(&self, module: &ModPath, path: &[String]) -> Option<Meaning> {
        let (first, rest) = path.split_first()?;
        let start = match first.as_str() {
            "crate" => Meaning::Module(vec![module[0].clone()]),
            "self" => Meaning::Module(module.clone()),
            "super" => Meaning::Module(module[..module.len() - 1].to_vec()),
            name if self.modules.contains_key(&vec![name.to_owned()]) => Meaning::Module(vec![name.to_owned()]),
            name => self.named(module, name)?,
        };
        rest.iter().try_fold(start, |meaning, name| match meaning {
            Meaning::Module(at) if name == "super" => Some(Meaning::Module(at[..at.len() - 1].to_vec())),
            Meaning::Module(at) => self.named(&at, name),
            Meaning::Foreign(path) => Some(Meaning::Foreign(format!("{path}::{name}"))),
            // A variant, or an associated item.
            item @ Meaning::Item(..) => Some(item),
        })
    }

    /// What this name means in that module: its own item, its child, or what it imports.
    fn named(&self, module: &ModPath, name: &str) -> Option<Meaning> {
        let items = self.modules.get(module)?;
        if items.iter().any(|item| !matches!(item, Item::Mod(_)) && name_of(item).is_some_and(|own| own == name)) {
            return Some(Meaning::Item(module.clone(), name.to_owned()));
        }
        let child: ModPath = module.iter().cloned().chain([name.to_owned()]).collect();
        if self.modules.contains_key(&child) {
            return Some(Meaning::Module(child));
        }
        for item in items {
            let Item::Use(import) = item else { continue };
            for Import { path, name: imported } in imports(&import.tree) {
                // An import of a crate that is not read.
                if imported == name && path.first().is_some_and(|first| first != name || path.len() > 1) {
                    return Some(self.resolve(module, &path).unwrap_or(Meaning::Foreign(path.join("::"))));
                }
            }
        }
        let macros = items.iter().filter_map(|item| if let Item::Macro(call) = item { Some(call) } else { None });
        let mut made = macros.filter(|call| call.ident.is_none()).map(|call| call.mac.tokens.to_string());
        let is_made =
            made.any(|tokens| tokens.split(|c: char| !c.is_alphanumeric() && c != '_').any(|word| word == name));
        is_made.then(|| Meaning::Item(module.clone(), name.to_owned()))
    }
}

/// The names that a `use` brings, without globs: those are to be written out.
pub(crate) fn imports(tree: &UseTree) -> Vec<Import> {
    fn below(tree: &UseTree, before: &[String], found: &mut Vec<Import>) {
        let with = |name: &dyn ToString| before.iter().cloned().chain([name.to_string()]).collect::<Vec<_>>();
        match tree {
            UseTree::Path(path) => below(&path.tree, &with(&path.ident), found),
            UseTree::Name(name) if name.ident == "self" => {
                let name = before.last().cloned().unwrap_or_default();
                found.push(Import { path: before.to_vec(), name });
            }
            UseTree::Name(name) => found.push(Import { path: with(&name.ident), name: name.ident.to_string() }),
            UseTree::Rename(to) => found.push(Import { path: with(&to.ident), name: to.rename.to_string() }),
            UseTree::Group(group) => group.items.iter().for_each(|tree| below(tree, before, found)),
            UseTree::Glob(_) => {}
        }
    }
    let mut found = Vec::new();
    below(tree, &[], &mut found);
    found
}

/// The name of an item that has one.
pub(crate) fn name_of(item: &Item) -> Option<String> {
    let ident = match item {
        Item::Const(item) => &item.ident,
        Item::Enum(item) => &item.ident,
        Item::Fn(item) => &item.sig.ident,
        Item::Mod(item) => &item.ident,
        Item::Static(item) => &item.ident,
        Item::Struct(item) => &item.ident,
        Item::Trait(item) => &item.ident,
        Item::Type(item) => &item.ident,
        _ => return None,
    };
    Some(ident.to_string())
}

/// Whether it is in no build but that of tests.
pub(crate) fn is_for_tests(attributes: &[Attribute]) -> bool {
    conditions(attributes).iter().any(|condition| condition == "test" || condition == "doctest")
}

/// What is inside each `#[cfg(…)]`.
pub(crate) fn conditions(attributes: &[Attribute]) -> Vec<String> {
    let lists = attributes.iter().filter(|attribute| attribute.path().is_ident("cfg"));
    lists
        .filter_map(|attribute| attribute.meta.require_list().ok())
        .map(|list| crate::listing::text(&list.tokens))
        .collect()
}
