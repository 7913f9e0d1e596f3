//! The counterexamples of `mysql-lease.txt`, and the product's lease under the same adversaries.

use std::time::Duration;

use primacy_sim::model::{Budget as Faults, Setup};

use super::search::{AGREED, Budget, Identity, KNOWS, ONE, SHORT, Search, Tells};
use primacy_sim::search::{self, Hunt, Model};

/// The counterexamples.
pub fn hunts() -> Vec<Hunt> {
    let none = Budget::default();
    let hunt = |search, breaks, steps| Hunt::new(Search { only: Some(breaks), ..search }, breaks).found_after(steps);
    let same_name =
        |name| Search { identity: Identity::Host, ..Search::new(name, Budget { stops: 1, restarts: 1, ..none }) };
    let counted =
        Search { tells: Tells::Affected, polls: 2, ..Search::new("published MySQL lease: rows are counted", none) };
    vec![
        hunt(Search::new("published MySQL lease: stopped", Budget { stops: 1, ..none }), ONE, 12),
        hunt(Search::new("published MySQL lease: a slow call", Budget { slow: 1, ..none }), ONE, 11),
        hunt(Search::new("published MySQL lease: clock set ahead", Budget { clock_steps: 1, ..none }), ONE, 3),
        hunt(same_name("published MySQL lease: one name, two run"), ONE, 5),
        hunt(same_name("published MySQL lease: and both stay"), AGREED, 6),
        hunt(Search::new("published MySQL lease: forced", Budget { forces: 1, ..none }), ONE, 3),
        hunt(Search::new("published MySQL lease: row deleted", Budget { deletions: 1, ..none }), ONE, 3),
        hunt(
            Search::new("published MySQL lease: clock set back", Budget { clock_steps: 1, crashes: 1, ..none }),
            SHORT,
            15,
        ),
        hunt(Search::new("published MySQL lease: a late update", Budget { slow: 1, crashes: 1, ..none }), SHORT, 18),
        hunt(counted, KNOWS, 2),
    ]
}

/// The product's lease, with the same things happening to its real candidates: they are stopped, their calls are slow or land
/// late, the store's clock tells any age, processes come back under the same name, operators give orders and delete the row.
pub fn held() -> Vec<search::Search> {
    let two = |name, horizon, budget| search::Search::new(Model(Setup { budget, ..Setup::new(name, 2, horizon) }));
    let none = Faults::default();
    let any_age = Setup {
        budget: Faults { faults: 1, ..none },
        age: Some(Duration::from_secs(3_600)),
        ..Setup::new("MySQL lease: the server's clock", 2, 13)
    };
    vec![
        two("MySQL lease: stopped", 14, Faults { pauses: 1, ..none }),
        two("MySQL lease: slow and late calls", 13, Faults { faults: 1, ..none }),
        search::Search::new(Model(any_age)),
        two("MySQL lease: started again", 13, Faults { crashes: 1, ..none }),
        two("MySQL lease: orders", 8, Faults { orders: 1, ..none }),
        two("MySQL lease: the row deleted", 14, Faults { deletions: 1, ..none }),
    ]
}
