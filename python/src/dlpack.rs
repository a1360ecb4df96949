//! Memory of Python arrays, through DLPack: with [`layout`] and [`stream`] all of the package's
//! unsafe code.
//!
//! It knows capsules and who owns what is in them. It must not know tensors: what is lent or
//! borrowed are 1-D runs of bytes.
//!
//! What a [`Bytes`] or [`BytesMut`] gives are slices of memory that an array of Python's owns. The
//! array stays alive, so the memory stays. But Python code that writes to the same array on another
//! thread meanwhile is a data race that nothing here can see; the package's own wrappers never do,
//! and its documentation forbids it to everybody else.

#![allow(unsafe_code, reason = "a capsule is a C pointer by nature; each call carries its proof")]

mod layout;
mod stream;

use std::ffi::CStr;
use std::fmt;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;

use pyo3::exceptions::{PyAttributeError, PyTypeError};
use pyo3::types::{PyBytes, PyCapsule, PyDict};
use pyo3::{ffi, intern, prelude::*};
use waystation_format::Identity;
use waystation_reader::{Checkpoint, PrivateView};

use crate::errors::{Result, usage, usage_because};

pub(crate) use layout::CPU;
use layout::{Legacy, READ_ONLY, Taken, Tensor, VERSION, Versioned};

/// A capsule nobody took yet, and one that is taken; with a version and as it was before.
const VERSIONED: [&CStr; 2] = [c"dltensor_versioned", c"used_dltensor_versioned"];
const LEGACY: [&CStr; 2] = [c"dltensor", c"used_dltensor"];

/// Bytes to read from.
pub(crate) struct Bytes(Borrowed);

/// Bytes to write to, not read-only.
pub(crate) struct BytesMut(Borrowed);

/// A run of memory, and what keeps it.
struct Borrowed {
    start: NonNull<u8>,
    len: usize,
    read_only: bool,
    _keep: Keep,
}

/// What keeps borrowed memory alive.
enum Keep {
    /// Nothing: there is none.
    Nothing,
    /// Bytes never change and never move.
    Bytes { _object: Py<PyBytes> },
    /// A tensor that was taken out of its capsule.
    Tensor { _taken: Owned },
}

/// A managed tensor that is ours to give back.
struct Owned(Taken);

// SAFETY: a `Borrowed` is an address and what keeps it valid. `Py` may be sent; what was taken out
// of a capsule is only ever given back, with the interpreter attached, which is where exporters
// expect it.
unsafe impl Send for Borrowed {}

// SAFETY: a shared `Borrowed` gives nothing but shared slices.
unsafe impl Sync for Borrowed {}

impl Bytes {
    /// The bytes of a `bytes` object, or of an array that speaks DLPack: one axis of contiguous
    /// `uint8` in memory of the CPU.
    ///
    /// # Errors
    /// `bad-argument` for anything else.
    pub(crate) fn of(object: &Bound<'_, PyAny>) -> Result<Self> {
        Self::lent(object, Form::Bytes)
    }

    /// As [`Bytes::of`], of elements of any type in any shape, row-major in memory of the CPU; also
    /// of a capsule that nobody took yet.
    ///
    /// # Errors
    /// `bad-argument` for anything else.
    pub(crate) fn of_elements(object: &Bound<'_, PyAny>) -> Result<Self> {
        match object.cast::<PyCapsule>() {
            Ok(capsule) => Borrowed::take_out(capsule, Form::Elements).map(Self),
            Err(_) => Self::lent(object, Form::Elements),
        }
    }

    fn lent(object: &Bound<'_, PyAny>, form: Form) -> Result<Self> {
        if let Ok(bytes) = object.cast::<PyBytes>() {
            let slice = bytes.as_bytes();
            let start = NonNull::from(slice).cast();
            let keep = Keep::Bytes { _object: bytes.clone().unbind() };
            return Ok(Self(Borrowed { start, len: slice.len(), read_only: true, _keep: keep }));
        }
        Borrowed::of(object, form).map(Self)
    }

