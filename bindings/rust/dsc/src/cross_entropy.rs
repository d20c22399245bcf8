//! Cross entropy of logits whose vocabulary is split over ranks.

use std::ffi::c_void;
use std::fmt;
use std::ptr;

use dsc_sys as sys;

use crate::comm::Comm;
use crate::convert::defaults;
use crate::data::{Data, DataMut, Span};
use crate::error::{Error, Result};
use crate::numbers::Dtype;

/// Options of [`Comm::vocab_cross_entropy`]. Use the same options on all ranks.
#[derive(Clone, Debug, Default)]
pub struct CrossEntropyOptions {
    vocab: Option<usize>,
    ignore_index: Option<i64>,
    label_smoothing: f64,
    z_loss: f64,
}

impl CrossEntropyOptions {
    /// The defaults: ranks have equal parts of the vocabulary, no target is ignored, no smoothing, no z-loss.
    pub fn new() -> Self {
        Self::default()
    }

    /// Columns of all ranks together. The first `vocab % size` ranks hold one column more than the others.
    #[must_use]
    pub fn vocab(mut self, columns: usize) -> Self {
        self.vocab = Some(columns);
        self
    }

    /// The target that marks tokens with loss 0 and gradient 0.
    #[must_use]
    pub fn ignore_index(mut self, target: i64) -> Self {
        self.ignore_index = Some(target);
        self
    }

    /// The probability that is spread over the words other than the target: 0 or more, and below 1.
    #[must_use]
    pub fn label_smoothing(mut self, probability: f64) -> Self {
        self.label_smoothing = probability;
        self
    }

    /// The factor of z-loss: this factor times the square of log(sum(exp(logits))) is added to the loss.
    #[must_use]
    pub fn z_loss(mut self, factor: f64) -> Self {
        self.z_loss = factor;
        self
    }

    #[doc(alias = "dsc_vocab_cross_entropy_options_init")]
    fn raw(&self) -> Result<sys::dsc_vocab_cross_entropy_options_t> {
        // SAFETY: `defaults` passes memory for the struct, and its size.
        let mut raw = defaults(|raw, bytes| unsafe { sys::dsc_vocab_cross_entropy_options_init(raw, bytes) })?;
        raw.ignore_index = self.ignore_index.unwrap_or(raw.ignore_index);
        raw.label_smoothing = self.label_smoothing;
        raw.z_loss = self.z_loss;
        Ok(raw)
    }
}

/// The data, in addition to the logits, that the gradients of a cross entropy need: targets, and two numbers per token.
///
/// Made by [`Comm::vocab_cross_entropy`].
pub struct CrossEntropy<'a> {
    comm: &'a Comm,
    targets: &'a [i64],
    vocab: usize,
    columns: usize,
    dtype: Dtype,
    options: sys::dsc_vocab_cross_entropy_options_t,
    state: Vec<f64>,
}

impl Comm {
    /// Writes the loss of each token, the same on all ranks. Collective.
    ///
    /// `logits` has a row per token with this rank's columns, of f32, f64, f16 or bf16. Columns are divided
    /// consecutively, in the order of the ranks. `targets` are columns of the whole vocabulary, the same on all ranks.
    /// `losses` is f64 for logits of f64, otherwise f32.
    ///
    /// ```
    /// use dsc::CrossEntropyOptions;
    ///
    /// # fn main() -> dsc::Result<()> {
    /// let world = dsc::init()?;
    /// let (mut logits, targets, mut losses) = ([0.5f32; 2 * 4], [3, 0], [0f32; 2]); // with one rank: 4 words
    /// let entropy = world.vocab_cross_entropy(&logits, &targets, &mut losses, &CrossEntropyOptions::new())?;
    /// assert!((losses[0] - 4f32.ln()).abs() < 1e-6);
    /// entropy.backward_in_place(Some(&[0.5f32, 0.5]), &mut logits)?; // gradients of the mean loss
    /// assert_eq!(logits[..4], [0.125, 0.125, 0.125, -0.375]);
    /// world.finalize()
    /// # }
    /// ```
    #[doc(alias = "dsc_vocab_cross_entropy_forward")]
    pub fn vocab_cross_entropy<'a, X, L>(
        &'a self,
        logits: &X,
        targets: &'a [i64],
        losses: &mut L,
        options: &CrossEntropyOptions,
    ) -> Result<CrossEntropy<'a>>
    where
        X: Data + ?Sized,
        L: DataMut + ?Sized,
    {
        let mut made = CrossEntropy::new(self, logits.span(), targets, options)?;
        made.expect("losses", losses.span(), targets.len(), made.loss_type())?;
        let (scores, written) = (logits.span(), losses.span_mut());
        let _turn = self.turn("vocab_cross_entropy_forward")?;
        // SAFETY: the counts were compared above. The losses are borrowed mutably, and the state has two numbers per
        // token.
        let result = unsafe {
            sys::dsc_vocab_cross_entropy_forward(
                self.raw(),
                scores.ptr,
                targets.as_ptr(),
                targets.len(),
                made.vocab,
                made.dtype.number(),
                &made.options,
                written.ptr,
                made.state.as_mut_ptr(),
            )
        };
        self.check(result, "vocab_cross_entropy_forward")?;
        Ok(made)
    }
}

