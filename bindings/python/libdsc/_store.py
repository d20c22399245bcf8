"""Key-value stores: small values that all processes of a job share."""

from __future__ import annotations

import ctypes
import threading
from ctypes import byref, c_int32, c_int64, c_size_t, c_void_p
from typing import Any, Callable, Optional, Sequence, TypeVar, Union

from libdsc import _interrupt, _raw, errors
from libdsc._arguments import INT64_MOST, Seconds, integer, milliseconds, optional_string, seconds_of, string
from libdsc._library import OnlyOne, check, lib, list_of

Self = TypeVar("Self", bound="Store")
Value = Union[bytes, bytearray, memoryview, str]
Put = Callable[[str, bytes, float], None]
Get = Callable[[str, float], Value]

INT64 = (-(2**63), INT64_MOST)
DEFAULT_TIMEOUT_MS = 300_000
# Waits on the main thread are divided into slices, so that Ctrl-C is handled between them.
SLICE_MS = 200


class Store(OnlyOne):
    """A key-value store. Keys are strings of 1 to 1,024 bytes, values up to 1 MiB of bytes; a str is encoded as UTF-8.

    Any thread may call any method, even while another thread waits. close(), the end of a with block, or the end of the
    last reference releases the store.
    """

    __slots__ = ("_handle", "_text", "_timeout_ms", "_owned", "__weakref__")

    def __init__(
        self,
        uri: str,
        *,
        token: Optional[str] = None,
        job_id: Optional[str] = None,
        bind: Optional[str] = None,
        serve: bool = False,
        world_size: int = 1,
        timeout: Seconds = 300.0,
        allow_unauthenticated: bool = False,
    ) -> None:
        """Opens a store.

        Args:
            uri: "memory://", "file:///PATH" or "tcp://HOST:PORT".
            token: the job's secret, 64 hexadecimal digits; if not given, the value of the environment variables
                (DSC_TOKEN_FD, DSC_TOKEN_FILE, DSC_TOKEN).
            job_id: distinguishes jobs that use the same URI.
            bind: where a server listens: "any", an interface, a name or an address; the URI's host if not given.
            serve: True: this process is the server of a tcp:// store. With port 0 it uses a free port, which ``port``
                returns.
            world_size: for a server, how many processes will connect.
            timeout: seconds that opening and every call may take.
            allow_unauthenticated: True: a server without a token may listen beyond loopback.
        """
        self._handle = 0
        self._text = uri
        self._owned: tuple[Any, ...] = ()
        self._timeout_ms = milliseconds(timeout)
        options = _raw.StoreOptions()
        check(lib.dsc_store_options_init(byref(options), ctypes.sizeof(options)))
        options.token = optional_string("token", token)
        options.job_id = optional_string("job_id", job_id)
        options.bind = optional_string("bind", bind)
        options.serve = int(bool(serve))
        options.world_size = integer("world_size", world_size)
        options.timeout_ms = self._timeout_ms
        options.allow_unauthenticated = int(bool(allow_unauthenticated))
        handle = c_void_p()
        arguments = (string("uri", uri), options, byref(handle))
        if _interrupt.on_main_thread():
            code, text, _ = _interrupt.call_on_other_thread(lib.dsc_store_open, *arguments)
            if code < 0:
                raise errors.from_code(code, text)
        else:
            check(lib.dsc_store_open(*arguments))
        assert handle.value is not None
        self._handle = handle.value

    @classmethod
    def from_callbacks(cls: type[Self], put: Put, get: Get) -> Self:
        """Makes a store from two functions of the program, over its own database, object store or MPI.

        put(key, value, timeout) stores a value. get(key, timeout) waits until the key has a value and returns it, or
        raises TimeoutError. They may be called from several threads, and must not call libdsc. The store supports set,
        get and wait. If a function raises, the thread that called the store gets a CallbackError with that cause.
        """
        callbacks, raised = _callbacks_of(put, get)
        handle = c_void_p()
        check(lib.dsc_store_from_callbacks(byref(callbacks), byref(handle)))
        assert handle.value is not None
        return cls._over(handle.value, "callbacks", DEFAULT_TIMEOUT_MS, (callbacks, raised))

    @classmethod
    def _over(cls: type[Self], handle: int, text: str, timeout_ms: int, owned: tuple[Any, ...]) -> Self:
        store = cls.__new__(cls)
        store._handle, store._text, store._timeout_ms, store._owned = handle, text, timeout_ms, owned
        return store

    def __repr__(self) -> str:
        return f"<libdsc.Store {self._text}{'' if self._handle else ', closed'}>"

    def _live(self) -> int:
        if not self._handle:
            raise errors.from_code(_raw.Result.ERR_BAD_HANDLE, f"the store {self._text} is closed")
        return self._handle

    @property
    def port(self) -> int:
        """The port at which this process serves the store."""
        port = c_int32()
        check(lib.dsc_store_port(self._live(), byref(port)))
        return port.value

    def prefix(self: Self, prefix: str) -> Self:
        """Returns a view of the store in which KEY means "PREFIX/KEY" of the whole store."""
        part = c_void_p()
        check(lib.dsc_store_prefix(self._live(), string("prefix", prefix), byref(part)))
        assert part.value is not None
        return type(self)._over(part.value, f"{self._text} {prefix}/", self._timeout_ms, (self,))

    def set(self, key: str, value: Value) -> None:
        """Sets a key, whether or not it exists."""
        data = _bytes("value", value)
        self._check(lib.dsc_store_set(self._live(), string("key", key), data, len(data)))

    def get(self, key: str, timeout: Optional[Seconds] = None) -> bytes:
        """Waits until a key is set and returns its value.

        Raises TimeoutError after timeout seconds, by default the store's time-out.
        """
        name = string("key", key)

        def read(*room: Any) -> int:
            return self._wait(lambda ms: int(lib.dsc_store_get(self._live(), name, ms, *room)), timeout)

        value: bytes = list_of(ctypes.c_char, read)
        return value

    def add(self, key: str, amount: int = 1) -> int:
        """Adds to a counter and returns its new value. A counter that does not exist counts as 0."""
        total = c_int64()
        number = integer("amount", amount, *INT64)
        self._check(lib.dsc_store_add(self._live(), string("key", key), number, byref(total)))
        return total.value

    def compare_set(self, key: str, expected: Value, desired: Value) -> bytes:
        """Sets a key if its value is the expected one, and returns the value afterwards.

        A key that does not exist is set if the expected value is empty; otherwise expected is returned.
        """
        old, new, length = _bytes("expected", expected), _bytes("desired", desired), c_size_t()
        # Room for the largest possible value: the call may set the key, so it cannot be repeated with a larger buffer.
        room = 1 << 20
        value = ctypes.create_string_buffer(room)
        self._check(
            lib.dsc_store_compare_set(
                self._handle, string("key", key), old, len(old), new, len(new), value, room, byref(length)
            )
        )
        return value.raw[: length.value]

    def append(self, key: str, value: Value) -> None:
        """Appends to a value; a key that does not exist counts as empty."""
        data = _bytes("value", value)
        self._check(lib.dsc_store_append(self._live(), string("key", key), data, len(data)))

    def check(self, keys: Sequence[str]) -> bool:
        """Returns whether all of the keys are set."""
        present = c_int32()
        self._check(lib.dsc_store_check(self._live(), _names(keys), len(keys), byref(present)))
        return bool(present.value)

    def wait(self, keys: Sequence[str], timeout: Optional[Seconds] = None) -> None:
        """Waits until all of the keys are set.

        Raises TimeoutError after timeout seconds, by default the store's time-out.
        """
        names = _names(keys)
        self._wait(lambda ms: int(lib.dsc_store_wait(self._live(), names, len(keys), ms)), timeout)

    def delete(self, key: str) -> bool:
        """Removes a key; returns whether it existed."""
        deleted = c_int32()
        self._check(lib.dsc_store_delete(self._live(), string("key", key), byref(deleted)))
        return bool(deleted.value)

    def count(self) -> int:
        """Returns the number of keys of the whole store, even if called on a prefix()."""
        count = c_int64()
        self._check(lib.dsc_store_count(self._live(), byref(count)))
        return count.value

    def close(self) -> None:
        """Releases the store. May be called twice."""
        handle, self._handle = self._handle, 0
        if handle:
            lib.dsc_store_destroy(handle)

    def __enter__(self: Self) -> Self:
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        self.close()

    def __del__(self) -> None:
        try:
            self.close()
        except Exception:  # at interpreter shutdown, where modules may already be gone
            pass

    def _check(self, code: int) -> int:
        try:
            return check(code)
        except errors.CallbackError as error:
            raise error from self._cause()

    def _cause(self) -> Optional[BaseException]:
        for owned in self._owned:
            if isinstance(owned, Store):
                return owned._cause()
            if isinstance(owned, dict):
                return owned.pop(threading.get_ident(), None)
        return None

    def _wait(self, call: Callable[[int], int], timeout: Optional[Seconds]) -> int:
        """Waits for a call of the library. On the main thread it waits in slices, so that signal handlers can run."""
        left = self._timeout_ms if timeout is None else 0 if seconds_of(timeout) == 0 else milliseconds(timeout)
        sliced = _interrupt.on_main_thread()
        while sliced and left > SLICE_MS:
            code = call(SLICE_MS)
            if code != _raw.Result.ERR_TIMEOUT:
                return self._check(code)
            left -= SLICE_MS
        return self._check(call(left))


