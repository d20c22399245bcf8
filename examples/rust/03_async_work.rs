//! Operations that run while the program computes, on buffers that are borrowed or owned.
//!
//!     dscrun -n 4 -- 03_async_work

use dsc::{request, Op};

const COUNT: usize = 1 << 18;
const OPERATIONS: usize = 4;

fn compute_something() -> f64 {
    (1..=10_000_000).map(|i| 1.0 / f64::from(i)).sum()
}

fn main() -> dsc::Result<()> {
    let world = dsc::init()?;
    let expected = |i: usize| (world.size() * (world.size() - 1) / 2 + world.size() * i) as f32;

    // Borrowed: the scope waits for all operations that were started in it; after it the buffers can be used again.
    let mut buffers: Vec<Vec<f32>> = (0..OPERATIONS)
        .map(|i| vec![(world.rank() + i) as f32; COUNT])
        .collect();
    let (completed, harmonic) = world.scope(|scope| -> dsc::Result<(usize, f64)> {
        let mut works = Vec::new();
        for buffer in &mut buffers {
            works.push(scope.start(request::all_reduce(buffer, Op::Sum))?); // returns immediately
        }
        let harmonic = compute_something(); // meanwhile a thread of the library computes the sums
        let mut completed = 0;
        for work in &works {
            completed += usize::from(work.test()?); // tests without waiting
        }
        for work in works.into_iter().rev() {
            work.wait()?; // waiting in any order is fine
        }
        Ok((completed, harmonic))
    })?;
    for (i, buffer) in buffers.iter().enumerate() {
        assert!(buffer.iter().all(|x| *x == expected(i)));
    }

    // Owned: the buffer moves into the work, and wait() returns it, so the work can be kept anywhere.
    let work = world.start(request::all_reduce(
        vec![world.rank() as f32; COUNT],
        Op::Sum,
    ))?;
    let owned = work.wait()?;
    assert_eq!(owned[COUNT - 1], expected(0));

    println!(
        "rank {}: {} of {} all-reduces were complete after the computing ({:.3}), now all are",
        world.rank(),
        completed,
        OPERATIONS,
        harmonic
    );
    world.finalize()
}
