//! What a crate exports, as lines that people review.

use std::collections::{BTreeMap, BTreeSet};

use quote::ToTokens;
use syn::spanned::Spanned;
use syn::{Attribute, Fields, ImplItem, Item, ItemImpl, Meta, TraitItem, Type, Visibility};

use crate::source::{Import, Meaning, ModPath, Source, conditions, imports, is_for_tests, name_of};

/// One exported name.
#[derive(Debug)]
pub(crate) struct Export {
    /// Where users find it.
    pub(crate) path: String,
    /// What it is.
    pub(crate) meaning: Meaning,
    /// Whether it is a type, a trait or a module: what people speak of without the module's name.
    pub(crate) is_noun: bool,
    lines: Vec<String>,
}

pub(crate) struct Listing<'a> {
    source: &'a Source,
    pub(crate) exports: Vec<Export>,
    /// The crates whose types are in signatures, or for which an exported trait is implemented.
    pub(crate) crates: BTreeSet<String>,
    /// The types of the crates that are read that stand in signatures and are not exported: users cannot name them.
    pub(crate) unnameable: BTreeSet<String>,
}

/// The implementations for one type, each with its module.
type Impls<'a> = BTreeMap<Meaning, Vec<(&'a ModPath, &'a ItemImpl)>>;

/// The source of these tokens on one line.
pub(crate) fn text(tokens: &impl ToTokens) -> String {
    let tokens = tokens.to_token_stream();
    if tokens.is_empty() {
        return String::new();
    }
    let source = tokens.span().source_text().unwrap_or_default();
    // Comments within a list of arguments or fields are no part of it.
    let code = source.lines().map(|line| line.split("//").next().unwrap_or_default());
    let line = code.flat_map(str::split_whitespace).collect::<Vec<_>>().join(" ");
    line.replace("( ", "(").replace(", )", ")").replace(" )", ")").replace(", }", " }").replace(" .", ".")
}

impl<'a> Listing<'a> {
    /// All that this crate exports.
    pub(crate) fn of(source: &'a Source, name: &str) -> Self {
        let mut listing = Self { source, exports: Vec::new(), crates: BTreeSet::new(), unnameable: BTreeSet::new() };
        listing.module(&vec![name.to_owned()], name, &mut BTreeSet::new());
        listing.exports.sort_by(|a, b| a.path.cmp(&b.path));
        let impls = listing.impls();
        let exported: BTreeSet<_> = listing.exports.iter().map(|export| export.meaning.clone()).collect();
        let mut used = BTreeSet::new();
        for export in &mut listing.exports {
            if let Meaning::Item(home, _) = &export.meaning {
                export.lines.iter().for_each(|line| used.extend(meanings(source, home, line)));
            }
            let mut lines = BTreeSet::new();
            for (module, of) in impls.get(&export.meaning).map_or(&[][..], Vec::as_slice) {
                for line in implemented(source, module, of, &exported) {
                    used.extend(meanings(source, module, &line));
                    lines.insert(line);
                }
            }
            export.lines.extend(lines);
        }
        for meaning in used {
            match meaning {
                Meaning::Foreign(path) => listing.crates.extend(path.split("::").next().map(str::to_owned)),
                Meaning::Item(module, name) if !exported.contains(&Meaning::Item(module.clone(), name.clone())) => {
                    listing.unnameable.insert(format!("{}::{name}", module.join("::")));
                }
                Meaning::Item(..) | Meaning::Module(_) => {}
            }
        }
        listing.crates.retain(|name| !["self", "super", "crate", "primacy", "primacy_core"].contains(&name.as_str()));
        listing
    }

