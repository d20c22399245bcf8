"""Sharded data parallelism for modules of torch, based on libdsc.Sharded."""
