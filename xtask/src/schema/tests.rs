//! Documents that fit, and for each rule that a schema can tell one that does not.

use jsonschema::Validator;
use serde_json::{Value, json};

use super::*;

mod state;

fn schema(file: &str) -> Validator {
    let registry = Registry::load(&crate::root().join("spec/registry")).unwrap();
    let files = files(&registry).unwrap();
    let (_, text) = files.iter().find(|(name, _)| *name == file).unwrap();
    let value: Value = serde_json::from_str(text).unwrap();
    jsonschema::draft202012::meta::validate(&value).unwrap();
    jsonschema::validator_for(&value).unwrap()
}

fn sha256() -> String {
    "0f".repeat(32)
}

fn common(kind: &str) -> Value {
    json!({
        "attempt": "0000000390ab12cd", "block_bytes": 262_144,
        "features": { "optional": ["shard-sha256"], "required": [] },
        "format": "waystation", "kind": kind, "parent": null, "run": "demo", "step": 1000,
        "topology": [["dp", 2], ["tp", 4]], "version": "1.0", "writers": 2,
    })
}

fn with(mut base: Value, more: &Value) -> Value {
    base.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    base
}

fn param() -> Value {
    json!({
        "chunks": [[0, 4096, [0, 0], [4, 4], "e3069283"]], "dtype": "F32", "name": "model.w",
        "role": "param", "shape": [4, 4],
    })
}

fn moment() -> Value {
    json!({
        "axes": [0, null], "chunks": [[0, 8192, [0, 0], [512, 1024], "e3069283", 0]],
        "component": "critic", "dtype": "F32", "name": "model.w",
        "native": [["torch.dcp", ["optim", "state", 3, "exp_avg"]]], "owner": "main",
        "role": "optimizer", "scope": [["tp", 1]], "shape": [512, 1024], "slot": "adam.m",
        "valid": [512, 1000],
    })
}

fn alias() -> Value {
    json!({ "name": "lm_head.weight", "native": [["torch.dcp", ["out", 1]]], "of": ["main", "param", "model.w", "", "", []], "role": "param" })
}

fn shards() -> Value {
    json!([
        { "bytes": 8192, "class": "model", "crc_table": null },
        { "bytes": 3_149_824, "class": "state",
          "crc_table": { "count": 8, "crc32c": "00000000", "offset": 2_105_344 } },
    ])
}

fn part() -> Value {
    with(
        common("part"),
        &json!({
            "attachments": [{ "bytes": 2, "path": "1_Pooling/config.json", "sha256": sha256() }],
            "entries": [alias(), moment(), param()],
            "extensions": { "shard-sha256": { "on_rewrite": "drop", "value": [1] } },
            "inc": "5f0c000000000001", "inventory": { "count": 3, "sha256": sha256() },
            "omitted": [{ "component": "main", "names": ["a"], "reason": "frozen" }],
            "producer": { "name": "t", "version": "" },
            "records": [record()], "shards": shards(), "writer": 0,
        }),
    )
}

fn record() -> Value {
    json!({
        "coordinate": [["dp", 0]], "kind": "value", "name": "torch.lr_scheduler",
        "value": { "map": [
            ["lr", { "f64": "3f50624dd2f1a9fc" }],
            [7, { "tuple": [null, true, -3, { "int": "-9007199254740992" }] }],
            [{ "int": "18446744073709551615" }, { "type": ["torch.Size", { "list": [1] }] }],
        ]},
    })
}

fn manifest() -> Value {
    with(
        common("manifest"),
        &json!({
            "contents": [["critic", [["optimizer", 1]]], ["main", [["param", 1]]]],
            "omitted": [],
            "parts": [{
                "attachments": [], "bytes": 900, "extensions": {}, "inc": "5f0c000000000001",
                "sha256": sha256(), "shards": shards(),
            }],
            "records": [{ "bytes": 300, "first": ["value", "x", [["dp", 0]]], "sha256": sha256() }],
            "tensors": [{
                "bytes": 500, "first": ["main", "param", "w", "", "", []], "sha256": sha256(),
            }],
        }),
    )
}

/// `document` with the value at `pointer` set, or taken out when `value` is `None`.
fn changed(document: &Value, pointer: &str, value: Option<Value>) -> Value {
    let mut document = document.clone();
    let (parent, last) = pointer.rsplit_once('/').unwrap();
    match (document.pointer_mut(parent).unwrap(), value) {
        (Value::Object(members), Some(value)) => drop(members.insert(last.to_owned(), value)),
        (Value::Object(members), None) => drop(members.remove(last).unwrap()),
        (Value::Array(items), Some(value)) => {
            let index: usize = last.parse().unwrap();
            if index < items.len() {
                items[index] = value;
            } else {
                items.push(value);
            }
        }
        (Value::Array(items), None) => drop(items.remove(last.parse().unwrap())),
        (other, _) => panic!("{pointer} leads into {other}"),
    }
    document
}

