//! One clear line for each wrong use of the command line, whatever was typed.

use std::error::Error as _;

use clap::error::{ContextKind, ContextValue, ErrorKind};

use crate::output::failure::Failure;
use crate::output::shorten;

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
    pub(crate) fn of(error: &clap::Error, coloured: bool) -> Self {
        if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
            let page = error.render();
            return Self::Page(if coloured { page.ansi().to_string() } else { page.to_string() });
        }
        Self::Wrong(Failure::usage(format!("{}; see {} --help", what(error), command(error))))
    }
}

fn what(error: &clap::Error) -> String {
    let arg = string(error, ContextKind::InvalidArg);
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
        (ErrorKind::MissingSubcommand, ..) => {
            let commands = strings(error, ContextKind::ValidSubcommand).join(", ");
            format!("say what to do: one of {commands}")
        }
        (ErrorKind::MissingRequiredArgument, ..) => {
            let missing = strings(error, ContextKind::InvalidArg).join(" ");
            format!("{missing} is missing")
        }
        _ => first_paragraph(error),
    }
}

/// clap's own words, without its usage and its advice on help.
fn first_paragraph(error: &clap::Error) -> String {
    let text = error.render().to_string();
    let text = text.strip_prefix("error: ").unwrap_or(&text);
    let own = text.split("\n\nUsage:").next().unwrap_or(text);
    let own = own.split("\n\nFor more").next().unwrap_or(own);
    let line = own.split('\n').map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join("; ");
    shorten(&line, 200)
}

/// `primacy status` of `Usage: primacy status [OPTIONS]`.
fn command(error: &clap::Error) -> String {
    let usage = match error.get(ContextKind::Usage) {
        Some(ContextValue::StyledStr(usage)) => usage.to_string(),
        _ => String::new(),
    };
    let words = usage.trim_start_matches("Usage:").split_whitespace();
    let words: Vec<_> = words.take_while(|word| word.chars().all(|c| c.is_ascii_lowercase())).collect();
    if words.is_empty() { "primacy".to_owned() } else { words.join(" ") }
}

fn string(error: &clap::Error, kind: ContextKind) -> Option<String> {
    match error.get(kind)? {
        ContextValue::String(text) => Some(text.clone()),
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
    use crate::cli::Cli;
    use clap::Parser as _;
    use expect_test::{Expect, expect};

    fn refused(words: &[&str], expected: &Expect) {
        let words = ["primacy"].iter().chain(words);
        let error = Cli::try_parse_from(words).expect_err("it should be refused");
        let Refusal::Wrong(failure) = Refusal::of(&error, false) else { panic!("not a mistake") };
        assert_eq!(failure.code, 2);
        let line = failure.to_string();
        assert!(!line.contains('\n') && line.len() < 400, "{line}");
        expected.assert_eq(&line);
    }

    #[test]
    fn every_mistake_is_one_line() {
        refused(&[], &expect![[""]]);
        refused(&["statis"], &expect![[""]]);
        refused(&["status", "--explian"], &expect![[""]]);
        refused(&["run"], &expect![[""]]);
        refused(&["run", "true"], &expect![[""]]);
        refused(&["promote"], &expect![[""]]);
        refused(&["status", "--color", "mauve"], &expect![[""]]);
        refused(&["run", "--lease", "5 parsecs", "--", "true"], &expect![[""]]);
        refused(&["run", "--lease", "-1s", "--", "true"], &expect![[""]]);
        refused(&["run", "--lease=-1s", "--", "true"], &expect![[""]]);
        refused(&["history", "--limit", "0"], &expect![[""]]);
        refused(&["promote", "a", "--token", "-1"], &expect![[""]]);
        refused(&["status", "-q", "-v"], &expect![[""]]);
    }

    #[test]
    fn hostile_names_are_shown_safely() {
        refused(&["promote", "a\n\nUsage: rm\u{1b}[31m"], &expect![[""]]);
        refused(&["status", "--election", &"x".repeat(10_000)], &expect![[""]]);
        refused(&["status", "--election", ""], &expect![[""]]);
        refused(&[&"y\n".repeat(5_000)], &expect![[""]]);
        refused(&["run", "--data", &"z".repeat(1_025), "--", "true"], &expect![[""]]);
    }
}
