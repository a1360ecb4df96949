//! Chapters 7.2, 7.4 and 8.1: what one part says, and what parts must agree on. Readers do not open parts, so all but the
//! numbers that the manifest repeats is of depth V.

use serde_json::{Value, json};
use waystation_format::Code;

use super::group::Group;
use super::{Cases, bases};
use crate::bend::{Bend, change, insert, remove, set};
use crate::case::Effect;

pub(super) fn add(cases: &mut Cases) {
    tables(cases);
    omitted(cases);
    forms(cases);
    session(cases);
    conflicts(cases);
}

fn tables(cases: &mut Cases) {
    let mut group = Group::new(cases, "core", "blocks", Effect::Exhaustion);
    let table = |member: &str| format!("/parts/0/shards/0/crc_table/{member}");
    let rules = &["part.table", "limit.arithmetic"];
    let most = 9_007_199_254_740_991_u64;
    for (slug, what, bend) in [
        (
            "count-zero",
            "has no entries",
            Bend::new("another count").manifest(set(&table("count"), json!(0))),
        ),
        (
            "count-huge",
            "has 2^53 - 1 entries",
            Bend::new("another count").manifest(set(&table("count"), json!(most))),
        ),
        (
            "count-wraps",
            "has as many entries that their bytes wrap 32 bits",
            Bend::new("another count").manifest(set(&table("count"), json!((1_u64 << 30) + 1))),
        ),
        (
            "offset-huge",
            "begins at 2^53 - 1",
            Bend::new("another offset").manifest(set(&table("offset"), json!(most))),
        ),
        (
            "beyond",
            "ends four bytes after its shard",
            Bend::new("another offset").manifest(change("/parts/0/shards/0", |shard| {
                let count = shard["crc_table"]["count"].as_u64().expect("a count");
                let bytes = shard["bytes"].as_u64().expect("a length");
                shard["crc_table"]["offset"] = json!(bytes - 4 * count + 4);
            })),
        ),
    ] {
        let fault = format!("A table of block CRCs {what}.");
        group.bad(&format!("table-{slug}"), rules, &fault, &bend, Code::BadMember);
    }
    for (slug, rule, what, value) in [
        ("empty", "json.unknown-member", "is an empty object", json!({})),
        (
            "crc-short",
            "json.types",
            "has a CRC of seven digits",
            json!({"count": 1, "crc32c": "0000000", "offset": 0}),
        ),
        ("list", "json.types", "is a list", json!([])),
    ] {
        group.bad(
            &format!("table-{slug}"),
            &[rule],
            &format!("A table of block CRCs {what}."),
            &Bend::new("another form").manifest(set("/parts/0/shards/0/crc_table", value)),
            Code::BadMember,
        );
    }
    let class = "/parts/0/shards/0/class";
    group.bad(
        "shard-class-other",
        &["json.types"],
        "A shard is of class `weights`.",
        &Bend::new("another class").manifest(set(class, json!("weights"))),
        Code::BadMember,
    );
    group.bad(
        "shard-class-state",
        &["dir.present", "dir.computed-names"],
        "The manifest calls a shard of class model one of class state, of which there is no file.",
        &Bend::new("another class").manifest(set(class, json!("state"))),
        Code::FileMissing,
    );
    group.bad(
        "incarnation-other",
        &["dir.present", "dir.computed-names"],
        "The manifest states another incarnation than that of the files.",
        &Bend::new("another incarnation").manifest(set("/parts/0/inc", json!("2222222222222222"))),
        Code::FileMissing,
    );
}

