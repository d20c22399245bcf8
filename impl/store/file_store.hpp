// A store in a file, which may be on a file system that several hosts share. The file is a log of changes,
// written under a lock. Data of an ended job is never used: the first process that opens the file empties it,
// and the last one that closes it removes it. If a process of an earlier attempt is still running, only its
// job id distinguishes it from those of this attempt.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/fork_close.hpp"
#include "base/mutex.hpp"
#include "store/key_table.hpp"
#include "store/store.hpp"

namespace dsc {

// Any thread may use it. Processes synchronize with a lock on the file.
class FileStore final : public Store {
 public:
  // Creates the file, or opens it if other processes already use it. Throws INVALID_ARG if there is no path
  // or the job id has more than 64 bytes. Throws AUTH if another user owns the file, or if other users may
  // read or write it. Throws PROTOCOL if it is not a file of a store. Throws ADDR_IN_USE if a job with
  // another id uses it until the deadline. Throws VERSION, TIMEOUT, SYSTEM.
  FileStore(std::string path, std::string job_id, Deadline deadline);
  ~FileStore() override;
  FileStore(const FileStore&) = delete;
  FileStore& operator=(const FileStore&) = delete;

  // Throws what KeyTable::apply() throws, NOSPACE if the file cannot grow, and SYSTEM. An operation that
  // waits for keys polls every 10 ms.
  StoreReply perform(const StoreRequest& request, Deadline deadline) override;

 private:
  enum class Joined { kYes, kLocked, kOtherJob };

  Joined try_to_join() DSC_REQUIRES(mutex_);
  std::optional<StoreReply> try_to_perform(const StoreRequest& request, std::vector<std::string>& missing)
      DSC_EXCLUDES(mutex_);
  void write_header() DSC_REQUIRES(mutex_);
  bool has_own_header() const DSC_REQUIRES(mutex_);
  void read_news() DSC_REQUIRES(mutex_);
  void take_in(std::string_view record) DSC_REQUIRES(mutex_);
  void write_record(const std::string& key) DSC_REQUIRES(mutex_);

  const std::string path_;
  const std::string job_id_;
  Mutex mutex_;
  ParentFd file_ DSC_GUARDED_BY(mutex_);
  uint64_t read_bytes_ DSC_GUARDED_BY(mutex_) = 0;  // number of bytes of the file that were read into table_
  KeyTable table_ DSC_GUARDED_BY(mutex_);
};

}  // namespace dsc
