//! Gets the programs that the tests need from the distribution's packages.

use crate::shell::{Shell, say};

/// A program that some test runs.
struct Need {
    /// What must be on the `PATH`.
    program: &'static str,
    /// The Debian package that brings it.
    package: &'static str,
    /// Which tests run it.
    why: &'static str,
}

const NEEDS: &[Need] = &[
    Need { program: "cc", package: "gcc", why: "the embedded SQLite is C" },
    Need { program: "git", package: "git", why: "tidy asks which files belong to the project" },
    Need { program: "prove", package: "perl", why: "the witness of the process tests needs perl with Time::HiRes" },
    Need { program: "faketime", package: "faketime", why: "process tests step one process's clock" },
];

/// `cargo xtask services`: installs what is missing, if this user may.
pub(crate) fn install(shell: &Shell) -> Result<(), String> {
    let missing: Vec<&Need> = NEEDS.iter().filter(|need| !shell.has(need.program)).collect();
    if missing.is_empty() {
        say(&format!("  all {} programs are there", NEEDS.len()));
        return Ok(());
    }
    let told: Vec<String> = missing.iter().map(|need| format!("{} ({})", need.program, need.why)).collect();
    say(&format!("  missing: {}", told.join(", ")));
    let packages: Vec<&str> = missing.iter().map(|need| need.package).collect();
    let by_hand = format!("install these packages: {}", packages.join(" "));
    if !shell.has("apt-get") {
        return Err(format!("this is not a Debian system; {by_hand}"));
    }
    if shell.read("id", &["-u"])?.trim() != "0" {
        return Err(format!("only root can install packages; {by_hand}"));
    }
    let quiet = [("DEBIAN_FRONTEND", "noninteractive")];
    let mut install = vec!["install", "--yes", "--no-install-recommends"];
    install.extend(&packages);
    // The lists of packages may be old or absent; fetching them takes a while, so only when needed.
    if shell.run("apt-get", &install, &quiet).is_err() {
        shell.run("apt-get", &["update"], &quiet)?;
        shell.run("apt-get", &install, &quiet)?;
    }
    match missing.iter().find(|need| !shell.has(need.program)) {
        Some(need) => Err(format!("package {} is installed, but brought no `{}`", need.package, need.program)),
        None => Ok(()),
    }
}
