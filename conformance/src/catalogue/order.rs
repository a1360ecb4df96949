//! Chapter 12.1: which rule is answered for when two are broken. Each sentence names both breaches, the one that is answered for first.

use serde_json::{Value, json};
use waystation_format::Code;

use super::Cases;
use super::group::Group;
use crate::bend::{Bend, remove, set};
use crate::case::Effect;
use crate::files::Files;

pub(super) fn add(cases: &mut Cases) {
    root(cases);
    members(cases);
    files(cases);
    pages(cases);
}

/// Cases of the base, whose rules are that of the first breach and of order.
fn bad(
    cases: &mut Cases,
    base: &'static str,
    slug: &str,
    rule: &str,
    fault: &str,
    bend: &Bend,
    code: Code,
) {
    let rules = &[rule, "open.order", "intro.code"];
    let fault = format!("Two rules are broken: {fault}.");
    Group::new(cases, "core", base, Effect::Ambiguity).bad(
        &format!("order-{slug}"),
        rules,
        &fault,
        bend,
        code,
    );
}

fn root(cases: &mut Cases) {
    let two = || Bend::new("two faults");
    let mut bad = |slug: &str, rule: &str, fault: &str, bend: Bend, code| {
        bad(cases, "bare", slug, rule, fault, &bend, code);
    };
    let deleted = |files: &mut Files| _ = files.insert("deleted".into(), Vec::new());
    bad(
        "deleted-absent",
        "run.deleted",
        "there is a `deleted` marker, and no commit file",
        two().files(deleted).files(|files| _ = files.remove("waystation.commit")),
        Code::Deleted,
    );
    bad(
        "deleted-manifest",
        "run.deleted",
        "there is a `deleted` marker, and the manifest has no bytes",
        two().files(deleted).files(|files| _ = files.insert("manifest.json".into(), Vec::new())),
        Code::Deleted,
    );
    bad(
        "commit-manifest",
        "commit.file",
        "the commit file lacks its newline, and there is no manifest",
        two()
            .bytes("commit", |text| text.truncate(79))
            .files(|files| _ = files.remove("manifest.json")),
        Code::CommitGrammar,
    );
    bad(
        "digest-canonical",
        "integrity.manifest",
        "the manifest has not the digest of the commit file, and ends in the middle",
        two().files(|files| files.get_mut("manifest.json").expect("a manifest").truncate(100)),
        Code::DigestMismatch,
    );
    bad(
        "canonical-format",
        "json.one-value",
        "a newline stands after the manifest, and `format` is another",
        two().manifest(set("/format", json!("other"))).bytes("manifest", |text| text.push(b'\n')),
        Code::NotCanonical,
    );
    bad(
        "format-version",
        "common.format",
        "`format` is another, and the version is 2.0",
        two().manifest(set("/format", json!("other"))).manifest(set("/version", json!("2.0"))),
        Code::BadFormat,
    );
    bad(
        "kind-version",
        "common.format",
        "`kind` is `part`, and the version is 2.0",
        two().manifest(set("/kind", json!("part"))).manifest(set("/version", json!("2.0"))),
        Code::BadFormat,
    );
    bad(
        "version-feature",
        "version.major",
        "the version is 2.0, and a feature is required that nobody knows",
        two()
            .manifest(set("/version", json!("2.0")))
            .manifest(set("/features/required", json!(["x/a"]))),
        Code::UnsupportedVersion,
    );
    bad(
        "version-members",
        "version.major",
        "the version is 2.0, and there is a member that 1.0 does not have",
        two().manifest(set("/version", json!("2.0"))).manifest(set("/aaa", json!(1))),
        Code::UnsupportedVersion,
    );
    bad(
        "version-file",
        "version.major",
        "the version is 2.0, and the part is not there",
        two()
            .manifest(set("/version", json!("2.0")))
            .files(|files| files.retain(|name, _| !name.starts_with("part-"))),
        Code::UnsupportedVersion,
    );
    bad(
        "feature-members",
        "feature.required",
        "a feature is required that nobody knows, and `block_bytes` is 1",
        two()
            .manifest(set("/features/required", json!(["x/a"])))
            .manifest(set("/block_bytes", json!(1))),
        Code::UnsupportedFeature,
    );
    bad(
        "feature-form",
        "feature.form",
        "optional features are not sorted, and a feature is required that nobody knows",
        two()
            .manifest(set("/features/optional", json!(["x/c", "x/b"])))
            .manifest(set("/features/required", json!(["x/a"]))),
        Code::BadMember,
    );
    bad(
        "feature-form-required",
        "feature.form",
        "of two required features the second has a capital letter, and nobody knows the first",
        two().manifest(set("/features/required", json!(["x/a", "x/b/C"]))),
        Code::BadMember,
    );
}

