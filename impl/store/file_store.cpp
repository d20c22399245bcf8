#include "store/file_store.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/error.hpp"
#include "base/fork_close.hpp"
#include "base/guard.hpp"
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
constexpr size_t kRecordHeadBytes = 4 + 8;  // length and hash of what follows
constexpr uint64_t kMaxFileBytes = uint64_t{1} << 30;
constexpr timespec kPollPeriod{0, 10'000'000};
constexpr int kClosingMs = 100;

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

// 0, or an errno value; then a part may have been written.
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

// A link could lead anywhere, and a file of somebody else's could hold anything.
UniqueFd open_own(const std::string& path) {
  UniqueFd file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600));
  if (!file) fail_errno(errno, "opening %.200s", path.c_str());
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) fail_errno(errno, "stat of %.200s", path.c_str());
  if (!S_ISREG(status.st_mode)) fail(DSC_ERR_INVALID_ARG, "%.200s is not a regular file", path.c_str());
  if (status.st_uid != ::geteuid())
    fail(DSC_ERR_AUTH, "%.200s belongs to user %u, expected %u", path.c_str(), status.st_uid, ::geteuid());
  return file;
}

// False once somebody has removed it: then the path is another file, or none.
bool is_still_at(int fd, const std::string& path) {
  struct stat opened {};
  struct stat named {};
  return ::fstat(fd, &opened) == 0 && ::lstat(path.c_str(), &named) == 0 && opened.st_dev == named.st_dev &&
         opened.st_ino == named.st_ino;
}

}  // namespace

FileStore::FileStore(std::string path, std::string job_id, Deadline deadline)
    : path_(std::move(path)), job_id_(std::move(job_id)) {
  if (path_.empty()) fail(DSC_ERR_INVALID_ARG, "the path of the file is empty");
  if (job_id_.size() > kJobBytes)
    fail(DSC_ERR_INVALID_ARG, "the job id has %zu bytes, expected at most %zu", job_id_.size(), kJobBytes);
  mark_process();
  const MutexLock lock(mutex_);
  while (!open_and_join(deadline)) {
    if (deadline.passed())
      fail(DSC_ERR_ADDR_IN_USE, "%.200s is in use by a job with another id; choose another file",
           path_.c_str());
    nanosleep(&kPollPeriod, nullptr);
  }
}

FileStore::~FileStore() {
  const MutexLock lock(mutex_);
  capture([this]() DSC_REQUIRES(mutex_) { leave(); },
          [](dsc_result_t, const char*) {});  // the next one who opens it begins anew
  keep_in_child(file_.get());
}

void FileStore::leave() {
  const FileLock writer(file_.get(), path_, Deadline::after_ms(kClosingMs));
  if (try_lock_file(file_.get(), LockByte::kUsers, F_WRLCK, path_) && is_still_at(file_.get(), path_))
    ::unlink(path_.c_str());
}

// False if a job with another id has the file, or if it was removed just now.
bool FileStore::open_and_join(Deadline deadline) {
  keep_in_child(file_.get());
  file_ = open_own(path_);
  close_in_child(file_.get());  // its locks end with the last descriptor
  const FileLock writer(file_.get(), path_, deadline);
  if (!is_still_at(file_.get(), path_)) return false;
  if (try_lock_file(file_.get(), LockByte::kUsers, F_WRLCK, path_)) {
    write_header();
  } else if (!has_own_header()) {
    return false;
  }
  if (!try_lock_file(file_.get(), LockByte::kUsers, F_RDLCK, path_))
    fail(DSC_ERR_SYSTEM, "%.200s: a shared lock was refused", path_.c_str());
  read_bytes_ = kHeaderBytes;
  return true;
}

// Nobody has the file open: what it holds is of the past.
void FileStore::write_header() {
  const std::string there = read_at(file_.get(), 0, sizeof kMagic, path_);
  ByteReader reader(there);
  if (!there.empty() && reader.number<uint64_t>() != kMagic)
    fail(DSC_ERR_PROTOCOL, "%.200s is not a file of a store; it was left as it is", path_.c_str());
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

StoreReply FileStore::perform(const StoreRequest& request, Deadline deadline) {
  while (true) {
    {
      const MutexLock lock(mutex_);
      const FileLock writer(file_.get(), path_, deadline);
      read_news();
      if (auto reply = table_.apply(request)) {
        if (changes(request.op)) write_record(request.keys[0]);
        return *std::move(reply);
      }
      if (deadline.passed()) fail_missing(request, table_.missing(request));
    }
    nanosleep(&kPollPeriod, nullptr);
  }
}

// Takes in what others have written. Whoever wrote last held the lock, so that what is not whole there is of
// one who died while he wrote.
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

// What the key holds now. If that cannot be written, the table forgets all and reads the file again.
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
  const int error =
      read_bytes_ + bytes.size() > kMaxFileBytes ? EFBIG : write_at(file_.get(), read_bytes_, bytes);
  if (error == 0) {
    read_bytes_ += bytes.size();
    return;
  }
  const uint64_t good = std::exchange(read_bytes_, kHeaderBytes);
  table_.clear();
  cut(file_.get(), good, path_);
  fail_writing(error, path_);
}

}  // namespace dsc
