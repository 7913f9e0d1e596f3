//! What one copy of the data would do: the sequential specification that histories are held against. It shares no code with the table.
//!
//! A history is that of a family of keys that are used together: one key, or two that stand in one slot.

use primacy_linearizability::{Model, Operation};

/// A value.
pub(super) type Value = Vec<u8>;

/// For what value of a key something is done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum When {
    Always,
    Absent,
    Is(Value),
}

/// What is asked of a family of keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Ask {
    Get(usize),
    /// Both at once.
    GetBoth,
    Set {
        key: usize,
        value: Value,
        when: When,
        /// The least time in nanoseconds for which it is kept.
        live: Option<u64>,
    },
    Append(usize, Value),
    Increment(usize),
    Delete(usize),
    GetDelete(usize),
    /// All of these, or nothing if what was watched has changed.
    All {
        asks: Vec<Ask>,
        watches: bool,
    },
}

/// What is answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Said {
    Value(Option<Value>),
    Both([Option<Value>; 2]),
    Done(bool),
    Number(i64),
    All(Vec<Said>),
    /// What was watched has changed.
    Aborted,
}

/// A key.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Place {
    value: Option<Value>,
    /// From then on it may be gone.
    may_go: Option<u64>,
}

/// What a family of keys has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct State {
    places: [Place; 2],
    /// What comes next is not done before this, since something has gone then.
    not_before: u64,
}

/// Two keys that have nothing at first.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Family;

impl State {
    fn without(&self, key: usize, until: u64) -> Option<Self> {
        let at = self.places[key].may_go.filter(|at| *at <= until)?;
        let mut gone = self.clone();
        gone.places[key] = Place::default();
        gone.not_before = gone.not_before.max(at);
        Some(gone)
    }

    fn get(&self, key: usize) -> Option<Value> {
        self.places[key].value.clone()
    }

    fn put(&mut self, key: usize, value: Value, may_go: Option<u64>) {
        self.places[key] = Place { value: Some(value), may_go };
    }

    fn apply(&mut self, ask: &Ask, called: u64) -> Said {
        match ask {
            Ask::Get(key) => Said::Value(self.get(*key)),
            Ask::GetBoth => Said::Both([self.get(0), self.get(1)]),
            Ask::Set { key, value, when, live } => {
                let now = self.places[*key].value.as_ref();
                let holds = match when {
                    When::Always => true,
                    When::Absent => now.is_none(),
                    When::Is(value) => now == Some(value),
                };
                if holds {
                    self.put(*key, value.clone(), live.map(|live| called.saturating_add(live)));
                }
                Said::Done(holds)
            }
            Ask::Append(key, more) => {
                let may_go = self.places[*key].may_go;
                let longer = [self.get(*key).unwrap_or_default(), more.clone()].concat();
                let length = longer.len() as i64;
                self.put(*key, longer, may_go);
                Said::Number(length)
            }
            Ask::Increment(key) => {
                let may_go = self.places[*key].may_go;
                let now = self.get(*key).and_then(|value| String::from_utf8(value).ok()?.parse().ok());
                let sum = now.unwrap_or(0_i64) + 1;
                self.put(*key, sum.to_string().into_bytes(), may_go);
                Said::Number(sum)
            }
            Ask::Delete(key) => {
                let was_there = self.get(*key).is_some();
                self.places[*key] = Place::default();
                Said::Number(i64::from(was_there))
            }
            Ask::GetDelete(key) => {
                let value = self.get(*key);
                self.places[*key] = Place::default();
                Said::Value(value)
            }
            Ask::All { asks, .. } => Said::All(asks.iter().map(|ask| self.apply(ask, called)).collect()),
        }
    }
}

impl Model for Family {
    type State = State;
    type Request = Ask;
    type Answer = Said;

    fn initial(&self) -> State {
        State::default()
    }

    fn step(&self, state: &State, operation: &Operation<Ask, Said>, next: &mut Vec<State>) {
        let until = operation.returned().unwrap_or(u64::MAX);
        if until < state.not_before {
            return;
        }
        if operation.answer() == Some(&Said::Aborted) {
            next.push(state.clone());
            return;
        }
        let mut befores = vec![state.clone()];
        for key in [0, 1] {
            let gone: Vec<State> = befores.iter().filter_map(|before| before.without(key, until)).collect();
            befores.extend(gone);
        }
        for mut after in befores {
            let said = after.apply(&operation.request, operation.called);
            if operation.answer().is_none_or(|given| *given == said) && !next.contains(&after) {
                next.push(after);
            }
        }
        // One that watches may have been refused.
        if operation.answer().is_none() && matches!(operation.request, Ask::All { watches: true, .. }) {
            next.push(state.clone());
        }
    }

    fn is_read(&self, operation: &Operation<Ask, Said>) -> bool {
        let refused = matches!(operation.answer(), Some(Said::Done(false) | Said::Aborted));
        refused || matches!(operation.request, Ask::Get(_) | Ask::GetBoth)
    }
}
