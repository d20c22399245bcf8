# The data and the network of the training example, without communication.

"Images are columns; every fifth one belongs to the test set."
function load_digits(path = joinpath(@__DIR__, "..", "data", "digits.csv"))
    rows = [parse.(Int, split(line, ',')) for line in eachline(path)]
    images, labels = reduce(hcat, [row[1:end-1] ./ 8.0 .- 1.0 for row in rows]), last.(rows)
    test = (0:length(rows) - 1) .% 5 .== 0
    return (images[:, .!test], labels[.!test]), (images[:, test], labels[test])
end

"Returns numbers in [0, 1) from SplitMix64. The other languages draw exactly the same numbers."
function uniform(count, seed)
    return map(1:count) do n
        z = UInt64(seed) + UInt64(n) * 0x9e3779b97f4a7c15
        z = (z ⊻ (z >> 30)) * 0xbf58476d1ce4e5b9
        z = (z ⊻ (z >> 27)) * 0x94d049bb133111eb
        return ((z ⊻ (z >> 31)) >> 11) * 2.0^-53
    end
end

"""
Returns the parameters of fully connected layers, as Lux would: a tuple of named tuples. The weights have the memory of
the other languages, whose matrices are row-major and (inputs, outputs).
"""
network(sizes, seed) = Tuple(layer(sizes[i], sizes[i + 1], seed * 1000 + i - 1) for i in 1:length(sizes) - 1)

layer(inputs, outputs, seed) = (
    weight = reshape((2 .* uniform(inputs * outputs, seed) .- 1) .* sqrt(3 / inputs), outputs, inputs),
    bias = zeros(outputs),
)

"Returns the inputs of every layer, and the class scores as the last entry. There is tanh between the layers."
function forward(params, images)
    values = [images]
    for (i, layer) in enumerate(params)
        sums = layer.weight * values[end] .+ layer.bias
        push!(values, i == length(params) ? sums : tanh.(sums))
    end
    return values
end

"Returns the mean cross entropy of softmax, and its gradient with respect to the scores."
function cross_entropy(scores, labels)
    shifted = scores .- maximum(scores; dims = 1)
    sums, n = sum(exp, shifted; dims = 1), length(labels)
    grad = exp.(shifted) ./ sums
    loss = 0.0
    for (i, label) in enumerate(labels)
        grad[label + 1, i] -= 1
        loss += log(sums[i]) - shifted[label + 1, i]
    end
    return loss / n, grad ./ n
end

"Computes gradients from the last parameter to the first; calls `ready(number, gradient)` as soon as each is computed."
function backward(ready, params, values, delta)
    for i in length(params):-1:1
        ready(2i, vec(sum(delta; dims = 2)))
        ready(2i - 1, delta * values[i]')
        i > 1 && (delta = (params[i].weight' * delta) .* (1 .- values[i] .^ 2))
    end
end

"Stochastic gradient descent with momentum, in place. `grads` are in the order of the parameters."
function update!(params, velocities, grads, rate)
    arrays = [array for layer in params for array in layer]
    for (param, velocity, grad) in zip(arrays, velocities, grads)
        velocity .= 0.9 .* velocity .+ grad
        param .-= rate .* velocity
    end
end

velocities_of(params) = [zero(array) for layer in params for array in layer]
correct(params, images, labels) = count(getindex.(argmax(forward(params, images)[end]; dims = 1), 1)[:] .- 1 .== labels)

"Trains in this process alone on these batches. Returns the loss of every step."
function train_alone(sizes, (images, labels), batches, rate, seed)
    params = network(sizes, seed)
    velocities = velocities_of(params)
    return map(batches) do picked
        values = forward(params, images[:, picked])
        loss, delta = cross_entropy(values[end], labels[picked])
        grads = Vector{Array{Float64}}(undef, 2length(params))
        backward((i, grad) -> grads[i] = grad, params, values, delta)
        update!(params, velocities, grads, rate)
        return loss
    end
end
