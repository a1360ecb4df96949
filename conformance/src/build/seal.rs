//! Names, lengths and digests: values become files, from the parts up to the commit file.

use serde_json::{Value, json};

use super::{Draft, Root, canonical, sha256};
use crate::files::Files;

/// A checkpoint's files, with the names of those that stand for a value.
#[derive(Clone, Debug)]
pub struct Sealed {
    /// All named files.
    pub files: Files,
    /// Of each part, by writer.
    pub parts: Vec<String>,
}

/// How the text of a metadata file may be changed before it gets its digest: by the name of what
/// it is, `part 0`, `tensors 0`, `records 0`, `manifest`, `commit`.
pub type Text<'a> = dyn Fn(&str, Vec<u8>) -> Vec<u8> + 'a;

/// Makes files of a draft and its root.
#[must_use]
pub fn seal(draft: &Draft, root: &Root, text: &Text<'_>) -> Sealed {
    let mut files = draft.data.clone();
    let mut manifest = root.manifest.clone();
    let mut parts = Vec::new();
    for (number, part) in draft.parts.iter().enumerate() {
        let bytes = text(&format!("part {number}"), canonical(part).into_bytes());
        let digest = sha256(&bytes);
        let name = format!("part-{number:05}-{}.json", &digest[..16]);
        list(&mut manifest, "parts", number, &bytes);
        parts.push(name.clone());
        files.insert(name, bytes);
    }
    for (kind, pages) in [("tensors", &root.tensors), ("records", &root.records)] {
        for (number, page) in pages.iter().enumerate() {
            let bytes = text(&format!("{kind} {number}"), canonical(page).into_bytes());
            list(&mut manifest, kind, number, &bytes);
            files.insert(format!("{kind}-{number:05}.json"), bytes);
        }
    }
    let bytes = text("manifest", canonical(&manifest).into_bytes());
    let commit = format!("{}  manifest.json\n", sha256(&bytes));
    files.insert("manifest.json".to_owned(), bytes);
    files.insert("waystation.commit".to_owned(), text("commit", commit.into_bytes()));
    Sealed { files, parts }
}

/// States length and digest of a file, unless the manifest was changed to say something else or nothing.
fn list(manifest: &mut Value, kind: &str, number: usize, bytes: &[u8]) {
    if let Some(Value::Object(members)) =
        manifest.get_mut(kind).and_then(|list| list.get_mut(number))
    {
        members.entry("bytes").or_insert(json!(bytes.len()));
        members.entry("sha256").or_insert(json!(sha256(bytes)));
    }
}
