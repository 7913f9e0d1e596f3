//! Who can come and go, and who cannot.

use super::*;

type Plan = VoterPlan<&'static str, u16>;

fn voter(n: u128) -> VoterId {
    VoterId::from_bits(n)
}

/// Voters a, b, c by number 4, of whom these cannot be reached.
fn plan(unreachable: &[u128], removed: &[&'static str]) -> Plan {
    let current = [("a", (voter(1), 1)), ("b", (voter(2), 2)), ("c", (voter(3), 3))].into();
    Plan::new(4, current, unreachable.iter().copied().map(voter).collect(), removed.to_vec())
}

fn names(target: Result<Option<Voters<&'static str, u16>>, PlanError<&'static str>>) -> Vec<&'static str> {
    target.expect("it can be").expect("it is another").into_keys().collect()
}

#[test]
fn one_comes_in_the_place_of_another() {
    let mut plan = plan(&[3], &["c"]);
    assert_eq!(plan.add("d", voter(4), 4, None), Ok(Added::Yes));
    assert_eq!(names(plan.finish(false)), ["a", "b", "d"]);
}

#[test]
fn one_that_has_moved_is_exchanged_for_itself_and_a_lost_folder_under_the_same_name() {
    let mut moved = plan(&[3], &["c"]);
    assert_eq!(moved.add("c", voter(3), 9, Some(4)), Ok(Added::Yes));
    assert_eq!(moved.finish(false).expect("it can be").expect("it is another")["c"], (voter(3), 9));
    let mut lost = plan(&[3], &["c"]);
    assert_eq!(lost.add("c", voter(4), 3, None), Ok(Added::Yes));
    assert_eq!(lost.finish(false).expect("it can be").expect("it is another")["c"], (voter(4), 3));
    assert_eq!(plan(&[], &[]).add("c", voter(4), 3, None), Err(AddError::Taken));
}

#[test]
fn one_that_was_taken_out_does_not_come_again_and_one_that_knows_more_is_heard_first() {
    assert_eq!(plan(&[], &[]).add("d", voter(4), 4, Some(2)), Err(AddError::Removed));
    assert_eq!(plan(&[], &[]).add("d", voter(4), 4, Some(4)), Err(AddError::Removed));
    assert_eq!(plan(&[], &[]).add("d", voter(4), 4, Some(5)), Ok(Added::KnowsLater));
    assert_eq!(plan(&[], &[]).add("a", voter(1), 1, Some(3)), Ok(Added::Yes), "it votes, and is behind");
}

#[test]
fn who_votes_already_or_has_gone_already_is_not_exchanged_twice() {
    assert_eq!(plan(&[], &["d"]).finish(false), Err(PlanError::Absent("d")));
    assert_eq!(plan(&[], &["d"]).finish(true), Ok(None), "it has gone by an exchange since");
    let mut come = plan(&[], &["d"]);
    assert_eq!(come.add("c", voter(3), 3, Some(4)), Ok(Added::Yes));
    assert_eq!(come.finish(false), Ok(None), "it has come in its place");
}

#[test]
fn a_majority_of_the_new_voters_must_be_there_and_no_more_than_nine() {
    let mut plan_of_four = plan(&[2], &[]);
    assert_eq!(plan_of_four.add("d", voter(4), 4, None), Ok(Added::Yes));
    assert_eq!(names(plan_of_four.finish(false)), ["a", "b", "c", "d"]);
    let mut half = plan(&[2, 3], &[]);
    assert_eq!(half.add("d", voter(4), 4, None), Ok(Added::Yes));
    assert_eq!(half.finish(false), Err(PlanError::Minority([voter(2), voter(3)].into())));
    // The one that is lost goes.
    assert_eq!(names(plan(&[3], &["c"]).finish(false)), ["a", "b"]);
    assert_eq!(plan(&[], &["a", "b", "c"]).finish(false), Err(PlanError::Count(0)));
    let mut many = plan(&[], &[]);
    for (n, name) in (4..).zip(["d", "e", "f", "g", "h", "i", "j"]) {
        assert_eq!(many.add(name, voter(n), 4, None), Ok(Added::Yes));
    }
    assert_eq!(many.finish(false), Err(PlanError::Count(10)));
}