    /// The names with two meanings, and the items with two names.
    pub(crate) fn doubles(&self) -> Vec<String> {
        let mut names: BTreeMap<&str, Vec<&Export>> = BTreeMap::new();
        let mut items: BTreeMap<&Meaning, Vec<&str>> = BTreeMap::new();
        for export in &self.exports {
            let name = export.path.rsplit("::").next().unwrap_or_default();
            if export.is_noun {
                names.entry(name).or_default().push(export);
            }
            items.entry(&export.meaning).or_default().push(&export.path);
        }
        let two_meanings = names
            .into_iter()
            .filter(|(_, exports)| exports.iter().map(|export| &export.meaning).collect::<BTreeSet<_>>().len() > 1);
        let two_meanings = two_meanings.map(|(name, exports)| {
            let paths: Vec<_> = exports.iter().map(|export| export.path.as_str()).collect();
            format!("'{name}' has two meanings: {}", paths.join(" and "))
        });
        let two_names = items.into_iter().filter(|(_, paths)| paths.len() > 1);
        let two_names = two_names.map(|(_, paths)| format!("one item is exported twice: {}", paths.join(" and ")));
        two_meanings.chain(two_names).collect()
    }

    /// The names of types that can get no further part without a new version of the library: enums, and structs all of whose
    /// fields are exported.
    pub(crate) fn fixed(&self) -> Vec<String> {
        let is_fixed = |export: &&Export| {
            let Meaning::Item(module, name) = &export.meaning else { return false };
            let items = self.source.modules.get(module).map_or(&[][..], Vec::as_slice);
            let (attributes, is_open) = match items.iter().find(|item| name_of(item).is_some_and(|own| own == *name)) {
                Some(Item::Enum(of)) => (&of.attrs, false),
                Some(Item::Struct(of)) => {
                    (&of.attrs, of.fields.iter().any(|field| !matches!(field.vis, Visibility::Public(_))))
                }
                _ => return false,
            };
            !is_open && !attributes.iter().any(|attribute| attribute.path().is_ident("non_exhaustive"))
        };
        let names = self.exports.iter().filter(is_fixed).filter_map(|export| export.path.rsplit("::").next());
        names.map(str::to_owned).collect()
    }

    /// The listing as a file.
    pub(crate) fn file(&self) -> String {
        let mut file = String::new();
        for export in &self.exports {
            for line in &export.lines {
                file.push_str(line);
                file.push('\n');
            }
        }
        file
    }

    fn module(&mut self, module: &ModPath, path: &str, within: &mut BTreeSet<ModPath>) {
        assert!(within.insert(module.clone()), "{path} exports a module that it is in");
        let source = self.source;
        for item in source.modules.get(module).map_or(&[][..], Vec::as_slice) {
            let Some((attributes, Visibility::Public(_))) = attributes(item) else { continue };
            if is_for_tests(attributes) || is_hidden(attributes) {
                continue;
            }
            if let Item::Use(exported) = item {
                for Import { path: from, name } in imports(&exported.tree) {
                    let meaning = source.resolve(module, &from).unwrap_or(Meaning::Foreign(from.join("::")));
                    self.export(meaning, format!("{path}::{name}"), attributes, within);
                }
            } else if let Some(name) = name_of(item) {
                let meaning = source.resolve(module, &["self".to_owned(), name.clone()]).expect("its own item");
                self.export(meaning, format!("{path}::{name}"), &[], within);
            }
        }
        within.remove(module);
    }

    fn export(&mut self, meaning: Meaning, path: String, by: &[Attribute], within: &mut BTreeSet<ModPath>) {
        let (mut lines, mut is_noun) = (Vec::new(), true);
        match &meaning {
            Meaning::Module(module) => {
                lines.push(format!("mod {path}{}", from(module)));
                self.exports.push(Export { path: path.clone(), meaning: meaning.clone(), is_noun, lines });
                return self.module(module, &path, within);
            }
            Meaning::Foreign(foreign) => lines.push(format!("use {foreign} as {path}")),
            Meaning::Item(module, name) => {
                let items = self.source.modules.get(module).map_or(&[][..], Vec::as_slice);
                match items.iter().find(|item| name_of(item).is_some_and(|own| own == *name)) {
                    Some(item) => {
                        is_noun = matches!(item, Item::Enum(_) | Item::Struct(_) | Item::Trait(_) | Item::Type(_));
                        let (attributes, _) = attributes(item).expect("an item with a name");
                        let only = conditions(by).into_iter().chain(conditions(attributes));
                        let only: String = only.map(|condition| format!(" [{condition}]")).collect();
                        lines.extend(body(item, &path, &format!("{only}{}", from(module))));
                    }
                    None => lines.push(format!("type {path}, made by a macro{}", from(module))),
                }
            }
        }
        self.exports.push(Export { path, meaning, is_noun, lines });
    }

