//! What others have written for Redis, unchanged: `redis-cli`, `redis-benchmark`, redis-py, and the crate `redis`.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use primacy_kv::server::clients::Password;
use primacy_servers::{is_installed, skipped};
use redis::{Commands as _, ErrorKind, ExistenceCheck, ServerErrorKind, SetExpiry, SetOptions};

use crate::front::Front;
use crate::groups::Pace;

/// What a program prints, with what it is told on its standard input.
fn output(program: &str, arguments: &[&str], input: &[u8]) -> String {
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input).unwrap();
    let output = child.wait_with_output().unwrap();
    let (out, error) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{program} {arguments:?}: {out}{error}");
    format!("{out}{error}")
}

fn is_missing(program: &str) -> bool {
    let is_missing = !is_installed(program);
    if is_missing {
        skipped(&format!("{program} is not installed: it is in Debian's package redis-tools"));
    }
    is_missing
}

#[test]
fn redis_cli_works() {
    if is_missing("redis-cli") {
        return;
    }
    let front = Front::with(16, |settings| settings.password = Password::new(*b"secret"));
    let port = front.port();
    let said = |more: &[&str], input: &str| {
        let common = ["-p", &port, "-a", "secret", "--no-auth-warning"];
        output("redis-cli", &[&common, more].concat(), input.as_bytes())
    };
    assert_eq!(said(&["set", "a", "1"], ""), "OK\n");
    assert_eq!(said(&["--json", "mget", "a", "b"], ""), "[\"1\",null]\n");
    assert_eq!(said(&["-3", "config", "get", "save"], "").trim_end(), "save");
    let lines = "multi\nset {t}a 1\nget {t}a\nexec\nget {t}a\nnonsense\n";
    assert_eq!(
        said(&[], lines),
        "OK\nQUEUED\nQUEUED\nOK\n1\n1\nERR unknown command 'nonsense', with args beginning with: \n\n"
    );
    let mass: String = (0..2000).map(|number| format!("set mass:{number} {number}\r\n")).collect();
    let told = said(&["--pipe"], &mass);
    assert!(told.contains("errors: 0, replies: 2000"), "{told}");
    let mut keys: Vec<String> = said(&["--scan", "--pattern", "mass:1?"], "").lines().map(String::from).collect();
    keys.sort();
    assert_eq!(keys, (10..20).map(|number| format!("mass:{number}")).collect::<Vec<_>>());
    assert!(said(&["--bigkeys"], "").contains("Biggest string found"));
    assert!(said(&["info", "server"], "").contains("server_name:primacy"));
    assert_eq!(said(&["-x", "set", "b"], "from a pipe"), "OK\n");
    assert_eq!(said(&["-r", "3", "incr", "counter"], ""), "1\n2\n3\n");
    // In clear, with a wrong password, it is told so.
    let told = output("redis-cli", &["-p", &port, "-a", "wrong", "--no-auth-warning", "get", "a"], b"");
    assert!(told.contains("WRONGPASS") && told.contains("NOAUTH"), "{told}");
}

#[test]
fn redis_benchmark_runs_unchanged() {
    if is_missing("redis-benchmark") {
        return;
    }
    let front = Front::start();
    for pace in [Pace::AtOnce, Pace::InTurns] {
        front.go(pace);
        for more in [&["-P", "1"][..], &["-P", "16"], &["-P", "16", "--threads", "2"], &["-d", "1000", "-r", "1000"]] {
            let port = front.port();
            let common = ["-p", &port, "-n", "3000", "-c", "50", "-q", "-t", "ping,set,get,incr"];
            let told = output("redis-benchmark", &[&common[..], more].concat(), b"");
            assert_eq!(told.matches("requests per second").count(), 5, "{told}");
            assert!(!told.contains("WARN") && !told.to_lowercase().contains("error"), "{told}");
        }
    }
    assert!(front.on(|_, statistics| statistics.writes()) >= 48_000);
}

