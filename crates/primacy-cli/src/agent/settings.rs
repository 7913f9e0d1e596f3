//! What an agent is told to do: elections, who may hold and order them, what it starts itself, and where it listens. A file in
//! TOML, checked as a whole.

mod programs;

use std::fs;
use std::ops::Range;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use primacy::select::Pattern;
use primacy::{ElectionName, Label, Timing, TimingSettings};
use serde::Deserialize;
use toml::Spanned;

use super::rights::{self, Rule, Subject};
use crate::cli::duration;
use crate::failure::Failure;
use crate::secret;
pub(super) use programs::{Program, Work};

/// How many characters of a line of the file are shown with what is wrong in it.
const SHOWN_MOST: usize = 60;

/// What fits into the address of a socket.
const PATH_MOST: usize = 107;

/// What an agent does, checked.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    /// Its name, which is that of its candidates unless they have another.
    pub(super) name: Option<Label>,
    /// The URL of its store.
    pub(super) store: Option<String>,
    /// Where it listens.
    pub(super) socket: Option<PathBuf>,
    /// The number of the group of the socket.
    pub(super) group: Option<u32>,
    /// What it does in which elections: the first that fits counts.
    pub(super) rules: Vec<Rule>,
    /// What it starts itself.
    pub(super) programs: Vec<Program>,
}

/// The file, as it is written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    name: Option<Spanned<String>>,
    store: Option<Spanned<String>>,
    socket: Option<PathBuf>,
    group: Option<Spanned<String>>,
    #[serde(default)]
    election: Vec<Spanned<Section>>,
    #[serde(default)]
    program: Vec<Spanned<programs::Section>>,
}

/// An election, or several whose names fit a pattern.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Section {
    name: Spanned<String>,
    lease: Option<Spanned<String>>,
    grace: Option<Spanned<String>>,
    holders: Option<Vec<Spanned<String>>>,
    operators: Option<Vec<Spanned<String>>>,
}

/// What is wrong, and where in the file.
type Wrong = (Option<Range<usize>>, String);

impl Settings {
    /// Those of an agent that has no file: any election, for all who reach its socket.
    pub(super) fn open(timing: Timing) -> Self {
        let rules = vec![Rule { pattern: any(), timing, holders: None, operators: Vec::new() }];
        Self { name: None, store: None, socket: None, group: None, rules, programs: Vec::new() }
    }

    /// Those in this file.
    ///
    /// # Errors
    /// What is wrong in it, with the number of the line.
    pub(super) fn read(path: &Path) -> Result<Self, Failure> {
        let place = path.display();
        let text = fs::read_to_string(path).map_err(|error| Failure::usage(format!("--config {place}: {error}")))?;
        let settings = Self::parse(&text).map_err(|(span, why)| {
            let line = span.map(|span| text[..span.start.min(text.len())].matches('\n').count() + 1);
            let line = line.map_or_else(String::new, |line| format!(", line {line}"));
            Failure::usage(format!("--config {place}{line}: {why}"))
        })?;
        let mode = fs::metadata(path).map(|file| file.mode()).unwrap_or_default();
        if settings.store.as_deref().is_some_and(secret::is_in) && mode & 0o077 != 0 {
            return Err(Failure::usage(format!(
                "--config {place}: other users could read the password in it; chmod 600 it, or put the URL into PRIMACY_STORE"
            )));
        }
        Ok(settings)
    }

    fn parse(text: &str) -> Result<Self, Wrong> {
        let file: File = toml::from_str(text).map_err(|error| (error.span(), error.message().trim().to_owned()))?;
        let name = file.name.map(|name| {
            let span = name.span();
            Label::new(name.into_inner()).map_err(|error| (Some(span), format!("name: {error}")))
        });
        let mut rules: Vec<Rule> = Vec::new();
        for section in file.election {
            let span = section.span();
            let rule = rule(section.into_inner(), span.clone())?;
            if rules.iter().any(|before| before.pattern == rule.pattern) {
                return Err((Some(span), format!("the election '{}' has two sections", rule.pattern)));
            }
            if let Some(before) = rules.iter().find(|before| before.covers(&rule)) {
                let (own, before) = (&rule.pattern, &before.pattern);
                return Err((
                    Some(span),
                    format!("'{own}' never counts, since '{before}' stands before it: put it first"),
                ));
            }
            rules.push(rule);
        }
        if rules.is_empty() {
            return Err((None, "it names no election: give at least one [[election]] with its name".to_owned()));
        }
        let programs = programs::programs(file.program, &rules)?;
        let group = file.group.map(|group| rights::group(group.get_ref()).map_err(|why| (Some(group.span()), why)));
        if let Some(store) = &file.store {
            let refused = primacy::store::from_url(store.get_ref()).err();
            if let Some(error) = refused {
                return Err((Some(store.span()), format!("store: {}", secret::without(&error.to_string()))));
            }
        }
        if file.socket.as_ref().is_some_and(|path| path.as_os_str().len() > PATH_MOST) {
            return Err((None, format!("socket: its path is too long: {PATH_MOST} bytes fit")));
        }
        Ok(Self {
            name: name.transpose()?,
            store: file.store.map(Spanned::into_inner),
            socket: file.socket,
            group: group.transpose()?,
            rules,
            programs,
        })
    }

