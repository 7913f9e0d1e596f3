//! `[[program]]`: what the agent starts itself, as the configuration has it.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::PathBuf;

use primacy::ElectionName;
use serde::{Deserialize, Serialize};
use toml::Spanned;

use super::{Wrong, shown};
use crate::agent::rights::Rule;
use crate::cli::hooks::HookConflict;
use crate::cli::published;

/// How many programs an agent starts at most: each takes a runner and a warden.
const PROGRAMS_MOST: usize = 64;
/// How long a name may be, in bytes: it becomes that of a file.
const NAME_MOST: usize = 64;

/// A program that the agent starts, checked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(in crate::agent) struct Program {
    /// What people call it; the name of its lock.
    pub(in crate::agent) name: String,
    /// The election that it leads.
    pub(in crate::agent) election: String,
    /// What is run.
    pub(in crate::agent) work: Work,
    /// Where it is run, if not where the agent is.
    pub(in crate::agent) directory: Option<PathBuf>,
    /// Its variables beside those of the agent.
    pub(in crate::agent) environment: BTreeMap<String, String>,
    /// Whether it gets a PID namespace of its own.
    pub(in crate::agent) isolate: bool,
    /// What is published about its candidate.
    pub(in crate::agent) data: Option<String>,
}

/// What is run while the program's candidate leads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(in crate::agent) enum Work {
    /// A program and its arguments.
    Command(Vec<String>),
    /// Commands for a program that stays warm.
    Hooks { on_elected: String, on_lost: String },
}

/// The same as it is written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Section {
    name: Spanned<String>,
    election: Spanned<String>,
    command: Option<Spanned<Vec<Spanned<String>>>>,
    on_elected: Option<Spanned<String>>,
    on_lost: Option<Spanned<String>>,
    directory: Option<Spanned<String>>,
    #[serde(default)]
    environment: BTreeMap<String, Spanned<String>>,
    isolate: Option<Spanned<bool>>,
    data: Option<Spanned<String>>,
}

/// The programs of a file whose elections follow these rules.
///
/// # Errors
/// What is wrong with one of them.
pub(super) fn programs(sections: Vec<Spanned<Section>>, rules: &[Rule]) -> Result<Vec<Program>, Wrong> {
    let mut programs: Vec<Program> = Vec::new();
    for section in sections {
        let span = section.span();
        if programs.len() == PROGRAMS_MOST {
            return Err((Some(span), format!("there are more than {PROGRAMS_MOST} programs")));
        }
        let section = section.into_inner();
        let (name, election) = (section.name.span(), section.election.span());
        let program = program(section, span, rules)?;
        if programs.iter().any(|before| before.name == program.name) {
            return Err((Some(name), format!("the program '{}' has two sections", program.name)));
        }
        if let Some(before) = programs.iter().find(|before| before.election == program.election) {
            let why = format!(
                "the program '{}' is in the election '{}' already, and only one of the two would ever run: give this one an \
                 election of its own",
                before.name,
                shown(&before.election)
            );
            return Err((Some(election), why));
        }
        programs.push(program);
    }
    Ok(programs)
}

fn program(section: Section, whole: Range<usize>, rules: &[Rule]) -> Result<Program, Wrong> {
    let Section { name, election, command, on_elected, on_lost, directory, environment, isolate, data } = section;
    if let Err(why) = check_name(name.get_ref()) {
        return Err((Some(name.span()), format!("name: {why}")));
    }
    let election = election_of(&election, rules)?;
    let isolates = isolate.as_ref().is_some_and(|isolate| *isolate.get_ref());
    if (on_elected.is_some() || on_lost.is_some())
        && let Some(conflict) = HookConflict::of(command.is_some(), isolates)
    {
        let at = match conflict {
            HookConflict::Program => command.as_ref().map(Spanned::span),
            HookConflict::Isolate => isolate.as_ref().map(Spanned::span),
        };
        return Err((at, conflict.message("")));
    }
    let work = match (command, on_elected, on_lost) {
        (Some(command), ..) => Work::Command(words(command)?),
        (None, Some(on_elected), Some(on_lost)) => {
            Work::Hooks { on_elected: hook(on_elected, "on-elected")?, on_lost: hook(on_lost, "on-lost")? }
        }
        (None, Some(hook), None) | (None, None, Some(hook)) => {
            return Err((Some(hook.span()), "on-elected and on-lost need each other".to_owned()));
        }
        (None, None, None) => {
            return Err((
                Some(whole),
                "it says nothing to run: give it a command, or on-elected and on-lost".to_owned(),
            ));
        }
    };
    let directory = directory.map(|directory| {
        let span = directory.span();
        let path = PathBuf::from(text(directory, "directory")?);
        let is_absolute = path.is_absolute();
        is_absolute.then_some(path).ok_or((Some(span), "directory: its path must begin with '/'".to_owned()))
    });
    let data = data.map(|data| {
        let span = data.span();
        let text = text(data, "data")?;
        published(&text).map_err(|why| (Some(span), format!("data: {why}")))
    });
    let environment = environment.into_iter().map(|(name, value)| variable(name, value));
    Ok(Program {
        name: name.into_inner(),
        election,
        work,
        directory: directory.transpose()?,
        environment: environment.collect::<Result<_, _>>()?,
        isolate: isolates,
        data: data.transpose()?,
    })
}

