"""Data parallelism for modules of torch, over buckets of libdsc."""
