//! What the machine offers: programs, an ordinary user, free ports, random names, and time to wait.

use std::net::{Ipv4Addr, TcpListener};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use std::{env, fs, io};

use crate::{Problem, Result};

/// How long anything that a server does at its start or end may take, on a machine that is busy with other tests.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Waits until something holds that another process brings about.
pub(crate) fn wait_until(what: &str, limit: Duration, mut holds: impl FnMut() -> Result<bool>) -> Result<()> {
    #[expect(clippy::disallowed_methods, reason = "a test's patience, where a suspended machine does no harm")]
    let deadline = Instant::now() + limit;
    while !holds()? {
        #[expect(clippy::disallowed_methods, reason = "a test's patience, where a suspended machine does no harm")]
        if Instant::now() > deadline {
            return Err(Problem::new(format!("waited {} s in vain for {what}", limit.as_secs())));
        }
        #[expect(clippy::disallowed_methods, reason = "servers tell nobody about their state; one can only ask again")]
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// Runs a program to its end; what it said on its standard error.
pub(crate) fn told(command: &mut Command) -> Result<String> {
    let shown = command.get_program().to_string_lossy().into_owned();
    let done = command.stdin(Stdio::null()).output();
    let done = done.map_err(|error| Problem::new(format!("`{shown}` cannot be run: {error}")))?;
    let told = String::from_utf8_lossy(&done.stderr).into_owned();
    if done.status.success() { Ok(told) } else { Err(Problem::new(format!("`{shown}` {}: {told}", done.status))) }
}

/// Runs a program to its end; what it printed, or its complaint.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    output_with(command, Stdio::null())
}

/// The same for a program that reads this.
pub(crate) fn output_with(command: &mut Command, input: Stdio) -> Result<String> {
    let shown = command.get_program().to_string_lossy().into_owned();
    let done =
        command.stdin(input).output().map_err(|error| Problem::new(format!("`{shown}` cannot be run: {error}")))?;
    if !done.status.success() {
        let told = String::from_utf8_lossy(&done.stderr);
        let told = if told.trim().is_empty() { String::from_utf8_lossy(&done.stdout) } else { told };
        return Err(Problem::new(format!("`{shown}` ended with {}: {}", done.status, told.trim())));
    }
    Ok(String::from_utf8_lossy(&done.stdout).trim_end_matches('\n').to_string())
}

/// The place of a program: on the `PATH`, where administrators' programs are, or where Debian keeps those of PostgreSQL.
pub(crate) fn program(name: &str, package: &str) -> Result<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let mut folders: Vec<PathBuf> = env::split_paths(&path).collect();
    folders.extend(["/usr/sbin", "/usr/local/sbin", "/sbin"].map(PathBuf::from));
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut versions: Vec<PathBuf> = versions.map(|entry| entry.path().join("bin")).collect();
    versions.sort_by_key(|bin| std::cmp::Reverse(major(bin)));
    folders.extend(versions);
    folders.into_iter().map(|folder| folder.join(name)).find(|file| file.is_file()).ok_or_else(|| {
        Problem::new(format!(
            "`{name}` is not installed: run `cargo xtask services` as root, or install the Debian package {package}"
        ))
    })
}

/// Whether a program of a server can be found, which may be outside of the `PATH`.
pub fn is_installed(name: &str) -> bool {
    program(name, name).is_ok()
}

fn major(bin: &Path) -> u32 {
    let version = bin.parent().and_then(Path::file_name).and_then(|name| name.to_str());
    version.and_then(|version| version.parse().ok()).unwrap_or(0)
}

/// Whom a server runs as: PostgreSQL, MariaDB and PgBouncer refuse to run as root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Account {
    pub(crate) user: u32,
    pub(crate) group: u32,
    /// Whether this is somebody else, which only root may choose.
    pub(crate) other: bool,
}

impl Account {
    /// This process's own user, or instead of root the first of these that exists.
    pub(crate) fn ordinary(names: &[&str]) -> Result<Self> {
        let own = fs::metadata("/proc/self").map_err(|error| Problem::io("/proc/self", &error))?;
        if own.uid() != 0 {
            return Ok(Self { user: own.uid(), group: own.gid(), other: false });
        }
        let users = fs::read_to_string("/etc/passwd").map_err(|error| Problem::io("/etc/passwd", &error))?;
        names.iter().chain(&["nobody"]).find_map(|name| Self::named(&users, name)).ok_or_else(|| {
            Problem::new(format!("servers refuse to run as root, and there is no user {}", names.join(", ")))
        })
    }

    fn named(users: &str, name: &str) -> Option<Self> {
        let mut fields =
            users.lines().map(|line| line.split(':')).find(|fields| fields.clone().next() == Some(name))?;
        let (user, group) = (fields.nth(2)?.parse().ok()?, fields.next()?.parse().ok()?);
        Some(Self { user, group, other: true })
    }

