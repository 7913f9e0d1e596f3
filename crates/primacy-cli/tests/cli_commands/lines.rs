//! Every command line of the README, the manual and the tutorials, run word by word.
//!
//! Lines are found by what they look like, so that a new one without a [`Way`] fails. Each is run by `sh` in a folder with
//! the programs that the manual names. Those about peers have hosts of their own: a network namespace in which all the
//! manual's addresses are this machine's, with its folders empty.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use tempfile::TempDir;

use crate::page_texts::PAGES;
use crate::support::primacy;

/// How a line is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// By itself, where nobody campaigns. It ends with this code.
    Alone(i32),
    /// Where web-1 leads and web-2 waits. It ends with this code.
    Led(i32),
    /// Where nobody campaigns, until it has printed a line with this.
    Says(&'static str),
    /// Where web-1 leads and web-2 waits, until it has printed a line with this.
    Lasts(&'static str),
    /// On a PostgreSQL server, which stands for the one of the line above it, and for the administrator's.
    Postgres,
    /// On a MariaDB server, which stands for the administrator's.
    MariaDb,
    /// In [`PEERS`], where it stands among others.
    Peers,
    /// Not here, for this reason.
    No(&'static str),
}
use Way::{Alone, Lasts, Led, MariaDb, No, Peers, Postgres, Says};

const BUILDS: &str = "builds the workspace or runs all of its tests, this one too";
const README_EXAMPLE: &str = "processes::peers runs the README's example as a whole";
const NODES: &str = "processes::kv runs nodes like this, on ports that are free";
const ORDERS: &str = "processes::http_orders orders like this, on ports that are free";
const PACKAGED: &str = "a step of `cargo xtask ci --nightly` does this in a clean system, or with podman";
const FORM: &str = "a form with a place to fill in: each part of it is in the line of an example";

/// The lines in blocks, without what is behind `   #`.
const LINES: &[(&str, Way)] = &[
    // README.md
    ("primacy run -- sh -c 'echo \"I lead with token $PRIMACY_TOKEN\"; exec sleep 1000'", Says("I lead with token")),
    ("export PRIMACY_STORE=postgresql://jobs@db.example/jobs", Peers),
    ("PEERS=a@127.0.0.1:7401,b@127.0.0.1:7402,c@127.0.0.1:7403", No(README_EXAMPLE)),
    (
        "for name in a b c; do primacy peer --quiet --name $name --peers $PEERS --dir \"$(mktemp -d)\" & done",
        No(README_EXAMPLE),
    ),
    ("primacy run --store peers://$PEERS --name web-1 -- sleep 1000 &", No(README_EXAMPLE)),
    ("primacy watch --store peers://$PEERS --until-leader", No(README_EXAMPLE)),
    ("primacy status --store peers://$PEERS", No(README_EXAMPLE)),
    ("primacy run --name web-1 -- ./scheduler --port 80", Alone(0)),
    ("primacy status --explain", Led(0)),
    ("primacy watch", Lasts("web-1")),
    ("primacy members", Led(0)),
    ("primacy promote web-2", Led(0)),
    ("primacy depose", Led(0)),
    ("primacy pause; primacy resume", Led(0)),
    ("primacy history", Led(0)),
    ("primacy agent", Peers),
    ("primacy peer --name a --peers a@10.0.0.1:7400,…", No("its end is left out; the manual has all of it")),
    ("primacy doctor", Led(0)),
    // manual/deploying.md
    ("primacy doctor --lease 3s", Led(0)),
    ("primacy run -- ./service --port 8080", Alone(0)),
    ("docker compose -f contrib/compose/compose.yaml up --detach", No(PACKAGED)),
    // manual/installing.md
    ("cargo xtask package", No(BUILDS)),
    ("cargo xtask ci --nightly packages containers", No(BUILDS)),
    ("sudo apt install ./target/package/primacy_0.1.0-1_amd64.deb", No(PACKAGED)),
    ("sudo install -D -m 644 /usr/share/doc/primacy/examples/agent.toml /etc/primacy/agent.toml", No(PACKAGED)),
    ("sudo systemctl enable --now primacy-agent.socket primacy-agent.service", No(PACKAGED)),
    ("(cd target/package && sha256sum --check --ignore-missing SHA256SUMS)", No(PACKAGED)),
    ("sudo tar -xzf target/package/primacy-0.1.0-x86_64-linux.tar.gz -C /opt", No(PACKAGED)),
    ("sudo ln -s /opt/primacy-0.1.0-x86_64-linux/bin/primacy /usr/local/bin/primacy", No(PACKAGED)),
    ("podman build --tag registry.example/primacy:0.1.0 target/package/image", No(PACKAGED)),
    ("podman run --rm --read-only registry.example/primacy:0.1.0 --version", No(PACKAGED)),
    (
        "primacy simulate --lease 3s --round-trip 40ms",
        No("2,000 worlds take a minute unoptimised; simulate.rs runs fewer"),
    ),
    ("cargo xtask ci", No(BUILDS)),
    (
        "export PRIMACY_TEST_POSTGRES=postgresql://ann:secret@127.0.0.1/tests PRIMACY_TEST_MYSQL=mysql://ann:secret@127.0.0.1/tests",
        No("`cargo xtask ci` sets them to servers that it starts"),
    ),
    ("cargo test", No(BUILDS)),
    // docs/manual/commands.md
    ("primacy run --name web-1 -- ./scheduler &", Alone(0)),
    ("cargo install --locked --path crates/primacy-cli", No("it builds for minutes; the binary is that of the tests")),
    ("primacy status", Led(0)),
    ("primacy run -- ./scheduler --port 8080", Alone(0)),
    ("primacy run --election billing --name web-1 --data http://10.0.0.5:8080 -- ./billing", Alone(0)),
    ("primacy run --lease 3s --grace 1s --once -- ./worker", Alone(0)),
    ("primacy run --lease 500ms --renew 100ms --grace 50ms -- ./worker", Alone(0)),
    ("primacy run -- sh -c 'exec ./relay --fence \"$PRIMACY_TOKEN\"'", Alone(0)),
    ("primacy run --prefer db-1,'db-*' --never db-backup -- ./writer", Alone(0)),
    ("primacy run --score-command ./how-fresh --score-class 100 -- ./writer", Alone(0)),
    ("primacy run --store peers:///run/primacy/a.socket --turn ring -- ./worker", Peers),
    ("primacy run --store peers:///run/primacy/a.socket --score-oracle latency --fail-back 1m -- ./writer", Peers),
    (
        "primacy run --store peers:///run/primacy/a.socket --score-oracle consensus --score-class 10000 -- ./writer",
        Peers,
    ),
    ("primacy run --protocol registers -- ./worker", Alone(0)),
    ("primacy run --protocol registers --round 250ms --missed 3 -- ./worker", Alone(0)),
    ("primacy status --quiet && echo somebody leads", Led(0)),
    ("primacy status --json | jq -r '.leader.data // empty'", Led(0)),
    ("primacy watch --until-leader --quiet", Led(0)),
    ("primacy watch --json | while read -r line; do ./announce \"$line\"; done", Lasts("announced")),
    ("primacy promote web-2 --token \"$(primacy status --json | jq .token)\"", Led(0)),
    ("primacy promote 5b1f0c8a", Led(1)),
    ("primacy depose --no-wait", Led(0)),
    ("primacy run --try --quiet -- ./report || test $? -eq 75", Alone(0)),
    ("primacy run --for 5m -- ./migrate", Alone(0)),
    ("primacy run --isolate -- ./worker-that-forks", Alone(0)),
    ("primacy run --name db-1 --on-elected ./promote --on-lost ./demote", Says("promoted")),
    ("primacy run --on-elected 'systemctl start billing' --on-lost 'systemctl stop billing'", Says("start billing")),
    // manual/agent.md, and what the commands' page says of it
    ("primacy agent check", No("its configuration is named in the line of an example")),
    ("primacy agent check --config /etc/primacy/agent.toml", Peers),
    ("primacy agent --config /etc/primacy/agent.toml", Peers),
    ("primacy agent --lease 10s --grace 2s", Peers),
    ("primacy agent --http 127.0.0.1:8008", Peers),
    (
        "curl -i 'http://127.0.0.1:8008/leader?election=billing'",
        No("the line above it would have to run beside it: processes::agent_rights"),
    ),
    ("primacy agent list", Peers),
    ("primacy peer certs certs a b c web-1 web-2", Peers),
    ("primacy peer certs certs a b c web-1 web-2 operator", Peers),
    ("primacy peer --name a --certs certs --peers a@10.0.0.1:7400,b@10.0.0.2:7400,c@10.0.0.3:7400", Peers),
    (
        "primacy run --store 'peers://a@10.0.0.1:7400,b@10.0.0.2:7400,c@10.0.0.3:7400?certs=certs&name=web-1' -- ./jobs",
        Peers,
    ),
    ("primacy peer revoke certs web-1", Peers),
    ("primacy peer revoke certs ./certs/web-2.pem", Peers),
    ("primacy schema postgres | psql \"$ADMIN_URL\"", Postgres),
    ("primacy schema mysql | mariadb -u root elections", MariaDb),
    ("primacy completions bash > /usr/share/bash-completion/completions/primacy", Peers),
    ("primacy man | man -l -", Alone(0)),
    ("primacy man --dir /usr/local/share/man/man1", Peers),
    // docs/manual/fencing.md
    ("primacy schema postgres --fence-only | psql \"$ADMIN_URL\"", Postgres),
    ("primacy schema mysql --fence-only | mariadb -u root mydata", MariaDb),
    ("primacy schema sqlite | sqlite3 jobs.db", Alone(0)),
    // docs/manual/stores.md
    ("primacy run --election billing -- ./billing", Postgres),
    ("export PRIMACY_STORE='peers://a@10.0.0.1:7400,b@10.0.0.2:7400,c@10.0.0.3:7400?certs=certs&name=web-1'", Peers),
    ("primacy run --name web-1 -- ./jobs", Peers),
    (
        "primacy peer --name a --certs certs --peers a@10.0.0.1:7400,b@10.0.0.2:7400,c@10.0.0.3:7400 --socket /run/primacy/a.socket",
        Peers,
    ),
    ("export PRIMACY_STORE=peers:///run/primacy/a.socket", Peers),
    ("primacy peer list", Peers),
    ("primacy peer add d@10.0.0.4:7400 e@10.0.0.5:7400", Peers),
    ("primacy peer remove a b", Peers),
    ("primacy peer replace c f@10.0.0.6:7400", Peers),
    // docs/manual/http.md
    ("primacy run --http 127.0.0.1:8008 -- ./service --port 8080", Alone(0)),
    (
        "curl -N http://127.0.0.1:8008/v1/elections/default/events",
        No("processes::http_events follows elections like this, on ports that are free"),
    ),
    ("curl -i http://127.0.0.1:8008/leader", No("processes::http asks candidates like this, on ports that are free")),
    ("openssl rand -hex 32 > order-token && chmod 600 order-token", Alone(0)),
    ("primacy run --http 127.0.0.1:8008 --http-token-file order-token -- ./service", No(ORDERS)),
    (
        "curl -H \"Authorization: Bearer $(cat order-token)\" -d '{\"candidate\": \"web-2\", \"token\": 7}' \
         http://127.0.0.1:8008/v1/elections/default/promote",
        No(ORDERS),
    ),
    ("primacy status --json --explain", Led(0)),
    // docs/manual/page.md
    ("ssh -N -L 8008:127.0.0.1:8008 web-1", No("there is no other host, and no SSH")),
    // docs/manual/kv.md, and the others about nodes
    ("primacy kv status", Alone(69)),
    ("primacy kv explain GROUP", No(FORM)),
    ("primacy kv replace NODE", No(FORM)),
    ("primacy kv snapshot", Alone(69)),
    ("primacy kv check DIR", No(FORM)),
    ("primacy kv --json", No(NODES)),
    ("primacy kv status --json", Alone(69)),
    ("primacy kv explain GROUP --json", No(FORM)),
    ("primacy kv snapshot --json", Alone(69)),
    ("primacy kv replace NODE --json", No(FORM)),
    ("primacy kv check DIR --json", No(FORM)),
    ("primacy kv", No(NODES)),
    ("redis-cli set colour green", No(NODES)),
    ("primacy kv --name a --peers $PEERS --listen 127.0.0.1:6381 &", No(NODES)),
    ("primacy kv --name b --peers $PEERS --listen 127.0.0.1:6382 &", No(NODES)),
    ("primacy kv --name c --peers $PEERS --listen 127.0.0.1:6383 &", No(NODES)),
    ("redis-cli -p 6381 set colour green", No(NODES)),
    ("redis-cli -p 6383 get colour", No(NODES)),
    ("primacy peer certs certs a b c operator", No(NODES)),
    ("PEERS=a@10.0.0.1:7400,b@10.0.0.2:7400,c@10.0.0.3:7400", No(NODES)),
    ("CLIENTS=\"--listen 0.0.0.0:6379 --password-file password --tls-cert kv.pem --tls-key kv.key\"", No(NODES)),
    ("primacy kv --name a --certs certs --peers $PEERS $CLIENTS", No(NODES)),
    ("primacy status --store peers:///var/lib/primacy/kv-a/voter/socket --election kv/3", No(NODES)),
    ("primacy promote b --store peers:///var/lib/primacy/kv-a/voter/socket --election kv/3", No(NODES)),
    ("primacy kv replace c --dir /var/lib/primacy/kv-a", No(NODES)),
    ("redis-cli -p 6379", No(NODES)),
    // Whole commands in sentences
    ("cargo doc --open -p primacy --all-features", No(BUILDS)),
    ("cargo test --manifest-path examples/store/Cargo.toml", No("a step of `cargo xtask ci` runs it")),
    ("cargo xtask bench", No(BUILDS)),
    ("cargo xtask bench kv", No(BUILDS)),
    ("cargo xtask bench kv --part kill,freeze,hand-over,restart", No(BUILDS)),
    ("cargo xtask bench hosts", No(BUILDS)),
    ("cargo xtask bench floods", No(BUILDS)),
    ("cargo xtask bench agents", No(BUILDS)),
    ("cargo xtask bench elections --apart", No(BUILDS)),
    ("cargo xtask bench papers mysql-lease", No(BUILDS)),
    ("cargo xtask bench papers registers", No(BUILDS)),
    ("cargo xtask bench papers registers --zookeeper 30", No(BUILDS)),
    ("cargo xtask bench papers peers", No(BUILDS)),
    ("cargo xtask bench papers peers --lease 60", No(BUILDS)),
    ("cargo xtask bench papers peers --paper", No(BUILDS)),
    ("cargo xtask bench papers peers --sites --lease 1000 --elections 60", No(BUILDS)),
    ("cargo build --release --locked --package primacy-cli", No(BUILDS)),
    ("cargo xtask tidy", No(BUILDS)),
    ("cargo xtask ci --nightly", No(BUILDS)),
    ("cargo xtask servers", No(BUILDS)),
    ("primacy --version", Alone(0)),
    ("primacy version", Alone(0)),
    ("primacy COMMAND --help-all", No(FORM)),
    ("primacy help COMMAND", No(FORM)),
    ("primacy depose --json", Led(0)),
    ("primacy doctor --json", Led(0)),
    ("primacy history --json", Led(0)),
    ("primacy list", Led(0)),
    ("primacy list --json", Led(0)),
    ("primacy man", Alone(0)),
    ("primacy members --json", Led(0)),
    ("primacy members --watch --json", No("json.rs reads what it prints")),
    ("primacy pause", Led(0)),
    ("primacy pause --json", Led(0)),
    ("primacy forget", No("a command's name, which is completed elsewhere")),
    ("primacy forget billing", Led(1)),
    ("primacy forget --json", No("a command's name, which is completed elsewhere")),
    ("primacy resume", Led(0)),
    ("primacy resume --json", Led(0)),
    ("primacy peer", No("a command's name, which is completed elsewhere")),
    ("primacy peer --json", No("a command's name, which is completed elsewhere")),
    ("primacy peer add", No("a command's name, which is completed elsewhere")),
    ("primacy peer certs", No("a command's name, which is completed elsewhere")),
    ("primacy peer confirm", No("a command's name, which is completed elsewhere")),
    ("primacy peer certs --json", No("a command's name, which is completed elsewhere")),
    ("primacy peer revoke", No("a command's name, which is completed elsewhere")),
    ("primacy peer revoke --json", No("a command's name, which is completed elsewhere")),
    ("primacy peer replace c c@10.0.0.3:7400", No("needs a voter whose folder was lost: processes::exchange")),
    ("primacy peer replace c c@10.0.0.7:7400", No("needs a voter that has moved: reconfiguration.rs of the library")),
    ("primacy promote", No("a command's name, which is completed elsewhere")),
    ("primacy promote --json", No("a command's name, which is completed elsewhere")),
    ("primacy run", No("a command's name, which is completed elsewhere")),
    ("primacy run --status-file /run/primacy/status.json -- ./service", Peers),
    ("primacy run --http", No("a command's name, which is completed elsewhere")),
    ("primacy run --verbose", No("a command's name, which is completed elsewhere")),
    ("primacy schema", No("a command's name, which is completed elsewhere")),
    ("primacy schema postgres", Alone(0)),
    ("primacy simulate --json", No("2,000 worlds take a minute unoptimised; simulate.rs runs fewer")),
    ("primacy promote --no-wait --json", No("a command's name, which is completed elsewhere")),
    ("primacy status --json", Led(0)),
    ("primacy watch --json", Lasts("\"schema\"")),
];

/// What the lines about peers need beside them, in the manual's order: `=` stands before its lines, `&` before one that goes
/// on, and `?` before a wait that is over when the command succeeds.
const PEERS: &[&str] = &[
    "=primacy peer certs certs a b c web-1 web-2",
    "=primacy peer certs certs a b c web-1 web-2 operator",
    " primacy peer certs certs a b c d e f web-1 web-2 operator",
    "&primacy peer --name b --certs certs --peers a@10.0.0.1:7400,b@10.0.0.2:7400,c@10.0.0.3:7400",
    "&primacy peer --name c --certs certs --peers a@10.0.0.1:7400,b@10.0.0.2:7400,c@10.0.0.3:7400",
    "=primacy peer --name a --certs certs --peers a@10.0.0.1:7400,b@10.0.0.2:7400,c@10.0.0.3:7400",
    "=export PRIMACY_STORE='peers://a@10.0.0.1:7400,b@10.0.0.2:7400,c@10.0.0.3:7400?certs=certs&name=web-1'",
    "?primacy list",
    "=primacy run --name web-1 -- ./jobs",
    "=primacy run --store 'peers://a@10.0.0.1:7400,b@10.0.0.2:7400,c@10.0.0.3:7400?certs=certs&name=web-1' -- ./jobs",
    "=primacy doctor",
    " kill $a; wait $a",
    "=primacy peer --name a --certs certs --peers a@10.0.0.1:7400,b@10.0.0.2:7400,c@10.0.0.3:7400 --socket /run/primacy/a.socket",
    "=export PRIMACY_STORE=peers:///run/primacy/a.socket",
    "?primacy list",
    "=primacy run --name web-1 -- ./jobs",
    "=primacy run --store peers:///run/primacy/a.socket --turn ring -- ./worker",
    "=primacy run --store peers:///run/primacy/a.socket --score-oracle latency --fail-back 1m -- ./writer",
    "=primacy run --store peers:///run/primacy/a.socket --score-oracle consensus --score-class 10000 -- ./writer",
    "=primacy peer list",
    "=primacy peer revoke certs web-1",
    "=primacy peer revoke certs ./certs/web-2.pem",
    "&primacy peer --name d --certs certs --peers c@10.0.0.3:7400,d@10.0.0.4:7400",
    "&primacy peer --name e --certs certs --peers c@10.0.0.3:7400,e@10.0.0.5:7400",
    "&primacy peer --name f --certs certs --peers c@10.0.0.3:7400,f@10.0.0.6:7400",
    " export PRIMACY_STORE='peers://a@10.0.0.1:7400,b@10.0.0.2:7400,c@10.0.0.3:7400?certs=certs&name=operator'",
    "?primacy peer add d@10.0.0.4:7400 e@10.0.0.5:7400",
    "=primacy peer add d@10.0.0.4:7400 e@10.0.0.5:7400",
    "=primacy peer remove a b",
    "?primacy peer replace c f@10.0.0.6:7400",
    // The last of those that were named so far has been taken out, and may be gone.
    " export PRIMACY_STORE='peers://d@10.0.0.4:7400,e@10.0.0.5:7400,f@10.0.0.6:7400?certs=certs&name=operator'",
    "=primacy peer replace c f@10.0.0.6:7400",
    "=primacy completions bash > /usr/share/bash-completion/completions/primacy",
    "=primacy man --dir /usr/local/share/man/man1",
    " unset PRIMACY_STORE",
    "=primacy run --status-file /run/primacy/status.json -- ./service",
    "&primacy agent",
    "?primacy agent list",
    "=primacy agent list",
    " kill $!; wait $!",
    "&primacy agent --lease 10s --grace 2s",
    "?primacy agent list",
    " kill $!; wait $!",
    "&primacy agent --http 127.0.0.1:8008",
    "?primacy agent list",
    " kill $!; wait $!",
    " cp -a /etc etc; mkdir etc/primacy; mount --bind etc /etc",
    " printf '[[election]]\nname = \"billing\"\n' > /etc/primacy/agent.toml",
    "=primacy agent check --config /etc/primacy/agent.toml",
    "&primacy agent --config /etc/primacy/agent.toml",
    "?primacy agent list",
    " kill $!; wait $!",
    "=export PRIMACY_STORE=postgresql://jobs@db.example/jobs",
    " primacy status --wait 0s || [ $? = 69 ]",
];

/// The command lines of a page: in blocks those that are no output, in sentences those that are more than a name.
fn lines_of(page: &str) -> Vec<String> {
    let mut lines = Vec::new();
    let mut block: Option<(&str, bool)> = None;
    // A block may stand in a list.
    for line in page.lines().map(str::trim_start) {
        if let Some(kind) = line.strip_prefix("```") {
            block = if block.is_some() { None } else { Some((kind, false)) };
            continue;
        }
        match &mut block {
            Some((kind @ ("sh" | ""), prompts)) => {
                let prompted = line.strip_prefix("$ ");
                *prompts |= prompted.is_some();
                let line = prompted.unwrap_or(line);
                let command = line.split("   #").next().unwrap_or(line).trim_end();
                // A block with prompts shows output, too; a picture has no commands.
                let counts = prompted.is_some() || (!*prompts && (*kind == "sh" || begins_like_one(command)));
                if counts && !command.is_empty() {
                    lines.push(command.to_owned());
                }
            }
            // What a unit of systemd runs.
            Some(("ini", _)) => {
                lines.extend(line.strip_prefix("ExecStart=/usr/local/bin/").map(str::to_owned));
            }
            Some(_) => {}
            None => {
                let quoted = line.split('`').skip(1).step_by(2);
                let whole = |text: &&str| begins_like_one(text) && !text.contains(['[', '<']) && !text.ends_with("...");
                lines.extend(quoted.filter(whole).map(str::to_owned));
            }
        }
    }
    lines
}

/// Whether a page has this line. One that no page has is not run.
fn is_in_pages(line: &str) -> bool {
    PAGES.iter().any(|(_, text)| lines_of(text).iter().any(|other| other == line))
}

fn begins_like_one(text: &str) -> bool {
    ["primacy ", "cargo "].iter().any(|program| text.starts_with(program))
}

fn way(line: &str) -> Option<Way> {
    LINES.iter().find(|(known, _)| *known == line).map(|(_, way)| *way)
}

#[test]
fn every_line_of_the_pages_has_its_way_to_be_run() {
    for (page, text) in PAGES {
        for line in lines_of(text).iter().filter(|line| !line.contains("NAME")) {
            assert!(way(line).is_some(), "{page}: say in LINES how this line is run:\n{line}");
        }
    }
    for (line, way) in LINES {
        let among_peers = PEERS.iter().any(|other| other.strip_prefix(['=', '&']) == Some(line));
        assert!(*way != Peers || among_peers, "PEERS does not run this line: {line}");
    }
}

/// A folder with the programs that the manual names, where a line is run.
struct Sandbox {
    folder: TempDir,
    /// Whose end this awaits.
    runners: Mutex<Vec<Child>>,
}

/// The manual's programs, which do their work at once, and what stands for those that are elsewhere.
const PROGRAMS: &[(&str, &str)] = &[
    ("scheduler", "exit 0"),
    ("service", "exit 0"),
    ("billing", "exit 0"),
    ("worker", "exit 0"),
    ("relay", "exit 0"),
    ("writer", "exit 0"),
    ("jobs", "exit 0"),
    ("report", "exit 0"),
    ("migrate", "exit 0"),
    ("worker-that-forks", "exit 0"),
    ("how-fresh", "echo 7"),
    ("announce", "echo announced"),
    ("promote", "echo promoted"),
    ("demote", "exit 0"),
    // No manager of services is disturbed.
    ("bin/systemctl", "echo \"$@\""),
    // The administrator of a server of the test.
    ("bin/mariadb", "[ \"$1 $2\" = '-u root' ] && exec /usr/bin/env -S \"$MARIADB\""),
];

impl Sandbox {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        fs::create_dir(folder.path().join("bin")).expect("it is new");
        for (name, script) in PROGRAMS {
            let file = folder.path().join(name);
            fs::write(&file, format!("#!/bin/sh\n{script}\n")).expect("written");
            fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).expect("it is ours");
        }
        Self { folder, runners: Mutex::default() }
    }

    /// `command`, as somebody in this folder would run it.
    fn command(&self, mut command: Command) -> Command {
        let here = self.folder.path();
        let primacy = Path::new(env!("CARGO_BIN_EXE_primacy")).parent().expect("it is in a folder").display();
        let path = std::env::var("PATH").unwrap_or_default();
        command.current_dir(here).env("HOME", here).env("PATH", format!("{}/bin:{primacy}:{path}", here.display()));
        command.env_remove("XDG_STATE_HOME").stdin(Stdio::null()).process_group(0);
        command
    }

    /// `sh` with this line.
    fn line(&self, line: &str) -> Command {
        let mut shell = Command::new("sh");
        // That of the test says what the environment must not.
        for name in ["PRIMACY_STORE", "PRIMACY_ELECTION", "PRIMACY_NAME", "PRIMACY_LOG", "STATE_DIRECTORY"] {
            shell.env_remove(name);
        }
        shell.args(["-c", line]);
        self.command(shell)
    }

    fn runs(&self, line: &str) -> Output {
        self.line(line).output().expect("there is a shell")
    }

    /// web-1 leads, and web-2 waits.
    fn led(self) -> Self {
        for (name, ready) in [
            ("web-1", "primacy watch --until-leader --quiet --wait 20s"),
            ("web-2", "until primacy status --json | jq -e '.candidates | length == 1'; do :; done"),
        ] {
            let mut runner = primacy(&["run", "--name", name, "--data", "http://10.0.0.1:8080", "--", "sleep", "1000"]);
            runner.stdout(Stdio::null()).stderr(Stdio::null());
            self.runners.lock().expect("no panic").push(self.command(runner).spawn().expect("it starts"));
            let output = self.runs(ready);
            assert!(output.status.success(), "{output:?}");
        }
        self
    }

    /// Runs it until it says this.
    fn says(&self, line: &str, wanted: &str) {
        let mut child =
            self.line(line).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("there is a shell");
        let mut out = BufReader::new(child.stdout.take().expect("it is piped")).lines().map_while(Result::ok);
        let said = out.any(|line| line.contains(wanted));
        end(&mut child);
        // A shell that is ended does not wait for what it has started: that has ended once nobody can write any more.
        out.for_each(drop);
        std::io::copy(&mut child.stderr.take().expect("it is piped"), &mut std::io::sink()).expect("it can be read");
        assert!(said, "{line}: it has not said {wanted}");
    }
}

