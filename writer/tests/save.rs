//! What is written reads back, whatever its shape, split, order and number of writers.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::arithmetic_side_effects,
    clippy::cast_possible_truncation,
    reason = "a test that cannot go on should say where"
)]

mod support;

use std::sync::Arc;

use proptest::prelude::*;
use safetensors::SafeTensors;
use waystation_format::identity::Identity;
use waystation_format::{Code, Dtype, Error, Part, Region, names};
use waystation_reader::NoProgress;
use waystation_store::Store;
use waystation_writer::{CommitOptions, Session, SessionOptions, commit, make_attempt};

use support::*;

/// Every shard is a file that the safetensors crate opens; gives the number of shards.
fn check_shards(attempt: &Arc<dyn Store>, models: &[Model]) -> usize {
    let mut shards = 0;
    for listed in attempt.list().unwrap() {
        if names::parse_shard(&listed.name).is_none() {
            continue;
        }
        shards += 1;
        let object = attempt.open(&listed.name).unwrap();
        let mut bytes = vec![0; object.bytes() as usize];
        object.read_at(&mut bytes, 0).unwrap();
        let tensors = SafeTensors::deserialize(&bytes).unwrap();
        for (name, view) in tensors.iter() {
            let model = models.iter().find(|model| model.decl.identity == Identity::param(name));
            if let Some(model) = model {
                assert_eq!(view.data(), model.bytes, "{name}");
            }
        }
    }
    shards
}

#[test]
fn a_save_of_three_writers_reads_back() {
    let (_, run) = memory_run();
    let models = sample(3);
    let (name, attempt, committed) = save(&run, &plan(&run, 3), 1000, &models).unwrap();
    assert!(!committed.already);
    assert!(name.starts_with("step-000000001000-00000001"));
    check_equal(&attempt, &models);
    assert_eq!(check_shards(&attempt, &models), 6);
    let checkpoint = open(&attempt);
    assert_eq!(checkpoint.digest(), committed.digest);
    let head = checkpoint.tensor(&Identity::param("head.weight")).unwrap();
    assert_eq!(head.read().unwrap(), models[0].bytes, "the alias");
    assert_eq!(checkpoint.records().count(), 2, "progress and the optimizer");
}

#[test]
fn chunks_are_written_in_blocks_of_any_order_by_many_threads() {
    let (_, run) = memory_run();
    let models = sample(1);
    let plan = plan(&run, 1);
    let (_, attempt) = make_attempt(&run, &plan, 1, 1).unwrap();
    let (session, chunks) = declare(&attempt, &plan, 1, 0, &models).unwrap();
    let writing = session.lay_out().unwrap();
    std::thread::scope(|scope| {
        for half in 0..2 {
            let (writing, chunks) = (&writing, &chunks);
            scope.spawn(move || {
                for (id, bytes) in chunks.iter().rev() {
                    for (number, block) in bytes.chunks(4096).enumerate().rev() {
                        if number % 2 == half {
                            writing.write(*id, number as u64 * 4096, block).unwrap();
                        }
                    }
                }
            });
        }
    });
    writing.finish().unwrap();
    commit(&attempt, &CommitOptions::default(), &NoProgress).unwrap();
    check_equal(&attempt, &models);
}

#[test]
fn streams_take_pieces_of_any_length() {
    let (_, run) = memory_run();
    let models = sample(1);
    let plan = plan(&run, 1);
    let (_, attempt) = make_attempt(&run, &plan, 1, 1).unwrap();
    let (session, chunks) = declare(&attempt, &plan, 1, 0, &models).unwrap();
    let writing = session.lay_out().unwrap();
    for ((id, bytes), length) in chunks.iter().zip([1, 100, 4095, 4096, 4097, 9000].iter().cycle())
    {
        let mut stream = writing.stream(*id).unwrap();
        bytes.chunks(*length).try_for_each(|piece| stream.push(piece)).unwrap();
        stream.finish().unwrap();
    }
    writing.finish().unwrap();
    commit(&attempt, &CommitOptions::default(), &NoProgress).unwrap();
    check_equal(&attempt, &models);
}

