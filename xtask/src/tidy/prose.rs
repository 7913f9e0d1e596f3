//! The width of prose on pages: what is too long, and how `cargo xtask fix` wraps it.

use std::fs;

use super::Rule;
use super::tree::{Problem, Source, Tree};
use crate::shell::{Shell, say};

/// Characters in a line of prose. Tables, fenced examples, headings and quotations are excepted.
const WIDTH: usize = 100;

pub(super) const RULES: &[Rule] = &[Rule {
    name: "prose-width",
    why: "a long line is hard to read beside code, and a change in it hard to review; `cargo xtask fix prose` wraps it",
    check: prose_width,
    bad: || Tree::of(&[("a.md", &format!("{}\n", "word ".repeat(20) + "word"))]),
    good: || {
        let (table, code) = (format!("| {} |\n", "cell ".repeat(30)), format!("`{}`\n", "one word ".repeat(20)));
        Tree::of(&[("a.md", &format!("short\n\n{table}\n{code}\n# {table}"))])
    },
}];

fn prose_width(tree: &Tree) -> Vec<Problem> {
    let mut problems = Vec::new();
    for page in tree.markdown() {
        for (number, line) in page.prose() {
            if is_long(line) && kind(line) != Kind::Verbatim && words(line.trim()).len() > 1 {
                problems.push(page.problem(number, format!("has {} columns; at most {WIDTH}", columns(line))));
            }
        }
    }
    problems
}

/// Wraps every paragraph with a line that is too long.
pub(crate) fn wrap_prose(shell: &Shell) -> Result<(), String> {
    let tree = Tree::of_project(shell)?;
    for page in tree.markdown() {
        let text = wrapped(page);
        if text != page.text {
            fs::write(shell.root().join(&page.path), text).map_err(|error| format!("{}: {error}", page.path))?;
            say(&format!("  {} is wrapped", page.path));
        }
    }
    Ok(())
}

/// What a line of a page is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// It ends a paragraph, and stays as it is.
    Verbatim,
    /// It begins an entry of a list, whose text begins after this many bytes.
    Entry(usize),
    /// It goes on with a paragraph, or begins one.
    Text,
}

fn kind(line: &str) -> Kind {
    let text = line.trim_start();
    let indent = line.len() - text.len();
    let is_definition = text.starts_with('[') && text.contains("]: ");
    if text.is_empty() || is_definition || text.starts_with(['|', '#', '<', '>']) {
        return Kind::Verbatim;
    }
    let mark = text.split(' ').next().unwrap_or(text);
    if is_mark(mark) && text.len() > mark.len() { Kind::Entry(indent + mark.len() + 1) } else { Kind::Text }
}

/// What begins an entry of a list.
fn is_mark(word: &str) -> bool {
    let number = word.strip_suffix(['.', ')']);
    matches!(word, "-" | "*" | "+")
        || number.is_some_and(|digits| !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()))
}

fn columns(line: &str) -> usize {
    line.chars().count()
}

fn is_long(line: &str) -> bool {
    columns(line) > WIDTH
}

fn wrapped(page: &Source) -> String {
    let (mut out, mut paragraph, mut fenced) = (Vec::new(), Vec::new(), false);
    for (_, line) in page.lines() {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        let kind = if fenced || fence { Kind::Verbatim } else { kind(line) };
        if kind != Kind::Text {
            end_paragraph(&mut paragraph, &mut out);
        }
        match kind {
            Kind::Verbatim => out.push(line.to_string()),
            Kind::Entry(_) | Kind::Text => paragraph.push(line),
        }
    }
    end_paragraph(&mut paragraph, &mut out);
    out.join("\n") + "\n"
}

/// Wraps the lines of a paragraph if one of them is too long.
fn end_paragraph(paragraph: &mut Vec<&str>, out: &mut Vec<String>) {
    let lines = std::mem::take(paragraph);
    let Some(head) = lines.first().filter(|_| lines.iter().any(|line| is_long(line))) else {
        out.extend(lines.into_iter().map(str::to_string));
        return;
    };
    let start = match kind(head) {
        Kind::Entry(start) => start,
        _ => head.len() - head.trim_start().len(),
    };
    let (first, rest) = head.split_at(start);
    let text = [rest].into_iter().chain(lines.iter().skip(1).copied()).map(str::trim).collect::<Vec<_>>().join(" ");
    let (indent, mut line) = (" ".repeat(start), first.to_string());
    let mut is_empty = true;
    for word in words(&text) {
        if !is_empty && columns(&line) + 1 + columns(&word) > WIDTH {
            out.push(std::mem::replace(&mut line, indent.clone()));
            is_empty = true;
        }
        if !is_empty {
            line.push(' ');
        }
        line += &word;
        is_empty = false;
    }
    out.push(line);
}

/// The pieces of a text between which a line may end: not inside of code, and not before what would begin something else.
fn words(text: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let mut is_code = false;
    for word in text.split(' ').filter(|word| !word.is_empty()) {
        let glued =
            is_code || is_mark(word) || word.starts_with(['#', '>', '|', '=']) || word.bytes().all(|b| b == b'-');
        match words.last_mut() {
            Some(last) if glued => *last += &format!(" {word}"),
            _ => words.push(word.to_string()),
        }
        is_code ^= word.matches('`').count() % 2 == 1;
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrap(text: &str) -> String {
        wrapped(&Tree::of(&[("a.md", text)]).files()[0])
    }

    #[test]
    fn long_paragraphs_are_wrapped_and_others_left() {
        let text = format!("short\nlines\n\n* {}end\n  more\n* next\n", "word ".repeat(20));
        let lines = wrap(&text);
        assert_eq!(lines, format!("short\nlines\n\n* {}word\n  word end more\n* next\n", "word ".repeat(18)));
        assert_eq!(wrap(&lines), lines);
    }

    #[test]
    fn no_line_ends_inside_of_code_or_begins_a_list() {
        let text = format!("{}`a b c d e f` (n\n- 1) x\n", "1234 ".repeat(19));
        assert_eq!(
            wrap(&text.replace("\n-", " -")),
            format!("{}\n`a b c d e f` (n - 1) x\n", "1234 ".repeat(19).trim())
        );
    }

    #[test]
    fn tables_and_examples_stay() {
        let text = format!("| {} |\n```\n{}\n```\n", "a ".repeat(80), "b ".repeat(80));
        assert_eq!(wrap(&text), text);
    }
}
