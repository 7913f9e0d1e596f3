//! Gets the programs that the tests need from the distribution's packages.

use std::fs;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::process::Command;

use primacy_servers::{Galera, MYSQL_VARIABLE, POSTGRES_VARIABLE, is_installed};

use crate::shell::{Shell, say};

/// A program that some test runs.
struct Need {
    /// Its name.
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
    Need { program: "setpriv", package: "util-linux", why: "servers run as an ordinary user and end with their test" },
    Need { program: "postgres", package: "postgresql", why: "a store" },
    Need { program: "psql", package: "postgresql-client", why: "tests look into that store" },
    Need { program: "pgbouncer", package: "pgbouncer", why: "the store behind a transaction pooler" },
    Need { program: "mariadbd", package: "mariadb-server", why: "a store" },
    Need { program: "mariadb", package: "mariadb-client", why: "tests look into that store" },
    Need { program: GALERA, package: "galera-4", why: "a store on several nodes" },
    Need { program: "rsync", package: "rsync", why: "Galera copies a node's data" },
    Need { program: PSYCOPG, package: "python3-psycopg2", why: "an example in Python" },
    Need { program: "ip", package: "iproute2", why: "candidates of chaos runs have hosts of their own" },
    Need { program: "openssl", package: "openssl", why: "certificates for servers with TLS, and strangers to peers" },
    Need { program: "redis-server", package: "redis-server", why: "the key-value store answers as it does" },
    Need { program: "redis-cli", package: "redis-tools", why: "a client of the key-value store" },
    Need { program: "redis-benchmark", package: "redis-tools", why: "another one" },
    Need { program: REDIS_PY, package: "python3-redis", why: "a client of the key-value store in Python" },
    Need { program: "haproxy", package: "haproxy", why: "it asks candidates whether they lead" },
    Need { program: "prometheus", package: "prometheus", why: "it scrapes candidates and fires alerts" },
    Need { program: "python3", package: "python3", why: "programs that lead through an agent, and a client of it" },
    Need {
        program: JSONSCHEMA,
        package: "python3-jsonschema",
        why: "it compares answers with the document about HTTP",
    },
    Need { program: "curl", package: "curl", why: "it asks over TLS and on a Unix socket" },
    Need { program: "go", package: "golang-go", why: "a client of the agent" },
    Need { program: "node", package: "nodejs", why: "a client of the agent" },
    Need { program: "npm", package: "npm", why: "it fetches the rules of accessibility that the page is held against" },
    Need { program: "chromium", package: "chromium", why: "it looks at the page" },
    Need { program: "chromedriver", package: "chromium-driver", why: "tests steer that browser" },
    Need { program: "systemd-analyze", package: "systemd", why: "it looks at the units of the agent" },
    Need { program: "strace", package: "strace", why: "voters whose disks are slow" },
];

/// What packages and images are made and tried with.
const PACKAGING_NEEDS: &[Need] = &[
    Need { program: "dpkg-shlibdeps", package: "dpkg-dev", why: "it finds out which libraries a package needs" },
    Need { program: "lintian", package: "lintian", why: "it looks at the Debian package" },
    Need { program: "musl-gcc", package: "musl-tools", why: "the binary of an image needs no library" },
    Need { program: "mmdebstrap", package: "mmdebstrap", why: "packages are tried in a clean system" },
    Need { program: "buildah", package: "buildah", why: "it builds the image" },
    Need { program: "podman", package: "podman", why: "it runs the image" },
    Need { program: "runc", package: "runc", why: "podman runs containers by it" },
    Need { program: "catatonit", package: "catatonit", why: "podman's pods are held by it" },
    Need { program: "podman-compose", package: "podman-compose", why: "it runs what the compose file says" },
    Need { program: "python3", package: "python3", why: "the manifests are checked by libraries of Python" },
];

const GALERA: &str = "libgalera_smm.so";
const PSYCOPG: &str = "psycopg2";
const REDIS_PY: &str = "redis";
const JSONSCHEMA: &str = "jsonschema";

/// `cargo xtask services`: installs what is missing, if this user may.
pub(crate) fn install(shell: &Shell) -> Result<(), String> {
    install_all(shell, NEEDS)
}

/// The same for `cargo xtask package` and the steps of the night about packages.
pub(crate) fn install_for_packages(shell: &Shell) -> Result<(), String> {
    install_all(shell, PACKAGING_NEEDS)
}

fn install_all(shell: &Shell, needs: &[Need]) -> Result<(), String> {
    let missing: Vec<&Need> = needs.iter().filter(|need| !is_there(need)).collect();
    if missing.is_empty() {
        say(&format!("  all {} programs are there", needs.len()));
        return Ok(());
    }
    for need in &missing {
        say(&format!("  missing: {} ({})", need.program, need.why));
    }
    let packages: Vec<&str> = missing.iter().map(|need| need.package).collect();
    let by_hand = format!(
        "install these packages: {}\nTests that need just any server also run with yours: set {POSTGRES_VARIABLE} and \
         {MYSQL_VARIABLE} to URLs of databases that they may write to. Those that kill servers, or look behind them, \
         need the programs.",
        packages.join(" ")
    );
    if !shell.has("apt-get") {
        return Err(format!("this is not a Debian system; {by_hand}"));
    }
    if shell.read("id", &["-u"])?.trim() != "0" {
        return Err(format!("only root can install packages; {by_hand}"));
    }
    let policy = Policy::no_services()?;
    let quiet = [("DEBIAN_FRONTEND", "noninteractive")];
    let mut install = vec!["install", "--yes", "--no-install-recommends"];
    install.extend(&packages);
    // The lists of packages may be old or absent; fetching them takes a while, so only when needed.
    if shell.run("apt-get", &install, &quiet).is_err() {
        shell.run("apt-get", &["update"], &quiet)?;
        shell.run("apt-get", &install, &quiet)?;
    }
    drop(policy);
    match missing.iter().find(|need| !is_there(need)) {
        Some(need) => Err(format!("package {} is installed, but brought no `{}`", need.package, need.program)),
        None => Ok(()),
    }
}

fn is_there(need: &Need) -> bool {
    match need.program {
        GALERA => Galera::is_installed(),
        module @ (PSYCOPG | REDIS_PY | JSONSCHEMA) => {
            let import = format!("import {module}");
            let of_path = Command::new("python3").args(["-c", &import]).output();
            let of_debian = Command::new("/usr/bin/python3").args(["-c", &import]).output();
            [of_path, of_debian].into_iter().flatten().any(|output| output.status.success())
        }
        program => is_installed(program),
    }
}

/// As long as it exists, packages that are installed start no services: the tests' servers are private. What the
/// machine's owner has decided stays as it is.
struct Policy {
    written: bool,
}

impl Policy {
    /// Asked by Debian's packages before they start anything.
    const PATH: &str = "/usr/sbin/policy-rc.d";

    fn no_services() -> Result<Self, String> {
        let mut options = fs::OpenOptions::new();
        match options.write(true).create_new(true).mode(0o755).open(Self::PATH) {
            Ok(mut file) => {
                let policy = Self { written: true };
                // Forbidden by policy.
                file.write_all(b"#!/bin/sh\nexit 101\n").map_err(|error| format!("{}: {error}", Self::PATH))?;
                Ok(policy)
            }
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(Self { written: false }),
            Err(error) => Err(format!("{}: {error}", Self::PATH)),
        }
    }
}

impl Drop for Policy {
    fn drop(&mut self) {
        if self.written {
            let _ = fs::remove_file(Self::PATH);
        }
    }
}