/// Every change makes a document that fits not fit.
fn refuses(file: &str, document: &Value, changes: &[(&str, Option<Value>)]) {
    let schema = schema(file);
    let errors: Vec<String> =
        schema.iter_errors(document).map(|e| format!("{}: {e}", e.instance_path())).collect();
    assert_eq!(errors, Vec::<String>::new());
    for (pointer, value) in changes {
        let changed = changed(document, pointer, value.clone());
        assert!(!schema.is_valid(&changed), "{file}: {pointer} as {value:?} fits");
    }
}

#[test]
fn parts() {
    refuses(
        "part.schema.json",
        &part(),
        &[
            ("/writer", None),
            ("/more", Some(json!(1))),
            ("/kind", Some(json!("manifest"))),
            ("/version", Some(json!("2.0"))),
            ("/version", Some(json!("1.00"))),
            ("/block_bytes", Some(json!(262_143))),
            ("/block_bytes", Some(json!(33_554_432))),
            ("/step", Some(json!(1_000_000_000_000_u64))),
            ("/attempt", Some(json!("0000000390AB12CD"))),
            ("/parent", Some(json!("00"))),
            ("/topology/0/1", Some(json!(0))),
            ("/features/required", Some(json!(["A"]))),
            ("/run", Some(json!("a\u{202e}b"))),
            ("/run", Some(json!(""))),
            ("/writers", Some(json!(65_537))),
            ("/inventory/count", None),
            ("/extensions/shard-sha256/on_rewrite", Some(json!("maybe"))),
            ("/omitted/0/names", Some(json!([]))),
            ("/shards/0/bytes", Some(json!(-1))),
            ("/shards/0/class", Some(json!("optimizer"))),
            ("/shards/1/crc_table/count", Some(json!(0))),
        ],
    );
}

/// What no reader refuses, or refuses for another reason and later, is no matter of form.
#[test]
fn no_stricter_than_the_chapters() {
    let deep: Vec<Value> = (0..17).map(|axis| json!([format!("a{axis}"), 0])).collect();
    for (file, document, pointer, value) in [
        ("part.schema.json", part(), "/shards/0/bytes", json!(8193)),
        ("part.schema.json", part(), "/shards/1/crc_table/count", json!(1)),
        ("part.schema.json", part(), "/shards/1/crc_table/offset", json!(100)),
        ("part.schema.json", part(), "/writer", json!(65_536)),
        ("part.schema.json", part(), "/entries/2/chunks/0/0", json!(65_536)),
        ("part.schema.json", part(), "/entries/2/chunks/0/1", json!(1)),
        ("part.schema.json", part(), "/entries/1/scope", json!(deep)),
        ("manifest.schema.json", manifest(), "/contents/0/1", json!([])),
        ("manifest.schema.json", manifest(), "/tensors/0/bytes", json!(0)),
    ] {
        let changed = changed(&document, pointer, Some(value.clone()));
        assert!(schema(file).is_valid(&changed), "{file}: {pointer} as {value} does not fit");
    }
}

#[test]
fn attachment_paths() {
    let bad = ["", "/a", "a/", "a//b", ".", "..", "a/../b", "a/.", "a\\b", "a\u{e9}", "a\n"];
    let changes: Vec<(&str, Option<Value>)> =
        bad.iter().map(|path| ("/attachments/0/path", Some(json!(path)))).collect();
    refuses("part.schema.json", &part(), &changes);
    for good in ["...", ".a/..b", "a b.json"] {
        let part = changed(&part(), "/attachments/0/path", Some(json!(good)));
        assert!(schema("part.schema.json").is_valid(&part), "{good}");
    }
}

