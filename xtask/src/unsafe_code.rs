//! Holds `UNSAFE.md` against the sources: every use of `unsafe` has its row there, and no row is of
//! one that is gone. Knows the word and what it stands before; what a proof is worth people judge.

use std::collections::BTreeMap;
use std::fmt;

use crate::Result;

/// The inventory, by people.
pub(crate) const INVENTORY: &str = "UNSAFE.md";

/// What the word stands before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Block,
    Fn,
    Impl,
    Type,
    /// A trait, an attribute, a block of `extern`: none yet.
    Other,
}

impl Kind {
    const ALL: [(Self, &'static str); 5] = [
        (Self::Block, "block"),
        (Self::Fn, "fn"),
        (Self::Impl, "impl"),
        (Self::Type, "type"),
        (Self::Other, "other"),
    ];
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let found = Self::ALL.iter().find(|(kind, _)| kind == self);
        f.write_str(found.map_or("", |(_, word)| word))
    }
}

/// A use of the word: its kind, and the function that it is in or makes, or what it implements.
type Use = (Kind, String);

/// How often each use is there, by file.
type Uses = BTreeMap<(String, Use), usize>;

/// Compares the inventory's text with the sources, each a name and its text.
///
/// # Errors
/// One sentence for each use without a row and each row without a use.
pub(crate) fn check(inventory: &str, sources: &[(String, String)]) -> Result<()> {
    let mut found = Uses::new();
    for (file, text) in sources {
        for use_ in uses(text) {
            count(&mut found, (file.clone(), use_));
        }
    }
    let listed = rows(inventory)?;
    let mut problems = Vec::new();
    for key in found.keys().chain(listed.keys().filter(|key| !found.contains_key(key))) {
        let (file, (kind, name)) = key;
        let [source, rows] = [&found, &listed].map(|uses| uses.get(key).copied().unwrap_or(0));
        if source != rows {
            problems.push(format!(
                "{INVENTORY}: {file}: {kind} `{name}`: {source} in the source, {rows} in the table"
            ));
        }
    }
    if !problems.is_empty() {
        return Err(problems.join("\n  "));
    }
    println!("{} uses of unsafe, each with its row in {INVENTORY}", found.values().sum::<usize>());
    Ok(())
}

fn count(uses: &mut Uses, one: (String, Use)) {
    let so_far = uses.entry(one).or_default();
    *so_far = so_far.saturating_add(1);
}

/// The rows of the inventory. A heading names a file; the first cell of each row below it names the
/// function in backticks and then the kind: ``| `map_private` fn | …``.
fn rows(inventory: &str) -> Result<Uses> {
    let mut all = Uses::new();
    let mut file = None;
    for line in inventory.lines() {
        if line.starts_with('#') {
            file = line.split('`').nth(1).map(str::to_owned);
        }
        let (Some(file), Some(row)) = (&file, line.strip_prefix("| `")) else { continue };
        let cell = row.split(" |").next().unwrap_or_default();
        let (name, kind) = cell.rsplit_once("` ").unwrap_or((cell, ""));
        let kind = Kind::ALL.iter().find(|(_, word)| *word == kind).map(|(kind, _)| *kind);
        let kind = kind.ok_or_else(|| {
            format!("{INVENTORY}: expected a name in backticks and block, fn, impl or type, found {cell}")
        })?;
        // Whose method it is is for people.
        let name = name.rsplit_once("::").map_or(name, |(_, last)| last);
        count(&mut all, (file.clone(), (kind, name.to_owned())));
    }
    Ok(all)
}

/// Every use of the word in a source, in order.
fn uses(text: &str) -> Vec<Use> {
    let words = words(text);
    let mut all = Vec::new();
    // A brace that opens the body of a function has its name.
    let mut open: Vec<Option<String>> = Vec::new();
    let mut next = None;
    for (at, word) in words.iter().enumerate() {
        let after = |by: usize| words.get(at.saturating_add(by)).map_or("", String::as_str);
        match word.as_str() {
            "{" => open.push(next.take()),
            "}" => drop(open.pop()),
            // A declaration without a body, or the end of a statement.
            ";" => next = None,
            // A pointer to a function has no name.
            "fn" if after(1) != "(" => next = Some(after(1).to_owned()),
            "unsafe" => {
                let rest = words.get(at..).unwrap_or_default();
                let before = words.get(..at).unwrap_or_default();
                let inside = open.iter().rev().find_map(Clone::clone);
                all.push(classify(before, rest, inside));
            }
            _ => {}
        }
    }
    all
}

/// What the word at the start of `rest` is, after `before`, in the function `inside`.
fn classify(before: &[String], rest: &[String], inside: Option<String>) -> Use {
    let word = |at: usize| rest.get(at).map_or("", String::as_str);
    let until = |end: &str| {
        let named = rest.iter().skip(2).take_while(|word| *word != end);
        named.map(String::as_str).collect::<Vec<_>>().join(" ")
    };
    // `unsafe extern fn`, with or without a name: what is between are the quotes of an ABI, which
    // went with the strings.
    let function = if word(1) == "extern" { 2 } else { 1 };
    match word(1) {
        "{" => (Kind::Block, inside.unwrap_or_default()),
        "impl" => (Kind::Impl, until("{")),
        _ if word(function) == "fn" && word(function.saturating_add(1)) == "(" => {
            let name = before.iter().rposition(|word| word == "type");
            let name = name.and_then(|at| before.get(at.saturating_add(1)));
            (Kind::Type, name.cloned().unwrap_or_default())
        }
        _ if word(function) == "fn" => (Kind::Fn, word(function.saturating_add(1)).to_owned()),
        other => (Kind::Other, other.to_owned()),
    }
}

