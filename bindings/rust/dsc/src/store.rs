//! Key-value stores: small values that all processes of a job share.

use std::ffi::{c_void, CString};
use std::fmt;
use std::mem::size_of;
use std::os::raw::c_char;
use std::ptr::{self, NonNull};
use std::time::Duration;

use dsc_sys as sys;

use crate::convert::{c_string, defaults, list, milliseconds, number};
use crate::error::{check, Error, Result};
use crate::handles::StoreHandle;
use crate::init::pointer;
use crate::numbers::ErrorCode;

const FIRST_ROOM: usize = 4096;
const LONGEST_VALUE: usize = 1 << 20;
const OWN_TIMEOUT: i32 = -1;

/// A key-value store. Keys are texts of 1 to 1,024 bytes, values up to 1 MiB. Any thread may call any method, even
/// while another thread waits.
///
/// ```
/// use std::time::Duration;
///
/// # fn main() -> dsc::Result<()> {
/// let store = dsc::Store::open("memory://")?;
/// store.set("address", b"10.0.0.7:4711")?;
/// assert_eq!(store.get("address")?, b"10.0.0.7:4711");
/// assert_eq!((store.add("arrived", 1)?, store.add("arrived", 1)?), (1, 2));
/// assert_eq!(store.compare_set("leader", b"", b"me")?, b"me");
/// let error = store.get_within("never", Duration::from_millis(10)).unwrap_err();
/// assert_eq!(error.code, dsc::ErrorCode::Timeout);
/// assert!(error.message.contains("\"never\""));
/// # Ok(())
/// # }
/// ```
pub struct Store {
    handle: StoreHandle,
}

/// Options for opening a [`Store`].
///
/// ```
/// # fn main() -> dsc::Result<()> {
/// let token = "ab".repeat(32);
/// let server = dsc::StoreOptions::new().token(&token).serve(2).open("tcp://127.0.0.1:0")?;
/// let uri = format!("tcp://127.0.0.1:{}", server.port()?);
/// let client = dsc::StoreOptions::new().token(&token).open(&uri)?;
/// client.set("key", b"value")?;
/// assert_eq!(server.get("key")?, b"value");
/// let error = dsc::StoreOptions::new().token(&"cd".repeat(32)).open(&uri).unwrap_err();
/// assert_eq!(error.code, dsc::ErrorCode::Auth);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Default)]
pub struct StoreOptions {
    token: Option<String>,
    job_id: Option<String>,
    bind: Option<String>,
    world_size: Option<usize>,
    timeout: Option<Duration>,
    allow_unauthenticated: bool,
}

impl StoreOptions {
    /// All defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// The job's secret, 64 hexadecimal digits; by default from the environment.
    pub fn token(mut self, token: &str) -> Self {
        self.token = Some(token.into());
        self
    }

    /// Distinguishes jobs that use the same store.
    pub fn job_id(mut self, job_id: &str) -> Self {
        self.job_id = Some(job_id.into());
        self
    }

    /// Where a server listens: "any", an interface, a name or an address; by default the URI's host.
    pub fn bind(mut self, bind: &str) -> Self {
        self.bind = Some(bind.into());
        self
    }

    /// Makes this process the server of a TCP store, for connections from `world_size` processes.
    pub fn serve(mut self, world_size: usize) -> Self {
        self.world_size = Some(world_size);
        self
    }

    /// The longest time of opening and of every call; 300 s by default.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Allows a server without a token to listen on other addresses than loopback.
    pub fn allow_unauthenticated(mut self) -> Self {
        self.allow_unauthenticated = true;
        self
    }