    /// What is implemented, in whatever module: for each type, and for each trait where the type is of another crate.
    fn impls(&self) -> Impls<'a> {
        let mut impls = Impls::new();
        for (module, items) in &self.source.modules {
            for item in items {
                let Item::Impl(block) = item else { continue };
                let Type::Path(of) = &*block.self_ty else { continue };
                let path: Vec<_> = of.path.segments.iter().map(|segment| segment.ident.to_string()).collect();
                let is_listed = !is_for_tests(&block.attrs) && !is_hidden(&block.attrs);
                let for_type = self.source.resolve(module, &path);
                let of_trait = block.trait_.as_ref().and_then(|(_, of, _)| {
                    let path: Vec<_> = of.segments.iter().map(|segment| segment.ident.to_string()).collect();
                    self.source.resolve(module, &path)
                });
                let meaning = if let Some(Meaning::Item(..)) = for_type { for_type } else { of_trait };
                if let (true, Some(meaning)) = (is_listed, meaning) {
                    impls.entry(meaning).or_default().push((module, block));
                }
            }
        }
        impls
    }
}

/// What a line of this module names, by paths or by imported names.
fn meanings(source: &Source, module: &ModPath, line: &str) -> BTreeSet<Meaning> {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    // What a macro derives is no part of a signature.
    let is_head = line.starts_with("struct ") || line.starts_with("enum ");
    let line = if is_head { line.split(" (").next().unwrap_or_default() } else { line };
    let mut found = BTreeSet::new();
    let begins = |at: &usize| line[*at..].starts_with(is_part) && !line[..*at].ends_with(is_part);
    for at in line.char_indices().map(|(at, _)| at).filter(begins) {
        let rest = &line[at..];
        let (name, after) = rest.split_at(rest.find(|c: char| !is_part(c)).unwrap_or(rest.len()));
        let leads = after.starts_with("::");
        if line[..at].ends_with("::") || !(leads || name.starts_with(char::is_uppercase)) {
            continue;
        }
        match source.resolve(module, &[name.to_owned()]) {
            None if leads && name.starts_with(char::is_lowercase) => found.extend([Meaning::Foreign(name.to_owned())]),
            meaning => found.extend(meaning),
        }
    }
    found
}

/// Where it comes from, if not from the crate itself.
fn from(module: &ModPath) -> String {
    if module[0] == "primacy" { String::new() } else { format!(" (of {})", module[0]) }
}

/// The lines of a block, unless its trait or what that is about is of the crate alone.
fn implemented(source: &Source, module: &ModPath, block: &ItemImpl, exported: &BTreeSet<Meaning>) -> Vec<String> {
    if let Some((_, of, _)) = &block.trait_ {
        let line = text(of);
        let words = line.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty());
        let mut meanings = words.filter_map(|word| source.resolve(module, &[word.to_owned()]));
        let is_private = meanings.any(|meaning| matches!(meaning, Meaning::Item(..)) && !exported.contains(&meaning));
        return if is_private { Vec::new() } else { vec![format!("    impl {line} for {}", text(&block.self_ty))] };
    }
    let items = block.items.iter().filter_map(|item| match item {
        ImplItem::Fn(of) if is_public(&of.vis, &of.attrs) => Some(text(&of.sig)),
        ImplItem::Const(of) if is_public(&of.vis, &of.attrs) => Some(format!("const {}: {}", of.ident, text(&of.ty))),
        _ => None,
    });
    items.map(|line| format!("    {line}")).collect()
}

fn is_public(visibility: &Visibility, attributes: &[Attribute]) -> bool {
    matches!(visibility, Visibility::Public(_)) && !is_for_tests(attributes) && !is_hidden(attributes)
}

