# Trains a digit classifier on several data-parallel ranks.
#
#     dscrun -n 4 -- julia examples/julia/train_digits.jl --compare
#
# Every rank has the whole network and a shard of the images. The reducer averages the gradients of all ranks while the
# remaining ones are computed. The losses are those of train_digits.py, apart from rounding.

using LibDSC, LinearAlgebra, Printf

BLAS.set_num_threads(1) # the matrices are small, and the ranks share the cores
include("digits.jl")

const EPOCHS, BATCH, RATE, SEED, HIDDEN = 12, 48, 0.05, 0, (64, 32)
const WANTED_ACCURACY, ALLOWED_DIFFERENCE = 0.95, 1e-9

"Trains on this rank's part of one batch. Returns the loss of that part."
function step!(params, reducer, velocities, images, labels)
    values = forward(params, images)
    loss, delta = cross_entropy(values[end], labels)
    grads = Vector{Array{Float64}}(undef, length(reducer))
    reduce!(reducer) do
        backward(params, values, delta) do i, grad
            grads[i] = grad
            mark_ready!(reducer, i, grad) # the reduction of a full bucket starts automatically
        end
    end # now grads hold the mean over all ranks
    update!(params, velocities, grads, RATE)
    return loss
end

"Trains for all epochs. Returns the loss of every whole batch, and the final accuracy."
function train_together(world, sizes, (images, labels), (test_images, test_labels))
    params = network(sizes, SEED + world.rank)
    # Checks that the parameters of all ranks agree in number, type and shape, and copies rank 0's values to all.
    reducer = Reducer(world, params; bucket_bytes = 16 << 10, first_bucket_bytes = 4 << 10)
    velocities = velocities_of(params)
    each, mine = BATCH ÷ world.size, world.rank + 1:world.size:length(test_labels)
    losses, accuracy = Float64[], 0.0
    for epoch in 1:EPOCHS
        shard = LibDSC.shard_indices(length(labels), world.size, world.rank; seed = SEED + epoch - 1)
        epoch_losses = map(1:length(shard) ÷ each) do step
            picked = shard[(step - 1) * each + 1:step * each]
            return step!(params, reducer, velocities, images[:, picked], labels[picked])
        end
        allreduce!(epoch_losses, LibDSC.AVG, world)
        found = LibDSC.allreduce(correct(params, test_images[:, mine], test_labels[mine]), +, world)
        accuracy = found / length(test_labels)
        append!(losses, epoch_losses)
        world.rank == 0 && @printf("epoch %2d/%d  loss %.6f  test accuracy %6.2f%%\n", epoch, EPOCHS,
            sum(epoch_losses) / length(epoch_losses), 100accuracy)
    end
    return losses, accuracy
end

"Rank 0 trains alone on the same batches. Returns, on all ranks, the largest relative difference of a loss."
function compare(world, sizes, train, losses)
    worst = 0.0
    if world.rank == 0
        steps = length(losses) ÷ EPOCHS
        orders = [LibDSC.shard_indices(length(train[2]), 1, 0; seed = SEED + epoch) for epoch in 0:EPOCHS - 1]
        batches = [order[(step - 1) * BATCH + 1:step * BATCH] for order in orders for step in 1:steps]
        expected = train_alone(sizes, train, batches, RATE, SEED)
        worst = maximum(abs.(losses .- expected) ./ abs.(expected))
        println("losses of $(length(losses)) steps, $(world.size) ranks and one process: largest relative difference")
        @printf("  %.2e, allowed 1e-09: %s\n", worst, worst <= ALLOWED_DIFFERENCE ? "equal" : "DIFFERENT")
    end
    return LibDSC.bcast(worst, world)
end

passed = LibDSC.init() do world
    BATCH % world.size == 0 || error("a batch of $BATCH cannot be divided among $(world.size) ranks")
    train, test = load_digits()
    sizes = (size(train[1], 1), HIDDEN..., 10)
    losses, accuracy = train_together(world, sizes, train, test)
    reached = accuracy >= WANTED_ACCURACY
    world.rank == 0 && @printf("test accuracy %.2f%%, at least 95%% wanted: %s\n", 100accuracy,
        reached ? "reached" : "MISSED")
    return reached & (!("--compare" in ARGS) || compare(world, sizes, train, losses) <= ALLOWED_DIFFERENCE)
end
exit(passed ? 0 : 1)
