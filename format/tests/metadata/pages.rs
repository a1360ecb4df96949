//! Every rule that one page can break by itself, broken once.

use serde_json::{Value, json};
use waystation_format::page::{RecordPage, TensorPage};
use waystation_format::{Code, Manifest, Result, rule};

use crate::cases::Edit::{Add, Remove, Set};
use crate::cases::{Case, answers, check, long};
use crate::fixture;

fn parse_manifest(value: &Value) -> Result<Manifest> {
    Manifest::parse(&fixture::bytes(value))
}

fn parse_tensors(value: &Value) -> Result<TensorPage> {
    let bytes = fixture::bytes(value);
    let manifest = parse_manifest(&fixture::manifest(&bytes, b"")).unwrap();
    TensorPage::parse(&bytes, &manifest, 0)
}

fn parse_records(value: &Value) -> Result<RecordPage> {
    let bytes = fixture::bytes(value);
    let manifest = parse_manifest(&fixture::manifest(b"", &bytes)).unwrap();
    RecordPage::parse(&bytes, &manifest, 0)
}

#[test]
fn a_page_of_tensors_breaks_each_rule_with_its_own_answer() {
    use Code::*;
    use rule::*;
    let axes17 = || json!([1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1]);
    let cases: Vec<Case> = vec![
        ("/format", Set(json!("x")), BadFormat, COMMON_FORMAT, "/format"),
        ("/kind", Set(json!("records")), BadFormat, PAGE_NUMBER, "/kind"),
        ("/version", Set(json!("1.1")), BadMember, OPEN_PAGE_VERSION, "/version"),
        ("/version", Set(json!("x")), BadMember, VERSION_FORM, "/version"),
        ("/page", Set(json!(1)), BadFormat, PAGE_NUMBER, "/page"),
        ("/page", Remove, BadMember, JSON_UNKNOWN_MEMBER, ""),
        ("/more", Add(json!(1)), BadMember, JSON_UNKNOWN_MEMBER, "/more"),
        ("/entries", Set(json!([])), BadOrder, PAGE_ORDER, "/entries"),
        ("/entries/0", Remove, BadOrder, PAGE_ORDER, "/entries/0"),
        ("/entries/4/name", Set(json!("zz")), BadOrder, PAGE_ORDER, "/entries/5"),
        ("/entries/5/name", Set(json!("big")), BadOrder, PAGE_ORDER, "/entries/5"),
        // identity
        ("/entries/4/name", Set(json!("")), BadName, IDENTITY_NAME, "/entries/4/name"),
        ("/entries/4/name", Set(json!("a\u{85}")), BadName, IDENTITY_NAME, "/entries/4/name"),
        ("/entries/4/name", Set(json!("a\u{61c}")), BadName, IDENTITY_NAME, "/entries/4/name"),
        ("/entries/4/name", Set(json!("a\u{2066}")), BadName, IDENTITY_NAME, "/entries/4/name"),
        (
            "/entries/4/role",
            Set(json!("weight")),
            UnsupportedRole,
            IDENTITY_ROLE,
            "/entries/4/role",
        ),
        ("/entries/0/slot", Remove, BadIdentity, IDENTITY_SLOT, "/entries/0"),
        ("/entries/4/slot", Add(json!("x")), BadIdentity, IDENTITY_SLOT, "/entries/4"),
        ("/entries/0/owner", Remove, BadIdentity, IDENTITY_OWNER, "/entries/0"),
        ("/entries/4/owner", Add(json!("x")), BadIdentity, IDENTITY_OWNER, "/entries/4"),
        ("/entries/0/scope/0/1", Set(json!(4)), BadIdentity, IDENTITY_SCOPE, "/entries/0/scope"),
        ("/entries/0/scope/0/0", Set(json!("pp")), BadIdentity, IDENTITY_SCOPE, "/entries/0/scope"),
        (
            "/entries/0/scope",
            Set(json!([["tp", 1], ["dp", 0]])),
            BadIdentity,
            IDENTITY_SCOPE,
            "/entries/0/scope",
        ),
        (
            "/entries/0/scope",
            Set(json!([["tp", 1], ["tp", 1]])),
            BadIdentity,
            IDENTITY_SCOPE,
            "/entries/0/scope",
        ),
        (
            "/entries/4/component",
            Add(json!("main")),
            BadMember,
            IDENTITY_LEFT_OUT,
            "/entries/4/component",
        ),
        ("/entries/0/slot", Set(json!("")), BadMember, IDENTITY_LEFT_OUT, "/entries/0/slot"),
        ("/entries/0/owner", Set(json!("")), BadMember, IDENTITY_LEFT_OUT, "/entries/0/owner"),
        ("/entries/0/scope", Set(json!([])), BadMember, IDENTITY_LEFT_OUT, "/entries/0/scope"),
        ("/entries/0/slot", Set(long(1025)), BadName, IDENTITY_NAME, "/entries/0/slot"),
        // aliases
        ("/entries/6/native", Set(json!([])), BadMember, TENSOR_NATIVE, "/entries/6/native"),
        ("/entries/6/native/0/1", Set(json!([])), BadMember, TENSOR_NATIVE, "/entries/6/native/0"),
        ("/entries/6/native/0/0", Set(json!("")), BadName, IDENTITY_NAME, "/entries/6/native/0/0"),
        ("/entries/6/role", Set(json!("master")), BadAlias, ALIAS_ROLE, "/entries/6/role"),
        ("/entries/6/of/1", Set(json!("buffer")), BadAlias, ALIAS_ROLE, "/entries/6/role"),
        ("/entries/6/of", Set(json!("embed")), BadMember, ALIAS_FORM, "/entries/6/of"),
        ("/entries/6/of/5", Remove, BadMember, ALIAS_FORM, "/entries/6/of"),
        ("/entries/6/of/3", Set(json!("x")), BadIdentity, IDENTITY_SLOT, "/entries/6/of"),
        ("/entries/6/of/5", Set(json!([["pp", 0]])), BadIdentity, IDENTITY_SCOPE, "/entries/6/of"),
        ("/entries/6/of/2", Set(json!("")), BadName, IDENTITY_NAME, "/entries/6/of/2"),
        ("/entries/6/shape", Add(json!([])), BadMember, JSON_UNKNOWN_MEMBER, "/entries/6/shape"),
        ("/entries/6/of", Remove, BadMember, JSON_UNKNOWN_MEMBER, "/entries/6"),
        // tensors
        (
            "/entries/4/dtype",
            Set(json!("F128")),
            UnsupportedDtype,
            TENSOR_DTYPE,
            "/entries/4/dtype",
        ),
        ("/entries/4/dtype", Remove, BadMember, JSON_UNKNOWN_MEMBER, "/entries/4"),
        ("/entries/4/chunks", Remove, BadMember, JSON_UNKNOWN_MEMBER, "/entries/4"),
        ("/entries/4/of", Add(json!([])), BadMember, JSON_UNKNOWN_MEMBER, "/entries/4/of"),
        ("/entries/4/shape", Set(json!([-1])), BadMember, JSON_TYPES, "/entries/4/shape/0"),
        ("/entries/4/shape", Set(axes17()), BadShape, TENSOR_RANK, "/entries/4/shape"),
        ("/entries/0/valid", Set(json!([4])), BadShape, TENSOR_RANK, "/entries/0/valid"),
        ("/entries/0/axes", Set(json!([0])), BadShape, TENSOR_RANK, "/entries/0/axes"),
        ("/entries/0/valid", Set(json!([4, 5])), BadShape, TENSOR_VALID, "/entries/0/valid"),
        ("/entries/0/valid", Set(json!([4, 4])), BadShape, TENSOR_VALID, "/entries/0/valid"),
        ("/entries/3/valid", Add(json!([])), BadShape, TENSOR_VALID, "/entries/3/valid"),
        ("/entries/0/axes", Set(json!([0, 0])), BadIdentity, TENSOR_AXES, "/entries/0/axes"),
        ("/entries/0/axes", Set(json!([16, null])), BadIdentity, TENSOR_AXES, "/entries/0/axes"),
        ("/entries/0/axes", Set(json!([300, null])), BadIdentity, TENSOR_AXES, "/entries/0/axes"),
        ("/entries/0/axes", Set(json!([null, null])), BadIdentity, TENSOR_AXES, "/entries/0/axes"),
        ("/entries/5/axes", Add(json!([0, 1])), BadIdentity, TENSOR_AXES, "/entries/5/axes"),
        ("/entries/2/shape", Set(json!([0, 1_u64 << 52])), Limit, TENSOR_SIZE, "/entries/2/shape"),
        (
            "/entries/2/shape",
            Set(json!([1_u64 << 40, 1_u64 << 40])),
            Limit,
            TENSOR_SIZE,
            "/entries/2/shape",
        ),
        ("/entries/0/native", Set(json!([])), BadMember, TENSOR_NATIVE, "/entries/0/native"),
        ("/entries/0/native/0/1", Set(json!([])), BadMember, TENSOR_NATIVE, "/entries/0/native/0"),
        (
            "/entries/0/native/0/1",
            Set(json!(vec![0; 65])),
            BadMember,
            TENSOR_NATIVE,
            "/entries/0/native/0",
        ),
        (
            "/entries/0/native/0/1/1",
            Set(json!(-1)),
            BadMember,
            JSON_TYPES,
            "/entries/0/native/0/1/1",
        ),
        ("/entries/0/native/0/0", Set(json!("")), BadName, IDENTITY_NAME, "/entries/0/native/0/0"),
        (
            "/entries/0/native/1",
            Add(json!(["a", [1]])),
            BadMember,
            TENSOR_NATIVE,
            "/entries/0/native/1",
        ),
        ("/entries/1/dtype", Set(json!("I8")), BadIdentity, TENSOR_BLOB, "/entries/1"),
        ("/entries/1/shape", Set(json!([5, 1])), BadIdentity, TENSOR_BLOB, "/entries/1"),
        ("/entries/4/block", Add(json!(8)), BadIdentity, COMPANION_ROLE, "/entries/4/block"),
        ("/entries/7/block", Set(json!(0)), BadMember, JSON_TYPES, "/entries/7/block"),
        // chunks
        ("/entries/5/chunks/0/3", Set(json!([0])), BadChunk, CHUNK_RANK, "/entries/5/chunks/0"),
        ("/entries/5/chunks/0/4", Set(json!([2])), BadChunk, CHUNK_RANK, "/entries/5/chunks/0"),
        ("/entries/5/chunks/0/4/0", Set(json!(0)), BadChunk, CHUNK_NONEMPTY, "/entries/5/chunks/0"),
        ("/entries/5/chunks/1/4/0", Set(json!(3)), BadChunk, CHUNK_BOUNDS, "/entries/5/chunks/1"),
        (
            "/entries/5/chunks/1/3/0",
            Set(json!(9_007_199_254_740_991_u64)),
            BadChunk,
            CHUNK_BOUNDS,
            "/entries/5/chunks/1",
        ),
        (
            "/entries/2/chunks",
            Set(json!([[0, 0, 0, [0, 0], [0, 3], "00000000"]])),
            BadChunk,
            CHUNK_NONEMPTY,
            "/entries/2/chunks/0",
        ),
        ("/entries/5/chunks/0/0", Set(json!(1)), BadChunk, CHUNK_SHARD, "/entries/5/chunks/0"),
        (
            "/entries/5/chunks/0/0",
            Set(json!(1_u64 << 32)),
            BadChunk,
            CHUNK_SHARD,
            "/entries/5/chunks/0",
        ),
        ("/entries/5/chunks/0/1", Set(json!(2)), BadChunk, CHUNK_SHARD, "/entries/5/chunks/0"),
        ("/entries/5/chunks/0/1", Set(json!(1)), BadChunk, SHARD_CLASS, "/entries/5/chunks/0"),
        ("/entries/5/chunks/0/2", Set(json!(20449)), BadChunk, CHUNK_SHARD, "/entries/5/chunks/0"),
        (
            "/entries/5/chunks/0/2",
            Set(json!(9_007_199_254_740_991_u64)),
            BadChunk,
            CHUNK_SHARD,
            "/entries/5/chunks/0",
        ),
        ("/entries/4/chunks/1/6", Remove, BadChunk, CHUNK_TABLE_INDEX, "/entries/4/chunks/1"),
        (
            "/entries/4/chunks/1/6",
            Set(json!(2)),
            BadChunk,
            CHUNK_TABLE_INDEX,
            "/entries/4/chunks/1",
        ),
        (
            "/entries/4/chunks/0/6",
            Add(json!(0)),
            BadChunk,
            CHUNK_TABLE_INDEX,
            "/entries/4/chunks/0",
        ),
        ("/entries/4/chunks/1/7", Add(json!(0)), BadMember, JSON_TYPES, "/entries/4/chunks/1"),
        (
            "/entries/4/chunks/0/5",
            Set(json!("DEADBEEF")),
            BadMember,
            JSON_TYPES,
            "/entries/4/chunks/0/5",
        ),
        ("/entries/5/chunks/1/2", Set(json!(8223)), BadChunk, CHUNK_APART, "/entries/5/chunks"),
        ("/entries/5/chunks/1/3/0", Set(json!(1)), CoverOverlap, COVER_EXACT, "/entries/5/chunks"),
        ("/entries/5/chunks/1", Remove, CoverGap, COVER_GAP, "/entries/5/chunks"),
        ("/entries/3/chunks", Set(json!([])), CoverGap, COVER_GAP, "/entries/3/chunks"),
    ];
    let page = fixture::tensors();
    check(&page, cases, parse_tensors);

    // What takes more than one value to break.
    let broken = |change: &dyn Fn(&mut Value)| {
        let mut page = page.clone();
        change(&mut page["entries"]);
        parse_tensors(&page).unwrap_err()
    };
    let error = broken(&|entries| entries[5]["chunks"].as_array_mut().unwrap().reverse());
    assert!(answers(&error, BadOrder, CHUNK_ORDER, "/entries/5/chunks/1"), "{error}");
    let key = r#"["main","param","embed","","",[]]"#;
    assert_eq!(error.location().tensor.as_deref(), Some(key));
    let error = broken(&|entries| {
        entries[5]["chunks"][1][3] = json!([0, 0]);
    });
    assert!(answers(&error, CoverOverlap, COVER_EXACT, "/entries/5/chunks"), "{error}");
    let error = broken(&|entries| {
        entries[5]["shape"] = json!([2, 2, 2, 2, 2, 2, 2, 2, 2]);
        let ones = json!([1, 1, 1, 1, 1, 1, 1, 1, 1]);
        entries[5]["chunks"] = json!([[0, 0, 4096, [0, 0, 0, 0, 0, 0, 0, 0, 0], ones, "00000000"]]);
    });
    assert!(answers(&error, Limit, CHUNK_SPLIT, "/entries/5/chunks"), "{error}");
}