/// Identifiers and punctuation, without comments, strings and characters.
fn words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let word = rest.find(|c: char| !is_word(c)).unwrap_or(rest.len());
        let (token, after) = rest.split_at(word.max(first.len_utf8()));
        if let Some(skipped) = skip(rest) {
            rest = skipped;
            continue;
        }
        if !first.is_whitespace() {
            words.push(token.to_owned());
        }
        rest = after;
    }
    words
}

/// What follows a comment, string or character at the start of `text`; `None` when there is none.
fn skip(text: &str) -> Option<&str> {
    if text.starts_with("//") {
        return Some(text.split_once('\n').map_or("", |(_, rest)| rest));
    }
    if let Some(mut rest) = text.strip_prefix("/*") {
        let mut depth = 1_usize;
        while depth > 0 {
            let at = rest.find("*/").unwrap_or(rest.len());
            match rest.find("/*").filter(|begin| *begin < at) {
                Some(begin) => {
                    depth = depth.saturating_add(1);
                    rest = rest.get(begin..)?.get(2..)?;
                }
                None => {
                    depth = depth.saturating_sub(1);
                    rest = rest.get(at..)?.get(2..).unwrap_or_default();
                }
            }
        }
        return Some(rest);
    }
    let quoted = text.trim_start_matches(['b', 'c']);
    // No more than a prefix, and not the end of a word.
    if text.len().saturating_sub(quoted.len()) < 2 {
        if let Some(raw) = quoted.strip_prefix('r') {
            let hashes = raw.len().saturating_sub(raw.trim_start_matches('#').len());
            if let Some(body) = raw.get(hashes..).and_then(|raw| raw.strip_prefix('"')) {
                let end = format!("\"{}", "#".repeat(hashes));
                return Some(body.split_once(&end).map_or("", |(_, rest)| rest));
            }
        }
        if let Some(body) = quoted.strip_prefix('"') {
            return Some(after_quote(body, '"'));
        }
        // A lifetime has no second quote after its first character.
        if let Some(body) = quoted.strip_prefix('\'') {
            let mut chars = body.chars();
            let one = chars.next()?;
            if one == '\\' || chars.next() == Some('\'') {
                return Some(after_quote(body, '\''));
            }
        }
    }
    None
}

/// What follows the quote that ends `body`.
fn after_quote(body: &str, quote: char) -> &str {
    let mut escaped = false;
    for (at, c) in body.char_indices() {
        if escaped {
            escaped = false;
        } else if c == '\\' {
            escaped = true;
        } else if c == quote {
            return body.get(at..).and_then(|rest| rest.get(1..)).unwrap_or_default();
        }
    }
    ""
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = r##"
//! unsafe in a comment
#![allow(unsafe_code, reason = "an unsafe { } \" in a string")]
type Deleter<T> = unsafe extern "C" fn(*mut T);
/* unsafe { /* unsafe fn */ } */
unsafe impl<'a> Send for Kept<'a> {}
impl Kept<'_> {
    fn get(&self) -> u8 {
        let quote = ['"', '\'', b'{'];
        let raw = r#"unsafe { "# ;
        [1].map(|_| { unsafe { one() } });
        if true { unsafe { two() } }
        raw
    }
    pub unsafe fn map(&self) { let more = unsafe { three() }; }
}
unsafe extern "C" fn delete<T>(managed: *mut T) {}
"##;

    fn of(kind: Kind, name: &str) -> Use {
        (kind, name.to_owned())
    }

    #[test]
    fn uses_are_found_where_they_are() {
        let expected = [
            of(Kind::Type, "Deleter"),
            of(Kind::Impl, "< ' a > Send for Kept < ' a >"),
            of(Kind::Block, "get"),
            of(Kind::Block, "get"),
            of(Kind::Fn, "map"),
            of(Kind::Block, "map"),
            of(Kind::Fn, "delete"),
        ];
        assert_eq!(uses(SOURCE), expected);
    }

    #[test]
    fn a_table_that_lacks_one_or_has_one_too_many_is_told() {
        let source = |text: &str| [("a.rs".to_owned(), text.to_owned())];
        let one = "fn f() { unsafe { g() } }";
        let table = "## `a.rs`\n\n| where | why |\n|---|---|\n| `A::f` block | for `unsafe` |\n";
        check(table, &source(one)).unwrap();
        let why = check(table, &source("fn f() {}")).unwrap_err();
        assert!(why.contains("`f`: 0 in the source, 1 in the table"), "{why}");
        let why = check(table, &source(&format!("{one}{one}"))).unwrap_err();
        assert!(why.contains("`f`: 2 in the source, 1 in the table"), "{why}");
        assert!(check("", &source(one)).is_err());
        assert!(check("## `a.rs`\n| `f` blocks | x |", &source(one)).is_err());
    }
}