    /// Opens "memory://", "file:///PATH" or "tcp://HOST:PORT".
    #[doc(alias = "dsc_store_open")]
    pub fn open(&self, uri: &str) -> Result<Store> {
        let uri = c_string("the URI", uri)?;
        let text = |name: &str, value: &Option<String>| value.as_ref().map(|value| c_string(name, value)).transpose();
        let token = text("the token", &self.token)?;
        let job_id = text("the job id", &self.job_id)?;
        let bind = text("bind", &self.bind)?;
        // SAFETY: `defaults` passes memory for the struct, and its size.
        let mut options = defaults(|raw, bytes| unsafe { sys::dsc_store_options_init(raw, bytes) })?;
        options.token = pointer(&token);
        options.job_id = pointer(&job_id);
        options.bind = pointer(&bind);
        options.serve = i32::from(self.world_size.is_some());
        options.world_size = number("world_size", self.world_size.unwrap_or(1))?;
        options.allow_unauthenticated = i32::from(self.allow_unauthenticated);
        if let Some(timeout) = self.timeout {
            options.timeout_ms = milliseconds(timeout);
        }
        let mut store = ptr::null_mut();
        // SAFETY: the options, their texts and store outlive the call.
        check(unsafe { sys::dsc_store_open(uri.as_ptr(), &options, &mut store) })?;
        Store::over(store)
    }
}

impl Store {
    /// Opens "memory://", "file:///PATH" or "tcp://HOST:PORT" with default options.
    pub fn open(uri: &str) -> Result<Self> {
        StoreOptions::new().open(uri)
    }

    /// Makes a store from two functions. It supports set, get and wait.
    ///
    /// `put` stores a value. `get` waits until a key has a value; it returns `None` after its time-out. They run on the
    /// threads that call the store, several at the same time. In them, calls of this crate fail with
    /// [`Reentrant`](ErrorCode::Reentrant). After an error or a panic in a function, the call of the store fails with
    /// [`Callback`](ErrorCode::Callback).
    #[doc(alias = "dsc_store_from_callbacks")]
    pub fn from_callbacks<P, G, E>(put: P, get: G) -> Result<Self>
    where
        P: Fn(&str, &[u8], Duration) -> std::result::Result<(), E> + Send + Sync + 'static,
        G: Fn(&str, Duration) -> std::result::Result<Option<Vec<u8>>, E> + Send + Sync + 'static,
        E: 'static,
    {
        let context: *mut (P, G) = Box::into_raw(Box::new((put, get)));
        let callbacks = sys::dsc_store_callbacks_t {
            struct_size: size_of::<sys::dsc_store_callbacks_t>(),
            context: context.cast(),
            put: Some(callbacks::put::<P, G, E>),
            get: Some(callbacks::get::<P, G, E>),
            destroy: Some(callbacks::destroy::<P, G>),
        };
        let mut store = ptr::null_mut();
        // SAFETY: the functions expect this context, which stays valid until destroy. The structs outlive the call.
        if let Err(error) = check(unsafe { sys::dsc_store_from_callbacks(&callbacks, &mut store) }) {
            // SAFETY: the call has failed, so the library does not own the context.
            drop(unsafe { Box::from_raw(context) });
            return Err(error);
        }
        Self::over(store)
    }

    fn over(store: *mut sys::dsc_store_t) -> Result<Self> {
        let handle = NonNull::new(store).ok_or_else(|| {
            Error::new(ErrorCode::Internal, "the library returned neither a store nor an error".into())
        })?;
        Ok(Store { handle: StoreHandle(handle) })
    }

    pub(crate) fn raw(&self) -> *mut sys::dsc_store_t {
        self.handle.0.as_ptr()
    }

    /// Returns a part of the store. Its keys are "PREFIX/KEY" in the whole store. It keeps the whole store open.
    pub fn prefix(&self, prefix: &str) -> Result<Store> {
        let prefix = c_string("the prefix", prefix)?;
        let mut part = ptr::null_mut();
        // SAFETY: the library checks the handle. prefix and part outlive the call.
        check(unsafe { sys::dsc_store_prefix(self.raw(), prefix.as_ptr(), &mut part) })?;
        Self::over(part)
    }

