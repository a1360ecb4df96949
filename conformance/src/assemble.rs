//! Files from commented text, byte by byte. Knows no format: only bytes, places, checksums and digests.
//!
//! | line | does |
//! |---|---|
//! | `# …` | nothing |
//! | `case …`, `rules …`, `about …` | says so of the case |
//! | `request …`, `answer …` | the same, in JSON; further lines go on with it |
//! | `file LABEL NAME` | begins a file of that name |
//! | `scratch LABEL` | begins bytes that are no file, to take digests of |
//! | `hex 0a ff` | bytes |
//! | `text "…"` | a string in JSON's form, in UTF-8 |
//! | `line …` | the rest of the line as it stands |
//! | `repeat HEX COUNT` | one byte, so often |
//! | `pad-to OFFSET HEX` | one byte, up to the offset |
//! | `at OFFSET` | nothing, but it has to be there |
//! | `crc32c LABEL FROM TO` | four bytes, little-endian; `.` is what is made so far |
//!
//! In `line`, `text`, `answer` and names, `<sha256 LABEL>`, `<sha256 LABEL DIGITS>`, `<crc32c LABEL FROM TO>` and `<bytes LABEL>` stand for what
//! they say of a file that is finished, in hex and in decimal.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::build::{crc, sha256};
use crate::files::Files;

/// What a text says.
#[derive(Debug, Default)]
pub struct Assembled {
    /// The files by name.
    pub files: Files,
    said: BTreeMap<String, String>,
    bytes: BTreeMap<String, Vec<u8>>,
}

impl Assembled {
    /// What stands after a word of the case.
    ///
    /// # Panics
    ///
    /// If the text does not have it: a slip of the suite.
    #[must_use]
    pub fn said(&self, word: &str) -> &str {
        self.said.get(word).unwrap_or_else(|| panic!("no {word} in a text"))
    }

    /// The JSON after a word; null where the text does not have it.
    ///
    /// # Panics
    ///
    /// If it is no JSON: a slip of the suite.
    #[must_use]
    pub fn json(&self, word: &str) -> Value {
        let text = self.said.get(word).map_or("null", String::as_str);
        serde_json::from_str(text).unwrap_or_else(|e| panic!("{word}: {e}: {text}"))
    }

    fn slice(&self, words: &[&str]) -> &[u8] {
        let all = &self.bytes[words[0]];
        match words {
            [_, from, to] => &all[number(from)..number(to)],
            _ => all,
        }
    }

    fn filled(&self, text: &str) -> String {
        let mut out = String::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('<') {
            let (inside, after) = after.split_once('>').expect("a place that ends");
            let words: Vec<&str> = inside.split(' ').collect();
            out.push_str(before);
            out.push_str(&match words.as_slice() {
                ["sha256", label, digits] => {
                    sha256(&self.bytes[*label])[..number(digits)].to_owned()
                }
                ["sha256", label] => sha256(&self.bytes[*label]),
                ["crc32c", place @ ..] => crc(self.slice(place)),
                ["bytes", label] => self.bytes[*label].len().to_string(),
                _ => panic!("{inside} stands for nothing"),
            });
            rest = after;
        }
        out + rest
    }
}

/// The words after which the bytes of a file are whole.
const ENDING: [&str; 5] = ["file", "scratch", "request", "answer", "end"];

/// Does what a text says.
///
/// # Panics
///
/// If a line is no line of this form, or a place is not where the text says: a slip of the suite.
#[must_use]
pub fn assemble(text: &str) -> Assembled {
    let mut all = Assembled::default();
    let mut open: Option<(String, Option<String>)> = None;
    let mut bytes = Vec::new();
    let mut speaking = String::new();
    for line in text.lines().chain(["end"]) {
        if line.starts_with("  ") {
            let line = all.filled(line.trim_start());
            all.said.entry(speaking.clone()).or_default().push_str(&line);
            continue;
        }
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        let words: Vec<&str> = rest.split(' ').collect();
        if ENDING.contains(&word)
            && let Some((label, name)) = open.take()
        {
            all.bytes.insert(label.clone(), std::mem::take(&mut bytes));
            if let Some(name) = name {
                let name = all.filled(&name);
                all.files.insert(name, all.bytes[&label].clone());
            }
        }
        match (word, words.as_slice()) {
            ("#" | "", _) => {}
            ("case" | "rules" | "about" | "request" | "answer", _) => {
                word.clone_into(&mut speaking);
                let rest = all.filled(rest);
                all.said.entry(speaking.clone()).or_default().push_str(&rest);
            }
            ("file", _) => {
                let (label, name) = rest.split_once(' ').expect("a label and a name");
                open = Some((label.to_owned(), Some(name.to_owned())));
            }
            ("scratch", _) => open = Some((rest.to_owned(), None)),
            ("end", _) => {}
            ("hex", digits) => bytes.extend(crate::recipe::unhex(&digits.concat())),
            ("text", _) => {
                let text: String =
                    serde_json::from_str(&all.filled(rest)).expect("a string in JSON's form");
                bytes.extend(text.into_bytes());
            }
            ("line", _) => bytes.extend(all.filled(rest).into_bytes()),
            ("repeat", [byte, count]) => {
                bytes.extend(vec![crate::recipe::unhex(byte)[0]; number(count)]);
            }
            ("pad-to", [offset, byte]) => {
                assert!(bytes.len() <= number(offset), "{line}: at {}", bytes.len());
                bytes.resize(number(offset), crate::recipe::unhex(byte)[0]);
            }
            ("at", [offset]) => assert_eq!(bytes.len(), number(offset), "{line}"),
            ("crc32c", place) => {
                let covered = match place {
                    [".", from, to] => &bytes[number(from)..number(to)],
                    _ => all.slice(place),
                };
                let crc = crc32c::crc32c(covered);
                bytes.extend(crc.to_le_bytes());
            }
            _ => panic!("{line} is no line of this form"),
        }
    }
    all
}

fn number(text: &str) -> usize {
    text.parse().unwrap_or_else(|_| panic!("{text} is no number"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_checksums_and_digests_stand_where_the_text_says() {
        let made = assemble(
            "case a\nscratch x\nhex 31 32\nline 3456789\nfile f n-<crc32c x 0 9>\ncrc32c x 0 9\nat 4\npad-to 6 ff\ntext \"\\u00e9\"\nanswer {\"n\":<bytes f>,\n  \"s\":\"<sha256 x 4>\"}\n",
        );
        assert_eq!(made.said("case"), "a");
        let want = [0x83, 0x92, 0x06, 0xe3, 0xff, 0xff, 0xc3, 0xa9];
        assert_eq!(made.files["n-e3069283"], want);
        assert_eq!(made.json("answer"), serde_json::json!({"n": 8, "s": "15e2"}));
    }
}
