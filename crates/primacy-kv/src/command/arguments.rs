//! The arguments of a request, taken one by one.

use super::error::CommandError;
use super::operation::{Key, Value};
use crate::number::integer;

/// How large keys and values may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The longest key, in bytes.
    pub key: usize,
    /// The longest value, in bytes. `APPEND` refuses to make a longer one.
    pub value: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { key: 64 << 10, value: 8 << 20 }
    }
}

/// What is left of the arguments of a command whose count is right.
#[derive(Debug)]
pub(super) struct Arguments<'a> {
    /// What the command is called in errors.
    pub(super) name: &'static str,
    rest: &'a [&'a [u8]],
    pub(super) limits: &'a Limits,
}

impl<'a> Arguments<'a> {
    pub(super) const fn new(name: &'static str, rest: &'a [&'a [u8]], limits: &'a Limits) -> Self {
        Self { name, rest, limits }
    }

    pub(super) const fn len(&self) -> usize {
        self.rest.len()
    }

    /// The next one, if there is one.
    pub(super) fn optional(&mut self) -> Option<&'a [u8]> {
        let (first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(first)
    }

    /// The next one, which the count of arguments promises.
    pub(super) fn required(&mut self) -> Result<&'a [u8], CommandError> {
        self.optional().ok_or_else(|| CommandError::wrong_number(self.name))
    }

    /// The next one, which an option needs.
    pub(super) fn of_option(&mut self) -> Result<&'a [u8], CommandError> {
        self.optional().ok_or(CommandError::SYNTAX)
    }

    pub(super) fn key(&mut self) -> Result<Key, CommandError> {
        let key = self.required()?;
        if key.len() > self.limits.key { Err(CommandError::KEY_TOO_LONG) } else { Ok(key.into()) }
    }

    pub(super) fn value(&mut self) -> Result<Value, CommandError> {
        let value = self.required()?;
        if value.len() > self.limits.value { Err(CommandError::VALUE_TOO_LONG) } else { Ok(Value::new(value.into())) }
    }

    pub(super) fn integer(&mut self) -> Result<i64, CommandError> {
        integer(self.required()?).ok_or(CommandError::NOT_AN_INTEGER)
    }

    /// All that are left, each read by `element`. There is at least one.
    pub(super) fn all<T>(
        &mut self,
        mut element: impl FnMut(&mut Self) -> Result<T, CommandError>,
    ) -> Result<alloc::vec::Vec<T>, CommandError> {
        let mut all = alloc::vec![element(self)?];
        while self.len() > 0 {
            all.push(element(self)?);
        }
        Ok(all)
    }

    /// Refuses what is left.
    pub(super) fn end(&self) -> Result<(), CommandError> {
        if self.rest.is_empty() { Ok(()) } else { Err(CommandError::SYNTAX) }
    }
}

/// Whether an argument is this word, in large or small letters.
pub(super) fn is_word(argument: &[u8], word: &str) -> bool {
    argument.eq_ignore_ascii_case(word.as_bytes())
}

/// Which of these words an argument is, in large or small letters.
pub(super) fn one_of<T: Copy>(argument: &[u8], words: &[(&str, T)]) -> Option<T> {
    words.iter().find(|(word, _)| is_word(argument, word)).map(|(_, meaning)| *meaning)
}
