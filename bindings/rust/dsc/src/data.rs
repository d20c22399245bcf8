//! Buffers of operations: numbers, slices, and bytes with an element type.

use std::ffi::c_void;

use crate::error::{Error, Result};
use crate::numbers::Dtype;

pub(crate) mod sealed {
    /// Only this crate can implement a trait that requires this one. The library relies on the guarantees of its own
    /// implementations.
    pub trait Sealed {}

    /// The location of a buffer, for the C interface.
    #[derive(Clone, Copy, Debug)]
    pub struct Span {
        pub ptr: *mut std::ffi::c_void,
        pub count: usize,
        pub dtype: crate::Dtype,
        /// The number of its GPU, or [`HOST`](crate::data::HOST).
        pub device: i32,
    }
}

pub(crate) use sealed::{Sealed, Span};

pub(crate) const HOST: i32 = -1;

impl Span {
    /// Returns the span of a missing buffer.
    pub(crate) fn none() -> Self {
        Span { ptr: std::ptr::null_mut(), count: 0, dtype: Dtype::U8, device: HOST }
    }

    pub(crate) fn of<T: Element>(ptr: *const T, count: usize) -> Self {
        Span { ptr: ptr as *mut c_void, count, dtype: T::DTYPE, device: HOST }
    }

    /// Returns the part of `count` elements from the given element on. It must be inside the buffer.
    pub(crate) fn part(self, start: usize, count: usize) -> Self {
        let bytes = start * self.dtype.bytes();
        Span { ptr: (self.ptr as *mut u8).wrapping_add(bytes).cast(), count, ..self }
    }

    pub(crate) fn is_on_device(self) -> bool {
        self.device != HOST
    }

    /// Returns the default stream for an operation on both buffers. Empty buffers on a GPU have no address, so only the
    /// stream shows that they are on a GPU.
    pub(crate) fn default_stream(self, other: Self) -> *mut std::ffi::c_void {
        if self.is_on_device() || other.is_on_device() {
            crate::device::LEGACY as *mut std::ffi::c_void
        } else {
            std::ptr::null_mut()
        }
    }
}

/// A number type of the library. Every bit pattern is a valid value, and there is no padding. With the feature `half`,
/// the types `f16` and `bf16` of the crate `half` are elements, too.
pub trait Element: Copy + Send + Sync + DataMut<Kind = Self> + 'static {
    /// The type's number in the C interface.
    const DTYPE: Dtype;
}

/// Memory that operations read: a number, an array, a slice, a `Vec`, a [`SharedBuffer`](crate::SharedBuffer), a
/// [`DeviceBuffer`](crate::DeviceBuffer) or [`DeviceSlice`](crate::DeviceSlice), a [`Raw`], or a reference to one of
/// them.
pub trait Data: Sealed {
    /// The element type, or [`RawElement`]. All buffers of one operation must have the same kind.
    type Kind;

    /// Returns the location of the memory.
    #[doc(hidden)]
    fn span(&self) -> Span;
}

/// Memory that operations write.
pub trait DataMut: Data {
    /// Returns the location of the memory, for writing.
    #[doc(hidden)]
    fn span_mut(&mut self) -> Span;
}

macro_rules! elements {
    ($($number:ty = $dtype:ident),+) => {$(
        impl Sealed for $number {}
        impl Element for $number {
            const DTYPE: Dtype = Dtype::$dtype;
        }
        impl Data for $number {
            type Kind = $number;
            fn span(&self) -> Span {
                Span::of(self, 1)
            }
        }
        impl DataMut for $number {
            fn span_mut(&mut self) -> Span {
                Span::of(self as *mut $number, 1)
            }
        }
    )+};
}

elements! { i8 = I8, u8 = U8, i32 = I32, u32 = U32, i64 = I64, u64 = U64, f32 = F32, f64 = F64 }

#[cfg(feature = "half")]
elements! { half::f16 = F16, half::bf16 = Bf16 }

macro_rules! slices {
    ($([$($parameters:tt)*] $list:ty,)+) => {$(
        impl<$($parameters)*> Sealed for $list {}
        impl<$($parameters)*> Data for $list {
            type Kind = T;
            fn span(&self) -> Span {
                Span::of(self.as_ptr(), self.len())
            }
        }
        impl<$($parameters)*> DataMut for $list {
            fn span_mut(&mut self) -> Span {
                Span::of(self.as_mut_ptr(), self.len())
            }
        }
    )+};
}

