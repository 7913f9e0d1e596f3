//! Packages are made twice with the same bytes, and tried in a clean system: installed, used, removed.

use std::fs;
use std::path::{Path, PathBuf};

use super::{Plan, SUMS, copy, failed, make, make_folder, pack, read, text, write};
use crate::shell::{Shell, say};

/// What the trial itself needs beside a minimal system.
const OF_TRIAL: &str = "systemd,man-db,python3";

/// The step `packages` of the night.
pub(crate) fn check(shell: &Shell) -> Result<(), String> {
    let plan = make(shell)?;
    let sums = read(&plan.out.join(SUMS))?;
    let plan = pack(shell, plan)?;
    let again = read(&plan.out.join(SUMS))?;
    if sums != again {
        return Err(format!("the same build gives other packages when it is packed again:\n{sums}{again}"));
    }
    say("  packed twice, the same bytes");
    let debian = plan.out.join(plan.debian(shell)?);
    // Symbols are kept for backtraces; the address in the maintainer's name is nobody's.
    let allowed = "unstripped-binary-or-object,bogus-mail-host,no-manual-page";
    shell.run("lintian", &["--fail-on", "error", "--suppress-tags", allowed, &text(&debian)], &[])?;
    install(shell, &plan, &debian)
}

fn install(shell: &Shell, plan: &Plan, debian: &Path) -> Result<(), String> {
    let root = system(shell, "clean", OF_TRIAL)?;
    let trial = root.join("trial");
    make_folder(&trial)?;
    for file in [debian, &plan.out.join(plan.archive()), &plan.out.join(SUMS)] {
        copy(file, &trial.join(file.file_name().unwrap_or_default()), 0o644)?;
    }
    let client = text(&shell.root().join("clients/python/src"));
    shell.read("cp", &["--recursive", &client, &text(&trial.join("python"))])?;
    write(&trial.join("installed.sh"), include_str!("installed.sh"))?;
    // Everything that is started there ends with this, and nothing that is mounted there is seen outside.
    let enter = trial.join("enter.sh");
    write(&enter, ENTER)?;
    let alone = ["--mount", "--pid", "--net", "--fork", "--kill-child", "bash", "-eu"];
    shell.run("unshare", &[&alone[..], &[&text(&enter), &text(&root), &plan.version]].concat(), &[])?;
    fs::remove_dir_all(&root).map_err(|error| failed(&root, &error))
}

/// ROOT VERSION
const ENTER: &str = r#"mount -t proc proc "$1/proc"
mount --rbind /dev "$1/dev"
mount -t tmpfs tmpfs "$1/run"
mount -t tmpfs tmpfs "$1/tmp"
exec chroot "$1" bash /trial/installed.sh "$2""#;

/// A folder with a new Debian system like this one that has these packages. What was downloaded is kept.
pub(super) fn system(shell: &Shell, name: &str, packages: &str) -> Result<PathBuf, String> {
    let folder = shell.root().join("target").join("systems");
    make_folder(&folder)?;
    let archive = folder.join(format!("{name}.tar"));
    if !archive.is_file() {
        let suite = shell.read("sh", &["-c", ". /etc/os-release; echo $VERSION_CODENAME"])?;
        let unfinished = folder.join(format!("{name}.unfinished.tar"));
        let include = format!("--include={packages}");
        let args = ["--quiet", "--variant=minbase", &include, suite.trim(), &text(&unfinished)];
        shell.run("mmdebstrap", &args, &[])?;
        fs::rename(&unfinished, &archive).map_err(|error| failed(&archive, &error))?;
    }
    let root = folder.join(name);
    // Left by a run that failed.
    let _ = fs::remove_dir_all(&root);
    make_folder(&root)?;
    shell.read("tar", &["--extract", "--numeric-owner", "--file", &text(&archive), "--directory", &text(&root)])?;
    Ok(root)
}
