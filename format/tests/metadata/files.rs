//! Every rule that a part or a manifest can break by itself, broken once.

use serde_json::{Value, json};
use waystation_format::{Code, Manifest, Part, Result, rule};

use crate::cases::Edit::{Add, Remove, Set};
use crate::cases::{Case, answers, check, long};
use crate::fixture;

fn parse_part(value: &Value) -> Result<Part> {
    Part::parse(fixture::bytes(value))
}

fn parse_manifest(value: &Value) -> Result<Manifest> {
    Manifest::parse(&fixture::bytes(value))
}

/// Rules about the members that parts and manifests share.
fn common_cases() -> Vec<Case> {
    use Code::*;
    use rule::*;
    vec![
        ("/format", Set(json!("other")), BadFormat, COMMON_FORMAT, "/format"),
        ("/format", Remove, BadFormat, COMMON_FORMAT, "/format"),
        ("/kind", Set(json!("tensors")), BadFormat, COMMON_FORMAT, "/kind"),
        ("/kind", Set(json!(1)), BadFormat, COMMON_FORMAT, "/kind"),
        ("/version", Set(json!("2.0")), UnsupportedVersion, VERSION_MAJOR, "/version"),
        ("/version", Set(json!("0.9")), UnsupportedVersion, VERSION_MAJOR, "/version"),
        ("/version", Set(json!("1")), BadMember, VERSION_FORM, "/version"),
        ("/version", Set(json!("1.00")), BadMember, VERSION_FORM, "/version"),
        ("/version", Set(json!("1.10000")), BadMember, VERSION_FORM, "/version"),
        ("/version", Set(json!("+1.0")), BadMember, VERSION_FORM, "/version"),
        ("/version", Remove, BadMember, JSON_UNKNOWN_MEMBER, ""),
        ("/features", Remove, BadMember, JSON_UNKNOWN_MEMBER, ""),
        (
            "/features/required",
            Set(json!(["zz"])),
            UnsupportedFeature,
            FEATURE_REQUIRED,
            "/features/required",
        ),
        (
            "/features/required",
            Set(json!(["shard-sha256"])),
            UnsupportedFeature,
            FEATURE_REQUIRED,
            "/features/required",
        ),
        ("/features/required", Remove, BadMember, JSON_UNKNOWN_MEMBER, "/features"),
        ("/features/required", Set(json!(["acme/x"])), BadMember, FEATURE_FORM, "/features"),
        (
            "/features/optional",
            Set(json!(["acme/x", "a"])),
            BadMember,
            FEATURE_FORM,
            "/features/optional/1",
        ),
        (
            "/features/optional",
            Set(json!(["acme/x", "acme/x"])),
            BadMember,
            FEATURE_FORM,
            "/features/optional/1",
        ),
        (
            "/features/optional",
            Set(json!(["Acme"])),
            BadMember,
            FEATURE_FORM,
            "/features/optional/0",
        ),
        ("/features/optional", Set(json!([""])), BadMember, FEATURE_FORM, "/features/optional/0"),
        ("/features/extra", Add(json!(1)), BadMember, JSON_UNKNOWN_MEMBER, "/features/extra"),
        ("/attempt", Set(json!("0000000390AB12CD")), BadMember, JSON_TYPES, "/attempt"),
        ("/attempt", Set(json!(7)), BadMember, JSON_TYPES, "/attempt"),
        ("/attempt", Remove, BadMember, JSON_UNKNOWN_MEMBER, ""),
        ("/block_bytes", Set(json!(4097)), BadMember, COMMON_BLOCK_BYTES, "/block_bytes"),
        ("/block_bytes", Set(json!(2048)), BadMember, COMMON_BLOCK_BYTES, "/block_bytes"),
        ("/block_bytes", Set(json!(1 << 25)), BadMember, COMMON_BLOCK_BYTES, "/block_bytes"),
        ("/parent", Set(json!("00")), BadMember, JSON_TYPES, "/parent"),
        ("/run", Set(json!("")), BadName, IDENTITY_NAME, "/run"),
        ("/run", Set(long(1025)), BadName, IDENTITY_NAME, "/run"),
        ("/run", Set(json!("a\u{202e}b")), BadName, IDENTITY_NAME, "/run"),
        ("/run", Set(json!("a\nb")), BadName, IDENTITY_NAME, "/run"),
        ("/step", Set(json!(1_000_000_000_000_u64)), Limit, LIMIT_VALUE, "/step"),
        ("/step", Set(json!(-1)), BadMember, JSON_TYPES, "/step"),
        ("/step", Set(json!("1")), BadMember, JSON_TYPES, "/step"),
        ("/topology/0/1", Set(json!(0)), BadMember, COMMON_TOPOLOGY, "/topology/0"),
        ("/topology/1/0", Set(json!("dp")), BadMember, COMMON_TOPOLOGY, "/topology/1"),
        ("/topology/0", Set(json!(["dp"])), BadMember, JSON_TYPES, "/topology/0"),
        ("/topology/0", Set(json!(["dp", 2, 3])), BadMember, JSON_TYPES, "/topology/0"),
        ("/topology", Set(axes(17)), Limit, LIMIT_VALUE, "/topology/16"),
        ("/topology/0/0", Set(json!("")), BadName, IDENTITY_NAME, "/topology/0/0"),
        ("/writers", Set(json!(0)), BadMember, JSON_TYPES, "/writers"),
        ("/writers", Set(json!(65537)), Limit, LIMIT_VALUE, "/writers"),
        ("/zzz", Add(json!(1)), BadMember, JSON_UNKNOWN_MEMBER, "/zzz"),
        ("/aaa", Add(json!(1)), BadMember, JSON_UNKNOWN_MEMBER, "/aaa"),
        ("/omitted/0/names", Set(json!([])), BadMember, PART_OMITTED, "/omitted/0/names"),
        ("/omitted/0/names", Set(json!(["b", "a"])), BadMember, PART_OMITTED, "/omitted/0/names/1"),
        ("/omitted/0/reason", Set(json!("lost")), BadMember, JSON_TYPES, "/omitted/0/reason"),
        ("/omitted/0/component", Remove, BadMember, JSON_UNKNOWN_MEMBER, "/omitted/0"),
        (
            "/omitted/1",
            Add(json!({"component": "main", "names": ["c"], "reason": "base"})),
            BadMember,
            PART_OMITTED,
            "/omitted/1",
        ),
    ]
}

