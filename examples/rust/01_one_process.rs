//! A single process is a world of one rank, so a program needs no special version for it.
//!
//!     cargo run --bin 01_one_process

fn main() -> dsc::Result<()> {
    let world = dsc::init()?; // no launcher has set RANK: a world of one rank
    let (major, minor, _) = dsc::version();
    let source = world.source()?;
    println!(
        "libdsc {}.{}: rank {} of {} (from: {})",
        major,
        minor,
        world.rank(),
        world.size(),
        source
    );

    let mut x = [1.0, 2.0, 3.0];
    world.all_reduce(&mut x, dsc::Op::Sum)?; // the sum over one rank is that rank's own values
    assert_eq!(x, [1.0, 2.0, 3.0]);
    println!("all-reduce of [1, 2, 3] is [{}, {}, {}]", x[0], x[1], x[2]);

    world.finalize()
}
