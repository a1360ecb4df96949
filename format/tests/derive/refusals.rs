//! Each rule that parts can break together, and which of several breaches is answered for.

use waystation_format::derive::derive;
use waystation_format::entry::{Native, NativeStep, Tensor};
use waystation_format::identity::Identity;
use waystation_format::part::{Extension, Inventory, PartContent};
use waystation_format::{Attempt, Code, Digest, Dims, Dtype, Error, Role};

use crate::job::{Job, run, tensor};

/// Two writers with a half of one tensor each, and whatever `bend` does to the second part.
fn bent(bend: impl FnOnce(&mut PartContent)) -> (Code, &'static str) {
    let mut job = halves();
    bend(&mut job.0[1]);
    job.refusal()
}

fn halves() -> Job {
    let mut job = Job::new(2);
    let weight = tensor("w", Dtype::F32, &[4, 4]);
    job.store(0, &weight, &[0, 0], &[2, 4]);
    job.store(1, &weight, &[2, 0], &[2, 4]);
    job
}

#[test]
fn parts_of_other_sessions() {
    halves().derive().unwrap();
    let session = (Code::PartDisagree, "part.session");
    assert_eq!(bent(|p| p.common.attempt = Attempt { timeline: 1, nonce: 3 }), session);
    assert_eq!(bent(|p| p.common.block_bytes = 8192), session);
    assert_eq!(bent(|p| p.common.parent = Some(Digest::of(b""))), session);
    assert_eq!(bent(|p| p.common.run.push('x')), session);
    assert_eq!(bent(|p| p.common.step += 1), session);
    assert_eq!(bent(|p| p.common.topology.0[0].1 = 7), session);
    assert_eq!(bent(|p| p.common.version.minor = 1), session);
    assert_eq!(bent(|p| p.common.writers = 3), session);

    let inventory = |count| Some(Inventory { count, sha256: Digest::of(b"") });
    let mut job = halves();
    job.0[0].inventory = inventory(1);
    job.0[1].inventory = inventory(2);
    assert_eq!(job.refusal(), session);
}

#[test]
fn the_member_and_the_file_are_named() {
    let mut job = halves();
    job.0[1].common.step += 1;
    let parts = job.parts();
    let error = run(&parts).unwrap_err();
    assert_eq!(error.location().pointer.as_deref(), Some("/step"));
    assert_eq!(error.location().file.as_deref(), Some(parts[1].file_name().as_str()));
}

#[test]
fn writers_twice_or_missing() {
    let mut job = halves();
    let mut again = job.0[1].clone();
    again.inc.0 += 1;
    job.0.push(again);
    assert_eq!(job.refusal(), (Code::DuplicateWriter, "part.one-per-writer"));
    job.0.remove(1);
    job.derive().unwrap();

    let missing = (Code::WriterMissing, "part.all-writers");
    job.0.remove(1);
    assert_eq!(job.refusal(), missing);
    assert_eq!(Job(Vec::new()).refusal(), missing);

    let mut job = Job::new(40);
    job.0.drain(3..37);
    job.0.remove(0);
    let error = job.derive().unwrap_err();
    assert_eq!(
        error.message(),
        "expected parts of 40 writers, missing 0, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, …"
    );
}

#[test]
fn attachments_that_collide_between_parts() {
    for (a, b) in [("a/config.json", "A/Config.json"), ("a", "a/b"), ("x/y/z", "X/y")] {
        let mut job = halves();
        job.attach(0, a);
        job.attach(1, b);
        assert_eq!(job.refusal(), (Code::BadPath, "attachment.unique"), "{a} {b}");
    }
    let mut job = halves();
    job.attach(0, "a-b");
    job.attach(1, "a/b");
    job.derive().unwrap();
}

#[test]
fn extension_data_that_must_agree() {
    let job = |keep: [bool; 2], value: [&str; 2]| {
        let mut job = halves();
        for (n, part) in job.0.iter_mut().enumerate() {
            part.common.features.optional = vec!["x/f".to_owned()];
            let (feature, value) = ("x/f".to_owned(), value[n].to_owned());
            part.extensions = vec![Extension { feature, keep: keep[n], value }];
        }
        job
    };
    job([true; 2], ["1", "1"]).derive().unwrap();
    job([false; 2], ["1", "2"]).derive().unwrap();
    let disagree = (Code::PartDisagree, "derive.keep");
    assert_eq!(job([true; 2], ["1", "2"]).refusal(), disagree);
    assert_eq!(job([true, false], ["1", "1"]).refusal(), disagree);
}

