//! Chapters 7.1 and 13: members that parts and manifest share, versions, features. Forms that break no
//! rule but that of types are in `forms`.

use serde_json::{Value, json};
use waystation_format::Code;

use super::Cases;
use super::group::Group;
use crate::bend::{Bend, change, remove, set};
use crate::case::Effect;

pub(super) fn add(cases: &mut Cases) {
    versions(cases);
    formats(cases);
    features(cases);
    extensions(cases);
    numbers(cases);
    topologies(cases);
    runs(cases);
    writers(cases);
}

fn versions(cases: &mut Cases) {
    let mut group = Group::new(cases, "core", "bare", Effect::Ambiguity);
    for (slug, version) in [("2-0", "2.0"), ("0-9", "0.9"), ("9999-0", "9999.0"), ("11-0", "11.0")]
    {
        group.bad(
            &format!("version-{slug}"),
            &["version.major"],
            &format!(
                "The checkpoint is of version {version}, and all else of it would be right in 1.0."
            ),
            &Bend::new("another major version").version(version),
            Code::UnsupportedVersion,
        );
    }
    for (slug, version, what) in [
        ("one-number", "1", "one number"),
        ("three-numbers", "1.0.0", "three numbers"),
        ("leading-zero", "01.0", "a leading zero"),
        ("leading-zero-minor", "1.00", "a leading zero after the dot"),
        ("minor-above", "1.10000", "a minor version of five digits"),
        ("major-above", "10000.0", "a major version of five digits"),
        ("sign", "1.-1", "a sign"),
        ("letter", "v1.0", "a letter"),
        ("space", " 1.0", "a space"),
        ("newline", "1.0\n", "a newline after it"),
        ("exponent", "1.0e1", "an exponent"),
        ("comma", "1,0", "a comma"),
        ("empty", "", "no character"),
        ("wide-digit", "1.\u{ff10}", "a digit that is not ASCII"),
    ] {
        group.bad(
            &format!("version-{slug}"),
            &["version.form"],
            &format!("`version` has {what}."),
            &Bend::new("another form").version(version),
            Code::BadMember,
        );
    }
    group.bad(
        "version-number",
        &["json.types", "version.form"],
        "`version` is a number.",
        &Bend::new("another type").manifest(set("/version", json!(1))),
        Code::BadMember,
    );
    for (profile, version) in [("core", "1.9999"), ("extended", "1.9999"), ("core", "1.10")] {
        let slug = version.replace('.', "-");
        Group::new(cases, profile, "bare", Effect::LostCheckpoint).good(
            &format!("version-{slug}"),
            &["version.minor", "version.form", "version.major"],
            &format!("The checkpoint is of version {version}, which is as good as 1.0."),
            &Bend::new("a later minor version").version(version),
        );
    }
    let mut group = Group::new(cases, "core", "bare", Effect::Ambiguity);
    for kind in ["tensors", "records"] {
        group.bad(
            &format!("version-of-page-of-{kind}"),
            &["open.page-version"],
            &format!("The page of {kind} is of version 1.1, the manifest of 1.0."),
            &Bend::new("another minor version").page(kind, 0, set("/version", json!("1.1"))),
            Code::BadMember,
        );
        group.bad(
            &format!("version-major-of-page-of-{kind}"),
            &["version.major"],
            &format!("The page of {kind} is of version 2.0, the manifest of 1.0."),
            &Bend::new("another major version").page(kind, 0, set("/version", json!("2.0"))),
            Code::UnsupportedVersion,
        );
        group.bad(
            &format!("version-form-of-page-of-{kind}"),
            &["version.form"],
            &format!("The version of the page of {kind} has one number."),
            &Bend::new("another form").page(kind, 0, set("/version", json!("1"))),
            Code::BadMember,
        );
    }
}

