//! The archive for any Linux system, and the files of a container image: the same bytes for the same build.

use std::fs;
use std::path::Path;

use super::{IMAGE_USER, Plan, copy, failed, make_folder, read, script, text, write};
use crate::shell::Shell;

/// Everything that an image has, with owners and modes.
pub(super) const IMAGE_FILES: &str = "image/files.tar";

/// Where Debian keeps the authorities that TLS to a database is checked against.
const AUTHORITIES: &str = "/etc/ssl/certs/ca-certificates.crt";

/// Files in the repository that go into the archive as they are.
const AS_THEY_ARE: &[&str] = &["README.md", "CHANGELOG.md", "LICENSE-MIT", "LICENSE-APACHE"];

/// `primacy-VERSION-ARCHITECTURE-linux.tar.gz`, with one folder of that name.
pub(super) fn tarball(shell: &Shell, plan: &Plan, built: &Path) -> Result<(), String> {
    let work = plan.out.join("archive");
    let folder = work.join(plan.archive_folder());
    make_folder(&folder.join("bin"))?;
    copy(built, &folder.join("bin").join("primacy"), 0o755)?;
    for (from, to) in [("man", "share/man/man1"), ("completions", "share/completions")] {
        copy_folder(&plan.stage.join(from), &folder.join(to))?;
    }
    copy(&plan.stage.join("third-party"), &folder.join("LICENSES-THIRD-PARTY"), 0o644)?;
    for name in AS_THEY_ARE {
        copy(&shell.root().join(name), &folder.join(name), 0o644)?;
    }
    // What git knows, and nothing that lies beside it.
    for path in shell.read("git", &["-c", "safe.directory=*", "ls-files", "contrib"])?.lines() {
        let to = folder.join(path);
        make_folder(to.parent().unwrap_or(&folder))?;
        copy(&shell.root().join(path), &to, 0o644)?;
    }
    let [file, of] = [plan.out.join(plan.archive()), work.clone()].map(|path| text(&path));
    let [time, folder] = [format!("--mtime=@{}", plan.time), plan.archive_folder()];
    let owned = ["--owner=root:0", "--group=root:0"];
    script(shell, ARCHIVE, &[&[file.as_str(), &of, &folder, &time], &owned[..], SORTED].concat())?;
    fs::remove_dir_all(&work).map_err(|error| failed(&work, &error))
}

/// FILE FOLDER NAME [OPTION...]
const ARCHIVE: &str = r#"file=$1 folder=$2 name=$3; shift 3
tar --create --directory "$folder" "$@" "$name" | gzip --no-name -9 >"$file""#;

/// FILE FOLDER USER [OPTION...]
const FILES: &str = r#"file=$1 folder=$2 user=$3; shift 3
tar --create --file "$file" --directory "$folder" --owner=root:0 --group=root:0 \
    --exclude var/lib/primacy --exclude run/primacy "$@" etc run usr var
tar --append --file "$file" --directory "$folder" --owner="primacy:$user" --group="primacy:$user" \
    "$@" var/lib/primacy run/primacy"#;

/// One order, and no more of a file than its name, mode, owner, time and content.
const SORTED: &[&str] = &["--sort=name", "--format=gnu", "--numeric-owner"];

/// Files of an image that is nothing but the command. The state is its user's, who is not root.
pub(super) fn image(shell: &Shell, plan: &Plan, built: &Path) -> Result<(), String> {
    let work = plan.out.join("files");
    let authorities = Path::new(AUTHORITIES);
    for folder in ["usr/bin", "etc/ssl/certs", "usr/share/doc/primacy", "var/lib/primacy", "run/primacy"] {
        make_folder(&work.join(folder))?;
    }
    copy(built, &work.join("usr/bin/primacy"), 0o755)?;
    copy(authorities, &work.join("etc/ssl/certs/ca-certificates.crt"), 0o644)?;
    for name in ["LICENSE-MIT", "LICENSE-APACHE"] {
        copy(&shell.root().join(name), &work.join("usr/share/doc/primacy").join(name), 0o644)?;
    }
    copy(&plan.stage.join("third-party"), &work.join("usr/share/doc/primacy/LICENSES-THIRD-PARTY"), 0o644)?;
    // The agent finds names of users and groups there.
    let user = format!("primacy:x:{IMAGE_USER}:{IMAGE_USER}:primacy:/var/lib/primacy:/usr/sbin/nologin\n");
    write(&work.join("etc/passwd"), &format!("root:x:0:0:root:/root:/usr/sbin/nologin\n{user}"))?;
    write(&work.join("etc/group"), &format!("root:x:0:\nprimacy:x:{IMAGE_USER}:\n"))?;
    make_folder(&plan.image())?;
    let [file, of] = [plan.out.join(IMAGE_FILES), work.clone()].map(|path| text(&path));
    let time = format!("--mtime=@{}", plan.time);
    script(shell, FILES, &[&[file.as_str(), &of, IMAGE_USER, &time], SORTED].concat())?;
    let recipe = shell.root().join("contrib/container/Containerfile");
    write(&plan.image().join("Containerfile"), &read(&recipe)?)?;
    fs::remove_dir_all(&work).map_err(|error| failed(&work, &error))
}

fn copy_folder(from: &Path, to: &Path) -> Result<(), String> {
    make_folder(to)?;
    for entry in fs::read_dir(from).map_err(|error| failed(from, &error))? {
        let entry = entry.map_err(|error| failed(from, &error))?;
        copy(&entry.path(), &to.join(entry.file_name()), 0o644)?;
    }
    Ok(())
}
