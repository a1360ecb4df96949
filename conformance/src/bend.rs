//! One change to a checkpoint in the making, and what follows from it. Knows no rules.
//!
//! A bend acts at one step of [`crate::build`]: on the recipe, on a part, on a page, on the manifest, on
//! the text of one of these, or on the finished files. Every later step is done as if the change were meant, so that lengths,
//! checksums and digests fit and nothing else is wrong. [`Bend::twin`] is the same change with
//! everything else left as it was.

use serde_json::Value;

use crate::build::{self, Draft, Root, Sealed, element_bits};
use crate::case::Place;
use crate::files::Files;
use crate::recipe::Recipe;

type Act<T> = Box<dyn Fn(&mut T)>;

/// A change by name.
pub struct Bend {
    name: String,
    pointer: Option<String>,
    named: Option<String>,
    version: Option<String>,
    recipe: Vec<Act<Recipe>>,
    tables: Vec<Act<Vec<u32>>>,
    parts: Vec<(usize, Edit)>,
    pages: Vec<(String, usize, Edit)>,
    roots: Vec<Act<Root>>,
    manifest: Vec<Edit>,
    texts: Vec<(String, Act<Vec<u8>>)>,
    files: Vec<Act<Files>>,
    /// Whether chunks get the CRCs of the bytes at which they point.
    crcs: bool,
}

/// A change of a JSON value.
pub struct Edit {
    pointer: Option<String>,
    act: Act<Value>,
}

/// A recipe with the checkpoint that it makes as it is: made once, however many changes begin from it.
#[derive(Debug)]
pub struct Straight {
    recipe: Recipe,
    sealed: Sealed,
}

/// A bent checkpoint.
#[derive(Debug)]
pub struct Bent {
    /// Its files.
    pub files: Files,
    /// Where it differs first from what it would have been.
    pub place: Option<Place>,
    /// Names of its parts, by writer.
    parts: Vec<String>,
}

impl Straight {
    /// Makes the checkpoint of a recipe.
    #[must_use]
    pub fn new(recipe: Recipe) -> Self {
        let draft = build::parts(&recipe, &|_, _| ());
        let root = build::root(&recipe, &draft.parts);
        let sealed = build::seal(&draft, &root, &|_, bytes| bytes);
        Self { recipe, sealed }
    }

    /// The recipe.
    #[must_use]
    pub fn recipe(&self) -> &Recipe {
        &self.recipe
    }

    /// The files of its checkpoint.
    #[must_use]
    pub fn files(&self) -> &Files {
        &self.sealed.files
    }
}

