//! Chapter 8: pages of the manifest, their order and their cut, and what is derived from parts.

use serde_json::{Value, json};
use waystation_format::{Code, limits};

use super::group::Group;
use super::{Cases, bases};
use crate::bend::{self, Bend, change, insert, remove, set};
use crate::build::{Root, projection};
use crate::case::Effect;
use crate::recipe::Recipe;

pub(super) fn add(cases: &mut Cases) {
    order(cases);
    firsts(cases);
    swapped(cases);
    cuts(cases);
    contents(cases);
    derived(cases);
}

fn entries(page: &mut Value) -> &mut Vec<Value> {
    page["entries"].as_array_mut().expect("entries")
}

fn order(cases: &mut Cases) {
    let rules = &["page.order"];
    let mut group = Group::new(cases, "core", "small", Effect::Ambiguity);
    group.bad(
        "page-unsorted",
        rules,
        "Two entries of a page stand in each other's place.",
        &Bend::new("two entries swapped").page(
            "tensors",
            0,
            change("/entries", |list| list.as_array_mut().expect("entries").swap(1, 2)),
        ),
        Code::BadOrder,
    );
    group.bad(
        "page-entry-twice",
        rules,
        "An entry stands twice in a page.",
        &Bend::new("an entry twice").page(
            "tensors",
            0,
            change("/entries", |list| {
                let list = list.as_array_mut().expect("entries");
                let last = list.last().expect("an entry").clone();
                list.push(last);
            }),
        ),
        Code::BadOrder,
    );
    group.bad(
        "record-page-unsorted",
        rules,
        "Two records of a page stand in each other's place.",
        &Bend::new("two records swapped")
            .page(
                "records",
                0,
                change("/records", |list| list.as_array_mut().expect("records").swap(0, 1)),
            )
            .manifest(set("/records/0/first", json!(["progress", "main", []]))),
        Code::BadOrder,
    );
    let mut group = Group::new(cases, "core", "bare", Effect::Ambiguity);
    group.bad(
        "record-page-record-twice",
        rules,
        "A record stands twice in a page, with two values.",
        &Bend::new("a record twice").page(
            "records",
            0,
            insert(
                "/records/1",
                json!({"kind": "progress", "name": "main", "value": {"optimizer_step": 2000}}),
            ),
        ),
        Code::BadOrder,
    );
    for (kind, member, slug) in
        [("tensors", "entries", "page"), ("records", "records", "record-page")]
    {
        group.bad(
            &format!("{slug}-empty-list"),
            rules,
            &format!("A page of {kind} has nothing in it."),
            &Bend::new("an empty list").page(kind, 0, set(&format!("/{member}"), json!([]))),
            Code::BadOrder,
        );
        group.bad(
            &format!("{slug}-without-list"),
            &["json.unknown-member"],
            &format!("A page of {kind} lacks `{member}`."),
            &Bend::new("a member less").page(kind, 0, remove(&format!("/{member}"))),
            Code::BadMember,
        );
        group.bad(
            &format!("{slug}-unknown-member"),
            &["json.unknown-member"],
            &format!("A page of {kind} has a member more."),
            &Bend::new("a member more").page(kind, 0, set("/next", json!(null))),
            Code::BadMember,
        );
        group.bad(
            &format!("{slug}-list-object"),
            &["json.types"],
            &format!("In a page of {kind} `{member}` is an object."),
            &Bend::new("another type").page(kind, 0, set(&format!("/{member}"), json!({}))),
            Code::BadMember,
        );
    }
}

