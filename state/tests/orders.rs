//! Orders beside naive models, within their budgets; what frameworks give, `loaders` has.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::panic,
    clippy::cast_possible_truncation,
    reason = "a test says where it fails by panicking"
)]

use std::sync::Arc;

use proptest::prelude::*;
use waystation_format::records::cursor::SeedRule;
use waystation_format::{Code, Digest};
use waystation_state::Budget;
use waystation_state::order::Order;
use waystation_state::rng::Mt19937;

fn all(order: &Order, epoch: u64) -> Vec<u64> {
    order.ordinals(epoch, 0..order.n(), Budget::unlimited()).map(Result::unwrap).collect()
}

fn digest(ordinals: &[u64]) -> String {
    Digest::of(&ordinals.iter().flat_map(|o| o.to_le_bytes()).collect::<Vec<u8>>()).to_string()
}

/// What PyTorch's sampler gives 8 ranks of 1001 records in epoch 1 of the seed 3: the order of the
/// seed 4, padded from its beginning.
#[test]
fn a_distributed_sampler_is_a_padded_order() {
    let mut order = all(&Order::randperm(1001, 3, SeedRule::SeedPlusEpoch), 1);
    order.extend_from_within(..7);
    assert_eq!(order[..8], [318, 695, 330, 190, 147, 469, 20, 445]);
    assert_eq!(digest(&order), "53f14a54225eb04211c607db2a53829b20a5a51e4dbaaab73094b882493397f2");
}

/// The second form, at the least n that has it. Takes most of a gigabyte and some seconds.
#[test]
#[ignore = "holds 860 MB, and takes a minute without optimisation: cargo test --release -p waystation-state -- --ignored"]
fn the_large_form() {
    let order = Order::randperm(214_748_364, 42, SeedRule::Seed);
    let first: Vec<u64> =
        order.ordinals(9, 0..4, Budget::new(1 << 28, 1 << 30)).map(Result::unwrap).collect();
    assert_eq!(first, [85_514_504, 93_417_259, 199_404_010, 60_269_803]);
}

#[test]
fn work_is_refused_beyond_the_budget() {
    let torch = Order::randperm(1_000_000, 1, SeedRule::Seed);
    let far = |budget| torch.ordinals(0, 900_000..900_001, budget).next().unwrap();
    far(Budget::new(900_066, 4_000_000)).unwrap();
    for budget in [Budget::new(900_065, 4_000_000), Budget::new(u64::MAX, 3_999_999)] {
        let error = far(budget).unwrap_err();
        assert_eq!((error.code(), error.rule_id()), (Code::Limit, Some("cursor.canary-steps")));
    }
    // Few elements of the same order hold little.
    let near: Vec<_> = torch.ordinals(0, 0..10, Budget::new(84, 1000)).collect();
    assert!(near.iter().all(Result::is_ok));

    let grain = Order::index_shuffle(1 << 32, 1, SeedRule::Seed, 4).unwrap();
    assert_eq!(grain.ordinals(0, 0..100, Budget::new(200, 0)).filter(Result::is_ok).count(), 100);
    // A block of 18 rounds is 5 steps, an element of 2^32 one block.
    let slow = Order::index_shuffle(1 << 32, 1, SeedRule::Seed, 18).unwrap();
    assert_eq!(slow.ordinals(0, 0..100, Budget::new(60, 0)).filter(Result::is_ok).count(), 10);
    let wide = Order::index_shuffle((1 << 32) + 1, 1, SeedRule::Seed, 4).unwrap_err();
    assert_eq!((wide.code(), wide.rule_id()), (Code::BadPosition, Some("order.domain")));
    for rounds in [3, 2, 5, 1026] {
        let error = Order::index_shuffle(9, 1, SeedRule::Seed, rounds).unwrap_err();
        assert_eq!((error.code(), error.rule_id()), (Code::BadMember, Some("order.form")));
    }
}

/// Forward, one draw a position, as the specification writes it.
fn torch(n: u64, seed: u64) -> Vec<u64> {
    let mut engine = Mt19937::init_genrand(seed as u32);
    let mut elements: Vec<u64> = (0..n).collect();
    for i in 0..n.saturating_sub(1) {
        elements.swap(i as usize, (i + u64::from(engine.next_u32()) % (n - i)) as usize);
    }
    elements
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn torch_is_the_naive_shuffle(n in 1..20_000_u64, seed: u64, epoch: u64, rule: bool) {
        let (rule, seeded) = if rule {
            (SeedRule::SeedPlusEpoch, seed.wrapping_add(epoch))
        } else {
            (SeedRule::Seed, seed)
        };
        let order = Order::randperm(n, seed, rule);
        let naive = torch(n, seeded);
        prop_assert_eq!(&all(&order, epoch), &naive);
        // Any range, without what is before it.
        let (from, to) = (n / 3, n / 3 + 5);
        let range: Vec<u64> = order
            .ordinals(epoch, from..to, Budget::of_validator())
            .map(Result::unwrap)
            .collect();
        prop_assert_eq!(&range, &naive[from as usize..(to as usize).min(naive.len())]);
    }

    #[test]
    fn each_is_a_permutation(n in 1..5000_u64, seed: u32, epoch: u64, half in 2..20_u64) {
        for order in [
            Order::identity(n),
            Order::randperm(n, u64::from(seed), SeedRule::SeedPlusEpoch),
            Order::index_shuffle(n, seed, SeedRule::SeedPlusEpoch, 2 * half).unwrap(),
        ] {
            let mut ordinals = all(&order, epoch);
            ordinals.sort_unstable();
            prop_assert_eq!(ordinals, (0..n).collect::<Vec<_>>());
        }
        let listed: Arc<[u64]> = (0..n).rev().collect();
        prop_assert_eq!(all(&Order::explicit(Arc::clone(&listed)), epoch), listed.to_vec());
    }
}
