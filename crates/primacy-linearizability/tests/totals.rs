//! The cheap checks, on histories that are right and on each fault.

use primacy_linearizability::totals::{Fault, Listing, Replacement, appends, chain, counter};
use primacy_linearizability::{Operation, Outcome};

fn operation<Q, A>(called: u64, request: Q, outcome: Outcome<A>) -> Operation<Q, A> {
    Operation { client: 1, called, request, outcome }
}

fn append(word: &'static str, called: u64, returned: Option<u64>) -> Operation<&'static str, ()> {
    operation(called, word, returned.map_or(Outcome::Unknown, |at| Outcome::Answered(at, ())))
}

fn listing(called: u64, words: &[&'static str]) -> Listing<&'static str> {
    Listing { called, returned: called + 5, words: words.to_vec() }
}

#[test]
fn appended_words_are_there_once_in_their_order() {
    let appended =
        [append("a", 0, Some(10)), append("b", 5, Some(30)), append("c", 20, None), append("d", 40, Some(50))];
    let check = |listings: &[Listing<&'static str>]| appends(&appended, listings);
    assert_eq!(check(&[]), Ok(()));
    assert_eq!(check(&[listing(12, &["a"]), listing(32, &["a", "b"]), listing(60, &["a", "b", "d"])]), Ok(()));
    assert_eq!(check(&[listing(60, &["b", "a", "c", "d"])]), Ok(()), "those that overlap, and one without an answer");
    assert_eq!(check(&[listing(60, &["a", "d"])]), Err(Fault::Lost("b")));
    assert_eq!(check(&[listing(12, &[]), listing(60, &["a", "b", "d"])]), Err(Fault::Lost("a")), "it was not yet seen");
    assert_eq!(check(&[listing(60, &["a", "b", "a", "d"])]), Err(Fault::Repeated("a")));
    assert_eq!(check(&[listing(60, &["a", "b", "d", "x"])]), Err(Fault::Unasked("x")));
    assert_eq!(check(&[listing(12, &["a", "b", "d"])]), Err(Fault::Unasked("d")), "before it was called");
    assert_eq!(check(&[listing(60, &["a", "d", "b"])]), Err(Fault::Reordered("b", "d")));
    let diverged = check(&[listing(32, &["b", "a"]), listing(60, &["a", "b", "d"])]);
    assert_eq!(diverged, Err(Fault::Diverged { one: 60, other: 32 }));
}

#[test]
fn a_counter_counts_each_increment_once() {
    let one = |called, answer: Option<(u64, u64)>| {
        operation(called, (), answer.map_or(Outcome::Unknown, |(at, number)| Outcome::Answered(at, number)))
    };
    let right = [one(0, Some((10, 1))), one(5, Some((15, 3))), one(6, None), one(20, Some((30, 4)))];
    assert_eq!(counter(&right, 4), Ok(()));
    assert_eq!(counter(&right, 3), Err(Fault::Lost(4)));
    assert_eq!(counter(&right, 5), Err(Fault::Unasked(5)));
    assert_eq!(counter(&[one(0, Some((9, 1))), one(0, Some((9, 1)))], 2), Err(Fault::Repeated(1)));
    assert_eq!(counter(&[one(0, Some((9, 2))), one(20, Some((30, 1)))], 2), Err(Fault::Reordered(2, 1)));
}

#[test]
fn a_value_that_is_replaced_leaves_a_chain() {
    let replace = |called, expected, value, outcome| operation(called, Replacement { expected, value }, outcome);
    let done = |at| Outcome::Answered(at, true);
    let right = [
        replace(0, 0, 1, done(10)),
        replace(5, 0, 2, Outcome::Answered(15, false)),
        replace(20, 1, 3, Outcome::Unknown),
        replace(30, 3, 4, done(40)),
    ];
    assert_eq!(chain(&0, &right, &4), Ok(()));
    assert_eq!(chain(&0, &right, &2), Err(Fault::Unasked(2)), "it was answered that it was not done");
    assert_eq!(chain(&0, &right, &9), Err(Fault::Unasked(9)));
    assert_eq!(chain(&0, &right, &1), Err(Fault::Lost(4)));
    let forked = [replace(0, 0, 1, done(10)), replace(20, 0, 2, done(30))];
    assert_eq!(chain(&0, &forked, &1), Err(Fault::Forked(0)));
    let turned = [replace(20, 0, 1, done(30)), replace(0, 1, 2, done(10))];
    assert_eq!(chain(&0, &turned, &2), Err(Fault::Reordered(2, 1)));
    let circle = [replace(0, 2, 1, done(10)), replace(0, 1, 2, done(10))];
    assert_eq!(chain(&0, &circle, &2), Err(Fault::Repeated(2)));
}
