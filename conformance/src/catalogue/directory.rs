//! Chapter 3: which files there are, of what kind and length. The commit file and the manifest are in `commit`.

use serde_json::json;
use waystation_format::Code;

use super::group::Group;
use super::{Cases, base_files};
use crate::bend::{Bend, set};
use crate::case::{Effect, Step};

/// The named files of base `small`: how each begins, and what it is called in slugs and sentences.
const NAMED: [(&str, &str, &str); 6] = [
    ("attachment-", "attachment", "attachment"),
    ("model-", "shard", "shard of class model"),
    ("state-", "state-shard", "shard of class state"),
    ("part-", "part", "part"),
    ("tensors-", "page", "page of tensors"),
    ("records-", "record-page", "page of records"),
];

pub(super) fn add(cases: &mut Cases) {
    for (start, slug, what) in NAMED {
        lengths(cases, start, slug, what);
        kinds(cases, start, slug, what);
    }
    lengths_stated(cases);
    others(cases);
    links(cases);
}

/// The name of base `small` that begins so.
fn name(start: &str) -> String {
    let files = base_files("small");
    files.into_keys().find(|name| name.starts_with(start)).expect("a file of the base")
}

fn lengths(cases: &mut Cases, start: &str, slug: &str, what: &str) {
    let bend = |act: fn(&mut Vec<u8>)| {
        let name = name(start);
        Bend::new("another length").files(move |files| act(files.get_mut(&name).expect("a file")))
    };
    let gone = {
        let name = name(start);
        Bend::new("a file less").files(move |files| _ = files.remove(&name))
    };
    let mut group = Group::new(cases, "core", "small", Effect::HalfWritten);
    group.bad(
        &format!("missing-{slug}"),
        &["dir.present", "intro.never-fill"],
        &format!("The {what} is not there."),
        &gone,
        Code::FileMissing,
    );
    let mut bad = |kind: &str, fault: &str, act| {
        group.bad(
            &format!("{slug}-{kind}"),
            &["dir.length", "intro.never-fill"],
            &format!("The {what} {fault}."),
            &bend(act),
            Code::LengthMismatch,
        );
    };
    bad("cut", "lacks its last byte", |bytes| _ = bytes.pop());
    bad("longer", "has a byte more", |bytes| bytes.push(0));
    bad("empty", "has no bytes", Vec::clear);
}

fn kinds(cases: &mut Cases, start: &str, slug: &str, what: &str) {
    let name = name(start);
    let steps = [
        (
            "symlink",
            "a symbolic link to the file itself beside it",
            Step::Symlink { path: name.clone(), target: "aside".into() },
        ),
        (
            "symlink-absolute",
            "a symbolic link with an absolute target",
            Step::Symlink { path: name.clone(), target: "given/aside".into() },
        ),
        ("fifo", "a pipe to which nobody writes", Step::Fifo { path: name.clone() }),
        ("directory", "a directory", Step::Mkdir { path: name.clone() }),
    ];
    for (kind, instead, step) in steps {
        cases
            .case(
                &format!("core/{slug}-{kind}"),
                &["dir.regular", "security.beneath"],
                &format!("In the place of the {what} stands {instead}."),
            )
            .effect(Effect::Escape)
            .file(&name)
            .setup(Step::Rename { path: name.clone(), to: "aside".into() })
            .setup(step)
            .refuses("small", &[Code::NotRegular]);
    }
}

/// The file is as it was, and the manifest states another length: numbers that a reader must not believe.
fn lengths_stated(cases: &mut Cases) {
    let most = json!(9_007_199_254_740_991_u64);
    let places = [
        ("attachment", "/parts/0/attachments/0/bytes"),
        ("shard", "/parts/0/shards/0/bytes"),
        ("state-shard", "/parts/0/shards/1/bytes"),
    ];
    for (slug, pointer) in places {
        Group::new(cases, "core", "small", Effect::Exhaustion).bad(
            &format!("{slug}-stated-huge"),
            &["dir.length", "open.memory", "limit.arithmetic"],
            &format!("The manifest states that the {slug} has 2^53 - 1 bytes."),
            &Bend::new("the largest length").manifest(set(pointer, most.clone())),
            Code::LengthMismatch,
        );
    }
    let pages = [
        ("page", "/tensors/0/bytes", 256_u64 << 20),
        ("record-page", "/records/0/bytes", 256 << 20),
        ("part", "/parts/0/bytes", 256 << 20),
    ];
    for (slug, pointer, limit) in pages {
        let mut group = Group::new(cases, "core", "bare", Effect::Exhaustion);
        group.bad(
            &format!("{slug}-stated-limit"),
            &["dir.length", "open.memory"],
            &format!(
                "The manifest states that the {slug} is as long as it may be, and it has few bytes."
            ),
            &Bend::new("the largest length").manifest(set(pointer, json!(limit))),
            Code::LengthMismatch,
        );
        group.bad(
            &format!("{slug}-stated-above"),
            &["limit.value", "derive.sizes"],
            &format!("The manifest states that the {slug} is a byte longer than it may be."),
            &Bend::new("a length above").manifest(set(pointer, json!(limit + 1))),
            Code::Limit,
        );
        group.bad(
            &format!("{slug}-stated-huge"),
            &["limit.value", "open.memory"],
            &format!("The manifest states that the {slug} has 2^53 - 1 bytes."),
            &Bend::new("the largest length").manifest(set(pointer, most.clone())),
            Code::Limit,
        );
        group.bad(
            &format!("{slug}-stated-zero"),
            &["dir.length"],
            &format!("The manifest states that the {slug} has no bytes."),
            &Bend::new("no length").manifest(set(pointer, json!(0))),
            Code::LengthMismatch,
        );
    }
}