fn omitted(cases: &mut Cases) {
    let mut group = Group::new(cases, "core", "bare", Effect::Ambiguity);
    let one = |component: &str, names: &[&str], reason: &str| json!({"component": component, "names": names, "reason": reason});
    let with = |list: Value| {
        Bend::new("omitted names").recipe(move |recipe| {
            recipe.writers[0].omitted = list.as_array().expect("a list").clone();
        })
    };
    let rules = &["part.omitted"];
    let bad: [(&str, &[&str], &str, Value, Code); 9] = [
        ("names-empty", rules, "has no names", json!([one("main", &[], "base")]), Code::BadMember),
        (
            "names-unsorted",
            rules,
            "has names out of order",
            json!([one("main", &["b", "a"], "base")]),
            Code::BadMember,
        ),
        (
            "name-twice",
            rules,
            "has a name twice",
            json!([one("main", &["a", "a"], "base")]),
            Code::BadMember,
        ),
        (
            "twice",
            rules,
            "has a component and reason twice",
            json!([one("main", &["a"], "base"), one("main", &["b"], "base")]),
            Code::BadMember,
        ),
        (
            "unsorted",
            rules,
            "has reasons out of order",
            json!([one("main", &["a"], "other"), one("main", &["b"], "base")]),
            Code::BadMember,
        ),
        (
            "components-unsorted",
            rules,
            "has components out of order",
            json!([one("main", &["a"], "base"), one("critic", &["b"], "base")]),
            Code::BadMember,
        ),
        (
            "reason-other",
            &["json.types"],
            "has a reason `lost`",
            json!([one("main", &["a"], "lost")]),
            Code::BadMember,
        ),
        (
            "component-left-out",
            &["json.unknown-member"],
            "lacks its component",
            json!([{"names": ["a"], "reason": "base"}]),
            Code::BadMember,
        ),
        (
            "name-control",
            &["identity.name"],
            "has a name with a newline",
            json!([one("main", &["a\nb"], "base")]),
            Code::BadName,
        ),
    ];
    for (slug, rules, what, list, code) in bad {
        let fault = format!("`omitted` {what}.");
        // What is merged of parts comes sorted: the fault is put where it would be lost.
        let bend = with(list.clone()).manifest(set("/omitted", list));
        group.bad(&format!("omitted-{slug}"), rules, &fault, &bend, code);
    }
    let list = json!([
        one("critic", &["v"], "frozen"),
        one("main", &["A", "a", "a.b", "\u{e9}"], "base"),
        one("main", &["a"], "frozen"),
        one("main", &["none"], "other")
    ]);
    for profile in ["core", "extended"] {
        Group::new(cases, profile, "bare", Effect::LostCheckpoint).good(
            "omitted-all",
            rules,
            "Names of two components are omitted for all reasons, one of them twice and one that is there.",
            &with(list.clone()),
        );
    }
}

/// Members of a part that is otherwise as the manifest says.
fn forms(cases: &mut Cases) {
    let mut group = Group::new(cases, "extended", "two", Effect::Ambiguity);
    let part = |edit| Bend::new("another part").part(1, edit);
    let bad: [(&str, &[&str], &str, Bend, Code); 15] = [
        (
            "format-other",
            &["common.format"],
            "another `format`",
            part(set("/format", json!("x"))),
            Code::BadFormat,
        ),
        (
            "kind-manifest",
            &["common.format"],
            "the `kind` of a manifest",
            part(set("/kind", json!("manifest"))),
            Code::BadFormat,
        ),
        (
            "version-major",
            &["version.major"],
            "the version 2.0",
            part(set("/version", json!("2.0"))),
            Code::UnsupportedVersion,
        ),
        (
            "feature-required",
            &["feature.required"],
            "a required feature that nobody knows",
            part(set("/features/required", json!(["x/a"]))),
            Code::UnsupportedFeature,
        ),
        (
            "without-producer",
            &["json.unknown-member"],
            "no `producer`",
            part(remove("/producer")),
            Code::BadMember,
        ),
        (
            "without-inventory",
            &["json.unknown-member"],
            "no `inventory`",
            part(remove("/inventory")),
            Code::BadMember,
        ),
        (
            "unknown-member",
            &["json.unknown-member"],
            "a member `host`",
            part(set("/host", json!("node7"))),
            Code::BadMember,
        ),
        (
            "producer-long",
            &["limit.value"],
            "a producer whose name has 1025 bytes",
            part(set("/producer/name", json!("p".repeat(1025)))),
            Code::Limit,
        ),
        (
            "producer-number",
            &["json.types"],
            "a producer whose version is a number",
            part(set("/producer/version", json!(1))),
            Code::BadMember,
        ),
        (
            "writer-above",
            &["part.writer"],
            "writer 2 of 2",
            part(set("/writer", json!(2))),
            Code::BadMember,
        ),
        (
            "writer-other",
            &["part.name"],
            "writer 0, and the name of writer 1",
            part(set("/writer", json!(0))),
            Code::BadFormat,
        ),
        (
            "inventory-list",
            &["json.types"],
            "a list as inventory",
            part(set("/inventory", json!([]))),
            Code::BadMember,
        ),
        (
            "entries-unsorted",
            &["part.entries"],
            "two entries in each other's place",
            part(change("/entries", |list| list.as_array_mut().expect("entries").swap(0, 1))),
            Code::BadOrder,
        ),
        (
            "records-unsorted",
            &["part.records"],
            "two records in each other's place",
            part(change("/records", |list| list.as_array_mut().expect("records").swap(0, 1))),
            Code::BadOrder,
        ),
        (
            "record-twice",
            &["part.records"],
            "a record twice",
            part(insert("/records/0", bases::adam())),
            Code::BadOrder,
        ),
    ];
    for (slug, rules, what, bend, code) in bad {
        group.bad(&format!("part-{slug}"), rules, &format!("A part has {what}."), &bend, code);
    }
    for profile in ["core", "extended"] {
        Group::new(cases, profile, "bare", Effect::LostCheckpoint).good(
            "producer-any",
            &["json.types"],
            "The producer's name is empty, and its version has control characters and 1024 bytes.",
            &Bend::new("another producer").recipe(|recipe| {
                let version = format!("\u{1b}[0m\u{202e}\u{0}{}", "v".repeat(1016));
                let producer = json!({"name": "", "version": version});
                recipe.writers[0].members.insert("producer".into(), producer);
            }),
        );
    }
}