#[test]
fn long_blocks_have_one_crc_though_written_in_pieces() {
    let (_, run) = memory_run();
    let models = vec![Model::param("w", Dtype::U8, &[3 << 20])];
    for block_bytes in [1 << 18, 1 << 20, 1 << 24] {
        let mut plan = plan(&run, 1);
        plan.block_bytes = block_bytes;
        let (_, attempt, _) = save(&run, &plan, 1, &models).unwrap();
        check_equal(&attempt, &models);
        let store = attempt;
        let report = waystation_reader::verify(&store, &Default::default()).unwrap();
        assert!(report.findings.is_empty(), "{:?}", report.findings);
    }
}

#[test]
fn a_shard_ends_before_the_chunk_that_would_make_it_too_long() {
    let (_, run) = memory_run();
    let plan = plan(&run, 1);
    let (_, attempt) = make_attempt(&run, &plan, 1, 1).unwrap();
    let models: Vec<Model> = (0..40)
        .map(|i| {
            Model::param(&format!("w{i}"), Dtype::U8, &[if i == 7 { 300_000 } else { 20_000 }])
        })
        .collect();
    let (mut session, chunks) = declare(&attempt, &plan, 1, 0, &models).unwrap();
    let mut options = SessionOptions::default();
    options.shard_target_bytes = 100_000;
    session.set_options(options);
    let writing = session.lay_out().unwrap();
    write(&writing, &chunks).unwrap();
    writing.finish().unwrap();
    let lengths: Vec<u64> = attempt
        .list()
        .unwrap()
        .into_iter()
        .filter(|listed| names::parse_shard(&listed.name).is_some())
        .map(|listed| listed.stat.bytes)
        .collect();
    let long = lengths.iter().filter(|&&bytes| bytes > 100_000).count();
    assert_eq!(long, 1, "only the chunk that is longer by itself: {lengths:?}");
    assert!(lengths.len() >= 11 && lengths.len() <= 16, "{lengths:?}");
    commit(&attempt, &CommitOptions::default(), &NoProgress).unwrap();
    check_equal(&attempt, &models);
    check_shards(&attempt, &models);
}

#[test]
fn large_chunks_come_first() {
    let (_, run) = memory_run();
    let models =
        [Model::param("small", Dtype::U8, &[65_535]), Model::param("large", Dtype::U8, &[65_536])];
    let (_, attempt, _) = save(&run, &plan(&run, 1), 1, &models).unwrap();
    let checkpoint = open(&attempt);
    let offset =
        |name: &str| checkpoint.tensor(&Identity::param(name)).unwrap().entry().chunks[0].offset;
    assert_eq!((offset("large"), offset("small")), (4096, 4096 + 65_536));
}

