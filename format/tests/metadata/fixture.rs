//! A part, a page of each kind and a manifest that use every member, as JSON to be changed.

use serde_json::{Value, json};
use waystation_format::attachment::AttachmentEntry;
use waystation_format::json::Value as Tree;
use waystation_format::part::{
    CrcTable, Extension, Inventory, Omitted, OmittedReason, Producer, ShardEntry,
};
use waystation_format::{
    Alias, Attempt, Chunk, Common, Digest, Dtype, Entry, Features, Identity, Incarnation, Native,
    NativeStep, PartContent, Record, Region, Role, ShardClass, Tensor, Topology, Version,
};

pub(crate) fn common() -> Common {
    Common {
        attempt: Attempt { timeline: 3, nonce: 0x90ab_12cd },
        block_bytes: 4096,
        features: Features { optional: vec!["acme/x".to_owned()], required: vec![] },
        parent: Some(Digest::of(b"parent")),
        run: "run".to_owned(),
        step: 1000,
        topology: Topology(vec![("dp".to_owned(), 2), ("tp".to_owned(), 4)]),
        version: Version::CURRENT,
        writers: 1,
    }
}

/// A whole checkpoint by one writer.
pub(crate) fn content() -> PartContent {
    let table = CrcTable { count: 3, crc32c: 0x0102_0304, offset: 16384 };
    PartContent {
        common: common(),
        writer: 0,
        inc: Incarnation(0x5f0c_0000_0000_00e1),
        attachments: vec![attachment("config.json"), attachment("tokenizer/vocab.txt")],
        shards: vec![
            ShardEntry { bytes: 20480, class: ShardClass::Model, crc_table: Some(table) },
            ShardEntry { bytes: 8192, class: ShardClass::State, crc_table: None },
        ],
        extensions: vec![Extension {
            feature: "acme/x".to_owned(),
            keep: true,
            value: r#"{"a":[1,null]}"#.to_owned(),
        }],
        inventory: Some(Inventory { count: 8, sha256: Digest::of(b"keys") }),
        omitted: vec![Omitted {
            component: "main".to_owned(),
            reason: OmittedReason::Frozen,
            names: vec!["a".to_owned(), "b".to_owned()],
        }],
        producer: Producer { name: "test".to_owned(), version: String::new() },
        entries: entries(),
        records: records(),
    }
}

fn attachment(path: &str) -> AttachmentEntry {
    AttachmentEntry { bytes: 10, path: path.to_owned(), sha256: Digest::of(path.as_bytes()) }
}

fn entries() -> Vec<Entry> {
    let embed = tensor(Identity::param("embed"), Dtype::F32, &[4, 4], |tensor| {
        tensor.chunks =
            vec![chunk(0, 8192, &[0, 0], &[2, 4], None), chunk(0, 8448, &[2, 0], &[2, 4], None)];
    });
    let big = tensor(Identity::param("big"), Dtype::U8, &[8193], |tensor| {
        tensor.chunks =
            vec![chunk(0, 4096, &[0], &[4096], None), chunk(0, 8704, &[4096], &[4097], Some(0))];
    });
    let steps = tensor(Identity::buffer("steps"), Dtype::I64, &[], |tensor| {
        tensor.chunks = vec![chunk(0, 16000, &[], &[], None)];
    });
    let empty = tensor(Identity::buffer("none"), Dtype::F32, &[0, 3], |_| ());
    let moment = Identity {
        component: "critic".to_owned(),
        role: Role::Optimizer,
        slot: "adam.m".to_owned(),
        owner: "main".to_owned(),
        scope: vec![("tp".to_owned(), 1)],
        ..Identity::param("model.w")
    };
    let moment = tensor(moment, Dtype::BF16, &[4, 4], |tensor| {
        tensor.valid = Some([4, 3].as_slice().into());
        tensor.axes = Some(vec![Some(0), None]);
        tensor.native = vec![Native {
            framework: "torch.dcp".to_owned(),
            path: vec![NativeStep::Key("state".to_owned()), NativeStep::Index(3)],
        }];
        tensor.chunks = vec![chunk(1, 4096, &[0, 0], &[4, 4], None)];
    });
    let scale =
        Identity { role: Role::Quant, slot: "scale".to_owned(), ..Identity::param("embed") };
    let scale = tensor(scale, Dtype::F32, &[4, 4], |tensor| {
        tensor.block = Some(8);
        tensor.chunks = vec![chunk(1, 4352, &[0, 0], &[4, 4], None)];
    });
    let blob = Identity { role: Role::Blob, ..Identity::param("state") };
    let blob = tensor(blob, Dtype::U8, &[5], |tensor| {
        tensor.chunks = vec![chunk(1, 4608, &[0], &[5], None)];
    });
    let alias = Entry::Alias(Alias {
        component: "main".to_owned(),
        name: "head".to_owned(),
        role: Role::Param,
        of: Identity::param("embed"),
        native: vec![Native {
            framework: "torch.dcp".to_owned(),
            path: vec![NativeStep::Key("out.w".to_owned())],
        }],
    });
    vec![embed, big, steps, empty, moment, scale, blob, alias]
}

