//! One rank of everything that is preferred about a candidate: its name first, then its scores.

use alloc::vec::Vec;

use super::classes::{Classes, ClassesError};
use super::names::Names;
use super::rank::Rank;
use super::score::{SCORES_MAX, Scores};
use crate::Label;

/// Ranks one candidate, again and again as its scores change.
///
/// A rank's first element is the place of the candidate's name, 0 where no names are given; each score's class follows,
/// in order of priority. A place is always there, so that ranks of candidates with and without names can be compared.
///
/// It remembers the class of each score, for the hysteresis of [`Classes`]: each candidate has a selector of its own, and
/// others learn of the rank, not of the scores.
///
/// Source: Becker et al. 2011 §5, co-optimizing multiple metrics.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Selector {
    names: Names,
    classes: [Classes; SCORES_MAX],
}

/// Classes were given for more scores than there can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("classes for {classes} scores are too many; give at most {SCORES_MAX}")]
pub struct TooManyClasses {
    /// For how many scores.
    pub classes: usize,
}

impl Selector {
    /// A selector by these names, and with these classes for the scores, in the order of the scores. Scores beyond them
    /// have [`Classes::EACH`].
    ///
    /// # Errors
    /// When there are classes for more than [`SCORES_MAX`] scores.
    pub fn new(names: Names, classes: Vec<Classes>) -> Result<Self, TooManyClasses> {
        let mut all = [Classes::EACH; SCORES_MAX];
        let given = classes.len();
        all.get_mut(..given).ok_or(TooManyClasses { classes: given })?.clone_from_slice(&classes);
        Ok(Self { names, classes: all })
    }

    /// The names.
    pub const fn names(&self) -> &Names {
        &self.names
    }

    /// The rank of the candidate with this label, now that its scores are these. `None`: it may never lead.
    ///
    /// A score that is missing counts as one of class 0, and what was remembered of it is forgotten.
    ///
    /// # Errors
    /// When a score is too far from 0 for its classes. Nothing is changed: the candidate keeps the rank it had.
    pub fn rank(&mut self, label: &Label, scores: &Scores) -> Result<Option<Rank>, ClassesError> {
        let Some(place) = self.names.place(label) else { return Ok(None) };
        let mut elements = [0; Rank::ELEMENTS_MAX];
        let (first, rest) = elements.split_at_mut(1);
        first.fill(place);
        let scores = scores.as_slice();
        for ((element, classes), score) in rest.iter_mut().zip(&self.classes).zip(scores) {
            *element = classes.element(*score)?;
        }
        for (index, (classes, element)) in self.classes.iter_mut().zip(rest).enumerate() {
            if index < scores.len() { classes.settle(*element) } else { classes.forget() }
        }
        Ok(Some(Rank::from(elements)))
    }