    /// The port at which this process serves the store.
    pub fn port(&self) -> Result<u16> {
        let mut port = 0;
        // SAFETY: the library checks the handle, and port outlives the call.
        check(unsafe { sys::dsc_store_port(self.raw(), &mut port) })?;
        Ok(u16::try_from(port).unwrap_or(0))
    }

    /// Sets a key, whether or not it exists.
    pub fn set(&self, key: &str, value: &[u8]) -> Result<()> {
        let key = c_string("the key", key)?;
        // SAFETY: the library checks the handle; key and value outlive the call, with these lengths.
        check(unsafe { sys::dsc_store_set(self.raw(), key.as_ptr(), value.as_ptr().cast(), value.len()) })
    }

    /// Waits until a key exists, and returns its value.
    pub fn get(&self, key: &str) -> Result<Vec<u8>> {
        self.read(key, OWN_TIMEOUT)
    }

    /// Does the same as [`get`](Store::get), but waits at most `timeout`.
    pub fn get_within(&self, key: &str, timeout: Duration) -> Result<Vec<u8>> {
        self.read(key, milliseconds(timeout))
    }

    fn read(&self, key: &str, timeout_ms: i32) -> Result<Vec<u8>> {
        let key = c_string("the key", key)?;
        list(FIRST_ROOM, 0u8, |value, capacity, bytes| {
            // SAFETY: the library checks the handle; value has capacity bytes, and key and bytes outlive the call.
            unsafe { sys::dsc_store_get(self.raw(), key.as_ptr(), timeout_ms, value.cast(), capacity, bytes) }
        })
    }

    /// Adds to a counter and returns its new value. A missing counter counts as 0.
    pub fn add(&self, key: &str, amount: i64) -> Result<i64> {
        let key = c_string("the key", key)?;
        let mut sum = 0;
        // SAFETY: the library checks the handle; key and sum outlive the call.
        check(unsafe { sys::dsc_store_add(self.raw(), key.as_ptr(), amount, &mut sum) })?;
        Ok(sum)
    }

    /// Sets a key if its value is the expected one, and returns the value afterwards. A missing key is set if the
    /// expected value is empty; otherwise the expected value is returned.
    pub fn compare_set(&self, key: &str, expected: &[u8], desired: &[u8]) -> Result<Vec<u8>> {
        let key = c_string("the key", key)?;
        let (mut value, mut bytes) = (vec![0u8; LONGEST_VALUE], 0);
        // SAFETY: the library checks the handle. All lengths are right.
        check(unsafe {
            sys::dsc_store_compare_set(
                self.raw(),
                key.as_ptr(),
                expected.as_ptr().cast(),
                expected.len(),
                desired.as_ptr().cast(),
                desired.len(),
                value.as_mut_ptr().cast(),
                value.len(),
                &mut bytes,
            )
        })?;
        value.truncate(bytes);
        Ok(value)
    }

    /// Appends to a value; a missing key counts as empty.
    pub fn append(&self, key: &str, value: &[u8]) -> Result<()> {
        let key = c_string("the key", key)?;
        // SAFETY: the library checks the handle; key and value outlive the call, with these lengths.
        check(unsafe { sys::dsc_store_append(self.raw(), key.as_ptr(), value.as_ptr().cast(), value.len()) })
    }

    /// Whether all of the keys exist.
    pub fn check(&self, keys: &[&str]) -> Result<bool> {
        let (_texts, keys) = c_strings(keys)?;
        let mut present = 0;
        // SAFETY: the library checks the handle. The texts of the keys and present outlive the call.
        check(unsafe { sys::dsc_store_check(self.raw(), keys.as_ptr(), keys.len(), &mut present) })?;
        Ok(present != 0)
    }