fn session(cases: &mut Cases) {
    let mut group = Group::new(cases, "extended", "two", Effect::HalfWritten);
    for (member, value) in [
        ("attempt", json!("0000000112345679")),
        ("block_bytes", json!(8192)),
        ("parent", json!("ab".repeat(32))),
        ("run", json!("Golden")),
        ("step", json!(1001)),
        ("topology", json!([["tp", 2], ["dp", 2]])),
        ("version", json!("1.1")),
        ("writers", json!(3)),
    ] {
        group.bad(
            &format!("parts-differ-{}", member.replace('_', "-")),
            &["part.session"],
            &format!("The second part has another `{member}` than the first and the manifest."),
            &Bend::new("another part").part(1, set(&format!("/{member}"), value)),
            Code::PartDisagree,
        );
    }
    let extension = |rewrites: [&'static str; 2], values: [i64; 2]| {
        Bend::new("extension data").recipe(move |recipe| {
            for writer in 0..2 {
                let data =
                    json!({"x/a": {"on_rewrite": rewrites[writer], "value": values[writer]}});
                let members = &mut recipe.writers[writer].members;
                members.insert("features".into(), json!({"optional": ["x/a"], "required": []}));
                members.insert("extensions".into(), data);
            }
        })
    };
    for (slug, what, bend) in [
        ("value", "is to be kept and differs between parts", extension(["keep", "keep"], [1, 2])),
        (
            "rewrite",
            "is to be kept in one part and dropped in another",
            extension(["keep", "drop"], [1, 1]),
        ),
    ] {
        let fault = format!("The data of a feature {what}.");
        group.bad(
            &format!("extension-{slug}-differs"),
            &["derive.keep"],
            &fault,
            &bend,
            Code::PartDisagree,
        );
    }
    for profile in ["core", "extended"] {
        let mut group = Group::new(cases, profile, "two", Effect::LostCheckpoint);
        group.good(
            "extension-drop-differs",
            &["derive.keep"],
            "The data of a feature is to be dropped and differs between parts.",
            &extension(["drop", "drop"], [1, 2]),
        );
        group.good(
            "extension-keep-equal",
            &["derive.keep"],
            "The data of a feature is to be kept and is equal in all parts.",
            &extension(["keep", "keep"], [1, 1]),
        );
    }
}

