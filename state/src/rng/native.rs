//! Frameworks' own forms of a stream, each in a file of its own: to the neutral form and back.
//!
//! They know layouts and names as the frameworks write them, and refuse what they do not know: a
//! state that is read wrongly goes on with other numbers, and nobody sees it. Forms that are made
//! of bytes come as bytes, those of keys as words, all others as value trees: a Python `dict` is a
//! map, a `list` or `ndarray.tolist()` a list, a `tuple` a tuple (a list will do, as JSON knows no
//! other).

mod form;
pub mod jax;
pub mod mlx;
pub mod numpy;
pub mod python;
pub mod rust;
pub mod torch_cpu;
pub mod torch_cuda;
pub mod torch_key;
pub mod torch_mps;
mod tree;

pub use form::{Form, Native, Unsaid, one_word};
