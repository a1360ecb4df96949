//! What only a real file system has: links, pipes, descriptors, mappings.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::cast_possible_truncation,
    unsafe_code,
    missing_docs,
    reason = "tests: a failure is a panic, and views are made of files that nobody changes"
)]

mod support;

use std::os::unix::fs::symlink;
use std::path::Path;

use rustix::fs::{CWD, FileType, Mode, mknodat};
use support::{Making, name_of, small, write_all};
use waystation_format::{Code, Dtype, Identity, Result, Tensor, limits, names, rule};
use waystation_reader::{
    Checkpoint, MappedCheckpoint, OpenOptions, PrivateView, VerifyOptions, verify,
};
use waystation_store::open_path;
use waystation_store::testing::skipped;

fn map(dir: &Path) -> MappedCheckpoint {
    // SAFETY: the directory is the test's own, and no test writes while a view is alive.
    unsafe { Checkpoint::map(dir) }.unwrap()
}

fn private(checkpoint: &Checkpoint, identity: &Identity) -> Result<PrivateView> {
    // SAFETY: the directory is the test's own, and no test writes while a view is alive.
    unsafe { checkpoint.map_private(identity) }
}

#[test]
fn nothing_but_a_regular_file_is_opened() {
    let files = small().files();
    for name in files.keys() {
        for kind in ["link", "pipe", "directory", "socket", "device"] {
            let dir = tempfile::tempdir().unwrap();
            write_all(dir.path(), &files);
            let path = dir.path().join(name);
            let elsewhere = tempfile::tempdir().unwrap();
            let kept = elsewhere.path().join("kept");
            std::fs::copy(&path, &kept).unwrap();
            std::fs::remove_file(&path).unwrap();
            match kind {
                "link" => symlink(&kept, &path).unwrap(),
                "pipe" => mknodat(CWD, &path, FileType::Fifo, Mode::RWXU, 0).unwrap(),
                "socket" => mknodat(CWD, &path, FileType::Socket, Mode::RWXU, 0).unwrap(),
                "device" => {
                    // One that gives bytes without end.
                    let zero = rustix::fs::makedev(1, 5);
                    let kind = FileType::CharacterDevice;
                    if let Err(why) = mknodat(CWD, &path, kind, Mode::RWXU, zero) {
                        skipped(format_args!("a device in place of {name}"), why);
                        continue;
                    }
                }
                _ => std::fs::create_dir(&path).unwrap(),
            }
            let e = Checkpoint::open(dir.path()).unwrap_err();
            assert_eq!(e.code(), Code::NotRegular, "{name} as {kind}: {e}");
            assert_eq!(e.location().file.as_deref(), Some(name.as_str()));
            let store = open_path(dir.path()).unwrap();
            let report = verify(&store, &VerifyOptions::default()).unwrap();
            assert_eq!(report.findings[0].code(), Code::NotRegular);

            // A trusted directory may be made of links, and of nothing else.
            let trusted = OpenOptions::new().trust_links(true);
            match Checkpoint::open_with(dir.path(), trusted) {
                Ok(checkpoint) => {
                    assert_eq!(kind, "link");
                    for made in &small().tensors {
                        let tensor = checkpoint.tensor(&made.tensor.identity).unwrap();
                        assert_eq!(tensor.read().unwrap(), made.data);
                    }
                }
                Err(e) => assert!(kind != "link" && e.code() == Code::NotRegular, "{e}"),
            }
        }
    }
}

#[test]
fn metadata_beyond_its_limit_is_not_read() {
    let dir = tempfile::tempdir().unwrap();
    write_all(dir.path(), &small().files());
    let manifest = std::fs::File::options().write(true).open(dir.path().join(names::MANIFEST));
    manifest.unwrap().set_len(limits::MANIFEST_BYTES + 1).unwrap();
    let e = Checkpoint::open(dir.path()).unwrap_err();
    assert_eq!((e.code(), e.rule_id()), (Code::Limit, Some(rule::LIMIT_VALUE)));
    assert_eq!(e.location().file.as_deref(), Some(names::MANIFEST));
}

#[test]
fn links_on_the_way_to_a_directory_are_followed() {
    let dir = tempfile::tempdir().unwrap();
    let real = dir.path().join("real");
    std::fs::create_dir(&real).unwrap();
    write_all(&real, &small().files());
    symlink(&real, dir.path().join("link")).unwrap();
    Checkpoint::open(&dir.path().join("link")).unwrap();
    assert_eq!(Checkpoint::open(&dir.path().join("none")).unwrap_err().code(), Code::NotFound);
}

#[test]
fn a_run_does_not_follow_links() {
    let dir = tempfile::tempdir().unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    write_all(elsewhere.path(), &small().files());
    let making = small();
    let name = names::attempt_dir(making.step, &making.attempt);
    symlink(elsewhere.path(), dir.path().join(&name)).unwrap();
    let run = open_path(dir.path()).unwrap();
    let e = waystation_reader::latest(&run).unwrap_err();
    assert_eq!(e.code(), Code::NoCheckpoint);
    assert!(!e.message().contains(&name), "{e}");
    assert!(waystation_reader::list(&run).unwrap().is_empty());
}

#[test]
fn a_file_that_shrinks_after_opening_is_an_error() {
    let files = small().files();
    let dir = tempfile::tempdir().unwrap();
    write_all(dir.path(), &files);
    let checkpoint = Checkpoint::open(dir.path()).unwrap();
    for name in files.keys().filter(|name| name.ends_with(".safetensors")) {
        std::fs::write(dir.path().join(name), b"short").unwrap();
    }
    let e = checkpoint.tensor(&Identity::param("up")).unwrap().read().unwrap_err();
    assert_eq!(e.code(), Code::LengthMismatch);
}

