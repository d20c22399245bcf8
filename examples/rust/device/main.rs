//! Memory of a GPU and a stream. With four ranks each of them prints
//!   rank 0: every element is 10, on device 0
//! or, if there is no GPU for every rank, "in host memory" after a line that says why.
//!
//!     dscrun -n 4 -- 13_device

mod cuda;

use cuda::Cuda;
use dsc::{request, Backend, Comm, ErrorCode, InitOptions, Op, Stream};

const COUNT: usize = 1000;

/// Uses NCCL for memory of GPUs if possible, otherwise only the host engine. An error on one rank is an error on all
/// ranks.
fn start() -> dsc::Result<Comm> {
    let reason = match InitOptions::new().backend(Backend::Device).init() {
        Err(error) if [ErrorCode::NoBackend, ErrorCode::Config].contains(&error.code) => error,
        other => return other,
    };
    let world = InitOptions::new().backend(Backend::Host).init()?;
    if world.rank() == 0 {
        println!("falls back to host memory: {}", reason);
    }
    Ok(world)
}

/// The program does not wait between the operations: the stream runs copy, sum and copy one after another.
fn sum_on_device(world: &Comm, device: u32, values: &mut [f32]) -> dsc::Result<()> {
    let cuda = Cuda::load();
    cuda.use_device(device); // libdsc does not make a device current for the program
    let own = cuda::Stream::new(&cuda);
    // SAFETY: the stream belongs to this device, and is destroyed at the end.
    let stream = unsafe { Stream::from_raw(own.raw) };
    let mut memory = world.device_buffer::<f32>(values.len())?;
    let (address, bytes) = (memory.as_ptr() as u64, values.len() * 4);
    // SAFETY: both sides have this number of bytes, and stay valid until the program has waited for the copies.
    let summed = unsafe {
        own.copy(address, values.as_ptr() as u64, bytes);
        world.scope(|scope| -> dsc::Result<()> {
            let sum = scope.start_on(request::all_reduce(&mut memory, Op::Sum), stream)?;
            sum.wait_on(stream)?; // only the stream waits, not the program
            own.copy(values.as_mut_ptr() as u64, address, bytes);
            Ok(())
        })
    };
    own.synchronize();
    summed
}

fn main() -> dsc::Result<()> {
    let world = start()?;
    let mut values = vec![world.rank() as f32 + 1.0; COUNT];
    let place = match world.device()? {
        Some(device) => {
            sum_on_device(&world, device, &mut values)?;
            format!("on device {}", device)
        }
        None => {
            world.all_reduce(&mut values, Op::Sum)?;
            "in host memory".to_string()
        }
    };
    assert!(values.iter().all(|&value| value == values[0]));
    println!(
        "rank {}: every element is {}, {}",
        world.rank(),
        values[0],
        place
    );
    world.finalize()
}
