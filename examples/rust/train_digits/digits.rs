//! The data and the network of `train_digits`: plain Rust without communication.
//!
//! Fully connected layers with tanh between them and softmax cross entropy at the end, in double precision: the same
//! network, with the same first weights, as in examples/c/digits.c and examples/python/digits.py.

use std::fs;
use std::path::Path;

pub const PIXELS: usize = 64;
pub const CLASSES: usize = 10;
/// Values that flow between the layers: pixels, two hidden layers, classes.
pub const WIDTHS: [usize; LAYERS + 1] = [PIXELS, 64, 32, CLASSES];
/// Weight (inputs, outputs), bias, weight, bias, ...
pub const PARAMS: usize = 2 * LAYERS;

const LAYERS: usize = 3;
const TEST_EVERY: usize = 5;

pub struct Images {
    pub pixels: Vec<[f64; PIXELS]>,
    pub labels: Vec<usize>,
}

/// Reads the file. Every fifth image belongs to the second set, for testing.
pub fn load(path: &Path) -> Result<(Images, Images), String> {
    let text =
        fs::read_to_string(path).map_err(|error| format!("{}: {}", path.display(), error))?;
    let mut sets = (Images::empty(), Images::empty());
    for (index, line) in text.lines().enumerate() {
        let set = if index % TEST_EVERY == 0 {
            &mut sets.1
        } else {
            &mut sets.0
        };
        let wrong = || {
            format!(
                "{}: line {} is not {} pixels and a digit",
                path.display(),
                index + 1,
                PIXELS
            )
        };
        set.push_line(line).ok_or_else(wrong)?;
    }
    Ok(sets)
}

impl Images {
    fn empty() -> Self {
        Images {
            pixels: Vec::new(),
            labels: Vec::new(),
        }
    }

    pub fn count(&self) -> usize {
        self.labels.len()
    }

    /// Takes one line: 64 pixels from 0 to 16, then the digit.
    fn push_line(&mut self, line: &str) -> Option<()> {
        let values = line
            .split(',')
            .map(|word| word.trim().parse().ok())
            .collect::<Option<Vec<usize>>>()?;
        let (label, pixels) = values.split_last()?;
        if pixels.len() != PIXELS || pixels.iter().any(|pixel| *pixel > 16) || *label >= CLASSES {
            return None;
        }
        let mut image = [0.0; PIXELS];
        for (value, pixel) in image.iter_mut().zip(pixels) {
            *value = *pixel as f64 / 8.0 - 1.0;
        }
        self.pixels.push(image);
        self.labels.push(*label);
        Some(())
    }
}

/// Returns the n-th number (from 1) of SplitMix64 that starts with seed: uniform in [0, 1).
fn uniform(seed: u64, n: u64) -> f64 {
    let mut z = seed.wrapping_add(n.wrapping_mul(0x9E37_79B9_7F4A_7C15));
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^= z >> 31;
    (z >> 11) as f64 / (1u64 << 53) as f64
}

pub struct Network {
    pub params: Vec<Vec<f64>>,
    velocities: Vec<Vec<f64>>,
    /// The inputs of each layer, one row per image.
    values: Vec<Vec<f64>>,
    /// The gradient of the loss with respect to the values of the current layer.
    delta: Vec<f64>,
}

impl Network {
    pub fn new(seed: u64) -> Self {
        let mut params = Vec::new();
        for (layer, pair) in WIDTHS.windows(2).enumerate() {
            let (inputs, outputs) = (pair[0], pair[1]);
            let bound = (3.0 / inputs as f64).sqrt();
            let draw = |n| (2.0 * uniform(seed * 1000 + layer as u64, n) - 1.0) * bound;
            params.push((1..=(inputs * outputs) as u64).map(draw).collect());
            params.push(vec![0.0; outputs]);
        }
        let velocities = params
            .iter()
            .map(|param: &Vec<f64>| vec![0.0; param.len()])
            .collect();
        Network {
            params,
            velocities,
            values: Vec::new(),
            delta: Vec::new(),
        }
    }

    /// Computes the values of all layers after the first one.
    fn forward(&mut self, images: &[[f64; PIXELS]]) {
        self.values = vec![images.concat()];
        for (layer, inputs) in WIDTHS[..LAYERS].iter().enumerate() {
            let (weight, bias) = (&self.params[2 * layer], &self.params[2 * layer + 1]);
            let mut outputs = Vec::with_capacity(images.len() * bias.len());
            for row in self.values[layer].chunks(*inputs) {
                let mut out = bias.clone();
                for (value, weights) in row.iter().zip(weight.chunks(bias.len())) {
                    add_scaled(&mut out, *value, weights);
                }
                if layer + 1 < LAYERS {
                    out.iter_mut().for_each(|x| *x = x.tanh());
                }
                outputs.extend(out);
            }
            self.values.push(outputs);
        }
    }

