"""Code that all wrappers of torch modules share: parameters, outputs, memory layouts and the communicator."""
