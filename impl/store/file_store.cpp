#include "store/file_store.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/error.hpp"
#include "base/fork_close.hpp"
#include "base/hash.hpp"
#include "base/process_guard.hpp"
#include "store/bytes.hpp"
#include "store/file_lock.hpp"

namespace dsc {
namespace {

constexpr uint64_t kMagic = 0x656c69662d637364u;  // "dsc-file" in memory
constexpr uint32_t kVersion = 1;
constexpr size_t kJobBytes = 64;
constexpr size_t kHeaderBytes = 8 + 4 + 4 + kJobBytes;
constexpr size_t kRecordHeadBytes = 4 + 8;  // length and hash of the record that follows
// Limit for the file. The log is never compacted, because start-up writes little.
constexpr uint64_t kMaxFileBytes = uint64_t{1} << 30;
constexpr timespec kPollPeriod{0, 10'000'000};
constexpr timespec kLockPeriod{0, 500'000};
constexpr int kLockMs = 1000;
constexpr int kLeavingMs = 100;

enum class Record : uint8_t { kSet = 1, kRemove = 2 };

std::string read_at(int fd, uint64_t offset, size_t bytes, const std::string& path) {
  std::string data(bytes, '\0');
  size_t done = 0;
  while (done < bytes) {
    const ssize_t got = ::pread(fd, data.data() + done, bytes - done, static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail_errno(errno, "reading %.200s", path.c_str());
    if (got == 0) break;
    done += static_cast<size_t>(got);
  }
  data.resize(done);
  return data;
}

// Returns 0 or an errno value. After an error, part of the data may have been written.
int write_at(int fd, uint64_t offset, std::string_view data) {
  while (!data.empty()) {
    const ssize_t put = ::pwrite(fd, data.data(), data.size(), static_cast<off_t>(offset));
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return errno;
    data.remove_prefix(static_cast<size_t>(put));
    offset += static_cast<uint64_t>(put);
  }
  return 0;
}

[[noreturn]] void fail_locked(const std::string& path) {
  fail(DSC_ERR_TIMEOUT, "%.200s: another process keeps this file locked", path.c_str());
}

[[noreturn]] void fail_writing(int error, const std::string& path) {
  if (error == ENOSPC || error == EDQUOT || error == EFBIG)
    fail(DSC_ERR_NOSPACE, "%.200s cannot grow: its file system is full", path.c_str());
  fail_errno(error, "writing %.200s", path.c_str());
}

uint64_t file_bytes(int fd, const std::string& path) {
  struct stat status {};
  if (::fstat(fd, &status) != 0) fail_errno(errno, "stat of %.200s", path.c_str());
  return static_cast<uint64_t>(status.st_size);
}

void cut(int fd, uint64_t bytes, const std::string& path) {
  if (::ftruncate(fd, static_cast<off_t>(bytes)) != 0) fail_errno(errno, "truncating %.200s", path.c_str());
}

// Refuses symbolic links, which could lead anywhere, and files of other users, which could contain anything.
UniqueFd open_own(const std::string& path) {
  UniqueFd file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600));
  if (!file) fail_errno(errno, "opening %.200s", path.c_str());
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) fail_errno(errno, "stat of %.200s", path.c_str());
  if (!S_ISREG(status.st_mode)) fail(DSC_ERR_INVALID_ARG, "%.200s is not a regular file", path.c_str());
  if (status.st_uid != ::geteuid())
    fail(DSC_ERR_AUTH, "%.200s belongs to user %u, expected %u", path.c_str(), status.st_uid, ::geteuid());
  if ((status.st_mode & 077) != 0)
    fail(DSC_ERR_AUTH, "%.200s has mode %03o, expected 600: other users may read or write it", path.c_str(),
         status.st_mode & 0777);
  return file;
}

// Returns false if the file was removed. The path may then name another file.
bool is_still_at(int fd, const std::string& path) {
  struct stat opened {};
  struct stat named {};
  return ::fstat(fd, &opened) == 0 && ::lstat(path.c_str(), &named) == 0 && opened.st_dev == named.st_dev &&
         opened.st_ino == named.st_ino;
}

void remove_if_last(int fd, const std::string& path) {
  const Deadline leaving_deadline = Deadline::after_ms(kLeavingMs);
  do {
    const FileLock writer(fd, path);
    if (!writer) continue;
    if (try_lock_file(fd, LockByte::kUsers, F_WRLCK, path) && is_still_at(fd, path)) ::unlink(path.c_str());
    return;
  } while (!leaving_deadline.passed() && nanosleep(&kLockPeriod, nullptr) == 0);
}

}  // namespace

FileStore::FileStore(std::string path, std::string job_id, Deadline deadline)
    : path_(std::move(path)), job_id_(std::move(job_id)) {
  if (path_.empty()) fail(DSC_ERR_INVALID_ARG, "the path of the file is empty");
  if (job_id_.size() > kJobBytes)
    fail(DSC_ERR_INVALID_ARG, "the job id has %zu bytes, expected at most %zu", job_id_.size(), kJobBytes);
  mark_process();
  const MutexLock lock(mutex_);
  Joined joined = try_to_join();
  for (; joined != Joined::kYes && !deadline.passed(); joined = try_to_join())
    nanosleep(joined == Joined::kLocked ? &kLockPeriod : &kPollPeriod, nullptr);
  if (joined == Joined::kLocked) fail_locked(path_);
  if (joined == Joined::kOtherJob)
    fail(DSC_ERR_ADDR_IN_USE, "%.200s is in use by a job with another id; choose another file",
         path_.c_str());
}

FileStore::~FileStore() {
  const MutexLock lock(mutex_);
  // If the removal fails, no harm is done: the next process that opens the file empties it first.
  call_out([fd = file_.get(), this] { remove_if_last(fd, path_); });
}

