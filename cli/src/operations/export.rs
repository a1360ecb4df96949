//! Clean safetensors files and the attachments, for tools that know nothing of checkpoints.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fs::{self, File};
use std::io::{BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Map, Value, json};
use waystation_format::{Code, Dtype, Entry, Error, Identity, Result, Role, arith, limits};
use waystation_reader::Checkpoint;

use super::{Work, open_checkpoint, target};
use crate::foreign::open_regular;

/// Bytes of tensors in a file where nobody says how many.
pub const EXPORT_SHARD_BYTES: u64 = 5_000_000_000;
/// The one file of weights.
const SINGLE: &str = "model.safetensors";
const INDEX: &str = "model.safetensors.index.json";
/// What says of which kind a model is.
const CONFIG: &str = "config.json";
/// Bytes that a configuration may take.
const CONFIG_BYTES: u64 = 16 << 20;
/// Bytes of a tensor in memory at once.
const PIECE_BYTES: u64 = 16 << 20;

/// A tensor on its way out: under which key, and where it comes from.
struct Item {
    key: String,
    dtype: &'static str,
    shape: Vec<u64>,
    bytes: u64,
    identity: Identity,
}

/// What goes out: tensors by key, and aliases left to the loader.
#[derive(Default)]
struct Selection {
    items: Vec<Item>,
    /// Alias and the tensor that it shares data with.
    tied: BTreeMap<String, String>,
}

/// What to export, and how.
#[derive(Clone, Copy, Debug)]
pub struct Export<'p> {
    /// A checkpoint.
    pub checkpoint: &'p Path,
    /// The directory to make; it must not exist.
    pub out: &'p Path,
    /// As a Hugging Face directory: with the attachments, and without aliases of what is written. Else only
    /// safetensors files, with aliases written out.
    pub attachments: bool,
    /// Roles by their ids; empty means param and buffer.
    pub roles: &'p [String],
    /// Only this component, whose name is then left out of the keys; `None` writes all.
    pub component: Option<&'p str>,
    /// Another file is begun before the tensors of one take more bytes than this.
    pub max_shard_bytes: u64,
    /// A file that becomes `config.json`, in place of an attachment of that name; only with `attachments`.
    pub config: Option<&'p Path>,
}

/// What was exported.
#[derive(Debug)]
pub struct Exported {
    /// The directory.
    pub path: PathBuf,
    /// Number of safetensors files.
    pub files: usize,
    /// Bytes of all tensors.
    pub bytes: u64,
    /// Number of attachments.
    pub attachments: u64,
    /// Whether there is a `config.json`, without which `transformers` does not know what the model is.
    pub config: bool,
    /// Aliases left to the loader, and what they share data with.
    pub tied: BTreeMap<String, String>,
}

impl Exported {
    /// The object that `waystation export --json` prints.
    #[must_use]
    pub fn json(&self) -> Value {
        let tied: Map<String, Value> =
            self.tied.iter().map(|(alias, of)| (alias.clone(), json!(of))).collect();
        json!({
            "path": self.path.display().to_string(), "files": self.files, "bytes": self.bytes,
            "attachments": self.attachments, "config": self.config, "tied": tied,
        })
    }
}

