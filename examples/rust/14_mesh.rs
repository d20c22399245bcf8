//! A mesh: named axes instead of colors and keys. Pairs of ranks share a layer (tp), and such pairs form a pipeline
//! (pp). The last stage broadcasts a value that only it knows.
//!
//!     dscrun -n 4 -- 14_mesh

use dsc::Mesh;

fn main() -> dsc::Result<()> {
    let world = dsc::init()?;
    let (rank, tp) = (world.rank(), if world.size() % 2 == 0 { 2 } else { 1 });

    // The first axis of the order varies fastest: neighbors along it have consecutive ranks.
    let mesh = Mesh::with_order(&[("tp", tp), ("pp", world.size() / tp)], "tp-pp")?;
    let (name, layer, pipe) = (
        mesh.rank_name(rank, &[])?,
        mesh.group(rank, "tp")?,
        mesh.group(rank, "pp")?,
    );
    println!(
        "rank {} is {}: layer of {:?}, pipeline of {:?}",
        rank, name, layer, pipe
    );

    // All ranks make the communicators of an axis together; each rank gets the one it is in.
    let stages = mesh.comm(&world, "pp")?;
    let mut loss = rank as f64;
    stages.broadcast(&mut loss, stages.size() - 1)?;
    assert_eq!(loss, mesh.peer(rank, "pp", -1)? as f64);
    println!("rank {}: the loss is {}", rank, loss);
    drop(stages);
    world.finalize()
}
