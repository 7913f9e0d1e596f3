//! The one queue of things that will happen, ordered by time, and at one time by when they were planned.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

/// Things that will happen, each with its time and a number that decides between those of one time.
#[derive(Debug)]
pub(crate) struct Queue<T> {
    heap: BinaryHeap<Reverse<Entry<T>>>,
}

#[derive(Debug)]
struct Entry<T> {
    at: u64,
    number: u64,
    what: T,
}

impl<T> Queue<T> {
    /// Nothing planned.
    pub(crate) fn new() -> Self {
        Self { heap: BinaryHeap::new() }
    }

    /// Plans something. No number may be given twice.
    pub(crate) fn push(&mut self, at: u64, number: u64, what: T) {
        self.heap.push(Reverse(Entry { at, number, what }));
    }

    /// What happens next, and when.
    pub(crate) fn pop(&mut self) -> Option<(u64, T)> {
        self.heap.pop().map(|Reverse(entry)| (entry.at, entry.what))
    }
}

impl<T> PartialEq for Entry<T> {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

impl<T> Eq for Entry<T> {}

impl<T> PartialOrd for Entry<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for Entry<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.at, self.number).cmp(&(other.at, other.number))
    }
}