/// What else may lie in the directory.
fn others(cases: &mut Cases) {
    let mut strange = base_files("two");
    strange.retain(|name, _| name.starts_with("part-00001"));
    let foreign = strange.into_values().next().expect("a part of another checkpoint");
    let parted = format!("part-00000-{}.json", &crate::build::sha256(&foreign)[..16]);
    let files: [(&str, &str, &str, Vec<u8>); 9] = [
        ("readme", "README.md", "a text", b"hello\n".to_vec()),
        ("temporary", "tmp-manifest.json", "a temporary file", b"{".to_vec()),
        ("second-part", &parted, "a part of writer 0 that the manifest does not name", foreign),
        (
            "further-page",
            "tensors-00001.json",
            "a page beyond those of the manifest",
            b"{}".to_vec(),
        ),
        (
            "further-shard",
            "model-00001-1111111111111111-00000.safetensors",
            "a shard of a writer beyond those of the manifest",
            Vec::new(),
        ),
        (
            "other-incarnation",
            "model-00000-aaaaaaaaaaaaaaaa-00000.safetensors",
            "a shard of an earlier incarnation",
            vec![0; 64],
        ),
        ("upper-case", "MANIFEST.JSON", "a file whose name differs by case", b"{}".to_vec()),
        ("hidden", ".nfs0000", "a hidden file", Vec::new()),
        (
            "index",
            "model.safetensors.index.json",
            "an index that names shards by path",
            br#"{"weight_map":{"w":"/etc/passwd"}}"#.to_vec(),
        ),
    ];
    for (slug, name, what, bytes) in files {
        let name = name.to_owned();
        let bend = Bend::new("a file more").files(move |files| {
            files.insert(name.clone(), bytes.clone());
        });
        for profile in ["core", "extended"] {
            Group::new(cases, profile, "bare", Effect::LostCheckpoint).good(
                &format!("unnamed-{slug}"),
                &["dir.others", "dir.case"],
                &format!("Beside the named files lies {what}."),
                &bend,
            );
        }
    }
    let steps = [
        ("directory", "a directory", Step::Mkdir { path: "logs".into() }),
        ("fifo", "a pipe", Step::Fifo { path: "pipe".into() }),
        (
            "symlink",
            "a symbolic link to nothing",
            Step::Symlink { path: "old".into(), target: "/nonexistent".into() },
        ),
    ];
    for (slug, what, step) in steps {
        for profile in ["core", "extended"] {
            cases
                .case(
                    &format!("{profile}/unnamed-{slug}"),
                    &["dir.others"],
                    &format!("Beside the named files lies {what}."),
                )
                .effect(Effect::LostCheckpoint)
                .setup(step.clone())
                .accepts("bare");
        }
    }
    // No member gives a name, and one that would is not ignored.
    for member in ["file", "filename", "path", "uri"] {
        let pointer = format!("/parts/0/shards/0/{member}");
        Group::new(cases, "core", "small", Effect::Escape).bad(
            &format!("shard-names-{member}"),
            &["json.unknown-member", "dir.computed-names", "security.no-paths"],
            &format!("A shard has a member `{member}` with the path of a file elsewhere."),
            &Bend::new("a path in metadata").manifest(set(&pointer, json!("/etc/passwd"))),
            Code::BadMember,
        );
    }
}

/// A second name of the same file is a file.
fn links(cases: &mut Cases) {
    for (start, slug, what) in NAMED {
        let name = name(start);
        cases
            .case(
                &format!("core/{slug}-hard-link"),
                &["dir.links", "dir.regular", "security.beneath"],
                &format!("The {what} is a hard link, as a copy that shares files leaves it."),
            )
            .effect(Effect::LostCheckpoint)
            .setup(Step::Rename { path: name.clone(), to: "aside".into() })
            .setup(Step::Link { path: name, target: "aside".into() })
            .accepts("small");
    }
}