fn axes(count: usize) -> Value {
    (0..count).map(|axis| json!([format!("a{axis}"), 4])).collect()
}

/// Rules about members that stand in a part and, under `/parts/0`, in a manifest.
fn part_cases(at: &'static str) -> Vec<Case> {
    use Code::*;
    use rule::*;
    let cases = vec![
        (
            "/attachments/0/path",
            Set(json!("../x")),
            BadPath,
            ATTACHMENT_PATH,
            "/attachments/0/path",
        ),
        ("/attachments/0/bytes", Set(json!(-1)), BadMember, JSON_TYPES, "/attachments/0/bytes"),
        ("/attachments/0/sha256", Remove, BadMember, JSON_UNKNOWN_MEMBER, "/attachments/0"),
        (
            "/extensions/acme~1x/on_rewrite",
            Set(json!("lose")),
            BadMember,
            JSON_TYPES,
            "/extensions/acme~1x/on_rewrite",
        ),
        (
            "/extensions/acme~1x/value",
            Remove,
            BadMember,
            JSON_UNKNOWN_MEMBER,
            "/extensions/acme~1x",
        ),
        (
            "/extensions/other",
            Add(json!({"on_rewrite": "keep", "value": 1})),
            BadMember,
            PART_EXTENSIONS,
            "/extensions/other",
        ),
        ("/inc", Set(json!("5F0C0000000000E1")), BadMember, JSON_TYPES, "/inc"),
        ("/shards/0/class", Set(json!("optim")), BadMember, JSON_TYPES, "/shards/0/class"),
        ("/shards/0/bytes", Set(json!("1")), BadMember, JSON_TYPES, "/shards/0/bytes"),
        ("/shards/0/crc_table", Remove, BadMember, JSON_UNKNOWN_MEMBER, "/shards/0"),
        (
            "/shards/0/crc_table/crc32c",
            Set(json!("0102030")),
            BadMember,
            JSON_TYPES,
            "/shards/0/crc_table/crc32c",
        ),
        (
            "/shards/0/crc_table/crc32c",
            Set(json!("+1020304")),
            BadMember,
            JSON_TYPES,
            "/shards/0/crc_table/crc32c",
        ),
        ("/shards/0/crc_table/count", Set(json!(0)), BadMember, PART_TABLE, "/shards/0"),
        ("/shards/0/crc_table/count", Set(json!(4096)), BadMember, PART_TABLE, "/shards/0"),
        ("/shards/0/crc_table/offset", Set(json!(20480)), BadMember, PART_TABLE, "/shards/0"),
        (
            "/shards/0/crc_table/offset",
            Set(json!(9_007_199_254_740_991_i64)),
            BadMember,
            PART_TABLE,
            "/shards/0",
        ),
        (
            "/shards/0/crc_table/more",
            Add(json!(1)),
            BadMember,
            JSON_UNKNOWN_MEMBER,
            "/shards/0/crc_table/more",
        ),
    ];
    let under = |pointer: &str| -> &'static str { format!("{at}{pointer}").leak() };
    cases
        .into_iter()
        .map(|(pointer, edit, code, rule, place)| (under(pointer), edit, code, rule, under(place)))
        .collect()
}

