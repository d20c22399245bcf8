#include "refuse.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

typedef enum {
  MEMORY,
  MMAP,
  MREMAP,
  MADVISE,
  MEMFD_CREATE,
  FALLOCATE,
  FCHMOD,
  FCNTL,
  FSTAT,
  SOCKET,
  BIND,
  LISTEN,
  CONNECT,
  ACCEPT4,
  GETSOCKOPT,
  RECVMSG,
  SENDMSG,
  SENDMSG_FULL,
  POLL,
  EPOLL_CREATE1,
  EPOLL_CTL,
  EVENTFD,
  EVENTFD_WRITE,
  PIDFD_OPEN,
  PROCESS_VM_READV,
  FUTEX_WAITS,
  PTHREAD_CREATE,
  GETRANDOM,
  OPEN,
  FOPEN,
  READ,
  WRITE,
  KINDS
} call_kind_t;

static const struct {
  const char* name;
  int error;
} kinds[KINDS] = {
    [MEMORY] = {"malloc", ENOMEM},
    [MMAP] = {"mmap", ENOMEM},
    [MREMAP] = {"mremap", ENOMEM},
    [MADVISE] = {"madvise", EINVAL},
    [MEMFD_CREATE] = {"memfd_create", EMFILE},
    [FALLOCATE] = {"posix_fallocate", ENOSPC},
    [FCHMOD] = {"fchmod", EPERM},
    [FCNTL] = {"fcntl", EPERM},
    [FSTAT] = {"fstat", ENOMEM},
    [SOCKET] = {"socket", EMFILE},
    [BIND] = {"bind", ENOMEM},
    [LISTEN] = {"listen", ENOBUFS},
    [CONNECT] = {"connect", ENOMEM},
    [ACCEPT4] = {"accept4", EMFILE},
    [GETSOCKOPT] = {"getsockopt", ENOMEM},
    [RECVMSG] = {"recvmsg", ENOMEM},
    [SENDMSG] = {"sendmsg", ENOBUFS},
    [SENDMSG_FULL] = {"sendmsg to a full socket", EAGAIN},
    [POLL] = {"poll", ENOMEM},
    [EPOLL_CREATE1] = {"epoll_create1", EMFILE},
    [EPOLL_CTL] = {"epoll_ctl", ENOSPC},
    [EVENTFD] = {"eventfd", EMFILE},
    [EVENTFD_WRITE] = {"eventfd_write", EAGAIN},
    [PIDFD_OPEN] = {"pidfd_open", EMFILE},
    [PROCESS_VM_READV] = {"process_vm_readv", EPERM},
    [FUTEX_WAITS] = {"futex", EINTR},
    [PTHREAD_CREATE] = {"pthread_create", EAGAIN},
    [GETRANDOM] = {"getrandom", ENOSYS},
    [OPEN] = {"open", EMFILE},
    [FOPEN] = {"fopen", EMFILE},
    [READ] = {"read", EIO},
    [WRITE] = {"write", ENOSPC},
};

/* ---- which calls are refused ---- */

static atomic_int refused_kind = -1;
static atomic_llong calls[KINDS];
static int64_t first_refused, last_refused;

static int storm_error;  /* the error that half of all calls return; 0 for none */
static bool only_bytes;  /* files are read and written byte by byte */
static bool clock_jumps; /* the time of day jumps forward and back by an hour */

const char* refuse_name(int kind) { return kind >= 0 && kind < KINDS ? kinds[kind].name : NULL; }

void refuse_calls(int kind, int64_t first, int64_t last) {
  first_refused = first;
  last_refused = last;
  for (int i = 0; i < KINDS; ++i) atomic_store(&calls[i], 0);
  atomic_store(&refused_kind, kind);
}

void refuse_no_more(void) { atomic_store(&refused_kind, -1); }

int64_t refuse_count(int kind) { return atomic_load(&calls[kind]); }

static bool refused(call_kind_t kind) {
  const int wanted = atomic_load_explicit(&refused_kind, memory_order_acquire);
  if (wanted < 0) return false;
  const int64_t call = atomic_fetch_add(&calls[kind], 1) + 1;
  if (wanted != (int)kind || call < first_refused || call > last_refused) return false;
  errno = kinds[kind].error;
  return true;
}

/* A random bit by xorshift. Every thread has a separate seed. */
static bool coin(void) {
  static __thread uint32_t state;
  if (state == 0) state = (uint32_t)(uintptr_t)&state | 1;
  state ^= state << 13;
  state ^= state >> 17;
  state ^= state << 5;
  return (state >> 16 & 1) != 0;
}

/* For calls that wait or move data. A receive may give EAGAIN although the socket was reported as ready. */
static bool disturbed(call_kind_t kind, bool takes) {
  if (refused(kind)) return true;
  if (storm_error == 0 || (storm_error == EAGAIN && !takes) || !coin()) return false;
  errno = storm_error;
  return true;
}

