//! Proves that the core stays pure: it links without the standard library, and nothing below it does I/O.
//!
//! The proof is a generated crate without the standard library that depends on the core and brings a panic handler of
//! its own. If anything below it uses the standard library there are two, and the compiler refuses. That it does refuse
//! is tried first, with a dependency that reads a clock. Where a target without an operating system is installed, the
//! core is built for it too.

use std::fs;
use std::path::Path;

use crate::shell::{Shell, say};

const PROBE: &str = include_str!("probe.rs.txt");
/// What the core must never do, in a crate of its own.
const LEAK: &str = "//! Uses the standard library.\npub fn now() -> std::time::Instant { std::time::Instant::now() }\n";
/// `error[E0152]: found duplicate lang item`.
const TWO_PANIC_HANDLERS: &str = "E0152";
/// All that may be below the core: one derive macro, which is gone after compilation.
const BELOW_CORE: &[&str] =
    &["primacy-core", "thiserror", "thiserror-impl", "proc-macro2", "quote", "syn", "unicode-ident"];
/// All that may be below the pure parts of the key-value store, beside what is below the core: sums and hashes.
const BELOW_KV: &[&str] = &["primacy-kv", "crc", "crc-catalog", "siphasher"];
/// Targets without an operating system on which the core should run.
const BARE: &[&str] =
    &["thumbv7em-none-eabihf", "riscv32imac-unknown-none-elf", "x86_64-unknown-none", "aarch64-unknown-none"];

/// The step `boundary` of `cargo xtask ci`.
pub(crate) fn run(shell: &Shell) -> Result<(), String> {
    check_trees(shell)?;
    let manifest = write_probe(shell)?;
    let manifest = manifest.as_str();
    let build = |more: &[&str]| {
        let mut args = vec!["build", "--quiet", "--manifest-path", manifest];
        args.extend(more);
        shell.output("cargo", &args)
    };
    let leaking = build(&["--features", "leak"])?;
    let told = String::from_utf8_lossy(&leaking.stderr);
    if leaking.status.success() || !told.contains(TWO_PANIC_HANDLERS) {
        return Err(format!("the boundary check does not bite: a dependency that reads a clock got through\n{told}"));
    }
    say("  a dependency that uses the standard library is refused, as it must be");
    let built = build(&[])?;
    if !built.status.success() {
        let told = String::from_utf8_lossy(&built.stderr);
        return Err(format!("primacy-core does not build without the standard library\n{told}"));
    }
    say("  primacy-core builds without the standard library, with all features");
    for target in BARE {
        if is_installed(shell, target) {
            let args = ["build", "--locked", "--package", "primacy-core", "--all-features", "--target", target];
            shell.cargo(&args)?;
        }
    }
    Ok(())
}

fn check_trees(shell: &Shell) -> Result<(), String> {
    let core = below(shell, &["--package", "primacy-core", "--edges", "normal", "--all-features"])?;
    if let Some(other) = core.iter().find(|name| !BELOW_CORE.contains(&name.as_str())) {
        return Err(format!("primacy-core depends on {other}; it may only depend on {}", BELOW_CORE.join(", ")));
    }
    let sim = below(shell, &["--package", "primacy-sim", "--edges", "normal", "--all-features"])?;
    if let Some(other) = sim.iter().find(|name| ["tokio", "mio", "rusqlite", "primacy", "nix"].contains(&name.as_str()))
    {
        return Err(format!(
            "primacy-sim depends on {other}; it may only know the core and the pure parts of primacy-kv"
        ));
    }
    let kv = below(shell, &["--package", "primacy-kv", "--edges", "normal"])?;
    if let Some(other) = kv.iter().find(|name| ![BELOW_CORE, BELOW_KV].concat().contains(&name.as_str())) {
        return Err(format!(
            "primacy-kv without features depends on {other}; it may only know {BELOW_KV:?} and the core"
        ));
    }
    let shipped = shell.read(
        "cargo",
        &["tree", "--locked", "--package", "primacy-cli", "--all-features", "--edges", "normal,features"],
    )?;
    if shipped.contains("feature \"flaws\"") {
        return Err("primacy-cli is built with the planted bugs (feature `flaws` of primacy-core)".into());
    }
    if shipped.contains("primacy-papers ") {
        return Err("primacy-cli depends on primacy-papers; nothing that users run is built with it".into());
    }
    say(
        "  dependencies run one way: core on thiserror alone, simulator on core and the pure parts of primacy-kv, command without planted bugs",
    );
    Ok(())
}

/// The names in a dependency tree.
fn below(shell: &Shell, args: &[&str]) -> Result<Vec<String>, String> {
    let args = [&["tree", "--locked", "--prefix", "none"], args].concat();
    let tree = shell.read("cargo", &args)?;
    Ok(tree.lines().filter_map(|line| line.split_whitespace().next()).map(str::to_string).collect())
}

/// Writes the probe and its leaking dependency, and returns the probe's manifest.
fn write_probe(shell: &Shell) -> Result<String, String> {
    let core = shell.root().join("crates/primacy-core");
    let core_manifest = read(&core.join("Cargo.toml"))?;
    let features: Vec<String> = features(&core_manifest).iter().map(|name| format!("{name:?}")).collect();
    let probe = shell.target().join("boundary/probe");
    let leak = shell.target().join("boundary/leak");
    write(&leak.join("Cargo.toml"), &manifest("leak", "[workspace]\n"))?;
    write(&leak.join("src/lib.rs"), LEAK)?;
    let rest = format!(
        "[lib]\ncrate-type = [\"staticlib\"]\n\n[features]\nleak = [\"dep:leak\"]\n\n[dependencies]\n\
         primacy-core = {{ path = {core:?}, features = [{}] }}\nleak = {{ path = \"../leak\", optional = true }}\n\n\
         [profile.dev]\npanic = \"abort\"\n\n[workspace]\n",
        features.join(", ")
    );
    let path = probe.join("Cargo.toml");
    write(&path, &manifest("probe", &rest))?;
    write(&probe.join("src/lib.rs"), PROBE)?;
    // The same versions as everywhere; Cargo drops what the probe does not need.
    write(&probe.join("Cargo.lock"), &read(&shell.root().join("Cargo.lock"))?)?;
    path.into_os_string().into_string().map_err(|path| format!("{} is not UTF-8", path.display()))
}

fn manifest(name: &str, rest: &str) -> String {
    format!("[package]\nname = {name:?}\nversion = \"0.0.0\"\nedition = \"2024\"\npublish = false\n\n{rest}")
}

/// The names in a manifest's `[features]`.
fn features(manifest: &str) -> Vec<&str> {
    let section = manifest.lines().skip_while(|line| line.trim() != "[features]").skip(1);
    let section = section.take_while(|line| !line.starts_with('['));
    section.filter(|line| !line.starts_with('#')).filter_map(|line| Some(line.split_once('=')?.0.trim())).collect()
}

fn is_installed(shell: &Shell, target: &str) -> bool {
    let folder = shell.read("rustc", &["--print", "target-libdir", "--target", target]);
    folder.is_ok_and(|folder| Path::new(folder.trim()).is_dir())
}

fn read(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    let folder = path.parent().unwrap_or(Path::new("."));
    let written = fs::create_dir_all(folder).and_then(|()| fs::write(path, text));
    written.map_err(|error| format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn features_are_read_from_their_section_only() {
        let manifest =
            "[package]\nname = \"x\"\n\n[features]\n# why\nflaws = []\nmore = [\"dep:a\"]\n\n[lints]\na = 1\n";
        assert_eq!(features(manifest), ["flaws", "more"]);
    }
}
