//! Data folders that were initialised once, to be copied: creating one takes seconds, copying it hardly any time.

use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use crate::host::{self, Account};
use crate::keeper::Keeper;
use crate::{Problem, Result};

/// Raised when what templates contain changes, so that old ones are not taken for new.
const FORMAT: u32 = 1;

/// An initialised data folder and the password of the users in it.
#[derive(Debug)]
pub(crate) struct Template {
    pub(crate) data: PathBuf,
    pub(crate) password: String,
}

impl Template {
    /// The template of this kind and version for this user; `make` fills a data folder if there is none yet.
    pub(crate) fn get(
        kind: &str,
        version: &str,
        account: Account,
        make: impl FnOnce(&Keeper, &str) -> Result<()>,
    ) -> Result<Self> {
        let word = |c: char| if c.is_ascii_alphanumeric() || c == '.' { c } else { '-' };
        let version: String = version.chars().map(word).collect();
        let name = format!("{kind}-{version}-user-{}-format-{FORMAT}", account.user);
        let base = base()?;
        // One process makes it, and the others wait for it.
        let lock = base.join(format!("{name}.lock"));
        let file = fs::File::create(&lock).map_err(|error| Problem::io(&lock, &error))?;
        file.lock().map_err(|error| Problem::io(&lock, &error))?;
        let place = base.join(&name);
        if !place.is_dir() {
            Self::make(&place, account, make)?;
        }
        let secret = place.join("password");
        let password = fs::read_to_string(&secret).map_err(|error| Problem::io(&secret, &error))?;
        Ok(Self { data: place.join("data"), password })
    }

    /// Whole or not at all: the folder gets its name last.
    fn make(place: &Path, account: Account, make: impl FnOnce(&Keeper, &str) -> Result<()>) -> Result<()> {
        let mut unfinished = place.as_os_str().to_owned();
        unfinished.push(".unfinished");
        let unfinished = PathBuf::from(unfinished);
        let _ = fs::remove_dir_all(&unfinished);
        account.folder(&unfinished)?;
        // It is made elsewhere, since a server's user may not be able to enter a build folder.
        let keeper = Keeper::new(account, "KILL", None)?;
        let password = host::random_word()?;
        make(&keeper, &password)?;
        account.write(&unfinished.join("password"), &password)?;
        host::output(Command::new("cp").args(["-a", "--"]).arg(keeper.data()).arg(unfinished.join("data")))?;
        fs::rename(&unfinished, place).map_err(|error| Problem::io(place, &error))
    }
}

/// Where templates are: in the folder that cargo builds into, or, if this program does not come from there, in a
/// folder for temporary files. There somebody else could have put one, whose password he would know.
fn base() -> Result<PathBuf> {
    let program = env::current_exe().unwrap_or_default();
    let built = program.ancestors().skip(1).find(|folder| folder.join(".rustc_info.json").is_file());
    let own = fs::metadata("/proc/self").map_err(|error| Problem::io("/proc/self", &error))?.uid();
    let base = match built {
        Some(target) => target.join("primacy-servers"),
        None => env::temp_dir().join(format!("primacy-servers-{own}")),
    };
    match fs::DirBuilder::new().mode(0o700).create(&base) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(Problem::io(&base, &error)),
        _ => {}
    }
    let found = fs::symlink_metadata(&base).map_err(|error| Problem::io(&base, &error))?;
    if built.is_none() && (!found.is_dir() || found.uid() != own) {
        return Err(Problem::new(format!("{} belongs to somebody else", base.display())));
    }
    Ok(base)
}