    /// Returns the mean loss over the picked images, and keeps what `backward` needs.
    pub fn loss(&mut self, set: &Images, picked: &[usize]) -> f64 {
        let images: Vec<[f64; PIXELS]> = picked.iter().map(|image| set.pixels[*image]).collect();
        self.forward(&images);
        self.delta.clear();
        let mut loss = 0.0;
        for (scores, image) in self.values[LAYERS].chunks(CLASSES).zip(picked) {
            let label = set.labels[*image];
            let highest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let sum: f64 = scores.iter().map(|score| (score - highest).exp()).sum();
            for (class, score) in scores.iter().enumerate() {
                let wanted = if class == label { 1.0 } else { 0.0 };
                self.delta
                    .push(((score - highest).exp() / sum - wanted) / picked.len() as f64);
            }
            loss += sum.ln() - (scores[label] - highest);
        }
        loss / picked.len() as f64
    }

    /// Computes the gradients from the last parameter to the first. `gradient` gets the parameter's number and a
    /// function that writes its gradient.
    pub fn backward<E>(
        &mut self,
        mut gradient: impl FnMut(usize, &dyn Fn(&mut [f64])) -> Result<(), E>,
    ) -> Result<(), E> {
        for layer in (0..LAYERS).rev() {
            let (inputs, outputs) = (WIDTHS[layer], WIDTHS[layer + 1]);
            let (values, delta) = (&self.values[layer], &self.delta);
            gradient(2 * layer + 1, &|grad| {
                grad.fill(0.0);
                delta
                    .chunks(outputs)
                    .for_each(|row| add_scaled(grad, 1.0, row));
            })?;
            gradient(2 * layer, &|grad| {
                grad.fill(0.0);
                for (row, delta) in values.chunks(inputs).zip(delta.chunks(outputs)) {
                    for (value, grad) in row.iter().zip(grad.chunks_mut(outputs)) {
                        add_scaled(grad, *value, delta);
                    }
                }
            })?;
            if layer > 0 {
                self.delta = self.input_gradient(layer);
            }
        }
        Ok(())
    }

    /// The gradient of a layer's inputs, which are outputs of tanh.
    fn input_gradient(&self, layer: usize) -> Vec<f64> {
        let (inputs, outputs) = (WIDTHS[layer], WIDTHS[layer + 1]);
        let rows = self.values[layer]
            .chunks(inputs)
            .zip(self.delta.chunks(outputs));
        let mut found = Vec::with_capacity(self.values[layer].len());
        for (values, delta) in rows {
            for (value, weights) in values.iter().zip(self.params[2 * layer].chunks(outputs)) {
                let sum: f64 = delta.iter().zip(weights).map(|(a, b)| a * b).sum();
                found.push(sum * (1.0 - value * value));
            }
        }
        found
    }

    /// Runs one step of gradient descent with momentum, for one parameter.
    pub fn step(&mut self, index: usize, grad: &[f64], rate: f64) {
        const MOMENTUM: f64 = 0.9;
        let (param, velocity) = (&mut self.params[index], &mut self.velocities[index]);
        for ((param, velocity), grad) in param.iter_mut().zip(velocity).zip(grad) {
            *velocity = *velocity * MOMENTUM + grad;
            *param -= rate * *velocity;
        }
    }

    /// Returns how many of the images first, first + stride, ... are recognized.
    pub fn correct(&mut self, set: &Images, first: usize, stride: usize) -> usize {
        let picked: Vec<usize> = (first..set.count()).step_by(stride).collect();
        let images: Vec<[f64; PIXELS]> = picked.iter().map(|image| set.pixels[*image]).collect();
        self.forward(&images);
        let found = self.values[LAYERS].chunks(CLASSES).map(highest_class);
        found
            .zip(&picked)
            .filter(|(class, image)| *class == set.labels[**image])
            .count()
    }
}

fn add_scaled(sum: &mut [f64], factor: f64, x: &[f64]) {
    for (sum, x) in sum.iter_mut().zip(x) {
        *sum += factor * x;
    }
}

fn highest_class(scores: &[f64]) -> usize {
    let mut best = 0;
    for (class, score) in scores.iter().enumerate() {
        if *score > scores[best] {
            best = class;
        }
    }
    best
}

/// Trains in this process alone on the batches that the orders give; returns the loss of every step.
pub fn train_alone(
    set: &Images,
    orders: &[Vec<usize>],
    batch: usize,
    rate: f64,
    seed: u64,
) -> Vec<f64> {
    let mut network = Network::new(seed);
    let mut grads: Vec<Vec<f64>> = network
        .params
        .iter()
        .map(|param| vec![0.0; param.len()])
        .collect();
    let mut losses = Vec::new();
    for picked in orders.iter().flat_map(|order| order.chunks_exact(batch)) {
        losses.push(network.loss(set, picked));
        let written: Result<(), ()> = network.backward(|index, write| {
            write(&mut grads[index]);
            Ok(())
        });
        debug_assert!(written.is_ok());
        for (index, grad) in grads.iter().enumerate() {
            network.step(index, grad, rate);
        }
    }
    losses
}
