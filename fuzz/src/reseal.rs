//! Lengths and digests made to fit again, so that a change beneath them is met for itself. Knows where they stand, and leaves alone
//! what it does not understand.

use serde_json::Value;
use waystation_conformance::build::{canonical, sha256};
use waystation_conformance::files::Files;

/// Makes the manifest of a checkpoint, or of each one of a run, fit its files, and the commit file the manifest.
///
/// A part whose bytes changed gets the name of its digest.
pub fn reseal(files: &mut Files) {
    let manifests: Vec<String> =
        files.keys().filter(|path| path.ends_with("manifest.json")).cloned().collect();
    for path in manifests {
        checkpoint(files, path.strip_suffix("manifest.json").unwrap_or_default());
    }
}

fn checkpoint(files: &mut Files, folder: &str) {
    let manifest_path = format!("{folder}manifest.json");
    let Some(text) = files.get(&manifest_path).cloned() else { return };
    // One that is not the text of its value was changed as a text: it stays as it is.
    if let Ok(mut manifest) = serde_json::from_slice::<Value>(&text)
        && canonical(&manifest).as_bytes() == text
    {
        parts(files, folder, &mut manifest);
        for kind in ["tensors", "records"] {
            for number in 0..count(&manifest, kind) {
                if let Some(bytes) = files.get(&format!("{folder}{kind}-{number:05}.json")) {
                    state(&mut manifest[kind][number], bytes);
                }
            }
        }
        files.insert(manifest_path.clone(), canonical(&manifest).into_bytes());
    }
    let text = &files[&manifest_path];
    let commit = format!("{}  manifest.json\n", sha256(text));
    files.insert(format!("{folder}waystation.commit"), commit.into_bytes());
}

fn parts(files: &mut Files, folder: &str, manifest: &mut Value) {
    for number in 0..count(manifest, "parts") {
        let begin = format!("{folder}part-{number:05}-");
        let Some(name) = files.keys().find(|name| name.starts_with(&begin)).cloned() else {
            continue;
        };
        let Some(bytes) = files.remove(&name) else { continue };
        let part = &mut manifest["parts"][number];
        state(part, &bytes);
        files.insert(format!("{begin}{}.json", &sha256(&bytes)[..16]), bytes);
        let Some(inc) = part["inc"].as_str().map(str::to_owned) else { continue };
        for position in 0..count(part, "attachments") {
            if let Some(bytes) =
                files.get(&format!("{folder}attachment-{number:05}-{inc}-{position:05}"))
            {
                state(&mut part["attachments"][position], bytes);
            }
        }
    }
}

fn count(value: &Value, list: &str) -> usize {
    value.get(list).and_then(Value::as_array).map_or(0, Vec::len)
}

/// Says length and digest where both were said before.
fn state(said: &mut Value, bytes: &[u8]) {
    if let Some(members) = said.as_object_mut()
        && members.contains_key("bytes")
        && members.contains_key("sha256")
    {
        members.insert("bytes".to_owned(), bytes.len().into());
        members.insert("sha256".to_owned(), sha256(bytes).into());
    }
}
