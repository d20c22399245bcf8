//! Blocking operations: they return when they are complete.

use std::ptr;
use std::time::Duration;

use dsc_sys as sys;

use crate::comm::Comm;
use crate::convert::{milliseconds, number};
use crate::data::{Data, DataMut, Element};
use crate::device::Stream;
use crate::error::{Error, Result};
use crate::numbers::Dtype;
use crate::operation::launch;
use crate::reduction::Reduction;
use crate::request::{self, Request};
use crate::started::complete;

const MOST_DIMS: usize = 32; // the limit of dsc_broadcast_shape()

/// # Operations
///
/// They return when this rank's buffers are final and no other rank accesses them. Wrong arguments are found before
/// anything happens, and have no effect on other ranks. Failures that revoke the communicator on all ranks, such as
/// [`Timeout`](crate::ErrorCode::Timeout), [`PeerDead`](crate::ErrorCode::PeerDead) and
/// [`Mismatch`](crate::ErrorCode::Mismatch), leave the output unspecified. Results have the same bits on all ranks and
/// in every run.
impl Comm {
    /// Combines the elements of all ranks; every rank gets the result in place.
    ///
    /// ```
    /// # fn main() -> dsc::Result<()> {
    /// let world = dsc::init()?;
    /// let mut x = [1.0f32, 2.0, 3.0];
    /// world.all_reduce(&mut x, dsc::Op::Avg)?;
    /// let mut largest = world.rank() as i64; // buffers may also be single numbers
    /// world.all_reduce(&mut largest, dsc::Op::Max)?;
    /// assert_eq!((x, largest), ([1.0, 2.0, 3.0], world.size() as i64 - 1));
    /// world.finalize()
    /// # }
    /// ```
    pub fn all_reduce<B: DataMut + ?Sized>(&self, data: &mut B, op: impl Reduction<B::Kind>) -> Result<()> {
        self.run(request::all_reduce(data, op))
    }

    /// Combines the elements of all ranks; every rank gets the result in `recv`.
    pub fn all_reduce_into<S, R>(&self, send: &S, recv: &mut R, op: impl Reduction<S::Kind>) -> Result<()>
    where
        S: Data + ?Sized,
        R: DataMut<Kind = S::Kind> + ?Sized,
    {
        self.run(request::all_reduce_into(send, recv, op))
    }

    /// Copies the root's elements to all ranks, in place.
    pub fn broadcast<B: DataMut + ?Sized>(&self, data: &mut B, root: usize) -> Result<()> {
        self.run(request::broadcast(data, root))
    }

    /// Copies the elements of the root's `send` into the `recv` of all ranks; `send` is ignored elsewhere.
    pub fn broadcast_into<S, R>(&self, send: &S, recv: &mut R, root: usize) -> Result<()>
    where
        S: Data + ?Sized,
        R: DataMut<Kind = S::Kind> + ?Sized,
    {
        self.run(request::broadcast_into(send, recv, root))
    }

    /// Copies the element type and shape of the root's array to all ranks, so that they can allocate it. The arguments
    /// of the other ranks are ignored.
    #[doc(alias = "dsc_broadcast_shape")]
    pub fn broadcast_shape(&self, dtype: Dtype, shape: &[usize], root: usize) -> Result<(Dtype, Vec<usize>)> {
        let (root, is_root) = (number("root", root)?, self.rank() == root);
        let mut sizes = [0i64; MOST_DIMS];
        let given = if is_root { shape } else { &[] };
        if given.len() > MOST_DIMS {
            return Err(Error::invalid(format!("shape has {} sizes; expected at most {}", given.len(), MOST_DIMS)));
        }
        for (size, value) in sizes.iter_mut().zip(given) {
            let text = || Error::invalid(format!("a size is {}; expected at most {}", value, i64::MAX));
            *size = i64::try_from(*value).map_err(|_| text())?;
        }
        let (mut code, mut n_sizes) = (dtype.number(), given.len());
        let _turn = self.turn("broadcast_shape")?;
        // SAFETY: the library checks the handle. The length of sizes is right, and all pointers outlive the call.
        let result = unsafe {
            sys::dsc_broadcast_shape(self.raw(), &mut code, sizes.as_mut_ptr(), sizes.len(), &mut n_sizes, root)
        };
        self.check(result, "broadcast_shape")?;
        Ok((
            Dtype::from_number(code),
            sizes[..n_sizes].iter().map(|size| usize::try_from(*size).unwrap_or(0)).collect(),
        ))
    }

