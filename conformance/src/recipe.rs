//! What a checkpoint is to hold, as the protocol's `write` asks for it. Knows no files.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

/// A checkpoint's content, and which writer writes which box of it.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct Recipe {
    /// Name of the run.
    pub run: String,
    /// Optimizer steps completed.
    pub step: u64,
    /// 16 hex digits.
    pub attempt: String,
    /// Bytes of a block, a power of two.
    pub block_bytes: u64,
    /// 64 hex digits of the manifest that the job resumed from.
    pub parent: Option<String>,
    /// Axes and their sizes.
    pub topology: Vec<(String, u64)>,
    /// Whole tensors.
    pub tensors: Vec<Whole>,
    /// By number.
    pub writers: Vec<Writer>,
}

/// A whole tensor.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq)]
pub struct Whole {
    /// Members of its entry but `chunks`.
    #[serde(flatten)]
    pub entry: Map<String, Value>,
    /// Its elements.
    pub data: Data,
}

/// Elements, packed as one chunk of the whole.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq)]
#[serde(rename_all = "lowercase")]
pub enum Data {
    /// The bytes.
    Hex(String),
    /// Bytes that look like nothing: SHA-256 of `"<seed>/0"`, `"<seed>/1"`, … one after another.
    Seed(u64),
}

/// What one writer writes.
#[derive(Clone, Debug, Default, Serialize, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct Writer {
    /// `[tensor, at, extent]`.
    pub boxes: Vec<(usize, Vec<u64>, Vec<u64>)>,
    /// Entries of aliases.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub aliases: Vec<Value>,
    /// Other files.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attachments: Vec<Attachment>,
    /// Records.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub records: Vec<Value>,
    /// As in a part.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub omitted: Vec<Value>,
    /// Positions in `boxes` before which a new shard of the box's class begins; a request says
    /// nothing of them, since a writer chooses.
    #[serde(skip)]
    pub cuts: Vec<usize>,
    /// Members of the part that are to be other than they would be; never part of a request.
    #[serde(skip)]
    pub members: Map<String, Value>,
}

/// A file that is kept under a path.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct Attachment {
    /// Its logical path.
    pub path: String,
    /// Its bytes.
    pub hex: String,
}

impl Data {
    /// The elements of a tensor of `bits` bits in all, unused bits of the last byte zero.
    #[must_use]
    pub fn bytes(&self, bits: usize) -> Vec<u8> {
        let length = bits.div_ceil(8);
        match self {
            Self::Hex(text) => unhex(text),
            Self::Seed(seed) => {
                let mut bytes = Vec::new();
                let mut number = 0_u64;
                while bytes.len() < length {
                    bytes.extend_from_slice(&Sha256::digest(format!("{seed}/{number}")));
                    number += 1;
                }
                bytes.truncate(length);
                if let Some(last) = bytes.last_mut()
                    && !bits.is_multiple_of(8)
                {
                    *last &= (1 << (bits % 8)) - 1;
                }
                bytes
            }
        }
    }
}

/// Lower-case hex.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The bytes of hex that the suite itself wrote.
///
/// # Panics
///
/// If it is not hex.
#[must_use]
pub fn unhex(text: &str) -> Vec<u8> {
    let digits = text.as_bytes().chunks(2);
    digits
        .map(|pair| {
            let pair = std::str::from_utf8(pair).expect("hex of the suite is ASCII");
            u8::from_str_radix(pair, 16).expect("hex of the suite is hex")
        })
        .collect()
}
