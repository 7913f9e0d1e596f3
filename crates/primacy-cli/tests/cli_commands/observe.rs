//! `status`, `list` and `history`.

use primacy::store::EndReason;

use crate::support::{LONG, World};

#[test]
fn status_shows_who_leads_and_who_waits() {
    let (world, _peers) = World::led(&["web-2", "web-3"]);
    let ended = world.run(&["status", "--explain"]);
    assert_eq!((ended.code, ended.err.as_str()), (0, ""), "{ended:?}");
    assert!(ended.out.starts_with("election  default\nleader    web-1 ("), "{}", ended.out);
    assert!(ended.out.contains("\ntoken     1\n"), "{}", ended.out);
    let (second, third) = (ended.out.find("  1  web-2 ("), ended.out.find("  2  web-3 ("));
    assert!(second.is_some() && second < third, "{}", ended.out);
    assert!(ended.out.contains("web-1 leads because it was granted token 1 "), "{}", ended.out);
    assert!(!ended.out.contains('\u{1b}'), "no colour into a pipe");
    assert!(world.run(&["status", "--color", "always"]).out.contains("\u{1b}[32m"));
    assert_eq!(world.run(&["status", "--quiet"]).out, "");
}

#[test]
fn status_tells_a_free_lease_from_an_election_without_candidates() {
    let (world, mut peers) = World::led(&[]);
    world.release(&mut peers[0], EndReason::Finished);
    let ended = world.run(&["status", "--explain"]);
    assert_eq!(ended.code, 1);
    assert!(ended.out.contains("nobody: the lease is free"), "{}", ended.out);
    assert!(ended.out.contains("web-1 ended because its work was finished"), "{}", ended.out);
    let ended = world.run(&["status", "--election", "other"]);
    assert_eq!(ended.code, 1);
    assert!(ended.out.contains("nobody has ever campaigned"), "{}", ended.out);
}

#[test]
fn the_environment_names_store_and_election() {
    let (world, _peers) = World::led(&[]);
    let (_, status) = world.json(&["status"]);
    assert_eq!(status["election"], "default");
    let output = crate::support::primacy(&["status", "--json"])
        .env("PRIMACY_STORE", format!("sqlite:{}", world.folder.path().join("primacy.db").display()))
        .env("PRIMACY_ELECTION", "of the environment")
        .output()
        .expect("it starts");
    let status: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!((&status["election"], &status["state"]), (&"of the environment".into(), &"never".into()));
}

#[test]
fn list_shows_every_election() {
    let (world, _peers) = World::led(&["web-2"]);
    let ended = world.run(&["list"]);
    assert_eq!(ended.code, 0, "{ended:?}");
    let lines: Vec<_> = ended.out.lines().map(|line| line.split_whitespace().collect::<Vec<_>>()).collect();
    assert_eq!(lines[0][..3], ["ELECTION", "LEADER", "TOKEN"]);
    assert_eq!(lines[1][..3], ["default", "web-1", "1"]);
    assert_eq!(lines.len(), 2);
}

#[test]
fn history_tells_who_led_and_why_it_ended() {
    let (world, mut peers) = World::led(&["web-2"]);
    world.release(&mut peers[0], EndReason::Deposed);
    world.acquire(&mut peers[1], LONG);
    let ended = world.run(&["history"]);
    assert_eq!(ended.code, 0, "{ended:?}");
    let lines: Vec<_> = ended.out.lines().collect();
    assert!(lines[1].trim_start().starts_with("2  web-2 (") && lines[1].ends_with("leads now"), "{}", ended.out);
    assert!(lines[2].ends_with("an operator asked for a new election"), "{}", ended.out);
    assert_eq!(world.run(&["history", "--limit", "1"]).out.lines().count(), 2);
    world.run(&["history", "--election", "none"]).is_one_line(1, "nobody has ever campaigned in the election none");
}

#[test]
fn names_that_would_steer_a_terminal_are_shown_escaped() {
    let world = World::new();
    let mut peer = world.peer("evil\u{202e}label 'quoted\"");
    world.acquire(&mut peer, LONG);
    for words in [&["status"][..], &["list"], &["history"], &["watch", "--count", "1"]] {
        let ended = world.run(words);
        assert_eq!(ended.code, 0);
        assert!(!ended.out.contains('\u{202e}') && ended.out.contains("evil\\u{202e}label 'quoted\""), "{ended:?}");
    }
    let (_, status) = world.json(&["status"]);
    assert_eq!(status["leader"]["label"], "evil\u{202e}label 'quoted\"", "programs get it as it is");
}
