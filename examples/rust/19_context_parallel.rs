//! Context parallelism: a causal attention, forward and backward, over a sequence that the ranks divide.
//!
//! Ring: each rank keeps its queries, and receives the keys and values of all ranks, one block per step. The sequence
//! is in zig-zag order, so that each rank has the same work at each step. Gradients of keys and values follow their
//! blocks.
//!
//! Ulysses: an all-to-all turns a part of the tokens with all heads into all tokens with a part of the heads, and back.
//!
//!     dscrun -n 4 -- 19_context_parallel

use dsc::{CausalWork, Comm, Ring, SequenceHeads, SequenceOrder};

const BATCH: usize = 2;
const TOKENS: usize = 16;
const HEADS: usize = 4;
const DIM: usize = 2;

/// Queries, keys, values and the gradient of the output of some tokens and heads; then the results. Arrays are
/// [batch, tokens, heads, dim]; keys and values are one after the other, as are their gradients.
#[derive(Clone, Default)]
struct Attention {
    tokens: usize,
    heads: usize,
    q: Vec<f64>,
    kv: Vec<f64>,
    upstream: Vec<f64>,
    out: Vec<f64>,
    dq: Vec<f64>,
    dkv: Vec<f64>,
    top: Vec<f64>,   // the largest score of each query
    total: Vec<f64>, // the sum of exp(score - top)
}

fn dot(x: &[f64], y: &[f64]) -> f64 {
    x.iter().zip(y).map(|(a, b)| a * b).sum()
}

fn scale() -> f64 {
    1.0 / (DIM as f64).sqrt()
}

impl Attention {
    fn new(tokens: usize, heads: usize, q: Vec<f64>, kv: Vec<f64>, upstream: Vec<f64>) -> Self {
        let count = BATCH * tokens * heads * DIM;
        Attention {
            tokens,
            heads,
            q,
            kv,
            upstream,
            out: vec![0.0; count],
            dq: vec![0.0; count],
            dkv: vec![0.0; 2 * count],
            top: vec![f64::NEG_INFINITY; count / DIM],
            total: vec![0.0; count / DIM],
        }
    }

    /// Adds one pair of a query and a key to the output.
    fn attend_pair(&mut self, query: usize, k: &[f64], v: &[f64]) {
        let score = dot(&self.q[query..query + DIM], k) * scale();
        let row = query / DIM;
        let highest = self.top[row].max(score);
        let (old, now) = ((self.top[row] - highest).exp(), (score - highest).exp());
        self.total[row] = self.total[row] * old + now;
        for (out, v) in self.out[query..query + DIM].iter_mut().zip(v) {
            *out = *out * old + now * v;
        }
        self.top[row] = highest;
    }

    fn gradient_pair(&mut self, query: usize, key: usize, kv: &[f64], grad: &mut [f64]) {
        let (values, row) = (kv.len() / 2, query / DIM);
        let (q, k, v) = (
            &self.q[query..query + DIM],
            &kv[key..key + DIM],
            &kv[values + key..][..DIM],
        );
        let p = (dot(q, k) * scale() - self.top[row]).exp() / self.total[row];
        let upstream = &self.upstream[query..query + DIM];
        let slope = p * (dot(upstream, v) - dot(upstream, &self.out[query..query + DIM])) * scale();
        for d in 0..DIM {
            grad[values + key + d] += p * upstream[d];
            grad[key + d] += slope * q[d];
            self.dq[query + d] += slope * k[d];
        }
    }

    /// Processes all pairs of one step; `grad` is None in the forward pass.
    fn take_block(&mut self, work: &CausalWork, kv: &[f64], mut grad: Option<&mut [f64]>) {
        let at = |b: usize, t: usize, h: usize| ((b * self.tokens + t) * self.heads + h) * DIM;
        let mut pairs = Vec::new();
        for b in 0..BATCH {
            for h in 0..self.heads {
                for i in work.queries.clone() {
                    let seen = work.keys.clone().filter(|&j| !work.is_diagonal || j <= i);
                    pairs.extend(seen.map(|j| (at(b, i, h), at(b, j, h))));
                }
            }
        }
        for (query, key) in pairs {
            match grad.as_deref_mut() {
                None => {
                    self.attend_pair(query, &kv[key..key + DIM], &kv[kv.len() / 2 + key..][..DIM])
                }
                Some(grad) => self.gradient_pair(query, key, kv, grad),
            }
        }
    }

    fn divide_by_sums(&mut self) {
        for (i, out) in self.out.iter_mut().enumerate() {
            *out /= self.total[i / DIM];
        }
    }

    /// Computes the whole attention in one process.
    fn run(&mut self) {
        let everything = CausalWork {
            queries: 0..self.tokens,
            keys: 0..self.tokens,
            is_diagonal: true,
        };
        let (kv, mut grad) = (self.kv.clone(), self.dkv.clone());
        self.take_block(&everything, &kv, None);
        self.divide_by_sums();
        self.take_block(&everything, &kv, Some(&mut grad));
        self.dkv = grad;
    }