/// A Python with redis-py, or why there is none.
fn python(folder: &Path) -> Result<PathBuf, String> {
    let has_redis = |python: &Path| {
        let tried = Command::new(python).args(["-c", "import redis"]).stderr(Stdio::null()).status();
        tried.is_ok_and(|status| status.success())
    };
    for python in ["python3", "/usr/bin/python3"].map(Path::new) {
        if has_redis(python) {
            return Ok(python.into());
        }
    }
    let run = |command: &mut Command| {
        let tried = command.stdout(Stdio::null()).stderr(Stdio::null()).status();
        tried.is_ok_and(|status| status.success())
    };
    let own = folder.join("bin/python");
    let is_made = run(Command::new("python3").args(["-m", "venv"]).arg(folder))
        && run(Command::new(&own).args(["-m", "pip", "install", "--quiet", "redis"]));
    let why = "redis-py is not installed, and pip does not bring it: it is in Debian's package python3-redis";
    (is_made && has_redis(&own)).then_some(own).ok_or_else(|| why.to_owned())
}

const SCRIPT: &str = r#"
import redis, sys, threading
port = int(sys.argv[1])
# Debian's, which is older, knows RESP2 alone.
versions = ({"protocol": 2}, {"protocol": 3}) if int(redis.__version__.split(".")[0]) >= 5 else ({},)
for version in versions:
    r = redis.Redis(port=port, decode_responses=True, password="secret", client_name="py", **version)
    r.flushall()
    assert r.ping() and r.client_getname() == "py"
    assert r.set("a", 1) is True and r.get("a") == "1" and r.get("none") is None
    assert r.set("a", 2, nx=True) is None and r.set("a", 3, get=True) == "1"
    assert r.incr("n", 5) == 5 and r.incrbyfloat("f", 0.5) == 0.5
    assert r.mget("a", "none", "n") == ["3", None, "5"]
    assert r.setex("e", 100, "x") and 95 < r.ttl("e") <= 100 and r.persist("e")
    assert r.exists("a", "n", "none") == 2 and r.delete("a", "none") == 1
    for i in range(100):
        r.set("k:%d" % i, i)
    assert sorted(r.scan_iter("k:1?")) == ["k:%d" % i for i in range(10, 20)]
    assert len(r.keys("k:*")) == 100 and r.dbsize() == 103 and r.randomkey() is not None
    # A pipeline is a transaction unless told otherwise.
    with r.pipeline() as pipe:
        assert pipe.set("{t}a", 1).incr("{t}a").get("{t}a").execute() == [True, 2, "2"]
    with r.pipeline(transaction=False) as pipe:
        for i in range(100):
            pipe.get("k:%d" % i)
        assert pipe.execute() == [str(i) for i in range(100)]
    try:
        r.pipeline().set("a", 1).set("b", 1).execute()
        raise SystemExit("no error")
    except redis.exceptions.ResponseError as error:
        assert "CROSSSLOT" in type(error).__name__.upper() or "same slot" in str(error), repr(error)
    def work():
        own = redis.Redis(port=port, password="secret", decode_responses=True, **version)
        for _ in range(20):
            def change(pipe):
                value = int(pipe.get("{w}n") or 0)
                pipe.multi()
                pipe.set("{w}n", value + 1)
            own.transaction(change, "{w}n")
    threads = [threading.Thread(target=work) for _ in range(4)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert r.get("{w}n") == "80", r.get("{w}n")
    # A lock of redis-py is released by a script. This is how it is done here.
    assert r.set("lock", "me", nx=True, ex=10) and not r.set("lock", "other", nx=True, ex=10)
    assert r.execute_command("DELEX", "lock", "IFEQ", "other") == 0 and r.execute_command("DELEX", "lock", "IFEQ", "me") == 1
    info = r.info()
    assert info["role"] == "master" and info["db0"]["keys"] > 0, info
    assert r.config_get("save") == {"save": ""} and r.time()[0] > 0
    assert any(c["name"] == "py" for c in r.client_list())
    assert r.command_count() == 55 and r.wait(1, 10) == 1
"#;

#[test]
fn redis_py_works() {
    let folder = tempfile::tempdir().unwrap();
    let python = match python(folder.path()) {
        Ok(python) => python,
        Err(why) => return skipped(&why),
    };
    let front = Front::with(16, |settings| settings.password = Password::new(*b"secret"));
    front.go(Pace::Mixed);
    output(python.to_str().unwrap(), &["-c", SCRIPT, &front.port()], b"");
}

#[test]
fn the_crate_redis_works() {
    let front = Front::with(16, |settings| settings.password = Password::new(*b"secret"));
    front.go(Pace::Mixed);
    for version in ["", "?protocol=resp3"] {
        let client = redis::Client::open(format!("redis://:secret@{}/{version}", front.address)).unwrap();
        let mut connection = client.get_connection().unwrap();
        let _: () = redis::cmd("FLUSHALL").query(&mut connection).unwrap();
        let _: () = connection.set("a", 1).unwrap();
        assert_eq!(connection.get::<_, Option<i64>>("a").unwrap(), Some(1));
        assert_eq!(connection.get::<_, Option<i64>>("b").unwrap(), None);
        let options = SetOptions::default().conditional_set(ExistenceCheck::NX).with_expiration(SetExpiry::EX(10));
        assert_eq!(connection.set_options::<_, _, Option<String>>("a", 2, options).unwrap(), None);
        assert_eq!(connection.mget::<_, Vec<Option<i64>>>(&["a", "b", "a"]).unwrap(), [Some(1), None, Some(1)]);
        assert_eq!(connection.del::<_, i64>(&["a", "b"]).unwrap(), 1);

        let mut pipeline = redis::pipe();
        for number in 0..200 {
            pipeline.set(format!("k{number}"), number).ignore();
        }
        for number in 0..200 {
            pipeline.get(format!("k{number}"));
        }
        assert_eq!(pipeline.query::<Vec<i64>>(&mut connection).unwrap(), (0..200).collect::<Vec<_>>());
        let scanned: Vec<String> = connection.scan_match("k?").unwrap().collect::<Result<_, _>>().unwrap();
        assert_eq!(scanned.len(), 10);

        let mut pipeline = redis::pipe();
        let (sum,): (i64,) = pipeline.atomic().set("{t}a", 40).ignore().incr("{t}a", 2).query(&mut connection).unwrap();
        assert_eq!(sum, 42);
        let doubled: (i64,) = redis::transaction(&mut connection, &["{t}a"], |connection, pipeline| {
            let value: i64 = connection.get("{t}a")?;
            pipeline.set("{t}a", value * 2).ignore().get("{t}a").query(connection)
        })
        .unwrap();
        assert_eq!(doubled, (84,));

        assert!(redis::pipe().atomic().set("a", 1).set("b", 1).query::<()>(&mut connection).is_err());
        let error = connection.mset::<_, _, ()>(&[("a", 1), ("b", 1)]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Server(ServerErrorKind::CrossSlot), "{error}");
        front.on(|groups, _| {
            use crate::groups::Fault;
            use primacy_kv::request::Failure;
            groups.faults("a", [Fault::IsDoneAndFails(Failure::Unknown), Fault::Fails(Failure::NoLeader)]);
        });
        let unknown = connection.set::<_, _, ()>("a", 7).unwrap_err();
        assert_eq!((unknown.code(), unknown.kind()), (Some("UNKNOWN"), ErrorKind::Extension));
        let again = connection.set::<_, _, ()>("a", 8).unwrap_err();
        assert_eq!(again.kind(), ErrorKind::Server(ServerErrorKind::TryAgain));
        assert_eq!(connection.get::<_, i64>("a").unwrap(), 7);
    }
    let wrong = redis::Client::open(format!("redis://:wrong@{}/", front.address)).unwrap();
    assert!(wrong.get_connection().is_err());
}

/// The processor time of the front's thread.
fn processor_time(front: &Front) -> std::time::Duration {
    use nix::time::{ClockId, clock_gettime};
    front.on(|_, _| clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).unwrap().into())
}

/// `cargo test --release -p primacy-kv --features server --test clients -- --ignored --nocapture throughput`.
#[test]
#[ignore = "measures, which takes a machine without other work"]
fn throughput() {
    if is_missing("redis-benchmark") {
        return;
    }
    let front = Front::with(16, |_| {});
    for pace in [Pace::AtOnce, Pace::InTurns] {
        front.go(pace);
        for (depth, count) in [("1", "200000"), ("16", "1000000")] {
            for command in ["get", "set"] {
                let before = (processor_time(&front), front.on(|_, statistics| statistics.commands()));
                let port = front.port();
                let common = ["-p", &port, "-n", count, "-c", "50", "-r", "100000", "-d", "1000", "--csv"];
                let told = output("redis-benchmark", &[&common[..], &["-t", command, "-P", depth]].concat(), b"");
                let commands = front.on(|_, statistics| statistics.commands()) - before.1;
                let each = (processor_time(&front) - before.0).as_secs_f64() * 1e6 / commands as f64;
                let line = told.lines().last().unwrap();
                println!("{pace:?} pipeline {depth}: {each:.2} us of the front's thread for each; {line}");
            }
        }
    }
}
