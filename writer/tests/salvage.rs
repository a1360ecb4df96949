//! Salvage: every byte is proven first, and a root of other bytes is not touched unasked.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    reason = "a test that cannot go on should say where"
)]

mod support;

use std::sync::Arc;

use waystation_format::{Code, Dtype, crc, names, rule};
use waystation_reader::NoProgress;
use waystation_store::{MemoryFs, Store};
use waystation_writer::{CommitOptions, SalvageOptions, commit, salvage};

use support::*;

fn with_discard() -> SalvageOptions {
    let mut options = SalvageOptions::new();
    options.discard_root = true;
    options
}

fn parts() -> (MemoryFs, String, Arc<dyn Store>, Vec<Model>) {
    let (memory, run) = memory_run();
    let models = sample(2);
    let (name, attempt) = write_parts(&run, &plan(&run, 2), 5, &models).unwrap();
    (memory, name, attempt, models)
}

#[test]
fn an_attempt_that_nobody_committed_is_saved_as_its_committer_would() {
    let (_, _, attempt, models) = parts();
    let saved = salvage(&attempt, &SalvageOptions::new(), &NoProgress).unwrap();
    assert!(!saved.already);
    check_equal(&attempt, &models);
    let again = commit(&attempt, &CommitOptions::default(), &NoProgress).unwrap();
    assert_eq!((again.digest, again.already), (saved.digest, true));
}

#[test]
fn a_root_that_cannot_be_discarded_loses_nothing() {
    let (_, _, attempt, _) = parts();
    let whole = salvage(&attempt, &SalvageOptions::new(), &NoProgress).unwrap();
    let before: Vec<String> = attempt.list().unwrap().into_iter().map(|l| l.name).collect();
    // A page that nothing derives, and that is no file.
    attempt.make_dir("tensors-00001.json").unwrap();
    let e = salvage(&attempt, &with_discard(), &NoProgress).unwrap_err();
    assert_eq!((e.code(), e.rule_id()), (Code::NotRegular, Some(rule::DIR_REGULAR)));
    attempt.remove_dir("tensors-00001.json").unwrap();
    let after: Vec<String> = attempt.list().unwrap().into_iter().map(|l| l.name).collect();
    assert_eq!(before, after, "the commit file is still there");
    let again = salvage(&attempt, &with_discard(), &NoProgress).unwrap();
    assert_eq!((again.digest, again.already), (whole.digest, true));
}

/// One bit of every region of every file that the parts name.
#[test]
fn any_flipped_bit_is_refused() {
    let (memory, name, attempt, _) = parts();
    let mut codes = std::collections::BTreeMap::new();
    for listed in attempt.list().unwrap() {
        let path = format!("{name}/{}", listed.name);
        let good = memory.bytes(&path).unwrap();
        for at in (0..good.len()).step_by(83).chain([good.len() - 1]) {
            let mut bad = good.clone();
            bad[at] ^= 1 << (at % 8);
            memory.set(&path, bad).unwrap();
            let error = salvage(&attempt, &SalvageOptions::new(), &NoProgress).unwrap_err();
            assert_eq!(error.location().file.as_deref(), Some(listed.name.as_str()), "{error}");
            *codes.entry(error.code().as_str()).or_insert(0) += 1;
            assert!(attempt.stat(names::COMMIT).unwrap().is_none());
        }
        memory.set(&path, good).unwrap();
    }
    for code in
        ["header-mismatch", "nonzero-pad", "crc-mismatch", "crc-table-mismatch", "digest-mismatch"]
    {
        assert!(codes.contains_key(code), "{codes:?}");
    }
    salvage(&attempt, &SalvageOptions::new(), &NoProgress).unwrap();
}

#[test]
fn two_parts_of_one_writer_are_ambiguous() {
    let (memory, name, attempt, _) = parts();
    memory.set(format!("{name}/part-00001-0000000000000000.json"), b"{}".to_vec()).unwrap();
    let error = salvage(&attempt, &with_discard(), &NoProgress).unwrap_err();
    assert_eq!((error.code(), error.rule_id()), (Code::Ambiguous, Some("salvage.verify")));
}