    /// Waits until all of the keys exist, but at most `timeout`. `None` stands for the store's time-out.
    pub fn wait(&self, keys: &[&str], timeout: Option<Duration>) -> Result<()> {
        let (_texts, keys) = c_strings(keys)?;
        let timeout_ms = timeout.map_or(OWN_TIMEOUT, milliseconds);
        // SAFETY: the library checks the handle. The texts of the keys outlive the call.
        check(unsafe { sys::dsc_store_wait(self.raw(), keys.as_ptr(), keys.len(), timeout_ms) })
    }

    /// Removes a key, and returns whether it existed.
    #[doc(alias = "dsc_store_delete")]
    pub fn remove(&self, key: &str) -> Result<bool> {
        let key = c_string("the key", key)?;
        let mut deleted = 0;
        // SAFETY: the library checks the handle; key and deleted outlive the call.
        check(unsafe { sys::dsc_store_delete(self.raw(), key.as_ptr(), &mut deleted) })?;
        Ok(deleted != 0)
    }

    /// The number of keys in the whole store, even if this is a part of it.
    pub fn count(&self) -> Result<u64> {
        let mut count = 0;
        // SAFETY: the library checks the handle, and count outlives the call.
        check(unsafe { sys::dsc_store_count(self.raw(), &mut count) })?;
        Ok(u64::try_from(count).unwrap_or(0))
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store").finish_non_exhaustive()
    }
}

impl fmt::Debug for StoreOptions {
    /// Prints the options without the token.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreOptions")
            .field("job_id", &self.job_id)
            .field("bind", &self.bind)
            .field("world_size", &self.world_size)
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}

/// Converts keys to C texts, and returns them with pointers to them.
fn c_strings(keys: &[&str]) -> Result<(Vec<CString>, Vec<*const c_char>)> {
    let texts = keys.iter().map(|key| c_string("a key", key)).collect::<Result<Vec<_>>>()?;
    let pointers = texts.iter().map(|text| text.as_ptr()).collect();
    Ok((texts, pointers))
}

/// The functions that the library calls.
mod callbacks {
    use std::ffi::CStr;
    use std::panic::{catch_unwind, AssertUnwindSafe};
    use std::slice;

    use super::*;

    const OK: sys::dsc_result_t = sys::DSC_OK as sys::dsc_result_t;
    const FAILED: sys::dsc_result_t = sys::DSC_ERR_CALLBACK as sys::dsc_result_t;
    const OUT_OF_TIME: sys::dsc_result_t = sys::DSC_ERR_TIMEOUT as sys::dsc_result_t;

    fn time(timeout_ms: i32) -> Duration {
        Duration::from_millis(u64::try_from(timeout_ms).unwrap_or(0))
    }

    fn text<'a>(key: *const c_char) -> &'a str {
        // SAFETY: the library passes a text that outlives the call.
        unsafe { CStr::from_ptr(key) }.to_str().unwrap_or("")
    }

    pub(super) unsafe extern "C" fn put<P, G, E>(
        context: *mut c_void,
        key: *const c_char,
        value: *const c_void,
        bytes: usize,
        timeout_ms: i32,
    ) -> sys::dsc_result_t
    where
        P: Fn(&str, &[u8], Duration) -> std::result::Result<(), E>,
    {
        // SAFETY: the context is that of from_callbacks(), and shared references are enough.
        let (put, _) = unsafe { &*context.cast::<(P, G)>() };
        let value = if bytes == 0 {
            &[]
        } else {
            // SAFETY: the library passes that many bytes, which outlive the call.
            unsafe { slice::from_raw_parts(value.cast::<u8>(), bytes) }
        };
        match catch_unwind(AssertUnwindSafe(|| put(text(key), value, time(timeout_ms)))) {
            Ok(Ok(())) => OK,
            _ => FAILED,
        }
    }

