//! Chapter 11.4: which checkpoint of a run is the latest. What a save leaves that stops on the way is in `crashes`.

use waystation_format::Code;

use super::bases::{NEWER, OLDER, attempt, run_of};
use super::{Cases, base_files, bases};
use crate::bend::{Bend, Straight, set};
use crate::case::{Effect, Step};
use crate::files::Files;
use serde_json::json;

pub(super) fn add(cases: &mut Cases) {
    greatest(cases);
    skipped(cases);
    damaged(cases);
    none(cases);
    errors(cases);
}

/// Base `run` with what is put into it.
pub(super) fn with(more: Files) -> Files {
    let mut files = base_files("run");
    files.extend(more);
    files
}

pub(super) fn put(
    cases: &mut Cases,
    slug: &str,
    rules: &[&str],
    fault: &str,
    files: Files,
    name: Option<&str>,
) {
    cases
        .case(&format!("resume/run-{slug}"), rules, fault)
        .effect(Effect::WrongResume)
        .resumes(files, name);
}

/// Step and attempt of each.
type Attempts = &'static [(u64, &'static str)];

fn greatest(cases: &mut Cases) {
    let rules = &["run.latest"];
    put(cases, "newer-step", rules, "A run of two checkpoints.", base_files("run"), Some(NEWER));
    let lists: [(&str, &str, Attempts, usize); 8] = [
        (
            "newer-timeline",
            "A job rolled back to step 500, and its checkpoint of a lower step has a newer timeline.",
            &[(500, "0000000212345678")],
            0,
        ),
        (
            "timeline-hex",
            "Timelines 9 and 10, of which the second begins with a letter.",
            &[(900, "00000009ffffffff"), (800, "0000000a00000000")],
            1,
        ),
        (
            "timeline-carry",
            "Timelines 15 and 16.",
            &[(900, "0000000fffffffff"), (800, "0000001000000000")],
            1,
        ),
        (
            "timeline-unsigned",
            "Timeline 2^32 - 1, which is -1 in 32 bits with a sign.",
            &[(1, "ffffffff00000000")],
            0,
        ),
        (
            "attempt-text",
            "Two attempts of one timeline and step.",
            &[(2000, "00000001ffffffff"), (2000, "00000001a0000000")],
            0,
        ),
        (
            "step-digits",
            "Steps of one and of twelve digits.",
            &[(9, "0000000211111111"), (999_999_999_999, "0000000200000000")],
            1,
        ),
        (
            "step-zero",
            "A newer timeline with a checkpoint of step 0.",
            &[(0, "0000000200000000")],
            0,
        ),
        (
            "step-beyond-32-bits",
            "Steps of which the greater is less in 32 bits.",
            &[(4_294_967_296, "0000000200000000"), (4_000_000_000, "0000000200000001")],
            0,
        ),
    ];
    for (slug, what, attempts, latest) in lists {
        let mut more = Files::new();
        for &(step, id) in attempts {
            more.extend(run_of(&bare(step, id)));
        }
        let (step, id) = attempts[latest];
        put(cases, slug, rules, what, with(more), Some(&attempt(step, id)));
    }
}

pub(super) fn bare(step: u64, id: &str) -> crate::recipe::Recipe {
    let mut recipe = bases::bare();
    recipe.step = step;
    recipe.attempt = id.to_owned();
    recipe.writers[0].records[0]["value"]["optimizer_step"] = json!(step);
    recipe
}

fn marker(name: &str, text: &str) -> Files {
    Files::from([(format!("{NEWER}/{name}"), text.as_bytes().to_vec())])
}

