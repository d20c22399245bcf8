//! Memory and streams of GPUs, with a fake CUDA driver. Ranks are threads of one process, each with its own device.
//! Without FAKE_CUDA_DEVICES these tests are skipped; the suite gpu sets this variable.

#[rustfmt::skip] // it has the formatting of the examples
#[path = "../../../../../examples/rust/device/cuda.rs"]
mod cuda;
mod experts;
mod operations;
mod ring;
mod training;

use std::env;
use std::process;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use cuda::Cuda;
use dsc::{Backend, Comm, DeviceBuffer, Element, InitOptions, Stream};

/// A rank and its device.
struct Rank<'c> {
    world: Comm,
    cuda: &'c Cuda,
}

/// Runs a function on the given number of ranks and returns their results. The list is empty if there is no fake
/// driver.
fn ranks<T: Send>(size: usize, body: impl Fn(&Rank<'_>) -> T + Sync) -> Vec<T> {
    static WORLDS: AtomicUsize = AtomicUsize::new(0);
    if env::var_os("FAKE_CUDA_DEVICES").is_none() {
        println!("skipped: FAKE_CUDA_DEVICES is not set");
        return Vec::new();
    }
    let job_id = format!("rust-device-{}-{}", process::id(), WORLDS.fetch_add(1, Ordering::Relaxed));
    let (body, job_id) = (&body, &job_id);
    thread::scope(|scope| {
        let start = |rank| scope.spawn(move || body(&Rank { world: join(job_id, rank, size), cuda: &load(rank) }));
        let threads: Vec<_> = (0..size).map(start).collect();
        threads.into_iter().map(|thread| thread.join().expect("a rank panicked")).collect()
    })
}

fn join(job_id: &str, rank: usize, size: usize) -> Comm {
    let limit = Duration::from_secs(30);
    let options = InitOptions::new().job_id(job_id).rank(rank).world_size(size).rank_per_thread(true);
    let options = options.backend(Backend::Device).device(rank).init_timeout(limit).timeout(limit);
    options.init().expect("the world is made")
}

fn load(device: usize) -> Cuda {
    let cuda = Cuda::load();
    cuda.use_device(device as u32);
    cuda
}

/// Returns a stream of the driver as a stream of this crate.
fn known<'s>(stream: &'s cuda::Stream<'_>) -> Stream<'s> {
    // SAFETY: it is a stream of the rank's device, and valid for 's.
    unsafe { Stream::from_raw(stream.raw) }
}

/// Copies values to the device, and waits until the copy is complete.
fn write<T: Element>(stream: &cuda::Stream<'_>, to: *mut T, values: &[T]) {
    // SAFETY: the tests pass memory for as many elements, which stays valid.
    unsafe { stream.copy(to as u64, values.as_ptr() as u64, std::mem::size_of_val(values)) };
    stream.synchronize();
}

/// Returns the contents of device memory after the work on the stream.
fn read<T: Element + Default>(stream: &cuda::Stream<'_>, from: *const T, len: usize) -> Vec<T> {
    let mut values = vec![T::default(); len];
    // SAFETY: as in write().
    unsafe { stream.copy(values.as_mut_ptr() as u64, from as u64, std::mem::size_of_val(&values[..])) };
    stream.synchronize();
    values
}

impl<'c> Rank<'c> {
    fn stream(&self) -> cuda::Stream<'c> {
        cuda::Stream::new(self.cuda)
    }

    fn buffer<T: Element>(&self, stream: &cuda::Stream<'_>, values: &[T]) -> DeviceBuffer<T> {
        let buffer = self.world.device_buffer(values.len()).unwrap();
        write(stream, buffer.as_ptr(), values);
        buffer
    }
}
