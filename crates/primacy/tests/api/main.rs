//! The exported API of the library, with all that it passes on of `primacy-core`, as one reviewed file. Each name means one
//! thing, each thing has one name, users can name every type in a signature, and the crates in signatures are those that
//! the crate page names.
//!
//! `BLESS=1 cargo test -p primacy --test api` writes what is exported now into `exported.txt`.

mod listing;
mod source;

use std::path::Path;

use listing::Listing;
use source::Source;

fn source() -> Source {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut source = Source::default();
    source.read("primacy", &here.join("src"));
    source.read("primacy_core", &here.join("../primacy-core/src"));
    source
}

#[test]
fn the_exported_api_is_reviewed_names_one_thing_by_each_name_and_declares_its_dependencies() {
    let source = source();
    let listing = Listing::of(&source, "primacy");
    let doubles = listing.doubles();
    assert!(doubles.is_empty(), "rename one of each, or export it from one place:\n{}", doubles.join("\n"));

    let unnameable = &listing.unnameable;
    assert!(unnameable.is_empty(), "export these, or keep them out of exported signatures: {unnameable:#?}");

    let page = include_str!("../../src/lib.rs");
    let is_named = |name: &String| {
        let names = [format!("`{name}` "), format!("`{}` ", name.replace('_', "-"))];
        page.lines().any(|line| line.starts_with("//! ") && names.iter().any(|name| line.contains(name)))
    };
    let of_the_language = ["alloc", "core", "std"];
    let unnamed = listing.crates.iter().filter(|name| !of_the_language.contains(&name.as_str()) && !is_named(name));
    let unnamed: Vec<_> = unnamed.collect();
    assert!(unnamed.is_empty(), "name these with versions among the public dependencies in lib.rs: {unnamed:?}");

    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/api/exported.txt");
    let now = listing.file();
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&file, now).expect("the source can be written");
        return;
    }
    let reviewed = std::fs::read_to_string(&file).unwrap_or_default();
    let gone = reviewed.lines().filter(|line| !now.lines().any(|other| other == *line)).map(|line| format!("- {line}"));
    let new = now.lines().filter(|line| !reviewed.lines().any(|other| other == *line)).map(|line| format!("+ {line}"));
    let changes: Vec<_> = gone.chain(new).collect();
    assert!(
        now == reviewed,
        "the exported API differs from tests/api/exported.txt. If it is meant to, \
         `BLESS=1 cargo test -p primacy --test api` writes it down, for review with the change:\n{}",
        changes.join("\n")
    );
}

/// What each protocol of the core has of its own, so that its module is always named with it: `lease::Effect`, `log::Effect`.
const OF_EACH_PROTOCOL: [&str; 9] =
    ["Answer", "Config", "Context", "Effect", "Event", "Flaw", "Message", "Reply", "Request"];

/// Words of others that the replicated log has too. The glossary says which is which.
const OF_THE_LOG_TOO: [&str; 4] = ["Ballot", "EndReason", "Standing", "Verdict"];

#[test]
fn names_of_the_core_have_one_meaning_but_for_those_that_each_protocol_has() {
    let source = source();
    let doubles = Listing::of(&source, "primacy_core").doubles();
    let is_allowed = |double: &String| {
        let own = OF_EACH_PROTOCOL.iter().any(|name| double.starts_with(&format!("'{name}' ")));
        let of_the_log = OF_THE_LOG_TOO.iter().any(|name| double.starts_with(&format!("'{name}' ")));
        own || (of_the_log && double.matches(" and ").count() == 1 && double.contains("::log::"))
    };
    // One item under two paths is the core's habit: what users meet first is at its root too.
    let names = doubles.iter().filter(|double| double.contains("has two meanings"));
    let found: Vec<_> = names.filter(|double| !is_allowed(double)).collect();
    assert!(found.is_empty(), "rename one of each: {found:#?}");
}

/// What who writes a store builds or must answer for: a new field or kind there is for them to think of.
const OF_STORES: [&str; 40] = [
    "Announcement",
    "Basis",
    "CallError",
    "Candidacy",
    "Descriptor",
    "Eviction",
    "Expectation",
    "Finding",
    "Floor",
    "ForgetOutcome",
    "HandoverRequest",
    "Hindrance",
    "Holder",
    "LatencyReport",
    "Member",
    "MemberEvent",
    "MemberEventKind",
    "Members",
    "Order",
    "OrderKind",
    "OrderOutcome",
    "Probe",
    "QueuedWaiter",
    "Record",
    "RegistryReply",
    "RegistryRequest",
    "Renewal",
    "Reply",
    "Request",
    "Severity",
    "Sighting",
    "Snapshot",
    "Standing",
    "Term",
    "Vars",
    "Verdict",
    "Version",
    "VoterLatency",
    "WaiterInfo",
    "Waiting",
];

/// Settings that are written as literals, whose parts constrain each other, or that would be settings of another kind with
/// one more part; and what a warden is handed.
const OF_USERS: [&str; 4] = ["DeadLeaderRelease", "Reconfiguration", "RoundsSettings", "TimingSettings"];

/// Errors with one meaning, and what will have no further part: a role more is a right more.
const COMPLETE: [&str; 5] = ["NoHints", "Role", "StaleToken", "TokensUsedUp", "TooManyClasses"];

#[test]
fn what_users_only_read_or_choose_can_grow() {
    let source = source();
    let listing = Listing::of(&source, "primacy");
    let reasons = [&OF_STORES[..], &OF_USERS, &COMPLETE].concat();
    let mut fixed = listing.fixed();
    fixed.sort_unstable();
    let mut stated: Vec<String> = reasons.iter().map(|name| (*name).to_owned()).collect();
    stated.sort_unstable();
    assert_eq!(fixed, stated, "mark it #[non_exhaustive], or say here why it is not");
}

/// A crate with both faults, to see that they are found.
#[test]
fn a_name_with_two_meanings_and_an_item_with_two_names_are_found() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::create_dir(folder.path().join("inner")).expect("a folder");
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).expect("it can be written");
    write("lib.rs", "pub mod inner;\nmod hidden;\npub use hidden::{Door, Way as Road};\npub use inner::deep::Gate;\n");
    write(
        "hidden.rs",
        "pub struct Door;\npub struct Way { pub long: bool, secret: u8 }\npub struct Step;\nimpl Way { pub fn go(&self) -> Step { Step } }\n",
    );
    write("inner/mod.rs", "pub mod deep;\npub enum Door { Open }\n#[doc(hidden)]\npub struct Unseen;\n");
    write(
        "inner/deep.rs",
        "use crate::hidden::Way;\npub struct Gate;\nimpl Gate { pub fn way(&self) -> Way { loop {} } }\n",
    );
    let mut source = Source::default();
    source.read("houses", folder.path());
    let listing = Listing::of(&source, "houses");
    assert_eq!(Vec::from_iter(&listing.unnameable), ["houses::hidden::Step"]);
    let expected = [
        "'Door' has two meanings: houses::Door and houses::inner::Door",
        "one item is exported twice: houses::Gate and houses::inner::deep::Gate",
    ];
    assert_eq!(listing.doubles(), expected);
    let file = listing.file();
    let road = "struct houses::Road (of houses)\n    long: bool\n    ..\n    fn go(&self) -> Step\n";
    assert!(file.contains(road) && !file.contains("Unseen"), "{file}");
}