impl Bend {
    /// A change that does nothing yet, to be named in `expect.json`.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            pointer: None,
            named: None,
            version: None,
            recipe: Vec::new(),
            tables: Vec::new(),
            parts: Vec::new(),
            pages: Vec::new(),
            roots: Vec::new(),
            manifest: Vec::new(),
            texts: Vec::new(),
            files: Vec::new(),
            crcs: false,
        }
    }

    /// What the change is called.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Changes `version` in parts, pages and manifest alike.
    #[must_use]
    pub fn version(mut self, version: &str) -> Self {
        self.version = Some(version.to_owned());
        self
    }

    /// The place of the change is the last string in the manifest's `parts` that is this one, and not the file that it brings with it.
    #[must_use]
    pub fn shown_by(mut self, text: &str) -> Self {
        self.named = Some(text.to_owned());
        self
    }

    /// Changes the recipe: goes through to parts, pages, shards and all.
    #[must_use]
    pub fn recipe(mut self, act: impl Fn(&mut Recipe) + 'static) -> Self {
        self.recipe.push(Box::new(act));
        self
    }

    /// Changes the block CRCs of all tables before they get a CRC of their own.
    #[must_use]
    pub fn tables(mut self, act: impl Fn(&mut Vec<u32>) + 'static) -> Self {
        self.tables.push(Box::new(act));
        self
    }

    /// Changes the part of a writer; pages and manifest are those of the part as it was.
    #[must_use]
    pub fn part(mut self, writer: usize, edit: Edit) -> Self {
        self.pointer = self.pointer.or_else(|| edit.pointer.clone());
        self.parts.push((writer, edit));
        self
    }

    /// Changes a page of `kind` `tensors` or `records`.
    #[must_use]
    pub fn page(mut self, kind: &str, number: usize, edit: Edit) -> Self {
        self.pointer = self.pointer.or_else(|| edit.pointer.clone());
        self.pages.push((kind.to_owned(), number, edit));
        self
    }

    /// Changes pages and manifest together.
    #[must_use]
    pub fn root(mut self, act: impl Fn(&mut Root) + 'static) -> Self {
        self.roots.push(Box::new(act));
        self
    }

    /// Changes part and page of a checkpoint of one writer alike: an edit of what stands in both.
    #[must_use]
    pub fn both(self, edit: impl Fn() -> Edit) -> Self {
        self.part(0, edit()).page("tensors", 0, edit())
    }

    /// Changes the chunks of an entry in part and page alike, of a checkpoint of one writer. They are
    /// given as in a part: shard, offset, at, extent, CRC, perhaps a table index.
    #[must_use]
    pub fn chunks(self, entry: usize, act: impl Fn(&mut Vec<Value>) + 'static) -> Self {
        let act = std::rc::Rc::new(act);
        let (of_part, of_page) = (act.clone(), act);
        let pointer = format!("/entries/{entry}/chunks");
        let in_part = change(&pointer, move |chunks| of_part(list(chunks)));
        let in_page = change(&pointer, move |chunks| {
            for chunk in list(chunks).iter_mut() {
                list(chunk).remove(0);
            }
            of_page(list(chunks));
            for chunk in list(chunks).iter_mut() {
                list(chunk).insert(0, 0.into());
            }
        });
        self.part(0, in_part).page("tensors", 0, in_page)
    }

    /// Changes one chunk likewise.
    #[must_use]
    pub fn chunk(
        self,
        entry: usize,
        number: usize,
        act: impl Fn(&mut Vec<Value>) + 'static,
    ) -> Self {
        self.chunks(entry, move |chunks| act(list(&mut chunks[number])))
    }

    /// Gives each chunk of a checkpoint of one writer the CRC-32C of the bytes at which it points, where there are as many: who
    /// does not look at boxes and places finds nothing else to refuse.
    #[must_use]
    pub fn crcs_that_fit(mut self) -> Self {
        self.crcs = true;
        self
    }

    /// Changes the manifest.
    #[must_use]
    pub fn manifest(mut self, edit: Edit) -> Self {
        self.pointer = self.pointer.or_else(|| edit.pointer.clone());
        self.manifest.push(edit);
        self
    }

    /// Changes the bytes of what is called `part 0`, `tensors 0`, `records 0`, `manifest` or `commit`.
    #[must_use]
    pub fn bytes(mut self, what: &str, act: impl Fn(&mut Vec<u8>) + 'static) -> Self {
        self.texts.push((what.to_owned(), Box::new(act)));
        self
    }

    /// Replaces the first `old` in the text of the same, which must be there.
    #[must_use]
    pub fn text(self, what: &str, old: &str, new: &str) -> Self {
        let (old, new) = (old.to_owned(), new.to_owned());
        self.bytes(what, move |bytes| {
            let text = String::from_utf8(std::mem::take(bytes)).expect("metadata is text");
            assert!(text.contains(&old), "no {old} in {text}");
            *bytes = text.replacen(&old, &new, 1).into_bytes();
        })
    }

    /// Changes the finished files.
    #[must_use]
    pub fn files(mut self, act: impl Fn(&mut Files) + 'static) -> Self {
        self.files.push(Box::new(act));
        self
    }

    /// Whether there are checksums or digests above what is changed, so that the twin is something else.
    #[must_use]
    pub fn has_twin(&self) -> bool {
        let below = !(self.parts.is_empty() && self.pages.is_empty() && self.manifest.is_empty());
        let text = self.texts.iter().any(|(what, _)| what != "commit");
        (below || text || !self.recipe.is_empty())
            && self.files.is_empty()
            && self.version.is_none()
    }

    /// The changed checkpoint, with everything above the change made to fit.
    #[must_use]
    pub fn fixed_up(&self, base: &Straight) -> Bent {
        let Sealed { mut files, parts } = self.sealed(&base.recipe);
        for act in &self.files {
            act(&mut files);
        }
        let place = self.shown(&files).or_else(|| {
            // What was changed last of all is all that differs.
            let below = self.files.is_empty() || self.pointer.is_some();
            let base = base.files();
            if below { self.fitted(base, &files) } else { self.place(base, &files) }
        });
        Bent { files, place, parts }
    }

    /// The same change with nothing made to fit: the files that it touches, from the checkpoint in which all was made to
    /// fit, lie among those of the recipe as it was, under the names that they had there.
    #[must_use]
    pub fn twin(&self, base: &Straight, bent: &Bent) -> Bent {
        let mut files = base.files().clone();
        let whole =
            !self.manifest.is_empty() || self.texts.iter().any(|(what, _)| what == "manifest");
        if whole {
            copy("manifest.json", "manifest.json", bent, &mut files);
        } else {
            for (old, new) in base.sealed.parts.iter().zip(&bent.parts) {
                copy(new, old, bent, &mut files);
            }
            for name in bent.files.keys().filter(|name| is_page(name)) {
                copy(name, name, bent, &mut files);
            }
        }
        let place = self.place(base.files(), &files);
        Bent { files, place, parts: base.sealed.parts.clone() }
    }

    /// The recipe with what the change does to it: what a reader finds, when it finds anything.
    #[must_use]
    pub fn bent(&self, recipe: &Recipe) -> Recipe {
        let mut recipe = recipe.clone();
        for act in &self.recipe {
            act(&mut recipe);
        }
        recipe
    }

    fn sealed(&self, recipe: &Recipe) -> Sealed {
        let recipe = self.bent(recipe);
        let mut draft = build::parts(&recipe, &|_, crcs| {
            for act in &self.tables {
                act(crcs);
            }
        });
        let mut root = build::root(&recipe, &draft.parts);
        self.edit(&mut draft, &mut root);
        build::seal(&draft, &root, &|what, mut bytes| {
            for (_, act) in self.texts.iter().filter(|(which, _)| which == what) {
                act(&mut bytes);
            }
            bytes
        })
    }

    fn edit(&self, draft: &mut Draft, root: &mut Root) {
        if let Some(version) = &self.version {
            let pages = root.tensors.iter_mut().chain(&mut root.records);
            for value in draft.parts.iter_mut().chain(pages).chain([&mut root.manifest]) {
                value["version"] = version.as_str().into();
            }
        }
        for (writer, edit) in &self.parts {
            (edit.act)(&mut draft.parts[*writer]);
        }
        for (kind, number, edit) in &self.pages {
            let pages = if kind == "tensors" { &mut root.tensors } else { &mut root.records };
            (edit.act)(&mut pages[*number]);
        }
        for act in &self.roots {
            act(root);
        }
        for edit in &self.manifest {
            (edit.act)(&mut root.manifest);
        }
        if self.crcs {
            fit(draft, root);
        }
    }

    /// Where the string stands by which the change is shown. A twin is shown by its first difference all the same: that is
    /// what its checksums meet.
    fn shown(&self, files: &Files) -> Option<Place> {
        let named = self.named.as_ref()?;
        let file = "manifest.json".to_owned();
        let manifest: Value = serde_json::from_slice(files.get(&file)?).ok()?;
        let pointer = last(manifest.get("parts")?, named).map(|below| format!("/parts{below}"));
        Some(Place { file, offset: None, pointer })
    }

    /// The place where all above the change was made to fit, and so differs, too: in what a reader meets first, and where the
    /// pointer leads somewhere.
    fn fitted(&self, base: &Files, files: &Files) -> Option<Place> {
        let texts = self.texts.iter().any(|(what, _)| what.starts_with("part"));
        let (paged, listed) = (!self.pages.is_empty(), !self.manifest.is_empty());
        let parts_alone = !paged && !listed && (texts || !self.parts.is_empty());
        let rank = |name: &str| match name {
            "waystation.commit" => 4,
            "manifest.json" => 2,
            _ if name.starts_with("part-") => {
                if parts_alone && files.contains_key(name) {
                    0
                } else {
                    5
                }
            }
            _ if is_page(name) => 1,
            _ if !self.tables.is_empty() => 0,
            _ => 3,
        };
        let names = base.keys().chain(files.keys()).filter(|n| base.get(*n) != files.get(*n));
        let mut names: Vec<&String> = names.collect();
        names.sort_by_key(|name| (rank(name), (*name).clone()));
        names.dedup();
        let leads = |name: &str, pointer: &str| {
            let value = files.get(name).and_then(|text| serde_json::from_slice::<Value>(text).ok());
            value.is_some_and(|value| value.pointer(pointer).is_some())
        };
        let named = self.pointer.as_deref().and_then(|pointer| {
            let above = pointer.rsplit_once('/').map_or("", |(above, _)| above);
            let edited = |name: &str| {
                !(paged || listed || !self.parts.is_empty())
                    || (paged && is_page(name))
                    || (listed && name == "manifest.json")
                    || (!self.parts.is_empty() && name.starts_with("part-"))
            };
            let to = |to| names.iter().find(|name| edited(name) && leads(name, to));
            to(pointer).or_else(|| to(above)).map(|name| (*name, pointer))
        });
        let name = named.map_or_else(|| names.first().copied(), |(name, _)| Some(name))?;
        let offset = base.get(name).zip(files.get(name)).map(|(old, new)| difference(old, new));
        let pointer = named.map(|(_, pointer)| pointer.to_owned());
        Some(Place { file: name.clone(), offset, pointer })
    }

    /// The first difference: of files that both have, one that is named by what is in it apart; else the file
    /// that only one has.
    fn place(&self, base: &Files, files: &Files) -> Option<Place> {
        let rank = |name: &&String| match name.as_str() {
            "waystation.commit" => 3,
            "manifest.json" => 2,
            name if is_page(name) => 1,
            _ => 0,
        };
        let mut names: Vec<&String> = base.keys().chain(files.keys()).collect();
        names.sort_by_key(|name| (rank(name), (*name).clone()));
        let touched = |name: &&&String| match self.pointer {
            Some(_) if !self.manifest.is_empty() => name.as_str() == "manifest.json",
            Some(_) if !self.pages.is_empty() => is_page(name),
            _ => true,
        };
        let differs = |name: &&&String| base.get(**name) != files.get(**name);
        let name = names.iter().filter(touched).find(differs)?;
        let offset = match (base.get(*name), files.get(*name)) {
            (Some(old), Some(new)) => Some(difference(old, new)),
            _ => None,
        };
        Some(Place { file: (*name).clone(), offset, pointer: self.pointer.clone() })
    }
}

