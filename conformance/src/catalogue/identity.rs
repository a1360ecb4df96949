//! Chapter 4: names, roles, slots, owners and scopes. Mostly of a tensor without elements, whose
//! entry is all that there is of it. Aliases are in `alias`.

use serde_json::{Value, json};
use waystation_format::Code;

use super::Cases;
use super::bases::{add as tensor, whole};
use super::group::Group;
use crate::bend::{Bend, change, set};
use crate::case::Effect;
use crate::recipe::Recipe;

pub(super) fn add(cases: &mut Cases) {
    characters(cases);
    lengths(cases);
    other_names(cases);
    order(cases);
    roles(cases);
    slots_and_owners(cases);
    scopes(cases);
    left_out(cases);
    one_name(cases);
}

/// Sets members of the one entry of `bare`; null takes one away.
pub(super) fn entry(members: Value) -> Bend {
    Bend::new("other members of the entry").recipe(move |recipe| {
        let entry = &mut recipe.tensors[0].entry;
        for (member, value) in members.as_object().expect("members") {
            if value.is_null() {
                entry.remove(member);
            } else {
                entry.insert(member.clone(), value.clone());
            }
        }
    })
}

/// Adds tensors without elements to the one of `bare`, from entries that lack dtype and shape.
pub(super) fn beside(entries: &[Value]) -> Bend {
    let entries = entries.to_vec();
    Bend::new("more tensors").recipe(move |recipe: &mut Recipe| {
        for entry in &entries {
            let mut entry = entry.clone();
            entry["dtype"] = "F32".into();
            entry["shape"] = json!([0, 3]);
            let number = tensor(recipe, entry, 0);
            whole(recipe, 0, number);
        }
    })
}

fn characters(cases: &mut Cases) {
    let forbidden = [
        ('\0', "nul", "NUL, at which some languages end a string"),
        ('\n', "newline", "a newline"),
        ('\u{1f}', "unit-separator", "U+001F, the last of the control characters"),
        ('\u{7f}', "delete", "U+007F"),
        ('\u{80}', "c1-first", "U+0080, the first of the C1 control characters"),
        ('\u{85}', "next-line", "U+0085, at which some programs begin a line"),
        ('\u{9f}', "c1-last", "U+009F, the last of the C1 control characters"),
        ('\u{61c}', "arabic-mark", "the Arabic letter mark"),
        ('\u{200e}', "left-to-right", "the left-to-right mark"),
        ('\u{200f}', "right-to-left", "the right-to-left mark"),
        ('\u{2028}', "line-separator", "the line separator"),
        ('\u{2029}', "paragraph-separator", "the paragraph separator"),
        ('\u{202a}', "embedding", "a left-to-right embedding"),
        ('\u{202e}', "override", "a right-to-left override, after which text reads backwards"),
        ('\u{2066}', "isolate-first", "a left-to-right isolate"),
        ('\u{2069}', "isolate-last", "the end of an isolate"),
    ];
    let mut group = Group::new(cases, "core", "bare", Effect::Deception).alone();
    for (character, slug, what) in forbidden {
        group.bad(
            &format!("name-{slug}"),
            &["identity.name"],
            &format!("A tensor's name has {what}."),
            &entry(json!({"name": format!("w{character}b")})),
            Code::BadName,
        );
    }
}

fn lengths(cases: &mut Cases) {
    let mut group = Group::new(cases, "core", "bare", Effect::Exhaustion).alone();
    let mut bad = |slug: &str, fault: &str, name: String| {
        group.bad(slug, &["identity.name"], fault, &entry(json!({"name": name})), Code::BadName);
    };
    bad("name-empty", "A tensor has an empty name.", String::new());
    bad("name-1025", "A tensor's name has 1025 bytes.", "x".repeat(1025));
    bad(
        "name-1025-bytes-of-fewer-letters",
        "A tensor's name has 1025 bytes, in 342 letters.",
        format!("{}xx", "長".repeat(341)),
    );
    group.good(
        "name-1024",
        &["identity.name"],
        "A tensor's name has 1024 bytes.",
        &entry(json!({"name": "x".repeat(1024)})),
    );
}

