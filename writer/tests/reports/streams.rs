//! Reports about random streams: another rank's, none at all, or one that stands elsewhere.

use waystation_format::records::cursor::Augment;
use waystation_format::records::rng::{OnReshape, State};
use waystation_format::records::{Cursor, Stream, Typed, Uncaptured};
use waystation_format::value_tree::Tree;
use waystation_format::{Code, Grade, RngAlgorithm, rule};
use waystation_state::rng::native::{jax, numpy, torch_mps};
use waystation_state::rng::{StreamState, check_canary};

use crate::support::*;

/// What a trainer does after a restore, as the specification orders it: compares what its engine
/// holds with the canary.
fn held(
    state: &StreamState,
    restored: &waystation_reader::restore::RestoredStream,
) -> waystation_format::Result<()> {
    check_canary(state.algorithm, &state.state, &restored.next_raw)
}

/// NVIDIA/Megatron-LM#6858: with expert parallelism, 252 of 256 ranks resumed with the stream of
/// another rank, because states that differed were saved as replicas of one.
#[test]
fn each_of_256_ranks_gets_the_stream_of_its_own_experts() {
    let sizes = [("dp", 4), ("ep", 64)];
    let own = |dp: u64, ep: u64| cuda(1024 + 100 * ep, 4 * dp);
    let all = || (0..4).flat_map(|dp| (0..64).map(move |ep| (dp, ep)));
    let mut job = Job::new(&sizes);
    for (dp, ep) in all() {
        let stream = rng(&own(dp, ep), OnReshape::Require);
        job = job.record_at(0, &[("dp", dp), ("ep", ep)], "experts", stream);
    }
    let checkpoint = job.save();
    let mut strangers = 0;
    for (dp, ep) in all() {
        let restored = restore(&checkpoint, &place(&sizes, &[dp, ep])).unwrap();
        let [stream] = &restored.streams[..] else { panic!("{restored:?}") };
        assert_eq!((stream.grade, stream.state.as_ref()), (Grade::Exact, Some(&own(dp, ep))));
        // The loader of the report put the state of the first experts everywhere.
        strangers += usize::from(held(&own(dp, 0), stream).is_err());
    }
    assert_eq!(strangers, 252);

    // A saver that takes them for replicas leaves the axis out; ranks then say different things.
    let mut replicas = Job::new(&sizes).writers(64);
    for ep in 0..64 {
        for dp in 0..4 {
            let stream = rng(&own(dp, ep), OnReshape::Require);
            replicas = replicas.record_at(ep as usize, &[("dp", dp)], "experts", stream);
        }
    }
    assert_eq!(refused(replicas.try_save()), (Code::RecordConflict, rule::DERIVE_RECORDS));
}

/// NVIDIA-NeMo/Automodel#3437: of each data-parallel rank only the stream of the first tensor and
/// pipeline rank was saved.
#[test]
fn streams_of_some_ranks_only_are_not_committed() {
    let sizes = [("dp", 2), ("pp", 2), ("tp", 2)];
    let save = |tensor_ranks: u64| {
        let mut job = Job::new(&sizes);
        for (dp, pp, tp) in (0..8).map(|i| (i >> 2, i >> 1 & 1, i & 1)) {
            if tp < tensor_ranks {
                let at = [("dp", dp), ("pp", pp), ("tp", tp)];
                let stream = rng(&cuda(dp + 2 * pp + 4 * tp, 0), OnReshape::Require);
                job = job.record_at(0, &at, "dropout", stream);
            }
        }
        job
    };
    save(2).save();
    let error = save(1).try_save().unwrap_err();
    assert_eq!((error.code(), error.rule_id()), (Code::RecordGrid, Some(rule::RECORD_GRID)));
    assert!(error.to_string().contains("dropout"), "{error}");
}