    pub(crate) fn as_slice(&self) -> &[u8] {
        // SAFETY: the memory is `len` bytes at `start`, as checked when it was borrowed, and stays
        // while `self` does. That nobody writes to it meanwhile is what the module's documentation
        // asks of Python code.
        unsafe { std::slice::from_raw_parts(self.0.start.as_ptr(), self.0.len) }
    }

    fn addresses(&self) -> Range<usize> {
        self.0.addresses()
    }
}

impl BytesMut {
    /// The bytes of an array that speaks DLPack and may be written to: one axis of contiguous
    /// `uint8` in memory of the CPU. Two of one call must be [`apart`].
    ///
    /// # Errors
    /// `bad-argument` for anything else.
    pub(crate) fn of(object: &Bound<'_, PyAny>) -> Result<Self> {
        let borrowed = Borrowed::of(object, Form::Bytes)?;
        if borrowed.read_only {
            return Err(usage(
                "expected an array that can be written to, found one that is read-only",
            ));
        }
        Ok(Self(borrowed))
    }

    pub(crate) fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: the memory is `len` writable bytes at `start`, as checked when it was borrowed,
        // and stays while `self` does. Others of the same call do not overlap it, for callers check
        // `apart`; that nobody else touches it meanwhile is what the module's documentation asks of
        // Python code.
        unsafe { std::slice::from_raw_parts_mut(self.0.start.as_ptr(), self.0.len) }
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len
    }

    /// Its parts, one after another.
    pub(crate) fn parts(&mut self) -> Parts<'_> {
        Parts { memory: self, given: 0 }
    }

    fn addresses(&self) -> Range<usize> {
        self.0.addresses()
    }
}

/// Memory to write to, of which parts are given away: each of them once, to be written to on
/// whatever thread. What lies between them stays untouched.
pub(crate) struct Parts<'a> {
    memory: &'a mut BytesMut,
    /// Up to here all is given away, or was passed over.
    given: usize,
}

/// Memory for one source.
pub(crate) struct Part<'a>(&'a mut [u8]);

impl<'a> Parts<'a> {
    /// The part for all of `source` at `at`, which must lie behind all parts before.
    ///
    /// # Errors
    /// `bad-argument` where it does not, where it ends behind the memory, and for a source that
    /// overlaps the memory.
    pub(crate) fn next(&mut self, at: usize, source: &Bytes) -> Result<Part<'a>> {
        let (len, read, all) = (source.0.len, source.0.addresses(), self.memory.addresses());
        let end = at.checked_add(len).filter(|&end| at >= self.given && end <= self.memory.len());
        let Some(end) = end else {
            let (from, to) = (self.given, self.memory.len());
            return Err(usage(format!(
                "expected a place for {len} bytes from {from} to {to}, found one at {at}"
            )));
        };
        if !read.is_empty() && read.start < all.end && all.start < read.end {
            return Err(usage(
                "expected sources apart from the memory, found one that overlaps it",
            ));
        }
        self.given = end;
        let start = self.memory.0.start.as_ptr().wrapping_add(at);
        // SAFETY: these are `len` of the bytes of the memory, which are writable and stay while it
        // is borrowed, `'a`. Nobody else has them: `self` has all of the memory to itself, no part
        // before reaches beyond `at`, and none after begins before `end`.
        Ok(Part(unsafe { std::slice::from_raw_parts_mut(start, len) }))
    }
}

impl<'a> Part<'a> {
    /// The first `len` bytes, or all there are, and the rest.
    pub(crate) fn split(self, len: usize) -> (Self, Self) {
        let (first, rest) = self.0.split_at_mut(len.min(self.0.len()));
        (Self(first), Self(rest))
    }

