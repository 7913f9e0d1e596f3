//! How the page looks: to axe-core in each view, light and dark, and on the pictures of the manual.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::browser::Browser;
use crate::http_orders::SECRET;
use crate::page_many::Holders;
use crate::telling::Telling;
use crate::world::World;

const LONG: &[&str] = &["--lease", "10s", "--grace", "1s"];

/// The rules of accessibility that the page keeps, in this version and with this sum of SHA-512.
const AXE: &str = "axe-core@4.14.1";
const AXE_SUM: &str = "e63e659f9806d7ae5bd40899043b0871a5062c5442b01b3f1a3edf5eaf50bf5c3a7104a72463293b4ad1b77c661a0d4e40e850dec89de9d6ece70a8c13a9af17";

/// axe-core, fetched once; `None` where npm is not installed, which is a failure under CI.
fn axe() -> Option<String> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(AXE);
    let file = folder.join("axe.min.js");
    if !file.exists() {
        let fetched = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
        let mut command = Command::new("npm");
        command.args(["pack", "--silent", AXE]).current_dir(fetched.path()).stdin(Stdio::null());
        let output = match command.output() {
            Ok(output) => output,
            Err(error) => {
                primacy_servers::skipped(&format!("npm is not installed: {error}"));
                return None;
            }
        };
        assert!(output.status.success(), "{AXE} cannot be fetched: {output:?}");
        let archive = String::from_utf8(output.stdout).expect("a name");
        let mut unpack = Command::new("tar");
        unpack.args(["--extract", "--strip-components=1", "--file", archive.trim(), "package/axe.min.js"]);
        assert!(unpack.current_dir(fetched.path()).status().expect("tar starts").success());
        fs::create_dir_all(&folder).expect("a folder");
        fs::rename(fetched.path().join("axe.min.js"), &file).expect("it is unpacked");
    }
    let mut check = Command::new("sha512sum");
    let mut check = check.args(["--check", "--status"]).stdin(Stdio::piped()).spawn().expect("it starts");
    let line = format!("{AXE_SUM}  {}\n", file.display());
    check.stdin.take().expect("it is piped").write_all(line.as_bytes()).expect("it reads");
    assert!(check.wait().expect("it runs").success(), "{} is not what was looked at: remove it", file.display());
    Some(fs::read_to_string(file).expect("it is there"))
}

impl Browser {
    /// Nothing that axe-core knows of is wrong here, light or dark.
    #[track_caller]
    fn is_well(&self, axe: &str, what: &str) {
        for scheme in ["light", "dark"] {
            self.scheme(scheme);
            let found = self.wait_for(&format!(
                "{axe}; axe.run(document, {{ resultTypes: ['violations'] }}).then((told) => done(told.violations));"
            ));
            let found: Vec<String> = found
                .as_array()
                .expect("a list")
                .iter()
                .map(|rule| format!("{}: {} {}", rule["id"], rule["help"], rule["nodes"]))
                .collect();
            assert!(found.is_empty(), "{what}, {scheme}: {found:#?}");
        }
        self.scheme("light");
    }

    /// Shows a place that machines have in place of this folder, also in what is drawn later.
    fn show_place(&self, folder: &str) {
        self.run(
            "const mask = () => {
                const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
                while (texts.nextNode()) {
                    const said = texts.currentNode.data;
                    if (said.includes(arguments[0])) texts.currentNode.data = said.replace(arguments[0], '/var/lib/primacy');
                }
            };
            mask();
            new MutationObserver(mask).observe(document.body, { subtree: true, childList: true, characterData: true });",
            vec![json!(folder)],
        );
    }

    /// Compares with nothing, since fonts differ: the picture is there, and is drawn anew with `BLESS=1`.
    fn picture_of(&self, world: &World, name: &str) {
        let file = pictures().join(format!("{name}.png"));
        if std::env::var_os("BLESS").is_some_and(|value| value == "1") {
            self.show_place(&world.folder().display().to_string());
            let picture = self.picture();
            assert!(picture.len() < 80 << 10, "{name}: {} bytes", picture.len());
            fs::create_dir_all(pictures()).expect("a folder");
            fs::write(&file, picture).expect("it can be written");
        }
        assert!(file.exists(), "{} is drawn with BLESS=1", file.display());
    }
}

