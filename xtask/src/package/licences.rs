//! The licences of what is linked into the command, which their authors want beside each copy of it.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use super::{MAINTAINER, PACKAGE, failed};
use crate::shell::Shell;

/// Names of files with a licence, in capitals.
const NAMES: &[&str] = &["LICENSE", "LICENCE", "COPYING", "COPYRIGHT", "NOTICE", "UNLICENSE"];

/// Which packages are linked into the command and under which licence, and then each text once.
pub(super) fn of_dependencies(shell: &Shell) -> Result<String, String> {
    let args = ["tree", "--locked", "--package", PACKAGE, "--edges", "normal", "--prefix", "none"];
    let tree = shell.read("cargo", &[&args[..], &["--no-dedupe", "--format", "{p}|{l}"]].concat())?;
    let mut list = String::new();
    let mut texts: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (name, version, licence) in foreign(&tree) {
        let package = format!("{name} {version}");
        list += &format!("{package}: {licence}\n");
        for text in texts_of(&source(&name, &version)?)? {
            texts.entry(text).or_default().push(package.clone());
        }
    }
    let mut told = format!("The command has these packages of others in it:\n\n{list}");
    for (text, packages) in texts {
        told += &format!("\n{}\n{}:\n\n{}\n", "-".repeat(80), packages.join(", "), text.trim_end());
    }
    Ok(told)
}

/// Name, version and licence of each package in the lines of `cargo tree` that comes from a registry, in order and once.
fn foreign(tree: &str) -> Vec<(String, String, String)> {
    let mut packages: Vec<_> = tree
        .lines()
        .filter_map(|line| {
            let (package, licence) = line.split_once('|')?;
            let mut words = package.split(' ');
            let (name, version) = (words.next()?, words.next()?.strip_prefix('v')?);
            // A path behind it is one in this workspace.
            let is_foreign = !words.any(|word| word.starts_with("(/"));
            is_foreign.then(|| (name.to_owned(), version.to_owned(), licence.trim_end_matches(" (*)").to_owned()))
        })
        .collect();
    packages.sort();
    packages.dedup();
    packages
}

/// Where cargo has unpacked a package.
fn source(name: &str, version: &str) -> Result<PathBuf, String> {
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cargo")));
    let registries = home.ok_or("cargo has no home")?.join("registry").join("src");
    let folders = fs::read_dir(&registries).map_err(|error| failed(&registries, &error))?;
    let found = folders.flatten().map(|registry| registry.path().join(format!("{name}-{version}")));
    found
        .into_iter()
        .find(|folder| folder.is_dir())
        .ok_or_else(|| format!("{name} {version} is not in {}", registries.display()))
}

/// Those of a package, and of code of others that it has in folders of its own.
fn texts_of(folder: &Path) -> Result<Vec<String>, String> {
    let is_one = |path: &Path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().to_uppercase();
        NAMES.iter().any(|wanted| name.starts_with(wanted))
    };
    let (mut files, mut folders) = (Vec::new(), vec![folder.to_path_buf()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).map_err(|error| failed(&folder, &error))?.flatten() {
            let (path, kind) = (entry.path(), entry.file_type().map_err(|error| failed(&folder, &error))?);
            if kind.is_dir() {
                folders.push(path);
            } else if kind.is_file() && is_one(&path) {
                files.push(path);
            }
        }
    }
    files.sort();
    let read = |file: &PathBuf| fs::read(file).map_err(|error| failed(file, &error));
    files.iter().map(|file| Ok(String::from_utf8_lossy(&read(file)?).into_owned())).collect()
}

/// The file `copyright` of a Debian package.
pub(super) fn debian(mit: &str, apache: &str) -> String {
    let first = mit.lines().next().unwrap_or_default();
    let paragraphs = |text: &str| -> String {
        let line = |line: &str| if line.trim().is_empty() { " .\n".to_owned() } else { format!(" {line}\n") };
        text.trim().lines().map(line).collect()
    };
    format!(
        "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\nUpstream-Name: primacy\n\
         Upstream-Contact: {MAINTAINER}\nComment: The file third-party beside this one has the licences of packages that \
         are linked into the command.\n\nFiles: *\nCopyright: {}\nLicense: MIT or Apache-2.0\n\nLicense: MIT\n{}\n\
         License: Apache-2.0\n{}",
        first.trim_start_matches("Copyright (c) "),
        paragraphs(mit),
        paragraphs(apache_reference(apache)),
    )
}

/// Debian keeps the text of this licence once for all packages.
fn apache_reference(text: &str) -> &str {
    if text.contains("Apache License") {
        "On Debian systems the text is in /usr/share/common-licenses/Apache-2.0."
    } else {
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_of_others_are_told_once() {
        let tree = "primacy-cli v0.1.0 (/a/crates/primacy-cli)|MIT\nb v2.0.0|MIT\na v1.0.0 (proc-macro)|ISC (*)\nb v2.0.0|MIT (*)\n";
        let told = |name: &str, version: &str, licence: &str| (name.to_owned(), version.to_owned(), licence.to_owned());
        assert_eq!(foreign(tree), [told("a", "1.0.0", "ISC"), told("b", "2.0.0", "MIT")]);
    }

    #[test]
    fn the_licence_of_code_that_a_package_has_from_others_is_told() {
        let folder = source("libmimalloc-sys", &version_of("libmimalloc-sys")).expect("cargo has unpacked it");
        let texts = texts_of(&folder).expect("they can be read");
        assert!(texts.iter().any(|text| text.contains("Microsoft Corporation")), "{texts:#?}");
    }

    fn version_of(name: &str) -> String {
        let lock = include_str!("../../../Cargo.lock");
        let package = lock.split("[[package]]").find(|package| package.contains(&format!("name = \"{name}\"")));
        let version = package.expect("it is locked").lines().find_map(|line| line.strip_prefix("version = "));
        version.expect("each has one").trim_matches('"').to_owned()
    }

    #[test]
    fn empty_lines_of_a_licence_stay_in_its_paragraph() {
        let told = debian("Copyright (c) 2026 us\n\nAll may.\n", "Apache License\n");
        assert!(told.contains("Copyright: 2026 us\n") && told.contains("\n .\n All may.\n"), "{told}");
    }
}