#[test]
fn what_breaks_the_contract_is_refused_and_kills_nothing() {
    let (_, run) = memory_run();
    let plan = plan(&run, 1);
    let (_, attempt) = make_attempt(&run, &plan, 1, 1).unwrap();
    let model = Model::param("w", Dtype::U8, &[10_000]);
    let odd = Model::param("odd", Dtype::U4, &[3]);
    let mut session = Session::begin(Arc::clone(&attempt), plan.common(1, 1), 0).unwrap();
    let region = Region::whole(&[10_000]);
    let id = session.chunk(&model.decl, &region).unwrap();
    let odd_id = session.chunk(&odd.decl, &Region::whole(&[3])).unwrap();

    let mut other = model.decl.clone();
    other.dtype = Dtype::I8;
    assert_eq!(session.declare(&other).unwrap_err().code(), Code::TensorConflict);
    let outside = Region::whole(&[10_001]);
    assert_eq!(session.chunk(&model.decl, &outside).unwrap_err().code(), Code::BadChunk);
    let mut empty = region.clone();
    empty.extent[0] = 0;
    assert_eq!(session.chunk(&model.decl, &empty).unwrap_err().code(), Code::BadChunk);
    assert_eq!(session.attach_bytes("../x", b"").unwrap_err().code(), Code::BadPath);
    session.attach_bytes("a/b", b"").unwrap();
    assert_eq!(session.attach_bytes("A", b"").unwrap_err().code(), Code::BadPath);

    let writing = session.lay_out().unwrap();
    let refused = |offset, bytes: &[u8]| {
        assert_eq!(writing.write(id, offset, bytes).unwrap_err().code(), Code::BadArgument);
    };
    refused(1, &[0; 4096]);
    refused(0, &[0; 100]);
    refused(8192, &[0; 1809]);
    refused(8192, &[0; 4096]);
    writing.write(id, 4096, &model.bytes[4096..8192]).unwrap();
    refused(4096, &[0; 4096]);
    refused(0, &[0; 8192]);
    assert_eq!(writing.write_all(id, &[0; 3]).unwrap_err().code(), Code::BadArgument);
    let tail = writing.write_all(odd_id, &[0xff, 0xff]).unwrap_err();
    assert_eq!(tail.code(), Code::BadArgument);
    writing.write_all(odd_id, &odd.bytes).unwrap();
    writing.write(id, 0, &model.bytes[..4096]).unwrap();
    writing.write(id, 8192, &model.bytes[8192..]).unwrap();
    writing.finish().unwrap();
    commit(&attempt, &CommitOptions::default(), &NoProgress).unwrap();
    check_equal(&attempt, &[model, odd]);
}

#[test]
fn a_chunk_that_is_not_whole_cannot_be_finished() {
    let (_, run) = memory_run();
    let plan = plan(&run, 1);
    let (_, attempt) = make_attempt(&run, &plan, 1, 1).unwrap();
    let models = [Model::param("w", Dtype::U8, &[10_000])];
    let (session, chunks) = declare(&attempt, &plan, 1, 0, &models).unwrap();
    let writing = session.lay_out().unwrap();
    let (id, bytes) = &chunks[0];
    writing.write(*id, 0, &bytes[..4096]).unwrap();
    writing.write(*id, 8192, &bytes[8192..]).unwrap();
    let error = writing.finish().unwrap_err();
    assert_eq!(error.code(), Code::BadArgument);
    assert!(error.message().contains("at 4096"), "{error}");
    let parts = attempt.list().unwrap().into_iter().filter(|l| l.name.starts_with("part-")).count();
    assert_eq!(parts, 0);
}

#[test]
fn a_restarted_writer_stays_out_of_its_old_attempt() {
    let (_, run) = memory_run();
    let plan = plan(&run, 2);
    let (name, attempt) = make_attempt(&run, &plan, 1, 1).unwrap();
    assert_eq!(make_attempt(&run, &plan, 1, 1).unwrap_err().code(), Code::Exists);
    let models = sample(2);
    let (session, _) = declare(&attempt, &plan, 1, 0, &models).unwrap();
    let _writing = session.lay_out().unwrap();
    let begin = |writer| Session::begin(Arc::clone(&attempt), plan.common(1, 1), writer).map(drop);
    let again = begin(0).unwrap_err();
    assert_eq!((again.code(), again.rule_id()), (Code::Exists, Some("writer.restart")));
    begin(1).unwrap();
    assert_eq!(begin(2).unwrap_err().code(), Code::BadArgument);
    assert!(run.dir(&name).unwrap().is_some());
}

#[test]
fn timelines_count_up_whatever_was_committed() {
    let (_, run) = memory_run();
    let first = plan(&run, 1);
    assert_eq!(first.timeline, 1);
    make_attempt(&run, &first, 5, 0).unwrap();
    let second = plan(&run, 1);
    assert_eq!(second.timeline, 2);
    make_attempt(&run, &second, 5, 0).unwrap();
    assert_eq!(make_attempt(&run, &first, 6, 1).unwrap_err().code(), Code::Fenced);
    assert_ne!(first.attempt(5, 0), first.attempt(5, 1));
}

