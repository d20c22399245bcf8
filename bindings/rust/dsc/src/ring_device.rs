//! Passes of a ring with blocks in GPU memory.

use std::ffi::c_void;
use std::fmt;
use std::marker::PhantomData;
use std::ptr;
use std::time::Duration;

use dsc_sys as sys;

use crate::convert::milliseconds;
use crate::data::{Data, DataMut, Element, Span};
use crate::device::Stream;
use crate::error::{Error, Result};
use crate::ring::Ring;

/// The block that a rank gets in one step of a pass on a GPU. It is valid in stream order until the following step.
#[derive(Debug, Clone, Copy)]
pub struct DeviceRingBlock<T, G> {
    /// The rank that the block is from.
    pub source: usize,
    /// The block. It must only be read.
    pub data: *const T,
    /// Zeros, to which this rank adds its contribution to the gradients of the block. NULL in a pass without gradients.
    pub grad: *mut G,
    /// The number of elements in the block, and in its gradients.
    pub len: usize,
}

/// One pass around the ranks in stream order. Made by [`Ring::pass_on`] and [`Ring::backward_on`].
pub struct DeviceRingPass<'r, T, G> {
    ring: &'r mut Ring,
    is_over: bool,
    types: PhantomData<(T, G)>,
}

impl Ring {
    /// Begins a pass with this rank's block on the GPU, in stream order. Collective.
    ///
    /// The host waits only for the other ranks, and in the first pass for the connections to them. A failure that
    /// happens later is returned by the next call, or by [`synchronize`](Ring::synchronize).
    ///
    /// # Safety
    ///
    /// The block and the stream must stay valid, and the block must not be written, until the pass has ended, the next
    /// one has begun or the ring is dropped, and the stream has passed that point. Work that uses the block of a step
    /// must be queued on the stream before the following step.
    pub unsafe fn pass_on<D: Data>(
        &mut self,
        block: &D,
        counts: Option<&[usize]>,
        stream: Stream<'_>,
    ) -> Result<DeviceRingPass<'_, D::Kind, D::Kind>>
    where
        D::Kind: Element,
    {
        // SAFETY: guaranteed by the caller.
        unsafe { self.begin_on(block.span(), counts, None, stream)? };
        Ok(DeviceRingPass { ring: self, is_over: false, types: PhantomData })
    }

    /// Begins a pass in which gradients are passed on together with their block. The sum for this rank's block is
    /// written to `grad`, which has as many elements as the block, of a floating-point type.
    ///
    /// # Safety
    ///
    /// The requirements of [`pass_on`](Ring::pass_on) apply. Until the pass has ended, nothing else may use `grad`;
    /// after it, only work on the stream.
    pub unsafe fn backward_on<D: Data, S: DataMut>(
        &mut self,
        block: &D,
        grad: &mut S,
        counts: Option<&[usize]>,
        stream: Stream<'_>,
    ) -> Result<DeviceRingPass<'_, D::Kind, S::Kind>>
    where
        D::Kind: Element,
        S::Kind: Element,
    {
        // SAFETY: guaranteed by the caller.
        unsafe { self.begin_on(block.span(), counts, Some(grad.span_mut()), stream)? };
        Ok(DeviceRingPass { ring: self, is_over: false, types: PhantomData })
    }

    /// Waits until the GPU has completed all passes, but at most `timeout`. Returns `false` on a time-out. Call it
    /// before you rely on results of the last pass, because it returns failures that happened later.
    #[doc(alias = "dsc_ring_synchronize")]
    pub fn synchronize(&mut self, timeout: Duration) -> Result<bool> {
        // SAFETY: the library checks the handle.
        let result = unsafe { sys::dsc_ring_synchronize(self.raw(), milliseconds(timeout)) };
        self.check(result, "ring_synchronize")?;
        Ok(result == sys::DSC_OK)
    }

    /// # Safety
    ///
    /// The requirements of pass_on() and backward_on() apply.
    unsafe fn begin_on(
        &mut self,
        block: Span,
        counts: Option<&[usize]>,
        grad: Option<Span>,
        stream: Stream<'_>,
    ) -> Result<()> {
        self.expect_counts(counts)?;
        for (name, span) in [("block", Some(block)), ("grad", grad)] {
            if span.map_or(false, |span| span.device < 0) {
                return Err(Error::invalid(format!("{} is in host memory; expected memory of a GPU", name)));
            }
        }
        if let Some(grad) = grad.filter(|grad| grad.count != block.count) {
            let text = format!("grad has {} elements; expected {}, like the block", grad.count, block.count);
            return Err(Error::invalid(text));
        }
        // SAFETY: the library checks the handle. counts has one entry per rank. The caller guarantees the rest.
        let result = unsafe {
            sys::dsc_ring_begin(
                self.raw(),
                block.ptr as *const c_void,
                block.count,
                counts.map_or(ptr::null(), |counts| counts.as_ptr()),
                block.dtype.number(),
                grad.map_or(ptr::null_mut(), |grad| grad.ptr),
                grad.map_or(0, |grad| grad.dtype.number()),
                stream.as_raw(),
            )
        };
        self.check(result, "ring_begin")
    }
}

impl<T: Element, G: Element> DeviceRingPass<'_, T, G> {
    /// Queues the next step on the stream. Returns `None` after the block of the last rank; the sum is then ready in
    /// stream order.
    pub fn step(&mut self) -> Result<Option<DeviceRingBlock<T, G>>> {
        if self.is_over {
            return Ok(None);
        }
        let step = self.ring.step()?;
        self.is_over = step.source.is_none();
        let (data, grad, len) = (step.data.cast(), step.grad.cast(), step.count);
        Ok(step.source.map(|source| DeviceRingBlock { source, data, grad, len }))
    }
}

impl<T, G> fmt::Debug for DeviceRingPass<'_, T, G> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "DeviceRingPass({:?})", self.ring)
    }
}
