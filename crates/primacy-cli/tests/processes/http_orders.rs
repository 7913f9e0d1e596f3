//! Orders over HTTP: what they do, who may give them, and that nothing changes when they are refused.

use std::fs;
use std::process::Stdio;

use serde_json::Value;

use crate::telling::{Answer, Telling};
use crate::world::{STEADY, World};

pub(crate) const SECRET: &str = "c8a1f0d2e4b69753";

impl Telling {
    /// A candidate that takes orders.
    pub(crate) fn taking_orders(world: &World, name: &str) -> Self {
        Self::taking_orders_with(world, name, STEADY)
    }

    /// With these options beside.
    pub(crate) fn taking_orders_with(world: &World, name: &str, options: &[&str]) -> Self {
        let file = world.path("secret");
        fs::write(&file, format!("{SECRET}\n")).expect("a file");
        let file = file.to_str().expect("UTF-8");
        Self::start_with(world, name, &[options, &["--http-token-file", file]].concat())
    }

    /// A question of one who may order.
    pub(crate) fn with_secret(&self, path: &str, secret: &str) -> Answer {
        let host = self.address;
        self.ask(&format!("GET {path} HTTP/1.1\nHost: {host}\nConnection: close\nAuthorization: Bearer {secret}\n\n"))
    }

    /// An order with these fields in its head, each with its end of line.
    fn order(&self, order: &str, fields: &str, body: &str) -> Answer {
        self.order_in("default", order, fields, body)
    }

    /// One to this election.
    pub(crate) fn order_in(&self, election: &str, order: &str, fields: &str, body: &str) -> Answer {
        let (host, length) = (self.address, body.len());
        self.ask(&format!(
            "POST /v1/elections/{election}/{order} HTTP/1.1\nHost: {host}\nConnection: close\nContent-Length: {length}\n{fields}\n{body}"
        ))
    }

    fn ordered(&self, order: &str, body: &str) -> Answer {
        self.order(order, &format!("Authorization: Bearer {SECRET}\n"), body)
    }
}

