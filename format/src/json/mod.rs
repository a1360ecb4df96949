//! Canonical JSON (chapter 2): the one form in which all metadata stands.
//!
//! It knows the form and how to walk and write it. It must not know any member of any file.
//! A text is proven canonical first ([`check_canonical`]); [`Cursor`] then walks it and never
//! has to look twice.

mod canonical;
mod cursor;
mod encode;
mod map;
mod pointer;
mod value;

pub use canonical::{check_canonical, check_canonical_value};
pub use cursor::{Cursor, Form, Items, Kind, Members, Object};
pub use encode::{Encoder, string as encode_string};
pub use map::Map;
pub use pointer::{pointer_at, pointer_step};

pub use value::Value;
