//! The functions of CUDA that the example needs, from the driver itself, so that no toolkit is needed to build it.

use std::ffi::CString;
use std::os::raw::{c_char, c_int, c_uint, c_void};
use std::{env, mem, ptr};

#[link(name = "dl")]
extern "C" {
    fn dlopen(file: *const c_char, flags: c_int) -> *mut c_void;
    fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
}

const RTLD_NOW: c_int = 2;

/// The driver, which libdsc has already loaded and initialized.
pub struct Cuda {
    device_get: unsafe extern "C" fn(*mut c_int, c_int) -> c_int,
    retain: unsafe extern "C" fn(*mut *mut c_void, c_int) -> c_int,
    push_current: unsafe extern "C" fn(*mut c_void) -> c_int,
    stream_create: unsafe extern "C" fn(*mut *mut c_void, c_uint, c_int) -> c_int,
    stream_synchronize: unsafe extern "C" fn(*mut c_void) -> c_int,
    stream_destroy: unsafe extern "C" fn(*mut c_void) -> c_int,
    copy: unsafe extern "C" fn(u64, u64, usize, *mut c_void) -> c_int,
}

fn check(result: c_int, what: &str) {
    assert_eq!(result, 0, "{} failed", what);
}

/// # Safety
/// `F` must be the type of the function with this name.
unsafe fn symbol<F: Copy>(library: *mut c_void, name: &str) -> F {
    let text = CString::new(name).unwrap();
    let found = dlsym(library, text.as_ptr());
    assert!(!found.is_null(), "the CUDA driver has no {}", name);
    mem::transmute_copy(&found)
}

impl Cuda {
    pub fn load() -> Cuda {
        let file = env::var("DSC_CUDA_LIBRARY").unwrap_or_else(|_| "libcuda.so.1".to_string());
        let file = CString::new(file).unwrap();
        // SAFETY: the prototypes are those of cuda.h.
        unsafe {
            let library = dlopen(file.as_ptr(), RTLD_NOW);
            assert!(!library.is_null(), "no CUDA driver");
            Cuda {
                device_get: symbol(library, "cuDeviceGet"),
                retain: symbol(library, "cuDevicePrimaryCtxRetain"),
                push_current: symbol(library, "cuCtxPushCurrent_v2"),
                stream_create: symbol(library, "cuStreamCreateWithPriority"),
                stream_synchronize: symbol(library, "cuStreamSynchronize"),
                stream_destroy: symbol(library, "cuStreamDestroy_v2"),
                copy: symbol(library, "cuMemcpyAsync"),
            }
        }
    }

    /// From now on, the calling thread works on this device, as with cudaSetDevice().
    pub fn use_device(&self, number: u32) {
        let (mut device, mut context) = (0, ptr::null_mut());
        // SAFETY: the device is one that libdsc is bound to.
        unsafe {
            check(
                (self.device_get)(&mut device, number as c_int),
                "cuDeviceGet",
            );
            check(
                (self.retain)(&mut context, device),
                "cuDevicePrimaryCtxRetain",
            );
            check((self.push_current)(context), "cuCtxPushCurrent");
        }
    }
}

pub struct Stream<'a> {
    cuda: &'a Cuda,
    pub raw: *mut c_void,
}

impl<'a> Stream<'a> {
    /// A new stream, which is not ordered with the default stream.
    pub fn new(cuda: &'a Cuda) -> Stream<'a> {
        let mut raw = ptr::null_mut();
        // SAFETY: a context is current.
        check(
            unsafe { (cuda.stream_create)(&mut raw, 1, 0) },
            "cuStreamCreate",
        );
        Stream { cuda, raw }
    }

    /// # Safety
    /// Both sides must have `bytes` bytes, and stay valid until the stream has completed the copy.
    pub unsafe fn copy(&self, to: u64, from: u64, bytes: usize) {
        check((self.cuda.copy)(to, from, bytes, self.raw), "cuMemcpyAsync");
    }

    pub fn synchronize(&self) {
        // SAFETY: the stream is valid.
        check(
            unsafe { (self.cuda.stream_synchronize)(self.raw) },
            "cuStreamSynchronize",
        );
    }
}

impl Drop for Stream<'_> {
    fn drop(&mut self) {
        // SAFETY: it is no longer used.
        unsafe { (self.cuda.stream_destroy)(self.raw) };
    }
}