fn status(world: &World) -> Value {
    let output = world.primacy(["status", "--json"]).output().expect("primacy starts");
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

#[test]
fn an_operator_moves_and_pauses_the_leadership_over_http() {
    let mut world = World::new();
    let first = Telling::taking_orders(&world, "a");
    let led = world.expect_start_after(0);
    let second = Telling::start(&world, "b");
    world.await_candidates(1);

    let answer = first.ordered("promote", &format!("{{\"candidate\": \"b\", \"token\": {}}}", led.token));
    assert_eq!(answer.status(), 200, "{}", answer.0);
    let told = answer.json();
    assert_eq!(
        (&told["order"], &told["successor"], &told["result"]),
        (&"promote".into(), &"b".into(), &"written".into())
    );
    second.await_status("/leader", 200);
    let next = world.expect_start_after(led.token);
    assert_eq!(next.name, "b");
    world.await_candidates(1);

    // One who lags behind orders about a leadership that is over.
    let answer = first.ordered("depose", &format!("{{\"token\": {}}}", led.token));
    assert_eq!(answer.status(), 409, "{}", answer.0);
    assert!(answer.json()["error"].as_str().is_some_and(|error| error.contains("nothing was changed")), "{}", answer.0);
    assert_eq!(status(&world)["token"], next.token);

    assert_eq!(first.ordered("pause", "").json()["result"], "written");
    assert_eq!(first.ordered("pause", "{}").json()["result"], "already");
    assert_eq!(first.ordered("depose", "").status(), 409, "nobody could take over");
    assert_eq!(
        first.get("/v1/elections/default").json()["paused"],
        true,
        "what was known before the order is not told"
    );
    assert_eq!(first.ordered("resume", "").json()["result"], "written");
    assert_eq!(first.ordered("depose", "").json()["result"], "written");
    first.await_status("/leader", 200);
    world.assert_never_two();
}

#[test]
fn who_may_order_what() {
    let mut world = World::new();
    let taking = Telling::taking_orders(&world, "a");
    world.expect_start_after(0);
    let telling = Telling::start(&world, "b");
    world.await_candidates(1);
    let before = status(&world);
    let (right, wrong) = (format!("Authorization: Bearer {SECRET}\n"), "Authorization: Bearer c8a1f0d2e4b69754\n");
    let orders = [("promote", "{\"candidate\": \"b\"}"), ("depose", ""), ("pause", ""), ("resume", "")];
    for (order, body) in orders {
        let refusals = [
            (403, telling.order(order, &right, body), "it takes no orders"),
            (401, taking.order(order, "", body), "no token"),
            (401, taking.order(order, wrong, body), "a wrong token"),
            (401, taking.order(order, &format!("Authorization: Basic {SECRET}\n"), body), "another scheme"),
            (401, taking.order(order, &format!("Authorization: {SECRET}\n"), body), "no scheme"),
            (
                403,
                taking.order(order, &format!("{right}Origin: https://example.org\n"), body),
                "a page of another site",
            ),
            (403, taking.order(order, &format!("{right}Sec-Fetch-Site: cross-site\n"), body), "the same"),
            (405, taking.by("GET", &format!("/v1/elections/default/{order}")), "it is no question"),
            (405, taking.by("PUT", &format!("/v1/elections/default/{order}")), "nor that"),
        ];
        for (status, answer, why) in refusals {
            assert_eq!(answer.status(), status, "{order}, {why}: {}", answer.0);
            assert!(!answer.0.contains(SECRET), "{}", answer.0);
        }
    }
    for (status, order, body) in [
        (400, "promote", ""),
        (400, "promote", "{\"candidate\": \"b\", \"now\": true}"),
        (400, "depose", "["),
        (400, "forget", ""),
        (409, "promote", "{\"candidate\": \"c\"}"),
        (409, "depose", "{\"token\": 4711}"),
        (413, "depose", &" ".repeat(5 << 10)),
    ] {
        let answer = taking.ordered(order, body);
        assert_eq!(answer.status(), status, "{order} {}: {}", &body[..body.len().min(40)], answer.0);
    }
    let other = taking.ask(&format!(
        "POST /v1/elections/billing/pause HTTP/1.1\nHost: {}\nConnection: close\n{right}\n",
        taking.address
    ));
    assert_eq!(other.status(), 404, "{}", other.0);
    let after = status(&world);
    for field in ["token", "paused", "order", "leader"] {
        assert_eq!(after[field], before[field], "{field}");
    }
}

#[test]
fn the_token_of_orders_is_checked_at_the_start_and_is_not_the_programs() {
    let world = World::new();
    let run = |file: Option<&str>, variable: &str, program: &str| {
        let mut command = world.primacy(["run", "--http", "127.0.0.1:0"]);
        if let Some(text) = file {
            fs::write(world.path("secret"), text).expect("a file");
            command.arg("--http-token-file").arg(world.path("secret"));
        }
        command.env("PRIMACY_HTTP_TOKEN", variable).args(["--", "sh", "-c", program]).stdout(Stdio::piped());
        let output = command.output().expect("primacy starts");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.code(), text(&output.stdout), text(&output.stderr))
    };
    for (file, variable, says) in [
        (Some("short"), "", "16 to 512"),
        (Some("two words that are long"), "", "without spaces"),
        (Some(SECRET), SECRET, "keep one of them"),
        (None, "short", "PRIMACY_HTTP_TOKEN"),
    ] {
        let (code, _, said) = run(file, variable, "true");
        assert!(code == Some(2) && said.contains(says) && !said.contains(SECRET), "{code:?} {said}");
    }
    let (code, out, said) = run(None, SECRET, "echo ${PRIMACY_HTTP_TOKEN-none}");
    assert_eq!((code, out.as_str()), (Some(0), "none\n"), "{said}");
    let missing =
        world.primacy(["run", "--http", "127.0.0.1:0", "--http-token-file", "/nowhere", "--", "true"]).output();
    let missing = missing.expect("primacy starts");
    assert_eq!(missing.status.code(), Some(2), "{missing:?}");
}