__attribute__((constructor)) static void read_environment(void) {
  const char* wanted = getenv("DSC_REFUSE");
  if (wanted == NULL) return;
  if (strcmp(wanted, "interrupt") == 0) storm_error = EINTR;
  if (strcmp(wanted, "again") == 0) storm_error = EAGAIN;
  if (strcmp(wanted, "short") == 0) only_bytes = true;
  if (strcmp(wanted, "clock") == 0) clock_jumps = true;
}

/* ---- memory ---- */

void* __libc_malloc(size_t bytes);                     /* NOLINT: glibc's own */
void* __libc_calloc(size_t count, size_t bytes);       /* NOLINT */
void* __libc_realloc(void* memory, size_t bytes);      /* NOLINT */
void* __libc_memalign(size_t alignment, size_t bytes); /* NOLINT */

EXPORT void* malloc(size_t bytes) { return refused(MEMORY) ? NULL : __libc_malloc(bytes); }

EXPORT void* calloc(size_t count, size_t bytes) {
  return refused(MEMORY) ? NULL : __libc_calloc(count, bytes);
}

EXPORT void* realloc(void* memory, size_t bytes) {
  return refused(MEMORY) ? NULL : __libc_realloc(memory, bytes);
}

EXPORT void* aligned_alloc(size_t alignment, size_t bytes) {
  return refused(MEMORY) ? NULL : __libc_memalign(alignment, bytes);
}

/* ---- calls that return -1 and set errno ---- */

/* The function of the C library, which is looked up at the first call. */
#define REAL(result, name, parameters)                                   \
  static result(*real) parameters;                                       \
  if (real == NULL) {                                                    \
    void* found = dlsym(RTLD_NEXT, name);                                \
    memcpy(&real, &found, sizeof found); /* a cast would not be ISO C */ \
  }

