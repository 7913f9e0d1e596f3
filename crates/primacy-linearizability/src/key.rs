//! One key of a key-value store: a string of bytes, which may have a time to live.

use std::fmt;

use crate::{Model, Operation};

/// A key's value.
pub type Value = Vec<u8>;

/// What is asked of a key.
#[derive(Clone, PartialEq, Eq)]
pub enum Request {
    /// Its value.
    Get,
    /// Give it this value, and a time to live in the unit of the history's clock.
    Set {
        /// The value.
        value: Value,
        /// The least time for which it is kept. `None`: until it is changed.
        live: Option<u64>,
    },
    /// Give it this value if it has that one now. `None` is no value. It is kept until it is changed.
    CompareAndSet {
        /// What is expected.
        expected: Option<Value>,
        /// The new value.
        value: Value,
    },
    /// Give it this value, and tell what it had. It is kept until it is changed.
    Replace(Value),
    /// Add this to what it has, which keeps its time to live.
    Append(Value),
    /// Add this to the number that it has. No value is 0. It keeps its time to live.
    Increment(i64),
    /// Take its value away.
    Delete,
}

/// What is answered.
#[derive(Clone, PartialEq, Eq)]
pub enum Answer {
    /// To [`Request::Get`]: what it has. To [`Request::Replace`]: what it had.
    Value(Option<Value>),
    /// To [`Request::Set`]: it is done.
    Done,
    /// To [`Request::CompareAndSet`] and [`Request::Delete`]: whether it was done.
    Applied(bool),
    /// To [`Request::Append`]: how long the value is now.
    Length(usize),
    /// To [`Request::Increment`]: the number now.
    Number(i64),
    /// It is no number, or there is no room in it.
    NoNumber,
}

/// A value for people.
struct Shown<'a>(&'a Value);

impl fmt::Debug for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.0.escape_ascii())
    }
}

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Get => f.write_str("Get"),
            Self::Set { value, live: None } => write!(f, "Set({:?})", Shown(value)),
            Self::Set { value, live: Some(live) } => write!(f, "Set({:?}, for {live})", Shown(value)),
            Self::CompareAndSet { expected, value } => {
                write!(f, "CompareAndSet({:?} to {:?})", expected.as_ref().map(Shown), Shown(value))
            }
            Self::Replace(value) => write!(f, "Replace({:?})", Shown(value)),
            Self::Append(more) => write!(f, "Append({:?})", Shown(more)),
            Self::Increment(by) => write!(f, "Increment({by})"),
            Self::Delete => f.write_str("Delete"),
        }
    }
}

impl fmt::Debug for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Value(value) => write!(f, "{:?}", value.as_ref().map(Shown)),
            Self::Done => f.write_str("Done"),
            Self::Applied(is_done) => write!(f, "Applied({is_done})"),
            Self::Length(length) => write!(f, "Length({length})"),
            Self::Number(number) => write!(f, "Number({number})"),
            Self::NoNumber => f.write_str("NoNumber"),
        }
    }
}

/// What a key has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct State {
    value: Option<Value>,
    /// From then on it may be gone. It may also be kept for longer.
    may_go: Option<u64>,
    /// What comes next is not done before this, since something has gone then.
    not_before: u64,
}

/// A key that has nothing at first.
#[derive(Clone, Copy, Debug, Default)]
pub struct Key;

impl State {
    /// The state a moment later, if the value's time to live may be over by `until`.
    fn without_expired(&self, until: u64) -> Option<Self> {
        let at = self.may_go.filter(|at| *at <= until)?;
        Some(Self { value: None, may_go: None, not_before: self.not_before.max(at) })
    }
}

impl Key {
    /// What a single copy answers that does this at the moment `happens`, and what it has then. `eager`: it takes away what may go.
    pub fn at(state: &State, request: &Request, called: u64, happens: u64, eager: bool) -> (Answer, State) {
        let gone = if eager { state.without_expired(happens) } else { None };
        Self::apply(gone.as_ref().unwrap_or(state), request, called)
    }

    fn apply(state: &State, request: &Request, called: u64) -> (Answer, State) {
        let State { value: now, may_go, not_before } = state;
        let with = |value: Option<Value>, may_go: Option<u64>| State { value, may_go, not_before: *not_before };
        let kept = |value: Value| with(Some(value), *may_go);
        let fresh = |value: &Value| with(Some(value.clone()), None);
        match request {
            Request::Get => (Answer::Value(now.clone()), state.clone()),
            Request::Set { value, live } => {
                // It is done after it was called.
                let may_go = live.map(|live| called.saturating_add(live));
                (Answer::Done, with(Some(value.clone()), may_go))
            }
            Request::CompareAndSet { expected, value } if now == expected => (Answer::Applied(true), fresh(value)),
            Request::CompareAndSet { .. } => (Answer::Applied(false), state.clone()),
            Request::Replace(value) => (Answer::Value(now.clone()), fresh(value)),
            Request::Append(more) => {
                let longer = [now.as_deref().unwrap_or_default(), more].concat();
                (Answer::Length(longer.len()), kept(longer))
            }
            Request::Increment(by) => match number(now.as_ref()).and_then(|number| number.checked_add(*by)) {
                Some(sum) => (Answer::Number(sum), kept(sum.to_string().into_bytes())),
                None => (Answer::NoNumber, state.clone()),
            },
            Request::Delete => (Answer::Applied(now.is_some()), with(None, None)),
        }
    }
}

fn number(value: Option<&Value>) -> Option<i64> {
    match value {
        Some(value) => std::str::from_utf8(value).ok()?.parse().ok(),
        None => Some(0),
    }
}

impl Model for Key {
    type State = State;
    type Request = Request;
    type Answer = Answer;

    fn initial(&self) -> State {
        State::default()
    }

    fn step(&self, state: &State, operation: &Operation<Request, Answer>, next: &mut Vec<State>) {
        let until = operation.returned().unwrap_or(u64::MAX);
        if until < state.not_before {
            return;
        }
        let gone = state.without_expired(until);
        for before in [Some(state), gone.as_ref()].into_iter().flatten() {
            let (answer, after) = Self::apply(before, &operation.request, operation.called);
            if operation.answer().is_none_or(|given| *given == answer) && !next.contains(&after) {
                next.push(after);
            }
        }
    }

    fn is_read(&self, operation: &Operation<Request, Answer>) -> bool {
        let refused = matches!(operation.answer(), Some(Answer::Applied(false) | Answer::NoNumber));
        refused || operation.request == Request::Get
    }
}
