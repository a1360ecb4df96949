//! What is durable before what, and what an error leaves behind.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::arithmetic_side_effects,
    reason = "a test that cannot go on should say where"
)]

mod support;

use std::sync::Arc;

use waystation_format::{Class, Code, Dtype, names};
use waystation_reader::{NoProgress, latest, verify};
use waystation_store::testing::{Errno, Op};
use waystation_store::{MemoryFs, Store};
use waystation_writer::{CommitOptions, commit, make_attempt};

use support::*;

fn one_model() -> Vec<Model> {
    vec![
        Model::param("w", Dtype::F32, &[3000]),
        Model::new(optimizer("w", "adam.m"), Dtype::F32, &[10]),
    ]
}

fn save_one(run: &Arc<dyn Store>, step: u64) -> waystation_format::Result<String> {
    save_in_order(run, &try_plan(run, 1)?, step, &one_model())
}

fn put(name: &str) -> Vec<String> {
    vec![
        "create @/tmp-*".to_owned(),
        "fsync @/tmp-*".to_owned(),
        "close @/tmp-*".to_owned(),
        format!("link @/tmp-* @/{name}"),
        "unlink @/tmp-*".to_owned(),
    ]
}

#[test]
fn every_file_is_durable_before_what_stands_on_it() {
    let (fs, _, run) = failing_run();
    fs.clear_log();
    let name = save_one(&run, 7).unwrap();
    let claim = ["create tmp-*", "fsync tmp-*", "close tmp-*", "link tmp-* timeline-00000001"];
    let mut expected: Vec<String> = claim.map(str::to_owned).to_vec();
    expected.extend(["unlink tmp-*", "fsync ."].map(str::to_owned));
    expected.extend(
        [
            "mkdir @",
            "fsync .",
            "create @/attachment-00000-00000",
            "fsync @/attachment-00000-00000",
            "close @/attachment-00000-00000",
            "create @/model-00000-00000.safetensors",
            "create @/state-00000-00001.safetensors",
            "fsync @/model-00000-00000.safetensors",
            "close @/model-00000-00000.safetensors",
            "fsync @/state-00000-00001.safetensors",
            "close @/state-00000-00001.safetensors",
            "fsync @",
        ]
        .map(str::to_owned),
    );
    expected.extend(put("part-00000"));
    expected.push("fsync @".to_owned());
    expected.extend(put("tensors-00000.json"));
    expected.extend(put("records-00000.json"));
    expected.extend(put("manifest.json"));
    expected.push("fsync @".to_owned());
    expected.extend(put("waystation.commit"));
    expected.push("fsync @".to_owned());
    expected.push("fsync .".to_owned());
    assert_eq!(masked(&fs.changes(), &name), expected);
}

/// Every call of every kind fails once, with every error; nothing half written is ever taken for a
/// checkpoint, and the older one stays.
#[test]
fn whatever_call_fails_the_older_checkpoint_stays() {
    let ops = [
        Op::MakeDir,
        Op::OpenDir,
        Op::List,
        Op::Stat,
        Op::Create,
        Op::Allocate,
        Op::WriteAt,
        Op::SyncFile,
        Op::Close,
        Op::SyncDir,
        Op::Link,
        Op::OpenRead,
        Op::StatFile,
        Op::ReadAt,
    ];
    let mut failures = 0;
    for op in ops {
        for errno in [Errno::IO, Errno::NOSPC, Errno::INTR] {
            for nth in 1.. {
                let (fs, memory, run) = failing_run();
                let old = save_one(&run, 1).unwrap();
                fs.clear_log();
                fs.fail(op, nth, errno);
                let saved = save_one(&run, 2);
                let hit = fs.log().iter().any(|line| line.ends_with(" failed"));
                fs.heal();
                let found = check_whole(&memory);
                match saved {
                    Ok(new) => assert_eq!(found, new),
                    Err(e) => {
                        failures += 1;
                        let durable = e.class() == Class::Io || e.code() == Code::CommitUnknown;
                        assert!(durable, "{op:?} {nth} {errno:?}: {e}");
                        let linked = fs.changes().iter().any(|line| line.ends_with(names::COMMIT));
                        assert!(found == old || linked, "{op:?} {nth} {errno:?}: {e}");
                    }
                }
                if !hit {
                    break;
                }
            }
        }
    }
    assert!(failures > 100, "{failures}");
}

/// What `latest` finds, which must be whole in every byte.
fn check_whole(memory: &MemoryFs) -> String {
    let found = latest(&memory.store()).unwrap();
    let report = verify(&found.store, &Default::default()).unwrap();
    assert!(report.findings.is_empty(), "{:?}", report.findings);
    found.name
}

