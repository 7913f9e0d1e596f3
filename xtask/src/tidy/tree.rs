//! What tidy looks at: the text files that belong to the project.

use std::fmt;
use std::fs;

use crate::shell::Shell;

/// A text file of the project.
pub(super) struct Source {
    /// From the root of the workspace.
    pub(super) path: String,
    pub(super) text: String,
}

impl Source {
    pub(super) fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    pub(super) fn is_markdown(&self) -> bool {
        self.path.ends_with(".md")
    }

    /// Its lines, counted from 1.
    pub(super) fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        self.text.lines().enumerate().map(|(index, line)| (index + 1, line))
    }

    /// Its lines that are not comments. Comments behind code count as code.
    pub(super) fn code(&self) -> impl Iterator<Item = (usize, &str)> {
        self.lines().filter(|(_, line)| !line.trim_start().starts_with("//"))
    }

    /// Its lines outside of fenced examples, of a page of documentation.
    pub(super) fn prose(&self) -> impl Iterator<Item = (usize, &str)> {
        let mut fenced = false;
        self.lines().filter(move |(_, line)| {
            let fence = line.trim_start().starts_with("```");
            fenced ^= fence;
            !fenced && !fence
        })
    }

    /// The first line that only tests see, if there is one.
    pub(super) fn tests_from(&self) -> Option<usize> {
        if self.path.contains("/tests/") || self.path.contains("/benches/") {
            return Some(1);
        }
        self.lines().find(|(_, line)| line.trim() == "#[cfg(test)]").map(|(number, _)| number)
    }

    /// That this line breaks a rule.
    pub(super) fn problem(&self, line: usize, what: impl Into<String>) -> Problem {
        Problem { path: self.path.clone(), line: Some(line), what: what.into() }
    }

    /// That this file breaks a rule.
    pub(super) fn problem_as_a_whole(&self, what: impl Into<String>) -> Problem {
        Problem { path: self.path.clone(), line: None, what: what.into() }
    }
}

/// Something that breaks a rule.
pub(super) struct Problem {
    path: String,
    line: Option<usize>,
    what: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "{}:{line}: {}", self.path, self.what),
            None => write!(f, "{}: {}", self.path, self.what),
        }
    }
}

impl Problem {
    /// Something wrong with a path.
    pub(super) fn of(path: &str, what: &str) -> Self {
        Self { path: path.to_string(), line: None, what: what.to_string() }
    }
}

/// The text files of the project.
pub(super) struct Tree {
    files: Vec<Source>,
    /// The paths of files that are no text, such as pictures.
    others: Vec<String>,
}

impl Tree {
    /// Everything that git knows of or would add.
    pub(super) fn of_project(shell: &Shell) -> Result<Self, String> {
        let args = ["-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others", "--exclude-standard"];
        let listed = shell.read("git", &args)?;
        let (mut files, mut others) = (Vec::new(), Vec::new());
        for path in listed.split_terminator('\0') {
            // A file that is deleted but still known has nothing to be tidy about.
            let Ok(bytes) = fs::read(shell.root().join(path)) else { continue };
            match String::from_utf8(bytes) {
                Ok(text) if !text.contains('\0') => files.push(Source { path: path.to_string(), text }),
                _ => others.push(path.to_string()),
            }
        }
        Ok(Self { files, others })
    }

    /// These paths with these texts: a rule's example.
    pub(super) fn of(files: &[(&str, &str)]) -> Self {
        let file = |(path, text): &(&str, &str)| Source { path: (*path).to_string(), text: (*text).to_string() };
        Self { files: files.iter().map(file).collect(), others: Vec::new() }
    }

    pub(super) fn files(&self) -> &[Source] {
        &self.files
    }

    pub(super) fn rust(&self) -> impl Iterator<Item = &Source> {
        self.files.iter().filter(|file| file.is_rust())
    }

    pub(super) fn markdown(&self) -> impl Iterator<Item = &Source> {
        self.files.iter().filter(|file| file.is_markdown())
    }

    pub(super) fn file(&self, path: &str) -> Option<&Source> {
        self.files.iter().find(|file| file.path == path)
    }

    /// Whether there is such a file, or a folder with files.
    pub(super) fn exists(&self, path: &str) -> bool {
        let folder = format!("{}/", path.trim_end_matches('/'));
        let mut paths = self.files.iter().map(|file| &file.path).chain(&self.others);
        paths.any(|known| known == path || known.starts_with(&folder))
    }
}

/// Whether a line holds a word, not as a part of another.
pub(super) fn has_word(line: &str, word: &str) -> bool {
    let is_part = |character: char| character.is_alphanumeric() || character == '_';
    line.match_indices(word).any(|(at, _)| {
        !line[..at].chars().next_back().is_some_and(is_part)
            && !line[at + word.len()..].chars().next().is_some_and(is_part)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_whole() {
        assert!(has_word("an ox, here", "ox"));
        assert!(!has_word("a fox oxen ox_", "ox"));
    }

    #[test]
    fn fenced_lines_are_not_prose() {
        let tree = Tree::of(&[("a.md", "one\n```\ntwo\n```\nthree\n")]);
        let lines: Vec<&str> = tree.files()[0].prose().map(|(_, line)| line).collect();
        assert_eq!(lines, ["one", "three"]);
    }
}
