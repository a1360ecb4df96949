//! The appendix of the specification that explains the example, made from its files.
//!
//! It reads the files back and writes down what it finds, so that text and bytes cannot disagree.
//! It must not know how the files were made.

mod json;
mod shards;
mod whole;

use std::fmt::Write as _;

use waystation_format::digest::Digest;
use waystation_format::entry::Entry;
use waystation_format::manifest::{FileKind, Manifest};
use waystation_format::page::TensorPage;
use waystation_format::part::Part;
use waystation_format::{Code, Error, Result, names};

use crate::content::{ATTACHMENT, STEP};
use crate::files::File;

/// The chapter, in Markdown.
///
/// # Errors
///
/// Whatever breaks a rule in `files`, which are those of the example.
pub fn chapter(directory: &str, files: &[File]) -> Result<String> {
    let find = |name: &str| {
        let found = files.iter().find(|(file, _)| file == name);
        found.map(|(_, bytes)| bytes.as_slice()).ok_or_else(|| {
            Error::new(Code::NotFound, "the example lacks a file that it names").in_file(name)
        })
    };
    let manifest = Manifest::parse(find(names::MANIFEST)?)?;
    let mut parts = Vec::new();
    for file in manifest.named_files()? {
        if let FileKind::Part { .. } = file.kind {
            parts.push(Part::parse(find(&file.name)?.to_vec())?);
        }
    }
    let mut entries = Vec::new();
    for page in (0_u32..).take(manifest.tensors.len()) {
        let bytes = find(&names::tensors_page(page))?;
        entries.extend(TensorPage::parse(bytes, &manifest, page)?.entries);
    }

    let mut text = INTRODUCTION.replace("DIRECTORY", directory);
    listing(&mut text, files);
    attempt(&mut text, &manifest);
    tensors(&mut text, &entries);
    wholes(&mut text, &manifest, &entries, find)?;
    shards::explain(&mut text, &parts, find)?;
    metadata(&mut text, &manifest, &parts, find)?;
    commit(&mut text, find(names::COMMIT)?);
    Ok(text)
}

const INTRODUCTION: &str = "\
# Appendix B. Worked example

<!-- Made by `cargo run -p waystation-example -- --write spec/example`; do not edit. -->

The folder [`example/DIRECTORY`](example/DIRECTORY) holds a whole checkpoint: two writers, five
tensors and an alias, six records, an attachment. It is made by the program in `example/`, always
the same, and this appendix is made from its files. It is not normative: where it seems to say
something else than a chapter, the chapter is right.

B is 4096 here, the smallest allowed, so that tensors of a few kilobytes have block CRCs. Elements
are `steps_seen` = 1000, and bytes without meaning elsewhere: those of tensor number t are the top
bytes of x₁, x₂, … where x₀ = t and xₙ₊₁ = 6364136223846793005 xₙ + 1442695040888963407 mod 2^64,
numbered 1 `embed.weight`, 2 `block.0.weight`, 4 the slot `adam.m` of it, 5 `packed`, whose last four
bits are 0. A real AdamW would have `adam.v` too.

";

fn listing(text: &mut String, files: &[File]) {
    text.push_str("## B.1 Files\n\n| file | bytes | SHA-256 |\n|---|---:|---|\n");
    for (name, bytes) in files {
        line(text, &format!("| `{name}` | {} | `{}` |", bytes.len(), Digest::of(bytes)));
    }
    text.push('\n');
}

fn attempt(text: &mut String, manifest: &Manifest) {
    let attempt = manifest.common.attempt;
    let nonce = "000102030405060708090a0b0c0d0e0f";
    let source = format!("{nonce} {STEP} 0");
    line(
        text,
        "The attempt (11.1) is timeline 1, for the run was empty, and the first 8 digits of a SHA-256:",
    );
    line(text, "\n```");
    line(text, &format!("sha256(\"{source}\") = {}", Digest::of(source.as_bytes())));
    line(text, &format!("attempt = {attempt}"));
    line(text, "```\n");
}