#[test]
fn a_deleted_attempt_stays_deleted() {
    let (memory, name, attempt, _) = parts();
    memory.set(format!("{name}/deleted"), Vec::new()).unwrap();
    let error = salvage(&attempt, &with_discard(), &NoProgress).unwrap_err();
    assert_eq!(error.code(), Code::Deleted);
}

#[test]
fn a_root_of_other_bytes_is_removed_only_when_asked() {
    let root = ["manifest.json", "waystation.commit", "tensors-00000.json", "records-00007.json"];
    for file in root {
        let (memory, name, attempt, models) = parts();
        let first = commit(&attempt, &CommitOptions::default(), &NoProgress).unwrap();
        let path = format!("{name}/{file}");
        memory.set(&path, b"lost".to_vec()).unwrap();
        let error = salvage(&attempt, &SalvageOptions::new(), &NoProgress).unwrap_err();
        assert_eq!(
            (error.code(), error.rule_id()),
            (Code::CommitConflict, Some("salvage.conflict"))
        );
        assert_eq!(error.location().file.as_deref(), Some(file));
        assert_eq!(memory.bytes(&path).unwrap(), b"lost");
        let saved = salvage(&attempt, &with_discard(), &NoProgress).unwrap();
        assert_eq!((saved.digest, saved.already), (first.digest, false));
        check_equal(&attempt, &models);
    }
}

#[test]
fn a_root_is_discarded_in_an_order_that_never_shows_half_of_it() {
    let (fs, memory, run) = failing_run();
    let (name, attempt) = write_parts(&run, &plan(&run, 1), 5, &sample(1)).unwrap();
    commit(&attempt, &CommitOptions::in_run(Arc::clone(&run), &name), &NoProgress).unwrap();
    for file in ["manifest.json", "tensors-00000.json"] {
        memory.set(format!("{name}/{file}"), b"lost".to_vec()).unwrap();
    }
    fs.clear_log();
    let mut options = with_discard();
    options.run = Some(Arc::clone(&run));
    salvage(&attempt, &options, &NoProgress).unwrap();
    let changes = masked(&fs.changes(), &name);
    // A name at a time: temporary, fsync, close, link, and the temporary goes.
    let put = |line: &&String| line.starts_with("link ") || !line.contains("tmp-");
    let changes: Vec<&String> = changes.iter().filter(put).collect();
    let expected = [
        "unlink @/waystation.commit",
        "fsync @",
        "unlink @/manifest.json",
        "unlink @/tensors-00000.json",
        "fsync @",
        "link @/tmp-* @/tensors-00000.json",
        "link @/tmp-* @/manifest.json",
        "fsync @",
        "link @/tmp-* @/waystation.commit",
        "fsync @",
        "fsync .",
    ];
    assert_eq!(changes, expected);
}

#[test]
fn an_attempt_is_salvaged_under_its_own_name_only() {
    let (memory, name, attempt, _) = parts();
    let mut options = SalvageOptions::new();
    options.name = Some("step-000000000005-0000000100000000".to_owned());
    let error = salvage(&attempt, &options, &NoProgress).unwrap_err();
    assert_eq!((error.code(), error.rule_id()), (Code::NameDisagrees, Some("dir.attempt-name")));
    assert!(memory.bytes(format!("{name}/manifest.json")).is_err(), "nothing was put");
    options.name = Some(name);
    salvage(&attempt, &options, &NoProgress).unwrap();
}

#[test]
fn a_lost_root_is_made_again() {
    let (_, _, attempt, models) = parts();
    let first = commit(&attempt, &CommitOptions::default(), &NoProgress).unwrap();
    attempt.remove(names::MANIFEST).unwrap();
    attempt.remove("tensors-00000.json").unwrap();
    let saved = salvage(&attempt, &SalvageOptions::new(), &NoProgress).unwrap();
    assert_eq!((saved.digest, saved.already), (first.digest, true));
    check_equal(&attempt, &models);
}

