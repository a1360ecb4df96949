//! A shard of chunks in the order given (chapter 6).

use serde_json::{Value, json};
use waystation_format::{Dtype, limits};

use super::{canonical, crc, identity};

/// A chunk before it has a place.
#[derive(Clone, Debug)]
pub(super) struct Piece {
    pub(super) entry: Value,
    pub(super) at: Vec<u64>,
    pub(super) extent: Vec<u64>,
    pub(super) bytes: Vec<u8>,
}

/// A shard, and where its chunks lie in it.
#[derive(Clone, Debug)]
pub(super) struct Laid {
    pub(super) bytes: Vec<u8>,
    /// Offset from the start of the file, and table index.
    pub(super) places: Vec<(u64, Option<u64>)>,
    /// As in the part.
    pub(super) table: Value,
}

/// Lays out the chunks. `bend` may change the table's CRCs before they get their own.
pub(super) fn lay_out(pieces: &[Piece], block: u64, bend: &dyn Fn(&mut Vec<u32>)) -> Laid {
    let block = usize::try_from(block).expect("a block fits in memory");
    let mut body = Body::default();
    let mut places = Vec::new();
    let mut crcs: Vec<u32> = Vec::new();
    for piece in pieces {
        body.align(piece.bytes.len());
        let index = (piece.bytes.len() > block).then_some(crcs.len() as u64);
        places.push((body.data.len() as u64, index));
        if index.is_some() {
            crcs.extend(piece.bytes.chunks(block).map(crc32c::crc32c));
        }
        let (dtype, shape) = in_header(piece);
        body.entry(&header_key(piece), &piece.bytes, dtype, shape);
    }
    let mut table = Value::Null;
    if !crcs.is_empty() {
        bend(&mut crcs);
        let raw: Vec<u8> = crcs.iter().flat_map(|crc| crc.to_le_bytes()).collect();
        body.align(raw.len());
        table = json!({"count": crcs.len(), "crc32c": crc(&raw), "offset": body.data.len()});
        body.entry("__crc__", &raw, "U32".into(), json!([crcs.len()]));
    }
    body.pad(limits::PAGE_ALIGN as usize);
    let (bytes, start) = body.finish();
    for (offset, _) in &mut places {
        *offset += start;
    }
    if let Some(offset) = table.get_mut("offset") {
        *offset = json!(offset.as_u64().unwrap_or(0) + start);
    }
    Laid { bytes, places, table }
}

#[derive(Default)]
struct Body {
    data: Vec<u8>,
    entries: Vec<String>,
    pads: usize,
}

impl Body {
    fn align(&mut self, length: usize) {
        let large = length as u64 >= limits::LARGE_CHUNK_BYTES;
        self.pad(if large { limits::PAGE_ALIGN } else { limits::SMALL_ALIGN } as usize);
    }

    fn pad(&mut self, to: usize) {
        let gap = self.data.len().next_multiple_of(to) - self.data.len();
        if gap > 0 {
            let name = format!("__pad__.{}", self.pads);
            self.pads += 1;
            self.entry(&name, &vec![0; gap], "U8".into(), json!([gap]));
        }
    }

    fn entry(&mut self, name: &str, bytes: &[u8], dtype: Value, shape: Value) {
        let begin = self.data.len();
        self.data.extend_from_slice(bytes);
        let value =
            json!({"data_offsets": [begin, self.data.len()], "dtype": dtype, "shape": shape});
        self.entries.push(format!("{}:{}", canonical(&name.into()), canonical(&value)));
    }

    /// The file, and where its data begins.
    fn finish(self) -> (Vec<u8>, u64) {
        let metadata = r#"{"__metadata__":{"format":"pt","waystation":"1.0"}"#;
        let mut header = format!("{metadata},{}}}", self.entries.join(","));
        let start = (8 + header.len()).next_multiple_of(limits::PAGE_ALIGN as usize);
        header.extend(std::iter::repeat_n(' ', start - 8 - header.len()));
        let mut file = (header.len() as u64).to_le_bytes().to_vec();
        file.extend_from_slice(header.as_bytes());
        file.extend_from_slice(&self.data);
        (file, start as u64)
    }
}

/// Dtype and shape by which a chunk stands in the header.
fn in_header(piece: &Piece) -> (Value, Value) {
    let dtype = piece.entry["dtype"].clone();
    let known = dtype.as_str().and_then(Dtype::from_id);
    if !known.is_some_and(Dtype::header_self) {
        ("U8".into(), json!([piece.bytes.len()]))
    } else if let Some(block) = piece.entry["block"].as_u64() {
        (dtype, json!([piece.extent.iter().product::<u64>().div_ceil(block)]))
    } else {
        (dtype, json!(piece.extent))
    }
}

fn header_key(piece: &Piece) -> String {
    let entry = &piece.entry;
    let absent = |member| entry.get(member).is_none();
    let known = entry["dtype"].as_str().and_then(Dtype::from_id);
    let plain = json!(piece.extent) == entry["shape"]
        && matches!(entry["role"].as_str(), Some("param" | "buffer"))
        && absent("component")
        && absent("scope")
        && absent("valid")
        && known.is_some_and(Dtype::header_self);
    match entry["name"].as_str() {
        Some(name) if plain && !name.starts_with("__") => name.to_owned(),
        _ => format!("__ws__:{}", canonical(&json!([identity(entry), piece.at]))),
    }
}
