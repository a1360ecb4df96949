//! `order`: what an order of records comes to, for whoever implements one. Knows arguments; orders
//! are `waystation-state`'s.

use serde_json::json;
use waystation_format::digest::Hasher;
use waystation_format::records::cursor::SeedRule;
use waystation_format::{Code, Error, OrderAlgorithm, Result};
use waystation_state::Budget;
use waystation_state::order::Order;

use super::Context;
use crate::args::Order as Args;
use crate::output;

/// Enough for the orders of a thousand million records.
const MEMORY: u64 = 8 << 30;

pub(super) fn run(args: &Args, context: &Context) -> Result<u8> {
    let order = order(args)?;
    if args.start >= args.n {
        let message =
            format!("--start: expected a place below n = {}, found {}", args.n, args.start);
        return Err(Error::new(Code::BadArgument, message));
    }
    let range = args.start..args.start.saturating_add(args.count);
    let budget = Budget::new(u64::MAX, MEMORY).until(context.bars.wish().clone());
    let (mut ordinals, mut hasher) = (Vec::new(), Hasher::new());
    for ordinal in order.ordinals(args.epoch.unwrap_or(0), range, budget) {
        context.bars.wish().go_on()?;
        let ordinal = ordinal?;
        if context.json {
            hasher.update(&ordinal.to_le_bytes());
            ordinals.push(ordinal);
        } else {
            output::line(&ordinal.to_string())?;
        }
    }
    if context.json {
        output::object(&json!({
            "algorithm": args.algorithm.as_str(), "n": args.n, "seed": args.seed, "epoch": args.epoch,
            "ordinals": ordinals, "sha256": hasher.finish().to_string(),
        }))?;
    }
    Ok(0)
}

fn order(args: &Args) -> Result<Order> {
    let bad = |message: String| Error::new(Code::BadArgument, message);
    let rule = args.epoch.map_or(SeedRule::Seed, |_| SeedRule::SeedPlusEpoch);
    if args.rounds.is_some() && args.algorithm != OrderAlgorithm::GrainIndexShuffle {
        return Err(bad(format!("--rounds: {} has none", args.algorithm)));
    }
    let seed = match (args.seed, args.algorithm) {
        (None, OrderAlgorithm::Identity) => 0,
        (Some(_), OrderAlgorithm::Identity) => return Err(bad("--seed: identity has none".into())),
        (Some(seed), _) => seed,
        (None, algorithm) => return Err(bad(format!("--seed: expected one for {algorithm}"))),
    };
    match args.algorithm {
        OrderAlgorithm::TorchRandpermCpu => Ok(Order::randperm(args.n, seed, rule)),
        OrderAlgorithm::GrainIndexShuffle => {
            let seed = u32::try_from(seed)
                .map_err(|_| bad(format!("--seed: expected one below 2^32, found {seed}")))?;
            Order::index_shuffle(args.n, seed, rule, args.rounds.unwrap_or(4))
                .map_err(|error| bad(format!("--n, --rounds: {}", error.message())))
        }
        _ => Ok(Order::identity(args.n)),
    }
}
