//! Writing a checkpoint again for another number of writers: the same content, all of it.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::cast_possible_truncation,
    reason = "a test that cannot go on should say where"
)]

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use waystation_format::identity::Identity;
use waystation_format::part::{Extension, Omitted, OmittedReason};
use waystation_format::{Code, Dtype, Region, Role, names};
use waystation_reader::{Checkpoint, NoProgress, Progress, latest, verify};
use waystation_store::Store;
use waystation_writer::{
    CommitOptions, ReshardOptions, Session, SessionPlan, commit, make_attempt, reshard,
};

use support::*;

/// Every tensor, alias, record and attachment, by key.
fn content(checkpoint: &Checkpoint) -> Vec<(String, Vec<u8>)> {
    let mut all = Vec::new();
    for entry in checkpoint.entries() {
        let entry = entry.unwrap();
        let bytes = checkpoint.tensor_of(&entry).unwrap().read().unwrap();
        all.push((entry.key(), bytes));
    }
    for record in checkpoint.records() {
        let record = record.unwrap();
        all.push((record.key.key(), record.json.as_bytes().to_vec()));
    }
    for attachment in checkpoint.attachments() {
        let mut bytes = Vec::new();
        checkpoint.read_attachment(&attachment.entry.path, &mut bytes).unwrap();
        all.push((attachment.entry.path.clone(), bytes));
    }
    all
}

fn check_verified(store: &Arc<dyn Store>) {
    let report = verify(store, &Default::default()).unwrap();
    assert!(report.findings.is_empty(), "{:?}", report.findings);
}

fn again(from: &Arc<dyn Store>, writers: u32) -> Arc<dyn Store> {
    let (_, to) = memory_run();
    reshard(&open(from), &to, &ReshardOptions::new(writers), &NoProgress).unwrap();
    check_verified(&to);
    to
}

/// Many writers of one process do not look for each other's files one by one.
#[test]
fn looks_do_not_grow_with_the_writers() {
    let (_, run) = memory_run();
    let (_, from, _) = save(&run, &plan(&run, 1), 1, &sample(1)).unwrap();
    let looks = |writers: u32| {
        let (fs, _, to) = failing_run();
        reshard(&open(&from), &to, &ReshardOptions::new(writers), &NoProgress).unwrap();
        fs.log().iter().filter(|line| line.starts_with("list")).count()
    };
    assert_eq!(looks(2), looks(20));
}

#[test]
fn content_stays_whatever_the_number_of_writers() {
    let (_, run) = memory_run();
    let mut models = sample(3);
    models.push(Model::param("large", Dtype::F32, &[1500, 1024]).rows(3));
    models.push(Model::param("odd", Dtype::F6E2M3, &[77, 13]).rows(3));
    let (_, from, _) = save(&run, &plan(&run, 3), 1000, &models).unwrap();
    let original = open(&from);
    for writers in [1, 2, 5, 8] {
        let to = again(&from, writers);
        let new = open(&to);
        assert_eq!(content(&new), content(&original), "{writers}");
        check_equal(&to, &models);
        let (old, new) = (&original.manifest().common, &new.manifest().common);
        assert_eq!((old.step, &old.run, &old.topology), (new.step, &new.run, &new.topology));
        assert_eq!((new.writers, new.parent), (writers, Some(original.digest())));
        assert!(new.attempt.timeline > old.attempt.timeline);
    }
    // Back and forth.
    check_equal(&again(&again(&from, 7), 3), &models);
}

#[test]
fn writers_get_nearly_equal_bytes() {
    let (_, run) = memory_run();
    let models = [Model::param("large", Dtype::U8, &[9000, 1024])];
    let (_, from, _) = save(&run, &plan(&run, 1), 1, &models).unwrap();
    let to = again(&from, 4);
    let lengths: Vec<u64> = to
        .list()
        .unwrap()
        .into_iter()
        .filter(|listed| names::parse_shard(&listed.name).is_some())
        .map(|listed| listed.stat.bytes)
        .collect();
    assert_eq!(lengths.len(), 4);
    assert!(lengths.iter().max().unwrap() - lengths.iter().min().unwrap() < 200_000, "{lengths:?}");
}

#[test]
fn in_a_run_it_is_the_latest() {
    let (_, run) = memory_run();
    let models = sample(2);
    let (_, from, _) = save(&run, &plan(&run, 2), 10, &models).unwrap();
    let plan = SessionPlan { writers: 3, ..plan(&run, 2) };
    let (name, to) = make_attempt(&run, &plan, 10, 0).unwrap();
    let mut options = ReshardOptions::new(3);
    options.attempt = Some(plan.attempt(10, 0));
    options.run = Some((Arc::clone(&run), name.clone()));
    reshard(&open(&from), &to, &options, &NoProgress).unwrap();
    assert_eq!(latest(&run).unwrap().name, name);
    check_equal(&to, &models);
}

/// One writer with a tensor whose boxes do not fall on the blocks of its flat companion.
fn with_companion(boxes: &[(u64, u64)]) -> Arc<dyn Store> {
    let (_, run) = memory_run();
    let plan = plan(&run, 1);
    let (_, attempt) = make_attempt(&run, &plan, 1, 1).unwrap();
    let param = Model::param("w", Dtype::U8, &[8, 24]);
    let mut scale = param.decl.clone();
    scale.identity =
        Identity { role: Role::Quant, slot: "scale".to_owned(), ..param.decl.identity.clone() };
    scale.dtype = Dtype::F32;
    scale.block = Some(16);
    let mut session = Session::begin(Arc::clone(&attempt), plan.common(1, 1), 0).unwrap();
    let mut chunks = Vec::new();
    for &(begin, end) in boxes {
        let mut region = Region::whole(&[8, 24]);
        (region.at[0], region.extent[0]) = (begin, end - begin);
        chunks.push((session.chunk(&param.decl, &region).unwrap(), param.region(&region)));
        let id = session.chunk(&scale, &region).unwrap();
        let length = ((end - begin) * 24).div_ceil(16) * 4;
        chunks.push((id, noise(begin + 1, length as usize)));
    }
    let writing = session.lay_out().unwrap();
    write(&writing, &chunks).unwrap();
    writing.finish().unwrap();
    commit(&attempt, &CommitOptions::default(), &NoProgress).unwrap();
    attempt
}

