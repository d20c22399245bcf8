//! Passes of a ring in memory of a GPU.

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

/// What a rank has at one step of a pass on a GPU, in the order of the stream, until the following step.
#[derive(Debug, Clone, Copy)]
pub struct DeviceRingBlock<T, G> {
    /// The rank whose block it is.
    pub source: usize,
    /// The block, to read only.
    pub data: *const T,
    /// Zeros, for the gradients of the block that this rank causes; null in a pass without gradients.
    pub grad: *mut G,
    /// The elements of the block, and of its gradients.
    pub len: usize,
}

/// One way around the ranks in the order of a stream; made by [`Ring::pass_on`] and [`Ring::backward_on`].
pub struct DeviceRingPass<'r, T, G> {
    ring: &'r mut Ring,
    is_over: bool,
    types: PhantomData<(T, G)>,
}

impl Ring {
    /// Begins a pass with this rank's block on the GPU, in the order of the stream. Collective.
    ///
    /// The host waits only for the other ranks, and in the first pass until their messages are connected. A failure that
    /// comes later is told by the next call and by [`synchronize`](Ring::synchronize).
    ///
    /// # Safety
    ///
    /// Until the pass has ended, the next one has begun or the ring is dropped, the block stays valid and nothing writes
    /// it, and the stream stays; after that until the stream is past it. What uses a block of a step is on the stream
    /// before the following step.
    pub unsafe fn pass_on<D: Data>(
        &mut self,
        block: &D,
        counts: Option<&[usize]>,
        stream: Stream<'_>,
    ) -> Result<DeviceRingPass<'_, D::Kind, D::Kind>>
    where
        D::Kind: Element,
    {
        // SAFETY: the caller's promise.
        unsafe { self.begin_on(block.span(), counts, None, stream)? };
        Ok(DeviceRingPass { ring: self, is_over: false, types: PhantomData })
    }

    /// Begins a pass in which the gradients of each block travel behind it; their sum comes to `grad`, which has as many
    /// elements as the block, of a floating type.
    ///
    /// # Safety
    ///
    /// The caller promises what [`pass_on`](Ring::pass_on) asks for, and that only what is on the stream behind the pass
    /// reaches `grad`.
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
        // SAFETY: the caller's promise.
        unsafe { self.begin_on(block.span(), counts, Some(grad.span_mut()), stream)? };
        Ok(DeviceRingPass { ring: self, is_over: false, types: PhantomData })
    }

    /// Waits until the GPU is done with what passes have put on streams, but not longer than this; `false` when the time
    /// has passed. Asked before results of the last pass are relied on: it tells a failure that came later.
    #[doc(alias = "dsc_ring_synchronize")]
    pub fn synchronize(&mut self, timeout: Duration) -> Result<bool> {
        // SAFETY: the library checks the handle.
        let result = unsafe { sys::dsc_ring_synchronize(self.raw(), milliseconds(timeout)) };
        self.check(result, "ring_synchronize")?;
        Ok(result == sys::DSC_OK)
    }

    /// # Safety
    ///
    /// The caller promises what pass_on() and backward_on() ask for.
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
                return Err(Error::invalid(format!("{} is in memory of the host; expected it on a GPU", name)));
            }
        }
        if let Some(grad) = grad.filter(|grad| grad.count != block.count) {
            let text = format!("grad has {} elements; expected {}, as the block", grad.count, block.count);
            return Err(Error::invalid(text));
        }
        // SAFETY: the library checks the handle; counts has one entry per rank; the caller has answered for the rest.
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
    /// Puts the next step on the stream; None after that of the last rank, when the sum is there in the order of the stream.
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
