//! The tour: it finds everything equal, it notices when something is not, and it leaves nothing
//! behind.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test that cannot go on should say where"
)]

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

/// Steps of the training, the kill among them, and where the others go on.
const STEPS: usize = 240;
const KILLED_AT: u64 = 85;
const RESUMED_AT: u64 = 81;
/// Nothing here takes so long, on a busy machine either.
const PATIENCE: Duration = Duration::from_secs(120);

struct Ran {
    exit: i32,
    out: String,
    err: String,
}

/// Runs the program in `dir`, where it also makes its temporary files.
fn run(dir: &Path, arguments: &[&str]) -> Ran {
    let output = command(dir, arguments).output().unwrap();
    Ran {
        exit: output.status.code().unwrap_or(-1),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

fn command(dir: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_waystation"));
    command.args(arguments).current_dir(dir).env("TMPDIR", dir);
    command
}

fn json(dir: &Path, arguments: &[&str], exit: i32) -> Value {
    let ran = run(dir, arguments);
    assert_eq!(ran.exit, exit, "{arguments:?}: {}{}", ran.out, ran.err);
    assert_eq!(ran.out.lines().count(), 1, "one object: {}", ran.out);
    serde_json::from_str(&ran.out).unwrap()
}

fn numbers(list: &Value) -> Vec<f64> {
    list.as_array().unwrap().iter().map(|number| number.as_f64().unwrap()).collect()
}

#[test]
fn everything_is_equal_and_the_job_was_really_killed() {
    let dir = tempfile::tempdir().unwrap();
    let report = json(dir.path(), &["tour", "--keep", "kept", "--json"], 0);
    assert_eq!(report["equal"], true);

    // What was compared: every step of every job, some twice, and all of the final state.
    let compared = &report["compared"];
    let jobs = report["jobs"].as_array().unwrap();
    let ranks: Vec<u64> = jobs.iter().map(|job| job["ranks"].as_u64().unwrap()).collect();
    assert_eq!(ranks, [4, 3, 1]);
    let again = usize::try_from(KILLED_AT - RESUMED_AT + 1).unwrap();
    assert_eq!(compared["losses"], STEPS + again);
    assert_eq!(compared["different_losses"], 0);
    let parameters = report["parameters"].as_u64().unwrap();
    assert_eq!(compared["numbers"], parameters * 3);
    assert_eq!(compared["records"], 5);
    let reference = numbers(&report["reference"]);
    for job in jobs {
        let first = usize::try_from(job["first"].as_u64().unwrap()).unwrap();
        let losses = numbers(&job["losses"]);
        assert_eq!(losses, reference[first - 1..][..losses.len()]);
    }
    assert_eq!(jobs[1]["first"], RESUMED_AT);
    assert_eq!(jobs[2]["first"].as_u64().unwrap(), 161);

    // It learnt something, so that equal is not equal to nothing.
    let mean = |losses: &[f64]| losses.iter().sum::<f64>() / 10.0;
    assert!(mean(&reference[..10]) > 3.0, "{reference:?}");
    assert!(mean(&reference[STEPS - 10..]) < 1.8, "{reference:?}");

    // The kill: every rank by SIGKILL, data there, the commit not; and so it is still.
    let kill = &report["kill"];
    assert_eq!(kill["step"], KILLED_AT);
    assert_eq!(kill["signals"], serde_json::json!([9, 9, 9, 9]));
    assert_eq!(kill["skipped"], "not-committed");
    let attempt = dir.path().join("kept/run").join(kill["attempt"].as_str().unwrap());
    let names: Vec<String> = fs::read_dir(&attempt)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert_eq!(names.len(), kill["files"].as_array().unwrap().len());
    let with = |end: &str| names.iter().filter(|name| name.ends_with(end)).count();
    assert_eq!((with(".safetensors"), with(".json"), with(".commit")), (8, 3, 0), "{names:?}");

    // The program's other commands say the same.
    let latest = |run: &str| {
        let ran = run_ok(dir.path(), &["latest", run, "--verify"]);
        ran.trim().to_owned()
    };
    let (expected, found) = (latest("kept/reference"), latest("kept/run"));
    assert!(found.contains("step-000000000240-"), "{found}");
    run_ok(dir.path(), &["diff", &expected, &found]);
    let listed = json(dir.path(), &["list", "kept/run", "--json"], 0).to_string();
    assert!(listed.contains("uncommitted"), "{listed}");

    // What is there already is not written over.
    let refused = json(dir.path(), &["tour", "--keep", "kept", "--json"], 1);
    assert_eq!(refused["error"]["code"], "exists");
}

fn run_ok(dir: &Path, arguments: &[&str]) -> String {
    let ran = run(dir, arguments);
    assert_eq!(ran.exit, 0, "{arguments:?}: {}{}", ran.out, ran.err);
    ran.out
}

#[test]
fn the_story_is_told_and_nothing_is_left() {
    let dir = tempfile::tempdir().unwrap();
    let ran = run(dir.path(), &["tour"]);
    assert_eq!((ran.exit, ran.err.as_str()), (0, ""), "{}", ran.out);
    // Where lines are broken does not matter.
    let story = ran.out.split_whitespace().collect::<Vec<_>>().join(" ");
    for told in [
        "1. Train without interruption",
        "2. The same training on 4 processes",
        "SIGKILL",
        "├─ part-00000-",
        "what a rank stored",
        "no waystation.commit: not a checkpoint",
        "3. Resume on 3 processes",
        "passes over step 85 (not-committed)",
        "answers step 80",
        "4. Resume on 1 process",
        "245 losses of steps: equal",
        "x killed",
        "Everything is equal, to the last bit.",
    ] {
        assert!(story.contains(told), "{told:?} in {}", ran.out);
    }
    assert!(!ran.out.contains("DIFFER"), "{}", ran.out);
    // Without a terminal it takes 80 columns; names of files stand as they are.
    let prose = ran.out.lines().filter(|line| !line.contains("safetensors"));
    let longest = prose.max_by_key(|line| line.chars().count()).unwrap();
    assert!(longest.chars().count() <= 80, "{longest}");
    assert!(is_empty(dir.path()), "a temporary directory is left");
}

/// Whoever copies the last lines sees what they promise.
#[test]
fn the_commands_to_look_with_work() {
    let dir = tempfile::tempdir().unwrap();
    let story = run_ok(dir.path(), &["tour", "--keep", "kept"]);
    let (_, commands) = story.split_once("Look for yourself:\n").unwrap();
    let mut outputs = Vec::new();
    for command in commands.lines() {
        let (command, _) = command.split_once(" #").unwrap_or((command, ""));
        let words: Vec<&str> = command.split_whitespace().collect();
        let ran = run(dir.path(), &words[1..]);
        // What the kill left is no checkpoint.
        assert_eq!(ran.exit, i32::from(words[1] == "verify"), "{command}: {}{}", ran.out, ran.err);
        outputs.push(ran.out);
    }
    assert_eq!(outputs.len(), 5);
    let place = &outputs[3];
    assert!(place.contains("cursor      train  rank 1 of 3: takes 16 of 48 items"), "{place}");
    assert!(place.contains("resume      rng dropout  exact\n"), "{place}");
}

#[test]
fn a_flipped_bit_of_a_moment_is_noticed() {
    // The loss of the first step is computed before the moment has moved anything.
    differs("moment-bit", RESUMED_AT + 1, &[]);
}

#[test]
fn a_dropped_draw_is_noticed() {
    differs("dropped-draw", RESUMED_AT, &[r#"["rng","dropout",[]]"#]);
}

#[test]
fn a_moved_cursor_is_noticed() {
    differs("cursor-moved", RESUMED_AT, &[r#"["cursor","train",[]]"#, r#"["progress","main",[]]"#]);
}

/// Takes the tour with a fault, which must be noticed at `step` first, and in these records.
fn differs(fault: &str, step: u64, records: &[&str]) {
    let dir = tempfile::tempdir().unwrap();
    let report = json(dir.path(), &["tour", "--fault", fault, "--json"], 1);
    assert_eq!(report["equal"], false);
    let compared = &report["compared"];
    let first = &compared["first_difference"];
    assert_eq!((&first["step"], &first["ranks"]), (&step.into(), &3.into()), "{compared}");
    assert_ne!(first["expected"], first["found"]);
    assert!(compared["different_losses"].as_u64().unwrap() > 100, "{compared}");
    assert!(compared["different_numbers"].as_u64().unwrap() > 10_000, "{compared}");
    assert_eq!(compared["different_records"], serde_json::json!(records));
    assert!(is_empty(dir.path()), "a temporary directory is left");
}

#[test]
fn ranks_that_drift_apart_cannot_commit() {
    let dir = tempfile::tempdir().unwrap();
    let failed = json(dir.path(), &["tour", "--fault", "rank-apart", "--json"], 1);
    assert_eq!(failed["error"]["code"], "record-conflict", "{failed}");
    assert!(failed["error"]["message"].as_str().unwrap().contains("dropout"), "{failed}");
    assert!(is_empty(dir.path()), "a temporary directory is left");
}

#[test]
fn an_unknown_fault_is_a_mistake_of_the_command_line() {
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(run(dir.path(), &["tour", "--fault", "none-such"]).exit, 2);
}

#[test]
fn no_rank_outlives_a_tour_that_is_killed() {
    let dir = tempfile::tempdir().unwrap();
    let (mut tour, ranks) = begin(dir.path(), 1);
    tour.kill().unwrap();
    tour.wait().unwrap();
    all_end(&ranks);
}

#[test]
fn a_rank_that_dies_ends_the_tour() {
    // Alone, and while three others wait for what it has to say.
    for count in [1, 4] {
        let dir = tempfile::tempdir().unwrap();
        let (tour, ranks) = begin(dir.path(), count);
        let rank = rustix::process::Pid::from_raw(ranks[0].cast_signed()).unwrap();
        rustix::process::kill_process(rank, rustix::process::Signal::KILL).unwrap();
        let ended = tour.wait_with_output().unwrap();
        let said = String::from_utf8(ended.stderr).unwrap();
        assert_eq!(ended.status.code(), Some(3), "{said}");
        assert!(said.contains("rank 0 ended") && said.contains("signal: 9"), "{said}");
        all_end(&ranks);
        assert!(is_empty(dir.path()), "a temporary directory is left");
    }
}

#[test]
fn a_tour_that_is_interrupted_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (mut tour, ranks) = begin(dir.path(), 1);
    let pid = rustix::process::Pid::from_child(&tour);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let status = tour.wait().unwrap();
    assert_eq!(status.code(), Some(130));
    all_end(&ranks);
    assert!(is_empty(dir.path()), "a temporary directory is left");
}

/// Starts a tour and waits until so many ranks of it run at once.
fn begin(dir: &Path, count: usize) -> (Child, Vec<u32>) {
    let mut tour =
        command(dir, &["tour"]).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let begin = Instant::now();
    loop {
        let mut ranks = children(tour.id());
        ranks.sort_unstable();
        if ranks.len() == count {
            return (tour, ranks);
        }
        assert!(tour.try_wait().unwrap().is_none(), "it ended before");
        assert!(begin.elapsed() < PATIENCE, "they were not started");
        thread::sleep(Duration::from_millis(2));
    }
}

/// Processes whose parent is `parent`.
fn children(parent: u32) -> Vec<u32> {
    let pids = fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
    pids.filter(|&pid| stat(pid).is_some_and(|(_, of)| of == parent)).collect()
}

/// State and parent of a process, if it is there.
fn stat(pid: u32) -> Option<(char, u32)> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The program's name stands in brackets and may hold anything.
    let (_, rest) = text.rsplit_once(')')?;
    let mut words = rest.split_whitespace();
    Some((words.next()?.chars().next()?, words.next()?.parse().ok()?))
}

fn all_end(ranks: &[u32]) {
    let begin = Instant::now();
    // One that is dead and not yet fetched by anybody counts as ended.
    let runs = |pid: &u32| stat(*pid).is_some_and(|(state, _)| state != 'Z');
    while ranks.iter().any(runs) {
        assert!(begin.elapsed() < PATIENCE, "a rank is still running");
        thread::sleep(Duration::from_millis(5));
    }
}

fn is_empty(dir: &Path) -> bool {
    fs::read_dir(dir).unwrap().next().is_none()
}
