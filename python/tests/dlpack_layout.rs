//! The pointers of DLPack without an interpreter: lent, looked at, written through, given back. Miri
//! runs this (`cargo xtask miri`); natively a leak or a second drop shows in the counts.

#![allow(
    unsafe_code,
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    reason = "a test of unsafe code, of a file that it shares with the package"
)]

#[path = "../src/dlpack/layout.rs"]
mod layout;

use std::ptr::NonNull;
use std::sync::Arc;

use layout::{Legacy, Taken, Tensor, Versioned, lend_legacy, lend_versioned};

/// Memory as `Lent` has it: an address, and an owner that nobody looks into.
struct Memory {
    start: NonNull<u8>,
    len: usize,
}

impl Memory {
    fn new(bytes: &[u8]) -> Arc<Self> {
        let start = NonNull::from(Box::leak(bytes.to_vec().into_boxed_slice())).cast();
        Arc::new(Self { start, len: bytes.len() })
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: it was leaked from a box of this length, and no test writes while it reads.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let all = std::ptr::slice_from_raw_parts_mut(self.start.as_ptr(), self.len);
        // SAFETY: it was leaked from a box of this length, and is put back once.
        drop(unsafe { Box::from_raw(all) });
    }
}

// SAFETY: it is an address and its owner; nobody writes without being told to.
unsafe impl Send for Memory {}

// SAFETY: as above.
unsafe impl Sync for Memory {}

fn versioned(memory: &Arc<Memory>) -> NonNull<Versioned> {
    lend_versioned(memory.start, memory.len, Arc::clone(memory))
}

fn legacy(memory: &Arc<Memory>) -> NonNull<Legacy> {
    lend_legacy(memory.start, memory.len, Arc::clone(memory))
}

/// What a consumer does with it: finds the bytes and writes to all of them.
fn fill(tensor: &Tensor, byte: u8) -> usize {
    // SAFETY: the tensor is lent, with its numbers.
    let Some((start, len)) = unsafe { tensor.bytes() }.unwrap() else { return 0 };
    // SAFETY: the memory is the test's, `len` bytes, and nobody else looks at it now.
    unsafe { std::slice::from_raw_parts_mut(start.as_ptr(), len) }.fill(byte);
    len
}

#[test]
fn what_is_lent_is_the_memory_and_is_given_back_once() {
    let memory = Memory::new(&[1; 100]);
    let (new, old) = (versioned(&memory), legacy(&memory));
    assert_eq!(Arc::strong_count(&memory), 3);
    // SAFETY: it is lent and not given back.
    assert_eq!(fill(&unsafe { new.as_ref() }.tensor, 7), 100);
    assert_eq!(memory.bytes(), [7; 100]);
    // SAFETY: as above.
    assert_eq!(fill(&unsafe { old.as_ref() }.tensor, 8), 100);
    // SAFETY: it is ours, and nobody looks at it again.
    unsafe { Taken::Versioned(new).give_back() };
    assert_eq!(memory.bytes(), [8; 100]);
    assert_eq!(Arc::strong_count(&memory), 2);
    // SAFETY: as above.
    unsafe { Taken::Legacy(old).give_back() };
    assert_eq!(Arc::strong_count(&memory), 1);
}

/// The one that gives it back last may be on another thread, and what lent it long gone.
#[test]
fn it_outlives_who_lent_it() {
    struct Sent(NonNull<Versioned>);
    // SAFETY: what keeps the memory may be sent.
    unsafe impl Send for Sent {}

    let memory = Memory::new(&[3; 10]);
    let sent = Sent(versioned(&memory));
    drop(memory);
    let thread = std::thread::spawn(move || {
        let Sent(managed) = { sent };
        // SAFETY: it is lent and not given back.
        let len = fill(&unsafe { managed.as_ref() }.tensor, 4);
        // SAFETY: it is ours, and nobody looks at it again.
        unsafe { Taken::Versioned(managed).give_back() };
        len
    });
    assert_eq!(thread.join().unwrap(), 10);
}

#[test]
fn nothing_is_lent_as_nothing() {
    let memory = Memory::new(&[]);
    let managed = versioned(&memory);
    // SAFETY: it is lent and not given back.
    assert_eq!(fill(&unsafe { managed.as_ref() }.tensor, 9), 0);
    // SAFETY: it is ours, and nobody looks at it again.
    unsafe { Taken::Versioned(managed).give_back() };
    // An exporter may have nothing to give back.
    let mut managed = versioned(&memory);
    // SAFETY: it is lent, and nobody else looks at it.
    let deleter = unsafe { managed.as_mut() }.deleter.take().unwrap();
    // SAFETY: it is ours, and without a deleter nothing becomes of it.
    unsafe { Taken::Versioned(managed).give_back() };
    assert_eq!(Arc::strong_count(&memory), 2);
    // SAFETY: it is ours still, and nobody looks at it again.
    unsafe { deleter(managed.as_ptr()) };
    assert_eq!(Arc::strong_count(&memory), 1);
}

