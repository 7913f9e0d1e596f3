//! The one queue of things that will happen, ordered by time, and at one time by when they were planned.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Things that will happen, each with its time and a number that decides between those of one time.
#[derive(Debug)]
pub struct Queue<T> {
    /// When, the number, and the place of what happens, which stays where it is while this is sorted.
    heap: BinaryHeap<Reverse<(u64, u64, usize)>>,
    whats: Vec<Option<T>>,
    free: Vec<usize>,
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Queue<T> {
    /// Nothing planned.
    pub fn new() -> Self {
        Self { heap: BinaryHeap::new(), whats: Vec::new(), free: Vec::new() }
    }

    /// Plans something. No number may be given twice.
    pub fn push(&mut self, at: u64, number: u64, what: T) {
        let place = self.free.pop().unwrap_or(self.whats.len());
        if place == self.whats.len() {
            self.whats.push(Some(what));
        } else {
            self.whats[place] = Some(what);
        }
        self.heap.push(Reverse((at, number, place)));
    }

    /// What happens next, and when.
    pub fn pop(&mut self) -> Option<(u64, T)> {
        let Reverse((at, _, place)) = self.heap.pop()?;
        self.free.push(place);
        self.whats[place].take().map(|what| (at, what))
    }
}
