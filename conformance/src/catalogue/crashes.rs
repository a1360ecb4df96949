//! Chapter 11, the crash points: what a save leaves that stops after any of its steps, beside a good checkpoint; and what a
//! removal leaves. The images are made by doing the steps of the protocol one after another.

use super::bases::{NEWER, OLDER, run_of};
use super::{Cases, base_files, bases};
use crate::bend;
use crate::case::{Effect, Step};
use crate::files::Files;

/// The run in which the second save is whole.
const BASE: &str = "run-two";

pub(super) fn add(cases: &mut Cases) {
    saves(cases);
    power(cases);
    removals(cases);
}

/// In the order in which a save gives files their names.
fn in_order(files: &Files) -> Vec<&String> {
    let rank = |name: &String| match name.as_str() {
        "waystation.commit" => 5,
        "manifest.json" => 4,
        name if name.starts_with("tensors-") || name.starts_with("records-") => 3,
        name if name.starts_with("part-") => 2,
        name if name.contains("-00001-") => 1,
        _ => 0,
    };
    let mut names: Vec<&String> = files.keys().collect();
    // The second writer's files come before the first one's part: writers do not wait for one another.
    names.sort_by_key(|name| (rank(name), *name));
    names
}

fn image(made: &Files) -> Files {
    let mut files = run_of(&bases::bare());
    files.extend(made.iter().map(|(name, bytes)| (format!("{NEWER}/{name}"), bytes.clone())));
    files
}

fn saves(cases: &mut Cases) {
    let rules = &["commit.absent", "run.latest"];
    cases
        .case("resume/crash-00-directory", rules, "A save stopped after its directory was made.")
        .effect(Effect::HalfWritten)
        .setup(Step::Mkdir { path: NEWER.into() })
        .resumes(run_of(&bases::bare()), Some(OLDER));
    let whole = bend::straight(&bases::newer_two());
    let mut made = Files::new();
    for (number, name) in in_order(&whole).into_iter().enumerate() {
        let kind = name.split(['-', '.']).next().unwrap_or_default();
        let bytes = &whole[name];
        // Shards and attachments grow under their names; the rest gets its name when it is whole.
        let direct = ["model", "state", "attachment"].contains(&kind);
        let (begun, whole_until) = if direct {
            (name.clone(), bytes.len() / 2)
        } else {
            (format!("tmp-{name}"), bytes.len())
        };
        let mut torn = made.clone();
        torn.insert(begun, bytes[..whole_until].to_vec());
        let slug = format!("crash-{:02}-{kind}", number + 1);
        let begun = if direct { "half of" } else { "the temporary file of" };
        cases
            .case(
                &format!("resume/{slug}-begun"),
                rules,
                &format!("A save stopped when {begun} `{name}` was there."),
            )
            .effect(Effect::HalfWritten)
            .resumes_in(BASE, image(&torn), Some(OLDER));
        made.insert(name.clone(), bytes.clone());
        let (latest, rules): (&str, &[&str]) =
            if kind == "waystation" { (NEWER, &["run.latest"]) } else { (OLDER, rules) };
        cases
            .case(
                &format!("resume/{slug}-named"),
                rules,
                &format!("A save stopped when `{name}` had its name."),
            )
            .effect(Effect::HalfWritten)
            .resumes_in(BASE, image(&made), Some(latest));
    }
}

/// What a power cut leaves of a save that did not sync as chapter 11 says.
fn power(cases: &mut Cases) {
    let rules = &["run.latest", "dir.length"];
    let whole = bend::straight(&bases::newer_two());
    for name in
        whole.keys().filter(|name| name.as_str() != "attachment-00001-2222222222222222-00000")
    {
        let mut made = whole.clone();
        made.insert(name.clone(), Vec::new());
        let slug: String = name.split('.').next().unwrap_or_default().chars().take(16).collect();
        cases
            .case(
                &format!("resume/power-empty-{}", slug.trim_end_matches('-')),
                rules,
                &format!(
                    "After a power cut everything of a save is there, and `{name}` has no bytes."
                ),
            )
            .effect(Effect::HalfWritten)
            .resumes_in(BASE, image(&made), Some(OLDER));
    }
    // Lengths survive where data did not.
    for name in ["waystation.commit", "manifest.json"] {
        let mut made = whole.clone();
        let zeros = vec![0; whole[name].len()];
        made.insert(name.to_owned(), zeros);
        let slug = name.split('.').next().unwrap_or_default();
        cases
            .case(
                &format!("resume/power-zeros-{slug}"),
                &["run.latest", "commit.file", "integrity.manifest"],
                &format!("After a power cut everything of a save is there, and `{name}` has zeros for bytes."),
            )
            .effect(Effect::HalfWritten)
            .resumes_in(BASE, image(&made), Some(OLDER));
    }
}

/// The newer checkpoint is being removed, as 11.6 says.
fn removals(cases: &mut Cases) {
    let rules = &["run.deleted", "run.latest"];
    let mut files = base_files("run");
    files.insert(format!("{NEWER}/deleted"), Vec::new());
    let mut put = |slug: &str, fault: &str, files: &Files| {
        cases
            .case(&format!("resume/removal-{slug}"), rules, fault)
            .effect(Effect::HalfWritten)
            .resumes(files.clone(), Some(OLDER));
    };
    put("1-marked", "A removal stopped when its marker was there.", &files);
    files.remove(&format!("{NEWER}/waystation.commit"));
    put("2-commit", "A removal stopped when the commit file was gone.", &files);
    files.remove(&format!("{NEWER}/manifest.json"));
    files.retain(|path, _| !path.contains("/model-"));
    put("3-files", "A removal stopped when some of the files were gone.", &files);
    files.retain(|path, _| path.starts_with(OLDER) || path.ends_with("/deleted"));
    put("4-marker-alone", "A removal stopped when the marker alone was left.", &files);
}
