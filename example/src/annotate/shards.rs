//! Shards in the appendix: header, layout, table.
//!
//! It knows what the parts give for a shard, and shows the bytes beside it.

use std::fmt::Write as _;
use std::ops::Range;

use waystation_format::entry::Entry;
use waystation_format::part::Part;
use waystation_format::shard::{Layout, TABLE_KEY, layouts_of, slot_of};
use waystation_format::{Code, Error, Result, arith, names};

use super::{json, line};

/// Bytes of a shard's beginning that are shown as they are.
const SHOWN: usize = 128;
/// Bytes in a line of a dump.
const ROW: usize = 16;

pub(super) fn explain<'f>(
    text: &mut String,
    parts: &[Part],
    find: impl Fn(&str) -> Result<&'f [u8]>,
) -> Result<()> {
    line(text, "## B.3 Shards\n");
    line(
        text,
        "Of each shard: its first bytes, the header's JSON without the spaces behind it (6.2), broken after commas, and where everything stands (6.1).\n",
    );
    for part in parts {
        for (position, (shard, layout)) in (0_u32..).zip(part.shards.iter().zip(layouts_of(part)?))
        {
            let name = names::shard(shard.class, part.writer, part.inc, position);
            let bytes = find(&name)?;
            line(text, &format!("### `{name}`\n\n```"));
            dump(text, bytes, 0..SHOWN);
            line(text, "```\n\n```json");
            let header =
                String::from_utf8_lossy(bytes.get(8..layout.header.len()).unwrap_or_default());
            for piece in json::broken(header.trim_end_matches(' ')) {
                line(text, piece);
            }
            line(text, "```\n");
            places(text, part, position, &layout)?;
            if let (Some(place), Some(table)) = (layout.table, shard.crc_table) {
                crc_table(text, bytes, place.offset, place.count, table.crc32c)?;
            }
        }
    }
    Ok(())
}

/// The layout, one line an entry.
fn places(text: &mut String, part: &Part, shard: u32, layout: &Layout) -> Result<()> {
    let mut rows = vec![(0..layout.data_start, "header".to_owned())];
    for entry in part.entries() {
        let Entry::Tensor(tensor) = entry? else { continue };
        for chunk in tensor.chunks.iter().filter(|chunk| chunk.shard == shard) {
            let bytes = tensor.chunk_bytes(&chunk.region)?;
            let end = arith::add(chunk.offset, bytes, "end of a chunk")?;
            let key = slot_of(&tensor, &chunk.region)?.key.into_owned();
            rows.push((chunk.offset..end, format!("`{key}`")));
        }
    }
    for (number, pad) in layout.pads.iter().enumerate() {
        rows.push((pad.clone(), format!("`__pad__.{number}`, zeros")));
    }
    if let Some(table) = layout.table {
        let bytes = arith::mul(table.count, 4, "bytes of the table")?;
        let end = arith::add(table.offset, bytes, "end of the table")?;
        rows.push((table.offset..end, format!("`{TABLE_KEY}`")));
    }
    rows.sort_by_key(|(range, _)| range.start);
    line(text, "| from | to | bytes | what |\n|---:|---:|---:|---|");
    for (Range { start, end }, what) in rows {
        line(text, &format!("| {start} | {end} | {} | {what} |", end.saturating_sub(start)));
    }
    text.push('\n');
    Ok(())
}

fn crc_table(text: &mut String, bytes: &[u8], offset: u64, count: u64, crc: u32) -> Result<()> {
    let begin = arith::to_usize(offset, "offset of the table")?;
    let end = arith::add(offset, arith::mul(count, 4, "bytes of the table")?, "end of the table")?;
    let table = bytes
        .get(begin..arith::to_usize(end, "end of the table")?)
        .ok_or_else(|| Error::new(Code::LengthMismatch, "the table lies outside its shard"))?;
    let (entries, _) = table.as_chunks::<4>();
    let listed: Vec<String> =
        entries.iter().map(|entry| format!("`{:08x}`", u32::from_le_bytes(*entry))).collect();
    line(
        text,
        &format!(
            "The table's block CRCs are {}; its own CRC-32C is `{crc:08x}`.\n",
            listed.join(", ")
        ),
    );
    Ok(())
}

/// Bytes in hex, 16 a line, with their offsets.
pub(super) fn dump(text: &mut String, bytes: &[u8], range: Range<usize>) {
    let shown = bytes.get(range.start..range.end.min(bytes.len())).unwrap_or_default();
    for (row, chunk) in shown.chunks(ROW).enumerate() {
        let offset = range.start.saturating_add(row.saturating_mul(ROW));
        let hex: Vec<String> = chunk.iter().map(|byte| format!("{byte:02x}")).collect();
        let plain: String = chunk
            .iter()
            .map(|byte| if matches!(byte, b' '..=b'~') { char::from(*byte) } else { '.' })
            .collect();
        let _ = writeln!(text, "{offset:08x}  {:<47}  {plain}", hex.join(" "));
    }
}
