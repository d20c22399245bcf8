//! The command line of `train_digits`.

use std::env;
use std::path::PathBuf;
use std::process::exit;
use std::str::FromStr;

const USAGE: &str = "\
usage: train_digits [--epochs 12] [--batch 48] [--lr 0.05] [--seed 0] [--bucket-kib 16] [--compare]
                    [--data examples/data/digits.csv]";

pub struct Options {
    /// Passes over the images.
    pub epochs: usize,
    /// Images per step, all ranks together.
    pub batch: usize,
    /// Learning rate.
    pub rate: f64,
    /// Seed of the weights and of the order.
    pub seed: u64,
    /// Size of a gradient bucket.
    pub bucket_kib: usize,
    /// Also train in one process, and compare the losses.
    pub compare: bool,
    /// File of the images.
    pub data: PathBuf,
}

impl Options {
    /// Reads the command line; an error is printed and ends the program with code 2.
    pub fn parse() -> Self {
        let mut options = Options {
            epochs: 12,
            batch: 48,
            rate: 0.05,
            seed: 0,
            bucket_kib: 16,
            compare: false,
            data: PathBuf::from("examples/data/digits.csv"),
        };
        let mut words = env::args().skip(1);
        while let Some(name) = words.next() {
            if name == "--help" {
                println!("{}", USAGE);
                exit(0);
            } else if name == "--compare" {
                options.compare = true;
            } else {
                let value = words.next().unwrap_or_else(|| "nothing".into());
                options.set(&name, &value);
            }
        }
        options
    }

    fn set(&mut self, name: &str, value: &str) {
        let positive = "a whole number above 0";
        match name {
            "--epochs" => self.epochs = number(name, value, positive, |n| *n > 0),
            "--batch" => self.batch = number(name, value, positive, |n| *n > 0),
            "--bucket-kib" => {
                self.bucket_kib = number(name, value, positive, |n| *n > 0 && *n <= 1 << 30)
            }
            "--seed" => {
                self.seed = number(name, value, "a whole number up to 10^9", |n| {
                    *n <= 1_000_000_000
                })
            }
            "--lr" => {
                self.rate = number(name, value, "a number above 0", |x: &f64| {
                    x.is_finite() && *x > 0.0
                })
            }
            "--data" => self.data = PathBuf::from(value),
            _ => refuse("option", "one of those above", name),
        }
    }
}

fn number<N: FromStr>(name: &str, text: &str, expected: &str, good: impl Fn(&N) -> bool) -> N {
    match text.parse() {
        Ok(value) if good(&value) => value,
        _ => refuse(name, expected, text),
    }
}

/// Explains a wrong option once, instead of once per rank.
fn refuse(name: &str, expected: &str, came: &str) -> ! {
    if env::var("RANK").map_or(true, |rank| rank == "0") {
        eprintln!(
            "{}\ntrain_digits: {}: expected {}, got '{}'",
            USAGE, name, expected, came
        );
    }
    exit(2);
}
