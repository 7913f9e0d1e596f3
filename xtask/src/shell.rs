//! Running other programs: from the root of the workspace, within a time limit, with errors that name the command.

use std::ffi::OsStr;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// Prints a line for people. A reader that has gone away is no reason to stop.
pub(crate) fn say(line: &str) {
    let _ = writeln!(std::io::stdout().lock(), "{line}");
}

/// A clock for measuring the chores.
#[derive(Clone, Copy)]
pub(crate) struct Stopwatch(Instant);

impl Stopwatch {
    #[expect(clippy::disallowed_methods, reason = "a build's duration, where a suspended machine does no harm")]
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    pub(crate) fn elapsed(self) -> Duration {
        self.0.elapsed()
    }
}

/// Where and for how long programs are run.
pub(crate) struct Shell {
    root: PathBuf,
    /// For everything that is run together.
    limit: Option<(Stopwatch, Duration)>,
    /// For everything that is run, and not shown.
    env: Vec<(String, String)>,
}

impl Shell {
    /// Runs programs in the root of the workspace, without a limit.
    pub(crate) fn new() -> Result<Self, String> {
        // Set by `cargo run`; the compiled-in place is for a binary that is started by hand.
        let manifest = std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
        let xtask = manifest.unwrap_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")));
        let root = xtask.parent().ok_or("xtask is not inside of a workspace")?.to_path_buf();
        if !root.join("Cargo.lock").is_file() {
            return Err(format!("{} is not the root of the workspace", root.display()));
        }
        Ok(Self { root, limit: None, env: Vec::new() })
    }

    /// From now on, whatever still runs after `limit` is killed.
    pub(crate) fn limited(&self, limit: Duration) -> Self {
        Self { root: self.root.clone(), limit: Some((Stopwatch::start(), limit)), env: self.env.clone() }
    }

