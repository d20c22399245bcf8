//! Several ranks as threads of one process.

mod awaiting;
mod batches;
mod collectives;
mod context_parallel;
mod cross_entropy;
mod expert_parallel;
mod failures;
mod groups;
mod hooks;
mod join;
mod mesh;
mod named_arrays;
mod operations;
mod pipe;
mod recovery;
mod reducer;
mod reducer_features;
mod rms_norm;
mod scope;
mod sharded;
mod sharing;
mod tensor_map;
mod tied;
mod words;
mod work;

use std::process;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use dsc::{Comm, InitOptions};

/// Runs a function on the given number of ranks, which are threads with their own world. Returns the results in rank
/// order.
///
/// A rank that panics leaves its world, so that the other ranks fail instead of waiting.
fn ranks<T: Send>(size: usize, body: impl Fn(Comm) -> T + Sync) -> Vec<T> {
    ranks_with(InitOptions::new(), size, body)
}

/// Does the same as ranks(), with additional options.
fn ranks_with<T: Send>(options: InitOptions, size: usize, body: impl Fn(Comm) -> T + Sync) -> Vec<T> {
    static WORLDS: AtomicUsize = AtomicUsize::new(0);
    let job_id = format!("rust-{}-{}", process::id(), WORLDS.fetch_add(1, Ordering::Relaxed));
    let (body, options) = (&body, &options.job_id(&job_id));
    thread::scope(|scope| {
        let start = |rank| scope.spawn(move || body(join(options.clone(), rank, size)));
        let threads: Vec<_> = (0..size).map(start).collect();
        threads.into_iter().map(|thread| thread.join().expect("a rank panicked")).collect()
    })
}

fn join(options: InitOptions, rank: usize, size: usize) -> Comm {
    let limit = Duration::from_secs(30);
    let options = options.rank(rank).world_size(size).rank_per_thread(true);
    options.init_timeout(limit).timeout(limit).init().expect("the world is made")
}
