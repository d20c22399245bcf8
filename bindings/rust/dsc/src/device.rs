//! GPU memory and streams.

use std::ffi::c_void;
use std::fmt;
use std::marker::PhantomData;
use std::mem::size_of;
use std::ops::Range;
use std::ptr;

use dsc_sys as sys;

use crate::comm::Comm;
use crate::data::{Data, DataMut, Element, Sealed, Span};
use crate::error::{Error, Result};
use crate::memory::bytes_of;

/// CUDA's number for its legacy default stream. NULL would not show whether a call is for a GPU.
pub(crate) const LEGACY: usize = 1;

/// A borrowed stream of a GPU, valid for `'s`.
///
/// Operations on memory of the GPU run in stream order. [`Scope::start_on`], [`Comm::start_on`],
/// [`Comm::batch_on`] and [`Comm::enqueue`] take a stream; the other calls use the default stream.
///
/// [`Scope::start_on`]: crate::Scope::start_on
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Stream<'s> {
    handle: usize,
    life: PhantomData<&'s ()>,
}

impl Stream<'static> {
    /// CUDA's legacy default stream on the device that the communicator is bound to.
    pub const fn legacy() -> Self {
        Stream { handle: LEGACY, life: PhantomData }
    }
}

impl<'s> Stream<'s> {
    /// A stream of the program. NULL is the default stream.
    ///
    /// # Safety
    ///
    /// It must be a `CUstream` or `cudaStream_t` of the device that its communicators are bound to. It must not be
    /// destroyed before `'s` ends.
    pub unsafe fn from_raw(stream: *mut c_void) -> Self {
        let handle = if stream.is_null() { LEGACY } else { stream as usize };
        Stream { handle, life: PhantomData }
    }

    /// The stream's pointer, for functions of CUDA.
    pub fn as_raw(self) -> *mut c_void {
        self.handle as *mut c_void
    }
}

impl fmt::Debug for Stream<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Stream({:#x})", self.handle)
    }
}

/// Elements in the memory of the GPU that a communicator is bound to. Made by [`Comm::device_buffer`], freed when
/// dropped.
///
/// Operations accept it like a `Vec`, and hold it until the device no longer uses it. Kernels and copies of the program
/// access its elements by address. The code that queues them must make sure that they end before the buffer is dropped.
///
/// ```no_run
/// use dsc::{request, Op};
///
/// # fn main() -> dsc::Result<()> {
/// let world = dsc::InitOptions::new().backend(dsc::Backend::Device).init()?;
/// let mut x = world.device_buffer::<f32>(1 << 20)?; // zeroed
/// world.all_reduce(&mut x, Op::Sum)?; // waits until the GPU is done
/// let stream = dsc::Stream::legacy(); // or your own stream, by Stream::from_raw
/// world.scope(|scope| -> dsc::Result<()> {
///     let sum = scope.start_on(request::all_reduce(&mut x, Op::Sum), stream)?; // after earlier work on the stream
///     sum.wait_on(stream) // later work on the stream sees the sums; the end of the scope waits
/// })?;
/// world.finalize()
/// # }
/// ```
pub struct DeviceBuffer<T: Element> {
    elements: DeviceSlice<'static, T>,
}

/// Borrowed elements in GPU memory, valid for `'m`: memory of another library, or a part of a [`DeviceBuffer`].
pub struct DeviceSlice<'m, T: Element> {
    address: usize,
    len: usize,
    device: u32,
    memory: PhantomData<&'m mut T>,
}

impl Comm {
    /// Allocates `len` zeroed elements on the GPU that this communicator is bound to. They are registered with NCCL if
    /// possible. Collective; the number of bytes must be equal on all ranks.
    #[doc(alias = "dsc_mem_alloc")]
    pub fn device_buffer<T: Element>(&self, len: usize) -> Result<DeviceBuffer<T>> {
        let memory = self.allocate(bytes_of::<T>(len)?, sys::DSC_MEMORY_KIND_DEVICE)?;
        let device = self.device()?.unwrap_or(0);
        let (address, memory) = (memory.as_ptr() as usize, PhantomData);
        Ok(DeviceBuffer { elements: DeviceSlice { address, len, device, memory } })
    }
}

impl<T: Element> DeviceBuffer<T> {
    /// The number of elements.
    pub fn len(&self) -> usize {
        self.elements.len
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.elements.len == 0
    }

    /// The number of the GPU, as CUDA numbers devices in this process.
    pub fn device(&self) -> u32 {
        self.elements.device
    }

    /// The address on the device.
    pub fn as_ptr(&self) -> *mut T {
        self.elements.as_ptr()
    }

    /// Returns a part of the elements.
    pub fn slice(&mut self, part: Range<usize>) -> Result<DeviceSlice<'_, T>> {
        self.elements.slice(part)
    }
}

impl<'m, T: Element> DeviceSlice<'m, T> {
    /// Uses memory of another library.
    ///
    /// # Safety
    ///
    /// There must be `len` elements at this address of the device. During `'m` they must not be freed, and only work
    /// that is ordered on streams may use them.
    pub unsafe fn from_raw(address: *mut T, len: usize, device: u32) -> Self {
        DeviceSlice { address: address as usize, len, device, memory: PhantomData }
    }

    /// The number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The number of the GPU, as CUDA numbers devices in this process.
    pub fn device(&self) -> u32 {
        self.device
    }

    /// The address on the device.
    pub fn as_ptr(&self) -> *mut T {
        self.address as *mut T
    }

    /// Returns a part of the elements.
    pub fn slice(&mut self, part: Range<usize>) -> Result<DeviceSlice<'_, T>> {
        if part.start > part.end || part.end > self.len {
            let text = format!("slice: the range is {:?}; expected a range within {} elements", part, self.len);
            return Err(Error::invalid(text));
        }
        let address = self.address + part.start * size_of::<T>();
        Ok(DeviceSlice { address, len: part.len(), device: self.device, memory: PhantomData })
    }
}

impl<T: Element> Drop for DeviceBuffer<T> {
    fn drop(&mut self) {
        // SAFETY: the memory is from dsc_mem_alloc, and no operation uses it. An operation borrows or owns the buffer
        // until the device is done, or its caller guarantees that.
        unsafe { sys::dsc_mem_free(self.elements.address as *mut c_void) };
    }
}

impl<T: Element> Sealed for DeviceSlice<'_, T> {}
impl<T: Element> Data for DeviceSlice<'_, T> {
    type Kind = T;
    fn span(&self) -> Span {
        let ptr = if self.len == 0 { ptr::null_mut() } else { self.address as *mut c_void };
        Span { ptr, count: self.len, dtype: T::DTYPE, device: self.device as i32 }
    }
}
impl<T: Element> DataMut for DeviceSlice<'_, T> {
    fn span_mut(&mut self) -> Span {
        self.span()
    }
}

impl<T: Element> Sealed for DeviceBuffer<T> {}
impl<T: Element> Data for DeviceBuffer<T> {
    type Kind = T;
    fn span(&self) -> Span {
        self.elements.span()
    }
}
impl<T: Element> DataMut for DeviceBuffer<T> {
    fn span_mut(&mut self) -> Span {
        self.elements.span()
    }
}

impl<T: Element> fmt::Debug for DeviceSlice<'_, T> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} elements of {:?} on device {}", self.len, T::DTYPE, self.device)
    }
}

impl<T: Element> fmt::Debug for DeviceBuffer<T> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.elements.fmt(out)
    }
}