fn members(cases: &mut Cases) {
    let mut bad = |slug: &str, rule: &str, fault: &str, edits: [(&str, Value); 2], code| {
        let [first, second] = edits.map(|(pointer, value)| set(pointer, value));
        let bend = Bend::new("two faults").manifest(first).manifest(second);
        bad(cases, "bare", slug, rule, fault, &bend, code);
    };
    bad(
        "member-member",
        "common.block-bytes",
        "`block_bytes` is 1, and the run has no name",
        [("/block_bytes", json!(1)), ("/run", json!(""))],
        Code::BadMember,
    );
    bad(
        "run-step",
        "identity.name",
        "the run has no name, and the step is above the limit",
        [("/run", json!("")), ("/step", json!(1_000_000_000_000_u64))],
        Code::BadName,
    );
    bad(
        "unknown-known",
        "json.unknown-member",
        "there is an unknown member `reserved`, and the run has no name",
        [("/reserved", json!(0)), ("/run", json!(""))],
        Code::BadMember,
    );
    bad(
        "known-unknown",
        "identity.name",
        "the run has no name, and there is an unknown member `sha1`",
        [("/run", json!("")), ("/sha1", json!(0))],
        Code::BadName,
    );
    bad(
        "element-count",
        "identity.name",
        "the first of seventeen axes has no name, and there is an axis too many",
        [
            ("/topology", (0..17).map(|n| json!([format!("a{n}"), 1])).collect()),
            ("/topology/0", json!(["", 1])),
        ],
        Code::BadName,
    );
    bad(
        "element-last-count",
        "identity.name",
        "the last of seventeen axes has no name, and is one too many",
        [
            ("/topology", (0..17).map(|n| json!([format!("a{n}"), 1])).collect()),
            ("/topology/16", json!(["", 1])),
        ],
        Code::BadName,
    );
    bad(
        "array-short",
        "identity.name",
        "an axis has no name, and no size",
        [("/topology", json!([[""]])), ("/step", json!(1000))],
        Code::BadName,
    );
    bad(
        "member-together",
        "identity.name",
        "the run has no name, and there are two writers and one part",
        [("/run", json!("")), ("/writers", json!(2))],
        Code::BadName,
    );
    bad(
        "order-element",
        "identity.role",
        "a first key has a role that nobody knows, and another page below it follows",
        [
            ("/tensors/0/first/1", json!("weight")),
            (
                "/tensors/-",
                json!({"bytes": 1, "first": ["a", "param", "a", "", "", []], "sha256": "00".repeat(32)}),
            ),
        ],
        Code::UnsupportedRole,
    );
    let bend = Bend::new("two faults").manifest(remove("/parent")).manifest(set("/run", json!("")));
    self::bad(
        cases,
        "bare",
        "missing-known",
        "json.unknown-member",
        "`parent` is left out, and the run has no name",
        &bend,
        Code::BadMember,
    );
    let bend =
        Bend::new("two faults").manifest(set("/run", json!(""))).manifest(remove("/writers"));
    self::bad(
        cases,
        "bare",
        "known-missing",
        "identity.name",
        "the run has no name, and `writers` is left out",
        &bend,
        Code::BadName,
    );
}