#[test]
fn tensors_and_aliases() {
    refuses(
        "part.schema.json",
        &part(),
        &[
            ("/entries/0/role", Some(json!("optimizer"))),
            ("/entries/0/of/5", None),
            ("/entries/0/native", Some(json!([]))),
            ("/entries/0/native/0/1", Some(json!([]))),
            ("/entries/0/dtype", Some(json!("F32"))),
            ("/entries/1/slot", None),
            ("/entries/1/owner", None),
            ("/entries/1/block", Some(json!(64))),
            ("/entries/1/scope", Some(json!([]))),
            ("/entries/1/component", Some(json!("main"))),
            ("/entries/1/native", Some(json!([]))),
            ("/entries/2/slot", Some(json!("adam.m"))),
            ("/entries/2/owner", Some(json!("main"))),
            ("/entries/2/axes", Some(json!([0, 1]))),
            ("/entries/2/role", Some(json!("weights"))),
            ("/entries/2/role", Some(json!("blob"))),
            ("/entries/2/dtype", Some(json!("F33"))),
            ("/entries/2/shape", Some(json!([-1]))),
            ("/entries/2/shape", Some(json!(vec![1; 17]))),
            ("/entries/2/chunks/0/3/0", Some(json!(0))),
            ("/entries/2/chunks/0/4", Some(json!("E3069283"))),
            ("/entries/2/chunks/0/4", None),
            ("/entries/1/chunks/0/6", Some(json!(0))),
        ],
    );
}

#[test]
fn value_trees() {
    refuses(
        "part.schema.json",
        &part(),
        &[
            ("/records/0/value", Some(json!(1))),
            ("/records/0/value", Some(json!({ "tree": { "list": [] } }))),
            ("/records/0/value", Some(json!({ "list": [], "tuple": [] }))),
            ("/records/0/value", Some(json!({}))),
            ("/records/0/value/map/0/1", Some(json!([]))),
            ("/records/0/value/map/0/1", Some(json!({ "f64": "3f" }))),
            ("/records/0/value/map/0/0", Some(json!(null))),
            ("/records/0/value/map/0/1", Some(json!({ "int": "7" }))),
            ("/records/0/value/map/0/1", Some(json!({ "int": "9".repeat(4302) }))),
            ("/records/0/value/map/0/1", Some(json!(1.5))),
            ("/records/0/value/map/0/1", Some(json!({ "bytes": "0" }))),
            ("/records/0/coordinate", Some(json!([]))),
        ],
    );
    let other = changed(&part(), "/records/0/kind", Some(json!("acme/x")));
    let other = changed(&other, "/records/0/value", Some(json!({ "any": [] })));
    assert!(schema("part.schema.json").is_valid(&other));
}

#[test]
fn manifests() {
    refuses(
        "manifest.schema.json",
        &manifest(),
        &[
            ("/kind", Some(json!("part"))),
            ("/parts", Some(json!([]))),
            ("/parts/0/inc", None),
            ("/contents/0/1/0/1", Some(json!(0))),
            ("/records/0/first", Some(json!(["value", "x"]))),
            ("/tensors/0/first/1", Some(json!("weights"))),
            ("/tensors/0/bytes", Some(json!(268_435_457))),
        ],
    );
}

#[test]
fn pages() {
    let mut tensor = param();
    tensor["chunks"][0].as_array_mut().unwrap().insert(0, json!(1));
    let tensors = json!({
        "entries": [tensor], "format": "waystation", "kind": "tensors", "page": 0, "version": "1.0",
    });
    refuses(
        "tensors-page.schema.json",
        &tensors,
        &[
            ("/entries", Some(json!([]))),
            ("/entries/0/chunks/0/0", None),
            ("/entries/0/chunks/0/0", Some(json!(-1))),
            ("/kind", Some(json!("records"))),
            ("/page", Some(json!("0"))),
        ],
    );
    let records = json!({
        "format": "waystation", "kind": "records", "page": 0, "records": [record()],
        "version": "1.7",
    });
    refuses(
        "records-page.schema.json",
        &records,
        &[("/records", Some(json!([]))), ("/records/0/name", None), ("/entries", Some(json!([])))],
    );
}

/// The worked example is what the spec shows people: its files must fit.
#[test]
fn the_worked_example() {
    let folder = crate::root().join("spec/example");
    let checkpoint = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let checkpoint = checkpoint.into_iter().find(|path| path.is_dir()).unwrap();
    let mut seen = 0;
    for entry in std::fs::read_dir(checkpoint).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        let Some((kind, file)) = [
            ("manifest", "manifest.schema.json"),
            ("part-", "part.schema.json"),
            ("tensors-", "tensors-page.schema.json"),
            ("records-", "records-page.schema.json"),
        ]
        .into_iter()
        .find(|(kind, _)| name.starts_with(kind)) else {
            continue;
        };
        let value: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        let schema = schema(file);
        let errors: Vec<String> = schema.iter_errors(&value).map(|e| e.to_string()).collect();
        assert!(errors.is_empty(), "{kind} {name}: {errors:?}");
        seen += 1;
    }
    assert_eq!(seen, 5);
}
