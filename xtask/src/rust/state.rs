//! Rust for the registries of resume state: streams, orders, schedules, grades.
//!
//! It knows which functions each enum has beside those that all have. How an enum is written, the
//! module above knows.

use super::{Enum, Variant, head, literal, variant};
use crate::registry::{Advance, Registry};

const DERIVES: &str = "Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash";

/// Algorithms and caches of random streams.
pub(super) fn rng(registry: &Registry) -> String {
    let mut out = head(
        "spec/registry/rng-algorithms.toml and rng-caches.toml",
        "Algorithms of random streams, and what samplers keep beside them.",
    );
    out += "use std::fmt;\n\n";
    let algorithms = Enum {
        name: "RngAlgorithm",
        doc: "A registered algorithm of random streams.",
        derives: DERIVES,
        variants: registry
            .algorithms
            .iter()
            .map(|a| named(&a.id, &a.rust, format!("{}. State: {}.", a.meaning, a.layout)))
            .collect(),
    };
    out += &algorithms.declaration();
    out += "impl RngAlgorithm {\n";
    out += &algorithms.common();
    let bytes = registry.algorithms.iter().map(|a| a.bytes.to_string());
    out += &algorithms.matcher("Bytes of the canonical state.", "state_bytes", "usize", bytes);
    let width = registry.algorithms.iter().map(|a| a.width.to_string());
    out += &algorithms.matcher("Bits of one raw output.", "width", "u32", width);
    let canary = registry.algorithms.iter().map(|a| a.canary.to_string());
    out += &algorithms.matcher(
        "Whether the specification says what the raw outputs are.",
        "has_canary",
        "bool",
        canary,
    );
    let advance = registry.algorithms.iter().map(|a| format!("Advance::{:?}", a.advance));
    out += &algorithms.matcher("What drawing does to the state.", "advance", "Advance", advance);
    out += "}\n\n";
    out += &algorithms.display();

    out += "/// What drawing does to the state of a stream.\n";
    out += "#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]\npub enum Advance {\n";
    for (advance, text) in [
        (Advance::Draw, "Each raw output moves it on."),
        (Advance::Block, "Every four raw outputs move it on; states lie only between blocks."),
        (Advance::Key, "Nothing: the raw outputs are a function of the key and their number."),
    ] {
        out += &format!("/// {text}\n{advance:?},\n");
    }
    out += "}\n\n";

    let caches = Enum {
        name: "RngCache",
        doc: "A registered kind of sampler cache.",
        derives: DERIVES,
        variants: registry
            .caches
            .iter()
            .map(|c| Variant {
                name: words(&c.id),
                id: c.id.clone(),
                doc: format!("{}.", c.meaning),
            })
            .collect(),
    };
    out += &caches.declaration();
    out += "impl RngCache {\n";
    out += &caches.common();
    let bits = registry.caches.iter().map(|c| c.bits.to_string());
    out += &caches.matcher("Bits of the value.", "bits", "u32", bits);
    out += "}\n\n";
    out += &caches.display();
    out
}

/// Orders of records.
pub(super) fn orders(registry: &Registry) -> String {
    let mut out = head("spec/registry/orders.toml", "Orders of the records of a source.");
    out += "use std::fmt;\n\n";
    let orders = Enum {
        name: "OrderAlgorithm",
        doc: "A registered order.",
        derives: DERIVES,
        variants: registry
            .orders
            .iter()
            .map(|o| named(&o.id, &o.rust, o.meaning.clone()))
            .collect(),
    };
    out += &orders.declaration();
    out += "impl OrderAlgorithm {\n";
    out += &orders.common();
    let computed = registry.orders.iter().map(|o| o.computed.to_string());
    out += &orders.matcher(
        "Whether the specification defines the order itself.",
        "is_computed",
        "bool",
        computed,
    );
    out += "}\n\n";
    out += &orders.display();
    out
}

/// Schedules whose value is computed.
pub(super) fn schedules(registry: &Registry) -> String {
    let mut out = head("spec/registry/schedules.toml", "Schedules whose value is computed.");
    out += "use std::fmt;\n\n";
    let schedules = Enum {
        name: "ScheduleAlgorithm",
        doc: "A registered schedule.",
        derives: DERIVES,
        variants: registry
            .schedules
            .iter()
            .map(|s| named(&s.id, &s.rust, format!("At position p: {}.", s.meaning)))
            .collect(),
    };
    out += &schedules.declaration();
    out += "impl ScheduleAlgorithm {\n";
    out += &schedules.common();
    let parameters = registry.schedules.iter().map(|s| {
        let names: Vec<String> = s.parameters.split(", ").map(literal).collect();
        format!("&[{}]", names.join(", "))
    });
    out += &schedules.matcher(
        "Names of its parameters.",
        "parameters",
        "&'static [&'static str]",
        parameters,
    );
    out += "}\n\n";
    out += &schedules.display();
    out
}

/// Grades of what was restored.
pub(super) fn grades(registry: &Registry) -> String {
    let mut out = head("spec/registry/grades.toml", "Grades of what was restored.");
    out += "use std::fmt;\n\n";
    let grades = Enum {
        name: "Grade",
        doc: "What a loader says of a thing that it restored. Better ones are less.",
        derives: DERIVES,
        variants: registry.grades.iter().map(|g| variant(&g.id, &g.meaning)).collect(),
    };
    out += &grades.declaration();
    out += "impl Grade {\n";
    out += &grades.common();
    let meanings = registry.grades.iter().map(|g| literal(&g.meaning));
    out += &grades.matcher("The spec's sentence.", "meaning", "&'static str", meanings);
    out += "}\n\n";
    out += &grades.display();
    out
}

fn named(id: &str, rust: &str, doc: String) -> Variant {
    Variant { name: rust.to_owned(), id: id.to_owned(), doc }
}

/// `torch/normal-f64` to `TorchNormalF64`.
fn words(id: &str) -> String {
    super::pascal(&id.replace('/', "-"))
}