#[test]
fn tensors_described_in_two_ways() {
    let conflict = |bend: &dyn Fn(&mut Tensor)| {
        let mut job = Job::new(2);
        let mut slot = tensor("w", Dtype::F32, &[4, 4]);
        slot.identity.role = Role::Quant;
        slot.identity.slot = "scale".to_owned();
        job.store_whole(0, &slot);
        bend(job.list(1, &slot));
        let error = job.derive().unwrap_err();
        assert_eq!(error.location().tensor.as_deref(), Some(slot.identity.key().as_str()));
        (error.code(), error.rule_id().unwrap())
    };
    let expected = (Code::TensorConflict, "derive.tensors");
    assert_eq!(conflict(&|t| t.dtype = Dtype::I32), expected);
    assert_eq!(conflict(&|t| t.shape = Dims::from_slice(&[4, 5])), expected);
    assert_eq!(conflict(&|t| t.valid = Some(Dims::from_slice(&[4, 3]))), expected);
    assert_eq!(conflict(&|t| t.axes = Some(vec![Some(1), None])), expected);
    assert_eq!(conflict(&|t| t.block = Some(1)), expected);
    let native =
        || Native { framework: "torch".to_owned(), path: vec![NativeStep::Key("w".to_owned())] };
    assert_eq!(conflict(&|t| t.native = vec![native()]), expected);
}

#[test]
fn aliases_described_in_two_ways() {
    let mut job = halves();
    let other = tensor("v", Dtype::U8, &[1]);
    job.store_whole(0, &other);
    job.alias(0, Role::Param, "tied", &Identity::param("w"));
    job.alias(1, Role::Param, "tied", &other.identity);
    assert_eq!(job.refusal(), (Code::AliasConflict, "derive.aliases"));

    let mut job = halves();
    let native =
        Native { framework: "torch".to_owned(), path: vec![NativeStep::Key("t".to_owned())] };
    job.alias(0, Role::Param, "tied", &Identity::param("w"));
    job.alias_called(1, Role::Param, "tied", &Identity::param("w"), vec![native]);
    assert_eq!(job.refusal(), (Code::AliasConflict, "derive.aliases"));

    let mut job = halves();
    job.store_whole(0, &other);
    job.alias(1, Role::Param, "v", &Identity::param("w"));
    assert_eq!(job.refusal(), (Code::AliasConflict, "derive.aliases"));
}

#[test]
fn elements_missing_or_twice() {
    let weight = tensor("w", Dtype::F32, &[4, 4]);
    let boxes = |boxes: &[(u32, u64, u64)]| {
        let mut job = Job::new(2);
        job.list(0, &weight);
        for (writer, at, rows) in boxes {
            job.store(*writer, &weight, &[*at, 0], &[*rows, 4]);
        }
        job.refusal()
    };
    let (gap, overlap) = ((Code::CoverGap, "cover.gap"), (Code::CoverOverlap, "cover.exact"));
    assert_eq!(boxes(&[]), gap);
    assert_eq!(boxes(&[(0, 0, 2)]), gap);
    assert_eq!(boxes(&[(0, 0, 2), (1, 3, 1)]), gap);
    assert_eq!(boxes(&[(0, 0, 2), (1, 1, 2)]), overlap);
    assert_eq!(boxes(&[(0, 0, 4), (1, 0, 4)]), overlap);
    // One box from both writers: two chunks with equal `at`, an overlap rather than disorder.
    assert_eq!(boxes(&[(0, 0, 2), (1, 0, 2)]), overlap);
}

#[test]
fn a_split_along_too_many_axes_by_all_writers_together() {
    let mut job = Job::new(2);
    let weight = tensor("w", Dtype::U8, &[2; 10]);
    job.store(0, &weight, &[0; 10], &[1, 1, 1, 1, 1, 2, 2, 2, 2, 2]);
    job.store(1, &weight, &[1, 0, 0, 0, 0, 0, 0, 0, 0, 0], &[1, 2, 2, 2, 2, 1, 1, 1, 1, 1]);
    assert_eq!(job.refusal(), (Code::Limit, "chunk.split"));
}

#[test]
fn aliases_without_a_tensor() {
    let mut job = halves();
    job.alias(1, Role::Param, "tied", &Identity::param("nothing"));
    assert_eq!(job.refusal(), (Code::BadAlias, "alias.target"));

    // A chain, whichever of the two comes first.
    for (first, second) in [("a", "b"), ("b", "a")] {
        let mut job = halves();
        job.alias(1, Role::Param, first, &Identity::param("w"));
        job.alias(1, Role::Param, second, &Identity::param(first));
        assert_eq!(job.refusal(), (Code::BadAlias, "alias.target"));
    }

    let mut job = halves();
    let empty = tensor("empty", Dtype::F32, &[0, 3]);
    job.list(0, &empty);
    job.derive().unwrap();
    job.alias(1, Role::Param, "tied", &empty.identity);
    let parts = job.parts();
    let error = run(&parts).unwrap_err();
    assert_eq!((error.code(), error.rule_id()), (Code::BadAlias, Some("alias.elements")));
    assert_eq!(error.location().file.as_deref(), Some(parts[1].file_name().as_str()));
}

