//! `/metrics`: what it says, what Prometheus makes of it, and what alerts and the dashboard in `contrib` rest on.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::telling::{Foreground, Telling, try_ask};
use crate::voters::{Cluster, free_port};
use crate::world::{PATIENCE, STEADY, World, pause};

impl Telling {
    /// The value of the one metric with this name and these labels.
    fn metric(&self, name: &str, labels: &str) -> Option<f64> {
        let answer = self.get("/metrics");
        assert_eq!(answer.status(), 200, "{}", answer.0);
        let lines = answer.body().lines().filter(|line| !line.starts_with('#'));
        let mut found = lines.filter_map(|line| line.rsplit_once(' ')).filter(|(series, _)| {
            let (own, its_labels) = series.split_once('{').unwrap_or((series, ""));
            own == name && labels.split(',').all(|label| its_labels.contains(label))
        });
        let value = found.next().and_then(|(_, value)| value.parse().ok());
        assert!(found.next().is_none(), "more than one {name}: {}", answer.0);
        value
    }

    fn await_metric(&self, name: &str, labels: &str, holds: impl Fn(f64) -> bool) {
        let end = Instant::now() + PATIENCE;
        loop {
            let value = self.metric(name, labels);
            if value.is_some_and(&holds) {
                return;
            }
            assert!(Instant::now() < end, "{name} is {value:?}");
            pause();
        }
    }

    /// The names of all metrics, as series have them.
    fn names(&self) -> BTreeSet<String> {
        let answer = self.get("/metrics");
        let families = answer.body().lines().filter_map(|line| line.strip_prefix("# TYPE "));
        let named = families.filter_map(|family| family.split_once(' ')).map(|(name, kind)| match kind {
            "counter" => format!("{name}_total"),
            _ => name.to_owned(),
        });
        named.collect()
    }
}

/// The metrics of primacy that a text names.
fn named_in(text: &str) -> BTreeSet<String> {
    let words = text.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
    let names = words.filter(|word| word.starts_with("primacy_") || word.starts_with("process_"));
    names.map(|name| name.strip_suffix("_bucket").unwrap_or(name).to_owned()).collect()
}

fn contrib(file: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../contrib").join(file);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn metrics_follow_an_election_through_a_leadership_and_its_end() {
    let mut world = World::new();
    // It renews often, so that some renewals are soon there to be counted.
    let first = Telling::start_with(&world, "a", &[STEADY, &["--renew", "500ms"]].concat());
    let led = world.expect_start_after(0);
    let second = Telling::start(&world, "b");
    world.await_candidates(1);
    let value = |telling: &Telling, name: &str| telling.metric(name, "election=\"default\"").expect(name);
    assert_eq!(
        (value(&first, "primacy_candidate_is_leader"), value(&second, "primacy_candidate_is_leader")),
        (1.0, 0.0)
    );
    assert_eq!(value(&first, "primacy_candidate_token"), led.token as f64);
    assert!((0.1..6.0).contains(&value(&first, "primacy_candidate_remaining_seconds")));
    assert_eq!(value(&second, "primacy_candidate_remaining_seconds"), 0.0);
    assert_eq!(value(&first, "primacy_candidate_store_reached"), 1.0);
    assert_eq!((value(&second, "primacy_election_is_led"), value(&second, "primacy_election_candidates")), (1.0, 1.0));
    assert_eq!(value(&second, "primacy_election_lease_seconds"), 6.0);
    first.await_metric("primacy_candidate_renewal_seconds_count", "candidate=\"a\"", |count| count >= 2.0);
    let [answered, in_all] = [
        first.metric("primacy_candidate_calls_total", "call=\"renew\",end=\"answered\""),
        first.metric("primacy_candidate_renewal_seconds_bucket", "le=\"+Inf\""),
    ];
    assert!(answered >= in_all && in_all >= Some(2.0), "{answered:?} {in_all:?}");

    assert!(world.primacy(["depose", "--quiet"]).status().expect("it starts").success());
    second.await_metric("primacy_candidate_is_leader", "candidate=\"b\"", |leads| leads == 1.0);
    first.await_metric("primacy_candidate_leaderships_ended_total", "reason=\"deposed\"", |count| count == 1.0);
    assert_eq!(value(&second, "primacy_candidate_leaderships_total"), 1.0);
    world.assert_never_two();
}