#[test]
fn what_cannot_stand_in_a_part_is_found_before_bytes_are_written() {
    let (_, run) = memory_run();
    let good = plan(&run, 1);
    let (_, attempt) = make_attempt(&run, &good, 1, 1).unwrap();
    for (block_bytes, run_name, code) in [
        (0, "r", Code::BadMember),
        (5000, "r", Code::BadMember),
        (1 << 25, "r", Code::BadMember),
        (4096, "", Code::BadName),
    ] {
        let mut common = good.common(1, 1);
        (common.block_bytes, common.run) = (block_bytes, run_name.to_owned());
        let begun = Session::begin(Arc::clone(&attempt), common, 0).map(drop);
        assert_eq!(begun.unwrap_err().code(), code, "{block_bytes}");
    }
    let (mut session, _) = declare(&attempt, &good, 1, 0, &sample(1)).unwrap();
    session.record(progress(1));
    assert_eq!(session.lay_out().unwrap_err().code(), Code::BadOrder, "two of one key");
    let (_, another) = make_attempt(&run, &good, 1, 2).unwrap();
    let mut session = Session::begin(another, good.common(1, 2), 0).unwrap();
    session.record(progress(2));
    let refused = session.lay_out().unwrap_err();
    assert_eq!(refused.code(), Code::StateDisagree, "of another step");
    assert_eq!(refused.location().record.as_deref(), Some(r#"["progress","main",[]]"#));
    let made = attempt.list().unwrap().into_iter().map(|listed| listed.name);
    assert!(
        made.filter_map(|name| names::parse_shard(&name)).next().is_none(),
        "no space is taken"
    );
}

#[test]
fn a_chunk_of_another_session_is_refused() {
    let (_, run) = memory_run();
    let plan = plan(&run, 2);
    let (_, attempt) = make_attempt(&run, &plan, 1, 1).unwrap();
    let models = [Model::param("w", Dtype::U8, &[100]).rows(2)];
    let (one, _) = declare(&attempt, &plan, 1, 0, &models).unwrap();
    let (_other, chunks) = declare(&attempt, &plan, 1, 1, &models).unwrap();
    let writing = one.lay_out().unwrap();
    let (id, bytes) = &chunks[0];
    assert_eq!(writing.chunk_bytes(*id).unwrap_err().code(), Code::BadArgument);
    assert_eq!(writing.write_all(*id, bytes).unwrap_err().code(), Code::BadArgument);
}

#[test]
fn a_stream_that_refused_bytes_takes_no_more() {
    let (_, run) = memory_run();
    let plan = plan(&run, 1);
    let (_, attempt) = make_attempt(&run, &plan, 1, 1).unwrap();
    let models = [Model::param("w", Dtype::U8, &[3 * 4096])];
    let (session, chunks) = declare(&attempt, &plan, 1, 0, &models).unwrap();
    let writing = session.lay_out().unwrap();
    let (id, bytes) = &chunks[0];
    let mut stream = writing.stream(*id).unwrap();
    stream.push(&bytes[..100]).unwrap();
    // Too many: the first block goes out, the rest does not, and nobody knows how much was taken.
    let error = stream.push(&[&bytes[100..], &[0; 4096]].concat()).unwrap_err();
    assert_eq!(error.code(), Code::BadArgument);
    let error = stream.push(&bytes[100..][..2 * 4096]).unwrap_err();
    assert_eq!(error.code(), Code::BadArgument, "these would stand in a wrong place");
    assert_eq!(stream.finish().unwrap_err().code(), Code::BadArgument);
}

/// What was read of it before is no attachment, and the attempt is dead.
#[test]
fn an_attachment_whose_source_fails_is_not_there() {
    let (_, run) = memory_run();
    let plan = plan(&run, 1);
    let (_, attempt) = make_attempt(&run, &plan, 1, 1).unwrap();
    let (mut session, _) = declare(&attempt, &plan, 1, 0, &sample(1)).unwrap();
    let failed = session.attach_with("notes", &mut |out| {
        out.write_all(b"half of it").unwrap();
        Err(Error::new(Code::BadArgument, "the source"))
    });
    assert_eq!(failed.unwrap_err().message(), "the source");
    assert_eq!(session.lay_out().map(drop).unwrap_err().code(), Code::Poisoned);
}

#[test]
fn an_attachment_whose_source_panics_is_not_there() {
    let (_, run) = memory_run();
    let plan = plan(&run, 1);
    let (_, attempt) = make_attempt(&run, &plan, 1, 1).unwrap();
    let mut session = Session::begin(Arc::clone(&attempt), plan.common(1, 1), 0).unwrap();
    let attach = || session.attach_with("a", &mut |_| panic!("the source is gone"));
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(attach)).is_err());
    session.lay_out().unwrap().finish().unwrap();
    let part = Part::parse(read_file(&attempt, &find(&attempt, "part-"))).unwrap();
    assert_eq!(part.attachments, []);
}