fn formats(cases: &mut Cases) {
    let mut group = Group::new(cases, "core", "bare", Effect::Ambiguity);
    let rules = &["common.format"];
    let mut bad = |slug: &str, fault: &str, bend: Bend| {
        group.bad(&format!("manifest-{slug}"), rules, fault, &bend, Code::BadFormat);
    };
    let format = |value: Value| Bend::new("another format").manifest(set("/format", value));
    bad("format-other", "`format` is `safetensors`.", format(json!("safetensors")));
    bad("format-case", "`format` is `Waystation`.", format(json!("Waystation")));
    bad("format-number", "`format` is a number.", format(json!(1)));
    bad(
        "format-absent",
        "`format` is left out.",
        Bend::new("a member less").manifest(remove("/format")),
    );
    bad(
        "kind-part",
        "`kind` is `part`.",
        Bend::new("another kind").manifest(set("/kind", json!("part"))),
    );
    bad("kind-absent", "`kind` is left out.", Bend::new("a member less").manifest(remove("/kind")));
    for (what, slug, file) in [("tensors", "page", 0), ("records", "record-page", 0)] {
        let mut bad = |kind: &str, rule: &str, fault: &str, bend: Bend| {
            let slug = format!("{slug}-{kind}");
            group.bad(
                &slug,
                &[rule],
                &format!("In a page of {what} {fault}."),
                &bend,
                Code::BadFormat,
            );
        };
        let other = if what == "tensors" { "records" } else { "tensors" };
        let edit = |member: &str, value: Value| {
            Bend::new("another value").page(what, file, set(member, value))
        };
        bad("format-other", "common.format", "`format` is another", edit("/format", json!("ws")));
        bad(
            "kind-other",
            "page.number",
            "`kind` is of the other kind",
            edit("/kind", json!(other)),
        );
        bad(
            "kind-manifest",
            "page.number",
            "`kind` is `manifest`",
            edit("/kind", json!("manifest")),
        );
        bad(
            "number-one",
            "page.number",
            "`page` is 1, and it is the first",
            edit("/page", json!(1)),
        );
        let bend = Bend::new("a member less").page(what, file, remove("/format"));
        bad("format-absent", "common.format", "`format` is left out", bend);
        group.bad(
            &format!("{slug}-number-negative"),
            &["json.types"],
            &format!("In a page of {what} `page` is -1."),
            &edit("/page", json!(-1)),
            Code::BadMember,
        );
        group.bad(
            &format!("{slug}-number-string"),
            &["json.types"],
            &format!("In a page of {what} `page` is a string."),
            &edit("/page", json!("0")),
            Code::BadMember,
        );
    }
}

fn features(cases: &mut Cases) {
    let mut group = Group::new(cases, "core", "bare", Effect::Ambiguity);
    let set_to = |optional: Value, required: Value| {
        Bend::new("other features")
            .manifest(set("/features", json!({"optional": optional, "required": required})))
    };
    for (slug, name) in [
        ("unknown", "example.org/later"),
        ("of-registry", "shard-sha512"),
        ("reserved", "shard-sha256"),
    ] {
        group.bad(
            &format!("feature-required-{slug}"),
            &["feature.required"],
            &format!("The checkpoint requires the feature `{name}`, which nobody knows."),
            &set_to(json!([]), json!([name])),
            Code::UnsupportedFeature,
        );
    }
    let rules = &["feature.form"];
    let mut bad = |slug: &str, fault: &str, optional: Value, required: Value| {
        let bend = set_to(optional, required);
        group.bad(&format!("feature-{slug}"), rules, fault, &bend, Code::BadMember);
    };
    bad("in-both", "A feature is optional and required.", json!(["x/a"]), json!(["x/a"]));
    bad("unsorted", "Optional features are not sorted.", json!(["x/b", "x/a"]), json!([]));
    bad("twice", "An optional feature stands twice.", json!(["x/a", "x/a"]), json!([]));
    bad("upper-case", "A feature has a capital letter.", json!(["x/A"]), json!([]));
    bad("underscore", "A feature has an underscore.", json!(["x/a_b"]), json!([]));
    bad("empty", "A feature is the empty string.", json!([""]), json!([]));
    bad("newline", "A feature ends in a newline.", json!(["x/a\n"]), json!([]));
    bad("65-bytes", "A feature has 65 bytes.", json!(["a".repeat(65)]), json!([]));
    bad("required-unsorted", "Required features are not sorted.", json!([]), json!(["x/b", "x/a"]));
    for (slug, value) in [("null", json!(null)), ("list", json!([])), ("string", json!("none"))] {
        group.bad(
            &format!("features-{slug}"),
            &["json.types"],
            "`features` is no object.",
            &Bend::new("another type").manifest(set("/features", value)),
            Code::BadMember,
        );
    }
    for profile in ["core", "extended"] {
        Group::new(cases, profile, "bare", Effect::LostCheckpoint).good(
            "feature-64-bytes",
            rules,
            "Optional features of one and of 64 bytes, of all characters that there are, without data.",
            &Bend::new("optional features").recipe(|recipe| {
                let names = json!([".", "/", "0-9/a.z", "a".repeat(64)]);
                let features = json!({"optional": names, "required": []});
                recipe.writers[0].members.insert("features".into(), features);
            }),
        );
    }
}

