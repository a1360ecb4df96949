//! Lines of a process's output and the end of its errors, each read by a thread of its own, so
//! that nobody waits longer for them than he wants to.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

/// What a process printed.
#[derive(Debug)]
pub(super) enum Line {
    /// A line, without its end.
    Text(Vec<u8>),
    /// A line that goes on after as many bytes as are allowed; nothing after it is read.
    TooLong,
    /// There is no more.
    End,
}

/// Lines that wait to be asked for. A process that prints more waits itself.
const WAITING: usize = 4;

/// Reads `from` to its end, or to a line of more than `most` bytes.
pub(super) fn read_lines(from: impl Read + Send + 'static, most: usize) -> Receiver<Line> {
    let (to, lines) = sync_channel(WAITING);
    // The thread ends with the process, or as soon as nobody listens.
    thread::spawn(move || forward(&mut BufReader::new(from), most, &to));
    lines
}

fn forward(from: &mut impl BufRead, most: usize, to: &SyncSender<Line>) {
    let limit = u64::try_from(most).unwrap_or(u64::MAX).saturating_add(1);
    loop {
        let mut line = Vec::new();
        let read = from.by_ref().take(limit).read_until(b'\n', &mut line);
        let said = match read {
            Ok(0) | Err(_) => Line::End,
            Ok(_) if line.last() == Some(&b'\n') => {
                line.pop();
                Line::Text(line)
            }
            Ok(_) if line.len() > most => Line::TooLong,
            // The end came before the line's: what stands there was not finished.
            Ok(_) => Line::End,
        };
        let last = !matches!(said, Line::Text(_));
        if to.send(said).is_err() || last {
            return;
        }
    }
}

/// Bytes of standard error that are kept.
const KEPT: usize = 64 << 10;

/// The end of what a process says on standard error.
#[derive(Clone, Debug, Default)]
pub(super) struct Tail(Arc<Mutex<Kept>>);

#[derive(Debug, Default)]
struct Kept {
    bytes: VecDeque<u8>,
    /// Of all bytes that ever came.
    total: u64,
}

impl Tail {
    pub(super) fn of(from: impl Read + Send + 'static) -> Self {
        let tail = Self::default();
        let kept = tail.clone();
        thread::spawn(move || kept.follow(from));
        tail
    }

    fn follow(&self, mut from: impl Read) {
        let mut buffer = [0; 4096];
        while let Ok(read @ 1..) = from.read(&mut buffer) {
            let mut kept = self.kept();
            kept.bytes.extend(buffer.iter().take(read));
            let over = kept.bytes.len().saturating_sub(KEPT);
            kept.bytes.drain(..over);
            kept.total = kept.total.saturating_add(u64::try_from(read).unwrap_or(0));
        }
    }

    /// How much came so far.
    pub(super) fn mark(&self) -> u64 {
        self.kept().total
    }

    /// What came since a mark, as far as it is kept.
    pub(super) fn since(&self, mark: u64) -> String {
        let kept = self.kept();
        let new = usize::try_from(kept.total.saturating_sub(mark)).unwrap_or(usize::MAX);
        let skip = kept.bytes.len().saturating_sub(new);
        let bytes: Vec<u8> = kept.bytes.iter().skip(skip).copied().collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(bytes: &'static [u8], most: usize) -> Vec<String> {
        read_lines(bytes, most)
            .iter()
            .map(|line| match line {
                Line::Text(text) => String::from_utf8(text).unwrap(),
                other => format!("{other:?}"),
            })
            .collect()
    }

    #[test]
    fn lines_are_bounded_and_whole() {
        assert_eq!(lines(b"a\n\nbcd\n", 3), ["a", "", "bcd", "End"]);
        assert_eq!(lines(b"a\nbcde\nf\n", 3), ["a", "TooLong"]);
        assert_eq!(lines(b"a\nbc", 3), ["a", "End"]);
    }

    #[test]
    fn the_end_of_errors_is_kept() {
        let tail = Tail::default();
        tail.follow(&b"one"[..]);
        let mark = tail.mark();
        tail.follow(&b"two"[..]);
        assert_eq!(tail.since(mark), "two");
        assert_eq!(tail.since(0), "onetwo");
        tail.follow(&vec![b'x'; KEPT][..]);
        assert_eq!(tail.since(mark), "x".repeat(KEPT));
    }
}
