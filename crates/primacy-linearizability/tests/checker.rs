//! The search against one that tries everything, on histories that are right and on those that are not.

mod common;

use std::collections::{BTreeMap, HashSet};

use common::{KeyOperation, Lot, atomic};
use primacy_linearizability::key::{Answer, Key, Request};
use primacy_linearizability::{Model, Operation, Outcome, Verdict, check, check_keys};

const BUDGET: usize = 1_000_000;

/// Every order of every choice of those that were not answered, without any shortcut.
fn is_linearizable(history: &[KeyOperation]) -> bool {
    let mut seen = HashSet::new();
    let mut open = vec![(0_u32, Key.initial())];
    while let Some((done, state)) = open.pop() {
        let is_done = |index: usize| done & (1 << index) != 0;
        let missing = |index: &usize| !is_done(*index) && history[*index].returned().is_some();
        if !(0..history.len()).any(|index| missing(&index)) {
            return true;
        }
        for (index, operation) in history.iter().enumerate().filter(|(index, _)| !is_done(*index)) {
            let precedes = |other: usize| history[other].returned().is_some_and(|at| at < operation.called);
            if (0..history.len()).filter(missing).any(precedes) {
                continue;
            }
            let mut next = Vec::new();
            Key.step(&state, operation, &mut next);
            for state in next {
                let configuration = (done | 1 << index, state);
                if seen.insert(configuration.clone()) {
                    open.push(configuration);
                }
            }
        }
    }
    false
}

/// An answer that another key might have given.
fn another_answer(lot: &mut Lot, request: &Request) -> Answer {
    let number = lot.below(4);
    match request {
        Request::Get | Request::Replace(_) => Answer::Value(lot.chance(80).then(|| number.to_string().into_bytes())),
        Request::Set { .. } => Answer::Done,
        Request::CompareAndSet { .. } | Request::Delete => Answer::Applied(lot.chance(50)),
        Request::Append(_) => Answer::Length(1 + usize::from(lot.chance(50))),
        Request::Increment(_) => Answer::Number(i64::try_from(number).expect("small")),
    }
}

#[test]
fn the_search_says_what_a_search_of_everything_says() {
    let (mut right, mut wrong) = (0, 0);
    for seed in 0..20_000 {
        let mut lot = Lot(seed);
        let mut history = atomic(&mut lot, (4, 4, 50), 9);
        if lot.chance(70) {
            for _ in 0..=lot.below(2) {
                let index = usize::try_from(lot.below(9)).expect("small");
                let answer = another_answer(&mut lot, &history[index].request);
                if let Outcome::Answered(_, given) = &mut history[index].outcome {
                    *given = answer;
                }
            }
        }
        let expected = is_linearizable(&history);
        match check(&Key, &history, BUDGET) {
            Verdict::Linearizable => assert!(expected, "seed {seed}: {history:#?}"),
            Verdict::Violation(counterexample) => {
                assert!(!expected, "seed {seed}: {history:#?}");
                assert!(!is_linearizable(&counterexample.operations), "seed {seed}: a counterexample that is none");
            }
            Verdict::Unknown => panic!("seed {seed}: too large"),
        }
        *if expected { &mut right } else { &mut wrong } += 1;
    }
    assert!(right > 5_000 && wrong > 5_000, "{right} right, {wrong} wrong");
}

#[test]
fn long_histories_of_one_copy_are_linearizable() {
    let histories: BTreeMap<u64, Vec<KeyOperation>> =
        (0..20).map(|key| (key, atomic(&mut Lot(key), (16, 1_000_000, 2), 2_000))).collect();
    assert_eq!(check_keys(&Key, &histories, BUDGET).map(|_| ()), Verdict::Linearizable);
}

#[test]
fn a_stale_read_in_a_long_history_is_shown_with_what_is_needed_to_see_it() {
    let set = |n: u64, called| Operation {
        client: 1,
        called,
        request: Request::Set { value: n.to_string().into_bytes(), live: None },
        outcome: Outcome::Answered(called + 5, Answer::Done),
    };
    let get = |n: u64, called| Operation {
        client: 2,
        called,
        request: Request::Get,
        outcome: Outcome::Answered(called + 1, Answer::Value(Some(n.to_string().into_bytes()))),
    };
    let mut history: Vec<KeyOperation> = (0..100).flat_map(|n| [set(n, n * 20), get(n, n * 20 + 10)]).collect();
    // Two reads during one write: the first sees it, the second does not.
    history.extend([get(43, 42 * 20 + 21), get(42, 42 * 20 + 23)]);
    let Verdict::Violation(counterexample) = check(&Key, &history, BUDGET) else { panic!("it is not linearizable") };
    let reads = counterexample.operations.iter().filter(|operation| operation.request == Request::Get).count();
    assert_eq!(reads, 2, "{counterexample}");
    assert_eq!(
        counterexample.operations.len(),
        46,
        "44 writes, of which the last is still under way: {counterexample}"
    );
    let shown = counterexample.to_string();
    assert!(shown.starts_with("6 operations before these are not shown\n"), "{shown}");
    let culprit: Vec<&str> = shown.lines().filter(|line| line.ends_with("  <- cannot be")).collect();
    assert!(matches!(culprit[..], [line] if line.contains(r#"client 2: Get -> Some("42")"#)), "{shown}");
}

#[test]
fn a_value_may_go_when_its_time_is_over_and_not_before() {
    let set = Operation {
        client: 1,
        called: 10,
        request: Request::Set { value: b"v".to_vec(), live: Some(100) },
        outcome: Outcome::Answered(20, Answer::Done),
    };
    let get = |called, value: Option<&[u8]>| Operation {
        client: 2,
        called,
        request: Request::Get,
        outcome: Outcome::Answered(called + 5, Answer::Value(value.map(<[u8]>::to_vec))),
    };
    let verdict =
        |reads: &[KeyOperation]| check(&Key, &[std::slice::from_ref(&set), reads].concat(), BUDGET).map(|_| ());
    assert_eq!(verdict(&[get(104, None)]), Verdict::Violation(()), "109 is before 110");
    assert_eq!(verdict(&[get(105, None)]), Verdict::Linearizable);
    assert_eq!(verdict(&[get(900, Some(b"v"))]), Verdict::Linearizable, "it may be kept for longer");
    assert_eq!(verdict(&[get(120, None), get(130, Some(b"v"))]), Verdict::Violation(()), "it does not come back");
}

#[test]
fn a_search_that_is_too_large_says_so() {
    let history: Vec<KeyOperation> = (0..24)
        .map(|n| {
            let request = Request::Append(vec![b'a' + n]);
            Operation { client: u64::from(n), called: 0, request, outcome: Outcome::Unknown }
        })
        .chain([Operation {
            client: 99,
            called: 50,
            request: Request::Get,
            outcome: Outcome::Answered(60, Answer::Value(Some(b"never".to_vec()))),
        }])
        .collect();
    assert_eq!(check(&Key, &history, 10_000).map(|_| ()), Verdict::Unknown);
}
