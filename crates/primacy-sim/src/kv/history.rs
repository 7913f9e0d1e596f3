//! What clients have asked for and what they were told.

use std::collections::BTreeMap;

use primacy_kv::slot::Slot;
use primacy_linearizability::{Operation, Outcome, Verdict, check};

use super::World;
use super::scenario::{Kind, Scenario};
use super::spec::{Ask, Family, Said};
use super::tally::{Promise, Tally};

/// How many configurations a search visits.
const BUDGET: usize = 20_000;

/// The length of a word that is appended: who, which, and a mark.
pub(super) const WORD: usize = 9;

/// What is done with a family of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    Register,
    Counter,
    List,
    Pair,
}

/// Keys that are used together, and what was done with them.
#[derive(Debug)]
pub(super) struct Keys {
    pub(super) names: Vec<Vec<u8>>,
    pub(super) what: Use,
    operations: Vec<Operation<Ask, Said>>,
}

/// A request that is not answered.
#[derive(Clone, Debug)]
pub(super) struct Pending {
    pub(super) node: usize,
    pub(super) client: Option<usize>,
    pub(super) group: u16,
    pub(super) family: usize,
    /// `None`: it asks for the version of the first key.
    pub(super) ask: Option<Ask>,
    pub(super) called: u64,
    /// By the clock of its node.
    pub(super) came: primacy_core::Instant,
    /// The version that it watches.
    pub(super) version: Option<u64>,
}

/// All of it.
#[derive(Debug)]
pub(super) struct History {
    pub(super) families: Vec<Vec<Keys>>,
    pub(super) pending: BTreeMap<u64, Pending>,
    /// Versions of a key for which a watched transaction was done.
    watched: BTreeMap<(u16, usize, u64), u64>,
    values: u64,
}

impl History {
    pub(super) fn new(scenario: &Scenario) -> Self {
        let families = |group| {
            let slots = Slot::of_group(group, scenario.groups);
            let mut names = (0..)
                .map(|number: u32| format!("k{number}"))
                .filter(|name| slots.contains(&Slot::of(name.as_bytes()).number()));
            let mut name = || names.next().unwrap_or_default();
            let mut all = Vec::new();
            for what in [Use::Register, Use::Register, Use::Counter, Use::List, Use::Pair] {
                let name = name();
                let names = match what {
                    Use::Pair => vec![format!("{{{name}}}a").into_bytes(), format!("{{{name}}}b").into_bytes()],
                    _ => vec![name.into_bytes()],
                };
                all.push(Keys { names, what, operations: Vec::new() });
            }
            all
        };
        let families = (0..scenario.groups).map(families).collect();
        Self { families, pending: BTreeMap::new(), watched: BTreeMap::new(), values: 0 }
    }

    /// A value that was never given before.
    pub(super) fn value(&mut self) -> Vec<u8> {
        self.values += 1;
        format!("v{}", self.values).into_bytes()
    }

    /// It was answered, or nobody knows what became of it.
    pub(super) fn record(&mut self, pending: Pending, outcome: Outcome<Said>) {
        let Pending { node, client, group, family, ask: Some(request), called, .. } = pending else { return };
        let client = (node * 100 + client.unwrap_or(99)) as u64;
        let operation = Operation { client, called, request, outcome };
        self.families[usize::from(group)][family].operations.push(operation);
    }

    /// A watched transaction was done. Two for one version are one too many.
    pub(super) fn watched(&mut self, group: u16, family: usize, version: u64, tag: u64) -> Option<u64> {
        self.watched.insert((group, family, version), tag)
    }
}

impl World {
    /// Whether what clients saw could have happened one at a time.
    pub(super) fn check_histories(&mut self) {
        let is_lease = self.scenario.reads == primacy_core::log::Reading::Lease;
        let without_reads = self.scenario.kind == Kind::Wild && is_lease;
        let mut found = None;
        for (group, families) in self.history.families.iter().enumerate() {
            for keys in families {
                self.tally.operations += keys.operations.len() as u64;
                let mut history = keys.operations.clone();
                if without_reads {
                    let end = history.iter().map(|operation| operation.called).max().unwrap_or_default();
                    let is_last = |operation: &Operation<Ask, Said>| operation.called >= end;
                    history.retain(|one| is_last(one) || !matches!(one.request, Ask::Get(_) | Ask::GetBoth));
                }
                let broken = judge(keys, &history, &mut self.tally);
                if let Some((promise, text)) = broken {
                    let name = String::from_utf8_lossy(&keys.names[0]).into_owned();
                    found = found.or(Some((promise, format!("group {group}, key {name}: {text}"))));
                }
            }
        }
        if let Some((promise, text)) = found {
            self.violate(promise, || text);
        }
    }
}

fn judge(keys: &Keys, history: &Vec<Operation<Ask, Said>>, tally: &mut Tally) -> Option<(Promise, String)> {
    match check(&Family, history, BUDGET) {
        Verdict::Linearizable => {}
        Verdict::Unknown => tally.given_up += 1,
        Verdict::Violation(found) => {
            let text: String = found.operations.iter().map(|operation| format!("\n  {operation:?}")).collect();
            return Some((Promise::Linearizable, text));
        }
    }
    if keys.what != Use::List {
        return None;
    }
    // Words of one connection stand in the order in which it sent them.
    let lists = history.iter().filter_map(|one| match one.answer() {
        Some(Said::Value(Some(value))) => Some(value),
        _ => None,
    });
    let longest = lists.max_by_key(|list| list.len())?;
    let mut last: BTreeMap<&[u8], &[u8]> = BTreeMap::new();
    for word in longest.chunks(WORD) {
        let (who, which) = word.split_at(4);
        if let Some(before) = last.insert(who, which)
            && before >= which
        {
            let text = String::from_utf8_lossy(longest).into_owned();
            let word = String::from_utf8_lossy(word).into_owned();
            return Some((Promise::ProgramOrder, format!("{word} comes too late in {text}")));
        }
    }
    None
}
