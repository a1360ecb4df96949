//! Records of registered kinds that fit, and for each form of them what does not.

use super::*;

/// Every change, with pointers into the record, makes one that fits not fit.
fn refuses_record(record: &Value, changes: &[(&str, Option<Value>)]) {
    let page = json!({
        "format": "waystation", "kind": "records", "page": 0, "records": [record],
        "version": "1.0",
    });
    let pointers: Vec<String> =
        changes.iter().map(|(pointer, _)| format!("/records/0{pointer}")).collect();
    let changes: Vec<(&str, Option<Value>)> =
        pointers.iter().map(String::as_str).zip(changes.iter().map(|(_, v)| v.clone())).collect();
    refuses("records-page.schema.json", &page, &changes);
}

fn of(kind: &str, value: Value) -> Value {
    json!({ "kind": kind, "name": "main", "value": value })
}

fn float() -> Value {
    json!({ "f64": "3f50624dd2f1a9fc" })
}

#[test]
fn progress() {
    let progress = of(
        "progress",
        json!({ "batch": 32, "epoch": 2, "iteration": 1007, "optimizer_step": 1000,
                "samples": 32000, "skipped": 7, "tokens": 0 }),
    );
    refuses_record(
        &progress,
        &[
            ("/name", Some(json!("other"))),
            ("/coordinate", Some(json!([["dp", 0]]))),
            ("/value/optimizer_step", None),
            ("/value/optimizer_step", Some(json!(-1))),
            ("/value/epoch", Some(float())),
            ("/value/step", Some(json!(1))),
        ],
    );
}

#[test]
fn optimizers() {
    let optimizer = of(
        "optimizer",
        json!({
            "algorithm": "adamw",
            "groups": [{
                "hyper": [["lr", float()], ["betas", { "tuple": [float(), float()] }]],
                "implementation": [["fused", true]], "name": "all",
                "params": [["main", "a"], ["main", "b"]],
            }],
            "masters": { "cast": "stochastic" },
            "steps": [{ "params": [["main", "a"]], "step": 3, "stored_as": "F32[]" }],
        }),
    );
    let all = json!([{ "params": "all", "step": 3, "stored_as": "int" }]);
    let changes = [
        ("/value/algorithm", None),
        ("/value/groups/0/hyper", None),
        ("/value/groups/0/hyper/0/0", Some(json!(""))),
        ("/value/groups/0/hyper/0/1", Some(json!([1]))),
        ("/value/groups/0/hyper/0/2", Some(json!(1))),
        ("/value/groups/0/lr", Some(json!(1))),
        ("/value/groups/0/params/1", Some(json!(["main", "a"]))),
        ("/value/groups/0/params/1", Some(json!(["main"]))),
        ("/value/masters/cast", Some(json!("nearest"))),
        ("/value/steps/0/step", Some(json!(-3))),
        ("/value/steps/0/stored_as", None),
        ("/value/steps/0/params", Some(json!("some"))),
        ("/value/steps/1", Some(all[0].clone())),
    ];
    refuses_record(&optimizer, &changes);
    let whole = changed(&optimizer, "/value/steps", Some(all));
    refuses_record(&whole, &[("/value/steps/0/params", Some(json!("each")))]);
}

#[test]
fn averages_schedules_scalers_and_what_is_missing() {
    refuses_record(
        &of("ema", json!({ "decay": { "f32": "3f7fbe77" }, "updates": 1000 })),
        &[
            ("/value/decay", Some(json!(1))),
            ("/value/decay", Some(json!({ "f64": "1" }))),
            ("/value/updates", None),
        ],
    );
    let scaler = json!({
        "backoff": float(), "good_steps": 3, "growth": float(), "hysteresis": 2, "interval": 2000,
        "scale": float(), "skipped": 4,
    });
    refuses_record(
        &of("scaler", scaler),
        &[("/value/scale", Some(json!(65536))), ("/value/interval", None)],
    );
    refuses_record(
        &of("uncaptured", json!({ "kind": "rng", "reason": "no state in this version" })),
        &[("/value/kind", Some(json!(""))), ("/value/reason", None)],
    );
    let schedule = of(
        "schedule",
        json!({
            "algorithm": "linear-warmup+cosine", "last_value": [float(), float()],
            "parameters": { "map": [["warmup", 10], ["base", { "list": [float(), float()] }],
                ["total", 10], ["floor", float()]] },
            "position": { "unit": "tokens", "value": 7 },
        }),
    );
    refuses_record(
        &schedule,
        &[
            ("/value/last_value/0", Some(json!(1))),
            ("/value/parameters", Some(json!(null))),
            ("/value/parameters/map/0", None),
            ("/value/parameters/map/0/0", Some(json!("power"))),
            ("/value/parameters/map/0/1", Some(float())),
            ("/value/parameters/map/1/1", Some(json!(1))),
            ("/value/parameters/map/1/1/list/0", Some(json!(1))),
            ("/value/position/unit", Some(json!("steps"))),
            ("/value/algorithm", Some(json!("constant"))),
        ],
    );
    let other = changed(&schedule, "/value/algorithm", Some(json!("acme")));
    let other = changed(&other, "/value/parameters", Some(json!(null)));
    let other = changed(&other, "/value/last_value", Some(json!([1, { "list": [] }])));
    refuses_record(&other, &[("/value/position", None)]);
}