fn files(cases: &mut Cases) {
    let gone = |start: &'static str| {
        move |files: &mut Files| files.retain(|name, _| !name.starts_with(start))
    };
    let longer = |start: &'static str| {
        move |files: &mut Files| {
            let found = files.iter_mut().filter(|(name, _)| name.starts_with(start));
            found.for_each(|(_, bytes)| bytes.push(0));
        }
    };
    let two = || Bend::new("two faults");
    for (slug, rule, fault, bend, code) in [
        (
            "files-missing-longer",
            "dir.present",
            "there is no attachment, and the page of tensors has a byte more",
            two().files(gone("attachment-")).files(longer("tensors-")),
            Code::FileMissing,
        ),
        (
            "files-longer-missing",
            "dir.length",
            "the attachment has a byte more, and there is no page of tensors",
            two().files(longer("attachment-")).files(gone("tensors-")),
            Code::LengthMismatch,
        ),
        (
            "files-part-state",
            "dir.present",
            "there is no part, and the shard of class state has a byte more",
            two().files(gone("part-")).files(longer("state-")),
            Code::FileMissing,
        ),
        (
            "members-files",
            "identity.name",
            "the run has no name, and there is no shard",
            two().manifest(set("/run", json!(""))).files(gone("model-")),
            Code::BadName,
        ),
        (
            "files-pages",
            "dir.length",
            "a shard has a byte more, and a page an unknown member",
            two().page("tensors", 0, set("/zzz", json!(0))).files(longer("model-")),
            Code::LengthMismatch,
        ),
    ] {
        bad(cases, "small", slug, rule, fault, &bend, code);
    }
}

fn pages(cases: &mut Cases) {
    let two = || Bend::new("two faults");
    for (slug, rule, fault, bend, code) in [
        (
            "pages-digest-canonical",
            "page.digest",
            "the page of tensors has a bit flipped, and the page of records is not canonical",
            two()
                .bytes("records 0", |text| text.insert(1, b' '))
                .files(|files| files.get_mut("tensors-00000.json").expect("a page")[2] ^= 1),
            Code::DigestMismatch,
        ),
        (
            "pages-tensors-records",
            "page.order",
            "the page of tensors has no entries, and that of records an unknown member",
            two().page("tensors", 0, set("/entries", json!([]))).page(
                "records",
                0,
                set("/zzz", json!(0)),
            ),
            Code::BadOrder,
        ),
        (
            "page-version-number",
            "version.major",
            "a page is of version 2.0, and of another number",
            two().page("tensors", 0, set("/version", json!("2.0"))).page(
                "tensors",
                0,
                set("/page", json!(7)),
            ),
            Code::UnsupportedVersion,
        ),
        (
            "page-minor-number",
            "open.page-version",
            "a page is of version 1.1, the manifest of 1.0, and the page of another number",
            two().page("tensors", 0, set("/version", json!("1.1"))).page(
                "tensors",
                0,
                set("/page", json!(7)),
            ),
            Code::BadMember,
        ),
        (
            "page-kind-version",
            "page.number",
            "a page is of kind records, and of version 2.0",
            two().page("tensors", 0, set("/kind", json!("records"))).page(
                "tensors",
                0,
                set("/version", json!("2.0")),
            ),
            Code::BadFormat,
        ),
        (
            "page-number-entry",
            "page.number",
            "a page is of another number, and an entry of another role",
            two().page("tensors", 0, set("/page", json!(7))).page(
                "tensors",
                0,
                set("/entries/0/role", json!("weight")),
            ),
            Code::BadFormat,
        ),
        (
            "page-members-entries",
            "json.unknown-member",
            "a page has an unknown member after its entries, and an entry another role",
            two().page("tensors", 0, set("/zzz", json!(0))).page(
                "tensors",
                0,
                set("/entries/0/role", json!("weight")),
            ),
            Code::BadMember,
        ),
    ] {
        bad(cases, "bare", slug, rule, fault, &bend, code);
    }
}