fn skipped(cases: &mut Cases) {
    let rejected = &["run.rejected", "run.latest"];
    put(
        cases,
        "rejected",
        rejected,
        "The newest checkpoint has a `rejected` marker.",
        with(marker("rejected", "spike\n")),
        Some(OLDER),
    );
    put(
        cases,
        "rejected-empty",
        rejected,
        "The newest checkpoint has an empty `rejected` marker.",
        with(marker("rejected", "")),
        Some(OLDER),
    );
    put(
        cases,
        "rejected-version",
        &["run.rejected", "run.errors"],
        "The newest checkpoint has a `rejected` marker and is of version 2.0: nobody has to know more of it.",
        {
            let mut files = bent(&Bend::new("another major version").version("2.0"));
            files.extend(marker("rejected", "spike\n"));
            files
        },
        Some(OLDER),
    );
    let deleted = &["run.deleted", "run.latest"];
    put(
        cases,
        "deleted",
        deleted,
        "The newest checkpoint has a `deleted` marker.",
        with(marker("deleted", "")),
        Some(OLDER),
    );
    put(
        cases,
        "pinned-older",
        &["run.latest"],
        "The older checkpoint is pinned, which says nothing about what is resumed.",
        {
            let mut files = base_files("run");
            files.insert(format!("{OLDER}/pin-best"), Vec::new());
            files
        },
        Some(NEWER),
    );
    for (slug, rules, name) in [("rejected", rejected, "rejected"), ("deleted", deleted, "deleted")]
    {
        let path = format!("{NEWER}/{name}");
        for (kind, what, step) in [
            ("directory", "a directory", Step::Mkdir { path: path.clone() }),
            (
                "link",
                "a symbolic link to nothing",
                Step::Symlink { path: path.clone(), target: "nothing".into() },
            ),
        ] {
            cases
                .case(
                    &format!("resume/run-{slug}-{kind}"),
                    rules,
                    &format!("The newest checkpoint's `{name}` marker is {what}."),
                )
                .effect(Effect::WrongResume)
                .setup(step)
                .resumes(base_files("run"), Some(OLDER));
        }
    }
    let rules = &["dir.attempt-name", "run.latest"];
    for (slug, what, name) in [
        (
            "name-step",
            "Someone renamed the newest checkpoint to another step.",
            attempt(3000, "000000019abcdef0"),
        ),
        (
            "name-timeline",
            "Someone renamed the newest checkpoint to another timeline.",
            attempt(2000, "000000029abcdef0"),
        ),
        (
            "name-attempt",
            "Someone renamed the newest checkpoint to another attempt of its timeline.",
            attempt(2000, "000000019abcdef1"),
        ),
    ] {
        put(cases, slug, rules, what, renamed(&name), Some(OLDER));
    }
    put(
        cases,
        "copy-renamed",
        rules,
        "Beside the newest checkpoint lies a copy of the older one under a greater name.",
        {
            let older = base_files("run").into_iter().filter(|(path, _)| path.starts_with(OLDER));
            let name = attempt(3000, "0000000112345678");
            with(older.map(|(path, bytes)| (path.replace(OLDER, &name), bytes)).collect())
        },
        Some(NEWER),
    );
}

fn renamed(name: &str) -> Files {
    let all = base_files("run").into_iter();
    all.map(|(path, bytes)| (path.replace(NEWER, name), bytes)).collect()
}

/// The run with the newest checkpoint bent.
fn bent(bend: &Bend) -> Files {
    let mut files = base_files("run");
    files.retain(|path, _| path.starts_with(OLDER));
    let made = bend.fixed_up(&Straight::new(bases::newer())).files;
    files.extend(made.into_iter().map(|(path, bytes)| (format!("{NEWER}/{path}"), bytes)));
    files
}

