//! Who may do what through an agent, what is refused, and how its configuration changes while programs lead.

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::channel;
use std::time::Instant;

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::agent::Agent;
use crate::telling::Telling;
use crate::world::{PATIENCE, World, now, pause};

/// A connection to an agent.
struct Caller(BufReader<UnixStream>);

impl Caller {
    fn connect(socket: &Path) -> Self {
        let stream = UnixStream::connect(socket).expect("it listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("it can be set");
        let mut caller = Self(BufReader::new(stream));
        assert_eq!(caller.next().expect("it speaks first")["type"], "agent");
        caller
    }

    fn say(&mut self, bytes: &[u8]) {
        // One that is refused before all of it was said has been refused.
        let _ = self.0.get_mut().write_all(bytes);
    }

    fn next(&mut self) -> Option<Value> {
        let mut line = String::new();
        let count = self.0.read_line(&mut line).ok()?;
        (count > 0).then(|| serde_json::from_str(&line).expect("it says JSON"))
    }

    /// A point in time is that of the moment in which it is said.
    fn ask(socket: &Path, request: &Value) -> Self {
        let mut caller = Self::connect(socket);
        let mut request = request.clone();
        if let Some(now_ns) = request.get_mut("now_ns") {
            *now_ns = now().into();
        }
        caller.say(format!("{request}\n").as_bytes());
        caller
    }
}

fn hold(election: &str) -> Value {
    json!({"type": "hold", "protocol": 1, "election": election, "now_ns": now()})
}

/// What is said, and the code with which this is refused, after which the connection ends.
fn refused(socket: &Path, request: &dyn Fn() -> Vec<u8>) -> (Vec<u8>, String) {
    let mut caller = Caller::connect(socket);
    let bytes = request();
    caller.say(&bytes);
    let said = caller.next().expect("it answers");
    assert_eq!(said["type"], "refused", "{said}");
    assert!(said["why"].as_str().is_some_and(|why| !why.is_empty()), "{said}");
    assert!(caller.next().is_none(), "the connection ends");
    (bytes, said["code"].as_str().expect("a word").to_owned())
}

fn with(mut request: Value, field: &str, value: Value) -> Vec<u8> {
    request[field] = value;
    format!("{request}\n").into_bytes()
}

fn configured(world: &World, text: &str) -> Agent {
    let path = world.path("agent.toml");
    fs::write(&path, text).expect("a file");
    Agent::start(world, "a", &["--config", path.to_str().expect("UTF-8")])
}

#[test]
fn what_cannot_be_read_or_done_is_refused_and_disturbs_nobody() {
    let world = World::new();
    let agent = configured(&world, "[[election]]\nname = \"billing\"\n");
    let socket = &agent.socket;
    let mut leader = Caller::ask(socket, &hold("billing"));
    while leader.next().expect("it leads soon")["type"] != "elected" {}

    const SECOND: u64 = 1_000_000_000;
    let order = || json!({"type": "order", "protocol": 1, "election": "billing", "order": "depose"});
    // Each is made when it is said: a point in time that is too old is refused for that.
    let requests: &[(&dyn Fn() -> Vec<u8>, &str)] = &[
        (&|| b"\n".to_vec(), "malformed"),
        (&|| b"{}\n".to_vec(), "malformed"),
        (&|| b"GET / HTTP/1.1\r\n\r\n".to_vec(), "malformed"),
        (&|| b"\xff\xfe\x00\n".to_vec(), "malformed"),
        (&|| vec![b'x'; 20_000], "malformed"),
        (&|| format!("{}\n", "[".repeat(16_000)).into_bytes(), "malformed"),
        (&|| with(hold("billing"), "type", "become-root".into()), "malformed"),
        (&|| with(hold("billing"), "protocol", 2.into()), "protocol"),
        (&|| with(hold("billing"), "election", "".into()), "malformed"),
        (&|| with(hold("billing"), "name", "a\u{7}".into()), "malformed"),
        (&|| with(hold("billing"), "data", "x".repeat(1_025).into()), "malformed"),
        (&|| with(hold("billing"), "proof", "word of honour".into()), "malformed"),
        (&|| with(hold("billing"), "now_ns", (now() - SECOND).into()), "clock"),
        (&|| with(hold("billing"), "now_ns", (now() + SECOND).into()), "clock"),
        (&|| with(hold("other"), "data", "".into()), "no-such-election"),
        (&|| with(json!({"type": "observe", "protocol": 1}), "election", "other".into()), "no-such-election"),
        (&|| with(order(), "order", "destroy".into()), "malformed"),
        (&|| with(order(), "candidate", "b".into()), "malformed"),
        (&|| with(order(), "token", 1.into()), "malformed"),
        (&|| with(order(), "token", "x".into()), "malformed"),
        (&|| with(order(), "token", "9".into()), "refused"),
        (&|| with(order(), "order", "promote".into()), "malformed"),
    ];
    for (request, code) in requests {
        let (bytes, said) = refused(socket, request);
        assert_eq!(said, *code, "{}", String::from_utf8_lossy(&bytes[..bytes.len().min(200)]));
    }
    // Those that say nothing, or go in the middle of a word.
    let silent = Caller::connect(socket);
    let mut half = Caller::connect(socket);
    half.say(b"{\"type\": \"ho");
    drop(half);
    let list = agent.list(&world).expect("it answers");
    assert_eq!(list["holds"].as_array().map(Vec::len), Some(1), "{list}");
    assert_eq!(list["holds"][0]["standing"], "leads", "{list}");
    drop(silent);
}

#[test]
fn words_that_a_holder_must_not_say_end_its_connection_and_give_nothing_back() {
    let world = World::new();
    let agent = configured(&world, "[[election]]\nname = \"billing\"\nlease = \"10m\"\n");
    for wrong in [&b"nonsense\n"[..], b"{\"type\": \"stopped\", \"token\": 1}\n", b"{\"type\": \"hold\"}\n", b"\0\n"] {
        let mut leader = Caller::ask(&agent.socket, &with_election(hold("billing"), wrong));
        // The one before has not given the lease back: nobody leads beside it.
        let said = leader.next().expect("it answers");
        assert_eq!(said["type"], "waiting", "{said}");
        leader.say(wrong);
        while leader.next().is_some() {}
    }
    // Tokens that are not its own, and numbers of frames that were not sent.
    let mut leader = Caller::ask(&agent.socket, &hold("billing"));
    let mut elected = leader.next().expect("it answers");
    while elected["type"] != "elected" {
        elected = leader.next().expect("it answers");
    }
    leader.say(b"{\"type\": \"stopped\", \"token\": \"999\"}\n{\"type\": \"read\", \"n\": 999999}\n");
    let order = json!({"type": "order", "protocol": 1, "election": "billing", "order": "pause"});
    let mut operator = Caller::ask(&agent.socket, &order);
    assert_eq!(operator.next().expect("it answers")["type"], "ordered");
    let list = agent.list(&world).expect("it answers");
    let leads = list["holds"].as_array().expect("a list").iter().filter(|hold| hold["standing"] == "leads").count();
    assert_eq!(leads, 1, "{list}");
}

/// So that each has a name of its own in the log.
fn with_election(mut request: Value, name: &[u8]) -> Value {
    request["name"] = format!("says-{}", name.len()).into();
    request
}

/// Says to the agent what its standard input has, as another user, and prints what it says.
const SPEAKER: &str = r#"
import json, socket, sys, time
link = socket.socket(socket.AF_UNIX)
link.settimeout(20)
try:
    link.connect(sys.argv[1])
except PermissionError:
    print("not-connected")
    sys.exit()
lines = link.makefile("rwb")
json.loads(lines.readline())
request = json.loads(sys.argv[2])
request["now_ns"] = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
lines.write(json.dumps(request).encode() + b"\n")
lines.flush()
said = json.loads(lines.readline())
print(said.get("code", said["type"]))
"#;

#[test]
fn each_user_may_do_what_the_configuration_says() {
    let world = World::within(tempfile::tempdir_in("/tmp").expect("a folder"));
    let folder = world.path("");
    fs::set_permissions(&folder, Permissions::from_mode(0o711)).expect("it is ours");
    let agent = configured(
        &world,
        "group = \"40000\"\n\
         [[election]]\nname = \"billing\"\nholders = [\"40001\", \"@40004\"]\noperators = [\"40002\"]\n\
         [[election]]\nname = \"free/*\"\n",
    );
    // It knows the election.
    let mut first = Caller::ask(&agent.socket, &hold("billing"));
    while first.next().expect("it leads soon")["type"] != "elected" {}

    let asks = |user: Option<(u32, u32, &str)>, request: &Value| {
        let mut command = Command::new("setpriv");
        if let Some((uid, gid, groups)) = user {
            command.args([format!("--reuid={uid}"), format!("--regid={gid}"), format!("--groups={groups}")]);
        }
        command.args(["/usr/bin/python3", "-c", SPEAKER]).arg(&agent.socket).arg(request.to_string());
        let output = command.stdin(Stdio::null()).output().expect("it starts");
        assert!(output.status.success(), "{output:?}");
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    };
    let free = hold("free/7");
    let look = json!({"type": "observe", "protocol": 1, "election": "billing"});
    let order = json!({"type": "order", "protocol": 1, "election": "billing", "order": "resume"});
    let list = json!({"type": "list", "protocol": 1});
    let requests = [&hold("billing"), &free, &look, &order, &list];
    let matrix = [
        ("root", None, ["waiting", "waiting", "seen", "ordered", "holds"]),
        ("a holder", Some((40_001, 50_001, "40000")), ["waiting", "waiting", "seen", "not-allowed", "holds"]),
        (
            "of a group of holders",
            Some((40_003, 40_004, "40000")),
            ["waiting", "waiting", "seen", "not-allowed", "holds"],
        ),
        ("an operator", Some((40_002, 50_002, "40000")), ["not-allowed", "waiting", "seen", "ordered", "holds"]),
        (
            "another of the group",
            Some((40_005, 50_005, "40000")),
            ["not-allowed", "waiting", "not-allowed", "not-allowed", "holds"],
        ),
        ("a stranger", Some((40_006, 50_006, "50006")), ["not-connected"; 5]),
    ];
    let manual = include_str!("../../../../docs/manual/agent.md");
    for (who, user, expected) in matrix {
        let said: Vec<String> = requests.iter().map(|request| asks(user, request)).collect();
        assert_eq!(said, expected, "{who}");
        assert!(manual.contains(&format!("| {who} |")), "the manual has no row for {who}");
    }
    // Others see their own holds only.
    let list: Value = serde_json::from_slice(
        &Command::new("setpriv")
            .args(["--reuid=40005", "--regid=50005", "--groups=40000"])
            .arg(env!("CARGO_BIN_EXE_primacy"))
            .args(["agent", "list", "--json", "--socket"])
            .arg(&agent.socket)
            .output()
            .expect("it starts")
            .stdout,
    )
    .expect("it prints JSON");
    // What this user has held just now may last until its deadline.
    let shown = list["holds"].as_array().expect("a list");
    assert!(shown.iter().all(|hold| hold["uid"] == 40_005), "{list}");
}

#[test]
fn a_configuration_is_read_again_and_no_leadership_is_lost() {
    let world = World::new();
    let agent = configured(&world, "[[election]]\nname = \"billing\"\nlease = \"6s\"\ngrace = \"1s\"\n");
    let mut leader = Caller::ask(&agent.socket, &hold("billing"));
    let (tell, told) = channel();
    std::thread::spawn(move || {
        while let Some(said) = leader.next() {
            leader.say(format!("{{\"type\": \"read\", \"n\": {}}}\n", said["n"]).as_bytes());
            drop(tell.send(said));
        }
    });
    let next = || told.recv_timeout(PATIENCE).expect("it is told");
    let mut token = Value::Null;
    while token.is_null() {
        token = next()["token"].clone();
    }
    let path = world.path("agent.toml");
    let awaits = |code: Option<&str>, election: &str| {
        let end = Instant::now() + PATIENCE;
        loop {
            let mut caller =
                Caller::ask(&agent.socket, &json!({"type": "observe", "protocol": 1, "election": election}));
            let said = caller.next().expect("it answers");
            if said["code"].as_str() == code {
                return;
            }
            assert!(Instant::now() < end, "{said}");
        }
    };
    fs::write(&path, "[[election]]\nname = \"reports\"\n").expect("a file");
    agent.runner.send(Signal::SIGHUP);
    awaits(Some("no-such-election"), "billing");
    awaits(None, "reports");
    fs::write(&path, "[[election]]\nname = \n").expect("a file");
    agent.runner.send(Signal::SIGHUP);
    awaits(None, "reports");
    // It is extended as before.
    let mut extended: Vec<Value> = told.try_iter().collect();
    extended.extend([next(), next()]);
    assert!(extended.iter().all(|said| said["type"] == "extended" && said["token"] == token), "{extended:?}");
}

#[test]
fn a_configuration_is_checked_as_a_whole() {
    let world = World::new();
    let path = world.path("agent.toml");
    let check = || {
        let output = world.primacy(["agent", "check", "--config"]).arg(&path).output().expect("it starts");
        let said = String::from_utf8_lossy(if output.status.success() { &output.stdout } else { &output.stderr });
        (output.status.code(), said.into_owned())
    };
    let mut said = BTreeMap::new();
    for (name, text) in [
        ("right", "[[election]]\nname = \"a\"\n\n[[election]]\nname = \"b/*\"\n"),
        ("wrong", "[[election]]\nname = \"a\"\nlease = \"1 fortnight\"\n"),
        ("secret", "store = \"postgres://u:hush@db/x\"\n[[election]]\nname = \"a\"\n"),
    ] {
        fs::write(&path, text).expect("a file");
        fs::set_permissions(&path, Permissions::from_mode(0o644)).expect("it is ours");
        said.insert(name, check());
    }
    assert_eq!(said["right"], (Some(0), "the configuration is right: 2 elections\n".to_owned()));
    assert!(said["wrong"].0 == Some(2) && said["wrong"].1.contains("line 3: lease: "), "{said:?}");
    assert!(said["secret"].0 == Some(2) && said["secret"].1.contains("chmod 600"), "{said:?}");
    assert!(!said["secret"].1.contains("hush"), "{said:?}");
    fs::set_permissions(&path, Permissions::from_mode(0o600)).expect("it is ours");
    assert_eq!(check().0, Some(0));
}

#[test]
fn a_place_where_others_could_put_another_socket_is_refused() {
    let world = World::new();
    let folder = world.path("sockets");
    fs::create_dir(&folder).expect("its parent is ours");
    for mode in [0o777, 0o770] {
        fs::set_permissions(&folder, Permissions::from_mode(mode)).expect("it is ours");
        let output = world.primacy(["agent", "--socket"]).arg(folder.join("s")).output().expect("it starts");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(69) && said.contains("may put another socket in its place"), "{said}");
    }
}