/// Writes a checkpoint's tensors as clean safetensors files.
///
/// # Errors
/// [`Code::NotFound`] when there is nothing to write; [`Code::BadArgument`] for what such files cannot say;
/// [`Code::Exists`]; those of reading and of the system.
pub fn export(args: &Export<'_>, work: &Work<'_>) -> Result<Exported> {
    let checkpoint = open_checkpoint(args.checkpoint, work.open_options())?;
    let config = args.config.map(|path| configuration(path, args.attachments)).transpose()?;
    let selection = select(&checkpoint, args)?;
    let total = selection.items.iter().fold(0_u64, |sum, item| sum.saturating_add(item.bytes));
    let files = split(selection.items, args.max_shard_bytes);
    let count = files.len();
    let name = |number: usize| match count {
        1 => SINGLE.to_owned(),
        _ => format!("model-{number:05}-of-{count:05}.safetensors"),
    };
    let mut planned = Vec::with_capacity(count);
    for (number, items) in (1_usize..).zip(&files) {
        planned.push((name(number), items, header(items, &selection.tied)?));
    }
    if args.attachments {
        let own: BTreeSet<&str> = planned.iter().map(|(name, ..)| name.as_str()).collect();
        check_attachments(&checkpoint, &own)?;
    }

    // Everything that can be refused has been, so that a refusal leaves nothing behind.
    let (parent, _) = target::parent_and_name(args.out)?;
    make_new_directory(args.out)?;
    work.watcher.begin("export", total);
    let written = write_out(&checkpoint, args, &planned, config.as_deref(), total, work)
        .and_then(|attachments| parent.sync().map(|()| attachments));
    let attachments = target::or_left_behind(args.out, work, written)?;
    Ok(Exported {
        path: args.out.to_owned(),
        files: count,
        bytes: total,
        attachments,
        config: config.is_some()
            || args.attachments && checkpoint.attachments().any(|one| one.path == CONFIG),
        tied: selection.tied,
    })
}

/// A file to be written: its name, what goes into it, its header.
type Planned<'i> = (String, &'i Vec<Item>, Vec<u8>);

