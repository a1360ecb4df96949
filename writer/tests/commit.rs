//! Committers: alone, together, late, fenced, and in doubt.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::arithmetic_side_effects,
    reason = "a test that cannot go on should say where"
)]

mod support;

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use waystation_format::{Code, Dtype, names};
use waystation_reader::{NoProgress, Progress};
use waystation_store::Store;
use waystation_store::testing::{Errno, Op};
use waystation_writer::{CommitOptions, commit, make_attempt};

use support::*;

fn files(attempt: &Arc<dyn Store>) -> Vec<(String, Vec<u8>)> {
    let listed = attempt.list().unwrap().into_iter();
    listed.map(|listed| (listed.name.clone(), read_file(attempt, &listed.name))).collect()
}

#[test]
fn committing_again_changes_nothing() {
    let (_, run) = memory_run();
    let (name, attempt, first) = save(&run, &plan(&run, 3), 5, &sample(3)).unwrap();
    let before = files(&attempt);
    let options = CommitOptions::in_run(Arc::clone(&run), &name);
    let second = commit(&attempt, &options, &NoProgress).unwrap();
    assert_eq!((second.digest, second.already), (first.digest, true));
    assert_eq!(files(&attempt), before);
}

#[test]
fn two_committers_at_once_both_succeed() {
    for _ in 0..20 {
        let (_, run) = memory_run();
        let models = sample(2);
        let (name, attempt) = write_parts(&run, &plan(&run, 2), 5, &models).unwrap();
        let options = CommitOptions::in_run(Arc::clone(&run), &name);
        let both: Vec<_> = thread::scope(|scope| {
            let one = || commit(&attempt, &options, &NoProgress).unwrap();
            let handles = [scope.spawn(one), scope.spawn(one)];
            handles.map(|handle| handle.join().unwrap()).to_vec()
        });
        assert_eq!(both[0].digest, both[1].digest);
        assert!(!both[0].already || !both[1].already);
        check_equal(&attempt, &models);
        let left = attempt.list().unwrap();
        assert!(!left.iter().any(|listed| names::is_temporary(&listed.name)));
    }
}

/// The other committer is always just ahead: it puts the file between our look and our link.
#[test]
fn a_committer_that_is_always_second_succeeds() {
    for nth in 1..6 {
        let (fs, memory, run) = failing_run();
        let (name, attempt) = write_parts(&run, &plan(&run, 2), 5, &sample(2)).unwrap();
        let other = memory.store().dir(&name).unwrap().unwrap();
        fs.before(Op::Link, nth, move || {
            commit(&other, &CommitOptions::default(), &NoProgress).unwrap();
        });
        let options = CommitOptions::in_run(Arc::clone(&run), &name);
        let committed = commit(&attempt, &options, &NoProgress).unwrap();
        assert_eq!(committed.already, nth < 5, "{nth}");
    }
}

#[test]
fn other_bytes_are_a_conflict_and_stay() {
    for name in ["tensors-00000.json", names::MANIFEST, names::COMMIT] {
        let (memory, run) = memory_run();
        let (directory, attempt) = write_parts(&run, &plan(&run, 2), 5, &sample(2)).unwrap();
        memory.set(format!("{directory}/{name}"), b"something else".to_vec()).unwrap();
        let error = commit(&attempt, &CommitOptions::default(), &NoProgress).unwrap_err();
        assert_eq!(error.code(), Code::CommitConflict);
        assert_eq!(error.location().file.as_deref(), Some(name));
        assert_eq!(memory.bytes(format!("{directory}/{name}")).unwrap(), b"something else");
    }
}

/// They come between our look and our link: "exists" alone is no success.
#[test]
fn other_bytes_that_come_late_are_a_conflict_and_stay() {
    let linked = ["tensors-00000.json", "records-00000.json", names::MANIFEST, names::COMMIT];
    for (nth, file) in (1..).zip(linked) {
        let (fs, memory, run) = failing_run();
        let (name, attempt) = write_parts(&run, &plan(&run, 2), 5, &sample(2)).unwrap();
        let path = format!("{name}/{file}");
        let (other, there) = (memory.clone(), path.clone());
        fs.before(Op::Link, nth, move || other.set(there, b"something else".to_vec()).unwrap());
        let error = commit(&attempt, &CommitOptions::default(), &NoProgress).unwrap_err();
        assert_eq!((error.code(), error.rule_id()), (Code::CommitConflict, Some("commit.put")));
        assert_eq!(memory.bytes(&path).unwrap(), b"something else");
    }
}