#define PASS(kind, result, name, parameters, arguments) \
  EXPORT result name parameters {                       \
    REAL(result, #name, parameters)                     \
    return refused(kind) ? -1 : real arguments;         \
  }

#define PASS_DISTURBED(kind, takes, result, name, parameters, arguments) \
  EXPORT result name parameters {                                        \
    REAL(result, #name, parameters)                                      \
    return disturbed(kind, takes) ? -1 : real arguments;                 \
  }

PASS(MADVISE, int, madvise, (void* data, size_t bytes, int advice), (data, bytes, advice))
PASS(MEMFD_CREATE, int, memfd_create, (const char* name, unsigned flags), (name, flags))
PASS(FCHMOD, int, fchmod, (int fd, mode_t mode), (fd, mode))
PASS(FSTAT, int, fstat64, (int fd, struct stat64* status), (fd, status))
PASS(SOCKET, int, socket, (int domain, int type, int protocol), (domain, type, protocol))
PASS(BIND, int, bind, (int fd, __CONST_SOCKADDR_ARG address, socklen_t bytes), (fd, address, bytes))
PASS(LISTEN, int, listen, (int fd, int backlog), (fd, backlog))
PASS(GETSOCKOPT, int, getsockopt, (int fd, int level, int name, void* value, socklen_t* bytes),
     (fd, level, name, value, bytes))
PASS(EPOLL_CREATE1, int, epoll_create1, (int flags), (flags))
PASS(EVENTFD, int, eventfd, (unsigned value, int flags), (value, flags))
PASS(EVENTFD_WRITE, int, eventfd_write, (int fd, uint64_t value), (fd, value))
PASS_DISTURBED(GETRANDOM, false, ssize_t, getrandom, (void* data, size_t bytes, unsigned flags),
               (data, bytes, flags))
PASS_DISTURBED(CONNECT, false, int, connect, (int fd, __CONST_SOCKADDR_ARG address, socklen_t bytes),
               (fd, address, bytes))
PASS_DISTURBED(ACCEPT4, true, int, accept4, (int fd, __SOCKADDR_ARG address, socklen_t* bytes, int flags),
               (fd, address, bytes, flags))
PASS_DISTURBED(RECVMSG, true, ssize_t, recvmsg, (int fd, struct msghdr* message, int flags),
               (fd, message, flags))
PASS_DISTURBED(POLL, false, int, poll, (struct pollfd * entries, nfds_t count, int timeout_ms),
               (entries, count, timeout_ms))

EXPORT ssize_t sendmsg(int fd, const struct msghdr* message, int flags) {
  REAL(ssize_t, "sendmsg", (int, const struct msghdr*, int))
  return disturbed(SENDMSG, false) || refused(SENDMSG_FULL) ? -1 : real(fd, message, flags);
}

/* Except for wrong arguments, only a signal makes this call fail. */
EXPORT int epoll_wait(int epoll, struct epoll_event* events, int most, int timeout_ms) {
  REAL(int, "epoll_wait", (int, struct epoll_event*, int, int))
  if (storm_error == EINTR && coin()) {
    errno = EINTR;
    return -1;
  }
  return real(epoll, events, most, timeout_ms);
}

/* Removing a descriptor cannot fail for lack of resources. */
EXPORT int epoll_ctl(int epoll, int what, int fd, struct epoll_event* event) {
  REAL(int, "epoll_ctl", (int, int, int, struct epoll_event*))
  return what == EPOLL_CTL_ADD && refused(EPOLL_CTL) ? -1 : real(epoll, what, fd, event);
}

EXPORT ssize_t read(int fd, void* data, size_t bytes) {
  REAL(ssize_t, "read", (int, void*, size_t))
  if (disturbed(READ, false)) return -1;
  return real(fd, data, only_bytes && bytes > 1 && lseek(fd, 0, SEEK_CUR) >= 0 ? 1 : bytes);
}

EXPORT ssize_t write(int fd, const void* data, size_t bytes) {
  REAL(ssize_t, "write", (int, const void*, size_t))
  if (disturbed(WRITE, false)) return -1;
  return real(fd, data, only_bytes && bytes > 1 && lseek(fd, 0, SEEK_CUR) >= 0 ? 1 : bytes);
}

EXPORT int clock_gettime(clockid_t clock, struct timespec* time) {
  REAL(int, "clock_gettime", (clockid_t, struct timespec*))
  const int result = real(clock, time);
  if (clock_jumps && clock == CLOCK_REALTIME) time->tv_sec += coin() ? 3600 : -3600;
  return result;
}

/* ---- calls with other results ---- */

EXPORT void* mmap64(void* place, size_t bytes, int protection, int flags, int fd, off64_t offset) {
  REAL(void*, "mmap64", (void*, size_t, int, int, int, off64_t))
  return refused(MMAP) ? MAP_FAILED : real(place, bytes, protection, flags, fd, offset);
}

EXPORT void* mremap(void* old, size_t old_bytes, size_t bytes, int flags, ...) {
  REAL(void*, "mremap", (void*, size_t, size_t, int, ...))
  va_list arguments;
  va_start(arguments, flags);
  void* place = (flags & MREMAP_FIXED) != 0 ? va_arg(arguments, void*) : NULL;
  va_end(arguments);
  return refused(MREMAP) ? MAP_FAILED : real(old, old_bytes, bytes, flags, place);
}

EXPORT int posix_fallocate64(int fd, off64_t offset, off64_t bytes) {
  REAL(int, "posix_fallocate64", (int, off64_t, off64_t))
  return refused(FALLOCATE) ? kinds[FALLOCATE].error : real(fd, offset, bytes);
}

EXPORT int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*run)(void*),
                          void* argument) {
  REAL(int, "pthread_create", (pthread_t*, const pthread_attr_t*, void* (*)(void*), void*))
  return refused(PTHREAD_CREATE) ? kinds[PTHREAD_CREATE].error : real(thread, attributes, run, argument);
}

EXPORT int fcntl64(int fd, int command, ...) {
  REAL(int, "fcntl64", (int, int, ...))
  va_list arguments;
  va_start(arguments, command);
  void* argument = va_arg(arguments, void*);
  va_end(arguments);
  return refused(FCNTL) ? -1 : real(fd, command, argument);
}

EXPORT int open64(const char* path, int flags, ...) {
  REAL(int, "open64", (const char*, int, ...))
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(arguments, mode_t) : 0;
  va_end(arguments);
  return disturbed(OPEN, false) ? -1 : real(path, flags, mode);
}

EXPORT FILE* fopen64(const char* path, const char* mode) {
  REAL(FILE*, "fopen64", (const char*, const char*))
  return refused(FOPEN) ? NULL : real(path, mode);
}

EXPORT ssize_t process_vm_readv(pid_t pid, const struct iovec* to, unsigned long to_count,
                                const struct iovec* from, unsigned long from_count, unsigned long flags) {
  REAL(ssize_t, "process_vm_readv",
       (pid_t, const struct iovec*, unsigned long, const struct iovec*, unsigned long, unsigned long))
  return refused(PROCESS_VM_READV) ? -1 : real(pid, to, to_count, from, from_count, flags);
}

/* futex and pidfd_open are called through syscall(). A futex wake-up cannot fail. */
EXPORT long syscall(long number, ...) {
  REAL(long, "syscall", (long, ...))
  va_list list;
  long a[6];
  va_start(list, number);
  for (int i = 0; i < 6; ++i) a[i] = va_arg(list, long);
  va_end(list);
  if (number == SYS_pidfd_open && refused(PIDFD_OPEN)) return -1;
  if (number == SYS_futex && (a[1] & 127) == 0 && disturbed(FUTEX_WAITS, false)) return -1;
  return real(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}
