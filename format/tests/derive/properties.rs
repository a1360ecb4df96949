//! Random tensors, split at random over random writers.

use proptest::prelude::*;
use waystation_format::entry::{Entry, Tensor};
use waystation_format::{Dtype, Role};

use crate::job::{Job, run, tensor};

/// A box of up to three axes, cut in two again and again, and who stores the pieces.
#[derive(Clone, Debug)]
struct Split {
    role: Role,
    name: String,
    dtype: Dtype,
    shape: Vec<u64>,
    cuts: Vec<(usize, usize, u64)>,
    writers: Vec<u32>,
}

fn splits() -> impl Strategy<Value = Split> {
    let roles = prop::sample::select(vec![Role::Param, Role::Buffer, Role::Master]);
    let dtypes = prop::sample::select(vec![Dtype::F32, Dtype::U1, Dtype::F4E2M1, Dtype::C128]);
    (
        roles,
        "[a-c\"é.]{1,3}",
        dtypes,
        prop::collection::vec(0_u64..40, 0..4),
        prop::collection::vec((any::<usize>(), any::<usize>(), any::<u64>()), 0..12),
        prop::collection::vec(any::<u32>(), 13),
    )
        .prop_map(|(role, name, dtype, shape, cuts, writers)| Split {
            role,
            name,
            dtype,
            shape,
            cuts,
            writers,
        })
}

impl Split {
    fn tensor(&self) -> Tensor {
        let mut tensor = tensor(&self.name, self.dtype, &self.shape);
        tensor.identity.role = self.role;
        tensor
    }

    /// Boxes that cover the shape exactly once.
    fn boxes(&self) -> Vec<(Vec<u64>, Vec<u64>)> {
        if self.shape.contains(&0) {
            return Vec::new();
        }
        let mut boxes = vec![(vec![0; self.shape.len()], self.shape.clone())];
        for (which, axis, place) in &self.cuts {
            if self.shape.is_empty() {
                break;
            }
            let (which, axis) = (which % boxes.len(), axis % self.shape.len());
            let extent = boxes[which].1[axis];
            if extent > 1 {
                let left = 1 + place % (extent - 1);
                let mut upper = boxes[which].clone();
                upper.0[axis] += left;
                upper.1[axis] -= left;
                boxes[which].1[axis] = left;
                boxes.push(upper);
            }
        }
        boxes
    }
}

fn job(writers: u32, splits: &[Split]) -> Job {
    let mut job = Job::new(writers);
    for split in splits {
        let tensor = split.tensor();
        job.list(split.writers[12] % writers, &tensor);
        for ((at, extent), writer) in split.boxes().iter().zip(split.writers.iter().cycle()) {
            job.store(writer % writers, &tensor, at, extent);
        }
    }
    job
}

/// One of each identity, and no name both of a param and of a buffer.
fn distinct(mut splits: Vec<Split>) -> Vec<Split> {
    splits.sort_by(|a, b| (&a.name, a.role).cmp(&(&b.name, b.role)));
    splits.dedup_by(|a, b| a.name == b.name && (a.role == b.role || a.role != Role::Master));
    splits
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_split_in_any_order_derives_the_same_readable_bytes(
        writers in 1_u32..6,
        splits in prop::collection::vec(splits(), 0..8).prop_map(distinct),
        seed in any::<u64>(),
    ) {
        let parts = job(writers, &splits).parts();
        let output = run(&parts).unwrap();
        prop_assert_eq!(&run(&parts).unwrap(), &output);

        let mut shuffled = parts;
        for i in (1..shuffled.len()).rev() {
            shuffled.swap(i, (seed.rotate_left(i as u32 * 7) % (i as u64 + 1)) as usize);
        }
        prop_assert_eq!(&run(&shuffled).unwrap(), &output);

        let entries = output.entries();
        prop_assert_eq!(entries.len(), splits.len());
        for split in &splits {
            let tensor = split.tensor();
            let found = entries.iter().find(|entry| entry.key() == tensor.identity.key());
            let Some(Entry::Tensor(found)) = found else { panic!("{tensor:?} is lost") };
            let mut boxes: Vec<_> = found
                .chunks
                .iter()
                .map(|chunk| (chunk.region.at.to_vec(), chunk.region.extent.to_vec()))
                .collect();
            let mut expected = split.boxes();
            boxes.sort();
            expected.sort();
            prop_assert_eq!(boxes, expected);
        }
    }

    /// One box taken away, or given twice, is always seen.
    #[test]
    fn a_box_too_few_or_too_many_is_refused(
        splits in prop::collection::vec(splits(), 1..4).prop_map(distinct),
        which in any::<prop::sample::Index>(),
        twice in any::<bool>(),
    ) {
        let mut job = job(3, &splits);
        let chunks: Vec<_> = job.0.iter().flat_map(|part| &part.entries).flat_map(|entry| match entry {
            Entry::Tensor(tensor) => tensor.chunks.iter().map(|chunk| (tensor.clone(), chunk.clone())).collect(),
            Entry::Alias(_) => Vec::new(),
        }).collect();
        prop_assume!(!chunks.is_empty());
        let (tensor, chunk) = which.get(&chunks);
        let code = if twice {
            let bare = Tensor { chunks: Vec::new(), ..tensor.clone() };
            job.store(chunk.writer, &bare, &chunk.region.at, &chunk.region.extent);
            "cover.exact"
        } else {
            job.list(chunk.writer, tensor).chunks.retain(|other| other != chunk);
            "cover.gap"
        };
        prop_assert_eq!(job.refusal().1, code);
    }
}