fn tensors(text: &mut String, entries: &[Entry]) {
    line(text, "## B.2 Tensors and their chunks\n");
    line(text, "From the page of tensors, in the order of their identity keys (4):\n");
    line(
        text,
        "| identity key | dtype | shape | writer, shard | offset | bytes | at | extent | CRC-32C | table index |",
    );
    line(text, "|---|---|---|---|---:|---:|---|---|---|---|");
    for entry in entries {
        let key = entry.key();
        match entry {
            Entry::Alias(alias) => {
                line(text, &format!("| `{key}` | | | alias of `{}` | | | | | | |", alias.of.key()));
            }
            Entry::Tensor(tensor) => {
                for chunk in &tensor.chunks {
                    let bytes = tensor.chunk_bytes(&chunk.region).unwrap_or_default();
                    let index = chunk.table_index.map_or_else(String::new, |n| n.to_string());
                    let row = format!(
                        "| `{key}` | {} | {:?} | {}, {} | {} | {bytes} | {:?} | {:?} | `{:08x}` | {index} |",
                        tensor.dtype,
                        tensor.shape.as_slice(),
                        chunk.writer,
                        chunk.shard,
                        chunk.offset,
                        chunk.region.at.as_slice(),
                        chunk.region.extent.as_slice(),
                        chunk.crc32c,
                    );
                    line(text, &row);
                }
            }
        }
    }
    line(
        text,
        "\nChunks of more than 4096 bytes have a table index (5.3). `packed` has 5 elements of 4 bits in 3 bytes (5.2).\n",
    );
}

fn wholes<'f>(
    text: &mut String,
    manifest: &Manifest,
    entries: &[Entry],
    find: impl Fn(&str) -> Result<&'f [u8]>,
) -> Result<()> {
    line(
        text,
        "A loader that puts whole tensors together, packed as one chunk (12.2), gets bytes of these SHA-256:\n",
    );
    line(text, "| identity key | SHA-256 |\n|---|---|");
    for entry in entries {
        if let Entry::Tensor(tensor) = entry {
            let digest = whole::digest(tensor, manifest, &find)?;
            line(text, &format!("| `{}` | `{digest}` |", entry.key()));
        }
    }
    text.push('\n');
    Ok(())
}

fn metadata<'f>(
    text: &mut String,
    manifest: &Manifest,
    parts: &[Part],
    find: impl Fn(&str) -> Result<&'f [u8]>,
) -> Result<()> {
    line(text, "## B.4 Metadata\n");
    line(
        text,
        "Each file is one line without a line end; here it is broken after commas. Nothing else is changed.\n",
    );
    for part in parts {
        let name = part.file_name();
        let remarks = match part.writer {
            0 => {
                "Its name has the first 16 digits of its own SHA-256 (7). It states the inventory (7.2), and the alias (4.1)."
            }
            _ => {
                "It lists `embed.weight` without chunks, as it may, leaves the inventory to the other, and holds an equal `progress` record, which merges (8.1)."
            }
        };
        file(text, &name, part.raw(), remarks);
        if let Some(inventory) = &part.inventory {
            line(
                text,
                &format!(
                    "The inventory's digest is over these {} lines, each with its line end:\n",
                    inventory.count
                ),
            );
            line(text, "```");
            for page in (0_u32..).take(manifest.tensors.len()) {
                let bytes = find(&names::tensors_page(page))?;
                for entry in TensorPage::parse(bytes, manifest, page)?.entries {
                    line(text, &entry.key());
                }
            }
            line(text, "```\n");
        }
    }
    let pages = [
        (
            names::tensors_page(0),
            "Entries of all parts, sorted by identity key; chunks begin with their writer (8.2).",
        ),
        (names::records_page(0), "Records of all parts, sorted by record key (9)."),
        (
            names::MANIFEST.to_owned(),
            "The root (8.3): lengths and digests of everything else, shards' data aside.",
        ),
    ];
    for (name, remarks) in pages {
        file(text, &name, find(&name)?, remarks);
    }
    let (path, content) = ATTACHMENT;
    line(text, &format!("The attachment `{path}` holds, with its line end:\n"));
    line(text, "```");
    text.push_str(&String::from_utf8_lossy(content));
    line(text, "```\n");
    Ok(())
}

fn file(text: &mut String, name: &str, bytes: &[u8], remarks: &str) {
    line(text, &format!("### `{name}`\n\n{remarks}\n"));
    line(text, "```json");
    for piece in json::broken(&String::from_utf8_lossy(bytes)) {
        line(text, piece);
    }
    line(text, "```\n");
}

fn commit(text: &mut String, bytes: &[u8]) {
    line(text, "## B.5 Commit file\n");
    line(text, &format!("`{}`, {} bytes (11.3):\n", names::COMMIT, bytes.len()));
    line(text, "```");
    shards::dump(text, bytes, 0..bytes.len());
    line(text, "```");
}

fn line(text: &mut String, content: &str) {
    // Writing to a string does not fail.
    let _ = writeln!(text, "{content}");
}