/// The bytes are proven before anything of a root is removed.
#[test]
fn a_damaged_attempt_keeps_its_root() {
    let (memory, name, attempt, _) = parts();
    commit(&attempt, &CommitOptions::default(), &NoProgress).unwrap();
    memory.set(format!("{name}/manifest.json"), b"lost".to_vec()).unwrap();
    let listed = attempt.list().unwrap();
    let shard = listed.into_iter().find(|l| l.name.starts_with("model-")).unwrap().name;
    let path = format!("{name}/{shard}");
    let mut bytes = memory.bytes(&path).unwrap();
    bytes[5000] ^= 1;
    memory.set(&path, bytes).unwrap();
    assert!(salvage(&attempt, &with_discard(), &NoProgress).is_err());
    assert_eq!(memory.bytes(format!("{name}/manifest.json")).unwrap(), b"lost");
    assert!(attempt.stat(names::COMMIT).unwrap().is_some());
}

/// Bits behind the last element break no checksum, only the rule.
#[test]
fn unused_bits_that_are_not_zero_are_refused() {
    let (memory, run) = memory_run();
    let models = [Model::param("odd", Dtype::U4, &[3])];
    let (name, attempt) = write_parts(&run, &plan(&run, 1), 5, &models).unwrap();
    let shard = find(&attempt, "model-");
    let mut bytes = read_file(&attempt, &shard);
    let old = crc::crc32c(&bytes[4096..4098]);
    bytes[4097] |= 0x80;
    let new = crc::crc32c(&bytes[4096..4098]);
    memory.set(format!("{name}/{shard}"), bytes).unwrap();
    rewrite_part(&attempt, 0, &|text| text.replace(&format!("{old:08x}"), &format!("{new:08x}")));
    let error = salvage(&attempt, &SalvageOptions::new(), &NoProgress).unwrap_err();
    assert_eq!((error.code(), error.rule_id()), (Code::NonzeroPad, Some("tensor.unused-bits")));
    assert_eq!(error.location().offset, Some(4097));
}

/// A table whose own CRC is right and whose content is not that of the blocks.
#[test]
fn a_table_of_other_crcs_is_refused() {
    let (memory, run) = memory_run();
    let models = [Model::param("long", Dtype::U8, &[9000])];
    let (name, attempt) = write_parts(&run, &plan(&run, 1), 5, &models).unwrap();
    let shard = find(&attempt, "model-");
    let mut bytes = read_file(&attempt, &shard);
    let begin = (4096 + 9000_usize).next_multiple_of(256);
    let old = crc::crc32c(&bytes[begin..begin + 12]);
    bytes[begin] ^= 1;
    let new = crc::crc32c(&bytes[begin..begin + 12]);
    memory.set(format!("{name}/{shard}"), bytes).unwrap();
    rewrite_part(&attempt, 0, &|text| text.replace(&format!("{old:08x}"), &format!("{new:08x}")));
    let error = salvage(&attempt, &SalvageOptions::new(), &NoProgress).unwrap_err();
    assert_eq!((error.code(), error.rule_id()), (Code::CrcTableMismatch, Some("integrity.blocks")));
}

/// The right table under another CRC.
#[test]
fn a_table_is_held_against_its_own_crc() {
    let (_, run) = memory_run();
    let models = [Model::param("long", Dtype::U8, &[9000])];
    let (_, attempt) = write_parts(&run, &plan(&run, 1), 5, &models).unwrap();
    let bytes = read_file(&attempt, &find(&attempt, "model-"));
    let begin = (4096 + 9000_usize).next_multiple_of(256);
    let crc = crc::crc32c(&bytes[begin..begin + 12]);
    rewrite_part(&attempt, 0, &|text| {
        text.replace(&format!("{crc:08x}"), &format!("{:08x}", crc ^ 1))
    });
    let error = salvage(&attempt, &SalvageOptions::new(), &NoProgress).unwrap_err();
    assert_eq!((error.code(), error.rule_id()), (Code::CrcTableMismatch, Some("integrity.table")));
}