    /// Copies `source` to where it belongs, past the caches: it is written to a file later.
    pub(crate) fn fill(self, source: &[u8]) {
        stream::copy(source, self.0);
    }
}

/// Memory that is lent to arrays: a tensor's private mapping. It may be lent any number of times;
/// all arrays of it then see what one of them writes, as arrays of one memory do.
pub(crate) struct Lent {
    start: NonNull<u8>,
    len: usize,
    /// Never looked at again, so that no reference of ours meets what arrays write.
    _view: PrivateView,
}

// SAFETY: it is an address and the mapping behind it, which may be sent and unmapped from any
// thread. Nothing here reads or writes the memory once it is lent.
unsafe impl Send for Lent {}

// SAFETY: as above; a shared `Lent` gives away an address and nothing else.
unsafe impl Sync for Lent {}

impl Lent {
    /// Maps a tensor of `checkpoint`, every block checked.
    ///
    /// # Errors
    /// As `Checkpoint::map_private`.
    pub(crate) fn map(
        checkpoint: &Checkpoint,
        tensor: &Identity,
    ) -> waystation_format::Result<Arc<Self>> {
        // SAFETY: that nobody writes to or truncates a shard while it is mapped is what the
        // documentation of `map` asks of the caller, who opted in; conforming writers never do.
        let mut view = unsafe { checkpoint.map_private(tensor) }?;
        let bytes = view.as_mut_slice();
        let (start, len) = (NonNull::from(&mut *bytes).cast(), bytes.len());
        Ok(Arc::new(Self { start, len, _view: view }))
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// A new capsule of the memory, as bytes of one axis; with a version when the consumer knows of
    /// versions.
    pub(crate) fn capsule<'py>(
        self: &Arc<Self>,
        py: Python<'py>,
        versioned: bool,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        if versioned {
            let managed = layout::lend_versioned(self.start, self.len, Arc::clone(self));
            // SAFETY: lent just now; the destructor is that of such a tensor.
            return unsafe { into_capsule(py, managed, VERSIONED[0], destroy_versioned) };
        }
        let managed = layout::lend_legacy(self.start, self.len, Arc::clone(self));
        // SAFETY: lent just now; the destructor is that of such a tensor.
        unsafe { into_capsule(py, managed, LEGACY[0], destroy_legacy) }
    }
}

/// Puts a tensor of [`Lent`] into a capsule.
///
/// # Safety
/// `managed` must be lent just now with an `Arc<Lent>`, and `destroy` give back what is left of one.
unsafe fn into_capsule<'py, T>(
    py: Python<'py>,
    managed: NonNull<T>,
    name: &'static CStr,
    destroy: ffi::PyCapsule_Destructor,
) -> PyResult<Bound<'py, PyCapsule>> {
    // SAFETY: the address is that of a managed tensor, which lives until its deleter is called: by
    // the consumer that renamed the capsule, or by `destroy` when nobody did. All of it may be
    // dropped on any thread.
    let made = unsafe {
        PyCapsule::new_with_pointer_and_destructor(py, managed.cast(), name, Some(destroy))
    };
    if made.is_err() {
        // SAFETY: it was lent just now, as the caller ensures, and no capsule has it.
        unsafe { layout::delete::<T, Arc<Lent>>(managed.as_ptr()) };
    }
    made
}

/// # Safety
/// As the destructor of a capsule that [`into_capsule`] made.
unsafe extern "C" fn destroy_versioned(capsule: *mut ffi::PyObject) {
    // SAFETY: it is such a capsule.
    if let Some(managed) = unsafe { left::<Versioned>(capsule, VERSIONED[0]) } {
        // SAFETY: nobody took it out of the capsule, which is no more.
        unsafe { layout::delete::<_, Arc<Lent>>(managed) };
    }
}

