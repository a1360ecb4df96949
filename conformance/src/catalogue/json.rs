//! Chapter 2: what is and is not canonical JSON. Each fault in the manifest, and the first ones in
//! a page and a part too. What members an object has and of what types is in `forms`.

use serde_json::json;
use waystation_format::Code;

use super::Cases;
use crate::bend::{Bend, set};
use crate::case::Effect;

/// Slug, rule, what is wrong, what stands in the manifest of `bare`, what instead.
type Textual = (&'static str, &'static str, &'static str, &'static str, &'static str);

const TEXTS: [Textual; 27] = [
    (
        "whitespace-between",
        "json.one-value",
        "A space stands between a member's name and its value.",
        r#""step":1000"#,
        r#""step": 1000"#,
    ),
    (
        "whitespace-before",
        "json.one-value",
        "A space stands before the text.",
        r#"{"attempt""#,
        r#" {"attempt""#,
    ),
    (
        "newline-after",
        "json.one-value",
        "A newline stands after the text.",
        r#""writers":1}"#,
        "\"writers\":1}\n",
    ),
    (
        "second-value",
        "json.one-value",
        "A second object stands after the first.",
        r#""writers":1}"#,
        r#""writers":1}{}"#,
    ),
    (
        "nul-after",
        "json.one-value",
        "A NUL byte stands after the text.",
        r#""writers":1}"#,
        "\"writers\":1}\0",
    ),
    (
        "array-outermost",
        "json.one-value",
        "The outermost value is an array with the object in it.",
        r#"{"attempt""#,
        r#"[{"attempt""#,
    ),
    (
        "duplicate-member",
        "json.members",
        "The member `step` stands twice, with two values.",
        r#""step":1000"#,
        r#""step":1000,"step":2000"#,
    ),
    (
        "duplicate-member-equal",
        "json.members",
        "The member `step` stands twice, with one value.",
        r#""step":1000"#,
        r#""step":1000,"step":1000"#,
    ),
    (
        "unsorted-members",
        "json.members",
        "`kind` stands before `format`.",
        r#""format":"waystation","kind":"manifest""#,
        r#""kind":"manifest","format":"waystation""#,
    ),
    (
        "member-beyond-ascii",
        "json.ascii-members",
        "A member's name has a letter beyond ASCII.",
        r#""writers":1}"#,
        r#""writers":1,"\u{e9}":1}"#,
    ),
    (
        "member-delete",
        "json.ascii-members",
        "A member's name is U+007F, which is ASCII and no letter of a name.",
        r#""writers":1}"#,
        "\"writers\":1,\"\u{7f}\":1}",
    ),
    (
        "number-fraction",
        "json.integers",
        "A number has a fraction.",
        r#""step":1000"#,
        r#""step":1000.0"#,
    ),
    (
        "number-exponent",
        "json.integers",
        "A number has an exponent.",
        r#""step":1000"#,
        r#""step":1e3"#,
    ),
    (
        "number-leading-zero",
        "json.integers",
        "A number has a leading zero.",
        r#""step":1000"#,
        r#""step":01000"#,
    ),
    (
        "number-plus",
        "json.integers",
        "A number has a plus sign.",
        r#""step":1000"#,
        r#""step":+1000"#,
    ),
    (
        "number-negative-zero",
        "json.integers",
        "A zero has a minus sign.",
        r#""step":1000"#,
        r#""step":-0"#,
    ),
    (
        "number-hex",
        "json.integers",
        "A number is hexadecimal.",
        r#""step":1000"#,
        r#""step":0x3e8"#,
    ),
    (
        "number-above-2-53",
        "json.integers",
        "A number is 2^53, which not every reader can hold.",
        r#""step":1000"#,
        r#""step":9007199254740992"#,
    ),
    (
        "number-2-64",
        "json.integers",
        "A number is 2^64 + 1000, which wraps to a good one in 64 bits.",
        r#""step":1000"#,
        r#""step":18446744073709552616"#,
    ),
    ("literal-nan", "json.literals", "A number is NaN.", r#""step":1000"#, r#""step":NaN"#),
    (
        "literal-infinity",
        "json.literals",
        "A number is Infinity.",
        r#""step":1000"#,
        r#""step":Infinity"#,
    ),
    (
        "literal-upper-case",
        "json.literals",
        "`null` is in capitals.",
        r#""parent":null"#,
        r#""parent":NULL"#,
    ),
    (
        "comment",
        "json.literals",
        "A comment stands in the text.",
        r#""step":1000"#,
        r#""step":1000/* later */"#,
    ),
    (
        "escape-solidus",
        "json.strings",
        "A solidus is escaped.",
        r#""run":"golden""#,
        r#""run":"go\/den""#,
    ),
    (
        "escape-letter",
        "json.strings",
        "A letter is escaped.",
        r#""run":"golden""#,
        r#""run":"g\u006flden""#,
    ),
    (
        "single-quotes",
        "json.strings",
        "A string stands in single quotes.",
        r#""run":"golden""#,
        r#""run":'golden'"#,
    ),
    (
        "trailing-comma",
        "json.canonical",
        "A comma stands after the last member.",
        r#""writers":1}"#,
        r#""writers":1,}"#,
    ),
];

pub(super) fn add(cases: &mut Cases) {
    for (slug, rule, fault, old, new) in TEXTS {
        let new = new.replace("\\u{e9}", "é");
        let mut rules = vec![rule];
        if rule != "json.canonical" {
            rules.push("json.canonical");
        }
        cases
            .case(&format!("core/json-{slug}"), &rules, fault)
            .effect(if slug.starts_with("duplicate") {
                Effect::Ambiguity
            } else {
                Effect::SilentCorruption
            })
            .rejects("bare", &Bend::new(slug).text("manifest", old, &new), &[Code::NotCanonical]);
    }
    controls(cases);
    bytes(cases);
    elsewhere(cases);
    nesting(cases);
}

/// Control characters in another form, in a string that may hold them: as a name it would break another rule.
fn controls(cases: &mut Cases) {
    for (slug, fault, new) in [
        ("escape-upper-case", "The digits of an escape are upper-case.", "g\\u001Flden"),
        ("escape-long", "A tab is escaped by its number.", "g\\u0009lden"),
        ("control-character", "A tab stands in a string as itself.", "g\tlden"),
    ] {
        let bend = Bend::new(slug)
            .recipe(|recipe| {
                let record = json!({"kind": "value", "name": "text", "value": {"tree": "golden"}});
                recipe.writers[0].records.push(record);
            })
            .text("records 0", r#""tree":"golden""#, &format!("\"tree\":\"{new}\""));
        cases
            .case(&format!("core/json-{slug}"), &["json.strings", "json.canonical"], fault)
            .effect(Effect::SilentCorruption)
            .rejects("bare", &bend, &[Code::NotCanonical]);
    }
}

/// Texts that are no UTF-8.
fn bytes(cases: &mut Cases) {
    let put = |bytes: &'static [u8]| {
        Bend::new("bytes in the run's name").bytes("manifest", move |text| {
            let at = find(text, b"golden");
            text.splice(at..at + 1, bytes.iter().copied());
        })
    };
    let texts: [(&str, &str, &'static [u8]); 5] = [
        ("utf8-overlong", "A string has a letter in an overlong form.", &[0xc1, 0xa7]),
        ("utf8-surrogate", "A string has an encoded surrogate.", &[0xed, 0xa0, 0x80]),
        ("utf8-beyond", "A string has a code point above U+10FFFF.", &[0xf4, 0x90, 0x80, 0x80]),
        ("utf8-alone", "A string has a continuation byte that continues nothing.", &[0x80]),
        ("utf8-cut", "A string ends within a character.", &[0xe2, 0x82]),
    ];
    for (slug, fault, bytes) in texts {
        cases
            .case(&format!("core/json-{slug}"), &["json.encoding", "json.canonical"], fault)
            .effect(Effect::Ambiguity)
            .rejects("bare", &put(bytes), &[Code::NotCanonical]);
    }
    cases
        .case(
            "core/json-byte-order-mark",
            &["json.encoding", "json.canonical"],
            "The text begins with a byte order mark.",
        )
        .effect(Effect::Ambiguity)
        .rejects(
            "bare",
            &Bend::new("a byte order mark").bytes("manifest", |text| {
                text.splice(0..0, [0xef, 0xbb, 0xbf]);
            }),
            &[Code::NotCanonical],
        );
    cases
        .case(
            "core/json-lone-surrogate-escape",
            &["json.strings", "json.canonical"],
            "A string has half a surrogate pair as an escape.",
        )
        .effect(Effect::Ambiguity)
        .rejects(
            "bare",
            &Bend::new("half a pair").text("manifest", "golden", "g\\ud800"),
            &[Code::NotCanonical],
        );
    cases
        .case(
            "core/json-empty-file",
            &["json.one-value", "json.canonical"],
            "The manifest has no bytes, and its digest is right.",
        )
        .effect(Effect::HalfWritten)
        .rejects(
            "bare",
            &Bend::new("no bytes").bytes("manifest", Vec::clear),
            &[Code::NotCanonical],
        );
    cases
        .case(
            "core/json-cut",
            &["json.canonical"],
            "The manifest ends in the middle, and its digest is right.",
        )
        .effect(Effect::HalfWritten)
        .rejects(
            "bare",
            &Bend::new("cut in half").bytes("manifest", |text| text.truncate(text.len() / 2)),
            &[Code::NotCanonical],
        );
}

/// The same in other files: a reader must not be strict with manifests alone.
fn elsewhere(cases: &mut Cases) {
    for (what, slug, profile, old) in [
        ("tensors 0", "page", "core", r#""page":0"#),
        ("records 0", "page-of-records", "core", r#""page":0"#),
        ("part 0", "part", "extended", r#""writer":0"#),
    ] {
        let twice = format!("{old},{old}");
        cases
            .case(
                &format!("{profile}/json-duplicate-in-{slug}"),
                &["json.members", "json.canonical"],
                &format!("A member stands twice in the {}.", slug.replace('-', " ")),
            )
            .effect(Effect::Ambiguity)
            .rejects(
                "bare",
                &Bend::new("a member twice").text(what, old, &twice),
                &[Code::NotCanonical],
            );
        let spaced = old.replace(':', ": ");
        cases
            .case(
                &format!("{profile}/json-whitespace-in-{slug}"),
                &["json.one-value", "json.canonical"],
                &format!("A space stands in the {}.", slug.replace('-', " ")),
            )
            .effect(Effect::Ambiguity)
            .rejects("bare", &Bend::new("a space").text(what, old, &spaced), &[Code::NotCanonical]);
    }
}

fn nesting(cases: &mut Cases) {
    // The value of an extension stands at the sixth level, the outermost counting as one.
    let nested = |levels: usize| {
        let mut value = json!([]);
        for _ in 1..levels {
            value = json!([value]);
        }
        let data = json!({"on_rewrite": "drop", "value": value});
        Bend::new("arrays in arrays")
            .part(0, set("/features/optional", json!(["x/y"])))
            .part(0, set("/extensions/x~1y", data.clone()))
            .manifest(set("/features/optional", json!(["x/y"])))
            .manifest(set("/parts/0/extensions/x~1y", data))
    };
    let bare = crate::build::projection(&super::bases::bare());
    cases
        .case(
            "core/json-depth-limit",
            &["json.depth"],
            "The manifest nests a hundred levels deep, as deep as it may.",
        )
        .effect(Effect::LostCheckpoint)
        .accepts_as("bare", &nested(95), bare);
    cases
        .case(
            "core/json-depth-above",
            &["json.depth"],
            "The manifest nests a hundred and one levels deep.",
        )
        .effect(Effect::Exhaustion)
        .rejects("bare", &nested(96), &[Code::Limit]);
    cases
        .case(
            "core/json-depth-bomb",
            &["json.depth"],
            "The manifest opens a hundred thousand arrays.",
        )
        .effect(Effect::Exhaustion)
        .latitude("json.depth: a text that nests deeper and is malformed after that may be either.")
        .rejects(
            "bare",
            &Bend::new("a hundred thousand brackets").text(
                "manifest",
                r#""parent":null"#,
                &format!(r#""parent":{}"#, "[".repeat(100_000)),
            ),
            &[Code::Limit, Code::NotCanonical],
        );
}

fn find(text: &[u8], what: &[u8]) -> usize {
    text.windows(what.len()).position(|window| window == what).expect("a text that is there")
}