/// Cuts a box in two at random places, some times, and gives the pieces to random writers.
fn split(whole: Region, cuts: &[(usize, u64, u32)], writers: u32) -> Vec<(u32, Region)> {
    let mut boxes = vec![(0, whole)];
    for &(axis, place, writer) in cuts {
        let picked = place as usize % boxes.len();
        let (owner, region) = boxes.swap_remove(picked);
        let writer = writer % writers;
        if region.at.is_empty() {
            boxes.push((writer, region));
            continue;
        }
        let axis = axis % region.at.len();
        let first = place % region.extent[axis];
        if first == 0 {
            boxes.push((writer, region));
            continue;
        }
        let mut low = region.clone();
        low.extent[axis] = first;
        let mut high = region;
        high.at[axis] += first;
        high.extent[axis] -= first;
        boxes.extend([(owner, low), (writer, high)]);
    }
    boxes
}

fn models() -> impl Strategy<Value = (u32, Vec<Model>)> {
    let shape = prop::collection::vec(1u64..40, 0..4);
    let dtype = prop::sample::select(Dtype::ALL);
    let cuts = prop::collection::vec((0usize..4, any::<u64>(), any::<u32>()), 0..8);
    let tensors = prop::collection::vec((shape, dtype, cuts, any::<bool>()), 1..6);
    (1u32..5, tensors).prop_map(|(writers, tensors)| {
        let tensors = tensors.into_iter().enumerate().map(|(i, (shape, dtype, cuts, state))| {
            let identity = match state {
                true => optimizer(&format!("p{i}"), "adam.v"),
                false => Identity::param(format!("p{i}")),
            };
            let mut model = Model::new(identity, dtype, &shape);
            model.boxes = split(Region::whole(&shape), &cuts, writers);
            model
        });
        (writers, tensors.collect())
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn anything_written_reads_back((writers, models) in models(), reverse in any::<bool>()) {
        let (_, run) = memory_run();
        let plan = plan(&run, writers);
        let (name, attempt) = make_attempt(&run, &plan, 1, 1).unwrap();
        for writer in 0..writers {
            let (session, mut chunks) = declare(&attempt, &plan, 1, writer, &models).unwrap();
            if reverse {
                chunks.reverse();
            }
            let writing = session.lay_out().unwrap();
            write(&writing, &chunks).unwrap();
            writing.finish().unwrap();
        }
        let options = CommitOptions::in_run(Arc::clone(&run), &name);
        commit(&attempt, &options, &NoProgress).unwrap();
        check_equal(&attempt, &models);
        check_shards(&attempt, &models);
        let report = waystation_reader::verify(&attempt, &Default::default()).unwrap();
        prop_assert!(report.findings.is_empty(), "{:?}", report.findings);
    }
}
