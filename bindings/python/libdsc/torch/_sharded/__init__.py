"""Sharded data parallelism for modules of torch, over Sharded of libdsc."""