impl<'a> CrossEntropy<'a> {
    fn new(comm: &'a Comm, logits: Span, targets: &'a [i64], options: &CrossEntropyOptions) -> Result<Self> {
        let tokens = targets.len();
        let vocab = match options.vocab {
            Some(vocab) => vocab,
            None if tokens == 0 => comm.size(),
            None => logits.count / tokens * comm.size(),
        };
        let columns = vocab / comm.size() + usize::from(comm.rank() < vocab % comm.size());
        let raw = options.raw()?;
        let state = vec![0.0; 2 * tokens];
        let made = CrossEntropy { comm, targets, vocab, columns, dtype: logits.dtype, options: raw, state };
        made.expect("logits", logits, made.elements()?, logits.dtype)?;
        Ok(made)
    }

    /// Writes the gradients of this rank's logits. The logits must not have changed. Not collective.
    ///
    /// `loss_gradients` are the gradients of the losses, of the type of the losses; `None`: all are 1.
    #[doc(alias = "dsc_vocab_cross_entropy_backward")]
    pub fn backward<W, X, G>(&self, loss_gradients: Option<&W>, logits: &X, gradients: &mut G) -> Result<()>
    where
        W: Data + ?Sized,
        X: Data + ?Sized,
        G: DataMut<Kind = X::Kind> + ?Sized,
    {
        self.expect("gradients", gradients.span(), self.elements()?, self.dtype)?;
        let (scores, written) = (logits.span(), gradients.span_mut());
        self.write(loss_gradients.map(|weights| weights.span()), scores, written.ptr)
    }

    /// Does the same as [`backward`](CrossEntropy::backward), but the gradients replace the logits.
    pub fn backward_in_place<W, X>(self, loss_gradients: Option<&W>, logits: &mut X) -> Result<()>
    where
        W: Data + ?Sized,
        X: DataMut + ?Sized,
    {
        let both = logits.span_mut();
        self.write(loss_gradients.map(|weights| weights.span()), both, both.ptr)
    }

    /// Writes the gradients to memory for as many elements as there are logits.
    fn write(&self, loss_gradients: Option<Span>, logits: Span, gradients: *mut c_void) -> Result<()> {
        self.expect("logits", logits, self.elements()?, self.dtype)?;
        if let Some(weights) = loss_gradients {
            self.expect("loss_gradients", weights, self.targets.len(), self.loss_type())?;
        }
        // SAFETY: the counts and types were compared. Callers borrow mutably what is written.
        let result = unsafe {
            sys::dsc_vocab_cross_entropy_backward(
                self.comm.raw(),
                logits.ptr,
                self.targets.as_ptr(),
                self.targets.len(),
                self.vocab,
                self.dtype.number(),
                &self.options,
                self.state.as_ptr(),
                loss_gradients.map_or(ptr::null(), |weights| weights.ptr as *const c_void),
                gradients,
            )
        };
        self.comm.check(result, "vocab_cross_entropy_backward")
    }

    fn loss_type(&self) -> Dtype {
        if self.dtype == Dtype::F64 {
            Dtype::F64
        } else {
            Dtype::F32
        }
    }

    fn elements(&self) -> Result<usize> {
        let tokens = self.targets.len();
        let text = || format!("{} tokens of {} columns are too large for memory", tokens, self.columns);
        tokens.checked_mul(self.columns).ok_or_else(|| Error::invalid(text()))
    }

    fn expect(&self, name: &str, found: Span, count: usize, dtype: Dtype) -> Result<()> {
        if found.count == count && found.dtype == dtype {
            return Ok(());
        }
        let rows = format!("{} tokens, {} of {} columns on this rank", self.targets.len(), self.columns, self.vocab);
        let found = format!("{} has {} elements of {:?}", name, found.count, found.dtype);
        Err(Error::invalid(format!("{}; expected {} of {:?} ({})", found, count, dtype, rows)))
    }
}

impl fmt::Debug for CrossEntropy<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (tokens, group) = (self.targets.len(), self.comm.name());
        write!(out, "CrossEntropy({} tokens, vocabulary of {}, group {:?})", tokens, self.vocab, group)
    }
}