/// Ends a process and its group.
fn end(child: &mut Child) {
    let _ = killpg(Pid::from_raw(i32::try_from(child.id()).expect("pids are small")), Signal::SIGTERM);
    let _ = child.wait();
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        self.runners.lock().expect("no panic").iter_mut().for_each(end);
    }
}

#[track_caller]
fn ended(line: &str, output: &Output, code: i32) {
    let [out, err] = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes));
    assert_eq!(output.status.code(), Some(code), "{line}\n{out}{err}");
}

#[test]
fn lines_about_one_host_do_what_they_say() {
    let next = AtomicUsize::new(0);
    // They wait for candidates and leases more than for the processor.
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while let Some((line, way)) = LINES.get(next.fetch_add(1, Ordering::Relaxed)) {
                    match way {
                        _ if !is_in_pages(line) => {}
                        Alone(code) => {
                            ended(line, &Sandbox::new().runs(&format!("{line}\nend=$?; wait; exit $end")), *code)
                        }
                        Led(code) => ended(line, &Sandbox::new().led().runs(line), *code),
                        Says(wanted) => Sandbox::new().says(line, wanted),
                        Lasts(wanted) => Sandbox::new().led().says(line, wanted),
                        Postgres | MariaDb | Peers | No(_) => {}
                    }
                }
            });
        }
    });
}