/// # Safety
/// As the destructor of a capsule that [`into_capsule`] made.
unsafe extern "C" fn destroy_legacy(capsule: *mut ffi::PyObject) {
    // SAFETY: it is such a capsule.
    if let Some(managed) = unsafe { left::<Legacy>(capsule, LEGACY[0]) } {
        // SAFETY: nobody took it out of the capsule, which is no more.
        unsafe { layout::delete::<_, Arc<Lent>>(managed) };
    }
}

/// What is left in a capsule: nothing when a consumer renamed it.
///
/// # Safety
/// `capsule` must be one, and the interpreter attached.
unsafe fn left<T>(capsule: *mut ffi::PyObject, name: &CStr) -> Option<*mut T> {
    // SAFETY: it is a capsule, as the caller ensures, and the name is a C string.
    if unsafe { ffi::PyCapsule_IsValid(capsule, name.as_ptr()) } == 0 {
        return None;
    }
    // SAFETY: as above.
    let pointer = unsafe { ffi::PyCapsule_GetPointer(capsule, name.as_ptr()) };
    Some(pointer.cast()).filter(|pointer: &*mut T| !pointer.is_null())
}

/// Checks that nothing that is written to overlaps anything else that is.
///
/// # Errors
/// `bad-argument` where two do.
pub(crate) fn apart(destinations: &[BytesMut]) -> Result<()> {
    let mut written: Vec<Range<usize>> = destinations.iter().map(BytesMut::addresses).collect();
    written.retain(|range| !range.is_empty());
    written.sort_unstable_by_key(|range| range.start);
    let mut end = 0;
    for range in written {
        if range.start < end {
            return Err(usage(
                "expected destinations apart from one another, found two that overlap",
            ));
        }
        end = range.end;
    }
    Ok(())
}

/// What an array has to be.
#[derive(Clone, Copy)]
enum Form {
    /// One axis of contiguous `uint8`.
    Bytes,
    /// Elements of whole bytes, row-major.
    Elements,
}

impl Borrowed {
    /// Takes the tensor out of the capsule that an array gives.
    fn of(object: &Bound<'_, PyAny>, form: Form) -> Result<Self> {
        let capsule = capsule(object)?;
        let capsule = capsule.cast::<PyCapsule>().map_err(|_| {
            usage(format!("expected __dlpack__ to give a capsule, found {}", type_name(&capsule)))
        })?;
        Self::take_out(capsule, form)
    }

    /// Takes the tensor out of a capsule.
    fn take_out(capsule: &Bound<'_, PyCapsule>, form: Form) -> Result<Self> {
        let [name, used] = VERSIONED;
        if let Some(tensor) = named::<Versioned>(capsule, name)? {
            // SAFETY: a capsule of this name holds a managed tensor of whatever version; the
            // version comes first in all of them.
            let version = unsafe { (*tensor.as_ptr()).version.major };
            if version != VERSION.major {
                return Err(usage(format!("expected DLPack {}, found {version}", VERSION.major)));
            }
            // SAFETY: of this major version the layout is the one declared above.
            let managed = unsafe { tensor.as_ref() };
            let read_only = managed.flags & READ_ONLY != 0;
            let taken = Taken::Versioned(tensor);
            return Self::take(capsule, used, taken, &managed.tensor, read_only, form);
        }
        let [name, used] = LEGACY;
        if let Some(tensor) = named::<Legacy>(capsule, name)? {
            // SAFETY: a capsule of this name holds a managed tensor of the layout declared above.
            let managed = unsafe { tensor.as_ref() };
            // Exporters refuse to export read-only memory in this form, which cannot say it.
            return Self::take(capsule, used, Taken::Legacy(tensor), &managed.tensor, false, form);
        }
        Err(usage("expected a capsule that nobody took before, found one of another name"))
    }