fn scale() -> Identity {
    Identity { role: Role::Quant, slot: "scale".to_owned(), ..Identity::param("w") }
}

#[test]
fn a_companion_on_block_boundaries_is_shared_out_anew() {
    let from = with_companion(&[(0, 2), (2, 8)]);
    let to = again(&from, 3);
    assert_eq!(content(&open(&to)), content(&open(&from)));
}

#[test]
fn a_companion_off_its_blocks_keeps_its_boxes_and_its_tensors() {
    let from = with_companion(&[(0, 3), (3, 8)]);
    let to = again(&from, 3);
    let (old, new) = (open(&from), open(&to));
    assert_eq!(old.tensor(&scale()).unwrap().read().unwrap_err().code(), Code::BlockBoundary);
    for identity in [scale(), Identity::param("w")] {
        let (old, new) = (old.tensor(&identity).unwrap(), new.tensor(&identity).unwrap());
        let (old_chunks, new_chunks) = (&old.entry().chunks, &new.entry().chunks);
        assert_eq!(old_chunks.len(), 2);
        for (chunk, (a, b)) in old_chunks.iter().zip(new_chunks).enumerate() {
            assert_eq!((&a.region, a.crc32c), (&b.region, b.crc32c));
            let mut bytes = [Vec::new(), Vec::new()];
            for (tensor, bytes) in [&old, &new].into_iter().zip(&mut bytes) {
                tensor
                    .stream_chunk(chunk, 4096, &mut |piece| {
                        bytes.extend_from_slice(piece);
                        Ok(())
                    })
                    .unwrap();
            }
            assert_eq!(bytes[0], bytes[1]);
        }
    }
    let writers = |identity: &Identity| -> Vec<u32> {
        let tensor = new.tensor(identity).unwrap();
        tensor.entry().chunks.iter().map(|chunk| chunk.writer).collect()
    };
    assert_eq!(writers(&scale()), writers(&Identity::param("w")), "together at one writer");
}

#[test]
fn features_that_say_keep_are_carried_and_others_left_out() {
    let (_, run) = memory_run();
    let plan = plan(&run, 2);
    let (_, attempt) = make_attempt(&run, &plan, 1, 1).unwrap();
    for writer in 0..2 {
        let mut common = plan.common(1, 1);
        let optional = ["acme/drop", "acme/keep", "acme/silent"];
        common.features.optional = optional.map(str::to_owned).to_vec();
        let mut session = Session::begin(Arc::clone(&attempt), common, writer).unwrap();
        let extension = |name: &str, keep, value: &str| Extension {
            feature: name.to_owned(),
            keep,
            value: value.to_owned(),
        };
        session.extension(extension("acme/keep", true, "[1,2]"));
        session.extension(extension("acme/drop", false, "{}"));
        session.omit(Omitted {
            component: "main".to_owned(),
            reason: OmittedReason::Frozen,
            names: vec![format!("base.{writer}")],
        });
        session.lay_out().unwrap().finish().unwrap();
    }
    commit(&attempt, &CommitOptions::default(), &NoProgress).unwrap();
    let to = again(&attempt, 3);
    let new = open(&to);
    let manifest = new.manifest();
    assert_eq!(manifest.common.features.optional, ["acme/keep"]);
    let extensions: Vec<&Extension> =
        manifest.parts.iter().flat_map(|part| &part.extensions).collect();
    assert_eq!(extensions.len(), 1);
    assert_eq!((extensions[0].value.as_str(), extensions[0].keep), ("[1,2]", true));
    assert_eq!(manifest.omitted, open(&attempt).manifest().omitted);
}

#[test]
fn damage_and_a_wish_to_stop_leave_no_checkpoint() {
    /// Asked for when something is there already.
    struct Stop(AtomicBool);
    impl Progress for Stop {
        fn begin(&self, _what: &str, _total_bytes: u64) {}
        fn advance(&self, _bytes: u64) {}
        fn cancelled(&self) -> bool {
            self.0.swap(true, Ordering::Relaxed)
        }
    }
    let (memory, run) = memory_run();
    let (name, from, _) = save(&run, &plan(&run, 1), 1, &sample(1)).unwrap();
    let (_, to) = memory_run();
    let options = ReshardOptions::new(2);
    let stopped = reshard(&open(&from), &to, &options, &Stop(AtomicBool::new(false))).unwrap_err();
    assert_eq!(stopped.code(), Code::Interrupted);
    assert!(to.stat(names::COMMIT).unwrap().is_none());
    let full = reshard(&open(&from), &to, &options, &NoProgress).unwrap_err();
    assert_eq!(full.code(), Code::Exists);

    let listed = from.list().unwrap();
    let shard = listed.into_iter().find(|file| file.name.starts_with("model-")).unwrap().name;
    let path = format!("{name}/{shard}");
    let mut bytes = memory.bytes(&path).unwrap();
    bytes[4096] ^= 1;
    memory.set(&path, bytes).unwrap();
    let (_, to) = memory_run();
    let error = reshard(&open(&from), &to, &options, &NoProgress).unwrap_err();
    assert_eq!(error.code(), Code::CrcMismatch);
    assert!(to.stat(names::COMMIT).unwrap().is_none());
}