#[test]
fn a_page_of_records_breaks_each_rule_with_its_own_answer() {
    use Code::*;
    use rule::*;
    let cases: Vec<Case> = vec![
        ("/kind", Set(json!("tensors")), BadFormat, PAGE_NUMBER, "/kind"),
        ("/version", Set(json!("1.1")), BadMember, OPEN_PAGE_VERSION, "/version"),
        ("/version", Set(json!("2.0")), UnsupportedVersion, VERSION_MAJOR, "/version"),
        ("/records", Set(json!([])), BadOrder, PAGE_ORDER, "/records"),
        ("/records/0/kind", Set(json!("other")), BadOrder, PAGE_ORDER, "/records/0"),
        ("/records/2/coordinate/0/1", Set(json!(0)), BadOrder, PAGE_ORDER, "/records/2"),
        (
            "/records/1/coordinate/0/1",
            Set(json!(2)),
            BadIdentity,
            RECORD_COORDINATE,
            "/records/1/coordinate",
        ),
        ("/records/0/value", Set(json!(1)), BadMember, RECORD_VALUE, "/records/0/value"),
        ("/records/0/more", Add(json!(1)), BadMember, JSON_UNKNOWN_MEMBER, "/records/0/more"),
        ("/records/0/value", Remove, BadMember, JSON_UNKNOWN_MEMBER, "/records/0"),
        ("/records/0/kind", Set(json!("")), BadName, IDENTITY_NAME, "/records/0/kind"),
        (
            "/records/1/coordinate",
            Set(json!([])),
            BadMember,
            RECORD_COORDINATE,
            "/records/1/coordinate",
        ),
    ];
    let page = fixture::records_page();
    check(&page, cases, parse_records);
    // Each fault hides those before it.
    let mut page = page;
    for (pointer, value, rule) in [
        ("/records/1/value", json!(1), RECORD_VALUE),
        ("/records/0/kind", json!("value"), VALUE_FORM),
        ("/records/0/name", json!(""), IDENTITY_NAME),
        ("/zz", json!(1), JSON_UNKNOWN_MEMBER),
    ] {
        match page.pointer_mut(pointer) {
            Some(place) => *place = value,
            None => page["zz"] = value,
        }
        let error = parse_records(&page).unwrap_err();
        assert_eq!(error.rule_id(), Some(rule), "{error}");
    }
}

