//! Chapter 7.3: attachments, their logical paths and their bytes.

use serde_json::{Value, json};
use waystation_format::Code;

use super::group::Group;
use super::{Cases, bases};
use crate::bend::{Bend, change, remove, set};
use crate::case::Effect;
use crate::recipe::{Attachment, hex};

pub(super) fn add(cases: &mut Cases) {
    paths(cases);
    together(cases);
    members(cases);
    bytes(cases);
    many(cases);
}

/// The checkpoint with attachments of these paths, each writer's after its own.
fn with(paths: &[(usize, &str)]) -> Bend {
    let paths: Vec<(usize, String)> =
        paths.iter().map(|(writer, path)| (*writer, (*path).to_owned())).collect();
    let shown = paths.last().map(|(_, path)| path.clone()).unwrap_or_default();
    Bend::new("other attachments").shown_by(&shown).recipe(move |recipe| {
        for (writer, path) in &paths {
            let bytes = hex(path.as_bytes().get(..4).unwrap_or_default());
            let attachment = Attachment { path: path.clone(), hex: bytes };
            recipe.writers[*writer].attachments.push(attachment);
        }
    })
}

fn paths(cases: &mut Cases) {
    let rules = &["attachment.path", "attachment.export"];
    let mut group = Group::new(cases, "core", "bare", Effect::Escape);
    let long = format!("{}/x", "a".repeat(256));
    let deep = format!("{}x", "d/".repeat(512));
    for (slug, what, path) in [
        ("parent", "climbs", "../x"),
        ("parent-within", "climbs from within", "a/../../x"),
        ("parent-last", "ends in two dots", "a/.."),
        (
            "parent-there",
            "climbs, to a file that is there and has its bytes",
            "../given/attachment-00000-1111111111111111-00000",
        ),
        ("parent-alone", "is two dots", ".."),
        ("dot", "begins with a dot component", "./a"),
        ("dot-within", "has a dot component within", "a/./b"),
        ("dot-alone", "is a dot", "."),
        ("absolute", "is absolute", "/etc/passwd"),
        ("solidus-after", "ends in a solidus", "a/"),
        ("solidus-twice", "has two solidi in a row", "a//b"),
        ("solidus-alone", "is a solidus", "/"),
        ("backslash", "has a backslash", "a\\b"),
        ("drive", "begins with a drive", "C:x"),
        ("colon", "names a stream of a file", "a:b"),
        ("nul", "has a NUL", "a\u{0}.json"),
        ("newline", "has a newline", "a\nb"),
        ("tilde", "begins with a tilde", "~/x"),
        ("accent", "has a letter beyond ASCII", "\u{e9}"),
        ("wide-solidus", "has a wide solidus", "a\u{ff0f}b"),
        ("percent", "has a percent sign", "a%2fb"),
        ("asterisk", "has an asterisk", "*"),
        ("empty", "is empty", ""),
        ("component-256", "has a component of 256 bytes", &long),
        ("1025-bytes", "has 1025 bytes", &deep),
    ] {
        group.bad(
            &format!("path-{slug}"),
            rules,
            &format!("The logical path of an attachment {what}."),
            &with(&[(0, path)]),
            Code::BadPath,
        );
    }
    let component = format!("{0}/{0}", "a".repeat(255));
    let exactly = format!("{}xy", "d/".repeat(511));
    for (slug, what, path) in [
        ("component-255", "has components of 255 bytes", component.as_str()),
        ("1024-bytes", "has 1024 bytes", &exactly),
        ("dots", "has components of three dots, and of two and a letter", "a/.../..b/.c"),
        ("space", "is a space", " "),
        ("dash", "looks like an option", "-rf"),
        ("all", "has all kinds of characters", "AZaz09._- /x"),
        ("named-file", "is the name of a file of the checkpoint", "manifest.json"),
        ("device", "is the name of a device of some systems", "CON/nul.txt"),
    ] {
        for profile in ["core", "extended"] {
            Group::new(cases, profile, "bare", Effect::LostCheckpoint).good(
                &format!("path-{slug}"),
                &["attachment.path", "security.no-paths"],
                &format!("The logical path of an attachment {what}."),
                &with(&[(0, path)]),
            );
        }
    }
}