#[test]
fn a_part_breaks_each_rule_with_its_own_answer() {
    use Code::*;
    use rule::*;
    let mut cases = common_cases();
    cases.extend(part_cases(""));
    cases.extend([
        ("/writer", Set(json!(1)), BadMember, PART_WRITER, "/writer"),
        ("/writer", Set(json!(1_u64 << 40)), BadMember, PART_WRITER, "/writer"),
        (
            "/attachments/1/path",
            Set(json!("CONFIG.json/x")),
            BadPath,
            ATTACHMENT_UNIQUE,
            "/attachments",
        ),
        ("/inventory/count", Remove, BadMember, JSON_UNKNOWN_MEMBER, "/inventory"),
        ("/inventory/sha256", Set(json!("")), BadMember, JSON_TYPES, "/inventory/sha256"),
        ("/producer/name", Set(long(1025)), Limit, LIMIT_VALUE, "/producer/name"),
        ("/producer/version", Remove, BadMember, JSON_UNKNOWN_MEMBER, "/producer"),
        ("/records/1/name", Set(json!("zz")), BadOrder, PART_RECORDS, "/records/2"),
        (
            "/records/0",
            Set(json!({"kind": "progress", "name": "main", "value": []})),
            BadMember,
            RECORD_VALUE,
            "/records/0/value",
        ),
        ("/entries/1/chunks/0/0", Set(json!(2)), BadChunk, CHUNK_SHARD, "/entries/1/chunks/0"),
        (
            "/entries/1/chunks/0",
            Set(json!([1, 4608, [0], [5]])),
            BadMember,
            JSON_TYPES,
            "/entries/1/chunks/0",
        ),
        ("/entries/4/name", Set(json!("zzz")), BadOrder, PART_ENTRIES, "/entries/5"),
    ]);
    // Entries: 0 critic moment, 1 blob, 2 buffer none, 3 buffer steps, 4 param big, 5 param embed,
    // 6 alias head, 7 quant scale.
    let part = fixture::part();
    // The blob comes first of the main component whatever its name.
    cases.pop();
    check(&part, cases, parse_part);
}

#[test]
fn a_part_without_all_that_may_be_left_out_is_sound() {
    let mut part = fixture::part();
    for member in ["attachments", "entries", "records", "omitted", "shards"] {
        part[member] = json!([]);
    }
    part["extensions"] = json!({});
    part["inventory"] = json!(null);
    part["parent"] = json!(null);
    part["topology"] = json!([]);
    let part = parse_part(&part).unwrap();
    assert_eq!((part.entries().count(), part.records().count()), (0, 0));
}

#[test]
fn lists_have_limits() {
    let mut manifest = fixture::manifest(b"", b"");
    let shards = &mut manifest["parts"][0]["shards"];
    *shards = Value::from(vec![shards[1].clone(); 65536]);
    assert_eq!(parse_manifest(&manifest).unwrap().parts[0].shards.len(), 65536);
    let shards = manifest["parts"][0]["shards"].as_array_mut().unwrap();
    shards.push(shards[0].clone());
    let error = parse_manifest(&manifest).unwrap_err();
    assert!(answers(&error, Code::Limit, rule::LIMIT_VALUE, "/parts/0/shards/65536"), "{error}");
}

