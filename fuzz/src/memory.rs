//! How much memory something takes at its peak: an allocator that counts.
//!
//! It is the allocator of every program that links this crate. It knows sizes and this thread; what was taken on another thread is
//! not seen, so what is measured runs on one.

#![allow(
    unsafe_code,
    reason = "an allocator is unsafe by nature; each call goes unchanged to the system's"
)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

struct Counting;

#[global_allocator]
static COUNTING: Counting = Counting;

thread_local! {
    /// Bytes that this thread took and did not give back; negative when it gave back what others took.
    static HELD: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

fn change(by: isize) {
    // While a thread ends there is nothing to count in.
    let _ = HELD.try_with(|held| {
        let now = held.get().wrapping_add(by);
        held.set(now);
        let _ = PEAK.try_with(|peak| peak.set(peak.get().max(now)));
    });
}

fn size(layout: Layout) -> isize {
    // A layout's size never exceeds isize::MAX.
    layout.size().cast_signed()
}

// SAFETY: every method hands its arguments unchanged to the system's allocator and returns what that does; counting touches two
// cells of the thread, which are initialised without allocating.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        change(size(layout));
        // SAFETY: the caller keeps the contract, which is the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        change(size(layout));
        // SAFETY: the caller keeps the contract, which is the same.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        change(-size(layout));
        // SAFETY: `ptr` came from the system's allocator with this layout, as the caller promises.
        unsafe { System.dealloc(ptr, layout) }
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // Both may be there at once while bytes are moved.
        change(new_size.cast_signed());
        change(-size(layout));
        // SAFETY: as for dealloc; `new_size` is the caller's promise, too.
        unsafe { System.realloc(ptr, layout, new_size) }
    }
}

/// What `work` gives, and the bytes that this thread took at most while it ran, above what it held before.
pub fn peak<T>(work: impl FnOnce() -> T) -> (T, usize) {
    let before = HELD.get();
    let outer = PEAK.replace(before);
    let given = work();
    let peak = PEAK.get();
    PEAK.set(peak.max(outer));
    (given, usize::try_from(peak.wrapping_sub(before)).unwrap_or(0))
}

/// A bound on memory: so many bytes for each byte of input, and some that any input may take.
#[derive(Clone, Copy, Debug)]
pub struct Bound {
    /// For each byte.
    pub factor: usize,
    /// For any input.
    pub base: usize,
}

/// What reading a whole checkpoint may take.
pub const DIRECTORY: Bound = Bound { factor: 8, base: 16 << 20 };

/// What decoding one file may take: parsed, the shortest texts take a multiple of their own length.
pub const DECODING: Bound = Bound { factor: 64, base: 64 << 10 };

impl Bound {
    /// Whether `peak` is within the bound for `length` bytes.
    ///
    /// # Panics
    /// If not.
    pub fn check(self, peak: usize, length: usize, what: &str) {
        let most = length.saturating_mul(self.factor).saturating_add(self.base);
        assert!(
            peak <= most,
            "{what}: took {peak} bytes for {length} bytes of input, at most {most}"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peak_is_what_was_held_at_once() {
        let ((), taken) = peak(|| {
            drop(vec![1_u8; 1 << 20]);
            drop(vec![1_u8; 3 << 20]);
        });
        assert!((3 << 20..4 << 20).contains(&taken), "{taken}");
        let (kept, taken) = peak(|| peak(|| vec![0_u8; 1 << 20]));
        assert_eq!((kept.1, taken), (1 << 20, 1 << 20));
    }

    #[test]
    #[should_panic(expected = "took 2000")]
    fn a_bound_is_one() {
        Bound { factor: 8, base: 0 }.check(2000, 200, "a test");
    }
}