#[test]
fn streams() {
    let stream = of(
        "rng",
        json!({
            "algorithm": "mt19937",
            "caches": [{ "bits": "", "kind": "acme/x" },
                { "bits": "3ff0000000000000", "kind": "torch/normal-f64" }],
            "fork": { "coordinate": [], "manifest": sha256(), "step": 500 },
            "next_raw": ["00000001", "00000002", "00000003", "ffffffff"],
            "on_reshape": "fork",
            "origin": { "framework": "torch", "initial_seed": { "int": "18446744073709551615" } },
            "purpose": "dropout", "seed_rule": { "root": 7, "rule": "root+rank" },
            "state": { "tensor": ["main", "blob", "dropout", "", "", [["dp", 1]]] },
        }),
    );
    refuses_record(
        &stream,
        &[
            ("/value/caches/0/bits", Some(json!("3f8"))),
            ("/value/caches/0/bits", Some(json!("00".repeat(65)))),
            ("/value/caches/1/bits", Some(json!("3f800000"))),
            ("/value/fork/manifest", Some(json!("0f"))),
            ("/value/next_raw/3", None),
            ("/value/next_raw/0", Some(json!("1"))),
            ("/value/next_raw/0", Some(json!("0000000G"))),
            ("/value/next_raw", Some(json!(vec!["00000000"; 65]))),
            ("/value/algorithm", Some(json!("jax-rbg"))),
            ("/value/algorithm", Some(json!("sfc64"))),
            ("/value/on_reshape", Some(json!("split"))),
            ("/value/origin/initial_seed", Some(float())),
            ("/value/origin/stream", Some(json!("cuda"))),
            ("/value/seed_rule/rule", None),
            ("/value/state", None),
            ("/value/state", Some(json!("0"))),
            ("/value/state", Some(json!("00".repeat(8193)))),
            ("/value/state/tensor/5", None),
        ],
    );
    let other = changed(&stream, "/value/algorithm", Some(json!("acme")));
    let other = changed(&other, "/value/next_raw", Some(json!(["7"])));
    refuses_record(&other, &[("/value/next_raw/0", Some(json!("0".repeat(129))))]);
}

fn leaf() -> Value {
    json!({
        "epoch": 2, "epoch_end": { "rule": "pad", "unit": 32 }, "kind": "permuted-index",
        "order": { "algorithm": "grain.index_shuffle", "n": 100, "rounds": 4, "seed": 7,
            "seed_rule": "seed+epoch" },
        "position": 64, "source": { "name": "text", "records": 100, "sha256": sha256() },
    })
}

fn root(mut node: Value) -> Value {
    for (name, value) in [
        ("augment", json!("none")),
        ("consumed", json!(320)),
        ("next", json!({ "count": 2, "first": [5, [1, 6]], "sha256": sha256() })),
        ("partition", json!({ "axes": ["dp"], "batch": 32, "rule": "contiguous" })),
    ] {
        node[name] = value;
    }
    of("cursor", node)
}

