//! What is given to users: a Debian package, an archive, the files of a container image, and their checksums.
//!
//! All of it is made of one build and one folder of generated files, with the commit's time, so that the same build gives
//! the same bytes.

mod archive;
mod containers;
mod licences;
mod tools;
mod trial;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use crate::shell::{Shell, say};

pub(crate) use containers::check as check_containers;
pub(crate) use trial::check as check_packages;

/// The command's package.
const PACKAGE: &str = "primacy-cli";
/// The user of an image. It is in no system's range for people or services.
const IMAGE_USER: &str = "65532";

/// A target whose C library is linked into the binary, so that an image needs no other file of a system.
fn static_target(shell: &Shell) -> Result<String, String> {
    Ok(format!("{}-unknown-linux-musl", shell.read("uname", &["-m"])?.trim()))
}

/// Where everything is, and of which commit it is.
struct Plan {
    /// What is given to users.
    out: PathBuf,
    /// Files that are generated or adapted for packages.
    stage: PathBuf,
    version: String,
    architecture: String,
    /// The time of the commit, in seconds of the epoch: that of every file.
    time: String,
}

impl Plan {
    fn of(shell: &Shell) -> Result<Self, String> {
        // The manifest's `[package.metadata.deb]` names this folder.
        let out = shell.root().join("target").join("package");
        let id = shell.read("cargo", &["pkgid", "--locked", "--package", PACKAGE])?;
        let version = id.trim().rsplit(['#', '@']).next().unwrap_or_default().to_owned();
        let architecture = shell.read("uname", &["-m"])?.trim().to_owned();
        let time = shell.read("git", &["-c", "safe.directory=*", "log", "-1", "--format=%ct"])?.trim().to_owned();
        Ok(Self { stage: out.join("stage"), out, version, architecture, time })
    }

    fn archive(&self) -> String {
        format!("{}.tar.gz", self.archive_folder())
    }

    fn archive_folder(&self) -> String {
        format!("primacy-{}-{}-linux", self.version, self.architecture)
    }

    /// The Debian package, by its architecture in Debian's words.
    fn debian(&self, shell: &Shell) -> Result<String, String> {
        let architecture = shell.read("dpkg", &["--print-architecture"])?;
        Ok(format!("primacy_{}-1_{}.deb", self.version, architecture.trim()))
    }

    /// The folder of which an image is built, by `contrib/container/Containerfile`.
    fn image(&self) -> PathBuf {
        self.out.join("image")
    }
}

/// `cargo xtask package`.
pub(crate) fn run(shell: &Shell) -> Result<(), String> {
    let plan = make(shell)?;
    say(&format!("made in {}:", plan.out.display()));
    say(shell.read("cat", &[&text(&plan.out.join(SUMS))])?.trim_end());
    Ok(())
}

const SUMS: &str = "SHA256SUMS";

/// Builds the command twice, with the system's C library and without one, and packs both.
fn make(shell: &Shell) -> Result<Plan, String> {
    tools::install(shell)?;
    let build = ["build", "--release", "--locked", "--package", PACKAGE];
    shell.cargo(&build)?;
    shell.cargo(&[&build[..], &["--target", &static_target(shell)?]].concat())?;
    pack(shell, Plan::of(shell)?)
}

/// Packs what is built.
fn pack(shell: &Shell, plan: Plan) -> Result<Plan, String> {
    // Nothing of another version stays.
    let _ = fs::remove_dir_all(&plan.out);
    make_folder(&plan.stage)?;
    let built = shell.target().join("release").join("primacy");
    stage(shell, &plan, &built)?;
    debian_package(shell, &plan)?;
    archive::tarball(shell, &plan, &built)?;
    let of_image = shell.target().join(static_target(shell)?).join("release").join("primacy");
    archive::image(shell, &plan, &of_image)?;
    let given = [plan.debian(shell)?, plan.archive(), archive::IMAGE_FILES.to_owned()];
    let given: Vec<&str> = given.iter().map(String::as_str).collect();
    let sums =
        script(shell, "cd \"$1\"; shift; sha256sum \"$@\"", &[&[text(&plan.out).as_str()], &given[..]].concat())?;
    write(&plan.out.join(SUMS), &sums)?;
    Ok(plan)
}

/// What is not in the repository as it is to be installed: pages and completions, units with another path, licences.
fn stage(shell: &Shell, plan: &Plan, built: &Path) -> Result<(), String> {
    let stage = &plan.stage;
    let primacy = text(built);
    shell.read(&primacy, &["man", "--dir", &text(&stage.join("man"))])?;
    make_folder(&stage.join("completions"))?;
    for (name, kind) in [("primacy", "bash"), ("_primacy", "zsh"), ("primacy.fish", "fish")] {
        write(&stage.join("completions").join(name), &shell.read(&primacy, &["completions", kind])?)?;
    }
    make_folder(&stage.join("systemd"))?;
    for unit in ["primacy-agent.service", "primacy-agent.socket"] {
        let unit_text = read(&shell.root().join("contrib/systemd").join(unit))?;
        write(&stage.join("systemd").join(unit), &unit_text.replace("/usr/local/bin/", "/usr/bin/"))?;
    }
    write(&stage.join("third-party"), &licences::of_dependencies(shell)?)?;
    let licences = ["LICENSE-MIT", "LICENSE-APACHE"].map(|name| read(&shell.root().join(name)));
    let [mit, apache] = licences;
    write(&stage.join("copyright"), &licences::debian(&mit?, &apache?))?;
    let date = shell.read("date", &["--utc", "--rfc-email", &format!("--date=@{}", plan.time)])?;
    let changes = format!(
        "primacy ({}-1) unstable; urgency=medium\n\n  * CHANGELOG.md beside this file says what is new.\n\n -- {MAINTAINER}  {}\n",
        plan.version,
        date.trim()
    );
    write(&stage.join("changelog"), &changes)
}

/// As the command's manifest says it.
const MAINTAINER: &str = "the primacy developers <primacy@invalid.invalid>";

fn debian_package(shell: &Shell, plan: &Plan) -> Result<(), String> {
    let program = tools::cargo_deb(shell);
    let file = text(&plan.out.join(plan.debian(shell)?));
    // Backtraces keep the names of functions, as in a build by cargo.
    let args = ["--quiet", "--no-build", "--no-strip", "--locked", "--package", PACKAGE, "--output", &file];
    shell.run(&text(&program), &args, &[("SOURCE_DATE_EPOCH", &plan.time)])
}

/// What a script for bash prints, with these arguments. It fails with its first command that fails, in a pipe too.
fn script(shell: &Shell, script: &str, args: &[&str]) -> Result<String, String> {
    shell.read("bash", &[&["-euo", "pipefail", "-c", script, "script"], args].concat())
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

fn failed(what: &Path, error: &std::io::Error) -> String {
    format!("{}: {error}", what.display())
}

fn read(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|error| failed(path, &error))
}

fn write(path: &Path, content: &str) -> Result<(), String> {
    fs::write(path, content).map_err(|error| failed(path, &error))?;
    set_mode(path, 0o644)
}

fn copy(from: &Path, to: &Path, mode: u32) -> Result<(), String> {
    fs::copy(from, to).map_err(|error| format!("{} to {}: {error}", from.display(), to.display()))?;
    set_mode(to, mode)
}

/// Whatever the umask of this user is.
fn make_folder(path: &Path) -> Result<(), String> {
    fs::create_dir_all(path).map_err(|error| failed(path, &error))?;
    set_mode(path, 0o755)
}

fn set_mode(path: &Path, mode: u32) -> Result<(), String> {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).map_err(|error| failed(path, &error))
}