#[test]
fn later_minors_and_optional_features_are_read() {
    let mut part = fixture::part();
    part["version"] = json!("1.9999");
    part["features"]["optional"] = json!(["acme/x", "shard-sha256", "zz"]);
    parse_part(&part).unwrap();
}

#[test]
fn a_manifest_breaks_each_rule_with_its_own_answer() {
    use Code::*;
    use rule::*;
    let mut cases = common_cases();
    cases.extend(part_cases("/parts/0"));
    cases.extend([
        ("/writers", Set(json!(2)), BadMember, MANIFEST_PARTS, "/parts"),
        ("/parts", Set(json!([])), BadMember, MANIFEST_PARTS, "/parts"),
        (
            "/parts/0/attachments/1/path",
            Set(json!("Config.JSON")),
            BadPath,
            ATTACHMENT_UNIQUE,
            "/parts",
        ),
        ("/parts/0/sha256", Set(json!(null)), BadMember, JSON_TYPES, "/parts/0/sha256"),
        ("/parts/0/bytes", Set(json!(268_435_457)), Limit, LIMIT_VALUE, "/parts/0/bytes"),
        ("/tensors/0/bytes", Set(json!(268_435_457)), Limit, LIMIT_VALUE, "/tensors/0/bytes"),
        ("/records/0/bytes", Set(json!(268_435_457)), Limit, LIMIT_VALUE, "/records/0/bytes"),
        ("/contents/0/0", Set(json!("zzz")), BadMember, JSON_TYPES, "/contents/1"),
        (
            "/contents/0/1/0/0",
            Set(json!("weird")),
            UnsupportedRole,
            IDENTITY_ROLE,
            "/contents/0/1/0/0",
        ),
        ("/contents/0/1/0/1", Set(json!(0)), BadMember, JSON_TYPES, "/contents/0/1/0/1"),
        ("/contents/0/1/0/1", Set(json!(4_194_305)), Limit, LIMIT_VALUE, "/contents/0/1/0/1"),
        ("/contents/1/1/0/0", Set(json!("param")), BadMember, JSON_TYPES, "/contents/1/1/1"),
        ("/tensors/0/first", Set(json!("x")), BadMember, JSON_TYPES, "/tensors/0/first"),
        (
            "/tensors/0/first/1",
            Set(json!("x")),
            UnsupportedRole,
            IDENTITY_ROLE,
            "/tensors/0/first/1",
        ),
        ("/tensors/0/first/5/0/1", Set(json!(4)), BadIdentity, IDENTITY_SCOPE, "/tensors/0/first"),
        ("/tensors/0/first/3", Set(json!("")), BadIdentity, IDENTITY_SLOT, "/tensors/0/first"),
        ("/tensors/0/sha256", Remove, BadMember, JSON_UNKNOWN_MEMBER, "/tensors/0"),
        (
            "/records/0/first/2",
            Set(json!([["pp", 0]])),
            BadIdentity,
            RECORD_COORDINATE,
            "/records/0/first",
        ),
        ("/records/0/first", Set(json!(["a", "b"])), BadMember, JSON_TYPES, "/records/0/first"),
    ]);
    let manifest = fixture::manifest(b"", b"");
    check(&manifest, cases, parse_manifest);
    let mut twice = manifest;
    let page = twice["tensors"][0].clone();
    twice["tensors"].as_array_mut().unwrap().push(page);
    let error = parse_manifest(&twice).unwrap_err();
    assert!(answers(&error, BadOrder, MANIFEST_FIRSTS, "/tensors/1"), "{error}");
}

#[test]
fn what_is_not_canonical_is_seen_before_all_else() {
    let mut bytes = fixture::bytes(&fixture::part());
    bytes.push(b'\n');
    let error = Part::parse(bytes.clone()).unwrap_err();
    assert_eq!((error.code(), error.rule_id()), (Code::NotCanonical, Some(rule::JSON_ONE_VALUE)));
    assert_eq!(error.location().offset, Some(bytes.len() as u64 - 1));
}