    /// The rule of this election.
    pub(super) fn rule(&self, election: &ElectionName) -> Option<&Rule> {
        self.rules.iter().find(|rule| rule.fits(election))
    }
}

/// What every name fits.
fn any() -> Pattern {
    Pattern::new("*").expect("a star is a pattern")
}

fn rule(section: Section, whole: Range<usize>) -> Result<Rule, Wrong> {
    let pattern = section.name.get_ref();
    let wrong = |why: String| (Some(section.name.span()), why);
    if pattern.matches('*').count() > 1 {
        return Err(wrong(format!("name: '{}' has more than one '*'", shown(pattern))));
    }
    let pattern = Pattern::new(pattern).map_err(|error| wrong(format!("name: {error}")))?;
    let span_of = |value: &Option<Spanned<String>>, what: &str| -> Result<Option<Duration>, Wrong> {
        let Some(value) = value else { return Ok(None) };
        let parsed = duration::parse(value.get_ref());
        parsed.map(Some).map_err(|why| (Some(value.span()), format!("{what}: {why}")))
    };
    let lease = span_of(&section.lease, "lease")?.unwrap_or(Timing::DEFAULT_LEASE);
    let usual = TimingSettings::for_program(lease);
    let grace = span_of(&section.grace, "grace")?.unwrap_or(usual.grace);
    let timing = Timing::new(TimingSettings { grace, ..usual }).map_err(|error| (Some(whole), error.to_string()))?;
    Ok(Rule {
        pattern,
        timing,
        holders: section.holders.map(subjects).transpose()?,
        operators: subjects(section.operators.unwrap_or_default())?,
    })
}

fn subjects(names: Vec<Spanned<String>>) -> Result<Vec<Subject>, Wrong> {
    let read = |name: Spanned<String>| Subject::read(name.get_ref()).map_err(|why| (Some(name.span()), why));
    names.into_iter().map(read).collect()
}

/// What was written, on one line and not too long.
fn shown(text: &str) -> String {
    text.chars().take(SHOWN_MOST).map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> (Option<usize>, String) {
        let (span, why) = Settings::parse(text).expect_err("it must be refused");
        (span.map(|span| text[..span.start].matches('\n').count() + 1), why)
    }

    #[test]
    fn a_file_says_what_the_agent_does_in_which_election() {
        let text = r#"
name = "web-1"
store = "sqlite:/var/lib/primacy/primacy.db"

[[election]]
name = "billing"
lease = "3s"
grace = "1s"
holders = ["root"]
operators = ["0", "@root"]

[[election]]
name = "tenant/*"
"#;
        let settings = Settings::parse(text).expect("it is right");
        assert_eq!(settings.name.as_ref().map(Label::as_str), Some("web-1"));
        let rule = |name: &str| settings.rule(&name.parse().expect("a name"));
        let billing = rule("billing").expect("it is there");
        assert_eq!((billing.timing.lease(), billing.timing.grace()), (Duration::from_secs(3), Duration::from_secs(1)));
        assert_eq!(billing.holders, Some(vec![Subject::User(0)]));
        assert_eq!(billing.operators, [Subject::User(0), Subject::Group(0)]);
        assert!(rule("tenant/7").is_some_and(|rule| rule.holders.is_none() && rule.operators.is_empty()));
        assert!(rule("tenants").is_none() && rule("other").is_none());
    }

    #[test]
    fn what_is_wrong_is_told_with_its_line() {
        for (text, line, said) in [
            ("name = \"a\"\n[[election]]\nname = \"b\"\nlaese = \"3s\"\n", Some(4), "unknown field `laese`"),
            ("\n[[election]]\nlease = \"3s\"\n", Some(2), "missing field `name`"),
            ("[[election]]\nname = \"b\"\nlease = \"soon\"\n", Some(3), "lease: "),
            ("[[election]]\nname = \"b\"\nlease = \"1s\"\ngrace = \"1s\"\n", Some(1), "grace"),
            ("[[election]]\nname = \"b\"\nholders = [\n  \"root\",\n  \"no-such-user\",\n]\n", Some(5), "no-such-user"),
            ("[[election]]\nname = \"b\"\n[[election]]\nname = \"b\"\n", Some(3), "two sections"),
            ("[[election]]\nname = \"b/*/*\"\n", Some(2), "more than one"),
            ("[[election]]\nname = \"b*\"\n[[election]]\nname = \"b/c*\"\n", Some(3), "never counts"),
            ("store = \"nonsense://x\"\n[[election]]\nname = \"b\"\n", Some(1), "store: "),
            ("[[election]]\nname = \"\"\n", Some(2), "name"),
            ("name = \"a\"\n", None, "names no election"),
            ("name = \n", Some(1), ""),
            ("group = \"no-such-group\"\n[[election]]\nname = \"b\"\n", Some(1), "no-such-group"),
        ] {
            let (at, why) = refused(text);
            assert!(at == line && why.contains(said), "{text}: {at:?} {why}");
        }
    }
}