fn pictures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/manual/pictures")
}

#[test]
fn an_election_has_no_findings_and_is_as_the_manual_shows_it() {
    let mut world = World::new();
    let (Some(axe), Some(browser)) = (axe(), Browser::start(&world)) else { return };
    let start = |world: &World, name: &str, options: &[&str]| {
        let mut command = world.witness(name, &[LONG, options, &["--http", "127.0.0.1:0"]].concat(), &[]);
        Telling::of({
            command.env("PRIMACY_HTTP_TOKEN", SECRET);
            command
        })
    };
    let first = start(&world, "web-1", &["--data", "http://10.0.0.1:8080"]);
    let led = world.expect_start_after(0);
    let second = start(&world, "web-2", &["--data", "http://10.0.0.2:8080"]);
    world.await_candidates(1);
    let third = start(&world, "web-3", &["--data", "http://10.0.0.3:8080"]);
    world.await_candidates(2);
    browser.open(third.address, "");
    browser.until_says("#who", "web-1 leads");
    assert!(world.primacy(["promote", "web-2"]).status().expect("it starts").success());
    let led = world.expect_start_after(led.token);
    browser.until_says("#who", "web-2 leads");
    world.await_candidates(2);
    second.runner.send(Signal::SIGKILL);
    let led = world.expect_start_after(led.token);
    let _fourth = start(&world, "web-4", &["--data", "http://10.0.0.4:8080"]);
    world.await_candidates(2);
    browser.until_says("#who", &format!("{} leads", led.name));
    browser.until("document.querySelectorAll('#terms li').length === 3 && document.querySelectorAll('#candidates li').length === 2");
    browser.until_says("#terms li", "leads now");
    browser.is_well(&axe, "an election");
    browser.picture_of(&world, "election");
    browser.scheme("dark");
    browser.picture_of(&world, "election-dark");
    browser.width(320);
    assert_eq!(browser.value("document.documentElement.scrollWidth <= 320"), true);
    browser.is_well(&axe, "a narrow election");
    browser.width(1000);

    browser.click("#candidates button");
    browser.until("document.querySelector('#order').open");
    browser.is_well(&axe, "a dialog");
    browser.picture_of(&world, "order");
    browser.type_into("#order-token", "0123456789abcdefX");
    browser.click("#order-give");
    browser.until_says("#order-refused", "this is not the token");
    browser.is_well(&axe, "a refusal");
    browser.click("#order-cancel");

    drop(third);
    browser.until_says("#trouble", "No answer from the server");
    browser.until_says("#who", "Who leads is not known now");
    browser.is_well(&axe, "an election without a server");
    browser.picture_of(&world, "no-answer");
    drop(first);
}

#[test]
fn many_elections_have_no_findings_and_are_as_the_manual_shows_them() {
    let mut world = World::new();
    let (Some(axe), Some(browser)) = (axe(), Browser::start(&world)) else { return };
    let names = [
        "billing",
        "cache-warmer",
        "exports",
        "invoices",
        "mail",
        "reports",
        "scheduler",
        "search-index",
        "sessions",
        "thumbnails",
    ];
    let holds: Vec<Value> = names
        .iter()
        .enumerate()
        .map(|(n, name)| json!({ "election": name, "name": format!("web-{}", n % 3 + 1), "data": "http://10.0.0.1:8080" }))
        .collect();
    let command = world.primacy(["agent", "--name", "web-1"]);
    let holders = Holders::start(&mut world, command, &holds);
    assert!(world.primacy(["pause", "--election", "exports"]).status().expect("it starts").success());
    browser.open(holders.agent.address, "");
    browser.until_says("#count", "10 elections, 10 of them led");
    browser.until_says("#rows", "led, paused");
    browser.is_well(&axe, "a table");
    browser.picture_of(&world, "elections");
    browser.type_into("#search", "web-2");
    browser.until_says("#count", "3 of 10 elections");
    browser.width(320);
    browser.is_well(&axe, "a narrow table");
    browser.width(1000);
    drop(holders);
    browser.until_says("#trouble", "No answer from the server");
    browser.until_says("#rows", "not known now");
    browser.is_well(&axe, "a table without a server");
}
