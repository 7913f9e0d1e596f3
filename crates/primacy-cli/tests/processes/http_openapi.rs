//! The document about HTTP and what is answered: neither says what the other does not.

use std::io::Write as _;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::http_events::Follower;
use crate::http_orders::SECRET;
use crate::telling::{Answer, Telling};
use crate::world::World;

/// What is said by a validator of the document and these answers.
fn complaints(document: &Value, answers: &[Value]) -> String {
    let mut command = Command::new("/usr/bin/python3");
    command.arg("-Wignore").arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/processes/openapi.py"));
    let mut validator = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("python3 starts");
    let said = json!({ "document": document, "answers": answers }).to_string();
    validator.stdin.take().expect("piped").write_all(said.as_bytes()).expect("it reads");
    let output = validator.wait_with_output().expect("it ends");
    assert!(output.status.success(), "python3-jsonschema is there: cargo xtask services");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn met(method: &str, path: &str, answer: &Answer) -> Value {
    let head = answer.0.to_lowercase();
    let kind = head.split_once("content-type: ").map(|(_, rest)| rest.split([';', '\r']).next().unwrap_or_default());
    json!({ "method": method, "path": path, "status": answer.status(), "type": kind, "body": answer.body() })
}

#[test]
fn the_document_says_what_is_answered_and_nothing_else() {
    let mut world = World::new();
    let first = Telling::taking_orders(&world, "a");
    let led = world.expect_start_after(0);
    let second = Telling::start(&world, "b");
    world.await_candidates(1);
    let mut answers = Vec::new();
    let (here, there) = ("/v1/elections/{name}", "/v1/elections/default");
    for (path, asked) in [
        ("/leader", "/leader"),
        ("/leader", "/leader?election=billing"),
        ("/primary", "/primary?election=default"),
        ("/primary", "/primary?election=billing"),
        ("/candidate", "/candidate"),
        ("/candidate", "/candidate?election=billing"),
        ("/replica", "/replica"),
        ("/replica", "/replica?election=billing"),
        ("/healthz", "/healthz"),
        ("/readyz", "/readyz"),
        ("/metrics", "/metrics"),
        ("/v1/process", "/v1/process"),
        ("/v1/openapi.json", "/v1/openapi.json"),
        ("/v1/elections", "/v1/elections"),
        (here, there),
        (here, "/v1/elections/billing"),
        (here, "/v1/elections/%ff"),
    ] {
        answers.extend([&first, &second].map(|telling| met("get", path, &telling.get(asked))));
    }
    for (what, asked, status) in [
        ("history", "/v1/elections/default/history", 200),
        ("history", "/v1/elections/default/history?limit=0", 400),
        ("history", "/v1/elections/default/history?limit=x", 400),
        ("history", "/v1/elections/billing/history", 404),
        ("events", "/v1/elections/billing/events", 404),
    ] {
        let answer = first.get(asked);
        assert_eq!(answer.status(), status, "{}", answer.0);
        answers.push(met("get", &format!("{here}/{what}"), &answer));
    }
    let wrong = format!("GET {there}/events HTTP/1.1\nHost: {}\nLast-Event-ID: x\n\n", first.address);
    answers.push(met("get", &format!("{here}/events"), &first.ask(&wrong)));

    for (asked, secret, status) in
        [("/v1/doctor", SECRET, 200), ("/v1/doctor?lease=x", SECRET, 400), ("/v1/doctor", "c8a1f0d2e4b69754", 401)]
    {
        let answer = first.with_secret(asked, secret);
        assert_eq!(answer.status(), status, "{}", answer.0);
        answers.push(met("get", "/v1/doctor", &answer));
    }

    let order = |answers: &mut Vec<Value>, order: &str, election: &str, secret: &str, body: &str| {
        let answer = first.order_in(election, order, &format!("Authorization: Bearer {secret}\n"), body);
        let mut met = met("post", &format!("{here}/{order}"), &answer);
        met["sent"] = body.into();
        answers.push(met);
        answer.status()
    };
    let old = "{\"token\": 4711}";
    for (word, body, wrong) in [
        ("promote", "{\"candidate\": \"b\", \"token\": 1}", "{\"candidate\": \"nobody\"}"),
        ("pause", "{}", ""),
        ("resume", "", ""),
        ("depose", "", old),
    ] {
        assert_eq!(order(&mut answers, word, "billing", SECRET, body), 404);
        assert_eq!(order(&mut answers, word, "default", "c8a1f0d2e4b69754", body), 401);
        assert_eq!(order(&mut answers, word, "default", SECRET, "{\"x\": 1}"), 400);
        if !wrong.is_empty() {
            assert_eq!(order(&mut answers, word, "default", SECRET, wrong), 409);
        }
        assert_eq!(order(&mut answers, word, "default", SECRET, body), 200, "{word}");
        if word == "promote" {
            world.expect_start_after(led.token);
            world.await_candidates(1);
        }
    }
    // A client that comes back is told of both kinds of events.
    let mut follower = Follower::start(second.address, "Last-Event-ID: 0\n");
    let told = [follower.next(), follower.next()].map(|event| event.expect("an event"));
    let told = told.map(|event| json!({ "name": event.name, "data": event.data }));
    assert_eq!((&told[0]["name"], told.len()), (&"term".into(), 2), "{told:?}");
    let stream = json!({ "method": "get", "path": format!("{here}/events"), "status": 200, "type": "text/event-stream", "events": told });
    answers.push(stream);

    let document = first.get("/v1/openapi.json").json();
    let said = complaints(&document, &answers);
    let may_be_missing = |line: &&str| {
        // An agent's, and an order that cannot be refused.
        (line.contains("/leader 400") || line.contains("/primary 400"))
            || (line.contains("/candidate 400") || line.contains("/replica 400"))
            || (line.contains("/pause 409") || line.contains("/resume 409"))
    };
    let said: Vec<_> = said.lines().filter(|line| !may_be_missing(line)).collect();
    assert!(said.is_empty(), "{said:#?}");

    // What the validator is for.
    let (mut less, mut more, mut other) = (answers.clone(), answers.clone(), answers.clone());
    for (changed, change) in [(&mut less, "\"version\""), (&mut more, "\"store\""), (&mut other, "\"takes_orders\": ")]
    {
        let process = changed.iter_mut().find(|answer| answer["path"] == "/v1/process").expect("it was asked");
        let body = process["body"].as_str().expect("text");
        let new = match change {
            "\"version\"" => body.replace(change, "\"another\""),
            "\"store\"" => body.replacen(change, "\"new\": 1, \"store\"", 1),
            _ => body.replacen(change, "\"takes_orders\": \"yes\", \"x\": ", 1),
        };
        process["body"] = new.into();
        assert!(complaints(&document, changed).contains("/v1/process 200"), "{change} is not missed");
    }
    world.assert_never_two();
}
