//! `promote`, `depose`, `pause`, `resume` and `forget`.

use primacy::Label;
use primacy::store::{EndReason, HandoverRequest};

use crate::support::{LONG, World};

#[test]
fn promote_waits_for_the_successor_and_says_so() {
    let (world, mut peers) = World::led(&["web-2", "web-3"]);
    let promote = world.start(&["promote", "web-3"]);
    let wanted = Label::new("web-3").expect("valid");
    world.until(|snapshot| snapshot.record.handover == Some(HandoverRequest::Successor(wanted.clone())));
    world.release(&mut peers[0], EndReason::Promoted { successor: wanted });
    world.acquire(&mut peers[2], LONG);
    let ended = promote.end();
    assert_eq!(ended.code, 0, "{ended:?}");
    assert!(ended.out.starts_with("web-3 (") && ended.out.contains(") leads with token 2, "), "{ended:?}");
}

#[test]
fn promote_tells_when_another_leads_instead() {
    let (world, mut peers) = World::led(&["web-2", "web-3"]);
    let promote = world.start(&["promote", "web-3", "--json"]);
    world.until(|snapshot| snapshot.record.handover.is_some());
    world.release(&mut peers[0], EndReason::Resigned);
    world.acquire(&mut peers[1], LONG);
    let ended = promote.end();
    assert_eq!(ended.code, 3, "{ended:?}");
    assert!(ended.err.contains("web-3 did not take the lease in its window"), "{ended:?}");
    let report: serde_json::Value = serde_json::from_str(&ended.out).expect("JSON");
    assert_eq!((&report["result"], &report["outcome"]), (&"written".into(), &"other".into()));
}

#[test]
fn of_candidates_with_one_label_one_is_promoted_by_its_id() {
    let (world, mut peers) = World::led(&["web-2", "web-2"]);
    let ids: Vec<String> = peers.iter().map(|peer| peer.holder.id.to_string()).collect();
    let before = world.snapshot().expect("an election").record;
    let refused = world.run(&["promote", "web-2"]);
    refused.is_one_line(1, "web-2 means 2 candidates: web-2 (");
    // The test's ids differ in their last digits only.
    for said in [&ids[1], &ids[2], &format!("Name one by its id: primacy promote {}", ids[1])] {
        assert!(refused.err.contains(said.as_str()), "{said} in {refused:?}");
    }
    let (code, report) = world.json(&["promote", "web-2", "--force"]);
    assert_eq!((code, &report["result"]), (1, &"ambiguous".into()), "an order that nobody can carry out is no order");
    world.run(&["promote", &ids[1][..8]]).is_one_line(1, "means 3 candidates");
    world.run(&["promote", &ids[1][..3]]).is_one_line(1, "no candidate called 000 waits");
    assert_eq!(world.snapshot().expect("an election").record, before);

    let promote = world.start(&["promote", &ids[2].to_uppercase()]);
    let wanted = Label::new(ids[2].clone()).expect("valid");
    world.until(|snapshot| snapshot.record.handover == Some(HandoverRequest::Successor(wanted.clone())));
    let status = world.run(&["status"]);
    assert!(status.out.contains(&format!("hand over to web-2 ({})", &ids[2][..8])), "{status:?}");
    world.release(&mut peers[0], EndReason::Promoted { successor: wanted });
    world.acquire(&mut peers[2], LONG);
    let ended = promote.end();
    assert_eq!((ended.code, ended.out.contains("leads with token 2")), (0, true), "{ended:?}");
    let again = world.run(&["promote", &ids[2]]);
    assert_eq!((again.code, again.out.contains("leads already")), (0, true), "{again:?}");
}

#[test]
fn another_candidate_with_the_label_does_not_fulfil_a_promotion_by_id() {
    let (world, mut peers) = World::led(&["web-2", "web-2"]);
    let promote = world.start(&["promote", &peers[2].holder.id.to_string()]);
    world.until(|snapshot| snapshot.record.handover.is_some());
    world.release(&mut peers[0], EndReason::Resigned);
    world.acquire(&mut peers[1], LONG);
    let ended = promote.end();
    assert_eq!(ended.code, 3, "{ended:?}");
    assert!(ended.err.contains("did not take the lease in its window"), "{ended:?}");
}

