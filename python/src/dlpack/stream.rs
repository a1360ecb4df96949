//! A copy past the caches, into memory that nobody reads soon.
//!
//! A copy through the caches reads each line that it is about to write over, and drives out of them
//! what the program works with. Past them the memory has a third less to do.
//!
//! It knows bytes and cache lines. It must not know whose they are.

#![allow(unsafe_code, reason = "a store past the caches takes an address; each carries its proof")]

#[cfg(all(target_arch = "x86_64", not(miri)))]
use std::arch::x86_64::{__m128i, _mm_set_epi64x, _mm_sfence, _mm_stream_si128};

/// Shorter ones stay in the caches: they cost nothing there.
const LEAST: usize = 4096;

/// Copies as many bytes as both have.
pub(crate) fn copy(source: &[u8], destination: &mut [u8]) {
    let len = source.len().min(destination.len());
    let (source, destination) = (source.split_at(len).0, destination.split_at_mut(len).0);
    if len < LEAST {
        destination.copy_from_slice(source);
    } else {
        past_caches(source, destination);
    }
}

/// Both are of one length.
#[cfg(not(all(target_arch = "x86_64", not(miri))))]
fn past_caches(source: &[u8], destination: &mut [u8]) {
    destination.copy_from_slice(source);
}

/// Both are of one length.
#[cfg(all(target_arch = "x86_64", not(miri)))]
fn past_caches(source: &[u8], destination: &mut [u8]) {
    // SAFETY: bytes of any value are a line, which has no padding.
    let (head, lines, tail) = unsafe { destination.align_to_mut::<Line>() };
    // What lies before and behind the whole lines goes the usual way.
    let (source_head, source) = source.split_at(head.len());
    let (source, source_tail) = source.as_chunks();
    head.copy_from_slice(source_head);
    tail.copy_from_slice(source_tail);
    // SAFETY: SSE2 is a part of the architecture.
    unsafe { store(source, lines) };
}

/// A line of the caches.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[repr(C, align(64))]
struct Line([__m128i; 4]);

/// As many bytes.
#[cfg(all(target_arch = "x86_64", not(miri)))]
type Run = [u8; size_of::<Line>()];

#[cfg(all(target_arch = "x86_64", not(miri)))]
#[target_feature(enable = "sse2")]
fn store(source: &[Run], lines: &mut [Line]) {
    for (from, Line(quarters)) in source.iter().zip(lines) {
        let (halves, _) = from.as_chunks::<8>();
        for ([low, high], quarter) in halves.as_chunks().0.iter().zip(quarters) {
            let value = _mm_set_epi64x(i64::from_le_bytes(*high), i64::from_le_bytes(*low));
            // SAFETY: `quarter` is ours alone and aligned, for it is a reference. The fence below
            // comes before anybody else looks at it.
            unsafe { _mm_stream_si128(quarter, value) };
        }
    }
    _mm_sfence();
}
