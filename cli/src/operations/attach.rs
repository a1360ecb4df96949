//! A file as an attachment.

use std::io::Read;
use std::path::Path;

use waystation_format::{Error, Result};
use waystation_writer::Session;

use super::Work;
use crate::foreign::open_regular;

/// Bytes in memory at once.
const PIECE_BYTES: usize = 1 << 20;

/// Attaches all of `file` under the logical path `path`, in bounded memory.
///
/// # Errors
/// Those of [`Session::attach_with`]; of opening and reading what is no regular file; `interrupted`.
pub fn attach(session: &mut Session, path: &str, file: &Path, work: &Work<'_>) -> Result<()> {
    let name = |e: Error| e.in_file(file.display().to_string());
    // Nothing is made for a file that cannot be read.
    let (mut from, _) = open_regular(file)?;
    session.attach_with(path, &mut |out| {
        let mut piece = vec![0; PIECE_BYTES];
        loop {
            work.go_on("stopped before the commit")?;
            let read = match from.read(&mut piece) {
                Ok(0) => return Ok(()),
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => continue,
                read => read.map_err(|e| name(Error::io("read", e)))?,
            };
            let read = piece.get(..read).unwrap_or_default();
            out.write_all(read).map_err(|e| name(Error::io("attach", e)))?;
        }
    })
}