/// Data of features, which stand in the manifest as the parts gave them.
fn extensions(cases: &mut Cases) {
    let mut group = Group::new(cases, "core", "bare", Effect::Ambiguity);
    let with = |data: Value| {
        Bend::new("extension data").recipe(move |recipe| {
            let members = &mut recipe.writers[0].members;
            members.insert("features".into(), json!({"optional": ["x/a"], "required": []}));
            members.insert("extensions".into(), data.clone());
        })
    };
    let rules = &["part.extensions"];
    let data = json!({"on_rewrite": "keep", "value": 1});
    group.bad(
        "extension-unnamed",
        rules,
        "There is data of a feature that `features` does not name.",
        &with(json!({"x/b": data})),
        Code::BadMember,
    );
    group.bad(
        "extension-on-rewrite-other",
        &["json.types"],
        "`on_rewrite` of extension data is `maybe`.",
        &with(json!({"x/a": {"on_rewrite": "maybe", "value": 1}})),
        Code::BadMember,
    );
    group.bad(
        "extension-without-value",
        &["json.unknown-member"],
        "Extension data has no `value`.",
        &with(json!({"x/a": {"on_rewrite": "keep"}})),
        Code::BadMember,
    );
    group.bad(
        "extension-unknown-member",
        &["json.unknown-member"],
        "Extension data has a member more.",
        &with(json!({"x/a": {"on_rewrite": "keep", "type": "x", "value": 1}})),
        Code::BadMember,
    );
    group.bad(
        "extensions-list",
        &["json.types"],
        "`extensions` is a list.",
        &with(json!([data])),
        Code::BadMember,
    );
    let strange =
        json!({"f64": "nan", "of": [], "": null, "__proto__": {"a": [[], {}, "\u{0}\u{feff}"]}});
    for profile in ["core", "extended"] {
        Group::new(cases, profile, "bare", Effect::LostCheckpoint).good(
            "extension-any-value",
            rules,
            "The data of an optional feature is JSON of any form.",
            &with(json!({"x/a": {"on_rewrite": "keep", "value": strange}})),
        );
    }
}

fn numbers(cases: &mut Cases) {
    let mut group = Group::new(cases, "core", "bare", Effect::Exhaustion);
    for (slug, value) in [
        ("half", json!(2048)),
        ("odd", json!(4097)),
        ("no-power", json!(12_288)),
        ("double", json!(33_554_432)),
        ("zero", json!(0)),
        ("one", json!(1)),
        ("two-to-the-52", json!(1_u64 << 52)),
    ] {
        group.bad(
            &format!("block-bytes-{slug}"),
            &["common.block-bytes"],
            &format!("`block_bytes` is {value}."),
            &Bend::new("another size").manifest(set("/block_bytes", value.clone())),
            Code::BadMember,
        );
    }
    for (slug, bytes) in [("largest", 16_777_216_u64), ("middle", 65_536)] {
        Group::new(cases, "core", "small", Effect::LostCheckpoint).good(
            &format!("block-bytes-{slug}"),
            &["common.block-bytes"],
            &format!("`block_bytes` is {bytes}."),
            &Bend::new("another size").recipe(move |recipe| recipe.block_bytes = bytes),
        );
    }
    let stepped = |step: u64| {
        Bend::new("another step").recipe(move |recipe| {
            recipe.step = step;
            recipe.writers[0].records[0]["value"]["optimizer_step"] = json!(step);
        })
    };
    for (slug, step) in [("zero", 0), ("limit", 999_999_999_999)] {
        for profile in ["core", "extended"] {
            Group::new(cases, profile, "bare", Effect::LostCheckpoint).good(
                &format!("step-{slug}"),
                &["limit.value"],
                &format!("The step is {step}."),
                &stepped(step),
            );
        }
    }
    let mut group = Group::new(cases, "core", "bare", Effect::Ambiguity);
    for (slug, step) in [("above", 1_000_000_000_000), ("largest", 9_007_199_254_740_991)] {
        group.bad(
            &format!("step-{slug}"),
            &["limit.value"],
            &format!("The step is {step}, which has more than twelve digits."),
            &stepped(step),
            Code::Limit,
        );
    }
}

