//! One PostgreSQL and one MariaDB server for all tests that need just any.

use std::fs;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use primacy_servers::{MYSQL_VARIABLE, MariaDb, MariaDbOptions, POSTGRES_VARIABLE, Postgres, PostgresOptions};

use crate::shell::{Shell, Stopwatch, say};

/// The word for the process that holds the servers of `up`, until `down` ends it.
pub(super) const HOLD: &str = "hold";

/// How long servers may take to start or end.
const PATIENCE: Duration = Duration::from_secs(60);

/// Running servers, which end with this value. Servers that the environment names are used instead.
pub(crate) struct Shared {
    postgres: Option<Postgres>,
    mariadb: Option<MariaDb>,
}

impl Shared {
    pub(crate) fn start() -> Result<Self, String> {
        let given = |variable| std::env::var(variable).is_ok_and(|url| !url.is_empty());
        let told = |variable| {
            move |problem: primacy_servers::Problem| {
                format!("{problem}; tests also take a server of yours that they may write to, if {variable} is its URL")
            }
        };
        let mut servers = Self { postgres: None, mariadb: None };
        if !given(POSTGRES_VARIABLE) {
            servers.postgres = Some(Postgres::start(&PostgresOptions::default()).map_err(told(POSTGRES_VARIABLE))?);
        }
        if !given(MYSQL_VARIABLE) {
            servers.mariadb = Some(MariaDb::start(&MariaDbOptions::default()).map_err(told(MYSQL_VARIABLE))?);
        }
        Ok(servers)
    }

    /// What tells tests where the servers are.
    pub(crate) fn variables(&self) -> Vec<(String, String)> {
        let postgres = self.postgres.iter().map(|server| (POSTGRES_VARIABLE, server.url()));
        let mariadb = self.mariadb.iter().map(|server| (MYSQL_VARIABLE, server.url()));
        postgres.chain(mariadb).map(|(name, url)| (name.to_string(), url)).collect()
    }
}

/// Where `up` leaves what `status` and `down` need.
struct Notes {
    folder: PathBuf,
}

impl Notes {
    fn of(shell: &Shell) -> Result<Self, String> {
        let folder = shell.target().join("primacy-servers").join("up");
        fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        Ok(Self { folder })
    }

    /// The lines that tell a shell where the servers are; they are there once the servers are.
    fn exports(&self) -> PathBuf {
        self.folder.join("exports")
    }

    /// What the holder has to complain about.
    fn complaints(&self) -> PathBuf {
        self.folder.join("complaints")
    }

    fn pid(&self) -> PathBuf {
        self.folder.join("pid")
    }

    /// The process that holds the servers, if there is one. The number alone might be another's by now.
    fn holder(&self) -> Option<u32> {
        let pid = fs::read_to_string(self.pid()).ok()?.trim().parse().ok()?;
        let words = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
        let mut words = words.split(|byte| *byte == 0).rev().filter(|word| !word.is_empty());
        let is_holder = words.next() == Some(HOLD.as_bytes()) && words.next() == Some(b"services");
        is_holder.then_some(pid)
    }
}

/// `cargo xtask services up`: for `eval` of a shell.
pub(super) fn up(shell: &Shell) -> Result<(), String> {
    let notes = Notes::of(shell)?;
    if notes.holder().is_none() {
        start_holder(shell, &notes)?;
    }
    status(shell)
}