#[test]
fn one_name_for_two_things() {
    let buffer = |scope: &[(&str, u64)]| {
        let mut tensor = tensor("w", Dtype::U8, &[1]);
        tensor.identity.role = Role::Buffer;
        tensor.identity.scope = scope.iter().map(|(axis, n)| ((*axis).to_owned(), *n)).collect();
        tensor
    };
    let mut job = halves();
    job.store_whole(1, &buffer(&[]));
    assert_eq!(job.refusal(), (Code::NameConflict, "identity.one-name"));

    let mut job = halves();
    job.store_whole(1, &buffer(&[("dp", 1)]));
    job.derive().unwrap();

    let mut job = halves();
    let mut other = buffer(&[]);
    other.identity.name = "other".to_owned();
    job.store_whole(1, &other);
    job.alias(0, Role::Buffer, "w", &other.identity);
    assert_eq!(job.refusal(), (Code::NameConflict, "identity.one-name"));
}

#[test]
fn another_inventory_than_stated() {
    let refused = (Code::InventoryMismatch, "part.inventory");
    let right = Inventory::of([r#"["main","param","w","","",[]]"#]);
    let job = |inventory| {
        let mut job = halves();
        job.0[1].inventory = Some(inventory);
        job
    };
    job(right).derive().unwrap();
    assert_eq!(job(Inventory { count: 2, ..right }).refusal(), refused);
    assert_eq!(job(Inventory { sha256: Digest::of(b""), ..right }).refusal(), refused);
}

#[test]
fn records_that_differ_or_leave_a_hole() {
    let mut job = halves();
    job.record(0, "a", &[], r#"{"v":1}"#);
    job.record(1, "a", &[], r#"{"v":2}"#);
    assert_eq!(job.refusal(), (Code::RecordConflict, "derive.records"));

    let mut job = halves();
    job.record(0, "a", &[("dp", 0)], "{}");
    assert_eq!(job.refusal(), (Code::RecordGrid, "record.grid"));
    job.record(1, "a", &[("dp", 1)], "{}");
    job.derive().unwrap();
    job.record(1, "a", &[], "{}");
    assert_eq!(job.refusal(), (Code::RecordGrid, "record.grid"));
}

/// From the first to the last in the order of checks; each is mended before the next is seen.
#[test]
fn the_first_of_many_breaches_is_answered_for() {
    let mut job = Job::new(2);
    let (gap, other) = (tensor("a", Dtype::F32, &[4, 4]), tensor("b", Dtype::F32, &[2]));
    job.store(0, &gap, &[0, 0], &[2, 4]);
    job.store_whole(0, &other);
    job.list(1, &other).dtype = Dtype::I32;
    job.alias(0, Role::Param, "tied", &Identity::param("nothing"));
    let mut buffer = tensor("b", Dtype::U8, &[1]);
    buffer.identity.role = Role::Buffer;
    job.store_whole(1, &buffer);
    job.0[0].inventory = Some(Inventory::of([]));
    job.record(0, "a", &[("dp", 0)], "{}");
    job.record(0, "b", &[], r#"{"v":1}"#);
    job.record(1, "b", &[], r#"{"v":2}"#);
    job.attach(0, "config");
    job.attach(1, "CONFIG");
    let twin = PartContent { inc: waystation_format::Incarnation(9), ..job.0[0].clone() };
    job.0.push(twin);
    job.0[1].writer = 2;
    job.0[1].common.step = 11;
    for part in &mut job.0 {
        part.common.writers = 3;
    }

    assert_eq!(job.refusal().1, "part.session");
    job.0[1].common.step = 10;
    assert_eq!(job.refusal().1, "part.one-per-writer");
    job.0.pop();
    assert_eq!(job.refusal().1, "part.all-writers");
    job.0[1].writer = 1;
    for part in &mut job.0 {
        part.common.writers = 2;
    }
    assert_eq!(job.refusal().1, "attachment.unique");
    job.0[1].attachments.clear();
    assert_eq!(job.refusal().1, "cover.gap");
    job.store(1, &gap, &[2, 0], &[2, 4]);
    assert_eq!(job.refusal().1, "derive.tensors");
    job.list(1, &other).dtype = Dtype::F32;
    assert_eq!(job.refusal().1, "alias.target");
    job.0[0].entries.retain(|entry| !entry.key().contains("tied"));
    assert_eq!(job.refusal().1, "identity.one-name");
    job.0[1].entries.retain(|entry| !entry.key().contains("buffer"));
    assert_eq!(job.refusal().1, "part.inventory");
    job.0[0].inventory = None;
    assert_eq!(job.refusal().1, "derive.records");
    job.0[1].records.clear();
    assert_eq!(job.refusal().1, "record.grid");
    job.record(1, "a", &[("dp", 1)], "{}");
    job.derive().unwrap();
}

#[test]
fn a_sinks_error_is_passed_on() {
    let parts = halves().parts();
    let error = derive(&parts, &mut |_| Err(Error::new(Code::IoFull, "no space"))).unwrap_err();
    assert_eq!(error.code(), Code::IoFull);
}