fn topologies(cases: &mut Cases) {
    let axes =
        |count: u64| -> Value { (0..count).map(|n| json!([format!("a{n:02}"), 1])).collect() };
    let with = |topology: Value| {
        Bend::new("another topology").recipe(move |recipe| {
            recipe.topology = serde_json::from_value(topology.clone()).expect("axes and sizes");
        })
    };
    let mut group = Group::new(cases, "core", "bare", Effect::Ambiguity);
    let rules = &["common.topology"];
    let bad: [(&str, &[&str], &str, Bend, Code); 7] = [
        (
            "twice",
            rules,
            "names an axis twice",
            with(json!([["dp", 1], ["dp", 1]])),
            Code::BadMember,
        ),
        ("size-zero", rules, "has an axis of size 0", with(json!([["dp", 0]])), Code::BadMember),
        ("17", &["limit.value"], "has 17 axes", with(axes(17)), Code::Limit),
        (
            "name-empty",
            &["identity.name"],
            "has an axis without a name",
            with(json!([["", 1]])),
            Code::BadName,
        ),
        (
            "name-control",
            &["identity.name"],
            "has an axis with a newline in its name",
            with(json!([["d\np", 1]])),
            Code::BadName,
        ),
        (
            "three",
            &["json.types"],
            "has an axis of three values",
            Bend::new("a value more").manifest(change("/topology/0", |axis| {
                axis.as_array_mut().expect("an axis").push(json!(1));
            })),
            Code::BadMember,
        ),
        (
            "object",
            &["json.types"],
            "is an object of axes",
            Bend::new("another type").manifest(set("/topology", json!({"dp": 1}))),
            Code::BadMember,
        ),
    ];
    for (slug, rules, what, bend, code) in bad {
        group.bad(&format!("topology-{slug}"), rules, &format!("`topology` {what}."), &bend, code);
    }
    for (slug, what, topology) in [
        ("16", "has sixteen axes", axes(16)),
        ("empty", "has no axes", json!([])),
        ("huge", "has an axis of 2^53 - 1 places", json!([["dp", 9_007_199_254_740_991_u64]])),
        ("case", "has two axes that differ by case", json!([["dp", 1], ["DP", 1]])),
    ] {
        for profile in ["core", "extended"] {
            Group::new(cases, profile, "bare", Effect::LostCheckpoint).good(
                &format!("topology-{slug}"),
                &["common.topology", "open.memory"],
                &format!("`topology` {what}."),
                &with(topology.clone()),
            );
        }
    }
}

/// The name of the run; names of tensors are with identities.
fn runs(cases: &mut Cases) {
    let named =
        |name: String| Bend::new("another name").recipe(move |recipe| recipe.run.clone_from(&name));
    let rules = &["identity.name"];
    let mut group = Group::new(cases, "core", "bare", Effect::Deception);
    for (slug, what, name) in [
        ("empty", "is empty", String::new()),
        ("1025-bytes", "has 1025 bytes", "r".repeat(1025)),
        (
            "1025-bytes-wide",
            "has 1025 bytes in 343 characters",
            format!("{}rr", "\u{20ac}".repeat(341)),
        ),
        ("nul", "has a NUL", "ru\u{0}n".into()),
        ("escape", "has an escape sequence of terminals", "\u{1b}[31mrun".into()),
        ("delete", "has a DEL", "run\u{7f}".into()),
        ("c1", "has a control character of Latin 1", "run\u{9b}0m".into()),
        ("right-to-left", "turns the direction of text around", "run\u{202e}nur".into()),
        ("line-separator", "has a line separator", "run\u{2028}1".into()),
    ] {
        let fault = format!("The name of the run {what}.");
        group.bad(&format!("run-name-{slug}"), rules, &fault, &named(name), Code::BadName);
    }
    for (slug, what, name) in [
        ("1024-bytes", "has 1024 bytes", "r".repeat(1024)),
        ("path", "looks like a path", "../../etc/passwd".into()),
        ("spaces", "is one space", " ".into()),
        (
            "wide",
            "has characters beyond U+FFFF, and a combining one",
            "e\u{301}\u{1f680}\u{10ffff}".into(),
        ),
        ("markup", "has quotes, a backslash and markup", "\"\\<b>%s{}$(x)".into()),
    ] {
        Group::new(cases, "core", "bare", Effect::LostCheckpoint).good(
            &format!("run-name-{slug}"),
            rules,
            &format!("The name of the run {what}."),
            &named(name),
        );
    }
}

fn writers(cases: &mut Cases) {
    let mut group = Group::new(cases, "core", "bare", Effect::HalfWritten);
    let writers = |value: u64| Bend::new("another number").manifest(set("/writers", json!(value)));
    group.bad(
        "writers-zero",
        &["json.types"],
        "The checkpoint has no writers.",
        &writers(0),
        Code::BadMember,
    );
    group.bad(
        "writers-above",
        &["limit.value"],
        "The checkpoint has 65537 writers.",
        &writers(65_537),
        Code::Limit,
    );
    group.bad(
        "writers-more-than-parts",
        &["manifest.parts"],
        "The checkpoint has two writers and the part of one.",
        &writers(2),
        Code::BadMember,
    );
    group.bad(
        "writers-most",
        &["manifest.parts", "open.memory"],
        "The checkpoint has 65536 writers and the part of one.",
        &writers(65_536),
        Code::BadMember,
    );
    group.bad(
        "parts-empty",
        &["manifest.parts"],
        "The manifest lists no part.",
        &Bend::new("an empty list").manifest(set("/parts", json!([]))),
        Code::BadMember,
    );
    Group::new(cases, "core", "two", Effect::HalfWritten).bad(
        "writers-fewer-than-parts",
        &["manifest.parts"],
        "The checkpoint has one writer and the parts of two.",
        &writers(1),
        Code::BadMember,
    );
}