    /// The rank of the candidate with this label while none of its scores is known, of which it will have this many: behind all of
    /// its place whose scores are known, and before nobody but those who may never lead. Nothing is remembered of it.
    pub fn rank_unknown(&self, label: &Label, scores: usize) -> Option<Rank> {
        let mut elements = [0; Rank::ELEMENTS_MAX];
        let (first, rest) = elements.split_at_mut(1);
        first.fill(self.names.place(label)?);
        rest.iter_mut().take(scores.min(SCORES_MAX)).for_each(|element| *element = i32::MAX);
        Some(Rank::from(elements))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;
    use alloc::vec;

    fn label(text: &str) -> Label {
        Label::new(text).expect("a label")
    }

    fn scores(text: &str) -> Scores {
        text.parse().expect("scores")
    }

    fn selector(prefer: &str, classes: &[&str]) -> Selector {
        let names = Names::new(prefer.parse().expect("patterns"), "never".parse().expect("patterns")).expect("names");
        Selector::new(names, classes.iter().map(|text| text.parse().expect("classes")).collect()).expect("few")
    }

    fn ranked(selector: &mut Selector, text: &str, given: &str) -> Rank {
        selector.rank(&label(text), &scores(given)).expect("near 0").expect("may lead")
    }

    #[test]
    fn names_come_before_scores_and_a_candidate_without_either_in_the_middle() {
        let mut selector = selector("a,b", &["1"]);
        assert_eq!(ranked(&mut selector, "a", "-5").to_string(), "-100,5");
        assert!(ranked(&mut selector.clone(), "a", "-5") < ranked(&mut selector.clone(), "b", "9"));
        assert!(ranked(&mut selector.clone(), "b", "-5") < ranked(&mut selector.clone(), "c", "9"));
        let none = Selector::new(Names::default(), Vec::new()).expect("few").rank(&label("z"), &Scores::default());
        assert_eq!(none, Ok(Some(Rank::default())));
        selector.classes[0].forget();
        assert!(ranked(&mut selector.clone(), "c", "9") < Rank::default());
        assert!(ranked(&mut selector.clone(), "c", "-9") > Rank::default());
    }

    #[test]
    fn a_later_score_decides_only_within_a_class_of_the_earlier() {
        // The fattest among the fastest (Becker et al. 2011 §5): latency in classes of 10 ms, then the last transaction.
        let rank = |given: &str| ranked(&mut selector("a", &["10:0", "1:0"]), "z", given);
        assert!(rank("-12,900") < rank("-11,800"), "the same class: the longer history leads");
        assert!(rank("-9,800") < rank("-12,900"), "another class: the faster one leads");
    }

    #[test]
    fn who_may_never_lead_has_no_rank_whatever_its_score() {
        assert_eq!(selector("a", &[]).rank(&label("never"), &scores("1000")), Ok(None));
    }

    #[test]
    fn a_refused_score_changes_none_of_the_classes() {
        let mut selector = selector("a", &["10:5", "0.001:0"]);
        ranked(&mut selector, "z", "9,1");
        let before = selector.clone();
        assert!(matches!(selector.rank(&label("z"), &scores("40,1e9")), Err(ClassesError::TooFar { .. })));
        assert_eq!(selector, before);
    }

    #[test]
    fn a_score_that_goes_missing_is_forgotten() {
        let mut selector = selector("a", &["10:5"]);
        assert_eq!(ranked(&mut selector, "z", "19").elements(), [0, -1]);
        assert_eq!(ranked(&mut selector, "z", "24").elements(), [0, -1]);
        let unknown = selector.rank(&label("z"), &Scores::default());
        assert_eq!(unknown, Ok(Some(Rank::default())));
        assert_eq!(ranked(&mut selector, "z", "24").elements(), [0, -2]);
    }

    #[test]
    fn whose_scores_are_not_known_yet_stands_behind_those_whose_are() {
        let mut selector = selector("a,b", &["1", "1"]);
        let unknown = |name: &str, scores| selector.rank_unknown(&label(name), scores).expect("may lead");
        let (worst, place) = (unknown("b", 2), unknown("c", 2));
        assert!(worst > unknown("a", 2) && worst < place, "names come first");
        assert_eq!(unknown("b", 0).elements(), [-99], "without scores it is as any other");
        assert_eq!(unknown("b", 99).with_turn(0), unknown("b", 99), "the last element is the turn's");
        assert_eq!(selector.rank_unknown(&label("never"), 2), None);
        let before = selector.clone();
        assert!(ranked(&mut selector, "b", "-2000000000,-2000000000") < worst);
        assert_eq!(before.rank_unknown(&label("b"), 2), Some(worst));
    }

    #[test]
    fn as_many_scores_as_a_rank_holds() {
        let full = ranked(&mut selector("z", &[]), "z", "1,2,3,4,5,6");
        assert_eq!(full.elements().len(), Rank::ELEMENTS_MAX - 1);
        let many = Selector::new(Names::default(), vec![Classes::EACH; 7]);
        assert_eq!(many, Err(TooManyClasses { classes: 7 }));
    }
}
