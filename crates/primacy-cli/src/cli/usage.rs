//! One clear line for each wrong use of the command line, whatever was typed.

use std::error::Error as _;
use std::ffi::{OsStr, OsString};

use clap::CommandFactory as _;
use clap::error::{ContextKind, ContextValue, ErrorKind};

use super::Cli;
use crate::failure::Failure;
use crate::foreign_text::shorten;
use crate::secret;

/// The most of a rejected value that is shown.
const SHOWN: usize = 60;

/// What to do with clap's refusal: help and version are printed, all else becomes one line.
pub(crate) enum Refusal {
    /// Not a mistake: help or version, for standard output.
    Page(String),
    /// A mistake.
    Wrong(Failure),
}

impl Refusal {
    /// Sorts clap's answer.
    pub(crate) fn of(error: &clap::Error, words: &[OsString], coloured: bool) -> Self {
        if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
            let page = error.render();
            return Self::Page(if coloured { page.ansi().to_string() } else { page.to_string() });
        }
        let command = command(words);
        // What people forget most.
        let program = command == "primacy run"
            && matches!(error.kind(), ErrorKind::UnknownArgument | ErrorKind::MissingRequiredArgument);
        let hint = if program { "; write the program to run after --" } else { "" };
        Self::Wrong(Failure::usage(format!("{}{hint}; see {command} --help", what(error, words))))
    }
}

fn what(error: &clap::Error, words: &[OsString]) -> String {
    let arg = string(error, ContextKind::InvalidArg).map(|arg| variable(&arg, words).unwrap_or(arg));
    let value = string(error, ContextKind::InvalidValue);
    match (error.kind(), arg, value) {
        (ErrorKind::ValueValidation, Some(arg), Some(value)) => {
            let reason = error.source().map(|source| format!(": {source}")).unwrap_or_default();
            format!("'{}' is no value for {arg}{reason}", shorten(&value, SHOWN))
        }
        (ErrorKind::InvalidValue, Some(arg), Some(value)) if value.is_empty() => format!("{arg} needs a value"),
        (ErrorKind::InvalidValue, Some(arg), Some(value)) => {
            let choices = strings(error, ContextKind::ValidValue).join(", ");
            format!("'{}' is no value for {arg}; choose one of {choices}", shorten(&value, SHOWN))
        }
        (ErrorKind::MissingSubcommand | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand, ..) => {
            format!("say what to do: one of {}", names().join(", "))
        }
        (ErrorKind::MissingRequiredArgument, ..) => {
            let missing = strings(error, ContextKind::InvalidArg).join(" ");
            format!("{missing} is missing")
        }
        _ => first_paragraph(error),
    }
}

/// The variable that an option's value came from, if nobody wrote the option.
fn variable(option: &str, words: &[OsString]) -> Option<String> {
    let long = option.split(' ').next()?;
    if is_written(long, words) {
        return None;
    }
    let root = Cli::command();
    let mut args = root.get_arguments().chain(root.get_subcommands().flat_map(clap::Command::get_arguments));
    let arg =
        args.find(|arg| arg.get_env().is_some() && arg.get_long().is_some_and(|name| long == format!("--{name}")));
    let name = arg?.get_env()?;
    std::env::var_os(name).map(|_| name.to_string_lossy().into_owned())
}

/// Whether somebody wrote this option, which begins with two dashes.
pub(crate) fn is_written(long: &str, words: impl IntoIterator<Item = impl AsRef<OsStr>>) -> bool {
    words.into_iter().any(|word| {
        let rest = word.as_ref().to_str().and_then(|word| word.strip_prefix(long));
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('='))
    })
}

/// clap's own words, without its usage and its advice on help.
fn first_paragraph(error: &clap::Error) -> String {
    let text = secret::without(&error.render().to_string());
    let text = text.strip_prefix("error: ").unwrap_or(&text);
    let own = text.split("\n\nUsage:").next().unwrap_or(text);
    let own = own.split("\n\nFor more").next().unwrap_or(own);
    let line = own.split('\n').map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join("; ");
    shorten(&line, 200)
}

/// Whose help to read: the first word that is a command and not an option's value, and then the first that is a command of that.
fn command(words: &[OsString]) -> String {
    let words: Vec<_> = words.iter().map_while(|word| word.to_str().filter(|word| *word != "--")).collect();
    let (mut command, mut name, mut rest) = (Cli::command(), "primacy".to_owned(), &words[..]);
    loop {
        let named = rest.windows(2).enumerate().find_map(|(at, pair)| {
            let value = pair[0].starts_with("--") && !pair[0].contains('=') && !SWITCHES.contains(&pair[0]);
            let found = command.find_subcommand(pair[1]).filter(|_| !value)?;
            Some((at + 1, found.clone()))
        });
        let Some((at, found)) = named else { return name };
        name += &format!(" {}", found.get_name());
        (command, rest) = (found, &rest[at..]);
    }
}

/// Common options without a value.
const SWITCHES: [&str; 3] = ["--json", "--quiet", "--verbose"];

fn names() -> Vec<String> {
    Cli::command().get_subcommands().map(|command| command.get_name().to_owned()).collect()
}