/// The reply of a link is lost: the file is there all the same.
#[test]
fn a_lost_reply_is_read_back() {
    // Two tensors pages would be links 1 and 2; here: tensors, records, manifest, commit.
    for nth in 1..5 {
        let (fs, _, run) = failing_run();
        let models = sample(2);
        let (name, attempt) = write_parts(&run, &plan(&run, 2), 5, &models).unwrap();
        fs.lose_reply(Op::Link, nth, Errno::IO);
        let options = CommitOptions::in_run(Arc::clone(&run), &name);
        let committed = commit(&attempt, &options, &NoProgress).unwrap();
        assert!(!committed.already);
        check_equal(&attempt, &models);
    }
}

#[test]
fn a_part_whose_reply_is_lost_is_read_back() {
    let (fs, _, run) = failing_run();
    let plan = plan(&run, 1);
    let (_, attempt) = make_attempt(&run, &plan, 1, 1).unwrap();
    fs.lose_reply(Op::Link, 1, Errno::IO);
    write_part(&attempt, &plan, 1, 0, &sample(1)).unwrap();
    commit(&attempt, &CommitOptions::default(), &NoProgress).unwrap();
}

#[test]
fn what_cannot_be_read_back_is_unknown_and_nothing_is_removed() {
    let (fs, memory, run) = failing_run();
    let (name, attempt) = write_parts(&run, &plan(&run, 2), 5, &sample(2)).unwrap();
    fs.lose_reply(Op::Link, 4, Errno::IO);
    fs.fail_on(Op::OpenRead, names::COMMIT, Errno::IO);
    fs.clear_log();
    let options = CommitOptions::in_run(Arc::clone(&run), &name);
    let error = commit(&attempt, &options, &NoProgress).unwrap_err();
    assert_eq!((error.code(), error.rule_id()), (Code::CommitUnknown, Some("commit.put")));
    let removed: Vec<String> = fs
        .log()
        .into_iter()
        .filter(|line| line.starts_with("unlink") && !line.contains("tmp-"))
        .collect();
    assert_eq!(removed, Vec::<String>::new());
    // It did take effect, as the next one to look finds out.
    let attempt = memory.store().dir(&name).unwrap().unwrap();
    assert!(commit(&attempt, &CommitOptions::default(), &NoProgress).unwrap().already);
}

#[test]
fn a_higher_timeline_stops_the_committer() {
    let (_, run) = memory_run();
    let (name, attempt) = write_parts(&run, &plan(&run, 1), 5, &sample(1)).unwrap();
    make_attempt(&run, &plan(&run, 1), 6, 0).unwrap();
    let options = CommitOptions::in_run(Arc::clone(&run), &name);
    let error = commit(&attempt, &options, &NoProgress).unwrap_err();
    assert_eq!((error.code(), error.rule_id()), (Code::Fenced, Some("commit.fence")));
    assert!(attempt.stat(names::MANIFEST).unwrap().is_none());
}

/// The next job begins while pages are put.
#[test]
fn a_higher_timeline_stops_the_committer_at_the_last_moment() {
    let (fs, memory, run) = failing_run();
    let (name, attempt) = write_parts(&run, &plan(&run, 1), 5, &sample(1)).unwrap();
    let other = memory.store();
    fs.before(Op::Link, 1, move || {
        make_attempt(&other, &plan(&other, 1), 6, 0).unwrap();
    });
    let options = CommitOptions::in_run(Arc::clone(&run), &name);
    assert_eq!(commit(&attempt, &options, &NoProgress).unwrap_err().code(), Code::Fenced);
    assert!(attempt.stat(names::COMMIT).unwrap().is_none());
}

