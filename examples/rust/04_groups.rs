//! Groups: split() divides the world by color, create_group() takes a list of ranks.
//!
//!     dscrun -n 4 -- 04_groups

use dsc::{Comm, GroupOptions, Op};

/// Adds up a number over a group.
fn sum_over(group: &Comm, mut value: u64) -> dsc::Result<u64> {
    group.all_reduce(&mut value, Op::Sum)?;
    Ok(value)
}

fn main() -> dsc::Result<()> {
    let world = dsc::init()?;
    let (rank, size) = (world.rank(), world.size());

    // Ranks of one color form a group: here the even ranks and the odd ranks.
    let half = world
        .split(Some(rank % 2), 0)?
        .expect("every rank has a color");
    let kind = if rank % 2 == 0 { "even" } else { "odd" };
    let sum = sum_over(&half, rank as u64)?;
    println!(
        "rank {}: number {} of {} {} ranks, which sum to {}",
        rank,
        half.rank(),
        half.size(),
        kind,
        sum
    );

    // All ranks of the parent make this call with the same list. The order of the list is the order in the group.
    let listed = if size > 1 { vec![size - 1, 0] } else { vec![0] };
    let options = GroupOptions::new().name("ends"); // shown in errors
    if let Some(ends) = world.create_group_with(&listed, &options)? {
        let first = ends.global_rank(0)?;
        assert_eq!(first, size - 1);
        let sum = sum_over(&ends, rank as u64)?;
        println!(
            "rank {}: in the group of both ends, whose first is rank {}; sum {}",
            rank, first, sum
        );
    } // ranks that are not listed get None; a group ends when it is dropped

    world.finalize()
}
