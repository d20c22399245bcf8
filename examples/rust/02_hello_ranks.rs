//! The four basic collectives. With four ranks each of them prints
//!   rank summed to 6, reduce-scatter 6, all-gather [0, 1, 2, 3], broadcast 4
//!
//!     dscrun -n 4 -- 02_hello_ranks

use dsc::Op;

fn main() -> dsc::Result<()> {
    let world = dsc::init()?;
    let rank = world.rank() as i64;

    // Every rank gives its number; every rank gets the sum of all.
    let mut sum = rank;
    world.all_reduce(&mut sum, Op::Sum)?;

    // Every rank gives one number for each rank; rank r gets the sum of those meant for it.
    let mut part = -1i64;
    world.reduce_scatter(&vec![rank; world.size()], &mut part, Op::Sum)?;

    // Every rank gives its number; every rank gets all of them, in rank order.
    let mut numbers = vec![-1i64; world.size()];
    world.all_gather(&rank, &mut numbers)?;

    // Rank 0 tells all the others how many they are.
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