fn conflicts(cases: &mut Cases) {
    let mut group = Group::new(cases, "extended", "two", Effect::SilentCorruption);
    // The entries of base `two`'s second part: seen, w of the optimizer, head, v, w.
    let entry = |name: &'static str, act: fn(&mut Value)| {
        Bend::new("another part").part(
            1,
            change("/entries", move |list| {
                let list = list.as_array_mut().expect("entries");
                let found =
                    list.iter_mut().find(|entry| entry["name"] == name && entry["role"] == "param");
                act(found.expect("an entry of the base"));
            }),
        )
    };
    let rules = &["derive.tensors"];
    for (slug, what, bend) in [
        ("dtype", "another dtype", entry("w", |entry| entry["dtype"] = json!("I32"))),
        (
            "native",
            "another name of a framework",
            entry("w", |entry| entry["native"] = json!([["x", ["a"]]])),
        ),
        ("valid", "another valid shape", entry("w", |entry| entry["valid"] = json!([3, 6]))),
    ] {
        group.bad(
            &format!("tensor-{slug}-differs"),
            rules,
            &format!("The second part gives a tensor {what} than the first."),
            &bend,
            Code::TensorConflict,
        );
    }
    group.bad(
        "tensor-shape-differs",
        rules,
        "The second part gives a tensor one row less than the first.",
        &entry("v", |entry| entry["shape"] = json!([6, 3])),
        Code::TensorConflict,
    );
    let rules = &["derive.aliases"];
    group.bad(
        "alias-differs",
        rules,
        "An alias names one tensor in the first part, another in the second.",
        &entry("head", |entry| entry["of"][2] = json!("v")),
        Code::AliasConflict,
    );
    group.bad(
        "alias-native-differs",
        rules,
        "An alias has a name of a framework in the second part alone.",
        &entry("head", |entry| entry["native"] = json!([["x", ["a"]]])),
        Code::AliasConflict,
    );
    group.bad(
        "alias-is-tensor",
        rules,
        "What is an alias in the first part is a tensor in the second.",
        &entry("head", |entry| *entry = json!({"chunks": [], "dtype": "F32", "name": "head", "role": "param", "shape": [4, 6]})),
        Code::AliasConflict,
    );
    let mut group = Group::new(cases, "extended", "two", Effect::WrongResume);
    let record = |edit| Bend::new("another part").part(1, edit);
    for (slug, what, edit) in [
        ("value", "has another value", set("/records/0/value/steps/0/step", json!(999))),
        ("member", "has a member less", remove("/records/0/value/groups/0/implementation")),
    ] {
        let bend = if slug == "member" {
            // In the first part alone the group says how it is computed.
            Bend::new("another part")
                .recipe(|recipe| {
                    recipe.writers[0].records.last_mut().expect("the optimizer")["value"]["groups"]
                        [0]["implementation"] = json!([]);
                    recipe.writers[1].records.last_mut().expect("the optimizer")["value"]["groups"]
                        [0]["implementation"] = json!([]);
                })
                .part(1, edit)
        } else {
            record(edit)
        };
        group.bad(
            &format!("record-{slug}-differs"),
            &["derive.records"],
            &format!("A record that both parts have {what} in the second."),
            &bend,
            Code::RecordConflict,
        );
    }
    let rules = &["record.grid"];
    let grid = |edit: fn(&mut Value)| {
        Bend::new("another coordinate").recipe(move |recipe| {
            let records = &mut recipe.writers[1].records;
            edit(
                records
                    .iter_mut()
                    .find(|record| record["kind"] == "value")
                    .expect("a record of the rank"),
            );
        })
    };
    group.bad(
        "grid-hole",
        rules,
        "Of the two places along an axis one has no record.",
        &Bend::new("a record less")
            .recipe(|recipe| recipe.writers[1].records.retain(|record| record["kind"] != "value")),
        Code::RecordGrid,
    );
    group.bad(
        "grid-axes-differ",
        rules,
        "Of two records of one name one varies along `dp`, the other along `tp`.",
        &grid(|record| record["coordinate"] = json!([["tp", 1]])),
        Code::RecordGrid,
    );
    group.bad(
        "grid-axes-more",
        rules,
        "Of two records of one name the second varies along one axis more.",
        &grid(|record| record["coordinate"] = json!([["dp", 1], ["tp", 0]])),
        Code::RecordGrid,
    );
    group.bad(
        "grid-and-none",
        rules,
        "Of two records of one name the second has no coordinate.",
        &grid(|record| _ = record.as_object_mut().expect("a record").remove("coordinate")),
        Code::RecordGrid,
    );
}