fn start_holder(shell: &Shell, notes: &Notes) -> Result<(), String> {
    use std::os::unix::process::CommandExt;
    let _ = fs::remove_file(notes.exports());
    let complaints = notes.complaints();
    let file = fs::File::create(&complaints).map_err(|error| format!("{}: {error}", complaints.display()))?;
    let own = std::env::current_exe().map_err(|error| format!("this program has no place: {error}"))?;
    let mut command = shell.command(&own.to_string_lossy(), &["services", HOLD]);
    // Away from the terminal, whose Ctrl-C is not meant for it.
    command.process_group(0).stdin(Stdio::null()).stderr(Stdio::null()).stdout(file);
    // An earlier `up` may have left its variables in this shell.
    command.env_remove(POSTGRES_VARIABLE).env_remove(MYSQL_VARIABLE);
    let mut holder = command.spawn().map_err(|error| format!("the servers' holder cannot be run: {error}"))?;
    fs::write(notes.pid(), holder.id().to_string()).map_err(|error| format!("{}: {error}", notes.pid().display()))?;
    await_that("the servers to start", || {
        if holder.try_wait().is_ok_and(|status| status.is_some()) {
            // Told as this program tells it.
            let told = fs::read_to_string(&complaints).unwrap_or_default();
            return Err(told.trim().trim_start_matches("xtask: ").to_owned());
        }
        Ok(notes.exports().is_file())
    })
}

/// What the holder does: it starts the servers and lives. They end with it, by whatever signal it ends.
pub(super) fn hold(shell: &Shell) -> Result<(), String> {
    let notes = Notes::of(shell)?;
    let servers = Shared::start()?;
    let lines = servers.variables().into_iter().map(|(name, url)| format!("export {name}='{url}'\n"));
    let unfinished = notes.folder.join("exports.unfinished");
    let written = fs::write(&unfinished, lines.collect::<String>());
    written.and_then(|()| fs::rename(&unfinished, notes.exports())).map_err(|error| format!("the exports: {error}"))?;
    loop {
        std::thread::park();
    }
}

/// `cargo xtask services status`.
pub(super) fn status(shell: &Shell) -> Result<(), String> {
    let notes = Notes::of(shell)?;
    let exports = fs::read_to_string(notes.exports()).unwrap_or_default();
    match notes.holder() {
        None => say("# no servers; start them: eval \"$(cargo xtask services up)\""),
        Some(pid) => {
            say(&format!("# servers of process {pid}; end them: cargo xtask services down"));
            say(exports.trim_end());
        }
    }
    Ok(())
}

/// `cargo xtask services down`: ends what `up` has started and nothing else.
pub(super) fn down(shell: &Shell) -> Result<(), String> {
    let notes = Notes::of(shell)?;
    if let Some(pid) = notes.holder() {
        shell.read("kill", &[&pid.to_string()])?;
        await_that("the servers to end", || Ok(notes.holder().is_none()))?;
    }
    for file in [notes.exports(), notes.pid(), notes.complaints()] {
        let _ = fs::remove_file(file);
    }
    Ok(())
}

fn await_that(what: &str, mut holds: impl FnMut() -> Result<bool, String>) -> Result<(), String> {
    let watch = Stopwatch::start();
    while !holds()? {
        if watch.elapsed() > PATIENCE {
            return Err(format!("waited {} s in vain for {what}", PATIENCE.as_secs()));
        }
        #[expect(clippy::disallowed_methods, reason = "a process that is nobody's child tells nobody about itself")]
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_holder_is_known_by_its_words_too() {
        let folder = std::env::temp_dir().join(format!("primacy-notes-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("it can be made");
        let notes = Notes { folder };
        assert_eq!(notes.holder(), None, "nothing is noted");
        fs::write(notes.pid(), std::process::id().to_string()).expect("it can be written");
        assert_eq!(notes.holder(), None, "that process is this test");
        let mut command = std::process::Command::new("sh");
        command.args(["-c", "read line", "xtask", "services", HOLD]).stdin(Stdio::piped());
        let mut holder = command.spawn().expect("every system has it");
        fs::write(notes.pid(), holder.id().to_string()).expect("it can be written");
        await_that("the shell to start", || Ok(notes.holder() == Some(holder.id()))).expect("it is one");
        holder.kill().expect("it runs");
        holder.wait().expect("it was killed");
        assert_eq!(notes.holder(), None, "it is gone");
        fs::remove_dir_all(&notes.folder).expect("it is there");
    }
}
