"""Data parallelism for modules of torch, based on the bucket reducer of libdsc."""