#[test]
fn views_are_the_bytes_without_a_copy() {
    let mut making = Making::new(2)
        .whole(Identity::param("one"), Dtype::F32, &[64, 64], 0)
        .whole(Identity::param("small"), Dtype::BF16, &[3], 1)
        .whole(Identity::param("scalar"), Dtype::F64, &[], 1)
        .whole(Identity::param("none"), Dtype::F64, &[4, 0], 1)
        .whole(Identity::param("nibbles"), Dtype::U4, &[7], 0)
        .cut(Identity::param("apart"), Dtype::F32, &[64, 64], 0, 2)
        .cut(Identity::param("columns"), Dtype::F32, &[64, 64], 1, 2)
        .cut(Identity::param("padded"), Dtype::U8, &[600], 0, 2)
        .alias("other", Identity::param("one"));
    // Two pieces of one file that meet: each of 64 KiB, so neither has a pad after it.
    making.writers = 1;
    making.tensors.iter_mut().for_each(|made| made.boxes.iter_mut().for_each(|b| b.0 = 0));
    making = making.cut(Identity::param("meeting"), Dtype::F32, &[64, 512], 0, 2);
    making.tensors.rotate_right(1);
    let dir = tempfile::tempdir().unwrap();
    write_all(dir.path(), &making.files());
    let mapped = map(dir.path());
    let mut apart = 0;
    for made in &making.tensors {
        let identity = &made.tensor.identity;
        match mapped.view(identity) {
            Ok(view) => {
                assert!(*view == made.data[..], "{}", identity.name);
                assert!(*private(mapped.checkpoint(), identity).unwrap() == made.data[..]);
            }
            Err(e) => {
                assert_eq!(e.code(), Code::NotOneRun);
                assert!(e.location().tensor.is_some());
                let e = private(mapped.checkpoint(), identity).unwrap_err();
                assert_eq!(e.code(), Code::NotOneRun);
                assert!(e.location().tensor.is_some());
                // A view copies nothing: pieces by columns, or with a pad between, are not one run.
                assert!(["columns", "padded"].contains(&&*identity.name), "{}", identity.name);
                apart += 1;
            }
        }
    }
    assert_eq!(apart, 2);
    assert!(
        *mapped.view(&Identity::param("other")).unwrap()
            == *mapped.view(&Identity::param("one")).unwrap()
    );
    assert_eq!(mapped.view(&Identity::param("gone")).unwrap_err().code(), Code::NotFound);
    // A view outlives the checkpoint and the directory.
    let view = mapped.view(&Identity::param("one")).unwrap();
    drop(mapped);
    dir.close().unwrap();
    assert!(
        *view == *making.tensors.iter().find(|m| m.tensor.identity.name == "one").unwrap().data
    );
}

#[test]
fn pieces_of_several_writers_are_not_one_run() {
    let making = Making::new(2).cut(Identity::param("w"), Dtype::F32, &[64, 64], 0, 2);
    let dir = tempfile::tempdir().unwrap();
    write_all(dir.path(), &making.files());
    let e = map(dir.path()).view(&Identity::param("w")).unwrap_err();
    assert_eq!(e.code(), Code::NotOneRun);
}

#[test]
fn damage_is_seen_when_a_view_is_made() {
    let making = Making::new(1).whole(Identity::param("long"), Dtype::F32, &[64, 64], 0).whole(
        Identity::param("short"),
        Dtype::F32,
        &[10],
        0,
    );
    let good = making.files();
    let shard = name_of(&good, "model-");
    let opened = Checkpoint::open_store(making.store(), OpenOptions::new()).unwrap();
    for (name, within) in [("long", 8000), ("short", 9)] {
        let place = |t: &Tensor| t.chunks[0].offset;
        let offset = place(opened.tensor(&Identity::param(name)).unwrap().entry());
        let mut files = good.clone();
        files.get_mut(&shard).unwrap()[(offset + within) as usize] ^= 2;
        let dir = tempfile::tempdir().unwrap();
        write_all(dir.path(), &files);
        let identity = Identity::param(name);
        let opened = Checkpoint::open(dir.path()).unwrap();
        for e in
            [map(dir.path()).view(&identity).unwrap_err(), private(&opened, &identity).unwrap_err()]
        {
            assert_eq!(e.code(), Code::CrcMismatch);
            assert_eq!(e.location().file.as_deref(), Some(shard.as_str()));
            let block = if name == "long" { 4096 } else { 0 };
            assert_eq!(e.location().offset, Some(offset + block));
        }
        let unchecked = OpenOptions::new().verify_reads(false);
        let opened = Checkpoint::open_with(dir.path(), unchecked).unwrap();
        assert!(private(&opened, &identity).is_ok());
    }
}

#[test]
fn what_is_written_to_a_private_view_is_seen_by_nobody_else() {
    let making = Making::new(1).whole(Identity::param("w"), Dtype::F32, &[64, 64], 0);
    let dir = tempfile::tempdir().unwrap();
    write_all(dir.path(), &making.files());
    let (checkpoint, w) = (Checkpoint::open(dir.path()).unwrap(), Identity::param("w"));
    let good = &making.tensors[0].data;
    let (mut one, other) = (private(&checkpoint, &w).unwrap(), private(&checkpoint, &w).unwrap());
    one.as_mut_slice().fill(0xee);
    assert!(*other == good[..] && one.iter().all(|byte| *byte == 0xee));
    assert!(checkpoint.tensor(&w).unwrap().read().unwrap() == *good);
    // A view outlives the checkpoint and the directory.
    drop(checkpoint);
    dir.close().unwrap();
    assert!(*other == good[..]);
}