/// The same rule for everything else that is a name.
fn other_names(cases: &mut Cases) {
    let mut group = Group::new(cases, "core", "bare", Effect::Deception).alone();
    let optimizer = |slot: &str, owner: &str| json!({"role": "optimizer", "slot": slot, "owner": owner, "name": "w"});
    let record = |member: &'static str, value: &'static str| {
        Bend::new("another record").recipe(move |recipe| {
            let mut record = json!({"kind": "value", "name": "x", "value": {"map": []}});
            record[member] = value.into();
            recipe.writers[0].records.push(record);
        })
    };
    let listed = [
        ("component-empty", "A component is empty.", entry(json!({"component": ""}))),
        (
            "component-override",
            "A component turns the text after it around.",
            entry(json!({"component": "a\u{202e}b"})),
        ),
        ("slot-tab", "A slot has a tab.", entry(optimizer("adam\tm", "adam"))),
        ("owner-newline", "An owner has a newline.", entry(optimizer("adam.m", "adam\n"))),
        (
            "axis-empty",
            "An axis of the topology has an empty name.",
            Bend::new("another topology").recipe(|recipe| recipe.topology[0].0 = String::new()),
        ),
        (
            "axis-isolate",
            "An axis of the topology has an isolate in its name.",
            Bend::new("another topology")
                .recipe(|recipe| recipe.topology[0].0 = "\u{2067}dp".into()),
        ),
        (
            "run-empty",
            "The run has an empty name.",
            Bend::new("another run").recipe(|recipe| recipe.run = String::new()),
        ),
        (
            "run-long",
            "The name of the run has 1025 bytes.",
            Bend::new("another run").recipe(|recipe| recipe.run = "r".repeat(1025)),
        ),
        ("record-name-empty", "A record has an empty name.", record("name", "")),
        (
            "record-name-override",
            "A record's name turns text around.",
            record("name", "a\u{202d}b"),
        ),
        ("record-kind-empty", "A record has an empty kind.", record("kind", "")),
        ("record-kind-nul", "A record's kind has NUL.", record("kind", "x\0")),
        (
            "framework-empty",
            "A framework in `native` has no name.",
            entry(json!({"native": [["", ["w"]]]})),
        ),
    ];
    for (slug, fault, bend) in listed {
        group.bad(slug, &["identity.name"], fault, &bend, Code::BadName);
    }
}

/// Keys are compared, and not names: where the two orders differ, a reader that sorts by itself sees it.
fn order(cases: &mut Cases) {
    let mut group = Group::new(cases, "core", "bare", Effect::LostCheckpoint).alone();
    let swapped = |names: [&str; 2]| {
        let entries = names.map(|name| json!({"name": name, "role": "param"}));
        beside(&entries).both(|| {
            change("/entries", |entries| {
                let entries = entries.as_array_mut().expect("a list");
                // The new ones stand before `none`, in the order of their keys.
                entries.swap(0, 1);
            })
        })
    };
    let first = |name: &str| set("/tensors/0/first", json!(["main", "param", name, "", "", []]));
    group.bad(
        "entries-by-name",
        &["identity.order", "page.order"],
        "Entries are sorted by name, `a` before `a!`, and not by key, in which a quote ends the name.",
        &swapped(["a", "a!"]).manifest(first("a")),
        Code::BadOrder,
    );
    group.bad(
        "entries-by-name-unescaped",
        &["identity.order", "page.order"],
        "Entries are sorted by name, a quote before a letter, and not by key, in which it is escaped.",
        &swapped(["a\"", "aZ"]).manifest(first("a\"")),
        Code::BadOrder,
    );
    group.bad(
        "entries-by-utf16",
        &["identity.order", "page.order"],
        "Entries are sorted by the units of UTF-16, in which U+1F98A is below U+FFEE.",
        &swapped(["a\u{ffee}", "a\u{1f98a}"]).manifest(first("a\u{1f98a}")),
        Code::BadOrder,
    );
    group.bad(
        "entry-twice",
        &["identity.order", "page.order"],
        "A tensor stands twice.",
        &Bend::new("an entry twice").both(|| {
            change("/entries", |entries| {
                let entries = entries.as_array_mut().expect("a list");
                entries.push(entries[0].clone());
            })
        }),
        Code::BadOrder,
    );
}