slices! {
    [T: Element] [T],
    [T: Element, const N: usize] [T; N],
    [T: Element] Vec<T>,
    [T: Element] crate::memory::SharedBuffer<T>,
    ['a, T: Element] crate::memory::Registered<'a, T>,
}

impl<B: Sealed> Sealed for Option<B> {} // for optional buffers, such as a result that not every program needs

impl<D: Data + ?Sized> Sealed for &D {}
impl<D: Data + ?Sized> Data for &D {
    type Kind = D::Kind;
    fn span(&self) -> Span {
        (**self).span()
    }
}

impl<D: Data + ?Sized> Sealed for &mut D {}
impl<D: Data + ?Sized> Data for &mut D {
    type Kind = D::Kind;
    fn span(&self) -> Span {
        (**self).span()
    }
}
impl<D: DataMut + ?Sized> DataMut for &mut D {
    fn span_mut(&mut self) -> Span {
        (**self).span_mut()
    }
}

/// The kind of [`Raw`] buffers, whose element type is known only at run time.
#[derive(Clone, Copy, Debug)]
pub enum RawElement {}

/// Bytes that hold elements of a type that Rust lacks, or that is known only at run time.
///
/// ```
/// # fn main() -> dsc::Result<()> {
/// let world = dsc::init()?;
/// let mut halves = [0x3f80u16.to_ne_bytes(), 0x4000u16.to_ne_bytes()].concat(); // 1.0 and 2.0 in bfloat16
/// let mut data = dsc::Raw::new(&mut halves, dsc::Dtype::Bf16)?;
/// world.all_reduce(&mut data, dsc::Op::Sum)?;
/// world.finalize()
/// # }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Raw<B> {
    pub(crate) bytes: B,
    dtype: Dtype,
}

impl<B: Data<Kind = u8>> Raw<B> {
    /// Gives bytes an element type; fails if their length is not a multiple of the element size.
    pub fn new(bytes: B, dtype: Dtype) -> Result<Self> {
        let (len, size) = (bytes.span().count, dtype.bytes());
        if size == 0 {
            return Err(Error::invalid(format!(
                "Raw::new: {} is not the number of an element type of this library",
                dtype.number()
            )));
        }
        if len % size != 0 {
            let expected = format!("a multiple of {}, the size of {:?}", size, dtype);
            return Err(Error::invalid(format!("Raw::new: there are {} bytes; expected {}", len, expected)));
        }
        Ok(Raw { bytes, dtype })
    }

    /// Returns the bytes.
    pub fn into_inner(self) -> B {
        self.bytes
    }

    fn retyped(&self, bytes: Span) -> Span {
        Span { count: bytes.count / self.dtype.bytes(), dtype: self.dtype, ..bytes }
    }
}

impl<B: Data<Kind = u8>> Sealed for Raw<B> {}
impl<B: Data<Kind = u8>> Data for Raw<B> {
    type Kind = RawElement;
    fn span(&self) -> Span {
        self.retyped(self.bytes.span())
    }
}
impl<B: DataMut<Kind = u8>> DataMut for Raw<B> {
    fn span_mut(&mut self) -> Span {
        let bytes = self.bytes.span_mut();
        self.retyped(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn raw_counts_elements() {
        let raw = Raw::new(vec![0u8; 6], Dtype::Bf16).unwrap();
        assert_eq!((raw.span().count, raw.span().dtype), (3, Dtype::Bf16));
        let error = Raw::new(vec![0u8; 7], Dtype::Bf16).unwrap_err();
        assert_eq!(error.message, "Raw::new: there are 7 bytes; expected a multiple of 2, the size of Bf16");
        assert!(Raw::new(vec![0u8; 7], Dtype::Unknown(99))
            .unwrap_err()
            .message
            .contains("99 is not the number of an element type"));
    }

    #[test]
    fn parts_start_where_they_should() {
        let x = [0f64; 6];
        let part = x.span().part(2, 3);
        assert_eq!((part.ptr as *const f64, part.count), (&x[2] as *const f64, 3));
    }

    #[test]
    fn elements_have_the_sizes_of_their_types() {
        fn same<T: Element>() -> bool {
            T::DTYPE.bytes() == std::mem::size_of::<T>()
        }
        assert!(same::<i8>() && same::<u8>() && same::<i32>() && same::<u32>());
        assert!(same::<i64>() && same::<u64>() && same::<f32>() && same::<f64>());
    }
}