fn check_name(name: &str) -> Result<(), String> {
    let fits = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
    if name.is_empty() || name.len() > NAME_MOST || name.starts_with('.') || !name.chars().all(fits) {
        return Err(format!(
            "give 1 to {NAME_MOST} letters, digits, '-', '_' and '.', and no '.' at the beginning, instead of '{}'",
            shown(name)
        ));
    }
    Ok(())
}

fn election_of(written: &Spanned<String>, rules: &[Rule]) -> Result<String, Wrong> {
    let wrong = |why: String| (Some(written.span()), format!("election: {why}"));
    let name: ElectionName = written.get_ref().parse().map_err(|error| wrong(format!("{error}")))?;
    if !rules.iter().any(|rule| rule.fits(&name)) {
        return Err(wrong(format!("no [[election]] of this file is for '{}'", shown(written.get_ref()))));
    }
    Ok(written.get_ref().clone())
}

fn words(command: Spanned<Vec<Spanned<String>>>) -> Result<Vec<String>, Wrong> {
    let span = command.span();
    let words = command.into_inner().into_iter().map(|word| text(word, "command"));
    let words = words.collect::<Result<Vec<_>, _>>()?;
    if words.first().is_none_or(String::is_empty) {
        return Err((Some(span), "command: it names no program".to_owned()));
    }
    Ok(words)
}

fn hook(written: Spanned<String>, what: &str) -> Result<String, Wrong> {
    let span = written.span();
    let command = text(written, what)?;
    if command.trim().is_empty() {
        return Err((Some(span), format!("{what}: it has no command; if there is nothing to do, say \"true\"")));
    }
    Ok(command)
}

fn variable(name: String, value: Spanned<String>) -> Result<(String, String), Wrong> {
    let span = value.span();
    let wrong = |why: String| Err((Some(span), format!("environment: {why}")));
    if name.is_empty() || name.contains(['=', '\0']) {
        return wrong(format!("'{}' cannot be the name of a variable", shown(&name)));
    }
    if name.starts_with("PRIMACY_") {
        return wrong(format!("{} is primacy's own to set", shown(&name)));
    }
    Ok((name, text(value, "environment")?))
}

/// A text that the system takes.
fn text(written: Spanned<String>, what: &str) -> Result<String, Wrong> {
    if written.get_ref().contains('\0') {
        return Err((Some(written.span()), format!("{what}: the system takes no text with a zero byte in it")));
    }
    Ok(written.into_inner())
}

#[cfg(test)]
mod tests {
    use super::super::Settings;
    use super::*;

    const ELECTIONS: &str = "[[election]]\nname = \"b\"\n[[election]]\nname = \"t/*\"\n";

    fn read(programs: &str) -> Result<Vec<Program>, (Option<usize>, String)> {
        let text = format!("{ELECTIONS}{programs}");
        let wrong = |(span, why): Wrong| (span.map(|span| text[..span.start].matches('\n').count() + 1), why);
        Settings::parse(&text).map(|settings| settings.programs).map_err(wrong)
    }

    #[test]
    fn programs_are_read_with_all_that_they_may_have() {
        let programs = read(
            "[[program]]\nname = \"one\"\nelection = \"b\"\ncommand = [\"/bin/one\", \"--port\", \"80\"]\n\
             directory = \"/srv\"\nenvironment = { A = \"1\", B = \"\" }\nisolate = true\ndata = \"here\"\n\
             [[program]]\nname = \"two\"\nelection = \"t/7\"\non-elected = \"up\"\non-lost = \"down\"\n",
        );
        let programs = programs.expect("they are right");
        let expected = Program {
            name: "one".to_owned(),
            election: "b".to_owned(),
            work: Work::Command(["/bin/one", "--port", "80"].map(str::to_owned).to_vec()),
            directory: Some("/srv".into()),
            environment: [("A", "1"), ("B", "")].map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
            isolate: true,
            data: Some("here".to_owned()),
        };
        assert_eq!(programs[0], expected);
        assert_eq!(programs[1].work, Work::Hooks { on_elected: "up".to_owned(), on_lost: "down".to_owned() });
    }

