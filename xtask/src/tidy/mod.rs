//! The project's own rules about its text: each small, each with the reason why and an example that it must refuse.

mod code;
mod docs;
mod imports;
mod prose;
mod text;
mod tree;
mod workspace;

use crate::shell::{Shell, say};
pub(crate) use code::lower_ratchets;
pub(crate) use prose::wrap_prose;
use tree::{Problem, Tree};

/// One rule.
struct Rule {
    /// What it is called in a report.
    name: &'static str,
    /// Why there is such a rule.
    why: &'static str,
    /// Finds what breaks it.
    check: fn(&Tree) -> Vec<Problem>,
    /// The smallest tree that breaks it, once. A test insists.
    #[cfg_attr(not(test), expect(dead_code, reason = "for the test of all rules"))]
    bad: fn() -> Tree,
    /// A similar tree that keeps it.
    #[cfg_attr(not(test), expect(dead_code, reason = "for the test of all rules"))]
    good: fn() -> Tree,
}

fn rules() -> impl Iterator<Item = &'static Rule> {
    [code::RULES, text::RULES, docs::RULES, prose::RULES, workspace::RULES, imports::RULES].into_iter().flatten()
}

/// `cargo xtask tidy`.
pub(crate) fn run(shell: &Shell) -> Result<(), String> {
    let tree = Tree::of_project(shell)?;
    let mut broken = 0;
    for rule in rules() {
        let problems = (rule.check)(&tree);
        problems.iter().for_each(|problem| say(&format!("  {problem}")));
        if !problems.is_empty() {
            say(&format!("  ^ rule `{}`: {}", rule.name, rule.why));
        }
        broken += problems.len();
    }
    match broken {
        0 => {
            say(&format!("  {} rules hold in {} files", rules().count(), tree.files().len()));
            Ok(())
        }
        _ => Err(format!("tidy found {broken} problems")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_rule_refuses_its_bad_example_and_keeps_its_good_one() {
        for rule in rules() {
            let problems = |tree: Tree| (rule.check)(&tree).iter().map(Problem::to_string).collect::<Vec<_>>();
            assert_eq!(problems((rule.bad)()).len(), 1, "rule `{}` on its bad example", rule.name);
            let problems = problems((rule.good)());
            assert!(problems.is_empty(), "rule `{}` on its good example: {problems:?}", rule.name);
        }
    }

    #[test]
    fn rules_have_names_of_their_own() {
        let names: Vec<&str> = rules().map(|rule| rule.name).collect();
        let mut unique = names.clone();
        unique.sort_unstable();
        unique.dedup();
        assert_eq!(unique.len(), names.len(), "{names:?}");
    }
}