// A process that gets the users' lock exclusively is the only one that has the file open. It writes a new
// header. Afterwards it changes the lock to a shared one.
FileStore::Joined FileStore::try_to_join() {
  file_ = ParentFd(open_own(path_));
  const FileLock writer(file_.get(), path_);
  if (!writer || !is_still_at(file_.get(), path_)) return Joined::kLocked;
  if (try_lock_file(file_.get(), LockByte::kUsers, F_WRLCK, path_)) {
    write_header();
  } else if (!has_own_header()) {
    return Joined::kOtherJob;
  }
  if (!try_lock_file(file_.get(), LockByte::kUsers, F_RDLCK, path_))
    fail(DSC_ERR_SYSTEM, "%.200s: a shared lock was refused", path_.c_str());
  read_bytes_ = kHeaderBytes;
  return Joined::kYes;
}

// Called when no other process has the file open. Any contents are left over from an earlier job.
void FileStore::write_header() {
  const std::string there = read_at(file_.get(), 0, sizeof kMagic, path_);
  ByteReader reader(there);
  if (!there.empty() && reader.number<uint64_t>() != kMagic)
    fail(DSC_ERR_PROTOCOL, "%.200s is not a file of a store; the file was not changed", path_.c_str());
  cut(file_.get(), 0, path_);
  ByteWriter writer;
  writer.number(kMagic);
  writer.number(kVersion);
  writer.text(job_id_ + std::string(kJobBytes - job_id_.size(), '\0'));
  if (const int error = write_at(file_.get(), 0, writer.take())) fail_writing(error, path_);
}

bool FileStore::has_own_header() const {
  const std::string header = read_at(file_.get(), 0, kHeaderBytes, path_);
  ByteReader reader(header);
  if (reader.number<uint64_t>() != kMagic)
    fail(DSC_ERR_PROTOCOL, "%.200s is not a file of a store", path_.c_str());
  const auto version = reader.number<uint32_t>();
  if (version != kVersion)
    fail(DSC_ERR_VERSION, "%.200s has version %u, expected %u", path_.c_str(), version, kVersion);
  const std::string_view job = reader.text();
  return reader.good() && job.substr(0, job.find('\0')) == job_id_;
}

// Tries to get the lock for a minimum time even after the deadline, because many ranks may try at the same
// moment.
StoreReply FileStore::perform(const StoreRequest& request, Deadline deadline) {
  const Deadline lock_deadline = later(deadline, Deadline::after_ms(kLockMs));
  std::vector<std::string> missing;
  while (true) {
    if (auto reply = try_to_perform(request, missing)) return *std::move(reply);
    if (!missing.empty() && deadline.passed()) fail_missing(missing);
    if (missing.empty() && lock_deadline.passed()) fail_locked(path_);
    nanosleep(missing.empty() ? &kLockPeriod : &kPollPeriod, nullptr);
  }
}

// Returns nullopt if another process has the lock, or if keys are missing. In the latter case lists them in
// `missing`.
std::optional<StoreReply> FileStore::try_to_perform(const StoreRequest& request,
                                                    std::vector<std::string>& missing) {
  const MutexLock lock(mutex_);
  const FileLock writer(file_.get(), path_);
  if (!writer) return std::nullopt;
  read_news();
  auto reply = table_.apply(request);
  if (!reply) missing = table_.missing(request);
  if (reply && changes(request.op)) write_record(request.keys[0]);
  return reply;
}

// Reads what other processes have written. Writers hold the lock, so an incomplete record comes from a writer
// that died, and is cut off.
void FileStore::read_news() {
  const uint64_t end = file_bytes(file_.get(), path_);
  const std::string news = read_at(file_.get(), read_bytes_, end - std::min(end, read_bytes_), path_);
  ByteReader reader(news);
  while (reader.left() > 0) {
    const auto length = reader.number<uint32_t>();
    const auto hash = reader.number<uint64_t>();
    const std::string_view record = reader.raw(length);
    if (!reader.good() || fnv1a(record) != hash) return cut(file_.get(), read_bytes_, path_);
    take_in(record);
    read_bytes_ += kRecordHeadBytes + record.size();
  }
}

void FileStore::take_in(std::string_view record) {
  ByteReader reader(record);
  const auto kind = static_cast<Record>(reader.number<uint8_t>());
  const std::string key(reader.text());
  if (kind == Record::kRemove)
    table_.remove(key);
  else
    table_.set(key, std::string(reader.raw(reader.left())));
}

// Appends the current value of the key to the file. If that fails, clears the table, which is then read from
// the file again.
void FileStore::write_record(const std::string& key) {
  const std::string* value = table_.find(key);
  ByteWriter record;
  record.number(static_cast<uint8_t>(value ? Record::kSet : Record::kRemove));
  record.text(key);
  if (value) record.raw(*value);
  const std::string body = record.take();
  ByteWriter whole;
  whole.number(static_cast<uint32_t>(body.size()));
  whole.number(fnv1a(body));
  whole.raw(body);
  const std::string bytes = whole.take();
  const bool full = read_bytes_ + bytes.size() > kMaxFileBytes;
  const int error = full ? EFBIG : write_at(file_.get(), read_bytes_, bytes);
  if (error == 0) {
    read_bytes_ += bytes.size();
    return;
  }
  const uint64_t good = std::exchange(read_bytes_, kHeaderBytes);
  table_.clear();
  cut(file_.get(), good, path_);
  if (full)
    fail(DSC_ERR_NOSPACE, "%.200s has reached its limit of %llu bytes: too much was written to it",
         path_.c_str(), static_cast<unsigned long long>(kMaxFileBytes));
  fail_writing(error, path_);
}

}  // namespace dsc