#[test]
fn lines_about_servers_do_what_they_say() {
    use primacy_servers::{MariaDbOptions, PostgresOptions};
    let postgres = primacy_servers::Postgres::start(&PostgresOptions::default()).expect("it starts");
    let mariadb = primacy_servers::MariaDb::start(&MariaDbOptions::default()).expect("it starts");
    let (user, password, port) = crate::examples::parts(&mariadb.url());
    let client = format!("/usr/bin/mariadb --no-defaults --host=127.0.0.1 --port={port} --user={user} primacy");
    let sandbox = Sandbox::new();
    for (line, _) in LINES.iter().filter(|(line, way)| matches!(way, Postgres | MariaDb) && is_in_pages(line)) {
        let mut command = sandbox.line(line);
        command.env("PRIMACY_STORE", postgres.url()).env("ADMIN_URL", postgres.url());
        command.env("MARIADB", &client).env("MYSQL_PWD", &password);
        ended(line, &command.output().expect("there is a shell"), 0);
    }
    // Both fences are there, and refuse what nobody has elected.
    for refused in [postgres.sql("SELECT primacy_fence('a', 1)"), mariadb.sql("CALL primacy_fence('a', 1)")] {
        let why = format!("{:?}", refused.expect_err("nobody has campaigned"));
        assert!(why.contains("knows no election"), "{why}");
    }
}