def _bytes(argument: str, value: Value) -> bytes:
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    raise TypeError(f"{argument} is a {type(value).__name__}; expected bytes or a string")


def _names(keys: Sequence[str]) -> Any:
    if isinstance(keys, (str, bytes)):
        raise TypeError(f"keys is one string, {keys!r}; expected a list of strings")
    return (ctypes.c_char_p * len(keys))(*(string(f"keys[{i}]", key) for i, key in enumerate(keys)))


def _callbacks_of(put: Put, get: Get) -> tuple[Any, dict[int, BaseException]]:
    """Returns the C callbacks, and a dict of the exceptions that they raise, by the thread that called the store."""
    raised: dict[int, BaseException] = {}

    def failed(error: BaseException) -> int:
        # Python's own TimeoutError; libdsc.TimeoutError is a subclass.
        if isinstance(error, TimeoutError):
            return int(_raw.Result.ERR_TIMEOUT)
        raised[threading.get_ident()] = error
        return int(_raw.Result.ERR_CALLBACK)

    def called_put(_context: Any, key: bytes, value: int, length: int, timeout_ms: int) -> int:
        try:
            put(key.decode(), ctypes.string_at(value, length), timeout_ms / 1000)
            return 0
        except BaseException as error:  # an exception must not propagate through C code
            return failed(error)

    def called_get(_context: Any, key: bytes, timeout_ms: int, value: int, capacity: int, length: Any) -> int:
        try:
            data = _bytes("the value that get returned", get(key.decode(), timeout_ms / 1000))
            if len(data) <= capacity:
                ctypes.memmove(value, data, len(data))
            length[0] = len(data)
            return 0
        except BaseException as error:  # an exception must not propagate through C code
            return failed(error)

    callbacks = _raw.StoreCallbacks()
    callbacks.struct_size = ctypes.sizeof(callbacks)
    callbacks.put = _raw.StorePutFn(called_put)
    callbacks.get = _raw.StoreGetFn(called_get)
    return callbacks, raised