#[test]
fn the_order_of_checks_is_that_of_the_spec() {
    // Each fault hides those after it.
    let mut manifest = fixture::manifest(b"", b"");
    let faults = [
        ("writers", json!(0), rule::JSON_TYPES),
        ("step", json!(-1), rule::JSON_TYPES),
        ("attempt", json!(1), rule::JSON_TYPES),
        ("features", json!({"optional": [], "required": ["zz"]}), rule::FEATURE_REQUIRED),
        ("version", json!("2.0"), rule::VERSION_MAJOR),
        ("kind", json!("part"), rule::COMMON_FORMAT),
    ];
    for (member, value, rule) in faults {
        manifest[member] = value;
        let error = parse_manifest(&manifest).unwrap_err();
        assert_eq!(error.rule_id(), Some(rule), "{error}");
        assert!(error.location().pointer.as_deref().unwrap().starts_with(&format!("/{member}")));
    }
}

#[test]
fn rules_about_several_members_come_after_all_of_them_by_chapter() {
    // Each fault hides those before it.
    let mut manifest = fixture::manifest(b"", b"");
    let faults = [
        ("/records/0/first/2", json!([["pp", 0]]), rule::RECORD_COORDINATE),
        ("/writers", json!(2), rule::MANIFEST_PARTS),
        ("/parts/0/attachments/1/path", json!("Config.JSON"), rule::ATTACHMENT_UNIQUE),
        ("/features", json!({"optional": [], "required": []}), rule::PART_EXTENSIONS),
        ("/tensors/0/first/5/0/1", json!(4), rule::IDENTITY_SCOPE),
        ("/topology/0/1", json!(0), rule::COMMON_TOPOLOGY),
    ];
    for (pointer, value, rule) in faults {
        *manifest.pointer_mut(pointer).unwrap() = value;
        let error = parse_manifest(&manifest).unwrap_err();
        assert_eq!(error.rule_id(), Some(rule), "{error}");
    }
}

#[test]
fn entries_and_records_of_a_part_come_after_its_members() {
    // Each fault hides those before it.
    let mut part = fixture::part();
    let faults = [
        ("/records/0/value", json!(1), rule::RECORD_VALUE),
        ("/entries/0/role", json!("weird"), rule::IDENTITY_ROLE),
        ("/features", json!({"optional": [], "required": []}), rule::PART_EXTENSIONS),
        ("/writer", json!(70_000), rule::PART_WRITER),
        ("/records", json!({}), rule::JSON_TYPES),
        ("/entries", json!(1), rule::JSON_TYPES),
    ];
    for (pointer, value, rule) in faults {
        *part.pointer_mut(pointer).unwrap() = value;
        let error = parse_part(&part).unwrap_err();
        assert_eq!(error.rule_id(), Some(rule), "{error}");
    }
}

#[test]
fn named_files_are_those_of_the_metadata_in_order() {
    let (tensors, records) = (b"tensors".as_slice(), b"records".as_slice());
    let manifest = parse_manifest(&fixture::manifest(tensors, records)).unwrap();
    let files = manifest.named_files().unwrap();
    let names: Vec<&str> = files.iter().map(|file| file.name.as_str()).collect();
    let part = format!("part-00000-{}.json", &manifest.parts[0].sha256.to_string()[..16]);
    let expected = [
        "attachment-00000-5f0c0000000000e1-00000",
        "attachment-00000-5f0c0000000000e1-00001",
        "model-00000-5f0c0000000000e1-00000.safetensors",
        &part,
        "records-00000.json",
        "state-00000-5f0c0000000000e1-00001.safetensors",
        "tensors-00000.json",
    ];
    assert_eq!(names, expected);
    let lengths: Vec<u64> = files.iter().map(|file| file.bytes).collect();
    assert_eq!(lengths, [10, 10, 20480, manifest.parts[0].bytes, 7, 8192, 7]);
    let shards = files.iter().filter(|file| file.digest.is_none()).count();
    assert_eq!(shards, 2);
    assert_eq!(manifest.encode().unwrap(), fixture::bytes(&fixture::manifest(tensors, records)));
}

#[test]
fn an_encoder_refuses_what_a_reader_would() {
    let mut content = fixture::content();
    content.common.step = 1 << 60;
    assert_eq!(content.encode().unwrap_err().code(), Code::NotCanonical);
    let mut content = fixture::content();
    content.extensions[0].value = "{ }".to_owned();
    assert_eq!(content.encode().unwrap_err().code(), Code::NotCanonical);
    let mut content = fixture::content();
    content.entries.push(content.entries[0].clone());
    assert_eq!(content.encode().unwrap_err().code(), Code::BadOrder);
}
