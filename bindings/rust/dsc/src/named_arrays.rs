//! Broadcast of named arrays from one rank to all ranks.

use std::ffi::CString;
use std::mem::size_of;
use std::ptr;

use dsc_sys as sys;

use crate::comm::Comm;
use crate::convert::{c_string, natural, number};
use crate::data::{Element, HOST};
use crate::error::Result;

const MOST_DIMS: usize = 16; // the limit of dsc_broadcast_shapes()
const NO_TENSOR: i32 = 0; // the element type of an array that the root does not have

/// An array with its name and shape, such as a part of a batch.
#[derive(Clone, Debug, PartialEq)]
pub struct NamedArray<T> {
    /// Its name, which is the same on all ranks.
    pub name: String,
    /// The sizes of its dimensions, at most 16. Their product is the number of elements.
    pub shape: Vec<usize>,
    /// Its elements.
    pub data: Vec<T>,
}

impl Comm {
    /// Copies the root's arrays with these keys to all ranks, in the order of the keys. The other ranks pass an empty
    /// list and need not know the shapes. Collective.
    ///
    /// The shapes are sent first, then all arrays in one broadcast. If the root lacks a key, or sizes do not fit the
    /// elements, all ranks get [`InvalidArg`](crate::ErrorCode::InvalidArg). If keys or element types differ between
    /// ranks, [`Mismatch`](crate::ErrorCode::Mismatch) names them. The communicator keeps working.
    ///
    /// ```
    /// # fn main() -> dsc::Result<()> {
    /// let world = dsc::init()?;
    /// let text = dsc::NamedArray { name: "text".into(), shape: vec![2, 2], data: vec![1i64, 2, 3, 4] };
    /// let batch = if world.rank() == 0 { vec![text.clone()] } else { Vec::new() };
    /// assert_eq!(world.broadcast_data(&["text"], batch, 0)?, [text]);
    /// world.finalize()
    /// # }
    /// ```
    #[doc(alias = "dsc_broadcast_shapes")]
    pub fn broadcast_data<T: Element + Default>(
        &self,
        keys: &[&str],
        arrays: Vec<NamedArray<T>>,
        root: usize,
    ) -> Result<Vec<NamedArray<T>>> {
        let is_root = self.rank() == root;
        let root = number("root", root)?;
        let mut list = RawList::new(keys)?;
        let mut found = if is_root { list.describe(keys, arrays) } else { Vec::new() };
        let _turn = self.turn("broadcast_data")?;
        let (raw, n) = (list.raw.as_mut_ptr(), keys.len());
        // SAFETY: the library checks the handle. The list, its names and its shapes outlive the call.
        let result =
            unsafe { sys::dsc_broadcast_shapes(self.raw(), raw, n, T::DTYPE.number(), root, list.shapes.as_mut_ptr()) };
        self.check(result, "broadcast_data")?;
        if !is_root {
            found = list.allocate(keys);
        }
        // SAFETY: as above. The elements belong to `found`, which is not used during the call.
        let result = unsafe { sys::dsc_broadcast_coalesced(self.raw(), list.raw.as_ptr(), n, root, usize::MAX) };
        self.check(result, "broadcast_data")?;
        Ok(found)
    }
}

/// C descriptions of arrays, with the texts and sizes that they point to.
struct RawList {
    raw: Vec<sys::dsc_tensor_t>,
    shapes: Vec<i64>,
    _names: Vec<CString>,
}

impl RawList {
    /// Makes a list of names without arrays.
    fn new(keys: &[&str]) -> Result<Self> {
        let names = keys.iter().map(|key| c_string("a key", key)).collect::<Result<Vec<CString>>>()?;
        let raw = names.iter().map(|name| sys::dsc_tensor_t {
            struct_size: size_of::<sys::dsc_tensor_t>(),
            data: ptr::null_mut(),
            shape: ptr::null(),
            name: name.as_ptr(),
            count: 0,
            dtype: NO_TENSOR,
            ndim: 0,
            device: HOST,
            expect_sparse: 0,
        });
        Ok(RawList { raw: raw.collect(), shapes: vec![0; MOST_DIMS * keys.len()], _names: names })
    }

    /// Describes the root's arrays and returns them in the order of the keys. The library checks them, so that all
    /// ranks learn of an error.
    fn describe<T: Element>(&mut self, keys: &[&str], mut arrays: Vec<NamedArray<T>>) -> Vec<NamedArray<T>> {
        let mut found = Vec::new();
        let sizes: usize = arrays.iter().map(|array| array.shape.len()).sum();
        // allocated in advance: growing would move the sizes, and pointers to them would become invalid
        self.shapes = Vec::with_capacity(sizes);
        for (key, raw) in keys.iter().zip(&mut self.raw) {
            let mut array = match arrays.iter().position(|array| array.name == *key) {
                Some(at) => arrays.swap_remove(at),
                None => continue,
            };
            let begin = self.shapes.len();
            self.shapes.extend(array.shape.iter().map(|size| i64::try_from(*size).unwrap_or(-1)));
            raw.shape = self.shapes[begin..].as_ptr();
            raw.ndim = i32::try_from(array.shape.len()).unwrap_or(i32::MAX);
            raw.dtype = T::DTYPE.number();
            (raw.data, raw.count) = (array.data.as_mut_ptr().cast(), array.data.len());
            found.push(array);
        }
        found
    }

    /// Allocates the arrays that the root has described, to receive into them.
    fn allocate<T: Element + Default>(&mut self, keys: &[&str]) -> Vec<NamedArray<T>> {
        let sizes = self.shapes.chunks(MOST_DIMS);
        let all = keys.iter().zip(&mut self.raw).zip(sizes).map(|((key, raw), sizes)| {
            let shape = sizes.iter().take(natural(raw.ndim));
            let mut data = vec![T::default(); raw.count];
            raw.data = data.as_mut_ptr().cast();
            let shape = shape.map(|size| usize::try_from(*size).unwrap_or(0)).collect();
            NamedArray { name: (*key).to_owned(), shape, data }
        });
        all.collect()
    }
}