impl std::fmt::Debug for Bend {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Bend").field("name", &self.name).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Edit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Edit").field("pointer", &self.pointer).finish_non_exhaustive()
    }
}

/// Puts `value` where `pointer` leads: a member, made when it is not there, an element, or with `-` a new last one.
#[must_use]
pub fn set(pointer: &str, value: Value) -> Edit {
    let (parent, last) = split(pointer);
    act(pointer, move |whole| match target(whole, &parent) {
        Value::Array(values) if last == "-" => values.push(value.clone()),
        Value::Array(values) => values[index(&last)] = value.clone(),
        Value::Object(members) => _ = members.insert(last.clone(), value.clone()),
        other => panic!("{parent} is {other}, which has no members"),
    })
}

/// Puts `value` before the element to which `pointer` leads.
#[must_use]
pub fn insert(pointer: &str, value: Value) -> Edit {
    let (parent, last) = split(pointer);
    act(pointer, move |whole| match target(whole, &parent) {
        Value::Array(values) => values.insert(index(&last), value.clone()),
        other => panic!("{parent} is {other}, no list"),
    })
}

/// Takes the member or element away.
#[must_use]
pub fn remove(pointer: &str) -> Edit {
    let (parent, last) = split(pointer);
    act(pointer, move |whole| match target(whole, &parent) {
        Value::Array(values) => _ = values.remove(index(&last)),
        Value::Object(members) => {
            members.remove(&last).unwrap_or_else(|| panic!("no {last} in {parent}"));
        }
        other => panic!("{parent} is {other}, which has no members"),
    })
}

