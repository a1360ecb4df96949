//! Profiles `writer` and `durability`: recipes that an implementation must save. What a recipe may hold is in protocol.md.

use serde_json::{Value, json};

use super::bases::{add as tensor, whole};
use super::{Cases, base_files, bases};
use crate::case::Effect;
use crate::files::Files;
use crate::recipe::{Attachment, Recipe, Writer, hex};

pub(super) fn add(cases: &mut Cases) {
    for (base, what) in [
        ("bare", "A tensor without elements, and a record."),
        ("small", "A parameter, its moment, a tied weight, an attachment and records."),
        ("two", "Two writers that share tensors by rows and by columns, with state of each rank."),
        ("blocks", "A chunk of more than one block."),
    ] {
        let recipe = bases::named(base).expect("a base of the suite");
        cases
            .case(&format!("writer/{base}"), &["shard.layout", "derive.function"], what)
            .effect(Effect::SilentCorruption)
            .writes(&recipe);
    }
    for (slug, rules, what, recipe) in recipes() {
        cases
            .case(&format!("writer/{slug}"), rules, what)
            .effect(Effect::SilentCorruption)
            .writes(&recipe);
    }
    durable(cases);
}

type Saved = (&'static str, &'static [&'static str], &'static str, Recipe);

fn recipes() -> Vec<Saved> {
    vec![
        (
            "four-writers",
            &["cover.exact", "derive.tensors"],
            "Four writers hold a quarter each of a matrix, and one of them a vector.",
            quarters(),
        ),
        (
            "writer-idle",
            &["part.all-writers"],
            "The second of three writers has nothing to write.",
            idle(),
        ),
        (
            "bits-below-eight",
            &["tensor.packing", "tensor.unused-bits"],
            "Elements of four and of six bits in odd numbers, split so that chunks begin within a byte of the whole.",
            narrow(),
        ),
        (
            "no-axes-and-no-elements",
            &["chunk.nonempty"],
            "Tensors without axes, and tensors with a zero in their shape.",
            edges(),
        ),
        (
            "aliases-of-all",
            &["derive.aliases", "alias.role"],
            "All writers name the same tied weights, one of them with the name of a framework.",
            tied(),
        ),
        (
            "records-of-places",
            &["record.grid", "record.order"],
            "Records of every place of two axes, their names in an order that is not that of their keys.",
            places(),
        ),
        (
            "attachments",
            &["attachment.path", "attachment.digest", "dir.flat"],
            "Attachments of both writers, one of them empty and one of all bytes.",
            attached(),
        ),
        (
            "table-of-blocks",
            &["integrity.blocks", "chunk.table-index"],
            "Chunks of exactly a block, of a byte more, of two blocks, and of 65536 bytes, in a shard with small ones.",
            tabled(),
        ),
        (
            "names",
            &["identity.name", "shard.key"],
            "Names that need escapes, look like paths or like entries of a shard's header, or differ by form alone.",
            named(),
        ),
        (
            "companion",
            &["companion.role"],
            "A block-quantised slot with its flat companion, both in two boxes.",
            companion(),
        ),
        (
            "omitted",
            &["part.omitted"],
            "Two writers omit parameters, some of them the same.",
            omitted(),
        ),
        (
            "topology-and-parent",
            &["common.topology", "part.session"],
            "Sixteen axes, a parent, the largest step and the largest block.",
            outermost(),
        ),
        (
            "values",
            &["value.form", "intro.bytes"],
            "A record with every form of a value tree, which is kept as it is.",
            values(),
        ),
        (
            "bits-kept",
            &["intro.bytes"],
            "NaN with payloads, minus zero, subnormal numbers, and bools other than 0 and 1.",
            bits(),
        ),
    ]
}

fn quarters() -> Recipe {
    let mut recipe = bases::empty();
    recipe.topology = vec![("dp".into(), 2), ("tp".into(), 2)];
    recipe.writers = vec![Writer::default(); 4];
    tensor(&mut recipe, json!({"dtype": "F32", "name": "w", "role": "param", "shape": [5, 7]}), 1);
    tensor(&mut recipe, json!({"dtype": "F64", "name": "b", "role": "param", "shape": [7]}), 2);
    let rows = [(0, 3), (3, 2)];
    let columns = [(0, 4), (4, 3)];
    for writer in 0..4 {
        let ((top, height), (left, width)) = (rows[writer / 2], columns[writer % 2]);
        recipe.writers[writer].boxes.push((0, vec![top, left], vec![height, width]));
    }
    whole(&mut recipe, 2, 1);
    recipe
}

fn idle() -> Recipe {
    let mut recipe = bases::small();
    recipe.writers.extend([Writer::default(), Writer::default()]);
    let moved = recipe.writers[0].boxes.remove(2);
    recipe.writers[2].boxes.push(moved);
    recipe
}

fn narrow() -> Recipe {
    let mut recipe = bases::empty();
    recipe.writers.push(Writer::default());
    for (number, (dtype, shape)) in
        [("F4_E2M1", [3, 5]), ("I4", [3, 3]), ("F6_E2M3", [3, 5])].into_iter().enumerate()
    {
        let entry =
            json!({"dtype": dtype, "name": format!("n{number}"), "role": "param", "shape": shape});
        let at = tensor(&mut recipe, entry, 20 + number as u64);
        let columns: u64 = shape[1];
        recipe.writers[0].boxes.push((at, vec![0, 0], vec![3, 1]));
        recipe.writers[1].boxes.push((at, vec![0, 1], vec![3, columns - 1]));
    }
    recipe
}

fn edges() -> Recipe {
    let mut recipe = bases::empty();
    for (number, (dtype, shape)) in [
        ("F32", json!([])),
        ("BOOL", json!([])),
        ("F32", json!([0])),
        ("I64", json!([3, 0, 2])),
        ("U8", json!([1, 1, 1])),
    ]
    .into_iter()
    .enumerate()
    {
        let entry =
            json!({"dtype": dtype, "name": format!("e{number}"), "role": "buffer", "shape": shape});
        let at = tensor(&mut recipe, entry, 30 + number as u64);
        whole(&mut recipe, 0, at);
    }
    recipe
}

fn tied() -> Recipe {
    let mut recipe = bases::two();
    let of = json!(["main", "param", "w", "", "", []]);
    for writer in &mut recipe.writers {
        writer.aliases.push(json!({"name": "a", "native": [["torch", ["decoder", "w", 0]]], "of": of, "role": "param"}));
        writer.aliases.push(json!({"component": "critic", "name": "w", "of": of, "role": "param"}));
    }
    recipe
}

fn places() -> Recipe {
    let mut recipe = bases::two();
    for (dp, tp) in [(1, 1), (0, 1), (1, 0), (0, 0)] {
        for name in ["a", "a b", "a!"] {
            recipe.writers[dp]
                .records
                .push(json!({"coordinate": [["dp", dp], ["tp", tp]], "kind": "vendor/x",
                "name": name, "value": {"dp": dp, "tp": tp}}));
        }
    }
    recipe
}

fn attached() -> Recipe {
    let mut recipe = bases::two();
    let all: Vec<u8> = (0..=255).collect();
    for (writer, path, bytes) in [
        (0, "a/b/c", all.as_slice()),
        (0, "A.b", b""),
        (1, "a/b-c", b"\r\n"),
        (1, "-x", b"manifest.json"),
    ] {
        recipe.writers[writer].attachments.push(Attachment { path: path.into(), hex: hex(bytes) });
    }
    recipe
}

fn tabled() -> Recipe {
    let mut recipe = bases::empty();
    for (number, bytes) in [4096_u64, 4097, 8192, 65_536, 3, 65_535].into_iter().enumerate() {
        let entry =
            json!({"dtype": "U8", "name": format!("t{number}"), "role": "param", "shape": [bytes]});
        let at = tensor(&mut recipe, entry, 40 + number as u64);
        whole(&mut recipe, 0, at);
    }
    recipe
}

fn named() -> Recipe {
    let mut recipe = bases::empty();
    recipe.run = "caf\u{e9} \"\\ \u{1f680}".into();
    for (number, name) in [
        "__metadata__",
        "__pad__.0",
        "__crc__",
        "__ws__:[]",
        "../w",
        "w/../w",
        "w",
        "W",
        "\u{e9}",
        "e\u{301}",
        "\"",
        "\\",
        "{}",
        " ",
        "\u{1f600}",
        "\u{ff5e}",
        "model.layers.0.w",
    ]
    .into_iter()
    .enumerate()
    {
        let at = tensor(
            &mut recipe,
            json!({"dtype": "U8", "name": name, "role": "param", "shape": [2]}),
            60 + number as u64,
        );
        whole(&mut recipe, 0, at);
    }
    recipe
}

fn companion() -> Recipe {
    let mut recipe = bases::two();
    let base = json!({"name": "q", "owner": "adam", "role": "optimizer", "shape": [4, 8]});
    let mut moment = base.clone();
    moment["axes"] = json!([0, 1]);
    moment["dtype"] = json!("U8");
    moment["slot"] = json!("adam.m");
    let mut scale = base;
    scale["block"] = json!(16);
    scale["dtype"] = json!("F32");
    scale["role"] = json!("quant");
    scale["slot"] = json!("adam.m:scale");
    scale.as_object_mut().expect("an entry").remove("owner");
    tensor(&mut recipe, json!({"dtype": "F16", "name": "q", "role": "param", "shape": [4, 8]}), 80);
    tensor(&mut recipe, moment, 81);
    tensor(&mut recipe, scale, 82);
    for at in recipe.tensors.len() - 3..recipe.tensors.len() {
        recipe.writers[0].boxes.push((at, vec![0, 0], vec![2, 8]));
        recipe.writers[1].boxes.push((at, vec![2, 0], vec![2, 8]));
    }
    for record in recipe.writers.iter_mut().flat_map(|writer| &mut writer.records) {
        if record["kind"] == "optimizer" {
            record["value"]["groups"][0]["params"] = json!([["main", "w"], ["main", "q"]]);
        }
    }
    recipe
}

fn omitted() -> Recipe {
    let mut recipe = bases::two();
    let one = |names: &[&str], reason: &str| json!({"component": "main", "names": names, "reason": reason});
    recipe.writers[0].omitted = vec![one(&["base.a", "base.c"], "base"), one(&["z"], "frozen")];
    recipe.writers[1].omitted = vec![one(&["base.b", "base.c"], "base")];
    recipe
}

fn outermost() -> Recipe {
    let mut recipe = bases::small();
    recipe.topology = (0..16).map(|axis| (format!("axis{axis}"), axis + 1)).collect();
    recipe.parent = Some("0123456789abcdef".repeat(4));
    recipe.step = 999_999_999_999;
    recipe.attempt = "fffffffe00000000".into();
    recipe.block_bytes = 16_777_216;
    recipe.writers[0].records[0]["value"]["optimizer_step"] = json!(recipe.step);
    recipe
}

fn values() -> Recipe {
    let mut recipe = bases::bare();
    let value: Value = json!({"map": [
        ["z", {"f64": "7ff80000deadbeef"}], ["a", {"f32": "80000000"}], [1, {"int": "-9007199254740992"}],
        ["1", {"bytes": "00ff"}], ["list", {"list": [null, true, {"tuple": []}]}],
        ["type", {"type": ["numpy.float64", {"f64": "0000000000000000"}]}], ["text", "\u{0}\u{7f}\u{2028}\u{1f680}"],
        ["tensor", {"tensor": ["main", "param", "none", "", "", []]}],
    ]});
    recipe.writers[0].records.push(json!({"kind": "value", "name": "every", "value": value}));
    recipe.writers[0]
        .records
        .push(json!({"kind": "value", "name": "bare", "value": {"tree": "x"}}));
    recipe.writers[0]
        .records
        .push(json!({"kind": "vendor/y", "name": "own", "value": {"b": [1, [2]], "a": {}}}));
    recipe
}

fn bits() -> Recipe {
    let mut recipe = bases::empty();
    for (name, dtype, count, data) in [
        ("f32", "F32", 5, "0100a07f000000800100000001007fffffff7f7f"),
        ("bf16", "BF16", 3, "817f00800100"),
        ("f64", "F64", 1, "efbeadde0000f87f"),
        ("bool", "BOOL", 4, "00010780"),
    ] {
        let at = tensor(
            &mut recipe,
            json!({"dtype": dtype, "name": name, "role": "param", "shape": [count]}),
            0,
        );
        recipe.tensors[at].data = crate::recipe::Data::Hex(data.into());
        whole(&mut recipe, 0, at);
    }
    recipe
}

fn durable(cases: &mut Cases) {
    let after = |mut recipe: Recipe| {
        recipe.step = 3000;
        recipe.attempt = "0000000200112233".into();
        for record in recipe.writers.iter_mut().flat_map(|writer| &mut writer.records) {
            if record["kind"] == "progress" {
                record["value"]["optimizer_step"] = json!(3000);
            }
        }
        recipe
    };
    let older = || -> Files { base_files("run") };
    let alone = || -> Files { bases::run_of(&bases::bare()) };
    for (slug, what, run, recipe) in [
        (
            "first",
            "The first save of a run, which leaves nothing or a checkpoint.",
            Files::new(),
            bases::small(),
        ),
        (
            "second",
            "A save of one writer into a run that holds a checkpoint.",
            alone(),
            after(bases::small()),
        ),
        (
            "two-writers",
            "A save of two writers into a run that holds two checkpoints.",
            older(),
            after(bases::two()),
        ),
        (
            "many-files",
            "A save of four writers with shards, attachments and records.",
            older(),
            after(many()),
        ),
        (
            "megabytes",
            "A save of some megabytes into a run that holds a checkpoint.",
            alone(),
            after(large()),
        ),
    ] {
        cases
            .case(
                &format!("durability/{slug}"),
                &["commit.absent", "commit.order", "run.latest"],
                what,
            )
            .effect(Effect::HalfWritten)
            .writes_into(run, &recipe);
    }
}

fn many() -> Recipe {
    let mut recipe = quarters();
    for (number, writer) in recipe.writers.iter_mut().enumerate() {
        writer.records.push(bases::progress());
        for file in 0..6 {
            let path = format!("rank{number}/{file}");
            writer.attachments.push(Attachment { path, hex: hex(&[0x41; 64]) });
        }
    }
    recipe
}

fn large() -> Recipe {
    let mut recipe = bases::bare();
    for number in 0..4 {
        let entry = json!({"dtype": "F32", "name": format!("w{number}"), "role": "param", "shape": [512, 512]});
        let at = tensor(&mut recipe, entry, 90 + number);
        whole(&mut recipe, 0, at);
    }
    recipe
}