#[test]
fn missing_writers_are_named() {
    let (_, run) = memory_run();
    let plan = plan(&run, 4);
    let (_, attempt) = make_attempt(&run, &plan, 5, 5).unwrap();
    let look = || commit(&attempt, &CommitOptions::default(), &NoProgress).unwrap_err();
    assert_eq!(look().code(), Code::WriterMissing);
    for writer in [0, 2] {
        write_part(&attempt, &plan, 5, writer, &sample(4)).unwrap();
    }
    let error = look();
    assert_eq!((error.code(), error.rule_id()), (Code::WriterMissing, Some("part.all-writers")));
    let says = "expected a part of each of 4 writers; those of writers 1, 3 are missing";
    assert_eq!(error.message(), says);
    write_part(&attempt, &plan, 5, 3, &sample(4)).unwrap();
    assert!(look().message().ends_with("writers; that of writer 1 is missing"), "{}", look());
}

#[test]
fn a_committer_waits_for_the_last_writer() {
    let (_, run) = memory_run();
    let plan = plan(&run, 2);
    let models = sample(2);
    let (_, attempt) = make_attempt(&run, &plan, 5, 5).unwrap();
    write_part(&attempt, &plan, 5, 0, &models).unwrap();
    let mut options = CommitOptions::default();
    options.poll = Duration::from_millis(5);
    options.deadline = Some(Duration::from_millis(50));
    let begin = Instant::now();
    let late = commit(&attempt, &options, &NoProgress).unwrap_err();
    assert_eq!(late.code(), Code::WriterMissing);
    assert!(begin.elapsed() >= Duration::from_millis(50));
    options.deadline = Some(Duration::from_secs(60));
    thread::scope(|scope| {
        let waiting = scope.spawn(|| commit(&attempt, &options, &NoProgress));
        thread::sleep(Duration::from_millis(30));
        write_part(&attempt, &plan, 5, 1, &models).unwrap();
        waiting.join().unwrap().unwrap();
    });
    check_equal(&attempt, &models);
}

#[test]
fn two_parts_of_one_writer_are_refused() {
    let (memory, run) = memory_run();
    let (name, attempt) = write_parts(&run, &plan(&run, 1), 5, &sample(1)).unwrap();
    memory.set(format!("{name}/part-00000-0000000000000000.json"), b"{}".to_vec()).unwrap();
    let error = commit(&attempt, &CommitOptions::default(), &NoProgress).unwrap_err();
    assert_eq!(error.code(), Code::DuplicateWriter);
}

#[test]
fn files_and_parts_are_checked_before_anything_is_put() {
    let part_of = |attempt: &Arc<dyn Store>| {
        let listed = attempt.list().unwrap();
        listed.into_iter().find(|listed| names::parse_part(&listed.name).is_some()).unwrap().name
    };
    type Damage = fn(&[u8]) -> Option<Vec<u8>>;
    let cases: [(&str, Damage, Code); 5] = [
        ("model-", |bytes| Some(bytes[..bytes.len() - 1].to_vec()), Code::LengthMismatch),
        ("model-", |_| None, Code::FileMissing),
        ("attachment-", |_| Some(vec![1; 3]), Code::LengthMismatch),
        ("part-", |bytes| Some([bytes, b" "].concat()), Code::NotCanonical),
        (
            "part-",
            |bytes| {
                let text = String::from_utf8(bytes.to_vec()).unwrap();
                Some(text.replace("\"step\":5", "\"step\":6").into_bytes())
            },
            Code::BadFormat,
        ),
    ];
    for (prefix, damage, code) in cases {
        let (memory, run) = memory_run();
        let (name, attempt) = write_parts(&run, &plan(&run, 1), 5, &sample(1)).unwrap();
        let listed = attempt.list().unwrap();
        let file = listed.into_iter().find(|file| file.name.starts_with(prefix)).unwrap().name;
        let path = format!("{name}/{file}");
        match damage(&memory.bytes(&path).unwrap()) {
            Some(bytes) => memory.set(&path, bytes).unwrap(),
            None => assert!(attempt.remove(&file).unwrap()),
        }
        let error = commit(&attempt, &CommitOptions::default(), &NoProgress).unwrap_err();
        assert_eq!(error.code(), code, "{error}");
        assert_eq!(error.location().file.as_deref(), Some(file.as_str()));
        assert!(attempt.stat(names::MANIFEST).unwrap().is_none());
        assert!(!part_of(&attempt).is_empty());
    }
}

