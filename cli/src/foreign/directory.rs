//! A Hugging Face model directory: which files hold the weights, and which are everything else.
//! Knows the index and the tree; the files' headers are `header`'s.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use waystation_format::{Code, Error, Result, names};

use super::{Model, absent_or_io, open_file, open_regular};

const INDEX: &str = "model.safetensors.index.json";
const SINGLE: &str = "model.safetensors";
/// Longer than that of any model that there is.
const MAX_INDEX_BYTES: u64 = 64 << 20;
/// Deeper trees than this are taken for a loop of links.
const MAX_DEPTH: usize = 32;
/// Bookkeeping of version control and of download tools; not part of a model.
const BOOKKEEPING: [&str; 2] = [".git", ".cache"];

/// The index: which file holds which tensor. Its other members say nothing that the headers do not.
#[derive(Deserialize)]
struct Index {
    weight_map: BTreeMap<String, String>,
}

/// Opens the weights of `dir`: the files that its index names, else `model.safetensors`, else every `*.safetensors`.
pub(super) fn open(dir: &Path) -> Result<Model> {
    if std::fs::symlink_metadata(dir.join(names::COMMIT)).is_ok() {
        return Err(super::is_checkpoint().in_file(dir.display().to_string()));
    }
    let index = read_index(&dir.join(INDEX))?;
    let weights = match &index {
        Some(index) => index.weight_map.values().cloned().collect(),
        None => weights_without_index(dir)?,
    };
    let mut model = Model {
        files: Vec::new(),
        tensors: Vec::new(),
        attachments: Vec::new(),
        skipped: Vec::new(),
    };
    for name in &weights {
        let (file, tensors) = open_file(&dir.join(name), model.files.len())?;
        if let Some(index) = &index {
            for tensor in &tensors {
                agree(index, name, &tensor.name)
                    .map_err(|e| e.in_file(dir.join(INDEX).display().to_string()))?;
            }
        }
        model.files.push(file);
        model.tensors.extend(tensors);
    }
    if let Some(index) = &index {
        let there: BTreeSet<&str> = model.tensors.iter().map(|t| t.name.as_str()).collect();
        if let Some((name, file)) =
            index.weight_map.iter().find(|(n, _)| !there.contains(n.as_str()))
        {
            let message = format!("the index says that {file} holds {name:?}, which it does not");
            return Err(Error::new(Code::BadArgument, message)
                .in_file(dir.join(INDEX).display().to_string()));
        }
    }
    let mut used: BTreeSet<String> = weights;
    used.insert(INDEX.to_owned());
    let mut walk = Walk { used: &used, model: &mut model, parents: Vec::new() };
    walk.directory(dir, "", 0)?;
    model.attachments.sort();
    Ok(model)
}

fn read_index(path: &Path) -> Result<Option<Index>> {
    let (file, bytes) = match open_regular(path) {
        Err(e) if e.code() == Code::NotFound => return Ok(None),
        opened => opened?,
    };
    let bad = |message: String| {
        Error::new(Code::BadArgument, message).in_file(path.display().to_string())
    };
    if bytes > MAX_INDEX_BYTES {
        return Err(bad(format!(
            "expected an index of up to {MAX_INDEX_BYTES} bytes, found {bytes}"
        )));
    }
    let mut text = Vec::new();
    file.take(MAX_INDEX_BYTES)
        .read_to_end(&mut text)
        .map_err(|e| Error::io("read", e).in_file(path.display().to_string()))?;
    let text = std::str::from_utf8(&text).map_err(|e| bad(format!("not a valid index: {e}")))?;
    let index: Index =
        serde_json::from_str(text).map_err(|e| bad(format!("not a valid index: {e}")))?;
    for file in index.weight_map.values() {
        if file.contains(['/', '\\', '\0'])
            || file.starts_with('.')
            || !file.ends_with(".safetensors")
        {
            return Err(bad(format!(
                "the index names {file:?}: expected a .safetensors file beside it"
            )));
        }
    }
    Ok(Some(index))
}

fn agree(index: &Index, file: &str, tensor: &str) -> Result<()> {
    match index.weight_map.get(tensor) {
        Some(stated) if stated == file => Ok(()),
        Some(stated) => {
            let message = format!("{file} holds {tensor:?}, which the index places in {stated}");
            Err(Error::new(Code::BadArgument, message))
        }
        None => {
            let message = format!("{file} holds {tensor:?}, which the index does not name");
            Err(Error::new(Code::BadArgument, message))
        }
    }
}

fn weights_without_index(dir: &Path) -> Result<BTreeSet<String>> {
    let mut all = BTreeSet::new();
    for entry in std::fs::read_dir(dir).map_err(|e| absent_or_io(dir, e))? {
        let entry = entry.map_err(|e| Error::io("list", e).in_file(dir.display().to_string()))?;
        if let Some(name) = entry.file_name().to_str().filter(|n| n.ends_with(".safetensors")) {
            all.insert(name.to_owned());
        }
    }
    if all.contains(SINGLE) {
        return Ok(BTreeSet::from([SINGLE.to_owned()]));
    }
    if all.is_empty() {
        let error = Error::new(Code::NotFound, "the directory holds no .safetensors file");
        return Err(error.in_file(dir.display().to_string()));
    }
    Ok(all)
}

struct Walk<'a> {
    used: &'a BTreeSet<String>,
    model: &'a mut Model,
    /// Real paths of the directories above, to see a link that leads back up.
    parents: Vec<PathBuf>,
}

impl Walk<'_> {
    fn directory(&mut self, dir: &Path, prefix: &str, depth: usize) -> Result<()> {
        let real = std::fs::canonicalize(dir).map_err(|e| absent_or_io(dir, e))?;
        if depth > MAX_DEPTH || self.parents.contains(&real) {
            let error =
                Error::new(Code::BadArgument, "the directory contains itself through a link");
            return Err(error.in_file(dir.display().to_string()));
        }
        self.parents.push(real);
        for entry in std::fs::read_dir(dir).map_err(|e| absent_or_io(dir, e))? {
            let entry =
                entry.map_err(|e| Error::io("list", e).in_file(dir.display().to_string()))?;
            let path = entry.path();
            let Some(name) = entry.file_name().to_str().map(str::to_owned) else {
                let error = Error::new(Code::BadPath, "the file's name is not UTF-8");
                return Err(error.in_file(path.display().to_string()));
            };
            let logical = format!("{prefix}{name}");
            if BOOKKEEPING.contains(&logical.as_str()) {
                self.model.skipped.push(logical);
                continue;
            }
            // Links are followed: download caches keep the files elsewhere.
            let kind = std::fs::metadata(&path).map_err(|e| absent_or_io(&path, e))?;
            if kind.is_dir() {
                self.directory(&path, &format!("{logical}/"), depth.saturating_add(1))?;
            } else if !kind.is_file() {
                let error = Error::new(Code::NotRegular, "expected a file, found something else");
                return Err(error.in_file(path.display().to_string()));
            } else if !(depth == 0 && self.used.contains(&name)) {
                self.model.attachments.push((logical, path));
            }
        }
        self.parents.pop();
        Ok(())
    }
}
