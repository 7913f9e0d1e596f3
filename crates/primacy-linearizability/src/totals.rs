//! Checks that scale to histories of any length, since each operation shows where in the order it stands: appended words that are all
//! different, a counter, and a chain of compare-and-set operations. What they find is a violation; what they do not find may be one.

use std::collections::BTreeMap;
use std::fmt::Debug;

use crate::{Operation, Outcome};

/// What is wrong with a history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault<T> {
    /// This was acknowledged, and is not there.
    Lost(T),
    /// This was done twice.
    Repeated(T),
    /// This is there, and nobody has asked for it.
    Unasked(T),
    /// The first was answered before the second was called, and comes behind it.
    Reordered(T, T),
    /// Two reads of which neither shows a beginning of what the other shows.
    Diverged {
        /// When one of them was called.
        one: u64,
        /// When the other was called.
        other: u64,
    },
    /// Both have followed this.
    Forked(T),
}

/// A read of all that was appended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listing<T> {
    /// Before it was asked for.
    pub called: u64,
    /// After it had come.
    pub returned: u64,
    /// What was there, in its order.
    pub words: Vec<T>,
}

/// Words are appended, each once and no two alike; `listings` are reads of all of them. The last listing is asked for when all is over.
///
/// # Errors
/// The first fault that is found.
pub fn appends<T: Clone + Ord + Debug>(appended: &[Operation<T, ()>], listings: &[Listing<T>]) -> Result<(), Fault<T>> {
    let asked: BTreeMap<&T, &Operation<T, ()>> = appended.iter().map(|one| (&one.request, one)).collect();
    let Some(longest) = listings.iter().max_by_key(|listing| listing.words.len()) else { return Ok(()) };
    let mut places = BTreeMap::new();
    for (place, word) in longest.words.iter().enumerate() {
        if !asked.contains_key(word) {
            return Err(Fault::Unasked(word.clone()));
        }
        if places.insert(word, place).is_some() {
            return Err(Fault::Repeated(word.clone()));
        }
    }
    for listing in listings {
        if !longest.words.starts_with(&listing.words) {
            return Err(Fault::Diverged { one: longest.called, other: listing.called });
        }
        if let Some(word) = listing.words.iter().find(|word| asked[*word].called > listing.returned) {
            return Err(Fault::Unasked(word.clone()));
        }
    }
    // Of those that were answered, how many words the longest listing that came later must have at least.
    let mut by_call: Vec<&Listing<T>> = listings.iter().collect();
    by_call.sort_by_key(|listing| listing.called);
    let mut shortest_after = vec![usize::MAX; by_call.len() + 1];
    for (index, listing) in by_call.iter().enumerate().rev() {
        shortest_after[index] = shortest_after[index + 1].min(listing.words.len());
    }
    for one in appended {
        let Some(returned) = one.returned() else { continue };
        let later = by_call.partition_point(|listing| listing.called <= returned);
        let is_there = places.get(&one.request).is_some_and(|&place| place < shortest_after[later]);
        if later < by_call.len() && !is_there {
            return Err(Fault::Lost(one.request.clone()));
        }
    }
    let in_order = longest.words.iter().map(|word| asked[word]);
    ordered(in_order)
}

/// Increments by one of one counter, which begins at 0, each answered with the number after it; and the number when all is over.
///
/// # Errors
/// The first fault that is found.
pub fn counter(increments: &[Operation<(), u64>], end: u64) -> Result<(), Fault<u64>> {
    let mut numbers = BTreeMap::new();
    for one in increments {
        if let Outcome::Answered(_, number) = one.outcome
            && numbers.insert(number, one).is_some()
        {
            return Err(Fault::Repeated(number));
        }
    }
    if let Some((&largest, _)) = numbers.last_key_value().filter(|(number, _)| **number > end) {
        return Err(Fault::Lost(largest));
    }
    if end > increments.len() as u64 || numbers.contains_key(&0) {
        return Err(Fault::Unasked(end));
    }
    let named = numbers.iter().map(|(number, one)| (*number, one));
    let operations: Vec<Operation<u64, ()>> = named
        .map(|(request, one)| {
            let outcome = one.returned().map_or(Outcome::Unknown, |at| Outcome::Answered(at, ()));
            Operation { client: one.client, called: one.called, request, outcome }
        })
        .collect();
    ordered(operations.iter())
}

/// In this order, none was answered before one that stands before it was called.
fn ordered<'a, T: Clone + 'a>(in_order: impl DoubleEndedIterator<Item = &'a Operation<T, ()>>) -> Result<(), Fault<T>> {
    let mut first_return: Option<(u64, &T)> = None;
    for one in in_order.rev() {
        if let Some((returned, behind)) = first_return
            && returned < one.called
        {
            return Err(Fault::Reordered(behind.clone(), one.request.clone()));
        }
        if let Some(returned) = one.returned()
            && first_return.is_none_or(|(first, _)| returned < first)
        {
            first_return = Some((returned, &one.request));
        }
    }
    Ok(())
}

/// One value was replaced by another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replacement<T> {
    /// What was expected.
    pub expected: T,
    /// What was written. No two are alike.
    pub value: T,
}

/// Replacements of one value that began as `start`, each answered with whether it was done; and the value when all is over.
///
/// # Errors
/// The first fault that is found.
pub fn chain<T: Clone + Ord + Debug>(
    start: &T,
    replacements: &[Operation<Replacement<T>, bool>],
    end: &T,
) -> Result<(), Fault<T>> {
    let mut sources: BTreeMap<&T, &Operation<Replacement<T>, bool>> = BTreeMap::new();
    let mut followed = BTreeMap::new();
    for one in replacements {
        sources.insert(&one.request.value, one);
        if let Outcome::Answered(_, true) = one.outcome
            && followed.insert(&one.request.expected, one).is_some()
        {
            return Err(Fault::Forked(one.request.expected.clone()));
        }
    }
    // What is there at the end came there by the only operation that writes it, and so on to the start.
    let mut backwards = Vec::new();
    let mut at = end;
    while at != start {
        let Some(one) = sources.remove(at) else {
            let was_there = backwards.iter().any(|one: &&Operation<Replacement<T>, bool>| one.request.value == *at);
            return Err(if was_there { Fault::Repeated(at.clone()) } else { Fault::Unasked(at.clone()) });
        };
        if let Outcome::Answered(_, false) = one.outcome {
            return Err(Fault::Unasked(at.clone()));
        }
        backwards.push(one);
        at = &one.request.expected;
    }
    if let Some(lost) = sources.into_values().find(|one| matches!(one.outcome, Outcome::Answered(_, true))) {
        return Err(Fault::Lost(lost.request.value.clone()));
    }
    let operations: Vec<Operation<T, ()>> = backwards
        .iter()
        .rev()
        .map(|one| {
            let outcome = one.returned().map_or(Outcome::Unknown, |at| Outcome::Answered(at, ()));
            Operation { client: one.client, called: one.called, request: one.request.value.clone(), outcome }
        })
        .collect();
    ordered(operations.iter())
}
