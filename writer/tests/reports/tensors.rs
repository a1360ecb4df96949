//! Reports about tensors: cast, rebuilt, dropped, doubled, or of another length after a resume.

use waystation_format::records::optimizer::MasterCast;
use waystation_format::records::{Optimizer, Typed};
use waystation_format::{Code, Dtype, Grade, Identity, Region, Role, rule};
use waystation_reader::restore::Placement;
use waystation_writer::TensorDecl;

use crate::support::*;

/// Elements of 4 bytes cut to their upper halves, as a cast to BF16 does at worst.
fn cast(bytes: &[u8]) -> Vec<u8> {
    bytes.chunks(4).flat_map(|element| element[2..].to_vec()).collect()
}

fn adamw(params: &[&str]) -> Typed {
    Typed::Optimizer(optimizer(params))
}

/// KempnerInstitute/KempnerForge#114, facebookresearch/fairseq2#212 and
/// vllm-project/speculators#899: moments of 32 bits were cast to the parameters' 16 on loading.
#[test]
fn moments_come_back_in_their_own_dtype_beside_narrower_parameters() {
    let (w, m) = (Identity::param("w"), slot("w", "adam.m"));
    let bytes = floats(4);
    let job = Job::new(&[]).whole(w.clone(), Dtype::BF16, &[4], &cast(&bytes));
    let job = job.record("main", adamw(&["w"]));
    let checkpoint = job.clone().whole(m.clone(), Dtype::F32, &[4], &bytes).save();
    let moment = checkpoint.tensor(&m).unwrap();
    assert_eq!((moment.entry().dtype, moment.read().unwrap()), (Dtype::F32, bytes.clone()));
    assert_eq!(checkpoint.tensor(&w).unwrap().entry().dtype, Dtype::BF16);
    // A trainer that casts and saves again differs in every digest.
    let again = job.whole(m.clone(), Dtype::BF16, &[4], &cast(&bytes)).save();
    assert_ne!(again.tensor(&m).unwrap().sha256().unwrap(), moment.sha256().unwrap());
    // Ranks of which one has cast do not make one tensor …
    let half = |dtype| TensorDecl::new(m.clone(), dtype, &[4]);
    let mut upper = Region::whole(&[2]);
    upper.at[0] = 2;
    let mixed = |second, bytes: &[u8]| {
        let job = Job::new(&[]).writers(2).record("main", adamw(&["w"]));
        job.whole(w.clone(), Dtype::BF16, &[4], &[0; 8])
            .piece(0, &half(Dtype::F32), &Region::whole(&[2]), &bytes[..8])
            .piece(1, &half(second), &upper, &bytes[8..])
    };
    mixed(Dtype::F32, &bytes).save();
    let narrow = [&bytes[..8], &cast(&bytes[8..])].concat();
    let refusal = refused(mixed(Dtype::BF16, &narrow).try_save());
    assert_eq!(refusal, (Code::TensorConflict, rule::DERIVE_TENSORS));
    // … and bytes of another dtype do not fill it.
    assert_eq!(refused(mixed(Dtype::F32, &narrow).try_save()).0, Code::BadArgument);
}

/// TensorAuto/OpenTau#185 and NVIDIA/Model-Optimizer#2322: masters were made anew from parameters
/// of 16 bits, or the flag that there were any was dropped.
#[test]
fn masters_come_back_to_the_bit_and_are_missed_when_they_are_gone() {
    let w = Identity::param("w");
    let master = Identity { role: Role::Master, ..w.clone() };
    let bytes = floats(4);
    let record = Optimizer { masters: Some(MasterCast::NearestEven), ..optimizer(&["w"]) };
    let job = Job::new(&[])
        .whole(w.clone(), Dtype::BF16, &[4], &cast(&bytes))
        .record("main", Typed::Optimizer(record))
        .promise(&[w, master.clone()]);
    let checkpoint = job.clone().whole(master.clone(), Dtype::F32, &[4], &bytes).save();
    let restored = restore(&checkpoint, &place(&[], &[])).unwrap();
    assert_eq!(restored.optimizers["main"].masters, Some(MasterCast::NearestEven));
    let back = checkpoint.tensor(&master).unwrap().read().unwrap();
    assert_eq!(back, bytes);
    // What the parameters would give is something else in each element.
    let widened = cast(&bytes).chunks(2).flat_map(|b| [0, 0, b[0], b[1]]).collect::<Vec<u8>>();
    assert!(back.chunks(4).zip(widened.chunks(4)).all(|(master, param)| master != param));
    // A save without them does not become a checkpoint where the launcher said what there is.
    assert_eq!(refused(job.try_save()), (Code::InventoryMismatch, rule::PART_INVENTORY));
}

