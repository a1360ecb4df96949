//! DLPack's structures, what the addresses in them mean, and how a tensor is lent and given back.
//!
//! It knows no interpreter, so that Miri can run it: `tests/dlpack_layout.rs`. What is in a capsule,
//! and when the interpreter has to be attached, is the business of the module above.

#![allow(unsafe_code, reason = "addresses that C gives and takes; each use carries its proof")]

use std::ffi::c_void;
use std::fmt;
use std::ptr::NonNull;

/// The version of the structures below; a minor one changes no layout.
pub(crate) const VERSION: Version = Version { major: 1, minor: 0 };

/// In `flags`: not to be written to.
pub(crate) const READ_ONLY: u64 = 1;

/// `kDLCPU`.
pub(crate) const CPU: i32 = 1;

/// Kinds of devices whose memory the CPU reaches: its own, and what CUDA and ROCm have pinned.
const HOST: [i32; 3] = [CPU, 3, 11];

/// `kDLUInt`.
pub(crate) const UINT: u8 = 1;

#[repr(C)]
pub(crate) struct Version {
    pub(crate) major: u32,
    pub(crate) minor: u32,
}

#[repr(C)]
pub(crate) struct Device {
    pub(crate) kind: i32,
    pub(crate) id: i32,
}

#[repr(C)]
pub(crate) struct DataType {
    pub(crate) code: u8,
    pub(crate) bits: u8,
    pub(crate) lanes: u16,
}

#[repr(C)]
pub(crate) struct Tensor {
    pub(crate) data: *mut c_void,
    pub(crate) device: Device,
    pub(crate) ndim: i32,
    pub(crate) dtype: DataType,
    pub(crate) shape: *mut i64,
    pub(crate) strides: *mut i64,
    pub(crate) byte_offset: u64,
}

/// Gives a managed tensor back to who exported it.
pub(crate) type Deleter<T> = unsafe extern "C" fn(*mut T);

/// `DLManagedTensorVersioned`.
#[repr(C)]
pub(crate) struct Versioned {
    pub(crate) version: Version,
    pub(crate) context: *mut c_void,
    pub(crate) deleter: Option<Deleter<Versioned>>,
    pub(crate) flags: u64,
    pub(crate) tensor: Tensor,
}

/// `DLManagedTensor`.
#[repr(C)]
pub(crate) struct Legacy {
    pub(crate) tensor: Tensor,
    pub(crate) context: *mut c_void,
    pub(crate) deleter: Option<Deleter<Legacy>>,
}

/// A managed tensor of somebody else, taken out of its capsule or about to be.
#[derive(Clone, Copy)]
pub(crate) enum Taken {
    Versioned(NonNull<Versioned>),
    Legacy(NonNull<Legacy>),
}

/// A tensor that is lent, `T` being a managed one, and what keeps its memory. Consumers know the
/// address of `T`, which is the address of the whole.
#[repr(C)]
struct Exported<T, K> {
    managed: T,
    _numbers: Numbers,
    _keep: K,
}

/// Lends `len` bytes at `start` to whoever calls the deleter; `keep` is dropped then.
pub(crate) fn lend_versioned<K>(start: NonNull<u8>, len: usize, keep: K) -> NonNull<Versioned> {
    lend(start, len, keep, |tensor| Versioned {
        version: VERSION,
        context: std::ptr::null_mut(),
        deleter: Some(delete::<Versioned, K>),
        flags: 0,
        tensor,
    })
}

/// As [`lend_versioned`], for consumers that know of no versions.
pub(crate) fn lend_legacy<K>(start: NonNull<u8>, len: usize, keep: K) -> NonNull<Legacy> {
    lend(start, len, keep, |tensor| Legacy {
        tensor,
        context: std::ptr::null_mut(),
        deleter: Some(delete::<Legacy, K>),
    })
}

fn lend<T, K>(
    start: NonNull<u8>,
    len: usize,
    keep: K,
    managed: impl FnOnce(Tensor) -> T,
) -> NonNull<T> {
    let numbers = Numbers::new(i64::try_from(len).unwrap_or(i64::MAX));
    let managed = managed(Tensor {
        data: start.as_ptr().cast(),
        device: Device { kind: CPU, id: 0 },
        ndim: 1,
        dtype: DataType { code: UINT, bits: 8, lanes: 1 },
        shape: numbers.shape(),
        strides: numbers.strides(),
        byte_offset: 0,
    });
    let exported = Exported { managed, _numbers: numbers, _keep: keep };
    NonNull::from(Box::leak(Box::new(exported))).cast()
}

/// Gives a tensor back that [`lend_versioned`] or [`lend_legacy`] lent.
///
/// # Safety
/// `managed` must have come from one of them, with this `T` and `K`, and be given back once. What
/// keeps its memory must be fit to be dropped here.
pub(crate) unsafe extern "C" fn delete<T, K>(managed: *mut T) {
    // SAFETY: the address is that of an `Exported`, leaked from a box, as the caller ensures.
    drop(unsafe { Box::from_raw(managed.cast::<Exported<T, K>>()) });
}