fn together(cases: &mut Cases) {
    let rules = &["attachment.unique"];
    let mut group = Group::new(cases, "core", "two", Effect::Ambiguity);
    for (slug, what, paths) in [
        ("twice", "are equal", [(0, "a"), (0, "a")]),
        ("twice-across", "of two writers are equal", [(0, "a"), (1, "a")]),
        ("case", "differ by case alone", [(0, "Vocab.txt"), (0, "vocab.txt")]),
        ("case-across", "of two writers differ by case alone", [(0, "x/A"), (1, "X/a")]),
        ("directory", "name a file and a directory", [(0, "a"), (0, "a/b")]),
        ("directory-after", "name a directory, then a file", [(0, "a/b/c"), (0, "a/b")]),
        (
            "directory-case",
            "name a file and a directory that differ by case",
            [(0, "A"), (1, "a/b")],
        ),
    ] {
        group.bad(
            &format!("paths-{slug}"),
            rules,
            &format!("The logical paths of two attachments {what}."),
            &with(&paths),
            Code::BadPath,
        );
    }
    // Sorted by byte, what lies under a directory does not follow it: `-` and `.` are before the solidus.
    group.bad(
        "paths-directory-apart",
        rules,
        "A file and a directory of one name, with paths that sort between them.",
        &with(&[(0, "a"), (0, "a-b"), (0, "a.b"), (0, "a/b")]),
        Code::BadPath,
    );
    for profile in ["core", "extended"] {
        Group::new(cases, profile, "two", Effect::LostCheckpoint).good(
            "paths-neighbours",
            rules,
            "Paths that begin alike and do not collide, in no order.",
            &with(&[(0, "b/a"), (0, "a-b/x"), (1, "a"), (0, "ab/a"), (1, "a.b/x"), (0, "b/A.b")]),
        );
    }
}

fn members(cases: &mut Cases) {
    let mut group = Group::new(cases, "core", "small", Effect::Ambiguity);
    let place = |member: &str| format!("/parts/0/attachments/0/{member}");
    for (slug, rule, what, edit) in [
        (
            "sha256-upper-case",
            "json.types",
            "a digest in capitals",
            change(&place("sha256"), |digest| {
                *digest = digest.as_str().expect("a digest").to_uppercase().into();
            }),
        ),
        ("sha256-absent", "json.unknown-member", "no digest", remove(&place("sha256"))),
        ("path-absent", "json.unknown-member", "no path", remove(&place("path"))),
        ("path-null", "json.types", "null for a path", set(&place("path"), json!(null))),
        ("bytes-negative", "json.types", "a negative length", set(&place("bytes"), json!(-1))),
        ("mode", "json.unknown-member", "a mode", set(&place("mode"), json!(511))),
    ] {
        group.bad(
            &format!("attachment-{slug}"),
            &[rule],
            &format!("An attachment has {what}."),
            &Bend::new("another member").manifest(edit),
            Code::BadMember,
        );
    }
}

/// More than a writer may have. The files are not there, which is looked at later.
fn many(cases: &mut Cases) {
    let attachment =
        |n: u32| json!({"bytes": 0, "path": format!("f{n}"), "sha256": "00".repeat(32)});
    let list: Value = (0..65_537).map(attachment).collect();
    cases
        .case("core/attachments-65537", &["limit.value"], "A writer has 65537 attachments.")
        .effect(Effect::Exhaustion)
        .rejects_recipe(
            &bases::bare(),
            &Bend::new("attachments more").manifest(set("/parts/0/attachments", list)),
            &[Code::Limit],
        );
    let shard = json!({"bytes": 4096, "class": "model", "crc_table": null});
    cases
        .case("core/shards-65537", &["limit.value"], "A writer has 65537 shards.")
        .effect(Effect::Exhaustion)
        .rejects_recipe(
            &bases::bare(),
            &Bend::new("shards more").manifest(set("/parts/0/shards", json!(vec![shard; 65_537]))),
            &[Code::Limit],
        );
}

fn bytes(cases: &mut Cases) {
    let rules = &["attachment.digest"];
    for profile in ["core", "extended"] {
        let mut group = Group::new(cases, profile, "small", Effect::SilentCorruption);
        group.bad(
            "attachment-bit-flipped",
            rules,
            "A bit of an attachment is another.",
            &Bend::new("a bit").files(|files| {
                let mut found = files.iter_mut().filter(|(name, _)| name.starts_with("attachment"));
                let (_, bytes) = found.next().expect("an attachment");
                bytes[0] ^= 1;
            }),
            Code::DigestMismatch,
        );
        let mut group = Group::new(cases, profile, "two", Effect::SilentCorruption);
        group.bad(
            "attachments-swapped",
            rules,
            "Two attachments of one length stand under each other's name.",
            &Bend::new("two files swapped")
                .recipe(|recipe| {
                    recipe.writers[1].attachments[0].hex = hex(b"b");
                })
                .files(|files| {
                    let names: Vec<String> = files
                        .keys()
                        .filter(|name| name.starts_with("attachment"))
                        .cloned()
                        .collect();
                    let first = files[&names[0]].clone();
                    let second = files.insert(names[1].clone(), first).expect("a second");
                    files.insert(names[0].clone(), second);
                }),
            Code::DigestMismatch,
        );
    }
}
