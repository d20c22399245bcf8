//! Passes blocks around the ranks of a communicator, for ring attention.

use std::ffi::c_void;
use std::fmt;
use std::marker::PhantomData;
use std::mem::{size_of, size_of_val};
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::Arc;

use dsc_sys as sys;

use crate::comm::Comm;
use crate::data::Element;
use crate::error::{check, Error, Result};
use crate::handles::RingHandle;
use crate::numbers::ErrorCode;

const FOREVER_MS: i32 = -1;

/// Passes the blocks of all ranks around, one step at a time, while the caller computes with its current block.
///
/// ```
/// use dsc::Ring;
///
/// # fn main() -> dsc::Result<()> {
/// let world = dsc::init()?;
/// let mut ring = Ring::new(&world, 4 * 8, 8 * 8)?; // for blocks of 8 f32, gradients of 8 f64
/// let mine = [world.rank() as f32; 8];
/// let mut pass = ring.pass(&mine, None)?;
/// while let Some(block) = pass.step()? {
///     assert_eq!(block.data[0], block.source as f32); // the next block arrives meanwhile
/// }
/// let mut pass = ring.backward::<f32, f64>(&mine, None)?;
/// while let Some(block) = pass.step()? {
///     block.grad[0] += 1.0; // the contribution of this rank's queries
/// }
/// assert_eq!(pass.into_sum()?[0], world.size() as f64);
/// drop(ring);
/// world.finalize()
/// # }
/// ```
///
/// A block is borrowed from the pass. The next step overwrites it, so it does not compile while the block is in use:
///
/// ```compile_fail
/// # fn f(pass: &mut dsc::RingPass<'_, f32>) -> dsc::Result<()> {
/// let first = pass.step()?;
/// pass.step()?;
/// println!("{:?}", first);
/// # Ok(())
/// # }
/// ```
/// [`pass_on`](Ring::pass_on) and [`backward_on`](Ring::backward_on) pass around blocks on a GPU, in stream order.
#[doc(alias = "dsc_ring_create")]
pub struct Ring {
    handle: RingHandle,
    group: Arc<str>,
    size: usize,
    // Memory that the library uses until the pass has ended or another pass has begun, even if the pass object is
    // leaked.
    own: Vec<u64>,
    sums: Vec<u64>,
}

/// The block that a rank gets in one step.
#[derive(Debug)]
pub struct RingBlock<'a, T> {
    /// The rank that the block is from.
    pub source: usize,
    /// The block.
    pub data: &'a [T],
}

/// The block and gradients that a rank gets in one step of a pass with gradients.
#[derive(Debug)]
pub struct RingGrads<'a, T, G> {
    /// The rank that the block is from.
    pub source: usize,
    /// The block.
    pub data: &'a [T],
    /// Zeros, to which this rank adds its contribution to the gradients of the block.
    pub grad: &'a mut [G],
}

/// One pass around the ranks. Made by [`Ring::pass`].
pub struct RingPass<'r, T> {
    ring: &'r mut Ring,
    is_over: bool,
    types: PhantomData<T>,
}

/// One pass around the ranks with gradients. Made by [`Ring::backward`].
pub struct RingBackward<'r, T, G> {
    ring: &'r mut Ring,
    count: usize,
    is_over: bool,
    types: PhantomData<(T, G)>,
}

pub(crate) struct Step {
    pub(crate) source: Option<usize>,
    pub(crate) data: *const c_void,
    pub(crate) grad: *mut c_void,
    pub(crate) count: usize,
}

impl Ring {
    /// Makes a ring for blocks and gradients of at most these sizes, which must be equal on all ranks. `grad_bytes` is
    /// 0 without gradients. Collective.
    pub fn new(comm: &Comm, block_bytes: usize, grad_bytes: usize) -> Result<Self> {
        let mut ring = ptr::null_mut();
        // SAFETY: the library checks the handle, and the output outlives the call.
        let result = unsafe { sys::dsc_ring_create(comm.raw(), block_bytes, grad_bytes, &mut ring) };
        comm.check(result, "ring_create")?;
        let handle = NonNull::new(ring).ok_or_else(|| {
            Error::new(ErrorCode::Internal, "the library returned neither an object nor an error".into())
        })?;
        let group = comm.shared.name.clone();
        Ok(Ring { handle: RingHandle(handle), group, size: comm.size(), own: Vec::new(), sums: Vec::new() })
    }

