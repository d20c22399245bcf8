"""The implementation of libdsc.torch.functional."""
