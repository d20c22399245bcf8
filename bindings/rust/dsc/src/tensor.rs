//! Lists of tensors, and operations on them.

use std::ffi::CString;
use std::fmt;
use std::marker::PhantomData;
use std::mem::size_of;
use std::ptr;

use dsc_sys as sys;

use crate::comm::Comm;
use crate::convert::{c_string, number};
use crate::data::{DataMut, RawElement, Span, HOST};
use crate::error::Result;
use crate::init::pointer;
use crate::numbers::Dtype;
use crate::reduction::Reduction;

/// One tensor of a list: its memory, and its description for comparisons and messages.
///
/// ```
/// # fn main() -> dsc::Result<()> {
/// let world = dsc::init()?;
/// let (mut weight, mut bias) = (vec![0.5f32; 12], vec![0.0f32; 3]);
/// let mut params = [
///     dsc::Tensor::new(&mut weight).name("layer.weight").shape(&[4, 3]),
///     dsc::Tensor::new(&mut bias).name("layer.bias"),
/// ];
/// world.verify_params(&params)?;
/// world.broadcast_coalesced(&mut params, 0, 0)?;
/// world.finalize()
/// # }
/// ```
pub struct Tensor<'a> {
    pub(crate) span: Span,
    shape: Option<Vec<usize>>,
    name: Option<String>,
    sparse: bool,
    memory: PhantomData<&'a mut ()>,
}

impl<'a> Tensor<'a> {
    /// A tensor with its elements.
    pub fn new<D: DataMut + ?Sized>(data: &'a mut D) -> Self {
        Tensor { span: data.span_mut(), shape: None, name: None, sparse: false, memory: PhantomData }
    }

    /// A tensor without memory, for calls that do not read or write it.
    pub fn described(dtype: Dtype, count: usize) -> Self {
        let span = Span { ptr: ptr::null_mut(), count, dtype, device: HOST };
        Tensor { span, shape: None, name: None, sparse: false, memory: PhantomData }
    }

    /// The sizes of its dimensions. They are compared between ranks.
    #[must_use]
    pub fn shape(mut self, shape: &[usize]) -> Self {
        self.shape = Some(shape.to_vec());
        self
    }

    /// Declares that gradients of this parameter of a [`BucketReducer`](crate::BucketReducer) are sparse: each gradient
    /// consists of some of its rows, for [`mark_sparse`](crate::Iteration::mark_sparse). It needs a
    /// [`shape`](Tensor::shape), of which the first size is the number of rows.
    #[must_use]
    pub fn expect_sparse(mut self) -> Self {
        self.sparse = true;
        self
    }

    /// The number of elements in a row, if gradients are sparse.
    pub(crate) fn sparse_row(&self) -> Option<usize> {
        let row = self.shape.as_ref().map_or(1, |shape| shape.iter().skip(1).product());
        Some(row).filter(|_| self.sparse)
    }

    /// The name in messages; "parameter INDEX" by default.
    #[must_use]
    pub fn name(mut self, name: &str) -> Self {
        self.name = Some(name.to_owned());
        self
    }
}

impl fmt::Debug for Tensor<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.name.as_deref().unwrap_or("without a name");
        write!(out, "Tensor({}, {} of {:?}, shape {:?})", name, self.span.count, self.span.dtype, self.shape)
    }
}

/// A list of C structs, with the texts and shapes that they point to.
pub(crate) struct RawTensors {
    pub(crate) list: Vec<sys::dsc_tensor_t>,
    _names: Vec<Option<CString>>,
    _shapes: Vec<Option<Vec<i64>>>,
}

impl RawTensors {
    pub(crate) fn new(tensors: &[Tensor<'_>]) -> Result<Self> {
        let (mut list, mut names, mut shapes) = (Vec::new(), Vec::new(), Vec::new());
        for tensor in tensors {
            let name = tensor.name.as_deref().map(|name| c_string("the name of a tensor", name)).transpose()?;
            let shape: Option<Vec<i64>> =
                tensor.shape.as_ref().map(|shape| shape.iter().map(|size| *size as i64).collect());
            list.push(sys::dsc_tensor_t {
                struct_size: size_of::<sys::dsc_tensor_t>(),
                data: tensor.span.ptr,
                count: tensor.span.count,
                shape: shape.as_ref().map_or(ptr::null(), |shape| shape.as_ptr()),
                name: pointer(&name),
                dtype: tensor.span.dtype.number(),
                ndim: number("the number of dimensions", shape.as_ref().map_or(0, Vec::len))?,
                device: tensor.span.device,
                expect_sparse: i32::from(tensor.sparse),
            });
            names.push(name); // moving a name does not move its text
            shapes.push(shape);
        }
        Ok(RawTensors { list, _names: names, _shapes: shapes })
    }
}

impl Comm {
    /// Checks that all ranks have the same parameters: number, types, counts and shapes. Collective.
    ///
    /// If they differ, all ranks get [`Mismatch`](crate::ErrorCode::Mismatch), which names the ranks, the parameter and
    /// both descriptions. The communicator keeps working.
    pub fn verify_params(&self, params: &[Tensor<'_>]) -> Result<()> {
        let raw = RawTensors::new(params)?;
        // SAFETY: the list and the memory that it points to outlive the call. The data is not used.
        let result = unsafe { sys::dsc_comm_verify_params(self.raw(), raw.list.as_ptr(), raw.list.len()) };
        self.check(result, "verify_params")
    }

    /// Copies the root's tensors to all ranks, packed into buffers of `buffer_bytes` (0: 250 MiB). Collective.
    pub fn broadcast_coalesced(&self, tensors: &mut [Tensor<'_>], root: usize, buffer_bytes: usize) -> Result<()> {
        let raw = RawTensors::new(tensors)?;
        let root = number("root", root)?;
        // SAFETY: the list, the memory that it points to, and the tensors' memory, which is borrowed mutably, outlive
        // the call.
        let result =
            unsafe { sys::dsc_broadcast_coalesced(self.raw(), raw.list.as_ptr(), raw.list.len(), root, buffer_bytes) };
        self.check(result, "broadcast_coalesced")
    }

    /// Combines the tensors of all ranks, packed into buffers of `buffer_bytes` (0: 250 MiB). The result is that of
    /// [`all_reduce`](Comm::all_reduce) for each tensor, with fewer operations. Collective.
    pub fn all_reduce_coalesced(
        &self,
        tensors: &mut [Tensor<'_>],
        op: impl Reduction<RawElement>,
        buffer_bytes: usize,
    ) -> Result<()> {
        let (raw, op) = (RawTensors::new(tensors)?, op.combine());
        for tensor in tensors.iter() {
            op.expect("all_reduce_coalesced", tensor.span.dtype)?;
        }
        // SAFETY: the list, the memory that it points to, and the tensors' memory, which is borrowed mutably, outlive
        // the call.
        let result = unsafe {
            sys::dsc_all_reduce_coalesced(self.raw(), raw.list.as_ptr(), raw.list.len(), op.number(), buffer_bytes)
        };
        self.check(result, "all_reduce_coalesced")
    }
}