/// Without secrets: what is shown may be cut afterwards, in the middle of one.
fn string(error: &clap::Error, kind: ContextKind) -> Option<String> {
    match error.get(kind)? {
        ContextValue::String(text) => Some(secret::without(text)),
        _ => None,
    }
}

fn strings(error: &clap::Error, kind: ContextKind) -> Vec<String> {
    match error.get(kind) {
        Some(ContextValue::String(text)) => vec![text.clone()],
        Some(ContextValue::Strings(texts)) => texts.clone(),
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser as _;
    use expect_test::{Expect, expect};

    fn refused(words: &[&str], expected: &Expect) {
        let words: Vec<_> = ["primacy"].iter().chain(words).map(OsString::from).collect();
        let error = Cli::try_parse_from(&words).expect_err("it should be refused");
        let Refusal::Wrong(failure) = Refusal::of(&error, &words, false) else { panic!("not a mistake") };
        assert_eq!(failure.code, 2);
        let line = failure.to_string();
        assert!(!line.contains('\n') && line.len() < 400, "{line}");
        expected.assert_eq(&line);
    }

    #[test]
    fn every_mistake_is_one_line() {
        refused(
            &[],
            &expect![
                "say what to do: one of run, status, list, members, watch, history, promote, depose, pause, resume, forget, doctor, simulate, peer, kv, agent, schema, completions, man, version; see primacy --help"
            ],
        );
        refused(&["kv", "explain"], &expect!["<GROUP> is missing; see primacy kv explain --help"]);
        refused(
            &["statis"],
            &expect![
                "unrecognized subcommand 'statis'; tip: a similar subcommand exists: 'status'; see primacy --help"
            ],
        );
        refused(
            &["status", "--explian"],
            &expect![
                "unexpected argument '--explian' found; tip: a similar argument exists: '--explain'; see primacy status --help"
            ],
        );
        refused(&["run"], &expect!["<CMD>... is missing; write the program to run after --; see primacy run --help"]);
        refused(
            &["run", "true"],
            &expect!["unexpected argument 'true' found; write the program to run after --; see primacy run --help"],
        );
        refused(&["promote"], &expect!["<CANDIDATE> is missing; see primacy promote --help"]);
        refused(
            &["status", "--color", "mauve"],
            &expect![
                "'mauve' is no value for --color <WHEN>; choose one of auto, always, never; see primacy status --help"
            ],
        );
        refused(
            &["run", "--lease", "5 parsecs", "--", "true"],
            &expect![
                "'5 parsecs' is no value for --lease <DUR>: write a number with its unit, such as 250ms, 10s, 2m, 1h or 1m 30s; see primacy run --help"
            ],
        );
        refused(
            &["run", "--lease", "-1s", "--", "true"],
            &expect![
                "'-1s' is no value for --lease <DUR>: write a number with its unit, such as 250ms, 10s, 2m, 1h or 1m 30s; see primacy run --help"
            ],
        );
        refused(
            &["run", "--lease=-1s", "--", "true"],
            &expect![
                "'-1s' is no value for --lease <DUR>: write a number with its unit, such as 250ms, 10s, 2m, 1h or 1m 30s; see primacy run --help"
            ],
        );
        refused(
            &["history", "--limit", "0"],
            &expect!["'0' is no value for --limit <N>: 0 is not in 1..=100000; see primacy history --help"],
        );
        refused(
            &["promote", "a", "--token", "-1"],
            &expect![
                "'-1' is no value for --token <N>: a token is a whole number from 0 to 9223372036854775807; see primacy promote --help"
            ],
        );
        refused(
            &["status", "-q", "-v"],
            &expect!["the argument '--quiet' cannot be used with '--verbose...'; see primacy status --help"],
        );
    }

    #[test]
    fn hostile_names_are_shown_safely() {
        refused(
            &["promote", "a\n\nUsage: rm\u{1b}[31m"],
            &expect![[
                r#"'a\n\nUsage: rm\u{1b}[31m' is no value for <CANDIDATE>: it contains the control character U+000A; leave it out; see primacy promote --help"#
            ]],
        );
        refused(
            &["status", "--election", &"x".repeat(10_000)],
            &expect![
                "'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx…' is no value for --election <NAME>: it has 10000 bytes; give 1 to 128; see primacy status --help"
            ],
        );
        refused(
            &["status", "--election", ""],
            &expect![
                "'' is no value for --election <NAME>: it is empty; give 1 to 128 bytes; see primacy status --help"
            ],
        );
        refused(
            &[&"y\n".repeat(5_000)],
            &expect![
                "unrecognized subcommand 'y; y; y; y; y; y; y; y; y; y; y; y; y; y; y; y; y; y; y; y; y; y; y; y; y; y; y; y; y; y; y; y; y; y; y; y; y; y; y; y; y; y; y; y; y; y; y; y; y; y; y; y; y; y; y; y; y; y; y…; see primacy --help"
            ],
        );
        refused(
            &["run", "--data", &"z".repeat(1_025), "--", "true"],
            &expect![
                "'zzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzz…' is no value for --data <TEXT>: it has 1025 bytes; give at most 1024; see primacy run --help"
            ],
        );
    }
}