/// A committer that met an error is no obstacle for the next one.
#[test]
fn a_failed_commit_can_be_done_again() {
    for op in [Op::Create, Op::WriteAt, Op::SyncFile, Op::Close, Op::SyncDir, Op::Link] {
        for nth in 1.. {
            let (fs, memory, run) = failing_run();
            let plan = plan(&run, 2);
            let models = sample(2);
            let (name, attempt) = write_parts(&run, &plan, 9, &models).unwrap();
            let options = CommitOptions::in_run(Arc::clone(&run), &name);
            fs.clear_log();
            fs.fail(op, nth, Errno::IO);
            let first = commit(&attempt, &options, &NoProgress);
            let hit = fs.log().iter().any(|line| line.ends_with(" failed"));
            fs.heal();
            let run = memory.store();
            let attempt = run.dir(&name).unwrap().unwrap();
            let options = CommitOptions::in_run(Arc::clone(&run), &name);
            let second = commit(&attempt, &options, &NoProgress).unwrap();
            if let Ok(first) = first {
                assert_eq!(first.digest, second.digest);
                assert!(second.already);
            }
            check_equal(&attempt, &models);
            if !hit {
                assert!(nth > 1, "{op:?} was never called");
                break;
            }
        }
    }
}

#[test]
fn after_an_error_the_writer_is_dead() {
    let faults = [
        (Op::WriteAt, Errno::IO, Code::Io),
        (Op::WriteAt, Errno::NOSPC, Code::IoFull),
        (Op::WriteAt, Errno::DQUOT, Code::IoFull),
    ];
    for (op, errno, code) in faults {
        let (fs, _, run) = failing_run();
        let plan = plan(&run, 1);
        let (_, attempt) = make_attempt(&run, &plan, 1, 1).unwrap();
        let (session, chunks) = declare(&attempt, &plan, 1, 0, &one_model()).unwrap();
        let writing = session.lay_out().unwrap();
        fs.fail(op, 1, errno);
        let (id, bytes) = &chunks[0];
        assert_eq!(writing.write_all(*id, bytes).unwrap_err().code(), code);
        let (id, bytes) = &chunks[1];
        let dead = writing.write_all(*id, bytes).unwrap_err();
        assert_eq!((dead.code(), dead.rule_id()), (Code::Poisoned, Some("writer.dead")));
        assert_eq!(writing.finish().unwrap_err().code(), Code::Poisoned);
        let parts = attempt.list().unwrap();
        assert!(!parts.iter().any(|listed| listed.name.starts_with("part-")));
    }
}

#[test]
fn a_failed_attachment_kills_the_session() {
    let (fs, _, run) = failing_run();
    let plan = plan(&run, 1);
    let (_, attempt) = make_attempt(&run, &plan, 1, 1).unwrap();
    let (mut session, _) = declare(&attempt, &plan, 1, 0, &one_model()).unwrap();
    fs.fail(Op::SyncFile, 1, Errno::IO);
    assert_eq!(session.attach_bytes("a", b"bytes").unwrap_err().code(), Code::Io);
    assert_eq!(session.attach_bytes("b", b"bytes").unwrap_err().code(), Code::Poisoned);
    assert_eq!(session.lay_out().map(drop).unwrap_err().code(), Code::Poisoned);
}

#[test]
fn fsync_is_never_repeated() {
    let (fs, _, run) = failing_run();
    let plan = plan(&run, 1);
    let (_, attempt) = make_attempt(&run, &plan, 1, 1).unwrap();
    let (session, chunks) = declare(&attempt, &plan, 1, 0, &one_model()).unwrap();
    let writing = session.lay_out().unwrap();
    write(&writing, &chunks).unwrap();
    fs.clear_log();
    fs.fail(Op::SyncFile, 1, Errno::IO);
    assert_eq!(writing.finish().unwrap_err().code(), Code::Io);
    let failed: Vec<String> =
        fs.log().into_iter().filter(|line| line.ends_with(" failed")).collect();
    let name = failed[0].strip_suffix(" failed").unwrap();
    assert_eq!(fs.log().iter().filter(|line| line.starts_with(name)).count(), 1);
}

#[test]
fn a_full_disk_is_seen_before_the_bytes_are_written() {
    let (fs, _, run) = failing_run();
    let plan = plan(&run, 1);
    let (_, attempt) = make_attempt(&run, &plan, 1, 1).unwrap();
    let (session, _) = declare(&attempt, &plan, 1, 0, &one_model()).unwrap();
    fs.limit_space(5000);
    assert_eq!(session.lay_out().map(drop).unwrap_err().code(), Code::IoFull);
}
