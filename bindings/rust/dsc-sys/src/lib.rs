//! Raw declarations of libdsc's C interface, with its C names. Programs should use the safe crate `dsc`.
//!
//! The declarations and their comments are generated from the C headers. Enumerations are integers, so that a value of
//! a newer library is well defined.
#![allow(non_camel_case_types)]
#![allow(rustdoc::broken_intra_doc_links)] // the comments were written for C, where brackets are not links
#![deny(missing_docs)]

#[rustfmt::skip]
mod ffi;

pub use ffi::*;
