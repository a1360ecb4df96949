//! Chapter 11: the commit file, the manifest that it names, and markers in a checkpoint.

use waystation_format::Code;

use super::group::Group;
use super::{Cases, base_files, bases};
use crate::bend::{self, Bend};
use crate::build;
use crate::case::{Effect, Step};

const COMMIT: &str = "waystation.commit";

pub(super) fn add(cases: &mut Cases) {
    grammar(cases);
    manifest(cases);
    kinds(cases);
    markers(cases);
}

fn grammar(cases: &mut Cases) {
    let mut group = Group::new(cases, "core", "bare", Effect::HalfWritten);
    let mut bad = |slug: &str, fault: &str, act: fn(&mut Vec<u8>)| {
        let bend = Bend::new("another text").bytes("commit", act);
        group.bad(&format!("commit-{slug}"), &["commit.file"], fault, &bend, Code::CommitGrammar);
    };
    bad("empty", "The commit file has no bytes.", Vec::clear);
    bad("newline-missing", "The commit file lacks its newline.", |text| text.truncate(79));
    bad("newline-twice", "The commit file ends in two newlines.", |text| text.push(b'\n'));
    bad("cut", "The commit file ends within the digest.", |text| text.truncate(40));
    bad("digest-alone", "The commit file holds the digest and a newline.", |text| {
        text.truncate(64);
        text.push(b'\n');
    });
    bad("upper-case", "The digest in the commit file is in capitals.", |text| {
        text[..64].make_ascii_uppercase();
    });
    bad(
        "digest-not-hex",
        "The last digit of the digest in the commit file is a letter g.",
        |text| {
            text[63] = b'g';
        },
    );
    bad("crlf", "The commit file ends in a carriage return and a newline.", |text| {
        text.insert(79, b'\r');
    });
    bad(
        "crlf-eighty",
        "The commit file has one space, ends in a carriage return and a newline, and so has 80 bytes.",
        |text| {
            text.insert(79, b'\r');
            text.remove(64);
        },
    );
    bad("binary-mode", "An asterisk stands in the place of the second space.", |text| {
        text[65] = b'*';
    });
    bad("tab", "A tab stands in the place of the first space.", |text| text[64] = b'\t');
    bad("other-case", "The commit file names `Manifest.json`.", |text| text[66] = b'M');
    bad("other-name", "The commit file names `../etc/passwd`.", |text| {
        text[66..79].copy_from_slice(b"../etc/passwd");
    });
    bad("second-line", "The commit file has a second line with another name.", |text| {
        let line = text.clone();
        text.extend(line);
    });
    bad("byte-order-mark", "The commit file begins with a byte order mark.", |text| {
        text.splice(0..0, [0xef, 0xbb, 0xbf]);
    });
    bad("nul", "The commit file ends in a NUL byte and no newline.", |text| text[79] = 0);
    let gone = Bend::new("a file less").files(|files| _ = files.remove(COMMIT));
    group.bad(
        "commit-absent",
        &["commit.absent"],
        "Everything is there but the commit file.",
        &gone,
        Code::NotCommitted,
    );
    let renamed = Bend::new("a file under another name").files(|files| {
        let bytes = files.remove(COMMIT).expect("it is committed");
        files.insert("Waystation.commit".into(), bytes);
    });
    group.bad(
        "commit-file-case",
        &["commit.absent", "dir.case"],
        "The commit file is called `Waystation.commit`.",
        &renamed,
        Code::NotCommitted,
    );
    let temporary = Bend::new("a file under another name").files(|files| {
        let bytes = files.remove(COMMIT).expect("it is committed");
        files.insert("tmp-waystation.commit".into(), bytes);
    });
    group.bad(
        "commit-temporary",
        &["commit.absent"],
        "The commit file still has a temporary name.",
        &temporary,
        Code::NotCommitted,
    );
}

fn manifest(cases: &mut Cases) {
    let mut later = bases::bare();
    later.step = 2000;
    let other = bend::straight(&later).remove("manifest.json").expect("a manifest");
    let digest = build::sha256(&other);
    let mut group = Group::new(cases, "core", "bare", Effect::HalfWritten);
    let rules = &["integrity.manifest"];
    let bend = Bend::new("a digest of something else").bytes("commit", move |text| {
        text[..64].copy_from_slice(digest.as_bytes());
    });
    group.bad(
        "commit-of-another",
        rules,
        "The commit file is that of a checkpoint of another step.",
        &bend,
        Code::DigestMismatch,
    );
    let bend = Bend::new("a file of another checkpoint").files(move |files| {
        files.insert("manifest.json".into(), other.clone());
    });
    group.bad(
        "manifest-of-another",
        rules,
        "The manifest is that of a checkpoint of another step.",
        &bend,
        Code::DigestMismatch,
    );
    let mut bad = |slug: &str, fault: &str, act: fn(&mut Vec<u8>)| {
        let bend = Bend::new("other bytes").files(move |files| {
            act(files.get_mut("manifest.json").expect("a manifest"));
        });
        group.bad(&format!("manifest-{slug}"), rules, fault, &bend, Code::DigestMismatch);
    };
    bad("empty", "The manifest has no bytes.", Vec::clear);
    bad("cut", "The manifest lacks its last byte.", |text| _ = text.pop());
    bad("longer", "A NUL byte was written after the manifest.", |text| text.push(0));
    bad("bit-flipped", "A bit of a digit of `step` is another.", |text| {
        let at = text.windows(6).position(|window| window == b"\"step\"").expect("a step");
        text[at + 7] ^= 2;
    });
    bad("newline-added", "An editor wrote a newline after the manifest.", |text| text.push(b'\n'));
    group.bad(
        "manifest-absent",
        &["dir.present"],
        "The commit file is there and no manifest.",
        &Bend::new("a file less").files(|files| _ = files.remove("manifest.json")),
        Code::FileMissing,
    );
    group.bad(
        "manifest-case",
        &["dir.case", "dir.present"],
        "The manifest is called `Manifest.json`.",
        &Bend::new("a file under another name").files(|files| {
            let bytes = files.remove("manifest.json").expect("a manifest");
            files.insert("Manifest.json".into(), bytes);
        }),
        Code::FileMissing,
    );
    for (slug, bytes, fault) in [
        ("manifest-too-long", (64_u64 << 20) + 1, "The manifest is a byte longer than it may be."),
        ("manifest-huge", 1 << 40, "The manifest is a hole of a tebibyte."),
    ] {
        cases
            .case(&format!("core/{slug}"), &["derive.sizes", "limit.value", "open.memory"], fault)
            .effect(Effect::Exhaustion)
            .file("manifest.json")
            .setup(Step::Truncate { path: "manifest.json".into(), bytes })
            .refuses("bare", &[Code::Limit]);
    }
}

