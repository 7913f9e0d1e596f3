//! A few real elections of each contest.

use super::*;

/// Far more than an election takes, also where the machine stalls.
const PATIENCE: Duration = Duration::from_secs(20);

/// Few enough that all contests together take seconds.
fn few(contest: Which, peers: u16, network: Network, elections: usize, seed: u64) -> Figures {
    let network = Arc::new(network);
    let setup =
        Setup { peers, network: Arc::clone(&network), elections, patience: PATIENCE, rest: Duration::ZERO, seed };
    let trials = contest.measure(&setup).expect("it can be measured");
    Figures::of(contest, peers, &network, trials)
}

fn local() -> Network {
    Network::loopback(Duration::from_millis(300))
}

#[test]
fn every_repaired_contest_ends_with_one_grant_whether_the_leader_is_killed_or_falls_silent() {
    for contest in Which::value_variants().iter().copied().filter(|contest| contest.is_granted()) {
        let figures = few(contest, 3, local(), 2, 7);
        // No overlap: no lease was taken from a leader that could still believe in it.
        assert_eq!((figures.trials.len(), figures.undecided, figures.overlaps), (2, 0, 0), "{figures}");
        assert!(figures.trials.iter().all(|trial| trial.grant_messages >= 2), "{figures}");
    }
}

#[test]
fn the_published_contests_find_a_leader_too() {
    for contest in Which::value_variants().iter().copied().filter(|contest| !contest.is_granted()) {
        let figures = few(contest, 3, local(), 2, 7);
        assert_eq!(figures.trials.len() + figures.undecided, 2, "{figures}");
        assert!(!figures.trials.is_empty(), "{figures}");
        assert!(figures.trials.iter().all(|trial| trial.grant_messages == 0), "{figures}");
    }
}

#[test]
fn the_lot_among_five_takes_as_many_messages_as_the_paper_says() {
    // Four peers live: 2v - 1. A loaded machine may make more of it, and never less.
    const MESSAGES: usize = 7;
    let mut told = Vec::new();
    for seed in 7..14 {
        let figures = few(Which::Roulette, 5, local(), 3, seed);
        let messages: Vec<_> = figures.trials.iter().map(|trial| trial.contest_messages).collect();
        assert!(messages.iter().all(|messages| *messages >= MESSAGES), "{figures}");
        if messages.contains(&MESSAGES) {
            return;
        }
        told.push(messages);
    }
    panic!("none of these took {MESSAGES}: {told:?}");
}

#[test]
fn peers_far_apart_take_as_long_as_their_messages() {
    let figures = few(Which::LowestId, 5, Network::sites(Duration::from_millis(600)), 1, 7);
    // The next is cern. Its second nearest is caltech, 182 ms there and back, and a grant takes two round trips.
    let trial = figures.trials.first().expect("an election");
    assert!(trial.to_lead >= 360_000_000, "{figures}");
}
