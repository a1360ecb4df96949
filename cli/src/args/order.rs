//! The arguments of `order`. Knows names of orders, nothing of what they come to.

use clap::Args;
use waystation_format::OrderAlgorithm;

/// Print in which order a data cursor reads the records of a source.
#[derive(Debug, Args)]
#[command(after_help = "\
One ordinal a line. An order of torch is drawn from its beginning, so a far --start takes its time; from n = 214748364
on it is drawn as a whole.

Examples:
  waystation order --algorithm torch.randperm-cpu --n 1000 --seed 42 --count 5
  waystation order --algorithm grain.index_shuffle --n 4294967296 --seed 7 --epoch 2 --start 1000000")]
pub(crate) struct Order {
    /// identity, torch.randperm-cpu or grain.index_shuffle.
    #[arg(long, value_name = "ID", value_parser = algorithm)]
    pub(crate) algorithm: OrderAlgorithm,
    /// Elements of the order.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=9_007_199_254_740_991))]
    pub(crate) n: u64,
    /// The seed, from 0 to 2^64 - 1, or 2^32 - 1 for grain.index_shuffle; of every order but identity.
    #[arg(long, value_name = "S", allow_negative_numbers = true, value_parser = seed)]
    pub(crate) seed: Option<u64>,
    /// The seed is S + E, as under the rule seed+epoch.
    #[arg(long, value_name = "E")]
    pub(crate) epoch: Option<u64>,
    /// Rounds of grain.index_shuffle, even, from 4 to 1024 [default: 4].
    #[arg(long, value_name = "R")]
    pub(crate) rounds: Option<u64>,
    /// How many to print.
    #[arg(long, value_name = "K", default_value_t = 16, value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    pub(crate) count: u64,
    /// The place of the first of them.
    #[arg(long, value_name = "P", default_value_t = 0)]
    pub(crate) start: u64,
}

fn algorithm(text: &str) -> Result<OrderAlgorithm, String> {
    // The ordinals of an explicit order stand in its record.
    let computed =
        |known: &OrderAlgorithm| known.is_computed() && *known != OrderAlgorithm::Explicit;
    let found = OrderAlgorithm::from_id(text);
    if let Some(found) = found.filter(computed) {
        return Ok(found);
    }
    let known: Vec<_> = OrderAlgorithm::ALL.iter().filter(|known| computed(known)).collect();
    let known: Vec<_> = known.iter().map(|known| known.as_str()).collect();
    let why = match found {
        Some(OrderAlgorithm::Explicit) => "its ordinals stand in the record; ",
        Some(_) => "it is carried in records, not computed; ",
        None => "",
    };
    Err(format!("{why}expected one of {}", known.join(", ")))
}

fn seed(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("expected an integer from 0 to {}", u64::MAX))
}
