//! From a place in a text to the JSON pointer (RFC 6901) that names it.
//!
//! Only errors need one, so it is built by walking the text again rather than kept along the way.

/// The pointer of the value that begins at byte `offset` of a canonical `text`, or of the
/// innermost one that holds that byte.
#[must_use]
pub fn pointer_at(text: &str, offset: usize) -> String {
    let bytes = text.as_bytes();
    let mut path: Vec<Step<'_>> = Vec::new();
    let mut at = 0_usize;
    let mut names = false; // a string that comes next is a member's name
    while at < offset {
        let Some(byte) = bytes.get(at) else { break };
        let next = at.saturating_add(1);
        match byte {
            b'{' => {
                path.push(Step::Member(""));
                names = true;
            }
            b'[' => path.push(Step::Item(0)),
            b'}' | b']' => {
                path.pop();
            }
            b',' => match path.last_mut() {
                Some(Step::Item(index)) => *index = index.saturating_add(1),
                _ => names = true,
            },
            b'"' => {
                let end = string_end(bytes, next);
                if names {
                    let name = text.get(next..end.saturating_sub(1)).unwrap_or_default();
                    path.pop();
                    path.push(Step::Member(name));
                    names = false;
                } else if offset < end {
                    break;
                }
                at = end;
                continue;
            }
            _ => {}
        }
        at = next;
    }
    // Inside a container, before its first member or item, the container itself is meant.
    if matches!(bytes.get(at.wrapping_sub(1)), Some(b'{')) {
        path.pop();
    }
    path.iter().fold(String::new(), |pointer, step| match step {
        Step::Item(index) => format!("{pointer}/{index}"),
        Step::Member(name) => {
            let plain = name.replace("\\\"", "\"").replace("\\\\", "\\");
            format!("{pointer}/{}", pointer_step(&plain))
        }
    })
}

enum Step<'a> {
    Member(&'a str),
    Item(u64),
}

/// The offset behind the closing quote of the string whose first character is at `at`.
fn string_end(bytes: &[u8], mut at: usize) -> usize {
    while let Some(byte) = bytes.get(at) {
        at = at.saturating_add(if *byte == b'\\' { 2 } else { 1 });
        if *byte == b'"' {
            break;
        }
    }
    at
}

/// A member's name as a step of a pointer.
#[must_use]
pub fn pointer_step(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_is_named() {
        let text = r#"{"a":[1,[2,{"b/~\"":"x,{"}],3],"c":{}}"#;
        let parsed: serde_json::Value = serde_json::from_str(text).unwrap();
        for (value, pointer) in [
            ("1,", "/a/0"),
            ("[1,", "/a"),
            ("2,", "/a/1/0"),
            ("{\"b", "/a/1/1"),
            ("\"x,", "/a/1/1/b~1~0\""),
            ("3]", "/a/2"),
            ("{}", "/c"),
            ("{\"a", ""),
        ] {
            assert_eq!(pointer_at(text, text.find(value).unwrap()), pointer, "{value}");
            assert!(parsed.pointer(pointer).is_some(), "{pointer}");
        }
    }
}
