//! Tensor parallelism: two layers, y = relu(x W1) W2, whose weights the ranks divide. Each rank has some columns of W1
//! and the same rows of W2, so it computes a part of the hidden layer and a part of each sum in y.
//!
//! The ranks exchange data in two mappings: one where activations enter the layers, and one where they leave. They are
//! `Copy` and `Reduce` if all ranks have all tokens in x and y. They are `GatherReduce` and `ReduceScatter` if each rank
//! has a part of the tokens (sequence parallelism), which takes less memory.
//!
//!     dscrun -n 4 -- 17_tensor_parallel

use dsc::{request, Comm, Mapping, Op, TensorMap};

const TOKENS: usize = 8;
const WIDTH: usize = 4;
const HIDDEN: usize = 16;

/// Rows and columns.
#[derive(Clone, Debug, PartialEq)]
struct Matrix(Vec<Vec<f64>>);

impl Matrix {
    fn new(rows: usize, columns: usize, value: impl Fn(usize, usize) -> f64) -> Self {
        let row = |i| (0..columns).map(|j| value(i, j)).collect();
        Matrix((0..rows).map(row).collect())
    }

    /// Small whole numbers, whose products and sums are exact in any order.
    fn pattern(rows: usize, columns: usize, step: usize) -> Self {
        Matrix::new(rows, columns, |i, j| ((step * i + 3 * j) % 7) as f64 - 3.0)
    }

    fn from_flat(flat: &[f64], columns: usize) -> Self {
        Matrix(flat.chunks(columns).map(<[f64]>::to_vec).collect())
    }

    fn flat(&self) -> Vec<f64> {
        self.0.concat()
    }

    fn transposed(&self) -> Self {
        Matrix::new(self.0[0].len(), self.0.len(), |i, j| self.0[j][i])
    }

    fn times(&self, other: &Matrix) -> Self {
        let sum = |i: usize, j| {
            self.0[i]
                .iter()
                .zip(&other.0)
                .map(|(a, row): (&f64, &Vec<f64>)| a * row[j])
                .sum()
        };
        Matrix::new(self.0.len(), other.0[0].len(), sum)
    }

    /// Returns the elements where those of another matrix are positive, and 0 elsewhere.
    fn where_positive(&self, other: &Matrix) -> Self {
        let keep = |i: usize, j: usize| {
            if other.0[i][j] > 0.0 {
                self.0[i][j]
            } else {
                0.0
            }
        };
        Matrix::new(self.0.len(), self.0[0].len(), keep)
    }

    fn rows(&self, first: usize, count: usize) -> Self {
        Matrix(self.0[first..first + count].to_vec())
    }

    fn sum(&self) -> f64 {
        self.0.iter().flatten().sum()
    }
}

/// The results of both passes: y, and the gradients of x, W1 and W2 for the loss sum(y * y) / 2.
#[derive(Debug, PartialEq)]
struct Passes {
    y: Matrix,
    grad_x: Matrix,
    grad_w1: Matrix,
    grad_w2: Matrix,
}

/// Runs both passes with this rank's parts of the weights. Each rank has all tokens or a part of them.
fn train_step(
    group: &Comm,
    x: &Matrix,
    w1: &Matrix,
    w2: &Matrix,
    divides_tokens: bool,
) -> dsc::Result<Passes> {
    let names = if divides_tokens {
        (Mapping::GatherReduce, Mapping::ReduceScatter)
    } else {
        (Mapping::Copy, Mapping::Reduce)
    };
    let enter = TensorMap::new(names.0, 1, TOKENS, WIDTH);
    let leave = TensorMap::new(names.1, 1, TOKENS, WIDTH);

    let mut whole = vec![0.0; TOKENS * WIDTH];
    enter.forward(group, &x.flat(), &mut whole)?;
    let whole = Matrix::from_flat(&whole, WIDTH);
    let sums = whole.times(w1);
    let hidden = sums.where_positive(&sums);
    let mut y = vec![0.0; x.0.len() * WIDTH];
    leave.forward(group, &hidden.times(w2).flat(), &mut y)?;

    let mut grad_y = vec![0.0; TOKENS * WIDTH];
    leave.backward(group, &y, &mut grad_y)?; // the gradient of the loss is y
    let grad_y = Matrix::from_flat(&grad_y, WIDTH);
    let grad_hidden = grad_y.times(&w2.transposed()).where_positive(&hidden);
    let partial = grad_hidden.times(&w1.transposed()).flat();
    let mut grad_x = vec![0.0; x.0.len() * WIDTH];
    // Does the same as enter.backward(), but in the background: meanwhile the gradients of the weights are computed.
    let (grad_w1, grad_w2) = group.scope(|scope| -> dsc::Result<(Matrix, Matrix)> {
        let work = scope.start(if divides_tokens {
            request::reduce_scatter(&partial, &mut grad_x, Op::Sum)
        } else {
            request::all_reduce_into(&partial, &mut grad_x, Op::Sum)
        })?;
        let gradients = (
            whole.transposed().times(&grad_hidden),
            hidden.transposed().times(&grad_y),
        );
        work.wait()?;
        Ok(gradients)
    })?;
    Ok(Passes {
        y: Matrix::from_flat(&y, WIDTH),
        grad_x: Matrix::from_flat(&grad_x, WIDTH),
        grad_w1,
        grad_w2,
    })
}

fn main() -> dsc::Result<()> {
    let world = dsc::init()?;
    let (rank, size) = (world.rank(), world.size());
    assert_eq!(
        TOKENS % size,
        0,
        "expected a number of ranks that divides the tokens"
    );
    let x = Matrix::pattern(TOKENS, WIDTH, 2);
    let (w1, w2) = (
        Matrix::pattern(WIDTH, HIDDEN, 5),
        Matrix::pattern(HIDDEN, WIDTH, 4),
    );

    // With one rank a mapping does not exchange anything, so this is the whole computation.
    let alone = world.split(Some(rank), 0)?.expect("every rank has a color");
    let whole = train_step(&alone, &x, &w1, &w2, false)?;

    let (neurons, tokens) = (HIDDEN / size, TOKENS / size);
    let columns = |matrix: &Matrix| {
        matrix
            .transposed()
            .rows(rank * neurons, neurons)
            .transposed()
    };
    let (my_w1, my_w2) = (columns(&w1), w2.rows(rank * neurons, neurons));
    let parts = train_step(&world, &x, &my_w1, &my_w2, false)?;
    let mut expected = Passes {
        grad_w1: columns(&whole.grad_w1),
        grad_w2: whole.grad_w2.rows(rank * neurons, neurons),
        ..whole
    };
    assert_eq!(parts, expected);

    let of_sequence = train_step(&world, &x.rows(rank * tokens, tokens), &my_w1, &my_w2, true)?;
    expected.y = expected.y.rows(rank * tokens, tokens);
    expected.grad_x = expected.grad_x.rows(rank * tokens, tokens);
    assert_eq!(of_sequence, expected);

    let loss: f64 = parts.y.flat().iter().map(|y| y * y / 2.0).sum();
    let mut weights = parts.grad_w1.sum() + parts.grad_w2.sum();
    world.all_reduce(&mut weights, Op::Sum)?;
    let gradients = parts.grad_x.sum() + weights;
    println!(
        "rank {}: loss {}, gradients sum to {}, also with {} tokens per rank",
        rank, loss, gradients, tokens
    );
    drop(alone);
    world.finalize()
}
