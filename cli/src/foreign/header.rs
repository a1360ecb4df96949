//! The header of a safetensors file, read strictly: no duplicate, no hole, no byte left over.
//! Knows one file. The format's own shards are not read here.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::fs::File;
use std::os::unix::fs::FileExt;

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use waystation_format::{Code, Dtype, Error, Result, arith, limits, shard};

use super::ForeignTensor;

/// Reads the header of `file`, which has `length` bytes and is number `index` of the model.
///
/// # Errors
/// [`Code::BadArgument`] when it is not a valid safetensors file, [`Code::Limit`] when its header is longer
/// than a shard's may be, [`Code::UnsupportedDtype`] for a dtype that is not registered.
pub(super) fn read(file: &File, length: u64, index: usize) -> Result<Vec<ForeignTensor>> {
    let mut size = [0; 8];
    if length < 8 {
        return Err(invalid(format!("expected at least 8 bytes, found {length}")));
    }
    file.read_exact_at(&mut size, 0).map_err(|e| Error::io("read", e))?;
    let mut text = vec![0; header_bytes(size, length)?];
    file.read_exact_at(&mut text, 8).map_err(|e| Error::io("read", e))?;
    parse(&text, length, index)
}

/// Reads the header of a whole file in memory.
///
/// # Errors
/// As [`read`].
pub(super) fn read_bytes(file: &[u8], index: usize) -> Result<Vec<ForeignTensor>> {
    let length = super::len(file);
    let Some((size, rest)) = file.split_first_chunk() else {
        return Err(invalid(format!("expected at least 8 bytes, found {length}")));
    };
    let text = rest.get(..header_bytes(*size, length)?).unwrap_or_default();
    parse(text, length, index)
}

/// The bytes of the header's text, by the first 8 bytes of a file of `length` bytes, in which they are.
fn header_bytes(size: [u8; 8], length: u64) -> Result<usize> {
    let header_bytes = u64::from_le_bytes(size);
    if header_bytes > length.saturating_sub(8) {
        return Err(invalid(format!(
            "its first 8 bytes state a header of {header_bytes} bytes, the file has {length}"
        )));
    }
    if header_bytes > limits::SHARD_HEADER_BYTES {
        let message = format!(
            "the header states {header_bytes} bytes: expected at most {}",
            limits::SHARD_HEADER_BYTES
        );
        return Err(Error::new(Code::Limit, message));
    }
    arith::to_usize(header_bytes, "header length")
}

/// Reads the text of a header, of a file of `length` bytes.
fn parse(text: &[u8], length: u64, index: usize) -> Result<Vec<ForeignTensor>> {
    let data_start = arith::add(8, super::len(text), "start of the data")?;
    let data_bytes = arith::sub(length, data_start, "bytes of data")?;
    // Of what is passed over, only this sees that it is text.
    let text = std::str::from_utf8(text)
        .map_err(|e| invalid(format!("the header is not valid UTF-8: {e}")))?;
    let Header(mut entries) =
        serde_json::from_str(text).map_err(|e| invalid(format!("the header is not valid: {e}")))?;

    entries.sort_by_key(|(_, entry)| entry.data_offsets);
    let mut cursor = 0;
    let mut tensors = Vec::with_capacity(entries.len());
    for (name, entry) in entries {
        if name.starts_with(shard::CHUNK_KEY)
            || name == shard::TABLE_KEY
            || name.starts_with(shard::PAD_KEY)
        {
            return Err(super::is_checkpoint());
        }
        let [begin, end] = entry.data_offsets;
        if begin != cursor || end < begin {
            let message = format!(
                "tensor {name:?} has offsets [{begin},{end}]: expected to begin at {cursor}, with no hole"
            );
            return Err(invalid(message));
        }
        cursor = end;
        let tensor = tensor(name, &entry, data_start, index)?;
        tensors.push(tensor);
    }
    if cursor != data_bytes {
        let message = format!("tensors take {cursor} bytes, the file has {data_bytes} of data");
        return Err(invalid(message));
    }
    Ok(tensors)
}

fn tensor(name: String, entry: &Entry, data_start: u64, file: usize) -> Result<ForeignTensor> {
    let dtype = dtype(&entry.dtype).ok_or_else(|| {
        let message =
            format!("tensor {name:?} has dtype {:?}, which is not registered", entry.dtype);
        Error::new(Code::UnsupportedDtype, message)
    })?;
    let [begin, end] = entry.data_offsets;
    let mut elements = 1;
    for dim in &entry.shape {
        elements = arith::mul(elements, *dim, "number of elements")?;
    }
    let bits = arith::mul(elements, u64::from(dtype.bits()), "bits of a tensor")?;
    if bits % 8 != 0 {
        let message =
            format!("tensor {name:?} of shape {:?} does not fill whole bytes", entry.shape);
        return Err(invalid(message));
    }
    let bytes = bits / 8;
    if arith::sub(end, begin, "bytes of a tensor")? != bytes {
        let message = format!(
            "tensor {name:?} of shape {:?} and dtype {} takes {bytes} bytes, its offsets [{begin},{end}]",
            entry.shape,
            dtype.as_str()
        );
        return Err(invalid(message));
    }
    let offset = arith::add(data_start, begin, "offset of a tensor")?;
    Ok(ForeignTensor { name, dtype, shape: entry.shape.clone(), file, offset, bytes })
}