fn firsts(cases: &mut Cases) {
    let mut group = Group::new(cases, "core", "bare", Effect::Ambiguity);
    let first = |kind: &str, value: Value| {
        Bend::new("another first key").manifest(set(&format!("/{kind}/0/first"), value))
    };
    for (slug, what, value) in [
        (
            "lower",
            "a key below that of the page's first entry",
            json!(["main", "param", "a", "", "", []]),
        ),
        (
            "higher",
            "a key above that of the page's first entry",
            json!(["main", "param", "z", "", "", []]),
        ),
    ] {
        group.bad(
            &format!("page-first-{slug}"),
            &["page.order", "open.find"],
            &format!("The manifest states of a page {what}."),
            &first("tensors", value),
            Code::BadOrder,
        );
    }
    let forms: [(&str, &str, &[&str], Value, Code); 7] = [
        (
            "of-five",
            "five values",
            &["json.types"],
            json!(["main", "param", "none", "", ""]),
            Code::BadMember,
        ),
        (
            "of-seven",
            "seven values",
            &["json.types"],
            json!(["main", "param", "none", "", "", [], 0]),
            Code::BadMember,
        ),
        (
            "text",
            "the text of a key",
            &["json.types"],
            json!(r#"["main","param","none","","",[]]"#),
            Code::BadMember,
        ),
        (
            "role",
            "a role that nobody knows",
            &["identity.role"],
            json!(["main", "weight", "none", "", "", []]),
            Code::UnsupportedRole,
        ),
        (
            "slot",
            "a parameter with a slot",
            &["identity.slot"],
            json!(["main", "param", "none", "adam.m", "", []]),
            Code::BadIdentity,
        ),
        (
            "scope",
            "an axis that the topology lacks",
            &["identity.scope"],
            json!(["main", "param", "none", "", "", [["zz", 0]]]),
            Code::BadIdentity,
        ),
        (
            "name",
            "an empty name",
            &["identity.name"],
            json!(["main", "param", "", "", "", []]),
            Code::BadName,
        ),
    ];
    for (slug, what, rules, value, code) in forms {
        group.bad(
            &format!("page-first-{slug}"),
            rules,
            &format!("In the manifest the first key of a page has {what}."),
            &first("tensors", value),
            code,
        );
    }
    group.bad(
        "record-page-first-of-two",
        &["json.types"],
        "In the manifest the first key of a page of records has two values.",
        &first("records", json!(["progress", "main"])),
        Code::BadMember,
    );
    group.bad(
        "record-page-first-coordinate",
        &["record.coordinate"],
        "In the manifest the first key of a page of records has an axis that the topology lacks.",
        &first("records", json!(["progress", "main", [["zz", 0]]])),
        Code::BadIdentity,
    );
    group.bad(
        "record-page-first-other",
        &["page.order"],
        "The manifest states of a page of records another key than its first.",
        &first("records", json!(["progress", "a", []])),
        Code::BadOrder,
    );
    let rules = &["manifest.firsts"];
    for (kind, slug) in [("tensors", "page"), ("records", "record-page")] {
        group.bad(
            &format!("{slug}-firsts-equal"),
            rules,
            &format!("The manifest lists one page of {kind} twice."),
            &Bend::new("a page twice").root(move |root| {
                let listed = root.manifest[kind].as_array_mut().expect("pages");
                let first = listed[0].clone();
                listed.push(first);
                let pages = if kind == "tensors" { &mut root.tensors } else { &mut root.records };
                let mut page = pages[0].clone();
                page["page"] = json!(1);
                pages.push(page);
            }),
            Code::BadOrder,
        );
    }
    let mut group = Group::new(cases, "core", "small", Effect::Ambiguity);
    group.bad(
        "page-firsts-unsorted",
        rules,
        "Two pages stand in each other's place, in the manifest and by number.",
        &Bend::new("two pages swapped").root(|root| split(root, &[2, 3], &[0, 1])),
        Code::BadOrder,
    );
    group.bad(
        "pages-overlap",
        &["page.order", "open.find"],
        "The last key of a page lies above the first of the next.",
        &Bend::new("entries dealt in turn to two pages").root(|root| split(root, &[0, 2], &[1, 3])),
        Code::BadOrder,
    );
    group.bad(
        "pages-share-entry",
        &["page.order"],
        "An entry stands at the end of a page and at the beginning of the next.",
        &Bend::new("an entry in two pages").root(|root| split(root, &[0, 1, 2], &[2, 3])),
        Code::BadOrder,
    );
}

/// Two pages of tensors, of the entries at these places of the one that there is.
fn split(root: &mut Root, first: &[usize], second: &[usize]) {
    let all = entries(&mut root.tensors[0]).clone();
    let listed = [first, second]
        .map(|places| -> Vec<Value> { places.iter().map(|&place| all[place].clone()).collect() });
    root.manifest["tensors"] =
        listed.iter().map(|list| json!({"first": crate::build::identity(&list[0])})).collect();
    let page = root.tensors[0].clone();
    root.tensors = listed
        .into_iter()
        .enumerate()
        .map(|(number, list)| {
            let mut page = page.clone();
            page["page"] = json!(number);
            page["entries"] = json!(list);
            page
        })
        .collect();
}

fn swapped(cases: &mut Cases) {
    let mut later = bases::bare();
    later.writers[0].records[0]["value"]["optimizer_step"] = json!(2000);
    let other = bend::straight(&later).remove("records-00000.json").expect("a page of records");
    Group::new(cases, "core", "bare", Effect::WrongResume).bad(
        "record-page-of-another",
        &["page.digest"],
        "The page of records is that of another checkpoint, and has the same length.",
        &Bend::new("a file of another checkpoint")
            .files(move |files| _ = files.insert("records-00000.json".into(), other.clone())),
        Code::DigestMismatch,
    );
}

/// Checkpoints of more than one page.
fn cuts(cases: &mut Cases) {
    let target = usize::try_from(limits::PAGE_TARGET_BYTES).expect("a page fits in memory");
    for (slug, what, recipe) in [
        ("pages-of-tensors", "Tensors and aliases fill three pages.", long(30)),
        ("page-full", "A page has exactly as many bytes as it may.", filled(target)),
        ("page-over", "The last entry has a page of its own for one byte.", filled(target + 1)),
        ("pages-of-records", "Records fill two pages.", recorded()),
    ] {
        let rules = [
            "page.cut",
            "page.order",
            "page.number",
            "page.digest",
            "manifest.firsts",
            "open.find",
            "open.page-version",
        ];
        for (profile, answer) in [("core", brief(&recipe)), ("extended", json!({"findings": []}))] {
            cases
                .case(&format!("{profile}/{slug}"), &rules, what)
                .effect(Effect::LostCheckpoint)
                .answers_files(bend::straight(&recipe), answer);
        }
    }
    Group::new(cases, "extended", "small", Effect::Ambiguity).bad(
        "page-cut-early",
        &["page.cut", "derive.function"],
        "A page ends before the entry that would not have made it too long.",
        &Bend::new("a page in two").root(|root| split(root, &[0, 1], &[2, 3])),
        Code::DeriveMismatch,
    );
}

/// The bytes of an entry of [`tensor`] beside its name of a framework.
const FRAME: &str =
    r#"{"chunks":[],"dtype":"U8","name":"000","native":[["x",[""]]],"role":"buffer","shape":[0]}"#;

/// Adds a tensor without elements whose entry has so many bytes: what makes it long is no part of the answer.
fn tensor(recipe: &mut Recipe, bytes: usize) {
    let number = recipe.tensors.len();
    let native = json!([["x", ["n".repeat(bytes - FRAME.len())]]]);
    let name = format!("{number:03}");
    let entry =
        json!({"dtype": "U8", "name": name, "native": native, "role": "buffer", "shape": [0]});
    bases::add(recipe, entry, 0);
    bases::whole(recipe, 0, number);
}

/// Entries of a hundred kilobytes each.
fn long(count: usize) -> Recipe {
    let mut recipe = bases::empty();
    for _ in 0..count {
        tensor(&mut recipe, 100_000);
    }
    recipe
}

/// Eleven entries that, in one page, would make it so long.
fn filled(length: usize) -> Recipe {
    let frame = r#"{"entries":[],"format":"waystation","kind":"tensors","page":0,"version":"1.0"}"#;
    let mut recipe = long(10);
    // Ten entries and as many commas are there.
    tensor(&mut recipe, length - frame.len() - 10 * 100_001);
    recipe
}

/// Records of sixteen kilobytes each.
fn recorded() -> Recipe {
    let mut recipe = bases::bare();
    for number in 0..90 {
        let value = json!({"bytes": "5a".repeat(8192)});
        let name = format!("r{number}");
        recipe.writers[0].records.push(json!({"kind": "value", "name": name, "value": value}));
    }
    recipe
}

/// Of the answer what is short: a member that is left out is not compared.
fn brief(recipe: &Recipe) -> Value {
    let mut answer = projection(recipe);
    for record in answer["records"].as_array_mut().expect("records") {
        record.as_object_mut().expect("a record").remove("value");
    }
    answer
}

fn contents(cases: &mut Cases) {
    let rules = &["json.types"];
    let mut group = Group::new(cases, "core", "two", Effect::Ambiguity);
    let forms: [(&str, &[&str], &str, Value, Code); 7] = [
        (
            "unsorted",
            rules,
            "has roles out of order",
            json!([["main", [["param", 2], ["extension", 2]]]]),
            Code::BadMember,
        ),
        (
            "role-twice",
            rules,
            "has a role twice",
            json!([["main", [["param", 2], ["param", 2]]]]),
            Code::BadMember,
        ),
        (
            "component-twice",
            rules,
            "has a component twice",
            json!([["main", []], ["main", []]]),
            Code::BadMember,
        ),
        (
            "zero",
            rules,
            "counts no tensors of a role",
            json!([["main", [["param", 0]]]]),
            Code::BadMember,
        ),
        (
            "above",
            &["limit.value"],
            "counts more tensors than there may be",
            json!([["main", [["param", 4_194_305]]]]),
            Code::Limit,
        ),
        (
            "role-unknown",
            &["identity.role"],
            "counts a role that nobody knows",
            json!([["main", [["weight", 1]]]]),
            Code::UnsupportedRole,
        ),
        ("object", rules, "is an object", json!({"main": {"param": 2}}), Code::BadMember),
    ];
    for (slug, rules, what, value, code) in forms {
        group.bad(
            &format!("contents-{slug}"),
            rules,
            &format!("`contents` {what}."),
            &Bend::new("other contents").manifest(set("/contents", value)),
            code,
        );
    }
    let rules = &["manifest.contents", "derive.function"];
    let mut group = Group::new(cases, "extended", "two", Effect::Deception);
    for (slug, what, value) in [
        (
            "count",
            "counts a tensor more than there is",
            json!([["main", [["extension", 2], ["optimizer", 1], ["param", 3]]]]),
        ),
        ("role-less", "leaves a role out", json!([["main", [["extension", 2], ["param", 2]]]])),
        ("empty", "is empty", json!([])),
        (
            "component-empty",
            "has a component without roles",
            json!([["critic", []], ["main", [["extension", 2], ["optimizer", 1], ["param", 2]]]]),
        ),
        (
            "component-more",
            "has a component of which there is nothing",
            json!([
                ["critic", [["param", 1]]],
                ["main", [["extension", 2], ["optimizer", 1], ["param", 2]]]
            ]),
        ),
    ] {
        group.bad(
            &format!("contents-{slug}"),
            rules,
            &format!("`contents` {what}."),
            &Bend::new("other contents").manifest(set("/contents", value)),
            Code::DeriveMismatch,
        );
    }
}

/// Roots that are right by themselves and are not those of the parts.
fn derived(cases: &mut Cases) {
    let rules = &["derive.function"];
    let mut group = Group::new(cases, "extended", "small", Effect::WrongResume);
    let mut bad = |slug: &str, fault: &str, bend: Bend| {
        group.bad(&format!("derive-{slug}"), rules, fault, &bend, Code::DeriveMismatch);
    };
    let page = |edit| Bend::new("a page of other parts").page("tensors", 0, edit);
    bad(
        "entry-missing",
        "A page lacks an alias that the part has.",
        Bend::new("an entry less").root(|root| {
            entries(&mut root.tensors[0]).retain(|entry| entry.get("of").is_none());
        }),
    );
    bad(
        "native-added",
        "An entry of a page has a member that the part's has not.",
        page(set("/entries/0/native", json!([["x", ["a"]]]))),
    );
    bad(
        "dtype-other",
        "A page calls integers unsigned that the part calls signed.",
        page(set("/entries/0/dtype", json!("U64"))),
    );
    bad(
        "record-other",
        "A record of a page has another value than the part's.",
        Bend::new("a page of other parts").page(
            "records",
            0,
            set("/records/0/value/groups/0/hyper/0/1/f64", json!("3f50624dd2f1a9fd")),
        ),
    );
    bad(
        "run-other",
        "The manifest is of another run than the parts.",
        Bend::new("another run").manifest(set("/run", json!("silver"))),
    );
    bad(
        "parent-other",
        "The manifest names a parent, and the parts do not.",
        Bend::new("another parent").manifest(set("/parent", json!("ab".repeat(32)))),
    );
    bad(
        "omitted-added",
        "The manifest lists an omitted name that no part lists.",
        Bend::new("a name more").manifest(set(
            "/omitted",
            json!([{"component": "main", "names": ["base.w"], "reason": "frozen"}]),
        )),
    );
    bad(
        "feature-added",
        "The manifest has an optional feature that no part has.",
        Bend::new("a feature more").manifest(set("/features/optional", json!(["x/a"]))),
    );
    bad(
        "topology-other",
        "The manifest has another topology than the parts.",
        Bend::new("another topology").manifest(set("/topology", json!([["tp", 1]]))),
    );
    bad(
        "version-minor",
        "Manifest and pages are of version 1.1, the part of 1.0.",
        Bend::new("another minor version").root(|root| {
            let pages = root.tensors.iter_mut().chain(&mut root.records);
            for value in pages.chain([&mut root.manifest]) {
                value["version"] = json!("1.1");
            }
        }),
    );
    bad(
        "path-other",
        "The manifest calls an attachment by another path than the part.",
        Bend::new("another path").manifest(set("/parts/0/attachments/0/path", json!("config.txt"))),
    );
}