    /// Returns the root's elements on all ranks, in a new vector. The other ranks need not know the number of elements;
    /// they pass any slice, such as `&[]`.
    ///
    /// ```
    /// # fn main() -> dsc::Result<()> {
    /// let world = dsc::init()?;
    /// let mine: &[f32] = if world.rank() == 0 { &[1.0, 2.0] } else { &[] };
    /// assert_eq!(world.broadcast_vec(mine, 0)?, [1.0, 2.0]);
    /// world.finalize()
    /// # }
    /// ```
    pub fn broadcast_vec<T: Element + Default>(&self, data: &[T], root: usize) -> Result<Vec<T>> {
        let (_, shape) = self.broadcast_shape(T::DTYPE, &[data.len()], root)?;
        let mut all = if self.rank() == root { data.to_vec() } else { vec![T::default(); shape.iter().product()] };
        self.broadcast(&mut all[..], root)?;
        Ok(all)
    }

    /// Gathers the elements of every rank, in rank order. `recv` has [`size`](Comm::size) times as many elements as
    /// `send`.
    ///
    /// ```
    /// # fn main() -> dsc::Result<()> {
    /// let world = dsc::init()?;
    /// let mut ranks = vec![0u64; world.size()];
    /// world.all_gather(&(world.rank() as u64), &mut ranks)?;
    /// assert_eq!(ranks, (0..world.size() as u64).collect::<Vec<_>>());
    /// world.finalize()
    /// # }
    /// ```
    pub fn all_gather<S, R>(&self, send: &S, recv: &mut R) -> Result<()>
    where
        S: Data + ?Sized,
        R: DataMut<Kind = S::Kind> + ?Sized,
    {
        self.run(request::all_gather(send, recv))
    }

    /// Gathers the parts of every rank in place: rank r provides part r of `data` and receives all others.
    pub fn all_gather_in_place<B: DataMut + ?Sized>(&self, data: &mut B) -> Result<()> {
        self.run(request::all_gather_in_place(data))
    }

    /// Combines the elements of all ranks; rank r gets part r. `send` has [`size`](Comm::size) times as many elements
    /// as `recv`.
    pub fn reduce_scatter<S, R>(&self, send: &S, recv: &mut R, op: impl Reduction<S::Kind>) -> Result<()>
    where
        S: Data + ?Sized,
        R: DataMut<Kind = S::Kind> + ?Sized,
    {
        self.run(request::reduce_scatter(send, recv, op))
    }

    /// Combines the elements of all ranks in place; rank r gets part r. The other parts of `data` are
    /// not changed.
    pub fn reduce_scatter_in_place<B: DataMut + ?Sized>(
        &self,
        data: &mut B,
        op: impl Reduction<B::Kind>,
    ) -> Result<()> {
        self.run(request::reduce_scatter_in_place(data, op))
    }

    /// Combines the elements of all ranks; the root gets the result in place. On other ranks `data` is not written.
    pub fn reduce<B: DataMut + ?Sized>(&self, data: &mut B, op: impl Reduction<B::Kind>, root: usize) -> Result<()> {
        self.run(request::reduce(data, op, root))
    }

    /// Gathers the elements of every rank on the root. There, `recv` has [`size`](Comm::size) times as many elements as
    /// `send`; on other ranks `recv` is ignored.
    pub fn gather<S, R>(&self, send: &S, recv: &mut R, root: usize) -> Result<()>
    where
        S: Data + ?Sized,
        R: DataMut<Kind = S::Kind> + ?Sized,
    {
        self.run(request::gather(send, recv, root))
    }

