//! What every answer of the crates must be like, whatever they were given.

use std::collections::BTreeSet;
use std::fmt::Debug;

use serde_json::Value;
use waystation_conformance::build;
use waystation_format::part::ShardEntry;
use waystation_format::{Class, Code, Error, rule};

/// A refusal of bytes: it names a rule of the specification and answers with a code of that rule, and blames what was read.
///
/// # Panics
/// If it does not.
pub fn refusal(e: &Error) {
    let blamed = matches!(
        e.class(),
        Class::Malformed | Class::Corrupt | Class::Incomplete | Class::Unsupported | Class::Limit
    );
    assert!(blamed, "a refusal of class {}: {e}", e.class());
    let id = e.rule_id().unwrap_or_else(|| panic!("a refusal that names no rule: {e}"));
    // A budget that its caller gave is no rule of the format: whoever spends it says what it was for.
    if (e.code(), id) == (Code::Limit, rule::CURSOR_CANARY_STEPS) {
        return;
    }
    let info = rule::find(id).unwrap_or_else(|| panic!("a refusal by a rule that is none: {e}"));
    assert!(info.codes.contains(&e.code()), "{id} has no code {}: {e}", e.code());
    place(e);
}

/// The place of an error in a text of `length` bytes lies in it.
///
/// # Panics
/// If it does not.
pub fn within(e: &Error, length: usize) {
    if let Some(offset) = e.location().offset {
        assert!(offset <= length as u64, "offset {offset} in {length} bytes: {e}");
    }
}

/// JSON that was accepted is in the one form, by another parser and another writer: names sorted and each once, no escape that need
/// not be. What a reader only carries along is held to it, too.
///
/// # Panics
/// If it is not.
pub fn canonical(accepted: &[u8], what: &str) {
    let value: Value = serde_json::from_slice(accepted)
        .unwrap_or_else(|e| panic!("{what} that is accepted is no JSON: {e}"));
    assert!(
        build::canonical(&value).as_bytes() == accepted,
        "{what} that is accepted is not canonical"
    );
}

/// Lists that ascend do: no two are alike.
///
/// # Panics
/// If they do not.
pub fn ascending<T: Ord + Debug>(items: impl IntoIterator<Item = T>, what: &str) {
    let items: Vec<T> = items.into_iter().collect();
    for pair in items.windows(2) {
        assert!(pair[0] < pair[1], "{what}: {:?} before {:?}", pair[0], pair[1]);
    }
}

/// Logical paths stay in one tree, which any file system holds: nothing leads out of it, no two are one without regard to case, and
/// none is a directory of another.
///
/// # Panics
/// If they do not.
pub fn paths<'a>(paths: impl IntoIterator<Item = &'a str>) {
    let (mut files, mut folders) = (BTreeSet::new(), BTreeSet::new());
    for path in paths {
        let lowered = path.to_ascii_lowercase();
        for component in path.split('/') {
            assert!(!matches!(component, "" | "." | ".."), "a path that leads out: {path:?}");
            let plain =
                component.bytes().all(|b| b.is_ascii_alphanumeric() || b" ._-".contains(&b));
            assert!(plain, "a path that some file system cannot hold: {path:?}");
        }
        for (at, _) in lowered.match_indices('/') {
            folders.insert(lowered[..at].to_owned());
        }
        assert!(files.insert(lowered), "a path stands twice: {path:?}");
    }
    let both = files.intersection(&folders).next();
    assert!(both.is_none(), "a file and a directory of one path: {both:?}");
}

/// A table of block CRCs lies in its shard.
///
/// # Panics
/// If it does not.
pub fn table(shard: &ShardEntry) {
    if let Some(table) = &shard.crc_table {
        let end = u128::from(table.offset) + 4 * u128::from(table.count);
        assert!(table.count > 0 && end <= u128::from(shard.bytes), "{table:?} leaves its shard");
    }
}

/// Whether two answers refuse alike: for the same reason, at the same place.
///
/// # Panics
/// If they do not.
pub fn same(a: &Error, b: &Error, what: &str) {
    let of = |e: &Error| (e.code(), e.rule_id(), e.location().clone());
    assert_eq!(of(a), of(b), "{what}: {a} and {b}");
}

/// Reading a whole checkpoint, which may also meet something that is not to be read whole.
///
/// # Panics
/// If the refusal is none.
pub fn reading(e: &Error) {
    if e.code() != Code::BlockBoundary {
        refusal(e);
    }
}

fn place(e: &Error) {
    if let Some(pointer) = &e.location().pointer {
        assert!(pointer.is_empty() || pointer.starts_with('/'), "no pointer: {e}");
        let escapes = pointer.split('~').skip(1);
        assert!(escapes.into_iter().all(|rest| rest.starts_with(['0', '1'])), "no pointer: {e}");
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;

    #[test]
    fn what_is_accepted_is_canonical() {
        canonical(br#"{"a":[1,"\u001f"],"b":{}}"#, "a text");
        for wrong in [r#"{"b":1,"a":1}"#, r#"{"a":1,"a":1}"#, r#"{"a": 1}"#, r#"{"a":"\/"}"#, "{"] {
            assert!(catch_unwind(|| canonical(wrong.as_bytes(), "a text")).is_err(), "{wrong}");
        }
    }

    #[test]
    fn paths_that_do_not_stand_in_one_tree_are_noticed() {
        paths(["config.json", "a/b", "a/c", "A.b/x y"]);
        for wrong in [
            &["../a"][..],
            &["a//b"],
            &["/a"],
            &["a\\b"],
            &["a", "A"],
            &["a/b", "A"],
            &["a", "a-", "a/b"],
        ] {
            let noticed = catch_unwind(|| paths(wrong.iter().copied()));
            assert!(noticed.is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_refusal_names_a_rule_and_one_of_its_codes() {
        refusal(&Error::rule(Code::NotCanonical, rule::JSON_CANONICAL, "expected x, found y"));
        let wrong = [
            Error::new(Code::NotCanonical, "no rule"),
            Error::rule(Code::NotCanonical, "json.unheard-of", "a rule that is none"),
            Error::rule(Code::BadChunk, rule::JSON_CANONICAL, "a code of another rule"),
            Error::rule(Code::BadArgument, rule::JSON_CANONICAL, "the caller is blamed"),
            Error::rule(Code::NotCanonical, rule::JSON_CANONICAL, "a place").at_pointer("x"),
        ];
        for e in wrong {
            let what = e.to_string();
            assert!(catch_unwind(AssertUnwindSafe(|| refusal(&e))).is_err(), "{what}");
        }
    }
}