    /// From now on, whatever runs has these variables too.
    pub(crate) fn with(&self, env: Vec<(String, String)>) -> Self {
        Self { root: self.root.clone(), limit: self.limit, env: [self.env.clone(), env].concat() }
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// The folder for everything that is built.
    pub(crate) fn target(&self) -> PathBuf {
        match std::env::var_os("CARGO_TARGET_DIR") {
            Some(folder) => self.root.join(folder),
            None => self.root.join("target"),
        }
    }

    /// A command in the root of the workspace. Cargo is the one that runs this program.
    pub(crate) fn command(&self, program: &str, args: &[&str]) -> Command {
        let cargo = std::env::var_os("CARGO").filter(|_| program == "cargo");
        let mut command = Command::new(cargo.as_deref().unwrap_or(OsStr::new(program)));
        command.args(args).current_dir(&self.root).envs(self.env.iter().cloned());
        command
    }

    /// Runs `cargo` with these arguments, showing what it prints.
    pub(crate) fn cargo(&self, args: &[&str]) -> Result<(), String> {
        self.run("cargo", args, &[])
    }

    /// Runs a program, showing it and what it prints.
    pub(crate) fn run(&self, program: &str, args: &[&str], env: &[(&str, &str)]) -> Result<(), String> {
        let shown = shown(program, args, env);
        say(&format!("  $ {shown}"));
        let mut command = self.command(program, args);
        command.envs(env.iter().copied());
        let status = self.wait(&mut command).map_err(|problem| format!("`{shown}` {problem}"))?;
        if status.success() { Ok(()) } else { Err(format!("`{shown}` ended with {status}")) }
    }

    /// What a program prints, whether it succeeds or not.
    pub(crate) fn output(&self, program: &str, args: &[&str]) -> Result<Output, String> {
        let shown = shown(program, args, &[]);
        self.command(program, args).output().map_err(|error| format!("`{shown}` cannot be run: {error}"))
    }

    /// What a program that succeeds prints on its standard output.
    pub(crate) fn read(&self, program: &str, args: &[&str]) -> Result<String, String> {
        let output = self.output(program, args)?;
        if !output.status.success() {
            let told = String::from_utf8_lossy(&output.stderr);
            return Err(format!("`{}` ended with {}: {}", shown(program, args, &[]), output.status, told.trim()));
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Whether a program can be found.
    pub(crate) fn has(&self, program: &str) -> bool {
        let path = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
    }

    fn wait(&self, command: &mut Command) -> Result<ExitStatus, String> {
        let mut child = command.spawn().map_err(|error| format!("cannot be run: {error}"))?;
        self.wait_for(&mut child)
    }

    /// Waits for a program that runs already, within the limit.
    pub(crate) fn wait_for(&self, child: &mut Child) -> Result<ExitStatus, String> {
        let Some((watch, limit)) = self.limit else {
            return child.wait().map_err(|error| format!("cannot be waited for: {error}"));
        };
        let left = limit.saturating_sub(watch.elapsed());
        let pid = child.id();
        let (done, is_done) = mpsc::channel::<()>();
        let guard = std::thread::spawn(move || {
            let late = is_done.recv_timeout(left) == Err(mpsc::RecvTimeoutError::Timeout);
            if late {
                kill_tree(pid);
            }
            late
        });
        let status = child.wait().map_err(|error| format!("cannot be waited for: {error}"));
        drop(done);
        match guard.join() {
            Ok(true) => Err(format!("was killed: everything together may take {} s", limit.as_secs())),
            _ => status,
        }
    }
}

/// Ends a process's idle priority, that of all its threads. One that has ended needs no hurry.
pub(crate) fn hurry(pid: u32) {
    let pid = pid.to_string();
    let _ = Command::new("chrt").args(["--all-tasks", "--other", "--pid", "0", &pid]).stderr(Stdio::null()).status();
}

fn shown(program: &str, args: &[&str], env: &[(&str, &str)]) -> String {
    let env = env.iter().map(|(name, value)| format!("{name}='{value}' "));
    env.collect::<String>() + program + &args.iter().map(|arg| format!(" {arg}")).collect::<String>()
}

/// Kills a process and everything below it. A group would be simpler, but would cut the terminal's Ctrl-C off.
fn kill_tree(root: u32) {
    let mut doomed = vec![root];
    let parents: Vec<(u32, u32)> = std::fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .filter_map(|entry| {
            let pid = entry.ok()?.file_name().to_str()?.parse().ok()?;
            Some((pid, parent_of(&std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)?))
        })
        .collect();
    let mut next = 0;
    while next < doomed.len() {
        let above = doomed[next];
        doomed.extend(parents.iter().filter(|(_, parent)| *parent == above).map(|(pid, _)| *pid));
        next += 1;
    }
    let doomed: Vec<String> = doomed.iter().map(u32::to_string).collect();
    let _ = Command::new("kill").arg("-KILL").args(doomed).status();
}

/// The parent in a line of `/proc/PID/stat`. The name before it may contain anything, also parentheses.
fn parent_of(stat: &str) -> Option<u32> {
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parent_is_found_behind_any_name() {
        assert_eq!(parent_of("42 (a) b) S 7 42 42 0"), Some(7));
        assert_eq!(parent_of("42"), None);
    }

    #[test]
    fn variables_reach_what_runs_and_are_not_shown() {
        let shell = Shell::new().expect("tests run in the workspace").with(vec![("SECRET".into(), "rosebud".into())]);
        assert_eq!(shell.read("sh", &["-c", "echo $SECRET"]), Ok("rosebud\n".into()));
        let problem = shell.run("sh", &["-c", "exit 1"], &[]).expect_err("it fails");
        assert!(!problem.contains("rosebud"), "{problem}");
    }

    #[test]
    fn what_takes_too_long_is_killed_with_its_children() {
        let shell = Shell::new().expect("tests run in the workspace").limited(Duration::from_millis(100));
        let watch = Stopwatch::start();
        let problem = shell.run("sh", &["-c", "sleep 60 & wait"], &[]).expect_err("it takes a minute");
        assert!(problem.contains("was killed"), "{problem}");
        assert!(watch.elapsed() < Duration::from_secs(30));
    }
}
