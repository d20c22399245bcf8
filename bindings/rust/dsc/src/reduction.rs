//! The types for the argument `op` of reductions, and the buffers that each is for.

use std::marker::PhantomData;

use crate::data::{Element, RawElement, Sealed};
use crate::error::{Error, Result};
use crate::numbers::{Dtype, Op};

pub(crate) mod sealed {
    /// A reduce operation of the C interface, with the only element type that it accepts, if it is limited to one.
    #[derive(Clone, Copy, Debug)]
    pub struct Combine {
        pub op: crate::Op,
        pub only: Option<crate::Dtype>,
    }
}

pub(crate) use sealed::Combine;

impl Combine {
    pub(crate) fn number(self) -> i32 {
        self.op.number()
    }

    /// Returns an error for buffers of another type, before any rank learns of the operation.
    pub(crate) fn expect(self, call: &str, dtype: Dtype) -> Result<()> {
        match self.only {
            Some(only) if only != dtype => {
                let text =
                    format!("{}: op is a UserOp for {:?}; expected buffers of this type, got {:?}", call, only, dtype);
                Err(Error::invalid(text))
            }
            _ => Ok(()),
        }
    }
}

/// A reduce operation for buffers of a [kind](crate::Data::Kind). An [`Op`] is for every kind; the [`TypedOp`] of a
/// [`UserOp`](crate::UserOp) is for its element type.
///
/// With [`Raw`](crate::Raw) buffers, the types are compared during the call. It fails with
/// [`InvalidArg`](crate::ErrorCode::InvalidArg), before other ranks learn of it.
pub trait Reduction<K>: Sealed {
    /// Returns the operation for the library.
    #[doc(hidden)]
    fn combine(&self) -> Combine;
}

impl Sealed for Op {}
impl<K> Reduction<K> for Op {
    fn combine(&self) -> Combine {
        Combine { op: *self, only: None }
    }
}

/// The reduce operation of a [`UserOp`](crate::UserOp), for elements of one type.
#[derive(Clone, Copy, Debug)]
pub struct TypedOp<T: Element> {
    op: Op,
    elements: PhantomData<fn(T)>,
}

impl<T: Element> TypedOp<T> {
    pub(crate) fn new(op: Op) -> Self {
        TypedOp { op, elements: PhantomData }
    }
}

impl<T: Element> Sealed for TypedOp<T> {}
impl<T: Element> Reduction<T> for TypedOp<T> {
    fn combine(&self) -> Combine {
        Combine { op: self.op, only: Some(T::DTYPE) }
    }
}
impl<T: Element> Reduction<RawElement> for TypedOp<T> {
    fn combine(&self) -> Combine {
        Reduction::<T>::combine(self)
    }
}