fn tensor(identity: Identity, dtype: Dtype, shape: &[u64], fill: impl Fn(&mut Tensor)) -> Entry {
    let mut tensor = Tensor::new(identity, dtype, shape);
    fill(&mut tensor);
    Entry::Tensor(tensor)
}

fn chunk(shard: u32, offset: u64, at: &[u64], extent: &[u64], table_index: Option<u64>) -> Chunk {
    let region = Region { at: at.into(), extent: extent.into() };
    Chunk { writer: 0, shard, offset, region, crc32c: 0xdead_beef, table_index }
}

fn records() -> Vec<Record> {
    let value = |text: &str| Tree::parse(text).unwrap();
    let at = |index| vec![("dp".to_owned(), index)];
    let stream = |state: &str| {
        value(&format!(
            r#"{{"algorithm":"acme","caches":[],"next_raw":[],"on_reshape":"fork","state":"{state}"}}"#
        ))
    };
    let progress = value(r#"{"iteration":1007,"optimizer_step":1000}"#);
    vec![
        Record::new("rng", "dropout", at(1), &stream("01")).unwrap(),
        Record::new("rng", "dropout", at(0), &stream("00")).unwrap(),
        Record::new("progress", "main", vec![], &progress).unwrap(),
    ]
}

/// The part as JSON.
pub(crate) fn part() -> Value {
    serde_json::from_slice(&content().encode().unwrap()).unwrap()
}

/// The page of tensors that the part gives.
pub(crate) fn tensors() -> Value {
    let mut entries = part()["entries"].take();
    for entry in entries.as_array_mut().unwrap() {
        for chunk in entry.get_mut("chunks").and_then(Value::as_array_mut).into_iter().flatten() {
            chunk.as_array_mut().unwrap().insert(0, json!(0));
        }
    }
    json!({"entries": entries, "format": "waystation", "kind": "tensors", "page": 0, "version": "1.0"})
}

/// The page of records that the part gives.
pub(crate) fn records_page() -> Value {
    let records = part()["records"].take();
    json!({"format": "waystation", "kind": "records", "page": 0, "records": records, "version": "1.0"})
}

/// The manifest that the part gives, with what it says of the given pages.
pub(crate) fn manifest(tensors: &[u8], records: &[u8]) -> Value {
    let part = part();
    let raw = bytes(&part);
    let page = |bytes: &[u8], first: Value| json!([{"bytes": bytes.len(), "first": first, "sha256": Digest::of(bytes).to_string()}]);
    let mut manifest = json!({
        "contents": [["critic", [["optimizer", 1]]], ["main", [["blob", 1], ["buffer", 2], ["param", 2], ["quant", 1]]]],
        "kind": "manifest",
        "parts": [{"bytes": raw.len(), "sha256": Digest::of(&raw).to_string()}],
        "records": page(records, json!(["progress", "main", []])),
        "tensors": page(tensors, json!(["critic", "optimizer", "model.w", "adam.m", "main", [["tp", 1]]])),
    });
    for member in [
        "attempt",
        "block_bytes",
        "features",
        "format",
        "omitted",
        "parent",
        "run",
        "step",
        "topology",
        "version",
        "writers",
    ] {
        manifest[member] = part[member].clone();
    }
    for member in ["attachments", "extensions", "inc", "shards"] {
        manifest["parts"][0][member] = part[member].clone();
    }
    manifest
}

/// Canonical bytes: the members of a map are sorted.
pub(crate) fn bytes(value: &Value) -> Vec<u8> {
    serde_json::to_vec(value).unwrap()
}
