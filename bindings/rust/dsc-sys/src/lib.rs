//! Raw declarations of libdsc's C interface, under its C names. Programs use the crate `dsc`, which is safe.
//!
//! The declarations are generated from the C headers, with their comments. Enumerations are integers, so that a
//! value of a newer library is well defined.
#![allow(non_camel_case_types)]
#![allow(rustdoc::broken_intra_doc_links)] // the text is written for C, where brackets are not links
#![deny(missing_docs)]

#[rustfmt::skip]
mod ffi;

pub use ffi::*;