/// Does anything to the value to which `pointer` leads.
#[must_use]
pub fn change(pointer: &str, change: impl Fn(&mut Value) + 'static) -> Edit {
    let path = pointer.to_owned();
    act(pointer, move |whole| change(target(whole, &path)))
}

fn act(pointer: &str, act: impl Fn(&mut Value) + 'static) -> Edit {
    Edit { pointer: Some(pointer.to_owned()), act: Box::new(act) }
}

fn target<'a>(whole: &'a mut Value, pointer: &str) -> &'a mut Value {
    let shown = whole.to_string();
    whole.pointer_mut(pointer).unwrap_or_else(|| panic!("no {pointer} in {shown}"))
}

fn split(pointer: &str) -> (String, String) {
    let (parent, last) = pointer.rsplit_once('/').expect("a pointer below the root");
    (parent.to_owned(), last.replace("~1", "/").replace("~0", "~"))
}

fn index(text: &str) -> usize {
    text.parse().expect("an index of a list")
}

fn list(value: &mut Value) -> &mut Vec<Value> {
    value.as_array_mut().expect("a list of the suite's own making")
}

/// Where the last string stands that is this one.
fn last(value: &Value, text: &str) -> Option<String> {
    let below = |step: &str, value| {
        let step = step.replace('~', "~0").replace('/', "~1");
        last(value, text).map(|pointer| format!("/{step}{pointer}"))
    };
    match value {
        Value::String(found) => (found == text).then(String::new),
        Value::Array(values) => {
            values.iter().enumerate().rev().find_map(|(i, value)| below(&i.to_string(), value))
        }
        Value::Object(members) => members.iter().rev().find_map(|(name, value)| below(name, value)),
        _ => None,
    }
}