    #[test]
    fn what_is_wrong_with_a_program_is_told_with_its_line() {
        let first = "[[program]]\nname = \"one\"\nelection = \"b\"\ncommand = [\"one\"]\n";
        let long = "n".repeat(65);
        for (text, line, said) in [
            ("[[program]]\nname = \"p\"\nelection = \"other\"\ncommand = [\"p\"]\n".to_owned(), 7, "no [[election]]"),
            ("[[program]]\nname = \"p\"\nelection = \"\"\ncommand = [\"p\"]\n".to_owned(), 7, "election: "),
            (
                format!("{first}[[program]]\nname = \"one\"\nelection = \"t/1\"\ncommand = [\"p\"]\n"),
                10,
                "two sections",
            ),
            (format!("{first}[[program]]\nname = \"two\"\nelection = \"b\"\ncommand = [\"p\"]\n"), 11, "already"),
            ("[[program]]\nname = \"p\"\nelection = \"b\"\ncommand = []\n".to_owned(), 8, "names no program"),
            ("[[program]]\nname = \"p\"\nelection = \"b\"\ncommand = [\"\"]\n".to_owned(), 8, "names no program"),
            ("[[program]]\nname = \"p\"\nelection = \"b\"\ncommand = \"p\"\n".to_owned(), 8, "invalid type"),
            ("[[program]]\nname = \"p\"\nelection = \"b\"\n".to_owned(), 5, "nothing to run"),
            ("[[program]]\nname = \"p\"\nelection = \"b\"\ncomand = [\"p\"]\n".to_owned(), 8, "unknown field `comand`"),
            ("[[program]]\nname = \"p\"\nelection = \"b\"\ngrace = \"1s\"\n".to_owned(), 8, "unknown field `grace`"),
            ("[[program]]\nelection = \"b\"\ncommand = [\"p\"]\n".to_owned(), 5, "missing field `name`"),
            ("[[program]]\nname = \"../p\"\nelection = \"b\"\ncommand = [\"p\"]\n".to_owned(), 6, "name: "),
            (format!("[[program]]\nname = \"{long}\"\nelection = \"b\"\ncommand = [\"p\"]\n"), 6, "name: "),
            ("[[program]]\nname = \"p\"\nelection = \"b\"\ncommand = [\"p\",\n\"\\u0000\"]\n".to_owned(), 9, "zero"),
            ("[[program]]\nname = \"p\"\nelection = \"b\"\non-lost = \"p\"\n".to_owned(), 8, "need each other"),
            (
                "[[program]]\nname = \"p\"\nelection = \"b\"\non-lost = \" \"\non-elected = \"p\"\n".to_owned(),
                8,
                "on-lost",
            ),
            (format!("{first}on-lost = \"p\"\n"), 8, "stand in the place of a program"),
            (
                "[[program]]\nname = \"p\"\nelection = \"b\"\non-lost = \"p\"\non-elected = \"p\"\nisolate = true\n"
                    .to_owned(),
                10,
                "isolate is for a program that dies",
            ),
            (format!("{first}directory = \"srv\"\n"), 9, "directory: "),
            (format!("{first}environment = {{ PRIMACY_TOKEN = \"1\" }}\n"), 9, "primacy's own"),
            (format!("{first}[program.environment]\n\"A=B\" = \"1\"\n"), 10, "name of a variable"),
            (format!("{first}data = \"{}\"\n", "d".repeat(1_025)), 9, "data: "),
        ] {
            let (at, why) = read(&text).expect_err(&text);
            assert!(at == Some(line) && why.contains(said), "{text}: {at:?} {why}");
        }
        let many = |count: usize| {
            let one = |n: usize| format!("[[program]]\nname = \"p{n}\"\nelection = \"t/{n}\"\ncommand = [\"p\"]\n");
            read(&(0..count).map(one).collect::<String>())
        };
        assert_eq!(many(PROGRAMS_MOST).map(|programs| programs.len()), Ok(PROGRAMS_MOST));
        let (at, why) = many(PROGRAMS_MOST + 1).expect_err("too many");
        assert!(at == Some(5 + 4 * PROGRAMS_MOST) && why.contains("more than 64"), "{at:?} {why}");
    }
}
