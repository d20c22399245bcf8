//! Rows and columns: 2 x 2 ranks as replicas of a pipeline, a group for each row and for each column.
//!
//!     dscrun -n 4 -- 10_groups_2x2

use dsc::{Comm, GroupOptions, Op};

const STAGES: usize = 2;

/// Returns the ranks of a group as ranks of the world, such as "[0, 1]".
fn members(group: &Comm) -> dsc::Result<String> {
    let ranks = (0..group.size())
        .map(|rank| group.global_rank(rank))
        .collect::<dsc::Result<Vec<_>>>()?;
    Ok(format!("{:?}", ranks))
}

fn split(world: &Comm, color: usize, key: usize, name: &str) -> dsc::Result<Comm> {
    let group = world.split_with(Some(color), key as i32, &GroupOptions::new().name(name))?;
    Ok(group.expect("every rank has a color"))
}

fn main() -> dsc::Result<()> {
    let world = dsc::init()?;
    let (rank, size) = (world.rank(), world.size());
    assert!(
        size % STAGES == 0,
        "expected an even number of ranks: dscrun -n 4 -- 10_groups_2x2"
    );
    let (replica, stage) = (rank / STAGES, rank % STAGES);

    let pipeline = split(&world, replica, stage, "pipeline")?;
    let replicas = split(&world, stage, replica, "replicas")?;
    let (row, column) = (members(&pipeline)?, members(&replicas)?);
    println!(
        "rank {}: stage {} of pipeline {}, replica {} of {}",
        rank, stage, row, replica, column
    );

    // Along the row: every stage except the first receives from the stage before, and adds 10.
    let mut x = replica as f64 + 1.0;
    if stage > 0 {
        pipeline.recv(&mut x, stage - 1)?;
        x += 10.0;
    }
    if stage + 1 < STAGES {
        pipeline.send(&x, stage + 1)?;
    }

    // Along the column: the mean over the replicas.
    replicas.all_reduce(&mut x, Op::Avg)?;
    assert_eq!(x, 10.0 * stage as f64 + (size / STAGES + 1) as f64 / 2.0);
    println!(
        "rank {}: average over the replicas of stage {} is {}",
        rank, stage, x
    );

    world.finalize()
}
