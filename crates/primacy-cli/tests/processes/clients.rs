//! The clients of an agent in other languages: their own tests, against agents of this build.

use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;

/// Runs the tests of a client.
fn passes<S: AsRef<OsStr>>(
    client: &str,
    program: &str,
    arguments: impl IntoIterator<Item = S>,
    variables: &[(&str, &OsStr)],
) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../clients").join(client);
    let mut command = Command::new(program);
    command
        .args(arguments)
        .current_dir(folder)
        .env("PRIMACY", env!("CARGO_BIN_EXE_primacy"))
        .envs(variables.iter().copied());
    for name in ["PRIMACY_STORE", "PRIMACY_ELECTION", "PRIMACY_NAME", "PRIMACY_AGENT"] {
        command.env_remove(name);
    }
    let output = match command.output() {
        Ok(output) => output,
        Err(error) => return primacy_servers::skipped(&format!("{program} is not installed: {error}")),
    };
    let [out, err] = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes));
    assert!(output.status.success(), "{client}: {}\n{out}\n{err}", output.status);
}

#[test]
fn the_one_for_python_passes_its_tests() {
    // It leaves nothing in the checkout.
    let variables = [("PYTHONPATH", OsStr::new("src")), ("PYTHONDONTWRITEBYTECODE", OsStr::new("1"))];
    passes("python", "python3", ["-m", "unittest", "discover", "-s", "tests"], &variables);
}

#[test]
fn the_one_for_go_passes_its_tests() {
    // The next run does not build the standard library again.
    let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join("go");
    let variables = [("GOCACHE", cache.as_os_str()), ("GOFLAGS", OsStr::new("-mod=mod"))];
    passes("go", "go", ["vet", "./..."], &variables);
    passes("go", "go", ["test", "-count=1", "./..."], &variables);
}

#[test]
fn the_one_for_node_passes_its_tests() {
    passes("node", "node", ["--test"], &[]);
}