/// Writes everything into the new directory, and makes it durable; the number of attachments.
fn write_out(
    checkpoint: &Checkpoint,
    args: &Export<'_>,
    planned: &[Planned<'_>],
    config: Option<&[u8]>,
    total: u64,
    work: &Work<'_>,
) -> Result<u64> {
    let mut index = Map::new();
    for (name, items, header) in planned {
        write_file(checkpoint, &args.out.join(name), items, header, work)?;
        for item in *items {
            index.insert(item.key.clone(), json!(name));
        }
    }
    if planned.len() > 1 {
        let index = json!({ "metadata": { "total_size": total }, "weight_map": index });
        let text = serde_json::to_vec_pretty(&index).unwrap_or_default();
        write_new(&args.out.join(INDEX), |out| {
            out.write_all(&text).map_err(|e| Error::io("write", e))
        })?;
    }
    let mut attachments = 0_u64;
    if args.attachments {
        for attachment in checkpoint.attachments() {
            if config.is_some() && attachment.path == CONFIG {
                continue;
            }
            let path = args.out.join(attachment.path);
            if let Some(parent) = path.parent() {
                fs::create_dir_all(parent).map_err(|e| io_at("make directory", parent, e))?;
            }
            write_new(&path, |out| {
                let mut out = Stoppable { out, work };
                let read = checkpoint.read_attachment(attachment.path, &mut out);
                // What the stop made of the copy is no news.
                read.map_err(|e| if work.watcher.cancelled() { stopped() } else { e })
            })?;
            attachments = attachments.saturating_add(1);
        }
    }
    if let Some(config) = config {
        write_new(&args.out.join(CONFIG), |out| {
            out.write_all(config).map_err(|e| Error::io("write", e))
        })?;
    }
    sync_tree(args.out)?;
    Ok(attachments)
}

/// The bytes of a file that is to become `config.json`.
fn configuration(path: &Path, attachments: bool) -> Result<Vec<u8>> {
    let place = |e: Error| e.in_file(path.display().to_string());
    if !attachments {
        let message = "expected no configuration with --format safetensors, which has none";
        return Err(Error::new(Code::BadArgument, message));
    }
    let (file, _) = open_regular(path)?;
    let mut raw = Vec::new();
    let read = file.take(CONFIG_BYTES.saturating_add(1)).read_to_end(&mut raw);
    read.map_err(|e| io_at("read", path, e))?;
    if u64::try_from(raw.len()).unwrap_or(u64::MAX) > CONFIG_BYTES {
        let message = format!("expected a configuration of at most {CONFIG_BYTES} bytes");
        return Err(place(Error::new(Code::Limit, message)));
    }
    match serde_json::from_slice(&raw) {
        Ok(Value::Object(_)) => Ok(raw),
        Ok(_) => {
            let message = "expected a configuration, which is a JSON object, found another value";
            Err(place(Error::new(Code::BadArgument, message)))
        }
        Err(e) => {
            let message = format!("expected a configuration in JSON: {e}");
            Err(place(Error::new(Code::BadArgument, message)))
        }
    }
}

fn select(checkpoint: &Checkpoint, args: &Export<'_>) -> Result<Selection> {
    let roles: Vec<Role> = if args.roles.is_empty() {
        vec![Role::Param, Role::Buffer]
    } else {
        let parse = |id: &String| {
            let bad = || {
                Error::new(Code::BadArgument, format!("expected a registered role, found {id:?}"))
            };
            Role::from_id(id).ok_or_else(bad)
        };
        args.roles.iter().map(parse).collect::<Result<_>>()?
    };
    let key_of = |identity: &Identity| key_of(identity, args.component);
    let mut selection = Selection::default();
    let mut aliases = Vec::new();
    let mut ties = Vec::new();
    for entry in checkpoint.entries() {
        let entry: Arc<Entry> = entry?;
        let identity = match &*entry {
            Entry::Tensor(tensor) => tensor.identity.clone(),
            Entry::Alias(alias) => alias.identity(),
        };
        if !roles.contains(&identity.role)
            || args.component.is_some_and(|component| component != identity.component)
        {
            continue;
        }
        if let Entry::Alias(alias) = &*entry
            && args.attachments
        {
            ties.push((alias.of.clone(), entry, identity));
            continue;
        }
        match &*entry {
            Entry::Alias(alias) => aliases.push((alias.of.key(), entry, identity)),
            Entry::Tensor(_) => {
                let key = key_of(&identity);
                selection.items.push(item(checkpoint, &entry, key, identity)?);
            }
        }
    }
    // Only what is written can be shared: other targets' data would be lost.
    let written: HashSet<Identity> =
        selection.items.iter().map(|item| item.identity.clone()).collect();
    for (of, entry, identity) in ties {
        if written.contains(&of) {
            selection.tied.insert(key_of(&identity), key_of(&of));
        } else {
            aliases.push((of.key(), entry, identity));
        }
    }
    // By target, so that a page of targets is read once, whatever aliases name.
    aliases.sort_unstable_by(|a, b| a.0.cmp(&b.0));
    for (_, entry, identity) in aliases {
        let key = key_of(&identity);
        selection.items.push(item(checkpoint, &entry, key, identity)?);
    }
    selection.items.sort_by(|a, b| a.key.cmp(&b.key));
    for (a, b) in selection.items.iter().zip(selection.items.iter().skip(1)) {
        if a.key == b.key {
            let message =
                format!("two tensors would both be named {:?}: export fewer roles", a.key);
            return Err(Error::new(Code::BadArgument, message));
        }
    }
    if selection.items.iter().any(|item| item.key == "__metadata__") {
        let message = "safetensors reserves the name \"__metadata__\": export another role";
        return Err(Error::new(Code::BadArgument, message));
    }
    if selection.items.is_empty() {
        return Err(Error::new(Code::NotFound, "the checkpoint holds no tensor of these roles"));
    }
    Ok(selection)
}

fn item(
    checkpoint: &Checkpoint,
    entry: &Arc<Entry>,
    key: String,
    identity: Identity,
) -> Result<Item> {
    let tensor = checkpoint.tensor_of(entry)?;
    let stored = tensor.entry();
    if stored.valid.is_some() {
        let message = "the shape is padded, and other tools would take the padding for values: export \
                       it with `cat --region`, or leave its role out";
        return Err(Error::new(Code::BadArgument, message).in_tensor(identity.key()));
    }
    let dtype = foreign_dtype(stored.dtype).ok_or_else(|| {
        let message =
            format!("safetensors has no dtype for {}: leave its role out", stored.dtype.as_str());
        Error::new(Code::BadArgument, message).in_tensor(identity.key())
    })?;
    let bytes = tensor.bytes()?;
    // A reader of safetensors counts whole bytes: an odd number of 4-bit elements has no shape there.
    let elements = stored.shape.iter().try_fold(1_u64, |n, dim| arith::mul(n, *dim, "elements"))?;
    let shape = stored
        .block
        .map_or_else(|| stored.shape.to_vec(), |block| vec![elements.div_ceil(block.max(1))]);
    let shape_elements = shape.iter().try_fold(1_u64, |n, dim| arith::mul(n, *dim, "elements"))?;
    if arith::mul(shape_elements, u64::from(stored.dtype.bits()), "bits")?
        != arith::mul(bytes, 8, "bits")?
    {
        let message = "its elements do not fill whole bytes, which safetensors cannot say: leave its role out";
        return Err(Error::new(Code::BadArgument, message).in_tensor(identity.key()));
    }
    Ok(Item { key, dtype, shape, bytes, identity })
}

/// The key in the file: the name alone where that is the tensor's own, else what tells it apart.
fn key_of(identity: &Identity, only: Option<&str>) -> String {
    let mut key = String::new();
    if identity.component != only.unwrap_or("main") {
        key.push_str(&identity.component);
        key.push('/');
    }
    key.push_str(&identity.name);
    if !matches!(identity.role, Role::Param | Role::Buffer) {
        key.push('#');
        key.push_str(identity.role.as_str());
    }
    for member in [&identity.slot, &identity.owner] {
        if !member.is_empty() {
            key.push('#');
            key.push_str(member);
        }
    }
    for (axis, index) in &identity.scope {
        key.push_str(&format!("#{axis}={index}"));
    }
    key
}

/// Safetensors' name for a dtype, where it has one.
fn foreign_dtype(dtype: Dtype) -> Option<&'static str> {
    match dtype {
        Dtype::F4E2M1 => Some("F4"),
        Dtype::F8E3M4 | Dtype::U4 | Dtype::I4 | Dtype::U2 | Dtype::I2 | Dtype::U1 | Dtype::C128 => {
            None
        }
        other => Some(other.as_str()),
    }
}

