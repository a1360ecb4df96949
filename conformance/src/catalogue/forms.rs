//! Chapter 2: members that are missing, too many, or of another type, where no other rule has a say.

use serde_json::json;
use waystation_format::Code;

use super::Cases;
use crate::bend::{Bend, remove, set};
use crate::case::Effect;

pub(super) fn add(cases: &mut Cases) {
    let missing = [
        "attempt",
        "block_bytes",
        "contents",
        "features",
        "omitted",
        "parent",
        "parts",
        "records",
        "run",
        "step",
        "tensors",
        "topology",
        "version",
        "writers",
    ];
    for member in missing {
        cases
            .case(
                &format!("core/manifest-without-{}", member.replace('_', "-")),
                &["json.unknown-member"],
                &format!("The manifest lacks `{member}`."),
            )
            .effect(Effect::Ambiguity)
            .rejects(
                "bare",
                &Bend::new("a member less").manifest(remove(&format!("/{member}"))),
                &[Code::BadMember],
            );
    }
    let surplus = [
        ("", "manifest", "The manifest"),
        ("/features", "features", "`features`"),
        ("/parts/0", "parts", "An element of `parts`"),
        ("/tensors/0", "pages", "An element of the manifest's `tensors`"),
    ];
    for (place, slug, what) in surplus {
        cases
            .case(
                &format!("core/unknown-member-in-{slug}"),
                &["json.unknown-member"],
                &format!("{what} has a member that version 1 does not know."),
            )
            .effect(Effect::Ambiguity)
            .rejects(
                "bare",
                &Bend::new("a member more").manifest(set(&format!("{place}/zzz"), json!(null))),
                &[Code::BadMember],
            );
    }
    let types = [
        ("step-string", "/step", json!("1000"), "`step` is a string."),
        ("step-negative", "/step", json!(-1), "`step` is negative."),
        ("step-bool", "/step", json!(true), "`step` is true, which some languages take for 1."),
        (
            "attempt-upper-case",
            "/attempt",
            json!("000000011234ABCD"),
            "`attempt` has upper-case digits.",
        ),
        ("attempt-short", "/attempt", json!("12345678"), "`attempt` has eight digits."),
        ("parent-short", "/parent", json!("00"), "`parent` is no SHA-256."),
        ("writers-null", "/writers", json!(null), "`writers` is null."),
        ("parts-object", "/parts", json!({}), "`parts` is an object."),
        ("topology-flat", "/topology", json!(["dp", 1]), "`topology` is one flat list."),
        (
            "inc-upper-case",
            "/parts/0/inc",
            json!("111111111111111A"),
            "An incarnation has an upper-case digit.",
        ),
        ("sha256-short", "/parts/0/sha256", json!("ab"), "The digest of a part has two digits."),
        ("bytes-negative", "/tensors/0/bytes", json!(-1), "The length of a page is negative."),
    ];
    for (slug, pointer, value, fault) in types {
        cases
            .case(&format!("core/type-{slug}"), &["json.types"], fault)
            .effect(Effect::Ambiguity)
            .rejects(
                "bare",
                &Bend::new("another type").manifest(set(pointer, value)),
                &[Code::BadMember],
            );
    }
}