    /// Begins a pass with this rank's block, of which the ring keeps a copy. Collective.
    ///
    /// `counts` are the numbers of elements of each rank's block, if they differ. A pass may be dropped early if all
    /// ranks do so after the same step.
    #[doc(alias = "dsc_ring_begin")]
    pub fn pass<T: Element>(&mut self, block: &[T], counts: Option<&[usize]>) -> Result<RingPass<'_, T>> {
        self.begin::<T, T>(block, counts, false)?;
        Ok(RingPass { ring: self, is_over: false, types: PhantomData })
    }

    /// Begins a pass in which gradients, as elements of type G, are passed on together with their block. Collective.
    ///
    /// Each addition rounds to G, so use f32 for blocks of 16-bit floats.
    pub fn backward<T: Element, G: Element>(
        &mut self,
        block: &[T],
        counts: Option<&[usize]>,
    ) -> Result<RingBackward<'_, T, G>> {
        self.begin::<T, G>(block, counts, true)?;
        Ok(RingBackward { ring: self, count: block.len(), is_over: false, types: PhantomData })
    }

    /// Begins a pass. The memory of the previous pass is replaced after the library no longer uses it.
    fn begin<T: Element, G: Element>(&mut self, block: &[T], counts: Option<&[usize]>, sums: bool) -> Result<()> {
        self.expect_counts(counts)?;
        let mut own = room(size_of_val(block));
        let mut home = room(if sums { block.len() * size_of::<G>() } else { 0 });
        // SAFETY: the buffer has at least as many bytes as the block, and they do not overlap.
        unsafe { ptr::copy_nonoverlapping(block.as_ptr().cast::<u8>(), own.as_mut_ptr().cast(), size_of_val(block)) };
        // SAFETY: from here on the ring owns both buffers; if the call fails, the library no longer uses them. counts
        // has one entry per rank.
        let result = unsafe {
            sys::dsc_ring_begin(
                self.handle.raw(),
                own.as_ptr().cast(),
                block.len(),
                counts.map_or(ptr::null(), |counts| counts.as_ptr()),
                T::DTYPE.number(),
                home.as_mut_ptr().cast(),
                if sums { G::DTYPE.number() } else { 0 },
                ptr::null_mut(),
            )
        };
        self.check(result, "ring_begin")?;
        self.own = own;
        self.sums = home;
        Ok(())
    }

    pub(crate) fn expect_counts(&self, counts: Option<&[usize]>) -> Result<()> {
        if let Some(counts) = counts.filter(|counts| counts.len() != self.size) {
            let text = format!("ring: counts has {} sizes; expected {}, one per rank", counts.len(), self.size);
            return Err(Error::invalid(text));
        }
        Ok(())
    }

    pub(crate) fn raw(&self) -> *mut sys::dsc_ring_t {
        self.handle.raw()
    }

    pub(crate) fn step(&mut self) -> Result<Step> {
        let (mut source, mut count) = (0, 0);
        let (mut data, mut grad) = (ptr::null(), ptr::null_mut());
        // SAFETY: the library checks the handle, and the outputs outlive the call.
        let result =
            unsafe { sys::dsc_ring_next(self.handle.raw(), FOREVER_MS, &mut source, &mut data, &mut count, &mut grad) };
        self.check(result, "ring_next")?;
        Ok(Step { source: usize::try_from(source).ok(), data, grad, count })
    }

    pub(crate) fn check(&self, result: sys::dsc_result_t, op: &str) -> Result<()> {
        check(result).map_err(|error| error.in_op(op).in_group(&self.group))
    }
}

impl<T: Element> RingPass<'_, T> {
    /// Waits for the next block; `None` after the block of the last rank.
    #[doc(alias = "dsc_ring_next")]
    pub fn step(&mut self) -> Result<Option<RingBlock<'_, T>>> {
        if self.is_over {
            return Ok(None);
        }
        let step = self.ring.step()?;
        self.is_over = step.source.is_none();
        // SAFETY: the block stays valid until the next step, which needs a mutable borrow of this pass.
        Ok(step.source.map(|source| RingBlock { source, data: unsafe { elements(step.data, step.count) } }))
    }
}

impl<T: Element, G: Element> RingBackward<'_, T, G> {
    /// Adds the gradients of the previous block to those of the other ranks, and waits for the next block. Returns
    /// `None` after the last rank; then this rank's sum is ready.
    pub fn step(&mut self) -> Result<Option<RingGrads<'_, T, G>>> {
        if self.is_over {
            return Ok(None);
        }
        let step = self.ring.step()?;
        self.is_over = step.source.is_none();
        Ok(step.source.map(|source| {
            // SAFETY: block and gradients stay valid until the next step, which needs a mutable borrow of this pass.
            // Nothing else uses the gradients.
            let (data, grad) = unsafe { (elements(step.data, step.count), elements_mut(step.grad, step.count)) };
            RingGrads { source, data, grad }
        }))
    }

    /// Returns the sum of the gradients of this rank's block, at the end of the pass.
    pub fn into_sum(self) -> Result<Vec<G>> {
        if !self.is_over {
            let text = "ring: the pass has not ended; expected calls of step() until it returns None";
            return Err(Error::new(ErrorCode::State, text.into()));
        }
        // SAFETY: the library has written count elements, and no longer uses them after the end of a pass.
        Ok(unsafe { elements::<G>(self.ring.sums.as_ptr().cast(), self.count) }.to_vec())
    }
}

/// Allocates memory for the given number of bytes, aligned for every element type.
fn room(bytes: usize) -> Vec<u64> {
    vec![0; (bytes + 7) / 8]
}

/// # Safety
///
/// The address must be that of count aligned elements, valid during the lifetime of the slice. It may be null if count
/// is 0.
unsafe fn elements<'a, T>(at: *const c_void, count: usize) -> &'a [T] {
    if count == 0 {
        return &[];
    }
    // SAFETY: guaranteed by the caller.
    unsafe { slice::from_raw_parts(at.cast(), count) }
}

/// # Safety
///
/// The requirements of elements() apply, and nothing else may use the elements.
unsafe fn elements_mut<'a, T>(at: *mut c_void, count: usize) -> &'a mut [T] {
    if count == 0 {
        return &mut [];
    }
    // SAFETY: guaranteed by the caller.
    unsafe { slice::from_raw_parts_mut(at.cast(), count) }
}

impl fmt::Debug for Ring {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Ring(group {:?})", self.group)
    }
}

impl<T> fmt::Debug for RingPass<'_, T> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "RingPass(group {:?})", self.ring.group)
    }
}

impl<T, G> fmt::Debug for RingBackward<'_, T, G> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "RingBackward(group {:?})", self.ring.group)
    }
}