/// pytorch/pytorch#120356: tensors of one name on several ranks were taken for duplicates, and all
/// but one were dropped.
#[test]
fn tensors_of_one_name_on_several_ranks_are_all_kept_or_refused() {
    let sizes = [("ep", 2)];
    let bytes = |rank: u8| vec![rank + 1; 16];
    let save = |scoped: bool, second: &[u8]| {
        let mut job = Job::new(&sizes).writers(2);
        for (rank, bytes) in [(0, bytes(0)), (1, second.to_vec())] {
            let mut identity = Identity::param("expert.w");
            if scoped {
                identity.scope = axes(&[("ep", rank as u64)]);
            }
            let decl = TensorDecl::new(identity, Dtype::F32, &[4]);
            job = job.piece(rank, &decl, &Region::whole(&[4]), &bytes);
        }
        job
    };
    let checkpoint = save(true, &bytes(1)).save();
    for rank in [0, 1] {
        let at = place(&sizes, &[rank]);
        let placed = checkpoint.placed(&at, |_| Placement::Whole).map(Result::unwrap);
        let own: Vec<Vec<u8>> = placed.map(|own| own.tensor.read().unwrap()).collect();
        assert_eq!(own, [bytes(rank as u8)]);
    }
    // On other ranks nobody knows whose they are.
    let at = place(&[("ep", 4)], &[0]);
    let grades = checkpoint.placed(&at, |_| Placement::Whole).map(|placed| placed.unwrap().grade);
    assert_eq!(grades.collect::<Vec<_>>(), [Grade::None; 2]);
    // Without a scope they are one tensor that is there twice, equal or not.
    for second in [bytes(1), bytes(0)] {
        let refusal = refused(save(false, &second).try_save());
        assert_eq!(refusal, (Code::CoverOverlap, rule::COVER_EXACT));
    }
}

/// pytorch/torchtitan#594, Modalities/modalities#348 and NVIDIA/Megatron-LM#4641: tied weights had
/// optimizer state under one of their names only, or drifted apart on two stages.
#[test]
fn tied_weights_are_one_tensor_with_two_names() {
    let (embed, head) = (Identity::param("embed"), Identity::param("head"));
    let job = || {
        Job::new(&[])
            .whole(embed.clone(), Dtype::F32, &[4], &floats(4))
            .alias("head", embed.clone())
    };
    // The optimizer may list either; its state goes by the name that it lists.
    for listed in ["embed", "head"] {
        let with_slot = |of: &str| {
            job().record("main", adamw(&[listed])).whole(
                slot(of, "adam.m"),
                Dtype::F32,
                &[4],
                &floats(4),
            )
        };
        let checkpoint = with_slot(listed).save();
        let [a, b] = [&embed, &head].map(|name| checkpoint.tensor(name).unwrap().read().unwrap());
        assert_eq!((a, b), (floats(4), floats(4)));
        let other = if listed == "head" { "embed" } else { "head" };
        let (_, found) = with_slot(other).save_broken();
        assert_eq!(found, (Code::Dangling, rule::OPTIMIZER_SLOT), "{listed}");
    }
    // Two copies that could drift are not saved as one tensor, nor under the alias' name.
    let decl = TensorDecl::new(embed.clone(), Dtype::F32, &[4]);
    let stages = job().writers(2).piece(1, &decl, &Region::whole(&[4]), &[1; 16]);
    assert_eq!(refused(stages.try_save()), (Code::CoverOverlap, rule::COVER_EXACT));
    let both = |writer| {
        let decl = TensorDecl::new(head.clone(), Dtype::F32, &[4]);
        let job = job().writers(2).piece(writer, &decl, &Region::whole(&[4]), &[1; 16]);
        refused(job.try_save())
    };
    assert_eq!(both(0), (Code::BadOrder, rule::PART_ENTRIES));
    assert_eq!(both(1), (Code::AliasConflict, rule::DERIVE_ALIASES));
}

/// NVIDIA/TransformerEngine#982 and NVIDIA-NeMo/Megatron-Bridge#1730: scales and maxima of FP8 were
/// missing after a resume and the loss exploded; sizes of buckets did not fit.
#[test]
fn scales_of_narrow_types_are_tensors_that_are_missed_and_agreed_on() {
    let w = Identity::param("w");
    let quant =
        |slot: &str| Identity { role: Role::Quant, slot: slot.to_owned(), ..Identity::param("w") };
    let all = [w.clone(), quant("scale"), quant("amax")];
    let job = Job::new(&[])
        .whole(w, Dtype::F8E4M3, &[4], &[1, 2, 3, 4])
        .whole(quant("scale"), Dtype::F32, &[1], &floats(1))
        .promise(&all);
    let history = floats(16);
    let checkpoint = job.clone().whole(quant("amax"), Dtype::F32, &[16], &history).save();
    assert_eq!(checkpoint.tensor(&quant("amax")).unwrap().read().unwrap(), history);
    assert_eq!(refused(job.try_save()), (Code::InventoryMismatch, rule::PART_INVENTORY));
    // A history of another length on another rank is another tensor.
    let of = |length| TensorDecl::new(quant("amax"), Dtype::F32, &[length]);
    let two = Job::new(&[]).writers(2).piece(0, &of(16), &Region::whole(&[16]), &history);
    let two = two.piece(1, &of(8), &Region::whole(&[8]), &history[..32]);
    assert_eq!(refused(two.try_save()), (Code::TensorConflict, rule::DERIVE_TENSORS));
    // What pads a bucket to the ranks is not part of the shape; padding that must stay is declared.
    let mut padded = TensorDecl::new(Identity::param("vocabulary"), Dtype::F32, &[12]);
    padded.valid = Some([10].as_slice().into());
    let whole = Region::whole(&[12]);
    let checkpoint = Job::new(&[]).piece(0, &padded, &whole, &floats(12)).save();
    let tensor = checkpoint.tensor(&padded.identity).unwrap();
    assert_eq!(tensor.entry().valid, padded.valid);
    assert_eq!(tensor.read_region(&Region::whole(&[10])).unwrap(), floats(10));
}