    /// The words before a command that make it run as this user.
    pub(crate) fn prefix(self) -> Vec<String> {
        if !self.other {
            return Vec::new();
        }
        let (user, group) = (format!("--reuid={}", self.user), format!("--regid={}", self.group));
        ["setpriv".to_string(), user, group, "--clear-groups".to_string()].into()
    }

    /// A command that runs as this user.
    pub(crate) fn command(self, program: &Path) -> Command {
        let mut words = self.prefix().into_iter();
        match words.next() {
            None => Command::new(program),
            Some(first) => {
                let mut command = Command::new(first);
                command.args(words).arg("--").arg(program);
                command
            }
        }
    }

    /// Gives a file or an empty folder to this user.
    pub(crate) fn own(self, path: &Path) -> Result<()> {
        if !self.other {
            return Ok(());
        }
        std::os::unix::fs::chown(path, Some(self.user), Some(self.group)).map_err(|error| Problem::io(path, &error))
    }

    /// Makes a folder that only this user and root can enter.
    pub(crate) fn folder(self, path: &Path) -> Result<()> {
        use std::os::unix::fs::DirBuilderExt;
        fs::DirBuilder::new().mode(0o700).create(path).map_err(|error| Problem::io(path, &error))?;
        self.own(path)
    }

    /// Writes a file that only this user and root can read.
    pub(crate) fn write(self, path: &Path, text: &str) -> Result<()> {
        use std::io::Write;
        use std::os::unix::fs::OpenOptionsExt;
        let mut options = fs::OpenOptions::new();
        let file = options.write(true).create(true).truncate(true).mode(0o600).open(path);
        let written = file.and_then(|mut file| file.write_all(text.as_bytes()));
        written.map_err(|error| Problem::io(path, &error))?;
        self.own(path)
    }
}

/// A port on loopback that no other server of ours takes as long as this value lives, even while nothing listens there.
#[derive(Debug)]
pub struct Port {
    number: u16,
    /// A name that goes with the process that holds it.
    _claim: UnixListener,
}

impl Port {
    /// A free port below those that the kernel gives to outgoing connections, which could take it during a restart.
    pub fn free() -> Result<Self> {
        const FIRST: u16 = 10_000;
        const COUNT: u16 = 20_000;
        let from = u16::from_le_bytes(random()?) % COUNT;
        (0..COUNT)
            .map(|step| FIRST + (from + step) % COUNT)
            .find_map(Self::claim)
            .ok_or_else(|| Problem::new(format!("no port between {FIRST} and {} is free on 127.0.0.1", FIRST + COUNT)))
    }

    fn claim(number: u16) -> Option<Self> {
        let name = SocketAddr::from_abstract_name(format!("primacy-servers/port/{number}")).ok()?;
        let claim = UnixListener::bind_addr(&name).ok()?;
        TcpListener::bind((Ipv4Addr::LOCALHOST, number)).ok()?;
        Some(Self { number, _claim: claim })
    }

    /// The number.
    pub fn number(&self) -> u16 {
        self.number
    }
}

/// Random bytes.
pub(crate) fn random<const N: usize>() -> Result<[u8; N]> {
    use io::Read;
    let mut bytes = [0; N];
    let source = fs::File::open("/dev/urandom").and_then(|mut source| source.read_exact(&mut bytes));
    source.map_err(|error| Problem::io("/dev/urandom", &error)).map(|()| bytes)
}

/// A random word: a password, or a part of a name.
pub(crate) fn random_word() -> Result<String> {
    Ok(random::<12>()?.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// A word for the shell, whatever it contains.
pub(crate) fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// Text for a part of a URL, whatever it contains.
pub(crate) fn percent_encoded(text: &str) -> String {
    let keep = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    text.bytes().map(|byte| if keep(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claimed_ports_differ_until_they_are_let_go() {
        let (one, other) = (Port::free().expect("a port"), Port::free().expect("a port"));
        assert_ne!(one.number(), other.number());
        assert!(Port::claim(one.number()).is_none(), "it is taken");
        let number = one.number();
        drop(one);
        assert!(Port::claim(number).is_some(), "it is free again");
    }

    #[test]
    fn users_are_found_by_their_whole_name() {
        let users = "postgres2:x:7:8::/:/bin/sh\npostgres:x:101:104:,,,:/var:/bin/bash\n";
        assert_eq!(Account::named(users, "postgres"), Some(Account { user: 101, group: 104, other: true }));
        assert_eq!(Account::named(users, "mysql"), None);
    }

    #[test]
    fn odd_text_survives_the_shell_and_urls() {
        let told = output(Command::new("sh").args(["-c", &format!("printf %s {}", quoted("it's $HOME \"x\""))]));
        assert_eq!(told.expect("it prints"), "it's $HOME \"x\"");
        assert_eq!(percent_encoded("/tmp/a b"), "%2Ftmp%2Fa%20b");
    }
}
