//! Chapter 4.1: second names of tensors.

use serde_json::{Value, json};
use waystation_format::Code;

use super::Cases;
use super::group::Group;
use super::identity::beside;
use crate::bend::{Bend, set};
use crate::case::Effect;

pub(super) fn add(cases: &mut Cases) {
    roles(cases);
    forms(cases);
    targets(cases);
    members(cases);
    names(cases);
}

/// The alias of `small` with other members; null takes one away.
fn alias(members: Value) -> Bend {
    Bend::new("another alias").recipe(move |recipe| {
        let alias = recipe.writers[0].aliases[0].as_object_mut().expect("an alias");
        for (member, value) in members.as_object().expect("members") {
            if value.is_null() {
                alias.remove(member);
            } else {
                alias.insert(member.clone(), value.clone());
            }
        }
    })
}

fn of(component: &str, role: &str, name: &str) -> Value {
    json!([component, role, name, "", "", []])
}

fn roles(cases: &mut Cases) {
    let mut group = Group::new(cases, "core", "small", Effect::Ambiguity).alone();
    let moment = json!(["main", "optimizer", "w", "adam.m", "adam", []]);
    for (slug, fault, members) in [
        (
            "alias-of-another-role",
            "An alias of role buffer names a param.",
            json!({"role": "buffer"}),
        ),
        (
            "alias-of-a-buffer",
            "An alias of role param names a buffer.",
            json!({"of": of("main", "buffer", "count")}),
        ),
        (
            "alias-of-a-moment",
            "An alias of role optimizer names state of an optimizer.",
            json!({"role": "optimizer", "of": moment}),
        ),
        (
            "alias-of-an-extension",
            "An alias of role extension names an extension.",
            json!({"role": "extension", "of": of("main", "extension", "w")}),
        ),
    ] {
        group.bad(slug, &["alias.role"], fault, &alias(members), Code::BadAlias);
    }
}

fn forms(cases: &mut Cases) {
    let mut group = Group::new(cases, "core", "small", Effect::Ambiguity).alone();
    // Bent in part and page, since the builder takes the alias's own scope from `of`.
    let of_is = |value: Value| {
        Bend::new("another target").both(move || set("/entries/2/of", value.clone()))
    };
    for (slug, fault, value) in [
        ("alias-of-string", "`of` is a name.", json!("w")),
        (
            "alias-of-text",
            "`of` is a string that holds an identity key.",
            json!("[\"main\",\"param\",\"w\",\"\",\"\",[]]"),
        ),
        ("alias-of-null", "`of` is null.", json!(null)),
        ("alias-of-five", "`of` has five values.", json!(["main", "param", "w", "", ""])),
        ("alias-of-seven", "`of` has seven values.", json!(["main", "param", "w", "", "", [], 0])),
        (
            "alias-of-object",
            "`of` is an object.",
            json!({"component": "main", "role": "param", "name": "w"}),
        ),
        ("alias-of-number", "The slot in `of` is 0.", json!(["main", "param", "w", 0, "", []])),
        (
            "alias-of-no-scope",
            "The scope in `of` is null.",
            json!(["main", "param", "w", "", "", null]),
        ),
    ] {
        group.bad(slug, &["alias.form"], fault, &of_is(value), Code::BadMember);
    }
    for (slug, rule, fault, value, code) in [
        (
            "alias-of-no-role",
            "identity.role",
            "The role in `of` is not in the registry.",
            of("main", "weights", "w"),
            Code::UnsupportedRole,
        ),
        (
            "alias-of-no-component",
            "identity.name",
            "The component in `of` is empty: there nothing is left out.",
            of("", "param", "w"),
            Code::BadName,
        ),
        (
            "alias-of-no-name",
            "identity.name",
            "The name in `of` is empty.",
            of("main", "param", ""),
            Code::BadName,
        ),
        (
            "alias-of-override",
            "identity.name",
            "The name in `of` turns text around.",
            of("main", "param", "\u{202e}w"),
            Code::BadName,
        ),
        (
            "alias-of-slot",
            "identity.slot",
            "`of` names a param with a slot.",
            json!(["main", "param", "w", "adam.m", "", []]),
            Code::BadIdentity,
        ),
        (
            "alias-of-owner",
            "identity.owner",
            "`of` names a param with an owner.",
            json!(["main", "param", "w", "", "adam", []]),
            Code::BadIdentity,
        ),
        (
            "alias-of-scope-beyond",
            "identity.scope",
            "The scope in `of` is outside the topology.",
            json!(["main", "param", "w", "", "", [["dp", 1]]]),
            Code::BadIdentity,
        ),
    ] {
        group.bad(slug, &[rule, "alias.form"], fault, &of_is(value), code);
    }
}