/// Files of at most `max` bytes of data each, but for tensors that are larger by themselves.
fn split(items: Vec<Item>, max: u64) -> Vec<Vec<Item>> {
    let mut files = Vec::new();
    let mut file: Vec<Item> = Vec::new();
    let mut bytes = 0_u64;
    for item in items {
        if !file.is_empty() && bytes.saturating_add(item.bytes) > max {
            files.push(std::mem::take(&mut file));
            bytes = 0;
        }
        bytes = bytes.saturating_add(item.bytes);
        file.push(item);
    }
    files.push(file);
    files
}

fn write_file(
    checkpoint: &Checkpoint,
    path: &Path,
    items: &[Item],
    header: &[u8],
    work: &Work<'_>,
) -> Result<()> {
    write_new(path, |out| {
        out.write_all(header).map_err(|e| Error::io("write", e))?;
        for item in items {
            checkpoint.tensor(&item.identity)?.stream(PIECE_BYTES, &mut |bytes| {
                if work.watcher.cancelled() {
                    return Err(stopped());
                }
                out.write_all(bytes).map_err(|e| Error::io("write", e))?;
                work.watcher.advance(u64::try_from(bytes.len()).unwrap_or(u64::MAX));
                Ok(())
            })?;
        }
        Ok(())
    })
}

fn stopped() -> Error {
    Error::new(Code::Interrupted, "stopped; the files written so far remain")
}

/// Refuses to go on when the user asked to stop.
struct Stoppable<'o> {
    out: &'o mut dyn Write,
    work: &'o Work<'o>,
}

impl Write for Stoppable<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if self.work.watcher.cancelled() {
            return Err(std::io::Error::other("stopped"));
        }
        self.out.write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.out.flush()
    }
}

