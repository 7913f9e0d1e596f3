//! What has a number and is looked up by it all the time, in the order of the numbers.

use std::cell::Cell;

/// A map from numbers that mostly grow. Who asks for the same one again, which is the rule, finds it at once.
#[derive(Debug)]
pub(crate) struct Slots<T> {
    /// By number.
    all: Vec<(u64, Box<T>)>,
    /// Where the last one was found.
    last: Cell<usize>,
}

impl<T> Default for Slots<T> {
    fn default() -> Self {
        Self { all: Vec::new(), last: Cell::new(0) }
    }
}

impl<T> Slots<T> {
    fn find(&self, number: u64) -> Option<usize> {
        let last = self.last.get();
        if self.all.get(last).is_some_and(|(own, _)| *own == number) {
            return Some(last);
        }
        let found = self.all.binary_search_by_key(&number, |(own, _)| *own).ok()?;
        self.last.set(found);
        Some(found)
    }

    pub(crate) fn get(&self, number: u64) -> Option<&T> {
        self.find(number).map(|index| &*self.all[index].1)
    }

    pub(crate) fn get_mut(&mut self, number: u64) -> Option<&mut T> {
        self.find(number).map(|index| &mut *self.all[index].1)
    }

    pub(crate) fn insert(&mut self, number: u64, what: T) {
        match self.all.binary_search_by_key(&number, |(own, _)| *own) {
            Ok(index) => *self.all[index].1 = what,
            Err(index) => self.all.insert(index, (number, Box::new(what))),
        }
    }

    pub(crate) fn remove(&mut self, number: u64) {
        if let Some(index) = self.find(number) {
            self.all.remove(index);
        }
    }

    pub(crate) fn retain(&mut self, stays: impl Fn(&T) -> bool) {
        self.all.retain(|(_, what)| stays(what));
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, &T)> {
        self.all.iter().map(|(number, what)| (*number, &**what))
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &T> {
        self.iter().map(|(_, what)| what)
    }

    pub(crate) fn numbers(&self) -> Vec<u64> {
        self.iter().map(|(number, _)| number).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::Slots;

    #[test]
    fn what_has_a_number_is_found_by_it_and_by_no_other() {
        let mut slots = Slots::default();
        for number in [3, 7, 5, 9] {
            slots.insert(number, number * 10);
        }
        assert_eq!(slots.numbers(), [3, 5, 7, 9]);
        for number in 0..12 {
            // Twice: the second time it is where it was.
            let there = [3, 5, 7, 9].contains(&number).then_some(number * 10);
            assert_eq!((slots.get(number).copied(), slots.get(number).copied()), (there, there));
        }
        assert_eq!(slots.get(5), Some(&50));
        slots.remove(5);
        slots.remove(6);
        assert_eq!((slots.get(5), slots.get(7)), (None, Some(&70)));
        slots.insert(4, 1);
        assert_eq!(slots.get_mut(4), Some(&mut 1));
        assert_eq!(slots.get(7), Some(&70));
        slots.retain(|what| *what > 1);
        assert_eq!((slots.get(4), slots.numbers()), (None, vec![3, 7, 9]));
    }
}
