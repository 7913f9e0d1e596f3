//! The searches, and the planted bugs that they find.

use primacy_core::hold::Flaw;

use super::properties::{ALONE, CURRENT};
use super::setup::{Budget, Proof, Setup};
use crate::search::Canary;

const CALM: Budget =
    Budget { pauses: 0, agent_pauses: 0, kills: 0, agent_kills: 0, closes: 0, drains: 0, ends: 0, moves: 0 };

/// The complete searches.
pub fn catalogue() -> Vec<Setup> {
    vec![
        Setup::new("hold: stopped, drained, ended", 9, Proof::None, Budget { pauses: 1, drains: 1, ends: 1, ..CALM }),
        Setup::new(
            "hold: killed with its agent",
            9,
            Proof::Process,
            Budget { kills: 1, agent_kills: 1, ends: 1, ..CALM },
        ),
        Setup::new("hold: a process is left", 9, Proof::None, Budget { kills: 1, pauses: 1, drains: 1, ..CALM }),
        Setup::new("hold: closed, and works on", 9, Proof::None, Budget { closes: 1, ends: 1, pauses: 1, ..CALM }),
        Setup::new(
            "hold: agent and program stopped",
            9,
            Proof::None,
            Budget { agent_pauses: 1, pauses: 1, ends: 1, ..CALM },
        ),
        Setup::new("hold: waits, and is told", 8, Proof::None, Budget { moves: 1, ends: 1, ..CALM }),
    ]
}

/// Those that take seconds.
pub fn smoke() -> Vec<Setup> {
    vec![
        Setup::new("hold: stopped", 7, Proof::None, Budget { pauses: 1, ends: 1, ..CALM }),
        Setup::new("hold: killed, alone", 6, Proof::Process, Budget { kills: 1, drains: 1, ..CALM }),
        Setup::new("hold: killed, not alone", 6, Proof::None, Budget { kills: 1, closes: 1, ..CALM }),
    ]
}

/// The planted bugs.
pub fn canaries() -> Vec<Canary<Setup>> {
    let breaking = |flaw, name, budget, breaks| Canary {
        setup: Setup { flaw: Some(flaw), ..Setup::new(name, 9, Proof::None, budget) },
        breaks,
    };
    let planted = |flaw, name, budget| breaking(flaw, name, budget, ALONE);
    vec![
        planted(Flaw::ReleasesWhenDisconnected, "hold: ReleasesWhenDisconnected", Budget { closes: 1, ..CALM }),
        planted(Flaw::ReleasesWhenEnded, "hold: ReleasesWhenEnded", Budget { ends: 1, ..CALM }),
        planted(Flaw::ForgetsTold, "hold: ForgetsTold", Budget { closes: 1, ..CALM }),
        breaking(Flaw::KeepsNews, "hold: KeepsNews", CALM, CURRENT),
        planted(Flaw::StopsWhateverToken, "hold: StopsWhateverToken", Budget { ends: 1, ..CALM }),
    ]
}