#[test]
fn who_looks_is_told_of_each_change() {
    let world = World::new();
    let agent = configured(&world, "[[election]]\nname = \"billing\"\nlease = \"2s\"\n");
    let mut request = hold("billing");
    request["name"] = "web-1".into();
    let mut leader = Caller::ask(&agent.socket, &request);
    let mut elected = leader.next().expect("it answers");
    while elected["type"] != "elected" {
        elected = leader.next().expect("it answers");
    }
    let mut observer = Caller::ask(&agent.socket, &json!({"type": "observe", "protocol": 1, "election": "billing"}));
    let mut seen = |leader: Option<&str>| {
        loop {
            let said = observer.next().expect("it tells");
            observer.say(format!("{{\"type\": \"read\", \"n\": {}}}\n", said["n"]).as_bytes());
            if said["status"]["leader"]["label"].as_str() == leader {
                return said["status"].clone();
            }
        }
    };
    assert_eq!(seen(Some("web-1"))["token"].to_string(), elected["token"].as_str().expect("digits"));
    // Its lease runs out, and nobody says so.
    drop(leader);
    assert_eq!(seen(None)["election"], "billing");
}

#[test]
fn an_agent_tells_over_http_of_all_its_programs() {
    let world = World::new();
    let socket = world.path("a.sock");
    let mut command = world.primacy(["agent", "--lease", "10m", "--http", "127.0.0.1:0", "--socket"]);
    command.arg(&socket);
    let telling = Telling::of(command);
    let end = Instant::now() + PATIENCE;
    while UnixStream::connect(&socket).is_err() {
        assert!(Instant::now() < end, "the agent does not listen");
        pause();
    }
    assert_eq!(telling.get("/leader").status(), 400, "an election must be named, however many there are");
    assert_eq!(telling.get("/leader?election=billing").status(), 404, "nobody campaigns");
    assert_eq!((telling.get("/healthz").status(), telling.get("/readyz").status()), (200, 200));
    assert_eq!(telling.get("/v1/elections").json()["elections"], json!([]));

    let mut holders = Vec::new();
    for (election, name) in [("billing", "b-1"), ("billing", "b-2"), ("reports", "r-1")] {
        let mut request = hold(election);
        request["name"] = name.into();
        holders.push(Caller::ask(&socket, &request));
        // The first of an election leads, and the second waits behind it.
        let wanted = if name == "b-2" { 1 } else { 0 };
        let end = Instant::now() + PATIENCE;
        loop {
            let status = world.primacy(["status", "--json", "--election", election]).output().expect("it starts");
            let status: Value = serde_json::from_slice(&status.stdout).unwrap_or_default();
            let waiting = status["candidates"].as_array().map_or(0, Vec::len);
            if status["leader"].is_object() && waiting == wanted {
                break;
            }
            assert!(Instant::now() < end, "{status}");
        }
    }
    telling.await_status("/leader?election=billing", 200);
    telling.await_status("/candidate?election=billing", 200);
    telling.await_status("/leader?election=reports", 200);
    assert_eq!(telling.get("/leader?election=billing").json()["label"], "b-1");
    assert_eq!(telling.get("/candidate?election=billing").json()["label"], "b-2");
    assert_eq!(telling.get("/candidate?election=reports").status(), 503);
    assert_eq!(telling.get("/leader?election=other").status(), 404);
    let list = telling.get("/v1/elections").json();
    let leaders: Vec<_> =
        list["elections"].as_array().expect("a list").iter().map(|one| &one["leader"]["label"]).collect();
    assert_eq!(leaders, ["b-1", "r-1"]);
    assert_eq!(telling.get("/v1/elections/reports").json()["leader"]["label"], "r-1");
    assert_eq!(telling.get("/v1/elections/billing").json()["leader"]["label"], "b-1");
    assert_eq!(telling.get("/v1/elections/billing/history").json()["terms"][0]["leader"]["label"], "b-1");
    let metrics = telling.get("/metrics");
    for line in [
        "primacy_candidate_is_leader{election=\"billing\",candidate=\"b-1\"} 1.0",
        "primacy_candidate_is_leader{election=\"billing\",candidate=\"b-2\"} 0.0",
        "primacy_candidate_is_leader{election=\"reports\",candidate=\"r-1\"} 1.0",
        "primacy_election_is_led{election=\"reports\"} 1.0",
        "primacy_election_candidates{election=\"billing\"} 1.0",
    ] {
        assert!(metrics.body().lines().any(|told| told == line), "{line}\n{}", metrics.body());
    }
    let described = metrics.body().lines().filter(|line| line.starts_with("# TYPE primacy_candidate_is_leader "));
    assert_eq!(described.count(), 1);
    // One that has gone leads for nobody any more, whether it has stopped or not.
    drop(holders.pop());
    let end = Instant::now() + PATIENCE;
    while telling.get("/leader?election=reports").status() == 200 {
        assert!(Instant::now() < end, "the agent has not noticed");
    }
    assert_eq!(telling.get("/leader?election=billing").json()["label"], "b-1");
    // Orders need a token, which this agent has none of.
    let order = "POST /v1/elections/billing/depose HTTP/1.1\nHost: localhost\nContent-Length: 0\nConnection: close\n\n";
    assert_eq!(telling.ask(order).status(), 403);
}