/// Safetensors' names are ours but for the one 4-bit float.
fn dtype(id: &str) -> Option<Dtype> {
    if id == "F4" { Some(Dtype::F4E2M1) } else { Dtype::from_id(id) }
}

fn invalid(message: String) -> Error {
    Error::new(Code::BadArgument, format!("not a valid safetensors file: {message}"))
}

#[derive(Deserialize)]
struct Entry {
    dtype: String,
    shape: Vec<u64>,
    data_offsets: [u64; 2],
}

/// All entries in the order of the text; a name that stands twice is an error, where most readers take the last.
struct Header(Vec<(String, Entry)>);

impl<'de> Deserialize<'de> for Header {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries;
        impl<'de> Visitor<'de> for Entries {
            type Value = Header;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of tensors")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Header, A::Error> {
                let mut seen = HashSet::new();
                let mut entries = Vec::new();
                while let Some(name) = map.next_key::<String>()? {
                    if !seen.insert(name.clone()) {
                        let message = format!("{name:?} stands twice");
                        return Err(serde::de::Error::custom(message));
                    }
                    if name == "__metadata__" {
                        map.next_value::<Option<HashMap<String, String>>>()?;
                    } else {
                        entries.push((name, map.next_value()?));
                    }
                }
                Ok(Header(entries))
            }
        }
        deserializer.deserialize_map(Entries)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn file(header: &str, data: &[u8]) -> (File, u64) {
        let mut file = tempfile::tempfile().unwrap();
        let length = u64::try_from(header.len()).unwrap();
        file.write_all(&length.to_le_bytes()).unwrap();
        file.write_all(header.as_bytes()).unwrap();
        file.write_all(data).unwrap();
        let length = file.metadata().unwrap().len();
        (file, length)
    }

    #[test]
    fn a_valid_file() {
        let header = r#"{"__metadata__":{"format":"pt"},"b":{"dtype":"F4","shape":[4],"data_offsets":[4,6]},
            "a":{"dtype":"I16","shape":[2,1],"data_offsets":[0,4]}}"#;
        let (file, length) = file(header, &[0; 6]);
        let tensors = read(&file, length, 7).unwrap();
        let names: Vec<_> = tensors.iter().map(|t| (t.name.as_str(), t.dtype, t.bytes)).collect();
        assert_eq!(names, [("a", Dtype::I16, 4), ("b", Dtype::F4E2M1, 2)]);
        assert_eq!((tensors[1].offset, tensors[1].file), (length - 2, 7));
    }

    #[test]
    fn bytes_that_are_no_text_are_refused_where_nothing_reads_them() {
        for inside in
            [&b"{\"__metadata__\":{\"a\":\"?\"}}"[..], b"{\"__metadata__\":{\"?\":\"b\"}}"]
        {
            let file = [&u64::try_from(inside.len()).unwrap().to_le_bytes()[..], inside].concat();
            assert!(read_bytes(&file, 0).unwrap().is_empty());
            let broken: Vec<u8> =
                file.iter().map(|&byte| if byte == b'?' { 0xff } else { byte }).collect();
            assert_eq!(read_bytes(&broken, 0).unwrap_err().code(), Code::BadArgument);
        }
    }

    #[test]
    fn refused() {
        let entry = |name: &str, dims: &str, begin: u64, end: u64| {
            format!(r#""{name}":{{"dtype":"U8","shape":{dims},"data_offsets":[{begin},{end}]}}"#)
        };
        let cases = [
            (
                "twice",
                format!("{{{},{}}}", entry("a", "[4]", 0, 4), entry("a", "[4]", 0, 4)),
                Code::BadArgument,
            ),
            (
                "metadata that are no text",
                format!(r#"{{"__metadata__":{{"n":1}},{}}}"#, entry("a", "[4]", 0, 4)),
                Code::BadArgument,
            ),
            ("hole", format!("{{{}}}", entry("a", "[3]", 1, 4)), Code::BadArgument),
            (
                "overlap",
                format!("{{{},{}}}", entry("a", "[4]", 0, 4), entry("b", "[2]", 2, 4)),
                Code::BadArgument,
            ),
            ("rest", format!("{{{}}}", entry("a", "[3]", 0, 3)), Code::BadArgument),
            ("size", format!("{{{}}}", entry("a", "[5]", 0, 4)), Code::BadArgument),
            (
                "product",
                format!("{{{}}}", entry("a", "[4194305,4194305,211106198978564]", 0, 4)),
                Code::Limit,
            ),
            (
                "dtype",
                r#"{"a":{"dtype":"Q8","shape":[4],"data_offsets":[0,4]}}"#.into(),
                Code::UnsupportedDtype,
            ),
            ("json", "{".into(), Code::BadArgument),
        ];
        for (what, header, code) in cases {
            let (file, length) = file(&header, &[0; 4]);
            assert_eq!(read(&file, length, 0).unwrap_err().code(), code, "{what}");
        }
    }

    #[test]
    fn a_header_longer_than_the_file_allocates_nothing() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[0xff; 16]).unwrap();
        assert_eq!(read(&file, 16, 0).unwrap_err().code(), Code::BadArgument);
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&1_000_000u64.to_le_bytes()).unwrap();
        assert_eq!(read(&file, 8, 0).unwrap_err().code(), Code::BadArgument);
    }
}