/// Refuses attachments that would have the name of a file that the export makes itself, on a file
/// system that tells case apart or on one that does not.
fn check_attachments(checkpoint: &Checkpoint, own: &BTreeSet<&str>) -> Result<()> {
    for attachment in checkpoint.attachments() {
        let top = attachment.path.split('/').next().unwrap_or_default().to_ascii_lowercase();
        if own.contains(top.as_str()) || (own.len() > 1 && top == INDEX) {
            let message = format!(
                "the attachment {:?} would stand where the export writes its own file: use --format safetensors",
                attachment.path
            );
            return Err(Error::new(Code::BadArgument, message));
        }
    }
    Ok(())
}

fn header(items: &[Item], tied: &BTreeMap<String, String>) -> Result<Vec<u8>> {
    let mut members = Map::new();
    let mut metadata = Map::new();
    metadata.insert("format".into(), json!("pt"));
    // As safetensors' own front ends note the names that share data with another.
    for (alias, of) in tied {
        let held = items.binary_search_by(|item| item.key.as_str().cmp(of)).is_ok();
        if held && alias != "format" {
            metadata.insert(alias.clone(), json!(of));
        }
    }
    members.insert("__metadata__".into(), Value::Object(metadata));
    let mut begin = 0_u64;
    for item in items {
        let end = arith::add(begin, item.bytes, "end of a tensor")?;
        let entry =
            json!({ "dtype": item.dtype, "shape": item.shape, "data_offsets": [begin, end] });
        members.insert(item.key.clone(), entry);
        begin = end;
    }
    let mut text = Value::Object(members).to_string().into_bytes();
    while !text.len().is_multiple_of(8) {
        text.push(b' ');
    }
    let length = u64::try_from(text.len()).unwrap_or(u64::MAX);
    if length > limits::SHARD_HEADER_BYTES {
        let message =
            format!("the header would take {length} bytes: give a smaller --max-shard-size");
        return Err(Error::new(Code::Limit, message));
    }
    let mut out = length.to_le_bytes().to_vec();
    out.append(&mut text);
    Ok(out)
}

fn make_new_directory(path: &Path) -> Result<()> {
    fs::create_dir(path).map_err(|e| {
        if e.kind() == std::io::ErrorKind::AlreadyExists {
            let error =
                Error::new(Code::Exists, "expected no directory there: nothing is replaced");
            return error.in_file(path.display().to_string());
        }
        io_at("make directory", path, e)
    })
}

/// Lets `fill` write a file, makes it durable, and only then gives it its name: what was cut short is
/// never taken for a model. The directory is of our own making, so nobody else has the name.
fn write_new(path: &Path, fill: impl FnOnce(&mut dyn Write) -> Result<()>) -> Result<()> {
    let place = |e: Error| e.in_file(path.display().to_string());
    let mut partial = path.as_os_str().to_owned();
    partial.push(".partial");
    let file = File::create_new(&partial).map_err(|e| io_at("create", path, e))?;
    let mut out = BufWriter::with_capacity(1 << 20, file);
    fill(&mut out).map_err(place)?;
    let file = out.into_inner().map_err(|e| io_at("write", path, e.into_error()))?;
    file.sync_all().map_err(|e| io_at("fsync", path, e))?;
    fs::rename(&partial, path).map_err(|e| io_at("rename", path, e))
}

/// Makes the names in a tree of our own making durable.
fn sync_tree(path: &Path) -> Result<()> {
    let mut pending: Vec<PathBuf> = vec![path.to_owned()];
    while let Some(dir) = pending.pop() {
        for entry in fs::read_dir(&dir).map_err(|e| io_at("list", &dir, e))? {
            let entry = entry.map_err(|e| io_at("list", &dir, e))?;
            if entry.file_type().map_err(|e| io_at("stat", &dir, e))?.is_dir() {
                pending.push(entry.path());
            }
        }
        File::open(&dir).and_then(|d| d.sync_all()).map_err(|e| io_at("fsync", &dir, e))?;
    }
    Ok(())
}

fn io_at(what: &str, path: &Path, e: std::io::Error) -> Error {
    Error::io(what, e).in_file(path.display().to_string())
}