    pub(super) unsafe extern "C" fn get<P, G, E>(
        context: *mut c_void,
        key: *const c_char,
        timeout_ms: i32,
        value: *mut c_void,
        capacity: usize,
        bytes: *mut usize,
    ) -> sys::dsc_result_t
    where
        G: Fn(&str, Duration) -> std::result::Result<Option<Vec<u8>>, E>,
    {
        // SAFETY: as in put().
        let (_, get) = unsafe { &*context.cast::<(P, G)>() };
        match catch_unwind(AssertUnwindSafe(|| get(text(key), time(timeout_ms)))) {
            Ok(Ok(Some(found))) => {
                // SAFETY: value has the given capacity, and the pointer for the length is valid.
                unsafe {
                    if found.len() <= capacity {
                        ptr::copy_nonoverlapping(found.as_ptr(), value.cast(), found.len());
                    }
                    *bytes = found.len();
                }
                OK
            }
            Ok(Ok(None)) => OUT_OF_TIME,
            _ => FAILED,
        }
    }

    pub(super) unsafe extern "C" fn destroy<P, G>(context: *mut c_void) {
        // SAFETY: the library calls this once, with the context of from_callbacks().
        let owned = unsafe { Box::from_raw(context.cast::<(P, G)>()) };
        let _ = catch_unwind(AssertUnwindSafe(|| drop(owned)));
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::sync::{Arc, Mutex};
    use std::thread;

    use super::*;

    #[test]
    fn every_operation() {
        let store = Store::open("memory://").unwrap();
        let long = vec![7; LONGEST_VALUE];
        store.set("long", &long).unwrap();
        assert_eq!(store.get("long").unwrap(), long);
        store.append("a", b"x").unwrap();
        store.append("a", b"y").unwrap();
        assert_eq!(store.get("a").unwrap(), b"xy");
        assert_eq!(store.compare_set("a", b"no", b"z").unwrap(), b"xy");
        assert!(store.check(&["a", "long"]).unwrap() && !store.check(&["a", "b"]).unwrap());
        assert!(store.remove("a").unwrap() && !store.remove("a").unwrap());
        assert_eq!(store.count().unwrap(), 1);
        assert_eq!(store.set("a\0b", b"").unwrap_err().code, ErrorCode::InvalidArg);
        assert_eq!(store.port().unwrap_err().code, ErrorCode::State);
        let error = store.wait(&["long", "never"], Some(Duration::from_millis(5))).unwrap_err();
        assert!(error.message.contains("\"never\"") && !error.message.contains("\"long\""));
    }

    #[test]
    fn threads_wait_for_each_other() {
        let store = Store::open("memory://").unwrap();
        thread::scope(|scope| {
            scope.spawn(|| assert_eq!(store.get("late").unwrap(), b"v"));
            thread::sleep(Duration::from_millis(5));
            store.set("late", b"v").unwrap();
        });
    }

    #[test]
    fn functions_of_the_callers() {
        let shelf = Arc::new(Mutex::new(HashMap::new()));
        let (writer, reader) = (Arc::clone(&shelf), Arc::clone(&shelf));
        let put = move |key: &str, value: &[u8], _: Duration| {
            writer.lock().unwrap().insert(key.to_owned(), value.to_vec());
            if key == "panic" {
                panic!("as asked")
            } else {
                Ok::<(), ()>(())
            }
        };
        let get = move |key: &str, _: Duration| match key {
            "broken" => Err(()),
            _ => Ok(reader.lock().unwrap().get(key).cloned()),
        };
        let store = Store::from_callbacks(put, get).unwrap();
        let part = store.prefix("p").unwrap();
        part.set("k", b"v").unwrap();
        assert_eq!(store.get("p/k").unwrap(), b"v");
        assert_eq!(store.get("broken").unwrap_err().code, ErrorCode::Callback);
        assert_eq!(store.get("none").unwrap_err().code, ErrorCode::Timeout);
        assert_eq!(store.add("k", 1).unwrap_err().code, ErrorCode::Unsupported);
        drop(store);
        assert_eq!(part.get("k").unwrap(), b"v");
        drop(part);
        assert_eq!(Arc::strong_count(&shelf), 1);
    }
}
