//! The chapters of the spec, as far as tools read them: where rules stand and what they say.
//!
//! A rule is a paragraph whose first line is `**[id]** Actor · DEPTH · codes`; the lines up to
//! the next blank one are its text.

use std::fs;
use std::path::{Path, PathBuf};

use crate::Result;

const ACTORS: [&str; 6] = ["Reader", "Writer", "Committer", "Both", "Validator", "Keeper"];
const DEPTHS: [&str; 4] = ["C", "O", "R", "V"];
const KEYWORDS: [&str; 11] = [
    "MUST",
    "SHALL",
    "SHOULD",
    "MAY",
    "REQUIRED",
    "RECOMMENDED",
    "OPTIONAL",
    "MUST NOT",
    "SHALL NOT",
    "SHOULD NOT",
    "NOT RECOMMENDED",
];

/// One `spec/*.md`.
#[derive(Debug)]
pub(crate) struct Chapter {
    pub(crate) path: PathBuf,
    pub(crate) text: String,
}

/// One rule of a chapter.
#[derive(Clone, Debug)]
pub(crate) struct Rule {
    pub(crate) id: String,
    /// `Reader`, `Reader, Writer`, …
    pub(crate) actor: String,
    /// `C`, `O`, `R`, `V`; empty when the rule is not checked.
    pub(crate) depth: String,
    /// Ids of the codes that a breach may be reported with.
    pub(crate) codes: Vec<String>,
    /// The paragraph in one line.
    pub(crate) text: String,
    /// File name of the chapter.
    pub(crate) chapter: String,
    /// Line of the chapter, from 1.
    pub(crate) line: usize,
}

/// All chapters of `folder`, by file name.
pub(crate) fn chapters(folder: &Path) -> Result<Vec<Chapter>> {
    let listing = fs::read_dir(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let mut paths = Vec::new();
    for entry in listing {
        let path = entry.map_err(|e| format!("{}: {e}", folder.display()))?.path();
        if path.extension().is_some_and(|ext| ext == "md") {
            paths.push(path);
        }
    }
    paths.sort();
    paths
        .into_iter()
        .map(|path| {
            let text = fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
            Ok(Chapter { path, text })
        })
        .collect()
}

impl Chapter {
    /// The file's name.
    pub(crate) fn name(&self) -> String {
        self.path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default()
    }

    /// The rules in the order they stand in; what is wrong with the chapter goes to `problems`.
    pub(crate) fn rules(&self, problems: &mut Vec<String>) -> Vec<Rule> {
        let name = self.name();
        let defines_keywords = self.text.contains("RFC 2119");
        let mut rules: Vec<Rule> = Vec::new();
        let mut fenced = false;
        let mut in_rule = false;
        for (line, number) in self.text.lines().zip(1_usize..) {
            if line.trim_start().starts_with("```") {
                fenced = !fenced;
            } else if fenced {
                continue;
            } else if line.trim().is_empty() {
                in_rule = false;
            } else if line.starts_with("**[") {
                match heading(line) {
                    Ok(rule) => {
                        rules.push(Rule { chapter: name.clone(), line: number, ..rule });
                        in_rule = true;
                    }
                    Err(why) => problems.push(format!("{name}:{number}: {why}")),
                }
            } else if let Some(rule) = rules.last_mut().filter(|_| in_rule) {
                if !rule.text.is_empty() {
                    rule.text.push(' ');
                }
                rule.text.push_str(line.trim());
            } else if !defines_keywords && let Some(word) = keyword(line) {
                problems.push(format!("{name}:{number}: {word} outside of a rule"));
            }
        }
        for rule in &rules {
            if keyword(&rule.text).is_none() {
                let line = rule.line;
                problems
                    .push(format!("{name}:{line}: rule {} has no MUST, SHOULD or MAY", rule.id));
            }
        }
        rules
    }
}

/// The rule that `line` begins, without text and place.
fn heading(line: &str) -> Result<Rule> {
    let form = "a rule begins with **[id]** Actor · DEPTH · codes";
    let (id, rest) =
        line.strip_prefix("**[").and_then(|rest| rest.split_once("]**")).ok_or(form)?;
    if !well_formed(id) {
        return Err(format!("rule id {id:?} is not words joined by dots"));
    }
    let fields: Vec<&str> = rest.split('·').map(str::trim).collect();
    let [actor, depth, codes] = fields.as_slice() else {
        return Err(format!("rule {id}: {form}"));
    };
    if let Some(other) = actor.split(", ").find(|word| !ACTORS.contains(word)) {
        return Err(format!("rule {id}: actor {other:?} is none of {ACTORS:?}"));
    }
    let depth = match *depth {
        "—" => "",
        depth if DEPTHS.contains(&depth) => depth,
        depth => return Err(format!("rule {id}: depth {depth:?} is none of {DEPTHS:?} or —")),
    };
    let codes = match *codes {
        "—" => Vec::new(),
        codes => codes
            .split(", ")
            .map(|code| {
                code.strip_prefix('`')
                    .and_then(|code| code.strip_suffix('`'))
                    .map(str::to_owned)
                    .ok_or_else(|| format!("rule {id}: code {code:?} is not in backticks"))
            })
            .collect::<Result<_>>()?,
    };
    Ok(Rule {
        id: id.to_owned(),
        actor: (*actor).to_owned(),
        depth: depth.to_owned(),
        codes,
        text: String::new(),
        chapter: String::new(),
        line: 0,
    })
}

/// `[a-z0-9-]+(\.[a-z0-9-]+)+`
fn well_formed(id: &str) -> bool {
    let word = |word: &str| {
        let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
        !word.is_empty() && word.bytes().all(plain)
    };
    id.contains('.') && id.split('.').all(word)
}

/// The first word of RFC 2119 in `line`.
fn keyword(line: &str) -> Option<&'static str> {
    line.split(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != '-')
        .find_map(|word| KEYWORDS.iter().copied().find(|keyword| *keyword == word))
}