/// Parts that do not go together: nothing is put, not even a page.
#[test]
fn parts_that_disagree_put_nothing() {
    let (_, run) = memory_run();
    let plan = plan(&run, 2);
    let (_, attempt) = make_attempt(&run, &plan, 5, 5).unwrap();
    let models = [Model::param("w", Dtype::F32, &[8, 8]).rows(2)];
    write_part(&attempt, &plan, 5, 0, &models).unwrap();
    write_part(&attempt, &plan, 5, 1, &[]).unwrap();
    let error = commit(&attempt, &CommitOptions::default(), &NoProgress).unwrap_err();
    assert_eq!(error.code(), Code::CoverGap);
    let listed = attempt.list().unwrap();
    assert!(!listed.iter().any(|listed| names::parse_tensors_page(&listed.name).is_some()));
}

#[test]
fn an_attempt_is_committed_under_its_own_name_only() {
    let (_, run) = memory_run();
    let (_, attempt) = write_parts(&run, &plan(&run, 1), 5, &sample(1)).unwrap();
    let mut options = CommitOptions::default();
    options.name = Some("step-000000000006-0000000100000000".to_owned());
    let error = commit(&attempt, &options, &NoProgress).unwrap_err();
    assert_eq!(error.code(), Code::NameDisagrees);
}

#[test]
fn a_deleted_attempt_is_not_committed() {
    let (memory, run) = memory_run();
    let (name, attempt) = write_parts(&run, &plan(&run, 1), 5, &sample(1)).unwrap();
    memory.set(format!("{name}/deleted"), Vec::new()).unwrap();
    let before = files(&attempt);
    let error = commit(&attempt, &CommitOptions::default(), &NoProgress).unwrap_err();
    assert_eq!(error.code(), Code::Deleted);
    // Nor is anything put that its keeper would have to remove.
    assert_eq!(files(&attempt), before);
}

#[test]
fn a_caller_may_stop_a_committer_that_waits() {
    struct Stop;
    impl Progress for Stop {
        fn begin(&self, _what: &str, _total_bytes: u64) {}
        fn advance(&self, _bytes: u64) {}
        fn cancelled(&self) -> bool {
            true
        }
    }
    let (_, run) = memory_run();
    let (_, attempt) = make_attempt(&run, &plan(&run, 1), 5, 0).unwrap();
    let mut options = CommitOptions::default();
    options.deadline = Some(Duration::from_secs(600));
    assert_eq!(commit(&attempt, &options, &Stop).unwrap_err().code(), Code::Interrupted);
}

/// A file of another kind under a name is somebody else's, not ours and not unknown.
#[test]
fn what_is_no_file_is_a_conflict() {
    let (_, run) = memory_run();
    let (_, attempt) = write_parts(&run, &plan(&run, 1), 5, &sample(1)).unwrap();
    attempt.make_dir(names::MANIFEST).unwrap();
    let error = commit(&attempt, &CommitOptions::default(), &NoProgress).unwrap_err();
    assert_eq!(error.code(), Code::CommitConflict);
}

#[test]
fn a_part_of_another_layout_is_refused() {
    let (_, run) = memory_run();
    let models = [Model::param("w", Dtype::U8, &[300])];
    let (_, attempt) = write_parts(&run, &plan(&run, 1), 5, &models).unwrap();
    rewrite_part(&attempt, 0, &|text| text.replace("[0,4096,[0],[300]", "[0,4352,[0],[300]"));
    let error = commit(&attempt, &CommitOptions::default(), &NoProgress).unwrap_err();
    assert_eq!(error.code(), Code::LayoutMismatch);
    assert_eq!(error.location().file.as_deref(), Some(find(&attempt, "part-").as_str()));
}