/// Makes the CRC of each chunk that of its bytes. Of a checkpoint of one writer, whose part and page have the same entries.
fn fit(draft: &mut Draft, root: &mut Root) {
    let Draft { parts, data } = draft;
    let entries = list(&mut parts[0]["entries"]).iter_mut();
    for (in_part, in_page) in entries.zip(list(&mut root.tensors[0]["entries"])) {
        if in_part.get("chunks").is_none() || in_part.get("block").is_some() {
            continue;
        }
        let bits = element_bits(&in_part["dtype"]);
        let chunks = list(&mut in_part["chunks"]).iter_mut();
        for (chunk, paged) in chunks.zip(list(&mut in_page["chunks"])) {
            let number =
                |at: usize| chunk[at].as_u64().expect("a number of the suite's own making");
            let (shard, offset) = (number(0), number(1) as usize);
            let shard =
                data.iter().find(|(name, _)| name.ends_with(&format!("-{shard:05}.safetensors")));
            let extent = chunk[3].as_array().expect("an extent").iter();
            let elements: u64 = extent.filter_map(Value::as_u64).product();
            let end = offset + (elements as usize * bits).div_ceil(8);
            let bytes =
                shard.and_then(|(_, shard)| shard.get(offset..end)).expect("bytes of a shard");
            chunk[4] = build::crc(bytes).into();
            paged[5] = chunk[4].clone();
        }
    }
}

/// The first byte in which two texts differ.
fn difference(old: &[u8], new: &[u8]) -> u64 {
    old.iter().zip(new).take_while(|(a, b)| a == b).count() as u64
}

/// The files of a recipe, unbent.
#[must_use]
pub fn straight(recipe: &Recipe) -> Files {
    Straight::new(recipe.clone()).sealed.files
}

fn is_page(name: &str) -> bool {
    name.ends_with(".json") && (name.starts_with("tensors-") || name.starts_with("records-"))
}

fn copy(from: &str, to: &str, bent: &Bent, files: &mut Files) {
    if let Some(bytes) = bent.files.get(from) {
        files.insert(to.to_owned(), bytes.clone());
    }
}