#[test]
fn status_warns_of_candidates_with_one_label() {
    let (world, peers) = World::led(&["web-1", "web-2"]);
    let status = world.run(&["status"]);
    assert!(status.out.contains("warning   2 candidates are called web-1: "), "{status:?}");
    let ids: Vec<_> = peers[..2].iter().map(|peer| peer.holder.id.to_string()).collect();
    let (_, report) = world.json(&["status"]);
    assert_eq!(report["namesakes"], serde_json::json!([{ "label": "web-1", "ids": ids }]));
}

#[test]
fn depose_waits_for_anybody_else() {
    let (world, mut peers) = World::led(&["web-2"]);
    let depose = world.start(&["depose"]);
    world.until(|snapshot| snapshot.record.handover == Some(HandoverRequest::NewElection));
    world.release(&mut peers[0], EndReason::Deposed);
    world.acquire(&mut peers[1], LONG);
    let ended = depose.end();
    assert_eq!(ended.code, 0, "{ended:?}");
    assert!(ended.out.contains("web-2 ("), "{ended:?}");
}

#[test]
fn orders_that_cannot_come_true_change_nothing() {
    let (world, _peers) = World::led(&["web-2"]);
    let before = world.snapshot().expect("an election").record;
    world.run(&["promote", "web-9"]).is_one_line(1, "no candidate called web-9 waits (waiting: web-2)");
    world.run(&["promote", "web-2", "--token", "7"]).is_one_line(1, "the last granted token is 1, not 7");
    world.run(&["depose", "--token", "0"]).is_one_line(1, "the last granted token is 1, not 0");
    for words in [&["promote", "web-2"][..], &["depose"], &["pause"], &["resume"]] {
        world.run(&[words, &["--election", "none"]].concat()).is_one_line(1, "nobody has ever campaigned");
    }
    let ended = world.run(&["promote", "web-1"]);
    assert_eq!(ended.code, 0);
    assert!(ended.out.contains("leads already"), "{ended:?}");
    assert_eq!(world.snapshot().expect("an election").record, before);
}

#[test]
fn an_order_is_idempotent_and_force_gives_it_for_the_future() {
    let (world, _peers) = World::led(&[]);
    let force = ["promote", "web-9", "--force", "--no-wait"];
    assert_eq!(world.json(&force).1["result"], "written");
    let once = world.snapshot().expect("an election").record;
    let (code, again) = world.json(&force);
    assert_eq!((code, &again["result"]), (0, &"already".into()));
    assert_eq!(world.snapshot().expect("an election").record, once);
}

#[test]
fn now_empties_the_record_and_says_what_it_risks() {
    let (world, _peers) = World::led(&["web-2"]);
    let ended = world.run(&["depose", "--now", "--no-wait"]);
    assert_eq!(ended.code, 0, "{ended:?}");
    assert!(ended.err.contains("two may lead"), "{ended:?}");
    assert_eq!(world.snapshot().expect("an election").record.holder, None);
    let ended = world.run(&["depose"]);
    assert_eq!((ended.code, ended.out.as_str()), (0, "nobody leads; nothing was changed\n"));
}

#[test]
fn pause_and_resume_hold_the_election_still() {
    let (world, _peers) = World::led(&["web-2"]);
    assert_eq!(world.json(&["pause"]).1["result"], "written");
    assert_eq!(world.json(&["pause"]).1["result"], "already");
    assert!(world.snapshot().expect("an election").record.paused);
    assert!(world.run(&["status"]).out.contains("paused"));
    world.run(&["promote", "web-2"]).is_one_line(1, "the election is paused");
    let ended = world.run(&["resume"]);
    assert_eq!((ended.code, ended.out.starts_with("resumed: web-1 leads")), (0, true), "{ended:?}");
    assert_eq!(world.run(&["resume"]).out, "was not paused\n");
}

