# Tensor parallelism: two layers, y = W2 relu(W1 x), whose weights the ranks divide. Each rank has some rows of W1 and the
# same columns of W2, so it computes a part of the hidden layer and a part of each sum in y. A column of x is a token.
#
# The ranks exchange data in two mappings: one where activations enter the layers, and one where they leave.
#
#     copy, reduce                   all ranks have all tokens in x and y
#     gather_reduce, reduce_scatter  each rank has a part of them (sequence parallelism), which takes less memory
#
#     dscrun -n 4 -- julia 17_tensor_parallel.jl

using LibDSC, Printf

const TOKENS, WIDTH, HIDDEN = 8, 4, 16

"Returns small whole numbers, whose products and sums are exact in any order."
pattern(rows, columns, step) = [(step * j + 3i) % 7 - 3.0 for i in 0:rows - 1, j in 0:columns - 1]

"The rows or columns of a rank. They need not be the same number on all ranks."
share(count, rank, n) = rank * count ÷ n + 1:(rank + 1) * count ÷ n

"""
Runs both passes of two layers with this rank's parts of the weights. Returns y, and the gradients of x, w1 and w2 for
the loss sum(y * y) / 2. The mappings divide the tokens, dimension 2, into `parts`, except copy and reduce, which divide
nothing.
"""
function train_step(group, x, w1, w2, enter, leave, parts = nothing)
    whole = LibDSC.tensor_map(enter, x, 2, group; parts = parts)
    hidden = max.(w1 * whole, 0)
    y = LibDSC.tensor_map(leave, w2 * hidden, 2, group; parts = parts)

    grad_y = LibDSC.tensor_map(leave, y, 2, group; backward = true, parts = parts) # the gradient of the loss is y
    grad_hidden = (w2' * grad_y) .* (hidden .> 0)
    grad_x = similar(x)
    work = LibDSC.itensor_map!(grad_x, enter, w1' * grad_hidden, 2, group; backward = true, parts = parts)
    grad_w1, grad_w2 = grad_hidden * whole', grad_y * hidden' # meanwhile the ranks sum the gradient of x
    wait(work)
    return y, grad_x, grad_w1, grad_w2
end

LibDSC.init() do world
    rank, n = world.rank, world.size
    x, w1, w2 = pattern(WIDTH, TOKENS, 2), pattern(HIDDEN, WIDTH, 5), pattern(WIDTH, HIDDEN, 4)

    # With one rank a mapping does not exchange anything, so this is the whole computation.
    alone = LibDSC.split(world, rank)
    y, grad_x, grad_w1, grad_w2 = train_step(alone, x, w1, w2, :copy, :reduce)

    mine = share(HIDDEN, rank, n)
    parts = train_step(world, x, w1[mine, :], w2[:, mine], :copy, :reduce)
    @assert parts == (y, grad_x, grad_w1[mine, :], grad_w2[:, mine])

    tokens, lengths = share(TOKENS, rank, n), [length(share(TOKENS, r, n)) for r in 0:n - 1]
    sequence = train_step(world, x[:, tokens], w1[mine, :], w2[:, mine], :gather_reduce, :reduce_scatter, lengths)
    @assert sequence == (y[:, tokens], grad_x[:, tokens], grad_w1[mine, :], grad_w2[:, mine])

    weights = LibDSC.allreduce(sum(parts[3]) + sum(parts[4]), +, world)
    @printf("rank %d: loss %.0f, gradients sum to %.0f, also with %d tokens per rank\n", rank, sum(abs2, parts[1]) / 2,
        sum(parts[2]) + weights, size(sequence[1], 2))
end