#[test]
fn the_manual_tells_of_each_metric_and_contrib_of_no_other() {
    let mut world = World::new();
    let options = ["--protocol", "registers", "--round", "500ms", "--grace", "200ms"];
    let member = Telling::start_with(&world, "a", &options);
    world.expect_start_after(0);
    member.await_metric("primacy_election_round_seconds", "election=\"default\"", |round| round > 0.0);
    let cluster = Cluster::planned(3).start();
    let mut among_peers = cluster.world();
    let candidate = Telling::start(&among_peers, "web-1");
    among_peers.expect_start_after(0);
    candidate.await_metric("primacy_election_voters_supporting", "election=\"default\"", |count| count == 3.0);
    candidate.await_metric("primacy_election_voters_reachable", "election=\"default\"", |count| count == 3.0);
    assert_eq!(candidate.metric("primacy_election_voters_spare", "election=\"default\""), Some(1.0));
    let config = world.path("agent.toml");
    let program = "[[program]]\nname = \"p\"\nelection = \"default\"\ncommand = [\"sleep\", \"1000\"]\n";
    fs::write(&config, format!("[[election]]\nname = \"default\"\n{program}")).expect("a file");
    let mut agent = world.primacy(["agent", "--http", "127.0.0.1:0", "--config"]);
    agent.arg(&config).arg("--socket").arg(world.path("a.sock")).env_remove("STATE_DIRECTORY");
    let agent = Telling::of(agent);
    agent.await_metric("primacy_program_is_up", "program=\"p\",election=\"default\"", |is_up| is_up == 1.0);
    assert_eq!(agent.metric("primacy_program_restarts_total", "program=\"p\""), Some(0.0));
    let told: BTreeSet<String> = [&member, &candidate, &agent].into_iter().flat_map(Telling::names).collect();
    let manual = include_str!("../../../../docs/manual/http.md");
    assert_eq!(named_in(manual), told);
    for file in ["prometheus/alerts.yml", "prometheus/alerts_test.yml", "grafana/elections.json"] {
        let unknown: Vec<String> = named_in(&contrib(file)).difference(&told).cloned().collect();
        assert!(unknown.is_empty(), "{file}: {unknown:?}");
    }
}

#[test]
fn promtool_finds_nothing_wrong_with_metrics_and_rules() {
    let mut world = World::new();
    let first = Telling::start(&world, "a");
    world.expect_start_after(0);
    let promtool = |words: &[&str]| {
        let mut command = Command::new("promtool");
        command.args(words).current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../contrib/prometheus"));
        command
    };
    // It reads the older format, in which a counter's description has the name of its series.
    let lines: Vec<String> = first.get("/metrics").body().lines().map(str::to_owned).collect();
    let counters: BTreeSet<&str> =
        lines.iter().filter_map(|line| line.strip_prefix("# TYPE ")?.strip_suffix(" counter")).collect();
    let text: String = lines
        .iter()
        .map(|line| match line.split(' ').nth(2).filter(|name| line.starts_with("# ") && counters.contains(name)) {
            Some(name) => line.replacen(name, &format!("{name}_total"), 1) + "\n",
            None => line.clone() + "\n",
        })
        .collect();
    let mut check = promtool(&["check", "metrics"]);
    check.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut check = check.spawn().expect("promtool is there: cargo xtask services");
    check.stdin.take().expect("piped").write_all(text.as_bytes()).expect("it reads");
    let output = check.wait_with_output().expect("it ends");
    assert!(output.status.success() && output.stdout.is_empty() && output.stderr.is_empty(), "{output:?}\n{text}");
    for words in [["check", "rules", "alerts.yml"], ["test", "rules", "alerts_test.yml"]] {
        let output = promtool(&words).output().expect("it starts");
        assert!(output.status.success(), "{output:?}");
    }
}

#[test]
fn prometheus_scrapes_an_election_and_fires_an_alert_when_nobody_leads() {
    let mut world = World::new();
    let first = Telling::start(&world, "a");
    world.expect_start_after(0);
    // It waits, and must not lead.
    let second = Telling::start_with(&world, "b", &[STEADY, &["--never", "b"]].concat());
    let (one, other) = (first.address, second.address);
    // Soon enough for a test.
    fs::write(world.path("alerts.yml"), contrib("prometheus/alerts.yml").replace("for: 30s", "for: 1s"))
        .expect("a file");
    let config = format!(
        "global: {{scrape_interval: 200ms, scrape_timeout: 200ms, evaluation_interval: 200ms}}\nrule_files: [alerts.yml]\n\
         scrape_configs: [{{job_name: primacy, static_configs: [{{targets: ['{one}', '{other}']}}]}}]\n"
    );
    fs::write(world.path("prometheus.yml"), config).expect("a file");
    let place = format!("127.0.0.1:{}", free_port());
    let mut command = Command::new("prometheus");
    command.arg("--config.file").arg(world.path("prometheus.yml"));
    command.arg("--storage.tsdb.path").arg(world.path("tsdb")).args(["--web.listen-address", &place]);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let _prometheus = Foreground(command.spawn().expect("prometheus is there: cargo xtask services"));
    let place = place.parse().expect("an address");
    let ask = |path: &str| -> Option<Value> {
        let answer = try_ask(place, &format!("GET {path} HTTP/1.0\n\n"))?;
        serde_json::from_str(answer.body()).ok()
    };
    let firing = || -> Option<BTreeSet<String>> {
        let told = ask("/api/v1/alerts")?;
        let alerts = told["data"]["alerts"].as_array()?;
        let firing = alerts.iter().filter(|alert| alert["state"] == "firing");
        Some(firing.map(|alert| alert["labels"]["alertname"].as_str().expect("a name").to_owned()).collect())
    };
    let leaders = || {
        let told = ask("/api/v1/query?query=sum(primacy_candidate_is_leader)")?;
        told["data"]["result"][0]["value"][1].as_str().map(str::to_owned)
    };
    let end = Instant::now() + PATIENCE;
    while leaders().as_deref() != Some("1") {
        assert!(Instant::now() < end, "{:?}", leaders());
    }
    assert_eq!(firing().map(|names| names.contains("PrimacyNobodyLeads")), Some(false));
    first.runner.send(Signal::SIGTERM);
    let end = Instant::now() + PATIENCE;
    while !firing().is_some_and(|names| names.contains("PrimacyNobodyLeads")) {
        assert!(Instant::now() < end, "{:?}, {:?}", firing(), leaders());
    }
}