fn roles(cases: &mut Cases) {
    let mut group = Group::new(cases, "core", "bare", Effect::Ambiguity).alone();
    for (slug, role, fault) in [
        ("role-unknown", "gradient", "A tensor has a role that is not in the registry."),
        ("role-upper-case", "Param", "A role is written with a capital."),
        ("role-empty", "", "A role is the empty string."),
    ] {
        // Counted as a known one, so that the manifest is right.
        let bend = Bend::new("another role")
            .both(move || set("/entries/0/role", role.into()))
            .manifest(set("/tensors/0/first", json!(["main", "param", "none", "", "", []])));
        group.bad(slug, &["identity.role"], fault, &bend, Code::UnsupportedRole);
    }
    group.bad(
        "role-unknown-in-first",
        &["identity.role"],
        "The manifest states a page's first key with a role that is not in the registry.",
        &Bend::new("another first key")
            .manifest(set("/tensors/0/first", json!(["main", "gradient", "none", "", "", []]))),
        Code::UnsupportedRole,
    );
    group.bad(
        "role-unknown-in-contents",
        &["identity.role"],
        "The manifest counts tensors of a role that is not in the registry.",
        &Bend::new("another count").manifest(set("/contents/0/1/0/0", "gradient".into())),
        Code::UnsupportedRole,
    );
}

fn slots_and_owners(cases: &mut Cases) {
    let mut group = Group::new(cases, "core", "bare", Effect::WrongResume).alone();
    let slots = [
        ("slot-of-param", "A param has a slot.", json!({"slot": "adam.m"})),
        ("slot-of-master", "A master has a slot.", json!({"role": "master", "slot": "adam.m"})),
        (
            "slot-of-ema",
            "An average has a slot.",
            json!({"role": "ema", "owner": "mean", "slot": "x"}),
        ),
        (
            "slot-of-blob",
            "A blob has a slot.",
            json!({"role": "blob", "dtype": "U8", "shape": [0], "slot": "x"}),
        ),
        (
            "optimizer-without-slot",
            "State of an optimizer does not say what it is.",
            json!({"role": "optimizer", "owner": "adam"}),
        ),
        ("quant-without-slot", "A companion does not say what it is.", json!({"role": "quant"})),
    ];
    for (slug, fault, members) in slots {
        group.bad(slug, &["identity.slot"], fault, &entry(members), Code::BadIdentity);
    }
    let owners = [
        ("owner-of-param", "A param has an owner.", json!({"owner": "adam"})),
        ("owner-of-buffer", "A buffer has an owner.", json!({"role": "buffer", "owner": "adam"})),
        (
            "owner-of-extension",
            "An extension has an owner.",
            json!({"role": "extension", "owner": "adam"}),
        ),
        (
            "optimizer-without-owner",
            "State of an optimizer does not say of which.",
            json!({"role": "optimizer", "slot": "adam.m"}),
        ),
        ("ema-without-owner", "An average does not say of which.", json!({"role": "ema"})),
    ];
    for (slug, fault, members) in owners {
        group.bad(slug, &["identity.owner"], fault, &entry(members), Code::BadIdentity);
    }
}

