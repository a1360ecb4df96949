//! The worked example of the specification: one small checkpoint, byte by byte.
//!
//! It is made with the format crate alone, always the same, and shows most of what the format
//! has: two writers, tensors split and whole, block CRCs, a sub-byte dtype, an optimizer slot, an
//! alias, records of several kinds, an attachment.

pub mod annotate;
pub mod content;
pub mod files;

pub use files::File;

/// Name of the directory that the files stand in.
#[must_use]
pub fn directory() -> String {
    waystation_format::names::attempt_dir(content::STEP, &content::attempt())
}

/// Name and bytes of all files of the checkpoint, ascending by name.
#[must_use]
#[expect(clippy::expect_used, reason = "it has no input, and the tests see that it succeeds")]
pub fn files() -> Vec<File> {
    files::make().expect("the example breaks no rule")
}
