//! Memory that all ranks on a host can access.

use std::ffi::c_void;
use std::fmt;
use std::mem::size_of;
use std::ops::{Deref, DerefMut};
use std::ptr::{self, NonNull};
use std::slice;

use dsc_sys as sys;

use crate::comm::Comm;
use crate::data::Element;
use crate::error::{Error, Result};
use crate::numbers::ErrorCode;

/// Elements in memory that operations transfer without copying. It is used as a slice.
///
/// Only operations of this rank access it, so it is as safe as a `Vec`. It may outlive its communicator, and is freed
/// when dropped. The buffers of other ranks are not affected.
///
/// ```
/// # fn main() -> dsc::Result<()> {
/// let world = dsc::init()?;
/// let mut x = world.shared_buffer::<f32>(1 << 20)?; // zeroed
/// x.fill(1.0);
/// world.all_reduce(&mut x, dsc::Op::Sum)?;
/// assert_eq!(x[0], world.size() as f32);
/// world.finalize()
/// # }
/// ```
pub struct SharedBuffer<T: Element> {
    memory: NonNull<T>,
    len: usize,
}

// SAFETY: it owns its memory like a Vec, and any thread may free it.
unsafe impl<T: Element> Send for SharedBuffer<T> {}
// SAFETY: as above; shared references only allow reading.
unsafe impl<T: Element> Sync for SharedBuffer<T> {}

impl Comm {
    /// Allocates `len` zeroed elements. Operations of this communicator, and of all groups made from it, transfer them
    /// without copying. Collective; the number of bytes must be equal on all ranks.
    #[doc(alias = "dsc_mem_alloc")]
    pub fn shared_buffer<T: Element>(&self, len: usize) -> Result<SharedBuffer<T>> {
        let memory = self.allocate(bytes_of::<T>(len)?, sys::DSC_MEMORY_KIND_HOST)?.cast();
        Ok(SharedBuffer { memory, len })
    }

    /// Lets operations of this communicator, and of all groups made from it, transfer `data` without copying, until the
    /// result is dropped. Collective; the number of bytes must be equal on all ranks.
    ///
    /// `data` keeps its address and its contents. Memory that a file backs, and stacks, are refused. A child made by
    /// `fork()` shares the memory instead of getting a copy. If the result is leaked, operations on memory that later
    /// gets the same address transfer the wrong elements.
    ///
    /// ```
    /// # fn main() -> dsc::Result<()> {
    /// let world = dsc::init()?;
    /// let mut weights = vec![1.0f32; 1 << 20];
    /// let mut x = world.register(&mut weights)?;
    /// world.all_reduce(&mut x, dsc::Op::Sum)?;
    /// drop(x);
    /// assert_eq!(weights[0], world.size() as f32);
    /// world.finalize()
    /// # }
    /// ```
    #[doc(alias = "dsc_mem_register")]
    pub fn register<'a, T: Element>(&self, data: &'a mut [T]) -> Result<Registered<'a, T>> {
        let bytes = std::mem::size_of_val(data);
        // SAFETY: the exclusive borrow keeps the memory valid, and other threads from it, until the result is dropped.
        let result = unsafe { sys::dsc_mem_register(self.raw(), data.as_mut_ptr().cast(), bytes) };
        self.check(result, "mem_register")?;
        Ok(Registered { data })
    }

    pub(crate) fn allocate(&self, bytes: usize, kind: i32) -> Result<NonNull<c_void>> {
        let mut memory = ptr::null_mut();
        // SAFETY: memory outlives the call.
        let result = unsafe { sys::dsc_mem_alloc(self.raw(), bytes.max(1), kind, &mut memory) };
        self.check(result, "mem_alloc")?;
        NonNull::new(memory)
            .ok_or_else(|| Error::new(ErrorCode::Internal, "the library returned neither memory nor an error".into()))
    }
}

/// Elements of the program that operations transfer without copying, made by [`Comm::register()`]. It is used as a
/// slice.
pub struct Registered<'a, T: Element> {
    data: &'a mut [T],
}

impl<T: Element> Deref for Registered<'_, T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        self.data
    }
}

impl<T: Element> DerefMut for Registered<'_, T> {
    fn deref_mut(&mut self) -> &mut [T] {
        self.data
    }
}

impl<T: Element> Drop for Registered<'_, T> {
    fn drop(&mut self) {
        // SAFETY: the memory is registered. No operation uses it, because an operation borrows the slice.
        unsafe { sys::dsc_mem_unregister(self.data.as_mut_ptr().cast()) };
    }
}

impl<T: Element + fmt::Debug> fmt::Debug for Registered<'_, T> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, out)
    }
}

pub(crate) fn bytes_of<T>(len: usize) -> Result<usize> {
    len.checked_mul(size_of::<T>())
        .ok_or_else(|| Error::new(ErrorCode::Overflow, format!("{} elements do not fit into memory", len)))
}

impl<T: Element> Deref for SharedBuffer<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: the memory has len elements, is aligned to a page and zeroed at first. Every bit pattern is a valid
        // value.
        unsafe { slice::from_raw_parts(self.memory.as_ptr(), self.len) }
    }
}

impl<T: Element> DerefMut for SharedBuffer<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as in deref(), and self is borrowed mutably.
        unsafe { slice::from_raw_parts_mut(self.memory.as_ptr(), self.len) }
    }
}

impl<T: Element> Drop for SharedBuffer<T> {
    fn drop(&mut self) {
        // SAFETY: the memory is from dsc_mem_alloc. No operation uses it, because an operation borrows or owns the
        // buffer.
        unsafe { sys::dsc_mem_free(self.memory.as_ptr().cast()) };
    }
}

impl<T: Element + fmt::Debug> fmt::Debug for SharedBuffer<T> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, out)
    }
}
