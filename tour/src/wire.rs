//! Frames between the ranks of a job. Each rank has a pipe to the process that started it, which
//! hands frames on and looks into none of those between ranks.
//!
//! A frame is the other side's number (u32), the length (u32) and so many bytes. It knows frames
//! and their order. It must not know what training sends.

use std::collections::{HashMap, VecDeque};
use std::io::{self, Read, Write};

use serde::Serialize;
use serde::de::DeserializeOwned;
use waystation_format::{Code, Error, Result};

/// Stands for the process that started the ranks.
pub(crate) const HUB: u32 = u32::MAX;

/// Reads a frame; `None` when the other side is gone.
pub(crate) fn read_frame(from: &mut impl Read) -> io::Result<Option<(u32, Vec<u8>)>> {
    let mut head = [0; 8];
    if let Err(e) = from.read_exact(&mut head) {
        return if e.kind() == io::ErrorKind::UnexpectedEof { Ok(None) } else { Err(e) };
    }
    let [a, b, c, d, e, f, g, h] = head;
    let (peer, length) = (u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, g, h]));
    let mut bytes = Vec::new();
    let read = from.take(u64::from(length)).read_to_end(&mut bytes)?;
    let whole = u32::try_from(read) == Ok(length);
    Ok(whole.then_some((peer, bytes)))
}

/// Writes a frame at once.
pub(crate) fn write_frame(to: &mut impl Write, peer: u32, bytes: &[u8]) -> io::Result<()> {
    let length = u32::try_from(bytes.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    to.write_all(&peer.to_le_bytes())?;
    to.write_all(&length.to_le_bytes())?;
    to.write_all(bytes)?;
    to.flush()
}

/// A rank's end of its pipe.
pub(crate) struct Wire<R, W> {
    input: R,
    output: W,
    /// Frames that came while another rank was waited for.
    early: HashMap<u32, VecDeque<Vec<u8>>>,
}

/// What a rank needs of the others: messages from each arrive in the order in which it sent them.
pub(crate) trait Peers {
    /// Sends `bytes` to rank `to`.
    ///
    /// # Errors
    /// `interrupted` when the job is gone.
    fn send(&mut self, to: usize, bytes: &[u8]) -> Result<()>;

    /// The next message of rank `from`, waiting for it.
    ///
    /// # Errors
    /// `interrupted` when the job is gone.
    fn receive(&mut self, from: usize) -> Result<Vec<u8>>;
}

impl<R: Read, W: Write> Wire<R, W> {
    pub(crate) fn new(input: R, output: W) -> Self {
        Self { input, output, early: HashMap::new() }
    }

    /// Tells the process that started this one.
    ///
    /// # Errors
    /// `interrupted` when it is gone.
    pub(crate) fn tell(&mut self, event: &impl Serialize) -> Result<()> {
        self.write(HUB, &encode(event)?)
    }

    /// Waits for word of the process that started this one.
    ///
    /// # Errors
    /// `interrupted` when it is gone.
    pub(crate) fn told<T: DeserializeOwned>(&mut self) -> Result<T> {
        decode(&self.read(HUB)?)
    }

    fn write(&mut self, to: u32, bytes: &[u8]) -> Result<()> {
        write_frame(&mut self.output, to, bytes).map_err(|_| gone())
    }

    fn read(&mut self, from: u32) -> Result<Vec<u8>> {
        loop {
            if let Some(bytes) = self.early.get_mut(&from).and_then(VecDeque::pop_front) {
                return Ok(bytes);
            }
            let (peer, bytes) = read_frame(&mut self.input).ok().flatten().ok_or_else(gone)?;
            self.early.entry(peer).or_default().push_back(bytes);
        }
    }
}

impl<R: Read, W: Write> Peers for Wire<R, W> {
    fn send(&mut self, to: usize, bytes: &[u8]) -> Result<()> {
        self.write(number(to), bytes)
    }

    fn receive(&mut self, from: usize) -> Result<Vec<u8>> {
        self.read(number(from))
    }
}

/// Words between a rank and the process that started it.
///
/// # Errors
/// None for this crate's own types.
pub(crate) fn encode(value: &impl Serialize) -> Result<Vec<u8>> {
    serde_json::to_vec(value).map_err(|e| not_a_word(&e))
}

/// As [`encode`], back.
///
/// # Errors
/// `bad-argument` for anything else.
pub(crate) fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T> {
    serde_json::from_slice(bytes).map_err(|e| not_a_word(&e))
}

fn number(rank: usize) -> u32 {
    u32::try_from(rank).unwrap_or(HUB)
}

fn not_a_word(e: &serde_json::Error) -> Error {
    Error::new(Code::BadArgument, format!("expected a word of the tour's own: {e}"))
}

#[cold]
fn gone() -> Error {
    Error::new(Code::Interrupted, "the process that started this rank is gone")
}

/// The peers of a rank that is alone.
#[cfg(test)]
pub(crate) struct Nobody;

#[cfg(test)]
impl Peers for Nobody {
    fn send(&mut self, _: usize, _: &[u8]) -> Result<()> {
        Ok(())
    }

    fn receive(&mut self, _: usize) -> Result<Vec<u8>> {
        Ok(Vec::new())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_wait_for_who_asks() {
        let mut sent = Vec::new();
        for (peer, word) in [(2, "late"), (1, "first"), (2, "later"), (HUB, "\"told\"")] {
            write_frame(&mut sent, peer, word.as_bytes()).unwrap();
        }
        let mut wire = Wire::new(sent.as_slice(), Vec::new());
        assert_eq!(wire.told::<String>().unwrap(), "told");
        assert_eq!(wire.receive(1).unwrap(), b"first");
        assert_eq!(wire.receive(2).unwrap(), b"late");
        assert_eq!(wire.receive(2).unwrap(), b"later");
        assert_eq!(wire.receive(2).unwrap_err().code(), Code::Interrupted);
    }

    #[test]
    fn half_a_frame_is_none() {
        let mut sent = Vec::new();
        write_frame(&mut sent, 1, b"whole").unwrap();
        assert_eq!(read_frame(&mut &sent[..]).unwrap(), Some((1, b"whole".to_vec())));
        assert_eq!(read_frame(&mut &sent[..sent.len() - 1]).unwrap(), None);
        assert_eq!(read_frame(&mut &sent[..5]).unwrap(), None);
    }
}