fn damaged(cases: &mut Cases) {
    let rules = &["run.latest"];
    let gone = |start: &'static str| {
        Bend::new("a file less")
            .files(move |files| files.retain(|name, _| !name.starts_with(start)))
    };
    let cut = |start: &'static str| {
        Bend::new("a file cut").files(move |files| {
            files
                .iter_mut()
                .filter(|(name, _)| name.starts_with(start))
                .for_each(|(_, bytes)| _ = bytes.pop());
        })
    };
    let emptied = |start: &'static str| {
        Bend::new("a file emptied").files(move |files| {
            files
                .iter_mut()
                .filter(|(name, _)| name.starts_with(start))
                .for_each(|(_, bytes)| bytes.clear());
        })
    };
    for (slug, what, bend) in [
        ("uncommitted", "has no commit file", gone("waystation")),
        ("commit-empty", "has an empty commit file", emptied("waystation")),
        ("commit-cut", "has a commit file that lacks its newline", cut("waystation")),
        ("manifest-missing", "has no manifest", gone("manifest")),
        ("manifest-torn", "has a manifest that lacks its last byte", cut("manifest")),
        ("manifest-empty", "has an empty manifest", emptied("manifest")),
        ("shard-missing", "lacks a shard", gone("model-")),
        ("shard-cut", "has a shard that lacks its last byte", cut("model-")),
        ("shard-empty", "has an empty shard", emptied("state-")),
        ("part-missing", "lacks a part", gone("part-")),
        ("page-missing", "lacks a page", gone("tensors-")),
        ("page-cut", "has a page that lacks its last byte", cut("records-")),
        ("attachment-missing", "lacks an attachment", gone("attachment-")),
        (
            "manifest-member",
            "has a manifest with an unknown member",
            Bend::new("a member more").manifest(set("/zzz", json!(1))),
        ),
        (
            "manifest-limit",
            "is of a step above the limit",
            Bend::new("a step above").manifest(set("/step", json!(1_000_000_000_000_u64))),
        ),
    ] {
        put(
            cases,
            slug,
            rules,
            &format!("The newest checkpoint {what}."),
            bent(&bend),
            Some(OLDER),
        );
    }
    for (slug, what, start) in [
        (
            "page-damaged",
            "A bit of a page is another, which does not make the newest checkpoint incomplete.",
            "tensors-",
        ),
        (
            "shard-damaged",
            "A bit of a shard is another, which does not make the newest checkpoint incomplete.",
            "model-",
        ),
    ] {
        let flipped = Bend::new("a bit").files(move |files| {
            files
                .iter_mut()
                .filter(|(name, _)| name.starts_with(start))
                .for_each(|(_, bytes)| bytes[9] ^= 1);
        });
        put(cases, slug, rules, what, bent(&flipped), Some(NEWER));
    }
    let manifest = format!("{NEWER}/manifest.json");
    let aside = || Step::Rename { path: manifest.clone(), to: format!("{NEWER}/aside") };
    for (slug, what, step) in [
        (
            "manifest-link",
            "a symbolic link to it",
            Step::Symlink { path: manifest.clone(), target: "aside".into() },
        ),
        ("manifest-fifo", "a pipe to which nobody writes", Step::Fifo { path: manifest.clone() }),
        ("manifest-directory", "a directory", Step::Mkdir { path: manifest.clone() }),
    ] {
        cases
            .case(
                &format!("resume/run-{slug}"),
                &["run.latest", "dir.regular"],
                &format!("In the place of the newest checkpoint's manifest stands {what}."),
            )
            .effect(Effect::WrongResume)
            .setup(aside())
            .setup(step)
            .resumes(base_files("run"), Some(OLDER));
    }
    cases
        .case(
            "resume/run-manifest-huge",
            &["run.latest", "run.errors"],
            "The newest checkpoint's manifest is a hole of a tebibyte.",
        )
        .effect(Effect::Exhaustion)
        .setup(Step::Truncate { path: manifest, bytes: 1 << 40 })
        .resumes(base_files("run"), Some(OLDER));
}

