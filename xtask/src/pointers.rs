//! Tables that say which test shows what: the files and functions that they name must be there. Knows
//! names only.

/// The texts that are held to it.
pub(crate) const TEXTS: [&str; 2] = ["UNSAFE.md", "writer/tests/README.md"];

/// Shorter words in backticks are calls and members, not tests.
const SHORTEST: usize = 6;

/// What `text` names and the sources, each a name and its text, do not have.
pub(crate) fn dangling(name: &str, text: &str, sources: &[(String, String)]) -> Vec<String> {
    let mut found = Vec::new();
    for (at, line) in text.lines().enumerate().filter(|(_, line)| line.starts_with('|')) {
        let number = at.saturating_add(1);
        let mut file: Option<&str> = None;
        // Every second piece is between backticks. The first cell is checked by `unsafe_code`.
        for word in line.split('`').skip(1).step_by(2) {
            let path = word.ends_with(".rs") && word.contains('/');
            if path {
                let source = sources.iter().find(|(source, _)| source == word);
                file = source.map(|(_, text)| text.as_str());
                if file.is_none() {
                    found.push(format!("{name}:{number}: no file {word}"));
                }
            } else if let Some(text) = file
                && is_function(word)
                && !text.contains(&format!("fn {word}("))
            {
                found.push(format!("{name}:{number}: no function {word} in the file before it"));
            }
        }
    }
    found
}

fn is_function(word: &str) -> bool {
    word.len() >= SHORTEST
        && word.chars().all(|c| c.is_ascii_lowercase() || c == '_' || c.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_gone_is_named() {
        let sources = [("a/b.rs".to_owned(), "fn some_test() {}".to_owned())];
        let told = |line: &str| dangling("T.md", line, &sources);
        assert!(told("| x | `a/b.rs`: `some_test` `fd` |").is_empty());
        assert!(told("not a row: `a/c.rs`").is_empty());
        assert_eq!(told("| `a/c.rs` |"), ["T.md:1: no file a/c.rs"]);
        let other = told("| `a/b.rs`: `other_test` |");
        assert_eq!(other, ["T.md:1: no function other_test in the file before it"]);
    }
}
