//! Chapter 8.1: what is merged of parts that agree, and the inventory that says how much there must be.

use serde_json::{Value, json};
use waystation_format::Code;

use super::group::Group;
use super::{Cases, bases};
use crate::bend::Bend;
use crate::build;
use crate::case::Effect;
use crate::recipe::Writer;

pub(super) fn add(cases: &mut Cases) {
    inventories(cases);
    merged(cases);
}

fn inventories(cases: &mut Cases) {
    let keys = || -> Vec<String> {
        let two = bases::two();
        let aliases = two.writers.iter().flat_map(|writer| &writer.aliases);
        let tensors =
            two.tensors.iter().map(|whole| build::key(&Value::Object(whole.entry.clone())));
        let mut keys: Vec<String> = tensors.chain(aliases.map(build::key)).collect();
        keys.sort();
        keys.dedup();
        keys
    };
    let of = |keys: &[String]| {
        let text: String = keys.iter().map(|key| format!("{key}\n")).collect();
        json!({"count": keys.len(), "sha256": build::sha256(text.as_bytes())})
    };
    let with = |stated: [Value; 2]| {
        Bend::new("an inventory").recipe(move |recipe| {
            for (writer, inventory) in stated.iter().enumerate() {
                recipe.writers[writer].members.insert("inventory".into(), inventory.clone());
            }
        })
    };
    let right = of(&keys());
    for (slug, what, stated) in [
        ("both", "Both parts state the inventory.", [right.clone(), right.clone()]),
        ("one", "The second part alone states the inventory.", [Value::Null, right.clone()]),
    ] {
        for profile in ["core", "extended"] {
            Group::new(cases, profile, "two", Effect::LostCheckpoint).good(
                &format!("inventory-{slug}"),
                &["part.inventory", "part.session"],
                what,
                &with(stated.clone()),
            );
        }
    }
    let mut without = right.clone();
    without["sha256"] = json!(build::sha256(keys().join("\n").as_bytes()));
    let mut more = keys();
    more.push(r#"["main","param","zz","","",[]]"#.into());
    let mut count = right.clone();
    count["count"] = json!(7);
    let mut group = Group::new(cases, "extended", "two", Effect::HalfWritten);
    for (slug, what, stated) in [
        ("more", "The inventory has a tensor that no writer wrote.", of(&more)),
        ("less", "The inventory lacks a tensor that there is.", of(&keys()[1..])),
        ("count", "The inventory's count is another than that of its keys.", count),
        (
            "newline",
            "The inventory's digest is over keys without a newline after the last.",
            without,
        ),
    ] {
        group.bad(
            &format!("inventory-{slug}"),
            &["part.inventory"],
            what,
            &with([stated.clone(), stated]),
            Code::InventoryMismatch,
        );
    }
    group.bad(
        "parts-differ-inventory",
        &["part.session"],
        "Both parts state an inventory, and not the same.",
        &with([right, of(&more)]),
        Code::PartDisagree,
    );
}

/// What is merged of two parts.
fn merged(cases: &mut Cases) {
    for profile in ["core", "extended"] {
        let mut group = Group::new(cases, profile, "two", Effect::LostCheckpoint);
        group.good(
            "features-merged",
            &["feature.optional", "derive.function"],
            "Each part has an optional feature that the other has not, and both have a third.",
            &Bend::new("optional features").recipe(|recipe| {
                for (writer, own) in [(0, "x/c"), (1, "x/a")] {
                    let features =
                        if own < "x/b" { json!([own, "x/b"]) } else { json!(["x/b", own]) };
                    let members = &mut recipe.writers[writer].members;
                    members
                        .insert("features".into(), json!({"optional": features, "required": []}));
                }
            }),
        );
        group.good(
            "omitted-merged",
            &["part.omitted", "derive.function"],
            "Both parts omit names, some of them the same.",
            &Bend::new("omitted names").recipe(|recipe| {
                let one = |names: &[&str], reason: &str| json!({"component": "main", "names": names, "reason": reason});
                recipe.writers[0].omitted = vec![one(&["b", "d"], "frozen")];
                recipe.writers[1].omitted = vec![one(&["x"], "base"), one(&["a", "b"], "frozen")];
            }),
        );
        group.good(
            "writer-idle",
            &["manifest.parts"],
            "A third writer has nothing.",
            &Bend::new("a writer more").recipe(|recipe| recipe.writers.push(Writer::default())),
        );
    }
}