    /// Sends part r of the root's elements to rank r. On the root, `send` has [`size`](Comm::size) times as many
    /// elements as `recv`; on other ranks `send` is ignored.
    pub fn scatter<S, R>(&self, send: &S, recv: &mut R, root: usize) -> Result<()>
    where
        S: Data + ?Sized,
        R: DataMut<Kind = S::Kind> + ?Sized,
    {
        self.run(request::scatter(send, recv, root))
    }

    /// Sends part r of every rank's `send` to rank r, which gets the parts in rank order.
    pub fn all_to_all<S, R>(&self, send: &S, recv: &mut R) -> Result<()>
    where
        S: Data + ?Sized,
        R: DataMut<Kind = S::Kind> + ?Sized,
    {
        self.run(request::all_to_all(send, recv))
    }

    /// Does the same as [`all_to_all`](Comm::all_to_all) in place: the received parts replace the sent ones.
    pub fn all_to_all_in_place<B: DataMut + ?Sized>(&self, data: &mut B) -> Result<()> {
        self.run(request::all_to_all_in_place(data))
    }

    /// Waits until all ranks have called it; [`Timeout`](crate::ErrorCode::Timeout) names every rank that did not.
    pub fn monitored_barrier(&self, timeout: Duration) -> Result<()> {
        // SAFETY: the library checks the handle.
        let result = unsafe { sys::dsc_monitored_barrier(self.raw(), milliseconds(timeout)) };
        self.check(result, "monitored_barrier")
    }

    /// Waits until all ranks have called it.
    pub fn barrier(&self) -> Result<()> {
        self.run(request::barrier())
    }

    /// Sends to one rank. For any size, it returns when the receiver has taken the elements and `data` may be written
    /// again.
    pub fn send<B: Data + ?Sized>(&self, data: &B, peer: usize) -> Result<()> {
        self.run(request::send(data, peer))
    }

    /// Receives from one rank, which must send the same number of elements of the same type.
    pub fn recv<B: DataMut + ?Sized>(&self, data: &mut B, peer: usize) -> Result<()> {
        self.run(request::recv(data, peer))
    }

    fn run<B>(&self, mut request: Request<B>) -> Result<()> {
        let (send, recv) = (request.spans)(&mut request.buffers);
        if send.is_on_device() || recv.is_on_device() {
            // SAFETY: the call ends after the device is done with the buffers, which the request holds until then.
            return unsafe { complete(self, &request.operation, send, recv) };
        }
        // SAFETY: without a work object the call blocks until it is complete. The request holds the buffers until then.
        unsafe { launch(self, &request.operation, send, recv, ptr::null_mut(), ptr::null_mut()) }
    }

    /// Queues an operation on GPU memory on a stream and returns. Only later work on that stream waits for it. It may
    /// be captured in a CUDA graph.
    ///
    /// ```no_run
    /// # fn step(world: &dsc::Comm, grads: &mut dsc::DeviceBuffer<f32>, stream: dsc::Stream<'_>) -> dsc::Result<()> {
    /// // SAFETY: the gradients outlive the training, which ends with a synchronization of the stream.
    /// unsafe { world.enqueue(dsc::request::all_reduce(grads, dsc::Op::Avg), stream) }
    /// # }
    /// ```
    ///
    /// This call cannot return a failure that happens later. To find one, call [`failure`](Comm::failure).
    ///
    /// # Safety
    ///
    /// The buffers stay valid, and only work on the stream uses them, until the stream has passed the operation. If the
    /// operation was captured, this holds until the graph is destroyed.
    pub unsafe fn enqueue<B>(&self, mut request: Request<B>, stream: Stream<'_>) -> Result<()> {
        let (send, recv) = (request.spans)(&mut request.buffers);
        // SAFETY: guaranteed by the caller.
        unsafe { launch(self, &request.operation, send, recv, stream.as_raw(), ptr::null_mut()) }
    }
}