/// What an alias names is seen when its elements are read.
fn targets(cases: &mut Cases) {
    let slug_and_bend = || {
        [
            (
                "alias-of-nothing",
                "alias.target",
                "An alias names a tensor that is not there.",
                alias(json!({"of": of("main", "param", "v")})),
            ),
            (
                "alias-of-another-component",
                "alias.target",
                "An alias names a tensor of a component in which there is none.",
                alias(json!({"of": of("critic", "param", "w")})),
            ),
            (
                "alias-of-itself",
                "alias.target",
                "An alias names itself.",
                alias(json!({"of": of("main", "param", "head")})),
            ),
            (
                "alias-of-alias",
                "alias.target",
                "An alias names an alias, whose target is there.",
                Bend::new("another alias").recipe(|recipe| {
                    recipe.writers[0].aliases.push(
                        json!({"name": "tail", "of": of("main", "param", "head"), "role": "param"}),
                    );
                }),
            ),
            (
                "alias-in-a-ring",
                "alias.target",
                "Two aliases name each other.",
                alias(json!({"of": of("main", "param", "tail")})).recipe(|recipe| {
                    recipe.writers[0].aliases.push(
                        json!({"name": "tail", "of": of("main", "param", "head"), "role": "param"}),
                    );
                }),
            ),
            (
                "alias-without-elements",
                "alias.elements",
                "An alias names a tensor without elements.",
                beside(&[json!({"name": "none", "role": "param"})]).recipe(|recipe| {
                    recipe.writers[0].aliases[0]["of"] = of("main", "param", "none");
                }),
            ),
        ]
    };
    for profile in ["core", "extended"] {
        for (slug, rule, fault, bend) in slug_and_bend() {
            let mut group = Group::new(cases, profile, "small", Effect::Exhaustion).alone();
            group.bad(slug, &[rule], fault, &bend, Code::BadAlias);
        }
    }
    for (slug, rule, fault, bend) in slug_and_bend() {
        let name = if slug == "alias-of-alias" { "tail" } else { "head" };
        cases
            .case(&format!("reshard/{slug}"), &[rule, "read.alias"], fault)
            .effect(Effect::Exhaustion)
            .request(
                json!({"tensor": of("main", "param", name), "start": [0, 0], "extent": [1, 1]}),
            )
            .rejects_alone("small", &bend, &[Code::BadAlias]);
    }
}

fn members(cases: &mut Cases) {
    let mut group = Group::new(cases, "core", "small", Effect::Ambiguity).alone();
    let both = |member: &'static str, value: Value| {
        Bend::new("a member more").both(move || set(&format!("/entries/2/{member}"), value.clone()))
    };
    for (slug, fault, bend) in [
        ("alias-with-slot", "An alias has a slot.", both("slot", json!("adam.m"))),
        ("alias-with-scope", "An alias has a scope of its own.", both("scope", json!([["dp", 0]]))),
        ("alias-with-shape", "An alias has a shape.", both("shape", json!([4, 6]))),
        (
            "alias-with-chunks",
            "An entry has both `chunks` and `of`; its first member makes it a tensor.",
            both("chunks", json!([])),
        ),
    ] {
        group.bad(slug, &["json.unknown-member"], fault, &bend, Code::BadMember);
    }
    group.bad(
        "alias-main-written-out",
        &["identity.left-out"],
        "An alias says that its component is `main`.",
        &alias(json!({"component": "main"})),
        Code::BadMember,
    );
    group.bad(
        "alias-native-empty",
        &["tensor.native"],
        "The `native` of an alias is empty.",
        &alias(json!({"native": []})),
        Code::BadMember,
    );
    group.bad(
        "alias-name-newline",
        &["identity.name"],
        "The name of an alias has a newline.",
        &alias(json!({"name": "he\nad"})),
        Code::BadName,
    );
}

fn names(cases: &mut Cases) {
    let mut group = Group::new(cases, "extended", "small", Effect::Ambiguity).alone();
    group.bad(
        "alias-named-as-a-buffer",
        &["identity.one-name"],
        "An alias of a param has the name of a buffer.",
        &alias(json!({"name": "count"})),
        Code::NameConflict,
    );
    group.good(
        "alias-named-as-a-buffer-elsewhere",
        &["identity.one-name"],
        "An alias of another component has the name of a buffer.",
        &alias(json!({"component": "critic", "name": "count"})),
    );
}