    /// Checks `tensor`, and only then renames the capsule: from there on it is ours to give back.
    fn take(
        capsule: &Bound<'_, PyCapsule>,
        used: &'static CStr,
        taken: Taken,
        tensor: &Tensor,
        read_only: bool,
        form: Form,
    ) -> Result<Self> {
        let bytes = match form {
            // SAFETY: the tensor is one that an exporter put into a capsule, as DLPack defines it.
            Form::Bytes => unsafe { tensor.bytes() },
            // SAFETY: as above.
            Form::Elements => unsafe { tensor.elements() },
        }
        .map_err(usage)?;
        // SAFETY: it is a capsule, the interpreter is attached, and the name lives forever.
        let renamed = unsafe { ffi::PyCapsule_SetName(capsule.as_ptr(), used.as_ptr()) };
        if renamed != 0 {
            return Err(PyErr::fetch(capsule.py()).into());
        }
        let keep = Keep::Tensor { _taken: Owned(taken) };
        let Some((start, len)) = bytes else {
            return Ok(Self {
                start: NonNull::dangling(),
                len: 0,
                read_only,
                _keep: Keep::Nothing,
            });
        };
        Ok(Self { start, len, read_only, _keep: keep })
    }

    fn addresses(&self) -> Range<usize> {
        let start = self.start.as_ptr().addr();
        start..start.saturating_add(self.len)
    }
}

/// The pointer in a capsule of this name; `None` when it has another.
fn named<T>(capsule: &Bound<'_, PyCapsule>, name: &CStr) -> Result<Option<NonNull<T>>> {
    // SAFETY: it is a capsule, the interpreter is attached, and the name is a C string.
    if unsafe { ffi::PyCapsule_IsValid(capsule.as_ptr(), name.as_ptr()) } == 0 {
        return Ok(None);
    }
    // SAFETY: as above.
    let pointer = unsafe { ffi::PyCapsule_GetPointer(capsule.as_ptr(), name.as_ptr()) };
    match NonNull::new(pointer.cast::<T>()) {
        Some(pointer) if pointer.as_ptr().is_aligned() => Ok(Some(pointer)),
        _ => Err(usage("expected a capsule with an aligned pointer in it, found none")),
    }
}

/// The capsule that an array gives of itself.
fn capsule<'py>(object: &Bound<'py, PyAny>) -> Result<Bound<'py, PyAny>> {
    let py = object.py();
    let export = match object.getattr(intern!(py, "__dlpack__")) {
        Ok(export) => export,
        Err(error) if error.is_instance_of::<PyAttributeError>(py) => {
            let found = type_name(object);
            return Err(usage(format!(
                "expected bytes or an array that speaks DLPack, found {found}"
            )));
        }
        Err(error) => return Err(error.into()),
    };
    let version = PyDict::new(py);
    version.set_item(intern!(py, "max_version"), (VERSION.major, VERSION.minor))?;
    let capsule = match export.call((), Some(&version)) {
        // Who does not know of versions gives what there was before.
        Err(error) if error.is_instance_of::<PyTypeError>(py) => export.call0(),
        other => other,
    };
    capsule.map_err(|cause| {
        let found = type_name(object);
        let message =
            format!("expected an array that lends its memory, found {found} that does not");
        usage_because(py, &message, cause)
    })
}

fn type_name(object: &Bound<'_, PyAny>) -> String {
    object.get_type().name().map_or_else(|_| "an object".to_owned(), |name| name.to_string())
}

impl Drop for Owned {
    fn drop(&mut self) {
        // Exporters count references in it. Of an interpreter that is gone the memory is gone too.
        Python::try_attach(|_| {
            // SAFETY: it was taken out of its capsule, so it is ours; this is the one time that it
            // is given back, and the last that it is looked at.
            unsafe { self.0.give_back() };
        });
    }
}

impl fmt::Debug for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Bytes").field(&self.addresses()).finish()
    }
}

impl fmt::Debug for Lent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lent").field("bytes", &self.len).finish()
    }
}

impl fmt::Debug for BytesMut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("BytesMut").field(&self.addresses()).finish()
    }
}