fn scopes(cases: &mut Cases) {
    let scoped = |scope: Value| {
        entry(json!({"scope": scope}))
            .recipe(|recipe| recipe.topology = vec![("dp".into(), 2), ("tp".into(), 3)])
    };
    let mut group = Group::new(cases, "core", "bare", Effect::WrongResume).alone();
    for (slug, fault, scope) in [
        ("scope-axis-unknown", "A scope has an axis that the topology lacks.", json!([["pp", 0]])),
        ("scope-index-beyond", "An index is the size of its axis.", json!([["tp", 3]])),
        ("scope-axes-swapped", "Axes stand in another order.", json!([["tp", 0], ["dp", 0]])),
        ("scope-axis-twice", "An axis stands twice.", json!([["dp", 0], ["dp", 1]])),
        ("scope-axis-twice-alike", "An axis stands twice alike.", json!([["dp", 0], ["dp", 0]])),
        (
            "scope-of-17",
            "There are 17 axes, one more than a topology may have.",
            (0..17).map(|axis| json!([format!("a{axis}"), 0])).collect(),
        ),
    ] {
        let fault = format!("{fault} It is a tensor's scope.");
        group.bad(slug, &["identity.scope"], &fault, &scoped(scope), Code::BadIdentity);
    }
    for (slug, fault, scope) in [
        ("scope-index-negative", "An index of a scope is negative.", json!([["dp", -1]])),
        ("scope-object", "A scope is an object.", json!({"dp": 0})),
        ("scope-triple", "An axis of a scope has two indices.", json!([["dp", 0, 1]])),
    ] {
        group.bad(slug, &["json.types"], fault, &scoped(scope), Code::BadMember);
    }
    group.good(
        "scope-last-index",
        &["identity.scope"],
        "A scope has the last index of each axis.",
        &scoped(json!([["dp", 1], ["tp", 2]])),
    );
}

/// What is left out when it says nothing, written out all the same: two texts of one identity.
fn left_out(cases: &mut Cases) {
    let mut group = Group::new(cases, "core", "bare", Effect::Ambiguity).alone();
    for (slug, member, value) in [
        ("component-main", "component", json!("main")),
        ("slot-empty", "slot", json!("")),
        ("owner-empty", "owner", json!("")),
        ("scope-empty", "scope", json!([])),
    ] {
        group.bad(
            &format!("written-out-{slug}"),
            &["identity.left-out"],
            &format!("`{member}` stands in an entry though it says nothing."),
            &entry(json!({member: value})),
            Code::BadMember,
        );
    }
}

fn one_name(cases: &mut Cases) {
    let rules = ["identity.one-name"];
    let buffer = |name: &str| json!({"name": name, "role": "buffer"});
    let mut group = Group::new(cases, "extended", "bare", Effect::Ambiguity).alone();
    group.bad(
        "name-of-param-and-buffer",
        &rules,
        "A param and a buffer have one name, which would be one key of a safetensors file.",
        &beside(&[buffer("none")]),
        Code::NameConflict,
    );
    let scoped = |role: &str, at: u64| json!({"name": "x", "role": role, "scope": [["dp", at]]});
    let two = |second: u64| {
        beside(&[scoped("param", 0), scoped("buffer", second)])
            .recipe(|recipe| recipe.topology[0].1 = 2)
    };
    group.bad(
        "name-of-param-and-buffer-of-a-scope",
        &rules,
        "A param and a buffer of one coordinate have one name.",
        &two(0),
        Code::NameConflict,
    );
    group.good(
        "name-of-param-and-buffer-of-two-scopes",
        &rules,
        "A param and a buffer of two coordinates have one name.",
        &two(1),
    );
    group.good(
        "name-of-param-and-others",
        &rules,
        "A param, a master, an extension and a buffer of another component have one name.",
        &beside(&[
            json!({"name": "none", "role": "master"}),
            json!({"name": "none", "role": "extension"}),
            json!({"component": "critic", "name": "none", "role": "buffer"}),
        ]),
    );
}