/// Runs from which nothing can be resumed: some are as good as new, and some are not.
fn none(cases: &mut Cases) {
    let rules = &["run.none", "run.latest"];
    let only = |start: &'static str| {
        let mut files = base_files("run");
        files.retain(|path, _| {
            path.ends_with(start)
                || path.split('/').nth(1).is_some_and(|name| name.starts_with(start))
        });
        files
    };
    let marked = |name: &str| {
        let mut files = base_files("run");
        files.insert(format!("{OLDER}/{name}"), Vec::new());
        files.insert(format!("{NEWER}/{name}"), Vec::new());
        files
    };
    for (slug, what, files) in [
        (
            "empty",
            "The run has a text in it and nothing else.",
            Files::from([("README".into(), b"later\n".to_vec())]),
        ),
        (
            "claims-alone",
            "The run has claims of timelines and nothing else.",
            Files::from([(
                "timeline-00000001".into(),
                b"00112233445566778899aabbccddeeff".to_vec(),
            )]),
        ),
        ("none-committed", "Two attempts have parts and no commit file.", only("part-")),
        ("all-deleted", "Two checkpoints have a `deleted` marker.", marked("deleted")),
        (
            "deleted-and-uncommitted",
            "Of two checkpoints one has a `deleted` marker, the other no commit file.",
            {
                let mut files = marked("deleted");
                files.remove(&format!("{OLDER}/deleted"));
                files.remove(&format!("{OLDER}/waystation.commit"));
                files
            },
        ),
        (
            "rejected-and-uncommitted",
            "Two attempts have a `rejected` marker and no commit file: they never were checkpoints.",
            {
                let mut files = marked("rejected");
                files.retain(|path, _| !path.ends_with("/waystation.commit"));
                files
            },
        ),
    ] {
        put(cases, slug, rules, what, files, None);
    }
    let without = |start: &str, files: Files| -> Files {
        files
            .into_iter()
            .filter(|(path, _)| !path.split('/').nth(1).is_some_and(|name| name.starts_with(start)))
            .collect()
    };
    for (slug, what, files) in [
        (
            "all-damaged",
            "Two checkpoints were committed, and neither has a manifest.",
            without("manifest", base_files("run")),
        ),
        ("all-rejected", "Two checkpoints have a `rejected` marker.", marked("rejected")),
        (
            "all-incomplete",
            "Two checkpoints were committed, and neither has its part.",
            without("part-", base_files("run")),
        ),
        (
            "damaged-and-uncommitted",
            "Of two checkpoints one has no commit file, the other a cut one.",
            {
                let mut files = base_files("run");
                files.remove(&format!("{NEWER}/waystation.commit"));
                files
                    .get_mut(&format!("{OLDER}/waystation.commit"))
                    .expect("a commit file")
                    .truncate(40);
                files
            },
        ),
        (
            "all-renamed",
            "The only checkpoint of the run has another name than its manifest gives.",
            {
                let all = run_of(&bases::bare()).into_iter();
                all.map(|(path, bytes)| {
                    (path.replace(OLDER, &attempt(1, "0000000112345678")), bytes)
                })
                .collect()
            },
        ),
    ] {
        cases
            .case(
                &format!("resume/run-{slug}"),
                &["run.none", "run.latest", "dir.attempt-name"],
                what,
            )
            .effect(Effect::WrongResume)
            .resumes_not(files, &[Code::NoneResumable]);
    }
}

/// Errors that a reader must not take for absence.
fn errors(cases: &mut Cases) {
    let rules = &["run.errors"];
    let later = |slug: &str| match slug {
        "version" => bent(&Bend::new("another major version").version("2.0")),
        "feature" => bent(
            &Bend::new("a required feature").manifest(set("/features/required", json!(["x/a"]))),
        ),
        _ => bent(
            &Bend::new("a role").manifest(set("/contents", json!([["main", [["weight", 1]]]]))),
        ),
    };
    for (slug, rule, what, code) in [
        ("version", "version.major", "is of version 2.0", Code::UnsupportedVersion),
        (
            "feature",
            "feature.required",
            "requires a feature that nobody knows",
            Code::UnsupportedFeature,
        ),
        ("role", "identity.role", "counts a role that nobody knows", Code::UnsupportedRole),
    ] {
        cases
            .case(
                &format!("resume/run-newest-{slug}"),
                &["run.errors", rule],
                &format!("The newest checkpoint {what}, and must not be passed over."),
            )
            .effect(Effect::WrongResume)
            .resumes_not(later(slug), &[code]);
    }
    let mut older = base_files("run");
    older.retain(|path, _| path.starts_with(NEWER));
    let unsupported = Bend::new("another major version")
        .version("2.0")
        .fixed_up(&Straight::new(bases::bare()))
        .files;
    older.extend(unsupported.into_iter().map(|(path, bytes)| (format!("{OLDER}/{path}"), bytes)));
    put(
        cases,
        "older-version",
        &["run.errors", "run.latest"],
        "The older checkpoint is of version 2.0, and does not come before the answer.",
        older,
        Some(NEWER),
    );
    let mut deleted = later("version");
    deleted.insert(format!("{NEWER}/deleted"), Vec::new());
    put(
        cases,
        "newest-version-deleted",
        &["run.deleted", "run.latest"],
        "The newest checkpoint is of version 2.0 and has a `deleted` marker, which is looked at first.",
        deleted,
        Some(OLDER),
    );
    let mut uncommitted = later("version");
    uncommitted.remove(&format!("{NEWER}/waystation.commit"));
    put(
        cases,
        "newest-version-uncommitted",
        &["commit.absent", "run.latest"],
        "The newest attempt is of version 2.0 and has no commit file.",
        uncommitted,
        Some(OLDER),
    );
    cases
        .case("resume/run-newest-denied", rules, "The newest checkpoint's directory may not be read, which says nothing about what is in it.")
        .effect(Effect::WrongResume)
        .setup(Step::Deny { path: NEWER.into() })
        .resumes_not(base_files("run"), &[Code::IoDenied]);
}