#[test]
fn leaves_of_cursors() {
    refuses_record(
        &root(leaf()),
        &[
            ("/value/augment", Some(json!("yes"))),
            ("/value/consumed", None),
            ("/value/next/first", Some(json!([1, 2, 3, 4, 5]))),
            ("/value/next/first/0", Some(json!([5]))),
            ("/value/next/count", Some(json!(65_537))),
            ("/value/partition/axes", Some(json!(["dp", "dp"]))),
            ("/value/partition/rule", Some(json!("random"))),
            ("/value/epoch_end/unit", None),
            ("/value/epoch_end/unit", Some(json!(0))),
            ("/value/epoch_end/rule", Some(json!("wrap"))),
            ("/value/kind", Some(json!("sharded-lanes"))),
            ("/value/order/n", None),
            ("/value/order/rounds", Some(json!(5))),
            ("/value/order/rounds", Some(json!(2))),
            ("/value/order/seed", Some(json!(1_u64 << 32))),
            ("/value/order/seed_rule", Some(json!("epoch"))),
            ("/value/order/algorithm", Some(json!("identity"))),
            ("/value/order/more", Some(json!(1))),
            ("/value/position", Some(json!(-1))),
            ("/value/source/records", Some(json!(0))),
            ("/value/source/shards", Some(json!([100]))),
            ("/value/lanes", Some(json!([]))),
        ],
    );
    for order in [
        json!({ "algorithm": "identity", "n": 7 }),
        json!({ "algorithm": "explicit", "n": 2, "ordinals": [1, 0] }),
        json!({ "algorithm": "explicit", "n": 2,
            "ordinals": { "tensor": ["main", "blob", "o", "", "", []] } }),
        json!({ "algorithm": "torch.randperm-cpu", "n": 2,
            "seed": { "int": "18446744073709551615" }, "seed_rule": "seed" }),
        json!({ "algorithm": "acme", "n": 2, "more": [{ "any": null }] }),
    ] {
        let other = changed(&root(leaf()), "/value/order", Some(order));
        refuses_record(&other, &[("/value/order/n", None), ("/value/order/algorithm", None)]);
    }
    let lanes = json!({
        "epoch": 0, "epoch_end": { "rule": "stop" }, "kind": "sharded-lanes",
        "lanes": [[0, 3], [3, 0]], "next_lane": 1, "order": { "algorithm": "identity", "n": 2 },
        "source": { "records": 10, "sha256": sha256(), "shards": [4, 6] },
    });
    refuses_record(
        &root(lanes),
        &[
            ("/value/epoch_end/rule", Some(json!("pad"))),
            ("/value/lanes", Some(json!([]))),
            ("/value/lanes/0", Some(json!([0]))),
            ("/value/source/shards", None),
            ("/value/source/shards", Some(json!("4,6"))),
            ("/value/position", Some(json!(1))),
        ],
    );
    let mut opaque = root(json!({
        "fingerprint": { "map": [["ranks", 4]] }, "kind": "opaque", "media_type": "torchdata",
        "state": { "bytes": "00ff" },
    }));
    opaque["value"].as_object_mut().unwrap().remove("consumed");
    refuses_record(
        &opaque,
        &[
            ("/value/consumed", Some(json!(1))),
            ("/value/fingerprint", Some(json!(4))),
            ("/value/fingerprint/map/0/0", Some(json!(4))),
            ("/value/state", Some(json!([0]))),
        ],
    );
}

#[test]
fn nodes_over_others() {
    let mixture = json!({
        "children": [leaf(), leaf()], "kind": "mixture",
        "selection": { "algorithm": "deficit", "end": "all", "taken": [3, 4], "weights": [1, 2] },
    });
    refuses_record(
        &root(mixture),
        &[
            ("/value/children", Some(json!([]))),
            ("/value/children/0/consumed", Some(json!(1))),
            ("/value/children/0/partition", Some(json!({}))),
            ("/value/selection/end", Some(json!("any"))),
            ("/value/selection/weights/0", Some(json!(0))),
            ("/value/selection/weights/0", Some(json!(1_u64 << 32))),
            ("/value/selection/more", Some(json!(1))),
            ("/value/selection/algorithm", None),
        ],
    );
    let window = json!({
        "anchor": leaf(), "index": 3, "kind": "window-shuffle",
        "order": { "algorithm": "identity" }, "replay": 5, "reverse": true, "window": 64,
    });
    refuses_record(
        &root(window),
        &[
            ("/value/window", Some(json!(0))),
            ("/value/reverse", Some(json!(1))),
            ("/value/order/n", Some(json!(64))),
            ("/value/order", Some(json!({ "algorithm": "explicit", "ordinals": [0] }))),
            ("/value/order", Some(json!({ "algorithm": "acme", "n": 64 }))),
            ("/value/buffer", Some(json!([]))),
        ],
    );
    let stored = json!({
        "buffer": [3, [1, 4]], "child": leaf(), "kind": "window-shuffle",
        "order": { "algorithm": "acme" },
    });
    refuses_record(&root(stored), &[("/value/buffer/0", Some(json!("3"))), ("/value/child", None)]);
    let pack = json!({
        "algorithm": "concat-then-split", "child": leaf(), "kind": "pack",
        "leftover": [7, 10, 20], "length": 2048, "tail": "drop", "tokenizer": sha256(),
    });
    refuses_record(
        &root(pack.clone()),
        &[
            ("/value/leftover", Some(json!([[7, 10, 20]]))),
            ("/value/leftover/2", Some(json!(0))),
            ("/value/length", Some(json!(0))),
            ("/value/tail", Some(json!("cut"))),
            ("/value/tokenizer", Some(json!("gpt2"))),
            ("/value/algorithm", Some(json!("acme"))),
        ],
    );
    let empty = changed(&root(pack), "/value/leftover", Some(json!(null)));
    refuses_record(&empty, &[("/value/leftover", None)]);
}
