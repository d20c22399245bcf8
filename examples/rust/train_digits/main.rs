//! Trains a digit classifier on several data-parallel ranks, which communicate through libdsc.
//!
//!     dscrun -n 4 -- train_digits --compare
//!
//! Every rank has the whole network and a shard of the images. The gradients are computed directly in the reducer's
//! buckets, so nothing is copied. A full bucket is averaged while the next one is being computed.

mod digits;
mod options;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use digits::{Images, Network, PARAMS, WIDTHS};
use dsc::{BucketReducer, Comm, Op, ReducerOptions, Tensor};
use options::Options;

const WANTED_ACCURACY: f64 = 0.95;
const ALLOWED_DIFFERENCE: f64 = 1e-9;

/// One rank's part of the training.
struct Trainer<'a> {
    world: &'a Comm,
    options: &'a Options,
    train: &'a Images,
    test: &'a Images,
    network: Network,
    reducer: BucketReducer,
    in_libdsc: Duration,
}

impl<'a> Trainer<'a> {
    /// The reducer checks that the parameters of all ranks agree in number, type and shape, and copies rank 0's values
    /// to all.
    fn new(
        world: &'a Comm,
        options: &'a Options,
        train: &'a Images,
        test: &'a Images,
    ) -> dsc::Result<Self> {
        let mut network = Network::new(options.seed + world.rank() as u64);
        let mut tensors: Vec<Tensor> = network.params.iter_mut().map(Tensor::new).collect();
        let bucket_bytes = options.bucket_kib << 10;
        let settings = ReducerOptions::new()
            .bucket_bytes(bucket_bytes)
            .first_bucket_bytes(bucket_bytes / 4);
        let reducer = BucketReducer::new(world, &mut tensors, &settings)?;
        Ok(Trainer {
            world,
            options,
            train,
            test,
            network,
            reducer,
            in_libdsc: Duration::ZERO,
        })
    }

    /// Trains on this rank's part of one batch and returns the loss of that part.
    fn step(&mut self, picked: &[usize]) -> dsc::Result<f64> {
        let in_libdsc = &mut self.in_libdsc;
        let iteration = timed(in_libdsc, || self.reducer.begin())?;
        let loss = self.network.loss(self.train, picked);
        self.network.backward(|index, write| {
            let mut view = iteration.grad_view::<f64>(index)?;
            write(&mut view);
            timed(in_libdsc, || view.mark_ready()) // the reduction of a full bucket starts automatically
        })?;
        timed(in_libdsc, || iteration.finish())?; // now the views hold the mean over all ranks
        for index in 0..PARAMS {
            self.network
                .step(index, self.reducer.view(index)?, self.options.rate);
        }
        Ok(loss)
    }

    /// Trains on this rank's shard once; returns the loss of every whole batch and the test accuracy.
    fn epoch(&mut self, number: usize) -> dsc::Result<(Vec<f64>, f64)> {
        let (rank, size) = (self.world.rank(), self.world.size());
        let order = epoch_order(self.train, size, rank, self.options.seed + number as u64)?;
        let steps = self.train.count() / self.options.batch;
        let mut losses = Vec::with_capacity(steps);
        for picked in order.chunks_exact(self.options.batch / size).take(steps) {
            losses.push(self.step(picked)?);
        }
        let mut correct = self.network.correct(self.test, rank, size) as f64;
        timed(&mut self.in_libdsc, || {
            self.world.all_reduce(&mut losses, Op::Avg)
        })?;
        timed(&mut self.in_libdsc, || {
            self.world.all_reduce(&mut correct, Op::Sum)
        })?;
        Ok((losses, correct / self.test.count() as f64))
    }

    /// The library's own totals since the start: time waiting for other ranks, and time moving data.
    fn records(&self) -> dsc::Result<(Duration, Duration)> {
        let records = [self.world.stats()?, self.reducer.op_stats()?].concat();
        Ok((
            records.iter().map(|r| r.waiting).sum(),
            records.iter().map(|r| r.moving).sum(),
        ))
    }
}

/// Calls into libdsc and adds up the time that this thread spends there.
fn timed<T>(total: &mut Duration, call: impl FnOnce() -> T) -> T {
    let started = Instant::now();
    let result = call();
    *total += started.elapsed();
    result
}

/// Position p of the shuffled order belongs to shard p % shards, so equal parts of all shards form one whole batch.
fn epoch_order(train: &Images, shards: usize, shard: usize, seed: u64) -> dsc::Result<Vec<usize>> {
    dsc::shard_indices(train.count(), shards, shard, Some(seed), true)
}

fn show_epoch(number: usize, epochs: usize, losses: &[f64], accuracy: f64) {
    let done = (20 * (number + 1) + epochs / 2) / epochs;
    let bar = format!("{}{}", "#".repeat(done), ".".repeat(20 - done));
    let loss = losses.iter().sum::<f64>() / losses.len() as f64;
    println!(
        "epoch {:2}/{}  [{}]  loss {:.6}  test accuracy {:5.2}%",
        number + 1,
        epochs,
        bar,
        loss,
        accuracy * 100.0
    );
}

