"""What all wrappers of torch modules share: their parameters and outputs, how tensors lie in memory, and whose ranks they are."""