/// Whatever an exporter says, the bytes are those of its memory, or it is refused.
#[test]
fn what_cannot_be_is_refused() {
    type Change = fn(&mut Tensor);
    let changes: [(&str, Change); 9] = [
        ("a device", |tensor| tensor.device.kind = 2),
        ("a type", |tensor| tensor.dtype.code = 2),
        ("lanes", |tensor| tensor.dtype.lanes = 2),
        ("two axes", |tensor| tensor.ndim = 2),
        ("no shape", |tensor| tensor.shape = std::ptr::null_mut()),
        ("no memory", |tensor| tensor.data = std::ptr::null_mut()),
        ("an end beyond", |tensor| tensor.byte_offset = u64::MAX),
        // SAFETY: the shape is one number, of this tensor's own.
        ("a negative length", |tensor| unsafe { tensor.shape.write(-1) }),
        // SAFETY: the strides are one number, of this tensor's own.
        ("another stride", |tensor| unsafe { tensor.strides.write(2) }),
    ];
    let memory = Memory::new(&[5; 16]);
    for (what, change) in changes {
        let mut managed = versioned(&memory);
        // SAFETY: it is lent, and nobody else looks at it.
        let tensor = &mut unsafe { managed.as_mut() }.tensor;
        change(tensor);
        // SAFETY: its shape and strides are null or one number each; with two axes nobody looks.
        let found = unsafe { tensor.bytes() };
        assert!(found.is_err(), "{what}: {found:?}");
        // SAFETY: it is ours, and nobody looks at it again.
        unsafe { Taken::Versioned(managed).give_back() };
    }
    assert_eq!(Arc::strong_count(&memory), 1);
}

/// A slice of a larger array begins further on; one axis without strides is contiguous.
#[test]
fn an_offset_and_absent_strides_are_followed() {
    let memory = Memory::new(&[0; 32]);
    let mut managed = legacy(&memory);
    // SAFETY: it is lent, and nobody else looks at it.
    let tensor = &mut unsafe { managed.as_mut() }.tensor;
    tensor.byte_offset = 8;
    tensor.strides = std::ptr::null_mut();
    // SAFETY: the shape is one number, of this tensor's own.
    unsafe { tensor.shape.write(4) };
    assert_eq!(fill(tensor, 6), 4);
    // SAFETY: it is ours, and nobody looks at it again.
    unsafe { Taken::Legacy(managed).give_back() };
    let expected: Vec<u8> = (0..32).map(|at| if (8..12).contains(&at) { 6 } else { 0 }).collect();
    assert_eq!(memory.bytes(), expected);
}

/// Elements of any type in any shape are their bytes, where they lie row-major; else they are refused.
#[test]
fn elements_are_their_bytes_in_any_shape() {
    /// Shape, strides, bits and lanes, and the bytes that are found.
    type Case = (&'static [i64], &'static [i64], (u8, u16), Option<usize>);
    let cases: [Case; 11] = [
        (&[2, 3], &[3, 1], (32, 1), Some(24)),
        (&[2, 1, 3], &[3, 77, 1], (64, 1), Some(48)),
        (&[], &[], (64, 2), Some(16)),
        (&[5], &[1], (4, 2), Some(5)),
        (&[2, 0, 3], &[9, 9, 9], (8, 1), Some(0)),
        (&[3, 2], &[1, 3], (8, 1), None),
        (&[3, 2], &[-2, 1], (8, 1), None),
        (&[-3, -2], &[2, 1], (8, 1), None),
        (&[3], &[1], (4, 1), None),
        (&[i64::MAX, i64::MAX], &[i64::MAX, 1], (64, 1), None),
        (&[1], &[1], (0, 1), None),
    ];
    let memory = Memory::new(&[7; 48]);
    for (shape, strides, (bits, lanes), expected) in cases {
        let (mut shape, mut strides) = (shape.to_vec(), strides.to_vec());
        let mut managed = versioned(&memory);
        // SAFETY: it is lent, and nobody else looks at it.
        let tensor = &mut unsafe { managed.as_mut() }.tensor;
        let own = (tensor.shape, tensor.strides);
        tensor.ndim = i32::try_from(shape.len()).unwrap();
        (tensor.dtype.bits, tensor.dtype.lanes) = (bits, lanes);
        (tensor.shape, tensor.strides) = (shape.as_mut_ptr(), strides.as_mut_ptr());
        // SAFETY: its shape and strides are `ndim` numbers each.
        let found = unsafe { tensor.elements() };
        let found = found.map(|found| found.map_or(0, |(_, len)| len)).ok();
        assert_eq!(found, expected, "{shape:?} {strides:?} of {bits} bits");
        (tensor.shape, tensor.strides) = own;
        // SAFETY: it is ours, and nobody looks at it again.
        unsafe { Taken::Versioned(managed).give_back() };
    }
    assert_eq!(Arc::strong_count(&memory), 1);
}