/// Trains, prints the times, and returns the loss of every step and the final accuracy.
fn train_together(trainer: &mut Trainer) -> dsc::Result<(Vec<f64>, f64)> {
    let (world, epochs) = (trainer.world, trainer.options.epochs);
    world.barrier()?; // all ranks begin together, so that the times can be compared
    let (before, started) = (trainer.records()?, Instant::now());
    let (mut losses, mut accuracy) = (Vec::new(), 0.0);
    for number in 0..epochs {
        let (epoch_losses, epoch_accuracy) = trainer.epoch(number)?;
        if world.rank() == 0 {
            show_epoch(number, epochs, &epoch_losses, epoch_accuracy);
        }
        losses.extend(epoch_losses);
        accuracy = epoch_accuracy;
    }
    let (total, after) = (started.elapsed(), trainer.records()?);
    let computing = total - trainer.in_libdsc;
    let times = [
        total,
        computing,
        trainer.in_libdsc,
        after.0 - before.0,
        after.1 - before.1,
    ];
    print_times(world, &times.map(|time| time.as_secs_f64() * 1e3))?;
    Ok((losses, accuracy))
}

/// Rank 0 prints the times of all ranks.
fn print_times(world: &Comm, times: &[f64; 5]) -> dsc::Result<()> {
    let mut table = vec![0.0; world.size() * times.len()];
    world.all_gather(times, &mut table)?;
    if world.rank() != 0 {
        return Ok(());
    }
    println!("\nwhere the time went (ms)   by the rank's own clock      by libdsc's records*");
    println!("rank      total   computing   in libdsc     waiting      moving");
    for (rank, row) in table.chunks(times.len()).enumerate() {
        println!(
            "{:4} {:10.1} {:11.1} {:11.1} {:11.1} {:11.1}",
            rank, row[0], row[1], row[2], row[3], row[4]
        );
    }
    println!("* of every operation, also while the rank was computing: until all ranks had arrived, then to the end");
    Ok(())
}

/// Rank 0 trains alone on the same batches; returns on all ranks the largest relative difference of a loss.
fn compare(world: &Comm, options: &Options, train: &Images, losses: &[f64]) -> dsc::Result<f64> {
    let mut worst = 0.0;
    if world.rank() == 0 {
        let orders = (0..options.epochs as u64)
            .map(|number| epoch_order(train, 1, 0, options.seed + number));
        let orders = orders.collect::<dsc::Result<Vec<_>>>()?;
        let alone = digits::train_alone(train, &orders, options.batch, options.rate, options.seed);
        for (loss, alone) in losses.iter().zip(&alone) {
            let difference = (loss - alone).abs() / alone.abs();
            worst = if difference <= worst {
                worst
            } else {
                difference
            }; // NaN stays NaN
        }
        let verdict = if worst <= ALLOWED_DIFFERENCE {
            "equal"
        } else {
            "DIFFERENT"
        };
        println!(
            "losses of {} steps, {} ranks and one process: largest relative difference",
            alone.len(),
            world.size()
        );
        println!("  {:.2e}, allowed 1e-09: {}", worst, verdict);
    }
    world.broadcast(&mut worst, 0)?;
    Ok(worst)
}

/// Returns an error text if options do not fit together.
fn problem(options: &Options, ranks: usize, images: usize) -> Option<String> {
    if options.batch % ranks != 0 {
        return Some(format!(
            "--batch {} cannot be divided among {} ranks",
            options.batch, ranks
        ));
    }
    (options.batch > images).then(|| {
        format!(
            "--batch {} is more than the {} training images",
            options.batch, images
        )
    })
}

/// Trains, reports, and returns the exit code: the same on all ranks.
fn run(world: &Comm, options: &Options, train: &Images, test: &Images) -> dsc::Result<u8> {
    let first = world.rank() == 0;
    if let Some(problem) = problem(options, world.size(), train.count()) {
        if first {
            eprintln!("train_digits: {}", problem);
        }
        return Ok(2);
    }
    if first {
        let (images, tests, ranks) = (train.count(), test.count(), world.size());
        println!(
            "{} images to train on, {} to test with; layers {:?}; {} ranks",
            images, tests, WIDTHS, ranks
        );
    }
    let (losses, accuracy) = train_together(&mut Trainer::new(world, options, train, test)?)?;
    if first {
        let verdict = if accuracy >= WANTED_ACCURACY {
            "reached"
        } else {
            "MISSED"
        };
        println!(
            "\ntest accuracy {:.2}%, at least {:.0}% wanted: {}",
            accuracy * 100.0,
            WANTED_ACCURACY * 100.0,
            verdict
        );
    }
    let difference = if options.compare {
        compare(world, options, train, &losses)?
    } else {
        0.0
    };
    Ok(u8::from(
        !(accuracy >= WANTED_ACCURACY && difference <= ALLOWED_DIFFERENCE),
    ))
}

fn main() -> ExitCode {
    let options = Options::parse();
    let (train, test) = match digits::load(&options.data) {
        Ok(sets) => sets,
        Err(problem) => {
            eprintln!("train_digits: {}", problem);
            return ExitCode::FAILURE;
        }
    };
    let code = dsc::init().and_then(|world| {
        let code = run(&world, &options, &train, &test)?;
        world.finalize().map(|()| code)
    });
    code.map_or_else(
        |error| {
            eprintln!("train_digits: {}", error);
            ExitCode::FAILURE
        },
        ExitCode::from,
    )
}
