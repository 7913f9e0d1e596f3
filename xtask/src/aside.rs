//! A program that runs beside the steps of a run, only while nothing else wants the processors.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Stdio};

use crate::shell::{self, Shell, Stopwatch, say};

/// A program that was begun, and what it prints, for later. It is killed if nobody waits for its end.
pub(crate) struct Aside {
    child: Child,
    shown: String,
    log: PathBuf,
    begun: Stopwatch,
}

impl Aside {
    /// Begins a program at idle priority, so that it takes nothing from tests that are timed.
    pub(crate) fn begin(shell: &Shell, name: &str, program: &str, args: &[&str]) -> Result<Self, String> {
        let log = shell.target().join(format!("ci-{name}.log"));
        let file = File::create(&log).map_err(|error| format!("{}: {error}", log.display()))?;
        let errors = file.try_clone().map_err(|error| format!("{}: {error}", log.display()))?;
        let mut command = shell.command("chrt", &[&["--idle", "0", program], args].concat());
        command.stdin(Stdio::null()).stdout(file).stderr(errors);
        let shown = format!("{program} {}", args.join(" "));
        let child = command.spawn().map_err(|error| format!("`{shown}` cannot be run by `chrt`: {error}"))?;
        say(&format!("  beside what follows, at idle priority: {shown}"));
        Ok(Self { child, shown, log, begun: Stopwatch::start() })
    }

    /// Waits for its end, and shows what it has printed. From now on it runs like everything else.
    pub(crate) fn end(mut self, shell: &Shell) -> Result<(), String> {
        shell::hurry(self.child.id());
        let status = shell.wait_for(&mut self.child).map_err(|problem| format!("`{}` {problem}", self.shown));
        say(&format!("  {}\n  ended {:.0} s after it was begun", self.shown, self.begun.elapsed().as_secs_f64()));
        let told = fs::read(&self.log).unwrap_or_default();
        say(String::from_utf8_lossy(&told).trim_end());
        let status = status?;
        if status.success() { Ok(()) } else { Err(format!("`{}` ended with {status}", self.shown)) }
    }
}

impl Drop for Aside {
    fn drop(&mut self) {
        // It has ended, unless a step before it has failed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn begun(name: &str, script: &str, shell: &Shell) -> Aside {
        Aside::begin(shell, name, "sh", &["-c", script]).expect("there is a shell")
    }

    #[test]
    fn how_it_ended_is_known_at_its_end() {
        let shell = Shell::new().expect("tests run in the workspace");
        assert_eq!(begun("test-good", "exit 0", &shell).end(&shell), Ok(()));
        let problem = begun("test-bad", "exit 3", &shell).end(&shell).expect_err("it fails");
        assert!(problem.contains("exit status: 3"), "{problem}");
        let hasty = shell.limited(Duration::from_millis(100));
        let problem = begun("test-slow", "exec sleep 60", &hasty).end(&hasty).expect_err("it takes a minute");
        assert!(problem.contains("was killed"), "{problem}");
    }

    #[test]
    fn it_does_not_outlive_a_run_that_fails() {
        let shell = Shell::new().expect("tests run in the workspace");
        let aside = begun("test-left", "exec sleep 60", &shell);
        let pid = aside.child.id();
        drop(aside);
        assert!(!PathBuf::from(format!("/proc/{pid}")).exists());
    }
}