/// radixark/miles#3187: all ranks resumed with the stream of rank 0.
#[test]
fn the_stream_of_rank_0_is_not_taken_for_that_of_another() {
    let sizes = [("dp", 2)];
    let (zero, one) = (cuda(7, 0), cuda(8, 0));
    let save = |second: Typed| {
        Job::new(&sizes)
            .record_at(0, &[("dp", 0)], "dropout", rng(&zero, OnReshape::Require))
            .record_at(0, &[("dp", 1)], "dropout", second)
    };
    let good = save(rng(&one, OnReshape::Require)).save();
    let restored = restore(&good, &place(&sizes, &[1])).unwrap();
    let stream = &restored.streams[0];
    assert_eq!(stream.state.as_ref(), Some(&one));
    held(&one, stream).unwrap();
    // A loader that broadcasts what rank 0 read is found out by the canary of rank 1.
    assert_eq!(refused(held(&zero, stream)), (Code::CanaryMismatch, rule::RNG_CANARY));
    // So is a saver that writes it under rank 1.
    let (bad, found) = save(mixed_up(&zero, &one)).save_broken();
    assert_eq!(found, (Code::CanaryMismatch, rule::RNG_CANARY));
    let error = restore(&bad, &place(&sizes, &[1])).unwrap_err();
    assert_eq!(error.code(), Code::CanaryMismatch);
    assert_eq!(error.location().record.as_deref(), Some(r#"["rng","dropout",[["dp",1]]]"#));
}

/// NumPy's legacy state, `words` words of it.
fn legacy(words: u32, gauss: Option<f64>) -> Tree {
    let words = (0..words).map(|i| Tree::Int(i64::from(i.wrapping_mul(2_654_435_761))));
    Tree::Tuple(vec![
        Tree::Str("MT19937".to_owned()),
        Tree::List(words.collect()),
        Tree::Int(300),
        Tree::Int(i64::from(gauss.is_some())),
        Tree::f64(gauss.unwrap_or(0.0)),
    ])
}

/// NVIDIA-NeMo/Megatron-Bridge#5100: after a change of tensor parallelism a part of the state came
/// back, and NumPy fell over it.
#[test]
fn a_part_of_a_state_is_no_state_and_a_new_place_gets_a_whole_one() {
    assert_eq!(refused(numpy::from_legacy_tree(&legacy(600, None))).0, Code::BadRngState);
    let whole = numpy::from_legacy_tree(&legacy(624, None)).unwrap();
    let (was, is) = ([("tp", 2)], [("tp", 4)]);
    let save = |stream: &Stream| {
        let typed = Typed::Rng(Box::new(stream.clone()));
        Job::new(&was).record_at(0, &[("tp", 0)], "numpy", typed.clone()).record_at(
            0,
            &[("tp", 1)],
            "numpy",
            typed,
        )
    };
    let mut partial = recorded(&whole, OnReshape::Fork);
    partial.state = State::Inline(whole.state[..2000].to_vec());
    let checkpoint = save(&partial).save_unchecked();
    assert_eq!(findings(&checkpoint), [(Code::BadRngState, rule::RNG_STATE); 2]);
    let at = place(&was, &[1]);
    assert_eq!(refused(restore(&checkpoint, &at)), (Code::BadRngState, rule::RNG_STATE));

    // On four ranks the answer is a refusal or a state that NumPy takes, as the record says.
    let at = place(&is, &[3]);
    let required = save(&recorded(&whole, OnReshape::Require)).save();
    assert_eq!(refused(restore(&required, &at)), (Code::NotExact, rule::RESTORE_REQUIRE));
    let forking = save(&recorded(&whole, OnReshape::Fork)).save();
    let mut options = bringing_corpus();
    options.streams = Grade::Fork;
    let restored = forking.restore(&at, &options).unwrap();
    let state = restored.streams[0].state.as_ref().unwrap();
    assert_eq!((restored.streams[0].grade, state.state.len()), (Grade::Fork, 2500));
    let Tree::Tuple(members) = numpy::to_legacy_tree(state).unwrap() else { panic!() };
    assert!(matches!(&members[1], Tree::List(words) if words.len() == 624));
}

/// NVIDIA-NeMo/Megatron-Bridge#5988: after growing, the new data-parallel ranks had no key in the
/// checkpoint.
#[test]
fn ranks_that_are_new_get_streams_of_their_own_and_say_so_when_saved() {
    let (was, is) = ([("dp", 2)], [("dp", 4)]);
    let mut job = Job::new(&was);
    for dp in 0..2 {
        job = job.record_at(0, &[("dp", dp)], "dropout", rng(&cuda(dp, 40), OnReshape::Fork));
    }
    let checkpoint = job.save();
    assert_eq!(
        refused(restore(&checkpoint, &place(&is, &[3]))),
        (Code::NotExact, rule::RESTORE_DEMAND)
    );
    let mut options = bringing_corpus();
    options.streams = Grade::Fork;
    let mut states = Vec::new();
    let mut next = Job::new(&is);
    for dp in 0..4 {
        let restored = checkpoint.restore(&place(&is, &[dp]), &options).unwrap();
        let stream = &restored.streams[0];
        let (grade, reason) = grade(&restored, "rng", "dropout");
        assert_eq!(grade, Grade::Fork);
        assert!(reason.contains("\"dp\" had 2 places and has 4"), "{reason}");
        let state = stream.state.clone().unwrap();
        let fork = stream.fork.clone();
        assert_eq!(fork.as_ref().map(|fork| fork.manifest), Some(checkpoint.digest()));
        let saved = Stream { fork, ..recorded(&state, OnReshape::Fork) };
        next = next.record_at(0, &[("dp", dp)], "dropout", Typed::Rng(Box::new(saved)));
        states.push(state.state);
    }
    states.sort();
    states.dedup();
    assert_eq!(states.len(), 4);
    // The next checkpoint is exact on four ranks and tells the lineage.
    let again = restore(&next.save(), &place(&is, &[3])).unwrap();
    assert_eq!(again.streams[0].grade, Grade::Exact);
    assert_eq!(again.streams[0].record.fork.as_ref().map(|fork| fork.step), Some(STEP));
}

/// modelscope/ms-swift#9935: the stream was restored and then seeded again by a sampler; in another
/// mode it was not saved at all.
#[test]
fn a_stream_that_a_sampler_seeds_again_is_seen_before_the_first_step() {
    let stream = cuda(42, 4000);
    let data_at = cursor(shuffled(1234, 0, 40), 40);
    let job = Job::new(&[]).record("train", data(&data_at));
    let checkpoint = job.clone().record("model", rng(&stream, OnReshape::Require)).save();
    let restored = restore(&checkpoint, &place(&[], &[])).unwrap();
    let put_in = restored.streams[0].state.clone().unwrap();
    // Iterators first, streams last: the cursor has its own seed and draws from no stream.
    assert_eq!(ordinals(train(&restored), 60), ordinals(&data_at, 60));
    held(&put_in, &restored.streams[0]).unwrap();
    let seeded_again = cuda(42, 0);
    assert_eq!(
        refused(held(&seeded_again, &restored.streams[0])),
        (Code::CanaryMismatch, rule::RNG_CANARY)
    );
    // Drawing between restoring and comparing is seen too.
    assert!(held(&drawn(&put_in, 4), &restored.streams[0]).is_err());
    // A mode that leaves the stream out has to say so, and the caller has to agree.
    let what = Uncaptured { kind: "rng".to_owned(), reason: "no model list given".to_owned() };
    let without = job.record("model", Typed::Uncaptured(what)).save();
    let refusal = refused(restore(&without, &place(&[], &[])));
    assert_eq!(refusal, (Code::NotExact, rule::RESTORE_DEMAND));
}

/// huggingface/transformers#14994: on fewer GPUs the streams could not be loaded; since then a
/// warning is logged and the run goes on.
#[test]
fn fewer_ranks_are_refused_or_graded_and_never_only_logged() {
    let (was, is) = ([("dp", 4)], [("dp", 2)]);
    let save = |on_reshape| {
        let mut job = Job::new(&was);
        for dp in 0..4 {
            job = job.record_at(0, &[("dp", dp)], "cuda", rng(&cuda(dp, 0), on_reshape));
            let python = rng(&cuda(dp, 4), OnReshape::Reinit);
            job = job.record_at(0, &[("dp", dp)], "python", python);
        }
        job.save()
    };
    let at = place(&is, &[0]);
    for on_reshape in [OnReshape::Require, OnReshape::Fork, OnReshape::Reinit] {
        let checkpoint = save(on_reshape);
        // Also rank 0, whose file would be there, is not what it was.
        let error = restore(&checkpoint, &at).unwrap_err();
        assert_eq!(error.code(), Code::NotExact, "{on_reshape:?}");
        assert!(error.message().contains("axis \"dp\" had 4 places and has 2"), "{error}");
        // All that are refused are named at once.
        assert!(error.message().contains("; refused too: rng \"python\" (none: axis"), "{error}");
        let first = r#"["rng","cuda",[["dp",0]]]"#;
        assert_eq!(error.location().record.as_deref(), Some(first));
        // Who asks for less, or does without it, finds it in the report, with the reason.
        let mut options = bringing_corpus();
        options.streams = Grade::None;
        if on_reshape == OnReshape::Require {
            options.leave_out.insert("cuda".to_owned());
        }
        let restored = checkpoint.restore(&at, &options).unwrap();
        let (grade, reason) = grade(&restored, "rng", "cuda");
        let expected = if on_reshape == OnReshape::Fork { Grade::Fork } else { Grade::None };
        assert_eq!(grade, expected, "{on_reshape:?}");
        let why = if on_reshape == OnReshape::Require { "leaves it out" } else { "\"dp\"" };
        assert!(reason.contains(why), "{reason}");
        assert_eq!(restored.streams[0].state.is_some(), expected == Grade::Fork);
        // On four ranks all is well.
        restore(&checkpoint, &place(&was, &[0])).unwrap();
    }
}

/// huggingface/transformers#17032: checkpoints at the end of an epoch did not load the streams.
#[test]
fn at_the_end_of_an_epoch_streams_are_restored_as_anywhere_else() {
    let stream = cuda(42, 8000);
    let at_end = cursor(shuffled(1, 2, CORPUS), 3 * CORPUS);
    let job = Job::new(&[]).record("cuda", rng(&stream, OnReshape::Require));
    let checkpoint = job.record("train", data(&at_end)).save();
    let restored = restore(&checkpoint, &place(&[], &[])).unwrap();
    assert_eq!(grade(&restored, "rng", "cuda").0, Grade::Exact);
    assert_eq!(restored.streams[0].state.as_ref(), Some(&stream));
    // The next record is the first of the next epoch.
    let next = cursor(shuffled(1, 3, 0), 3 * CORPUS);
    assert_eq!(ordinals(train(&restored), 8), ordinals(&next, 8));
    // A trainer that skips the streams there holds a generator that was just seeded.
    assert_eq!(
        refused(held(&cuda(42, 0), &restored.streams[0])),
        (Code::CanaryMismatch, rule::RNG_CANARY)
    );
}

/// huggingface/transformers#34631 and #40500, redai-studio/Relax#317: NumPy's state was a pickle
/// that safe loading refused; a broad `except` then skipped all streams.
#[test]
fn a_numpy_state_travels_without_a_pickle_and_one_that_is_a_pickle_is_an_error() {
    let native = legacy(624, Some(0.75));
    let state = numpy::from_legacy_tree(&native).unwrap();
    let other = cuda(1, 0);
    let job = Job::new(&[]).record("cuda", rng(&other, OnReshape::Require));
    // A name of a type is data, whatever it says.
    let named = Tree::Type("numpy.random.__RandomState_ctor".to_owned(), Box::new(Tree::Null));
    let good = job.clone().record("numpy", rng(&state, OnReshape::Require));
    let good = good.record("numpy", Typed::Value(named.clone())).save();
    let restored = restore(&good, &place(&[], &[])).unwrap();
    let [_, of_numpy] = &restored.streams[..] else { panic!("{restored:?}") };
    // To the bit, the cached normal with it.
    assert_eq!(numpy::to_legacy_tree(of_numpy.state.as_ref().unwrap()).unwrap(), native);
    assert_eq!(restored.values["numpy"], named);

    let mut pickled = recorded(&state, OnReshape::Require);
    pickled.state = State::Inline(b"\x80\x04\x95\x10\x00\x00\x00numpy.random".to_vec());
    let bad = job.record("numpy", Typed::Rng(Box::new(pickled)));
    let (bad, found) = bad.save_broken();
    assert_eq!(found, (Code::BadRngState, rule::RNG_STATE));
    // It is not skipped, nor is the other stream handed out without it.
    let refusal = refused(restore(&bad, &place(&[], &[])));
    assert_eq!(refusal, (Code::BadRngState, rule::RNG_STATE));
}

/// pytorch/pytorch#130613: on MPS a state that was set did not bring its position back.
#[test]
fn a_state_of_mps_has_its_position_or_is_refused() {
    let native = |offset: u64| {
        let seed = 42_u64.to_le_bytes();
        [[7; 28].as_slice(), &seed, &offset.to_le_bytes()].concat()
    };
    let moved = torch_mps::from_bytes(&native(17)).unwrap();
    // The older form of 36 bytes has no position.
    assert_eq!(refused(torch_mps::from_bytes(&native(17)[..36])).0, Code::BadRngState);
    let good = Job::new(&[]).record("mps", rng(&moved, OnReshape::Require)).save();
    let restored = restore(&good, &place(&[], &[])).unwrap();
    let state = restored.streams[0].state.as_ref().unwrap();
    assert_eq!(torch_mps::to_bytes(state).unwrap(), native(17));
    // A framework that takes the seed and forgets the position is found out.
    let at_start = torch_mps::from_bytes(&native(0)).unwrap();
    assert!(held(&at_start, &restored.streams[0]).is_err());
    let (_, found) = Job::new(&[]).record("mps", mixed_up(&at_start, &moved)).save_broken();
    assert_eq!(found, (Code::CanaryMismatch, rule::RNG_CANARY));
}

/// huggingface/lerobot#4014: the stream of MPS was never saved, and nothing said so.
#[test]
fn a_stream_that_was_not_saved_is_named_and_refused() {
    let what = Uncaptured { kind: "rng".to_owned(), reason: "no form of MPS is known".to_owned() };
    let checkpoint = Job::new(&[])
        .record("cpu", rng(&cuda(1, 0), OnReshape::Require))
        .record("mps", Typed::Uncaptured(what))
        .save();
    let error = restore(&checkpoint, &place(&[], &[])).unwrap_err();
    assert_eq!((error.code(), error.rule_id()), (Code::NotExact, Some(rule::RESTORE_DEMAND)));
    assert!(error.message().contains("mps"), "{error}");
    assert!(error.message().contains("no form of MPS is known"), "{error}");
    let mut options = bringing_corpus();
    options.leave_out.insert("mps".to_owned());
    let restored = checkpoint.restore(&place(&[], &[]), &options).unwrap();
    let (grade, reason) = grade(&restored, "uncaptured", "mps");
    assert_eq!(grade, Grade::None);
    assert!(reason.contains("no form of MPS is known"), "{reason}");
    assert_eq!(restored.streams.len(), 1);
}

/// google/orbax#620, #1105 and #2540: typed keys could not be saved, or came back as keys of the
/// default implementation.
#[test]
fn typed_keys_come_back_as_keys_of_their_own_implementation() {
    for (name, partitionable, data) in [
        ("fry", Some(true), &[0, 42][..]),
        ("fry", Some(false), &[0, 42]),
        ("rbg", None, &[0, 42, 0, 42]),
        ("urbg", None, &[0, 42, 0, 42]),
    ] {
        let implementation = jax::Implementation::named(name, partitionable).unwrap();
        let key = jax::from_key_data(data, implementation).unwrap();
        let checkpoint = Job::new(&[]).record("params", rng(&key, OnReshape::Require)).save();
        let restored = restore(&checkpoint, &place(&[], &[])).unwrap();
        assert_eq!(restored.streams[0].grade, Grade::Exact);
        let back = jax::to_key_data(restored.streams[0].state.as_ref().unwrap()).unwrap();
        assert_eq!(back, (data.to_vec(), implementation));
    }
    // The same words under the other value of the flag are another stream.
    let key = |flag| {
        let implementation = jax::Implementation::Threefry { partitionable: flag };
        jax::from_key_data(&[0, 42], implementation).unwrap()
    };
    let (_, found) =
        Job::new(&[]).record("params", mixed_up(&key(true), &key(false))).save_broken();
    assert_eq!(found, (Code::CanaryMismatch, rule::RNG_CANARY));
    assert_eq!(refused(jax::Implementation::named("fry", None)).0, Code::BadArgument);
}

/// vllm-project/speculators#1027: exact resume needs the streams, and those of the loader's workers
/// were left out of the plan.
#[test]
fn data_that_workers_change_by_their_own_streams_is_not_called_exact() {
    let save = |augment| {
        let at = Cursor { augment: Some(augment), ..cursor(shuffled(1, 0, 10), 10) };
        let job = Job::new(&[]).record("train", data(&at));
        job.record("main", rng(&cuda(3, 12), OnReshape::Require)).save()
    };
    let at = place(&[], &[]);
    let per_record = save(Augment::PerRecord);
    let restored = restore(&per_record, &at).unwrap();
    assert_eq!(grade(&restored, "cursor", "train").0, Grade::Exact);
    assert_eq!(grade(&restored, "rng", "main").0, Grade::Exact);

    let workers = save(Augment::WorkerStream);
    let error = restore(&workers, &at).unwrap_err();
    assert_eq!((error.code(), error.rule_id()), (Code::NotExact, Some(rule::RESTORE_DEMAND)));
    assert!(error.message().contains("streams of their own"), "{error}");
    let mut options = bringing_corpus();
    options.cursors = Grade::OpaqueSameTopology;
    let restored = workers.restore(&at, &options).unwrap();
    assert_eq!(grade(&restored, "cursor", "train").0, Grade::OpaqueSameTopology);
    assert_eq!(restored.streams[0].state.as_ref().unwrap().algorithm, CUDA);
}

const CUDA: RngAlgorithm = RngAlgorithm::Philox4x32TorchCuda;