#[test]
fn a_running_program_hears_that_it_is_deposed() {
    let world = World::new();
    // With a grace this long, a program deaf to SIGTERM would be killed long after the test's patience.
    let run = |name: &'static str| {
        world.start(&[
            "run",
            "--name",
            name,
            "--lease",
            "24h",
            "--grace",
            "1h",
            "--",
            "sh",
            "-c",
            "echo $PRIMACY_TOKEN; exec sleep 1000",
        ])
    };
    let mut first = run("first");
    assert_eq!(first.line(), "1\n");
    let mut second = run("second");
    world.until(|snapshot| snapshot.candidates.len() == 1);
    let ended = world.run(&["depose"]);
    assert_eq!(ended.code, 0, "{ended:?}");
    assert!(ended.out.starts_with("second ("), "{ended:?}");
    assert_eq!(second.line(), "2\n");
    first.kill();
    second.kill();
    // Its warden gives the lease back, and would try for as long as that lasts if the store were gone before.
    world.until(|snapshot| snapshot.leader().is_none());
}

#[test]
fn a_store_that_is_not_there_yet_is_waited_for_if_asked() {
    let world = World::new();
    let watch = world.start(&["watch", "--until-leader", "--wait", "60s"]);
    world.acquire(&mut world.peer("web-1"), LONG);
    assert_eq!(watch.end().code, 0);
}

#[test]
fn forget_leaves_the_token_alone() {
    let (world, mut peers) = World::led(&["web-2"]);
    let hints = world.folder.path().join("primacy.db.hints");
    let files = || std::fs::read_dir(&hints).map_or(0, Iterator::count);
    world.run(&["forget", "none"]).is_one_line(1, "nobody has ever campaigned in the election none");
    world
        .run(&["forget", "default"])
        .is_one_line(1, "leads in default; nothing was changed. Stop its candidates first");
    world.release(&mut peers[0], EndReason::Withdrawn);
    let (code, refused) = world.json(&["forget", "default"]);
    assert_eq!((code, &refused["result"]), (1, &"candidates".into()), "{refused}");
    world.leave(&mut peers[1]);
    assert_eq!(world.run(&["pause"]).code, 0);
    world.run(&["forget", "default"]).is_one_line(1, "is paused, and the pause would be forgotten too");
    assert_eq!(world.run(&["resume"]).code, 0);
    assert_eq!(files(), 1, "its hint file");
    let ended = world.run(&["forget", "default"]);
    assert_eq!(ended.code, 0, "{ended:?}");
    assert_eq!(ended.out, "default is forgotten; if it begins again, its tokens go on above 2\n");
    assert_eq!(files(), 0);
    let (code, again) = world.json(&["forget", "default"]);
    assert_eq!((code, &again["result"], &again["after"]["state"]), (0, &"already".into(), &"forgotten".into()));
    assert!(world.json(&["list"]).1["elections"].as_array().is_some_and(Vec::is_empty));
    let ended = world.run(&["status", "--explain"]);
    assert!(ended.code == 1 && ended.out.contains("the election is forgotten"), "{ended:?}");
    world.run(&["pause"]).is_one_line(1, "the election default is forgotten; nothing was changed");
    world.run(&["depose"]).is_one_line(1, "the election default is forgotten; nothing was changed");
    let ended = world.run(&["history"]);
    assert!(ended.code == 0 && ended.err.contains("the history begins with token 2"), "{ended:?}");
    assert_eq!(world.acquire_above(&mut peers[1], LONG).version.token.get(), 3);
    assert_eq!(world.json(&["status"]).1["token"], 3);
}

#[test]
fn what_was_shown_before_its_record_was_deleted_is_not_as_if_it_had_never_been() {
    let (world, mut peers) = World::led(&[]);
    let delete =
        "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); c.execute('DELETE FROM primacy_election'); c.commit()";
    let file = world.folder.path().join("primacy.db");
    let deleted = std::process::Command::new("python3").args(["-c", delete]).arg(file).status().expect("it starts");
    assert!(deleted.success(), "somebody deletes it");
    let (code, status) = world.json(&["status", "--explain"]);
    assert_eq!((code, &status["state"], &status["token"]), (1, &"unknown".into(), &1.into()), "{status}");
    assert_eq!(status["silent_holder"]["label"], "web-1");
    assert!(status["explanation"].to_string().contains("such as a pause, are lost"), "{status}");
    assert_eq!(world.json(&["list"]).1["elections"][0]["state"], "unknown");
    world.run(&["pause"]).is_one_line(1, "the election's record is gone");
    world.run(&["promote", "web-1"]).is_one_line(1, "the election's record is gone");
    assert_eq!(world.acquire_above(&mut peers[0], LONG).version.token.get(), 2);
}