    /// Returns this rank's tokens of the whole arrays.
    fn tokens_of(&self, order: SequenceOrder, world: &Comm) -> dsc::Result<Attention> {
        let take = |whole: &[f64]| part_of(whole, order, world);
        let mut kv = take(&self.kv[..self.kv.len() / 2])?;
        kv.extend(take(&self.kv[self.kv.len() / 2..])?);
        Ok(Attention::new(
            TOKENS / world.size(),
            HEADS,
            take(&self.q)?,
            kv,
            take(&self.upstream)?,
        ))
    }

    fn expect_part_of(
        &self,
        whole: &Attention,
        order: SequenceOrder,
        world: &Comm,
    ) -> dsc::Result<()> {
        let (here, all) = (self.q.len(), whole.q.len());
        for (part, whole) in [
            (&self.out[..], &whole.out[..]),
            (&self.dq, &whole.dq),
            (&self.dkv[..here], &whole.dkv[..all]),
            (&self.dkv[here..], &whole.dkv[all..]),
        ] {
            let expected = part_of(whole, order, world)?;
            assert!(part
                .iter()
                .zip(&expected)
                .all(|(a, b)| (a - b).abs() < 1e-12));
        }
        Ok(())
    }
}

fn part_of(whole: &[f64], order: SequenceOrder, world: &Comm) -> dsc::Result<Vec<f64>> {
    let held = order.ranges(TOKENS, world.size(), world.rank())?;
    let row = HEADS * DIM;
    let of_batch = |b: usize| {
        held.clone()
            .into_iter()
            .flat_map(move |range| (b * TOKENS + range.start) * row..(b * TOKENS + range.end) * row)
    };
    Ok((0..BATCH).flat_map(of_batch).map(|i| whole[i]).collect())
}

fn ring_attention(world: &Comm, part: &mut Attention) -> dsc::Result<()> {
    let order = SequenceOrder::Zigzag;
    let work = |source| order.causal_work(TOKENS, world.size(), world.rank(), source);
    let (kv, bytes) = (part.kv.clone(), part.kv.len() * 8);
    let mut ring = Ring::new(world, bytes, bytes)?;
    let mut pass = ring.pass(&kv, None)?;
    while let Some(block) = pass.step()? {
        part.take_block(&work(block.source)?, block.data, None); // meanwhile the next block arrives
    }
    part.divide_by_sums();
    let mut pass = ring.backward::<f64, f64>(&kv, None)?;
    while let Some(block) = pass.step()? {
        part.take_block(&work(block.source)?, block.data, Some(block.grad));
    }
    part.dkv = pass.into_sum()?;
    Ok(())
}

fn ulysses_attention(world: &Comm, part: &mut Attention) -> dsc::Result<()> {
    let exchange = SequenceHeads::new(BATCH, TOKENS, HEADS, DIM);
    let count = part.q.len(); // the number of elements is the same in both forms
    let there = |x: &[f64]| {
        let mut heads = vec![0.0; count];
        exchange.forward(world, x, &mut heads).map(|()| heads)
    };
    let back = |x: &[f64]| {
        let mut tokens = vec![0.0; count];
        exchange.backward(world, x, &mut tokens).map(|()| tokens)
    };
    let mut kv = there(&part.kv[..count])?;
    kv.extend(there(&part.kv[count..])?);
    let (q, upstream) = (there(&part.q)?, there(&part.upstream)?);
    let mut heads = Attention::new(TOKENS, HEADS / world.size(), q, kv, upstream);
    heads.run();
    part.out = back(&heads.out)?;
    part.dq = back(&heads.dq)?;
    part.dkv = back(&heads.dkv[..count])?;
    part.dkv.extend(back(&heads.dkv[count..])?);
    Ok(())
}

fn pattern(step: usize) -> Vec<f64> {
    let count = BATCH * TOKENS * HEADS * DIM;
    (0..count)
        .map(|i| (i * step % 23) as f64 / 11.0 - 1.0)
        .collect()
}

fn main() -> dsc::Result<()> {
    let world = dsc::init()?;
    assert_eq!(
        HEADS % world.size(),
        0,
        "expected a number of ranks that divides the heads"
    );
    let kv = [pattern(5), pattern(7)].concat();
    let mut whole = Attention::new(TOKENS, HEADS, pattern(3), kv, pattern(4));
    whole.run();

    let mut part = whole.tokens_of(SequenceOrder::Zigzag, &world)?;
    ring_attention(&world, &mut part)?;
    part.expect_part_of(&whole, SequenceOrder::Zigzag, &world)?;

    let mut part = whole.tokens_of(SequenceOrder::Contiguous, &world)?;
    ulysses_attention(&world, &mut part)?;
    part.expect_part_of(&whole, SequenceOrder::Contiguous, &world)?;

    let loss = dot(&whole.out, &whole.upstream);
    let norm = (dot(&whole.dq, &whole.dq) + dot(&whole.dkv, &whole.dkv)).sqrt();
    println!(
        "rank {}: loss {:.6}, norm of the gradients {:.6}; ring and Ulysses agree with {} tokens per rank",
        world.rank(), loss, norm, part.tokens
    );
    world.finalize()
}
