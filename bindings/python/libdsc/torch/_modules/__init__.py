"""What all wrappers of torch modules share: parameters, outputs, memory layouts of tensors, and the communicator."""
