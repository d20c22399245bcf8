//! Memory of a GPU and a stream. With four ranks each of them prints
//!   rank 0: every element is 10, on device 0
//! or, where there is no GPU for every rank, "in host memory", after a line that says why.
//!
//!     dscrun -n 4 -- 13_device
//!
//! The crate dsc moves memory of the host; for that of GPUs a program calls what is below it, dsc_sys.

mod cuda;

use std::os::raw::c_void;
use std::ptr;

use cuda::{Cuda, Stream};
use dsc::{Backend, Comm, ErrorCode, InitOptions, Op};
use dsc_sys as sys;

const COUNT: usize = 1000;

/// NCCL for memory of GPUs, or the host engine alone. What is wrong on one rank is an error on all of them.
fn start() -> dsc::Result<Comm> {
    let reason = match InitOptions::new().backend(Backend::Nccl).init() {
        Err(error) if [ErrorCode::NoBackend, ErrorCode::Config].contains(&error.code) => error,
        other => return other,
    };
    let world = InitOptions::new().backend(Backend::Host).init()?;
    if world.rank() == 0 {
        println!("falls back to host memory: {}", reason);
    }
    Ok(world)
}

fn check(result: sys::dsc_result_t, what: &str) {
    assert_eq!(result, sys::DSC_OK, "{}", what);
}

/// Nothing here waits before synchronize: the stream runs copy, sum and copy one after the other.
fn sum_on_device(device: u32, values: &mut [f32]) {
    let cuda = Cuda::load();
    cuda.use_device(device); // libdsc makes no device current for the program
    let stream = Stream::new(&cuda);
    let (mut world, mut memory, mut work) = (ptr::null_mut(), ptr::null_mut(), ptr::null_mut());
    let (dtype, bytes) = (sys::DSC_DTYPE_F32, values.len() * 4);
    // SAFETY: the memory has as many bytes and is freed when the stream is past everything that uses it; so do the
    // values live.
    unsafe {
        check(sys::dsc_world(&mut world), "dsc_world");
        check(
            sys::dsc_mem_alloc(world, bytes, sys::DSC_MEMORY_DEVICE, &mut memory),
            "dsc_mem_alloc",
        );
        stream.copy(memory as u64, values.as_ptr() as u64, bytes);
        let sum = sys::dsc_all_reduce(
            world,
            memory,
            memory,
            values.len(),
            dtype,
            sys::DSC_OP_SUM,
            stream.raw,
            &mut work,
        );
        check(sum, "dsc_all_reduce");
        check(sys::dsc_work_wait(work, stream.raw, 0), "dsc_work_wait"); // the stream waits, the program does not
        stream.copy(values.as_mut_ptr() as u64, memory as u64, bytes);
        stream.synchronize();
        check(sys::dsc_work_destroy(work), "dsc_work_destroy");
        check(sys::dsc_mem_free(memory as *mut c_void), "dsc_mem_free");
    }
}

fn main() -> dsc::Result<()> {
    let world = start()?;
    let mut values = vec![world.rank() as f32 + 1.0; COUNT];
    let place = match world.device()? {
        Some(device) => {
            sum_on_device(device, &mut values);
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
