//! The two adapters of this project: what each makes of a request, and that they answer alike.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use waystation_conformance::adapter::answer;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

fn example() -> PathBuf {
    root().join("spec/example/step-000000001000-000000018280808e")
}

fn ask(request: &Value) -> Value {
    answer(request.to_string().as_bytes())
}

/// What the Python adapter answers to all of some requests.
fn ask_python(requests: &[Value]) -> Vec<Value> {
    let mut python = Command::new("python3")
        .args(["-B", "adapter.py"])
        .current_dir(root().join("conformance/adapters/python"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("python3");
    let lines: String = requests.iter().map(|request| format!("{request}\n")).collect();
    let mut input = python.stdin.take().unwrap();
    // Its answers are read meanwhile, or a pipe fills.
    let writer = std::thread::spawn(move || input.write_all(lines.as_bytes()));
    let output = python.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// An answer without what is free: messages, rules, places within a file, what is found after the first breach, and where
/// a restore is refused.
fn kept(op: &Value, answer: &Value) -> Value {
    let mut answer = answer.clone();
    if let Some(error) = answer.get_mut("error") {
        let file = error.get("file").and_then(Value::as_str);
        let file = file.filter(|file| !file.starts_with('/') && op != "state");
        *error = json!({ "code": error["code"], "file": file });
    }
    if let Some(skip) = answer.get_mut("skip") {
        *skip = json!({});
    }
    if let Some(findings) = answer.pointer_mut("/ok/findings") {
        *findings = json!(findings.get(0).map(|found| &found["code"]));
    }
    answer
}

fn assert_alike(requests: &[Value]) {
    let answers = ask_python(requests);
    assert_eq!(answers.len(), requests.len());
    for (request, python) in requests.iter().zip(answers) {
        let op = &request["op"];
        assert_eq!(kept(op, &ask(request)), kept(op, &python), "{request}");
    }
}

fn recipe() -> Value {
    let adam = json!({
        "algorithm": "adam",
        "groups": [{ "hyper": [], "name": "g", "params": [["main", "w"]] }],
        "steps": [],
    });
    json!({
        "run": "r", "step": 7, "attempt": "000000030000abcd", "block_bytes": 4096, "parent": null, "topology": [["dp", 2]],
        "tensors": [
            { "role": "param", "name": "w", "dtype": "F32", "shape": [200, 128], "data": { "seed": 7 } },
            { "role": "param", "name": "six", "dtype": "F6_E2M3", "shape": [3, 5], "valid": [3, 4], "data": { "seed": 1 } },
            { "role": "buffer", "name": "empty", "dtype": "F32", "shape": [0, 3], "data": { "hex": "" } },
            { "role": "buffer", "name": "count", "component": "critic", "dtype": "I64", "shape": [],
              "data": { "hex": "0102030405060708" } },
            { "role": "quant", "name": "w", "slot": "scale", "dtype": "F4_E2M1", "block": 64, "shape": [200, 128],
              "data": { "seed": 3 } },
            { "role": "quant", "name": "w", "slot": "zero", "dtype": "U8", "block": 7, "shape": [200, 128], "data": { "seed": 4 } },
            { "role": "optimizer", "name": "w", "slot": "adam.m", "owner": "main", "dtype": "U1", "shape": [3, 7],
              "axes": [0, null], "native": [["torch", ["m", 3]]], "data": { "seed": 12 } },
        ],
        "writers": [
            { "boxes": [[1, [0, 0], [3, 2]], [0, [0, 0], [150, 128]], [4, [0, 0], [100, 128]], [6, [0, 0], [1, 7]], [3, [], []],
                        [5, [0, 0], [200, 128]]],
              "aliases": [{ "name": "tied", "of": ["main", "param", "w", "", "", []], "role": "param" }],
              "attachments": [{ "path": "a/b", "hex": "0102" }],
              "records": [{ "kind": "optimizer", "name": "main", "value": adam },
                          { "coordinate": [["dp", 0]], "kind": "x/y", "name": "n", "value": { "a": [1, null, "\u{e9}\u{1f600}\n"] } }],
              "omitted": [{ "component": "main", "names": ["frozen"], "reason": "frozen" }] },
            { "boxes": [[0, [150, 0], [50, 128]], [1, [0, 2], [3, 3]], [4, [100, 0], [100, 128]], [6, [1, 0], [2, 7]]],
              "records": [{ "coordinate": [["dp", 1]], "kind": "x/y", "name": "n", "value": {} },
                          { "kind": "progress", "name": "main", "value": { "optimizer_step": 7 } }] },
        ],
    })
}

#[test]
fn the_example_is_read_as_the_appendix_says() {
    let said = ask(&json!({ "id": 5, "op": "read", "path": example() }));
    assert_eq!(said["id"], 5);
    let tensors = said["ok"]["tensors"].as_array().unwrap();
    let names: Vec<&str> = tensors.iter().map(|tensor| tensor["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["steps_seen", "block.0.weight", "block.0.weight", "embed.weight", "packed"]);
    assert_eq!(tensors[4]["hex"], "cd2302");
    assert_eq!(tensors[2]["bytes"], 6144);
    assert_eq!(tensors[2].get("hex"), None);
    let target = json!(["main", "param", "embed.weight", "", "", []]);
    assert_eq!(said["ok"]["aliases"][0]["of"], target);
}

#[test]
fn both_adapters_answer_alike_on_the_example() {
    let path = example();
    let place = |more: Value| {
        let mut request = json!({
            "id": 1, "op": "state", "path": path, "topology": [["dp", 2]], "coordinate": [["dp", 1]],
        });
        request.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        request
    };
    let read = ask(&json!({ "id": 1, "op": "read", "path": path }));
    let records = read["ok"]["records"].as_array().unwrap();
    let cursor = records.iter().find(|record| record["kind"] == "cursor").unwrap();
    let source = &cursor["value"]["source"];
    let sources = json!([["train", source["records"], source["sha256"]]]);
    let slice = |tensor: Value, start: Value, extent: Value| json!({ "id": 2, "op": "slice", "path": path, "tensor": tensor, "start": start, "extent": extent });
    let weight = json!(["main", "param", "block.0.weight", "", "", []]);
    assert_alike(&[
        json!({ "id": 1, "op": "read", "path": path }),
        json!({ "id": 2, "op": "validate", "path": path }),
        json!({ "id": 3, "op": "validate", "path": path.parent() }),
        json!({ "id": 4, "op": "latest", "path": path.parent() }),
        json!({ "id": 5, "op": "latest", "path": path }),
        slice(weight.clone(), json!([3, 5]), json!([40, 7])),
        slice(weight.clone(), json!([3, 5]), json!([0, 7])),
        slice(weight.clone(), json!([3, 5]), json!([46, 7])),
        slice(weight.clone(), json!([3]), json!([4, 7])),
        slice(weight.clone(), json!([-1, 0]), json!([4, 7])),
        slice(json!(["main"]), json!([]), json!([])),
        slice(json!(["main", "param", "lm_head.weight", "", "", []]), json!([1, 1]), json!([2, 3])),
        slice(json!(["main", "param", "nowhere", "", "", []]), json!([]), json!([])),
        json!({ "id": 11, "op": "state", "path": path, "topology": null }),
        place(json!({})),
        place(json!({ "sources": sources })),
        place(json!({ "sources": sources, "share": true })),
        place(json!({ "sources": [["train", 1, source["sha256"]]] })),
        place(json!({ "sources": sources, "topology": [["dp", 3]] })),
        place(json!({ "sources": sources, "topology": [["dp", 3]], "demand": "fork" })),
        place(
            json!({ "sources": sources, "topology": [["dp", 4], ["tp", 1]], "coordinate": [["dp", 3], ["tp", 0]],
                      "demand": "fork", "share": true }),
        ),
        place(json!({ "topology": [["dp", 3]], "demand": "none" })),
        place(json!({ "topology": [["dp", 3]], "leave_out": ["dropout", "train"] })),
        place(json!({ "coordinate": [] })),
        place(json!({ "coordinate": [["dp", 2]] })),
        place(json!({ "topology": [["dp", 2], ["dp", 2]] })),
        place(json!({ "demand": "some" })),
        json!({ "id": 30, "op": "read" }),
        json!({ "id": 31, "op": "read", "path": "relative" }),
        json!({ "id": 32, "op": "read", "path": "/nowhere/at/all" }),
        json!({ "id": 33, "op": "paint" }),
        json!({ "id": "x", "op": "read" }),
    ]);
}

#[test]
fn both_adapters_answer_alike_on_damage() {
    let folder = tempfile::tempdir().unwrap();
    let mut requests = Vec::new();
    for file in fs::read_dir(example()).unwrap().map(|file| file.unwrap().file_name()) {
        let bytes = fs::read(example().join(&file)).unwrap();
        for spot in 0..7_usize {
            let copy = folder.path().join(requests.len().to_string());
            fs::create_dir(&copy).unwrap();
            for other in fs::read_dir(example()).unwrap().map(|other| other.unwrap()) {
                fs::copy(other.path(), copy.join(other.file_name())).unwrap();
            }
            let mut damaged = bytes.clone();
            match spot {
                5 => drop(damaged.pop()),
                6 => damaged.push(0),
                _ => {
                    let at = (bytes.len() - 1) * spot / 4;
                    damaged[at] ^= 1 << spot;
                }
            }
            fs::write(copy.join(&file), damaged).unwrap();
            requests.push(json!({ "id": requests.len(), "op": "read", "path": copy }));
            requests.push(json!({ "id": requests.len(), "op": "validate", "path": copy }));
        }
    }
    assert!(requests.len() > 100);
    assert_alike(&requests);
}

#[test]
fn what_either_adapter_writes_both_read_alike() {
    let folder = tempfile::tempdir().unwrap();
    let [ours, theirs] = ["ours", "theirs"].map(|name| folder.path().join(name));
    let write = |out: &Path| json!({ "id": 1, "op": "write", "out": out, "recipe": recipe() });
    assert_eq!(ask(&write(&ours)), json!({ "id": 1, "ok": {} }));
    assert_eq!(ask(&write(&ours))["error"]["code"], "exists");
    assert_eq!(ask_python(&[write(&theirs)]), [json!({ "id": 1, "ok": {} })]);
    let mut read = Vec::new();
    let mut requests = Vec::new();
    for path in [&ours, &theirs] {
        let found = ask(&json!({ "id": 1, "op": "validate", "path": path }));
        assert_eq!(found, json!({ "id": 1, "ok": { "findings": [] } }));
        read.push(ask(&json!({ "id": 1, "op": "read", "path": path })));
        for op in ["read", "validate"] {
            requests.push(json!({ "id": 1, "op": op, "path": path }));
        }
        for (slot, start, extent) in [
            ("scale", [50, 0], [2, 128]),
            ("scale", [50, 64], [1, 64]),
            ("scale", [0, 1], [1, 64]),
            ("zero", [0, 0], [200, 128]),
            ("zero", [0, 0], [7, 128]),
        ] {
            requests.push(json!({
                "id": 1, "op": "slice", "path": path, "tensor": ["main", "quant", "w", slot, "", []],
                "start": start, "extent": extent,
            }));
        }
        requests.push(json!({
            "id": 1, "op": "slice", "path": path, "tensor": ["main", "param", "six", "", "", []],
            "start": [1, 1], "extent": [2, 3],
        }));
    }
    assert_eq!(read[0], read[1]);
    assert_eq!(read[0]["ok"]["tensors"].as_array().unwrap().len(), 7);
    assert_alike(&requests);
}

#[test]
fn recipes_that_are_wrong_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let mut number = 0;
    let mut refused = |pointer: &str, new: Value, code: &str| {
        number += 1;
        let mut recipe = recipe();
        *recipe.pointer_mut(pointer).unwrap() = new;
        let out = folder.path().join(number.to_string());
        let said = ask(&json!({ "id": 1, "op": "write", "out": out, "recipe": recipe }));
        assert_eq!(said["error"]["code"], code, "{pointer}: {said}");
    };
    refused("/run", json!(""), "bad-name");
    refused("/block_bytes", json!(5000), "bad-member");
    refused("/writers", json!([]), "bad-argument");
    refused("/tensors", json!({}), "bad-argument");
    refused("/tensors/0/data/seed", json!("x"), "bad-argument");
    refused("/tensors/0/shape", json!([1_u64 << 40, 128]), "bad-argument");
    refused("/tensors/0/dtype", json!("F33"), "unsupported-dtype");
    refused("/writers/1/boxes", json!([]), "cover-gap");
    refused("/writers/1/boxes/0", json!([0, [149, 0], [51, 128]]), "cover-overlap");
    refused("/writers/1/boxes/0", json!([0, [151, 0], [50, 128]]), "bad-chunk");
    refused("/writers/1/boxes/0", json!([0, [150], [50]]), "bad-chunk");
    refused("/writers/1/boxes/0", json!([9, [], []]), "bad-argument");
    refused("/writers/1/boxes/2", json!([4, [100, 1], [100, 127]]), "block-boundary");
    refused("/writers/1/records/1/value", json!({ "optimizer_step": 0.5 }), "bad-argument");
    refused("/writers/1/records/1/name", json!("other"), "bad-member");
    refused("/writers/1/records/0/coordinate", json!([["dp", 2]]), "bad-identity");
}

#[test]
fn no_line_makes_it_panic() {
    let deep = "[".repeat(100_000);
    let lines = [
        "",
        "nonsense",
        "[]",
        "{}",
        "{\"id\":true}",
        "{\"id\":1.5}",
        "\u{feff}{}",
        "{\"id\":1}x",
        &deep,
    ];
    for line in lines {
        let said = answer(line.as_bytes());
        let found = (&said["id"], &said["error"]["code"]);
        assert_eq!(found, (&Value::Null, &json!("bad-argument")), "{line}");
    }
    assert_eq!(answer(&[0xff, 0xfe])["error"]["code"], "bad-argument");
    let values = [
        json!(null),
        json!(true),
        json!(-1),
        json!(0.5),
        json!("x"),
        json!([]),
        json!([[]]),
        json!({}),
        json!([1, [2], "x"]),
    ];
    for op in ["hello", "read", "slice", "validate", "latest", "state", "write"] {
        for member in [
            "path",
            "tensor",
            "start",
            "extent",
            "topology",
            "coordinate",
            "demand",
            "sources",
            "fingerprints",
            "leave_out",
            "share",
            "out",
            "recipe",
            "protocol",
        ] {
            for value in &values {
                let mut request =
                    json!({ "id": 1, "op": op, "path": "/nowhere", "out": "/nowhere/at/all" });
                request[member] = value.clone();
                let said = ask(&request);
                assert!(said.get("error").is_some(), "{request}: {said}");
            }
        }
    }
}
