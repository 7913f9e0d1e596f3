//! Writes what can be written by rule: formatting, clippy's offers, golden files, ratchets, wrapped prose.

use crate::shell::{Shell, say};
use crate::{ci, tidy};

/// `cargo xtask fix`.
pub(crate) fn run(shell: &Shell) -> Result<(), String> {
    let offers =
        ["clippy", "--fix", "--allow-dirty", "--allow-staged", "--workspace", "--all-targets", "--all-features"];
    shell.cargo(&offers)?;
    shell.cargo(&["fmt", "--all"])?;
    shell.cargo(&["fmt", "--manifest-path", ci::EXAMPLE_STORE])?;
    for target in blessing_targets(&shell.read("git", &["grep", "--untracked", "-l", MARK, "--", "crates"])?) {
        let mut test = vec!["test", "--quiet"];
        test.extend(target.iter().map(String::as_str));
        shell.run("cargo", &test, &[("BLESS", "1")])?;
    }
    tidy::lower_ratchets(shell)?;
    tidy::wrap_prose(shell)?;
    say("fix: done; read the difference before you commit it");
    Ok(())
}

/// A test that compares with golden files rewrites them if this is set.
const MARK: &str = "\"BLESS\"";

/// Which tests to run, as arguments to cargo, so that all golden files are rewritten.
fn blessing_targets(files: &str) -> Vec<Vec<String>> {
    let mut targets: Vec<Vec<String>> = Vec::new();
    for file in files.lines() {
        let mut parts = file.split('/').skip(1);
        let (Some(package), Some(kind), Some(name)) = (parts.next(), parts.next(), parts.next()) else { continue };
        let mut target = vec!["--package".to_string(), package.to_string()];
        if kind == "tests" {
            target.extend(["--test".to_string(), name.trim_end_matches(".rs").to_string()]);
        }
        if !targets.contains(&target) {
            targets.push(target);
        }
    }
    targets
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_files_are_rewritten_by_the_tests_that_read_them() {
        let files = "crates/a/tests/one.rs\ncrates/a/tests/two/main.rs\ncrates/a/tests/two/x.rs\ncrates/b/src/c/d.rs\n";
        let targets: Vec<String> = blessing_targets(files).iter().map(|target| target.join(" ")).collect();
        assert_eq!(targets, ["--package a --test one", "--package a --test two", "--package b"]);
    }
}