fn is_hidden(attributes: &[Attribute]) -> bool {
    let docs = attributes.iter().filter(|attribute| attribute.path().is_ident("doc"));
    docs.filter_map(|attribute| attribute.meta.require_list().ok()).any(|list| list.tokens.to_string() == "hidden")
}

/// An item's own lines: what it is, and its parts.
fn body(item: &Item, path: &str, after: &str) -> Vec<String> {
    let (attributes, _) = attributes(item).expect("an item with a name");
    let before = marks(attributes);
    let head = |kind: &str, rest: &str| vec![format!("{kind} {path}{rest}{before}{after}")];
    match item {
        Item::Const(of) => head("const", &format!(": {}", text(&of.ty))),
        Item::Static(of) => head("static", &format!(": {}", text(&of.ty))),
        Item::Fn(of) => {
            let whole = text(&of.sig);
            let rest = whole.split_once(&of.sig.ident.to_string()).map_or("", |(_, rest)| rest);
            head(if of.sig.asyncness.is_some() { "async fn" } else { "fn" }, rest)
        }
        Item::Type(of) => head("type", &format!("{} = {}", text(&of.generics), text(&of.ty))),
        Item::Struct(of) => {
            let mut lines = head("struct", &text(&of.generics));
            lines.extend(fields(&of.fields, true).into_iter().map(|field| format!("    {field}")));
            lines
        }
        Item::Enum(of) => {
            let mut lines = head("enum", &text(&of.generics));
            for variant in of.variants.iter().filter(|variant| !is_hidden(&variant.attrs)) {
                let parts = fields(&variant.fields, false).join(", ");
                let parts = match &variant.fields {
                    Fields::Named(_) => format!(" {{ {parts} }}"),
                    Fields::Unnamed(_) => format!("({parts})"),
                    Fields::Unit => String::new(),
                };
                lines.push(format!("    {}{parts}", variant.ident));
            }
            lines
        }
        Item::Trait(of) => {
            let bounds = if of.supertraits.is_empty() { String::new() } else { format!(": {}", text(&of.supertraits)) };
            let mut lines = head("trait", &format!("{}{bounds}", text(&of.generics)));
            for item in &of.items {
                if let TraitItem::Fn(of) = item {
                    let given = if of.default.is_some() { " { … }" } else { "" };
                    lines.push(format!("    {}{given}", text(&of.sig)));
                }
            }
            lines
        }
        _ => Vec::new(),
    }
}

/// The public fields; those of variants are public as they are.
fn fields(of: &Fields, only_public: bool) -> Vec<String> {
    let seen = |field: &&syn::Field| !only_public || matches!(field.vis, Visibility::Public(_));
    let shown = of.iter().filter(seen).filter(|field| !is_hidden(&field.attrs)).map(|field| match &field.ident {
        Some(name) => format!("{name}: {}", text(&field.ty)),
        None => text(&field.ty),
    });
    let mut shown: Vec<_> = shown.collect();
    if only_public && of.len() > shown.len() {
        shown.push("..".into());
    }
    shown
}

/// What is derived, and what else its users feel.
fn marks(attributes: &[Attribute]) -> String {
    let mut marks = String::new();
    for attribute in attributes {
        if attribute.path().is_ident("non_exhaustive") {
            marks.push_str(" non_exhaustive");
        } else if let (true, Meta::List(list)) = (attribute.path().is_ident("derive"), &attribute.meta) {
            marks.push_str(&format!(" ({})", text(&list.tokens)));
        }
    }
    marks
}

fn attributes(item: &Item) -> Option<(&[Attribute], &Visibility)> {
    Some(match item {
        Item::Const(item) => (&item.attrs, &item.vis),
        Item::Enum(item) => (&item.attrs, &item.vis),
        Item::Fn(item) => (&item.attrs, &item.vis),
        Item::Mod(item) => (&item.attrs, &item.vis),
        Item::Static(item) => (&item.attrs, &item.vis),
        Item::Struct(item) => (&item.attrs, &item.vis),
        Item::Trait(item) => (&item.attrs, &item.vis),
        Item::Type(item) => (&item.attrs, &item.vis),
        Item::Use(item) => (&item.attrs, &item.vis),
        _ => return None,
    })
}
