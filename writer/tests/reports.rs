//! Public reports of runs that did not resume as they should have, and what the format answers.
//!
//! Each test makes a small checkpoint with the real writer, brings about what the report tells, and
//! shows who answers: the API that makes a record, the committer, `verify` or `restore`; beside it
//! stands the good twin. The reports are those of users of other systems; here they stand for what
//! goes wrong.
//!
//! | report | test |
//! |---|---|
//! | NVIDIA/Megatron-LM#6858 | `streams::each_of_256_ranks_gets_the_stream_of_its_own_experts` |
//! | NVIDIA-NeMo/Automodel#3437 | `streams::streams_of_some_ranks_only_are_not_committed` |
//! | radixark/miles#3187 | `streams::the_stream_of_rank_0_is_not_taken_for_that_of_another` |
//! | NVIDIA-NeMo/Megatron-Bridge#5100 | `streams::a_part_of_a_state_is_no_state_and_a_new_place_gets_a_whole_one` |
//! | NVIDIA-NeMo/Megatron-Bridge#5988 | `streams::ranks_that_are_new_get_streams_of_their_own_and_say_so_when_saved` |
//! | modelscope/ms-swift#9935 | `streams::a_stream_that_a_sampler_seeds_again_is_seen_before_the_first_step` |
//! | huggingface/transformers#14994 (#14554) | `streams::fewer_ranks_are_refused_or_graded_and_never_only_logged` |
//! | huggingface/transformers#17032 | `streams::at_the_end_of_an_epoch_streams_are_restored_as_anywhere_else` |
//! | huggingface/transformers#34631, #40500; redai-studio/Relax#317 | `streams::a_numpy_state_travels_without_a_pickle_and_one_that_is_a_pickle_is_an_error` |
//! | pytorch/pytorch#130613 | `streams::a_state_of_mps_has_its_position_or_is_refused` |
//! | huggingface/lerobot#4014 | `streams::a_stream_that_was_not_saved_is_named_and_refused` |
//! | google/orbax#620, #1105, #2540 | `streams::typed_keys_come_back_as_keys_of_their_own_implementation` |
//! | vllm-project/speculators#1027 | `streams::data_that_workers_change_by_their_own_streams_is_not_called_exact` |
//! | huggingface/datasets#7901, #8408 | `cursors::the_records_in_a_shuffle_buffer_are_neither_lost_nor_given_twice` |
//! | huggingface/datasets#8308 | `cursors::a_cursor_that_is_saved_again_at_once_is_the_same_however_often` |
//! | pytorch/torchtitan#811, #816 | `cursors::ranks_come_and_go_and_the_next_global_batch_stays` |
//! | NVIDIA-NeMo/Megatron-Bridge#5637 | `cursors::a_state_that_depends_on_the_ranks_is_refused_when_they_change` |
//! | NVIDIA-NeMo/Automodel#533 | `cursors::loaders_that_stand_at_different_places_are_not_one_cursor` |
//! | bghira/SimpleTuner#2986 | `cursors::a_shard_of_the_data_is_not_taken_for_the_data` |
//! | ByteDance-Seed/VeOmni#853 | `cursors::a_cursor_has_all_that_its_order_depends_on` |
//! | huggingface/accelerate#4071, #2016, #3242, #4203 | `cursors::in_mid_epoch_the_order_of_that_epoch_goes_on` |
//! | wyim-pgl/transgenic#59 | `cursors::the_order_of_data_does_not_come_from_a_stream_that_is_restored` |
//! | huggingface/accelerate#3034 | `cursors::what_was_read_ahead_is_not_consumed` |
//! | mosaicml/streaming#619, #869 | `cursors::replicas_are_not_counted_and_epochs_are` |
//! | lancedb/lancedb#3751; meta-pytorch/data#1437 | `cursors::workers_have_no_place_in_a_cursor_and_the_epoch_has` |
//! | deepspeedai/DeepSpeed#5289, #562 | `optimizers::step_counts_have_one_place_and_cannot_be_forgotten` |
//! | pytorch/pytorch#113673 | `optimizers::state_belongs_to_a_name_and_not_to_a_number` |
//! | Lightning-AI/pytorch-lightning#16815 | `optimizers::flat_shares_of_any_number_of_ranks_are_boxes_of_the_parameter` |
//! | KempnerInstitute/KempnerForge#114; facebookresearch/fairseq2#212; vllm-project/speculators#899 | `tensors::moments_come_back_in_their_own_dtype_beside_narrower_parameters` |
//! | TensorAuto/OpenTau#185; NVIDIA/Model-Optimizer#2322 | `tensors::masters_come_back_to_the_bit_and_are_missed_when_they_are_gone` |
//! | karpathy/llm.c#702 | `optimizers::parameters_rounded_at_random_are_stored_and_so_is_the_stream_that_rounds` |
//! | NVIDIA/Megatron-LM#6920 | `optimizers::a_loader_can_hold_each_parameter_against_its_digest_whoever_wrote_it` |
//! | bitsandbytes-foundation/bitsandbytes#89, #1403, #1732; pytorch/ao#1185 | `optimizers::block_quantised_slots_are_saved_sharded_and_cut_exactly_between_blocks` |
//! | THUDM/slime#1546, #1761; vllm-project/speculators#900 | `optimizers::a_schedule_that_stands_elsewhere_contradicts_its_own_value` |
//! | huggingface/transformers#22143; Nerogar/OneTrainer#1465 | `optimizers::a_checkpoint_is_of_a_whole_step_or_says_what_it_leaves_out` |
//! | pytorch/pytorch#120356 | `tensors::tensors_of_one_name_on_several_ranks_are_all_kept_or_refused` |
//! | pytorch/torchtitan#594; Modalities/modalities#348; NVIDIA/Megatron-LM#4641 | `tensors::tied_weights_are_one_tensor_with_two_names` |
//! | meta-pytorch/torchrec#2394; radixark/Megatron-LM#66 | `optimizers::names_do_not_depend_on_how_a_job_is_sharded` |
//! | NVIDIA/TransformerEngine#982; NVIDIA-NeMo/Megatron-Bridge#1730 | `tensors::scales_of_narrow_types_are_tensors_that_are_missed_and_agreed_on` |
//!
//! What no format catches, of these reports:
//!
//! * a writer that says nothing of a stream or cursor that it used (`uncaptured.all`), or that asks
//!   one rank only for a state which differs on others (`rng.different`): lerobot#4014 and
//!   Megatron-LM#6858 as they happened. What is shown is that writers who do say are held to it;
//! * one that records a wrong position *and* the values that follow from it: a schedule stepped
//!   twice before the save, a loader's position one batch ahead with a canary of its own. Canaries
//!   are to be taken from what training is about to do, not from the state that is saved;
//! * tensors that nobody wrote and nobody promised: without an inventory, masters (OpenTau#185) and
//!   scales (TransformerEngine#982) that are gone are not missed;
//! * what a trainer makes of good state: a re-seeded generator, a cast, shards gathered in another
//!   order. For it there are canaries, dtypes and digests to compare; that the trainer compares is
//!   for its plug-in, as are FP8 recipes and the buckets of a distributed optimizer.

#![allow(
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::cast_possible_truncation,
    reason = "a test that cannot go on should say where"
)]

#[path = "reports/cursors.rs"]
mod cursors;
#[path = "reports/optimizers.rs"]
mod optimizers;
#[path = "reports/streams.rs"]
mod streams;
#[path = "reports/support.rs"]
mod support;
#[path = "reports/tensors.rs"]
mod tensors;