/// The addresses of the manual are this machine's, and its folders are empty.
const HOSTS: &str = "\
ip link set lo up
for n in 1 2 3 4 5 6 7; do ip address add 10.0.0.$n/32 dev lo; done
for folder in /run /usr/share/bash-completion /usr/local/share; do mount -t tmpfs tmpfs $folder; done
mkdir -m 755 /run/primacy /usr/share/bash-completion/completions
";

#[test]
fn lines_about_peers_do_what_they_say() {
    let sandbox = Sandbox::new();
    let mut script = format!("set -e\n{HOSTS}");
    for (n, line) in PEERS.iter().enumerate() {
        let (kind, line) = line.split_at(1);
        if kind == "=" && !is_in_pages(line) {
            continue;
        }
        let voter = line.strip_prefix("primacy peer --name ").and_then(|rest| rest.split(' ').next());
        script += &format!("echo 'LINE {n}'\n");
        script += &match (kind, voter) {
            ("?", _) => format!("until {line}; do :; done\n"),
            // It votes until it is ended, at its own address, since one machine stands for all of the manual's.
            (_, Some(name)) => {
                let own = line.split([' ', ',']).find_map(|word| word.strip_prefix(&format!("{name}@")));
                format!("{line} --quiet --listen {} & {name}=$!\n", own.expect("its address is among them"))
            }
            ("&", None) => format!("{line} --quiet &\n"),
            _ => format!("{line}\n"),
        };
    }
    script += "echo COMPLETE\n";
    let mut command = Command::new("timeout");
    // All voters end with the shell, which is the first process of their namespace.
    command.args(["--kill-after=5", "120", "unshare", "--net", "--mount", "--propagation", "private"]);
    command.args(["--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", &script]);
    let output = sandbox.command(command).env_remove("PRIMACY_STORE").output().expect("every system has it");
    let [out, err] = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes));
    if !out.contains("LINE ") {
        return primacy_servers::skipped(&format!("hosts of one's own need root: {err}"));
    }
    let last = out.lines().filter_map(|line| line.strip_prefix("LINE ")?.parse::<usize>().ok()).next_back();
    let last = last.and_then(|n| PEERS.get(n)).unwrap_or(&"");
    assert!(out.lines().any(|line| line == "COMPLETE"), "{last}\n{out}\n{err}");
}