impl Taken {
    /// Calls the deleter of who lent it, where there is one.
    ///
    /// # Safety
    /// It must be ours, be given back once, and not be looked at again.
    pub(crate) unsafe fn give_back(self) {
        match self {
            Self::Versioned(tensor) => {
                // SAFETY: it is ours, as the caller ensures, so it is still there.
                if let Some(deleter) = unsafe { tensor.as_ref() }.deleter {
                    // SAFETY: as above; nothing looks at it again.
                    unsafe { deleter(tensor.as_ptr()) };
                }
            }
            Self::Legacy(tensor) => {
                // SAFETY: it is ours, as the caller ensures, so it is still there.
                if let Some(deleter) = unsafe { tensor.as_ref() }.deleter {
                    // SAFETY: as above; nothing looks at it again.
                    unsafe { deleter(tensor.as_ptr()) };
                }
            }
        }
    }
}

/// A shape and strides, in an allocation that nothing but addresses refer to.
struct Numbers(NonNull<[i64; 2]>);

impl Numbers {
    fn new(len: i64) -> Self {
        Self(NonNull::from(Box::leak(Box::new([len, 1]))))
    }

    fn shape(&self) -> *mut i64 {
        self.0.as_ptr().cast()
    }

    fn strides(&self) -> *mut i64 {
        self.shape().wrapping_add(1)
    }
}

impl Drop for Numbers {
    fn drop(&mut self) {
        // SAFETY: it was leaked from a box by `new`, and is put back once.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

impl Tensor {
    /// Where its bytes are and how many; `None` for none. It must be of one axis of `uint8`.
    ///
    /// # Errors
    /// What was expected and what is there.
    ///
    /// # Safety
    /// `shape` and `strides` must each be null or lead to `ndim` numbers.
    pub(crate) unsafe fn bytes(&self) -> Result<Option<(NonNull<u8>, usize)>, String> {
        self.check_host()?;
        let DataType { code, bits, lanes } = self.dtype;
        if (code, bits, lanes) != (UINT, 8, 1) {
            return Err(format!("expected an array of uint8, found {}", self.dtype));
        }
        if self.ndim != 1 || self.shape.is_null() {
            return Err(format!("expected an array of one axis, found {}", self.ndim));
        }
        // SAFETY: the shape is of `ndim` numbers, which is one, and is not null.
        let len = unsafe { self.shape.read_unaligned() };
        let stride = match self.strides.is_null() {
            true => 1,
            // SAFETY: the strides are of `ndim` numbers, which is one, and are not null.
            false => unsafe { self.strides.read_unaligned() },
        };
        let wrong = || format!("expected a contiguous array, found {len} items {stride} apart");
        let len = usize::try_from(len).map_err(|_| wrong())?;
        if len > 1 && stride != 1 {
            return Err(wrong());
        }
        self.place(len)
    }

    /// As [`Tensor::bytes`], whatever its axes and elements are, as long as they are whole bytes
    /// that lie row-major, without gaps.
    ///
    /// # Errors
    /// What was expected and what is there.
    ///
    /// # Safety
    /// As [`Tensor::bytes`].
    pub(crate) unsafe fn elements(&self) -> Result<Option<(NonNull<u8>, usize)>, String> {
        self.check_host()?;
        let bits = usize::from(self.dtype.bits).saturating_mul(usize::from(self.dtype.lanes));
        let width = bits / 8;
        if width == 0 || bits % 8 != 0 {
            return Err(format!("expected elements of whole bytes, found {}", self.dtype));
        }
        let axes = usize::try_from(self.ndim)
            .ok()
            .filter(|&axes| axes == 0 || !self.shape.is_null())
            .ok_or_else(|| format!("expected the lengths of {} axes, found none", self.ndim))?;
        let wrong = || "expected an array that lies row-major, without gaps".to_owned();
        let mut count: usize = 1;
        let mut gap = false;
        for axis in (0..axes).rev() {
            // SAFETY: `axis` is below `ndim`, as many numbers as there are, and they are not null.
            let len = unsafe { self.shape.wrapping_add(axis).read_unaligned() };
            let len = usize::try_from(len).map_err(|_| wrong())?;
            if len != 1 && !self.strides.is_null() {
                // SAFETY: `axis` is below `ndim`, as many as there are, and they are not null.
                let stride = unsafe { self.strides.wrapping_add(axis).read_unaligned() };
                gap |= usize::try_from(stride) != Ok(count);
            }
            // Too many are more than any memory, which is found out below.
            count = count.saturating_mul(len);
        }
        if gap && count != 0 {
            return Err(wrong());
        }
        self.place(count.saturating_mul(width))
    }

    fn check_host(&self) -> Result<(), String> {
        let kind = self.device.kind;
        if HOST.contains(&kind) {
            return Ok(());
        }
        Err(format!("expected memory of the CPU, found DLPack's device {kind}"))
    }

    /// Where its `len` bytes begin.
    fn place(&self, len: usize) -> Result<Option<(NonNull<u8>, usize)>, String> {
        if len == 0 {
            return Ok(None);
        }
        let start = usize::try_from(self.byte_offset).ok().and_then(|offset| {
            let data = NonNull::new(self.data.cast::<u8>())?;
            data.addr().checked_add(offset).map(|at| data.with_addr(at))
        });
        match start {
            // No object is longer than `isize`, nor goes around the end of memory.
            Some(start)
                if isize::try_from(len).is_ok() && start.addr().checked_add(len).is_some() =>
            {
                Ok(Some((start, len)))
            }
            _ => Err(format!("expected the address of {len} bytes, found none")),
        }
    }
}

impl fmt::Display for DataType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { code, bits, lanes } = self;
        write!(f, "DLPack's type {code} of {bits} bits and {lanes} lanes")
    }
}