/// What stands under the name of the commit file or the manifest and is no file.
fn kinds(cases: &mut Cases) {
    for (name, slug) in [(COMMIT, "commit"), ("manifest.json", "manifest")] {
        let aside = || Step::Rename { path: name.into(), to: "aside".into() };
        let link = |target: &str| Step::Symlink { path: name.into(), target: target.into() };
        let path = || name.to_owned();
        let steps = [
            ("symlink", "a symbolic link to the file itself beside it", link("aside")),
            ("symlink-absolute", "a symbolic link with an absolute target", link("given/aside")),
            ("symlink-dangling", "a symbolic link to nothing", link("nothing")),
            ("symlink-loop", "a symbolic link to itself", link(name)),
            ("directory", "a directory", Step::Mkdir { path: path() }),
            ("fifo", "a pipe to which nobody writes", Step::Fifo { path: path() }),
        ];
        for (kind, what, step) in steps {
            cases
                .case(
                    &format!("core/{slug}-{kind}"),
                    &["dir.regular", "security.beneath"],
                    &format!("Under the name `{name}` stands {what}."),
                )
                .effect(Effect::Escape)
                .file(name)
                .setup(aside())
                .setup(step)
                .refuses("bare", &[Code::NotRegular]);
        }
    }
}

fn markers(cases: &mut Cases) {
    let rules = &["run.deleted"];
    let marked = |name: &'static str| {
        Bend::new("a marker").files(move |files| _ = files.insert(name.into(), Vec::new()))
    };
    Group::new(cases, "core", "bare", Effect::HalfWritten).bad(
        "marker-deleted",
        rules,
        "A whole checkpoint has a `deleted` marker.",
        &marked("deleted"),
        Code::Deleted,
    );
    let steps = [
        ("directory", "a directory", Step::Mkdir { path: "deleted".into() }),
        ("fifo", "a pipe", Step::Fifo { path: "deleted".into() }),
        (
            "link",
            "a symbolic link to nothing",
            Step::Symlink { path: "deleted".into(), target: "nothing".into() },
        ),
    ];
    for (slug, what, step) in steps {
        cases
            .case(
                &format!("core/marker-deleted-{slug}"),
                rules,
                &format!("The `deleted` marker is {what}."),
            )
            .effect(Effect::HalfWritten)
            .file("deleted")
            .setup(step)
            .refuses("bare", &[Code::Deleted]);
    }
    cases
        .case(
            "core/marker-rejected",
            &["run.rejected"],
            "A checkpoint that `latest` must skip is opened by its path.",
        )
        .latitude("run.rejected: a reader may open it by its path.")
        .effect(Effect::LostCheckpoint)
        .either(
            "bare",
            &Bend::new("a marker").files(|files| {
                files.insert("rejected".into(), b"loss is not a number\n".to_vec());
            }),
            build::projection(&bases::bare()),
            &[Code::Rejected],
        );
    for (slug, name) in [("pin", "pin-best"), ("deleted-other-case", "Deleted")] {
        for profile in ["core", "extended"] {
            Group::new(cases, profile, "bare", Effect::LostCheckpoint).good(
                &format!("marker-{slug}"),
                &["dir.others"],
                &format!("A file `{name}` says nothing about whether the checkpoint is whole."),
                &marked(name),
            );
        }
    }
    cases
        .case(
            "extended/marker-rejected",
            &["run.rejected"],
            "A `rejected` marker is a note and no breach of the checkpoint.",
        )
        .effect(Effect::LostCheckpoint)
        .accepts_as("bare", &marked("rejected"), serde_json::Value::Null);
    let mut uncommitted = base_files("bare");
    uncommitted.retain(|name, _| name.starts_with("part-"));
    cases
        .case(
            "core/parts-alone",
            &["commit.absent"],
            "Every writer left its part, and nobody committed them.",
        )
        .effect(Effect::HalfWritten)
        .rejects_files(uncommitted, &[Code::NotCommitted]);
}
