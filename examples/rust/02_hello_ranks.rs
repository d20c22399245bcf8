//! The four basic collectives. With four ranks each of them prints
//!   rank summed to 6, reduce-scatter 6, all-gather [0, 1, 2, 3], broadcast 4
//!
//!     dscrun -n 4 -- 02_hello_ranks

use dsc::Op;

fn main() -> dsc::Result<()> {
    let world = dsc::init()?;
    let rank = world.rank() as i64;

    // All-reduce: every rank contributes its number; every rank gets the sum of all numbers.
    let mut sum = rank;
    world.all_reduce(&mut sum, Op::Sum)?;

    // Reduce-scatter: every rank contributes one number for each rank; rank r gets the sum of the numbers for it.
    let mut part = -1i64;
    world.reduce_scatter(&vec![rank; world.size()], &mut part, Op::Sum)?;

    // All-gather: every rank contributes its number; every rank gets all numbers, in rank order.
    let mut numbers = vec![-1i64; world.size()];
    world.all_gather(&rank, &mut numbers)?;

    // Broadcast: rank 0 sends the number of ranks to all others.
    let mut told = if rank == 0 { world.size() as i64 } else { -1 };
    world.broadcast(&mut told, 0)?;

    println!(
        "rank {} of {}: rank summed to {}, reduce-scatter {}, all-gather {:?}, broadcast {}",
        rank,
        world.size(),
        sum,
        part,
        numbers,
        told
    );
    world.finalize()
}
