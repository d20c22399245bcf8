"""What libdsc.torch.functional is made of."""
