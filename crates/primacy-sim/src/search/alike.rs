//! Whether states that are taken for one are one: looked for in a whole search that takes none for another.

use std::collections::{BTreeMap, BTreeSet};

use super::outcome::Searched;
use super::prints::print_of;

/// What following every step of every state has shown.
#[derive(Clone, Debug)]
pub struct Likeness<S> {
    /// How many different states there are.
    pub states: usize,
    /// One of each fingerprint.
    pub classes: BTreeMap<u128, S>,
    /// Two states with one fingerprint that differ in a property, or in where one step leads to; each with the steps that have no like
    /// from the other.
    pub differ: Option<(String, String)>,
}

/// Visits every state, and asks of those with one `print` whether each step from the one has its like from the other, and shows the
/// same. From the one, nothing may happen instead: a step to a state that is like the present one is none.
pub fn alike<M: Searched>(
    model: &M,
    bare: impl Fn(&mut M::State),
    print: impl Fn(&M::State) -> u128,
) -> Likeness<M::State> {
    let properties = model.properties();
    let shows = |state: &M::State| -> Vec<bool> {
        properties.iter().map(|property| (property.condition)(model, state)).collect()
    };
    let mut likeness = Likeness { states: 0, classes: BTreeMap::new(), differ: None };
    let (mut seen, mut futures) = (BTreeSet::new(), BTreeMap::new());
    let (mut steps, mut open) = (Vec::new(), model.init_states());
    while let Some(mut state) = open.pop() {
        bare(&mut state);
        if !seen.insert(print_of(&state)) {
            continue;
        }
        let own = print(&state);
        let mut leads = BTreeMap::from([(own, BTreeSet::from([shows(&state)]))]);
        model.actions(&state, &mut steps);
        for next in steps.drain(..).filter_map(|step| model.next_state(&state, step)) {
            let lead: &mut BTreeSet<_> = leads.entry(print(&next)).or_default();
            lead.insert(shows(&next));
            open.push(next);
        }
        let future = print_of(&(shows(&state), leads));
        let other = likeness.classes.entry(own).or_insert_with(|| state.clone());
        if *futures.entry(own).or_insert(future) != future && likeness.differ.is_none() {
            let ways = |state: &M::State| -> Vec<_> {
                let mut steps = Vec::new();
                model.actions(state, &mut steps);
                let after = steps.into_iter().filter_map(|step| Some((model.next_state(state, step.clone())?, step)));
                after.map(|(next, step)| ((print(&next), shows(&next)), format!("{step:?}"))).collect()
            };
            let (ones, others) = (ways(other), ways(&state));
            let told = |state: &M::State, own: &[(_, String)], other: &[(_, String)]| {
                let is_alone = |lead: &_| other.iter().all(|(other, _)| other != lead);
                let alone: Vec<_> = own.iter().filter(|(lead, _)| is_alone(lead)).map(|(_, step)| step).collect();
                format!("{state:?}\n    leads elsewhere by {alone:?}")
            };
            likeness.differ = Some((told(other, &ones, &others), told(&state, &others, &ones)));
        }
    }
    likeness.states = seen.len();
    likeness
}