#[test]
fn a_page_has_the_bytes_that_the_manifest_states() {
    let bytes = fixture::bytes(&fixture::tensors());
    let manifest = parse_manifest(&fixture::manifest(&bytes, b"")).unwrap();
    TensorPage::parse(&bytes, &manifest, 0).unwrap();
    let error = TensorPage::parse(&bytes[1..], &manifest, 0).unwrap_err();
    assert_eq!((error.code(), error.rule_id()), (Code::LengthMismatch, Some(rule::DIR_LENGTH)));
    let mut flipped = bytes.clone();
    flipped[100] ^= 1;
    let error = TensorPage::parse(&flipped, &manifest, 0).unwrap_err();
    assert_eq!((error.code(), error.rule_id()), (Code::DigestMismatch, Some(rule::PAGE_DIGEST)));
    assert_eq!(TensorPage::parse(&bytes, &manifest, 1).unwrap_err().code(), Code::NotFound);
}

#[test]
fn the_last_key_of_a_page_is_below_the_next_page() {
    let bytes = fixture::bytes(&fixture::tensors());
    let mut manifest = fixture::manifest(&bytes, b"");
    let mut next = manifest["tensors"][0].clone();
    next["first"] = json!(["main", "param", "embed", "", "", []]);
    manifest["tensors"].as_array_mut().unwrap().push(next);
    let error = TensorPage::parse(&bytes, &parse_manifest(&manifest).unwrap(), 0).unwrap_err();
    assert!(answers(&error, Code::BadOrder, rule::PAGE_ORDER, "/entries/5"), "{error}");
}
