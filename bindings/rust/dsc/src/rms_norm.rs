//! An all-reduce, followed by the addition of a residual and by RMSNorm.

use std::ffi::c_void;
use std::ptr;

use dsc_sys as sys;

use crate::comm::Comm;
use crate::data::{Data, DataMut, Span};
use crate::error::{Error, Result};

impl Comm {
    /// Sums the inputs of all ranks and a residual, and normalizes each row by its root mean square. Collective.
    ///
    /// Rows have `hidden` elements of f32, f64, f16 or bf16. `rows` is this rank's summand, and gets the normalized
    /// rows. `residual` gets the rows before normalization. `weight` has `hidden` factors; `None`: all are 1. Residual
    /// and weight must be the same on all ranks. `epsilon` is added to the mean of the squares, and must be above 0.
    ///
    /// ```
    /// # fn main() -> dsc::Result<()> {
    /// let world = dsc::init()?;
    /// let (mut rows, mut residual) = ([1f32, 2.0, 3.0, 4.0], [2f32, 2.0, -3.0, 3.0]); // two rows of two elements
    /// world.all_reduce_rms_norm(&mut rows, Some(&mut residual), Some(&[1f32, 2.0]), 2, 1e-6)?;
    /// assert_eq!(residual, [3.0, 4.0, 0.0, 7.0]);
    /// assert!((rows[0] - 3.0 / 12.5f32.sqrt()).abs() < 1e-6 && (rows[3] - 2.0 * 2f32.sqrt()).abs() < 1e-6);
    /// world.finalize()
    /// # }
    /// ```
    #[doc(alias = "dsc_all_reduce_rms_norm")]
    pub fn all_reduce_rms_norm<X, H, W>(
        &self,
        rows: &mut X,
        residual: Option<&mut H>,
        weight: Option<&W>,
        hidden: usize,
        epsilon: f64,
    ) -> Result<()>
    where
        X: DataMut + ?Sized,
        H: DataMut<Kind = X::Kind> + ?Sized,
        W: Data<Kind = X::Kind> + ?Sized,
    {
        let all = rows.span_mut();
        let tokens = tokens_of(all, hidden)?;
        let added = residual.map(|residual| residual.span_mut());
        let factors = weight.map(|weight| weight.span());
        expect("residual", added, all, all.count)?;
        expect("weight", factors, all, hidden)?;
        let address = |span: Option<Span>| span.map_or(ptr::null_mut::<c_void>(), |span| span.ptr);
        let _turn = self.turn("all_reduce_rms_norm")?;
        // SAFETY: the counts and types were compared above. rows and residual are borrowed mutably, so they do not
        // overlap.
        let result = unsafe {
            sys::dsc_all_reduce_rms_norm(
                self.raw(),
                all.ptr,
                address(added),
                address(factors),
                tokens,
                hidden,
                all.dtype.number(),
                epsilon,
                address(added),
                all.ptr,
            )
        };
        self.check(result, "all_reduce_rms_norm")
    }
}

fn tokens_of(rows: Span, hidden: usize) -> Result<usize> {
    if hidden == 0 || rows.count % hidden != 0 {
        let text =
            format!("rows has {} elements; expected a multiple of {} (hidden), which is 1 or more", rows.count, hidden);
        return Err(Error::invalid(text));
    }
    Ok(rows.count / hidden)
}

fn expect(name: &str, found: Option<Span>, rows: Span, count: usize) -> Result<()> {
    match found {
        Some(span) if span.count != count || span.dtype != rows.dtype => {
            let found = format!("{} has {} elements of {:?}", name, span.count, span.dtype);
            Err(Error::invalid(format!("{}; expected {} of {:?}", found, count, rows.dtype)))
        }
        _ => Ok(()),
    }
}
