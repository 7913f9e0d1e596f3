//! The password, where it is found, and that it is never shown.

use std::env;
use std::ffi::OsString;
use std::fmt;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use tracing::warn;

use super::host::Host;

/// Where the password comes from. It is looked up for each connection, so that a new one serves without a restart.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Password {
    given: Option<String>,
    file: Option<PathBuf>,
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Password").field("given", &self.given.as_ref().map(|_| "…")).field("file", &self.file).finish()
    }
}

impl Password {
    /// From the URL: the password itself, or the file that has it.
    pub(super) fn new(given: Option<String>, file: Option<PathBuf>) -> Self {
        Self { given, file }
    }

    /// The password for this host, in the order of PostgreSQL's own programs.
    pub(super) fn find(&self, host: &Host, database: &str, user: &str) -> Option<String> {
        if self.given.is_some() {
            return self.given.clone();
        }
        if self.file.is_none()
            && let Ok(password) = env::var("PGPASSWORD")
        {
            return Some(password).filter(|password| !password.is_empty());
        }
        let file = self.file.clone().or_else(|| env::var_os("PGPASSFILE").filter(is_set).map(PathBuf::from));
        let file = file.or_else(|| Some(PathBuf::from(env::var_os("HOME").filter(is_set)?).join(".pgpass")))?;
        let host_name = match host {
            Host::Tcp { name, .. } => name.clone(),
            Host::Socket { folder, .. } => folder.to_string_lossy().into_owned(),
        };
        let is_socket = matches!(host, Host::Socket { .. });
        let text = read(&file)?;
        let wanted = [host_name.as_str(), &host.port().to_string(), database, user];
        text.lines().find_map(|line| entry(line, wanted, is_socket))
    }
}

fn is_set(value: &OsString) -> bool {
    !value.is_empty()
}

/// A file that others can read is no secret, and is not used, as by PostgreSQL's own programs.
fn read(file: &Path) -> Option<String> {
    let meta = fs::metadata(file).ok().filter(fs::Metadata::is_file)?;
    if meta.mode() & 0o077 != 0 {
        warn!(file = %file.display(), "the password file can be read by others and is not used; chmod 600 helps");
        return None;
    }
    fs::read_to_string(file).ok()
}

/// The password of a line `host:port:database:user:password` that fits. `*` fits everything, `localhost` a socket.
fn entry(line: &str, wanted: [&str; 4], is_socket: bool) -> Option<String> {
    if line.starts_with('#') {
        return None;
    }
    let mut fields = vec![String::new()];
    let mut characters = line.chars();
    while let Some(character) = characters.next() {
        let count = fields.len();
        let field = fields.last_mut()?;
        match character {
            '\\' => field.extend(characters.next()),
            ':' if count < 5 => fields.push(String::new()),
            other => field.push(other),
        }
    }
    let [host, port, database, user, password] = fields.try_into().ok()?;
    let fits = |field: &str, wanted: &str| field == "*" || field == wanted;
    let host_fits = fits(&host, wanted[0]) || (is_socket && host == "localhost");
    (host_fits && fits(&port, wanted[1]) && fits(&database, wanted[2]) && fits(&user, wanted[3])).then_some(password)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_fits_as_in_other_programs() {
        let wanted = ["h", "5432", "d", "u"];
        for (line, password) in [
            ("h:5432:d:u:p", Some("p")),
            ("*:*:*:*:p:q\\:\\\\", Some("p:q:\\")),
            ("h\\:x:5432:d:u:p", None),
            ("h:1:d:u:p", None),
            ("#h:5432:d:u:p", None),
            ("h:5432:d:u", None),
            ("localhost:5432:d:u:p", None),
        ] {
            assert_eq!(entry(line, wanted, false).as_deref(), password, "{line}");
        }
        assert_eq!(entry("localhost:5432:d:u:p", ["/run", "5432", "d", "u"], true).as_deref(), Some("p"));
    }

    #[test]
    fn nobody_sees_it() {
        let password = Password::new(Some("hunter2".into()), None);
        assert!(!format!("{password:?}").contains("hunter2"));
    }
}
