//! The arguments of `rng`. Knows names of forms and what each needs, nothing of states.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use waystation_format::RngAlgorithm;
use waystation_state::rng::native::Form;

/// Draw from states of random streams, and convert them between frameworks.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  waystation rng next --algorithm xoshiro256++ --state-hex $(printf '01%.0s' {1..32}) --count 2
  python -c 'import json, random; print(json.dumps(random.getstate()))' |
    waystation rng convert --from python --to neutral")]
pub(crate) struct Rng {
    #[command(subcommand)]
    pub(crate) action: RngAction,
}

#[derive(Debug, Subcommand)]
pub(crate) enum RngAction {
    Next(RngNext),
    Convert(RngConvert),
}

/// Print the next raw outputs of a state, as the canary of a record has them.
#[derive(Debug, Args)]
#[command(after_help = "\
One output a line, in hex of its width. What keys of JAX give depends on how many are asked for.

Examples:
  waystation rng next --algorithm pcg32-xsh-rr --state-hex 069b782a2950cbf86d00000000000000
  waystation rng next --algorithm threefry2x32-20/jax-split --state-hex 000000002a000000 --count 5")]
pub(crate) struct RngNext {
    /// An algorithm of the registry.
    #[arg(long, value_name = "ID", value_parser = algorithm)]
    pub(crate) algorithm: RngAlgorithm,
    /// The canonical state.
    #[arg(long, value_name = "HEX")]
    pub(crate) state_hex: String,
    /// How many to draw.
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    pub(crate) count: u32,
}

/// Write a state in another form: the neutral one of records, or a framework's own.
#[derive(Debug, Args)]
#[command(after_help = "\
Forms:
  neutral       {\"algorithm\",\"state\",\"caches\",\"initial_seed\"?}, as records have them
  torch-cpu     get_state() of a generator on the CPU, 5056 bytes
  torch-cuda    get_state() of one on CUDA or XPU, 16 bytes
  torch-mps     get_state() of one on MPS, 44 bytes
  torch-key     a key of torch.func._random, [seed, offset]
  numpy         the state of a bit generator
  numpy-legacy  RandomState.get_state(), in either form
  python        random.getstate()
  jax           jax.random.key_data(key).tolist()
  mlx           mx.random.state[0].tolist()
  rust          the serialised form of rand_chacha, rand_pcg or rand_xoshiro
Bytes are read raw or as hex, and printed as hex; all else is JSON as Python's json.dumps prints it,
with arrays as tolist() gives them and integers as long as they are.

Input of another form is answered with exit status 2, a state that its engine cannot be in with 1.

Examples:
  python -c 'import random, json; print(json.dumps(random.getstate()))' |
      waystation rng convert --from python --to neutral
  python -c 'import json, numpy as np; state = np.random.Philox(7).state
print(json.dumps(state, default=lambda a: a.tolist()))' |
      waystation rng convert --from numpy --to neutral
  waystation rng convert --from neutral --to torch-cpu --initial-seed 42 --input s.json -o s.bin
  echo '[0, 42]' | waystation rng convert --from jax --impl fry --partitionable true --to neutral")]
pub(crate) struct RngConvert {
    #[arg(long, value_enum, value_name = "FORM", help = "The form that is read")]
    pub(crate) from: RngForm,
    #[arg(long, value_enum, value_name = "FORM", help = "The form that is written")]
    pub(crate) to: RngForm,
    #[arg(
        long,
        value_name = "FILE",
        default_value = "-",
        help = "What to read; - is standard input"
    )]
    pub(crate) input: PathBuf,
    /// Write here instead of standard output, bytes raw; the file must not exist.
    #[arg(short, long, value_name = "FILE", conflicts_with = "json")]
    pub(crate) output: Option<PathBuf>,
    /// From rust: which engine it is, as the type says.
    #[arg(long, value_name = "ID", value_parser = algorithm)]
    pub(crate) algorithm: Option<RngAlgorithm>,
    /// From jax: the implementation of the key, threefry2x32 (fry), rbg or unsafe_rbg (urbg).
    #[arg(long = "impl", value_name = "NAME")]
    pub(crate) implementation: Option<String>,
    /// From jax, of threefry2x32: the flag `jax_threefry_partitionable`, on which the outputs depend.
    #[arg(long, value_name = "true|false", num_args = 1)]
    pub(crate) partitionable: Option<bool>,
    /// To torch-cpu or neutral: what the stream was seeded with; torch-cpu cannot do without.
    #[arg(long, value_name = "N")]
    pub(crate) initial_seed: Option<u64>,
}

/// A form of a stream's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "kebab-case")]
pub(crate) enum RngForm {
    Neutral,
    TorchCpu,
    TorchCuda,
    TorchMps,
    TorchKey,
    Numpy,
    NumpyLegacy,
    Python,
    Jax,
    Mlx,
    Rust,
}

impl RngForm {
    /// The framework's form; `None` for the neutral one.
    pub(crate) fn native(self) -> Option<Form> {
        Some(match self {
            Self::Neutral => return None,
            Self::TorchCpu => Form::TorchCpu,
            Self::TorchCuda => Form::TorchCuda,
            Self::TorchMps => Form::TorchMps,
            Self::TorchKey => Form::TorchKey,
            Self::Numpy => Form::Numpy,
            Self::NumpyLegacy => Form::NumpyLegacy,
            Self::Python => Form::Python,
            Self::Jax => Form::Jax,
            Self::Mlx => Form::Mlx,
            Self::Rust => Form::Rust,
        })
    }
}

fn algorithm(text: &str) -> Result<RngAlgorithm, String> {
    RngAlgorithm::from_id(text).ok_or_else(|| {
        let known: Vec<_> = RngAlgorithm::ALL.iter().map(|known| known.as_str()).collect();
        format!("expected one of {}", known.join(", "))
    })
}
