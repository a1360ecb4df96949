//! Chapter 3.2: what lies in a run and is no attempt, and what has an attempt's name and is none.

use super::Cases;
use super::base_files;
use super::bases::{NEWER, OLDER, attempt, run_of};
use super::runs::{bare, put, with};
use crate::bend;
use crate::case::{Effect, Step};
use crate::files::Files;

pub(super) fn add(cases: &mut Cases) {
    let rules = &["dir.run-others", "run.latest"];
    let whole = run_of(&bare(3000, "0000000933333333"));
    let true_name = attempt(3000, "0000000933333333");
    for (slug, name) in [
        ("eleven-digits", "step-00000003000-0000000933333333"),
        ("thirteen-digits", "step-0000000003000-0000000933333333"),
        ("plain-step", "step-3000-0000000933333333"),
        ("other-prefix", "Step-000000003000-0000000933333333"),
        ("checkpoint", "checkpoint-3000"),
        ("suffix", "step-000000003000-0000000933333333.tmp"),
        ("prefix", "tmp-step-000000003000-0000000933333333"),
        ("short-attempt", "step-000000003000-00000009"),
        ("space", "step-000000003000-0000000933333333 "),
        ("below", "old/step-000000003000-0000000933333333"),
    ] {
        let moved =
            whole.iter().map(|(path, bytes)| (path.replace(&true_name, name), bytes.clone()));
        put(
            cases,
            &format!("other-{slug}"),
            rules,
            &format!("A whole checkpoint of a newer timeline lies under the name `{name}`."),
            with(moved.collect()),
            Some(NEWER),
        );
    }
    let mut capital = bare(3000, "0000000abbbbbbbb");
    capital.run = "golden".into();
    let moved = bend::straight(&capital)
        .into_iter()
        .map(|(path, bytes)| (format!("step-000000003000-0000000ABBBBBBBB/{path}"), bytes));
    put(
        cases,
        "other-capitals",
        rules,
        "A whole checkpoint of a newer timeline lies under a name with capital digits.",
        with(moved.collect()),
        Some(NEWER),
    );
    put(
        cases,
        "other-file",
        rules,
        "A file has the name of an attempt of a newer timeline.",
        with(Files::from([(true_name.clone(), b"x".to_vec())])),
        Some(NEWER),
    );
    put(
        cases,
        "other-claims",
        rules,
        "Claims of newer timelines lie in the run, one of them torn.",
        with(Files::from([
            ("timeline-00000002".into(), b"00112233445566778899aabbccddeeff".to_vec()),
            ("timeline-ffffffff".into(), Vec::new()),
            ("LATEST".into(), OLDER.as_bytes().to_vec()),
        ])),
        Some(NEWER),
    );
    let aside =
        whole.iter().map(|(path, bytes)| (path.replace(&true_name, "aside"), bytes.clone()));
    let aside: Files = aside.collect();
    for (slug, what, target) in [
        (
            "link",
            "A symbolic link with the name of an attempt leads to a whole checkpoint.",
            "aside",
        ),
        (
            "link-absolute",
            "A symbolic link with the name of an attempt and an absolute target leads to a whole checkpoint.",
            "given/aside",
        ),
        (
            "link-dangling",
            "A symbolic link with the name of an attempt leads to nothing.",
            "nothing",
        ),
        (
            "link-loop",
            "A symbolic link with the name of an attempt leads to itself.",
            true_name.as_str(),
        ),
    ] {
        cases
            .case(&format!("resume/run-other-{slug}"), rules, what)
            .effect(Effect::Escape)
            .setup(Step::Symlink { path: true_name.clone(), target: target.into() })
            .resumes(with(aside.clone()), Some(NEWER));
    }
    cases
        .case("resume/run-other-fifo", rules, "A pipe has the name of an attempt.")
        .effect(Effect::LostCheckpoint)
        .setup(Step::Fifo { path: true_name.clone() })
        .resumes(base_files("run"), Some(NEWER));
    cases
        .case(
            "resume/run-attempt-empty",
            &["commit.absent", "run.latest"],
            "An attempt of a newer timeline is an empty directory.",
        )
        .effect(Effect::WrongResume)
        .setup(Step::Mkdir { path: true_name })
        .resumes(base_files("run"), Some(NEWER));
}
