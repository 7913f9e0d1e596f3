//! Without a fault the published lease is right; what breaks it does not without its cause.

use primacy_sim::search::{Outcome, search};

use super::*;

fn complete(search_of: Search) -> Outcome {
    search(search_of, 2)
}

#[test]
fn without_a_fault_the_published_lease_breaks_nothing() {
    let dies = Budget { crashes: 1, restarts: 1, ..Budget::default() };
    let outcome = complete(Search::new("one dies and comes back as another", dies));
    assert!(outcome.is_good() && outcome.states > 100, "{} states\n{outcome}", outcome.states);
}

#[test]
fn a_fresh_name_keeps_two_from_leading_for_good() {
    let again = Budget { stops: 1, restarts: 1, ..Budget::default() };
    for (identity, stays) in [(Identity::Host, true), (Identity::Process, false)] {
        let search = Search { identity, only: Some(AGREED), ..Search::new("started again", again) };
        let outcome = complete(search);
        assert_eq!(outcome.counterexample().is_some(), stays, "{identity:?}\n{outcome}");
    }
}

#[test]
fn the_row_tells_who_leads_also_within_one_second_and_the_count_does_not() {
    for (tells, doubts) in [(Tells::Affected, true), (Tells::Select, false)] {
        let search =
            Search { tells, polls: 2, only: Some(KNOWS), ..Search::new("two polls a second", Budget::default()) };
        let outcome = complete(search);
        assert_eq!(outcome.counterexample().is_some(), doubts, "{tells:?}\n{outcome}");
    }
}