/// True when the rule tells a reader to reject.
fn rejects(rule: &Rule) -> bool {
    let reads = rule.actor.split(", ").any(|a| matches!(a, "Reader" | "Validator" | "Both"));
    reads && (rule.text.contains("MUST reject") || rule.text.contains("MUST be rejected"))
}

/// What is wrong with the rules as a whole; `codes` are the registry's, with their classes.
pub(crate) fn problems(rules: &[Rule], codes: &[crate::registry::Code]) -> Vec<String> {
    let mut found = Vec::new();
    let mut seen = std::collections::BTreeSet::new();
    for rule in rules {
        let place = format!("{}:{}: rule {}", rule.chapter, rule.line, rule.id);
        if !seen.insert(&rule.id) {
            found.push(format!("{place} stands twice"));
        }
        for code in &rule.codes {
            if !codes.iter().any(|known| known.id == *code) {
                found.push(format!("{place}: no code {code}"));
            }
        }
        if rejects(rule) && (rule.codes.is_empty() || rule.depth.is_empty()) {
            found.push(format!("{place} rejects, so it needs a depth and a code"));
        }
    }
    // Codes of the environment, of calls and of budgets need no rule of the format.
    let free = |code: &crate::registry::Code| {
        matches!(code.class.as_str(), "io" | "usage" | "limit" | "unsupported")
    };
    let used = |id: &String| rules.iter().any(|rule| rule.codes.contains(id));
    if !rules.is_empty() {
        for code in codes.iter().filter(|code| !free(code) && !used(&code.id)) {
            found.push(format!("codes.toml: no rule uses {}", code.id));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> (Vec<Rule>, Vec<String>) {
        let chapter = Chapter { path: "a.md".into(), text: text.into() };
        let mut problems = Vec::new();
        let rules = chapter.rules(&mut problems);
        (rules, problems)
    }

    #[test]
    fn a_rule_is_its_heading_and_the_paragraph() {
        let (rules, problems) = read(
            "# A\n\n**[json.depth]** Reader, Writer · O · `not-canonical`, `limit`\n\
             A reader MUST reject\nit.\n\nNot this.\n\n**[a.b-2]** Writer · — · —\nIt MAY.\n",
        );
        assert_eq!(problems, Vec::<String>::new());
        let [first, second] = &rules[..] else { panic!("{rules:?}") };
        assert_eq!(first.text, "A reader MUST reject it.");
        assert_eq!((first.actor.as_str(), first.depth.as_str()), ("Reader, Writer", "O"));
        assert_eq!(first.codes, ["not-canonical", "limit"]);
        assert_eq!((second.id.as_str(), second.line), ("a.b-2", 9));
        assert!(second.codes.is_empty() && second.depth.is_empty());
    }

    #[test]
    fn keywords_stand_in_rules_only() {
        let (_, problems) =
            read("> Why it MUST be.\n\n```\nMUST\n```\n\n**[a.b]** Both · C · —\nx\n");
        assert_eq!(
            problems,
            ["a.md:1: MUST outside of a rule", "a.md:7: rule a.b has no MUST, SHOULD or MAY"]
        );
    }

    #[test]
    fn headings_are_strict() {
        for bad in [
            "**[ab]** Reader · C · —",
            "**[a.B]** Reader · C · —",
            "**[a.b]** Nobody · C · —",
            "**[a.b]** Reader · X · —",
            "**[a.b]** Reader · C · io",
            "**[a.b]** Reader · C",
        ] {
            assert!(heading(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_rejecting_rule_needs_a_code_that_exists() {
        let (rules, _) = read(
            "**[a.b]** Reader · — · —\nMUST reject.\n\n**[a.b]** Reader · C · `none`\nMUST.\n",
        );
        let found = problems(&rules, &[]);
        assert_eq!(found.len(), 3, "{found:?}");
    }
}
