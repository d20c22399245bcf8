// A store in one file, which may lie on a file system that several hosts share: a log of what was set and
// removed, written under a lock. What a job that died left behind is never taken for this job's: whoever
// opens the file while nobody else has it open begins anew, and the last one to close it removes it. A
// process of an earlier attempt that still runs is told apart by its job id only.
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

class FileStore final : public Store {
 public:
  // Throws INVALID_ARG (no path, a job id of more than 64 bytes), AUTH (others own it, or may read or write
  // it), PROTOCOL (not a file of this kind), VERSION, ADDR_IN_USE (a job with another id uses it, until the
  // deadline), TIMEOUT, SYSTEM.
  FileStore(std::string path, std::string job_id, Deadline deadline);
  ~FileStore() override;
  FileStore(const FileStore&) = delete;
  FileStore& operator=(const FileStore&) = delete;

  // Besides what a table throws: NOSPACE when the file cannot grow, SYSTEM. Waiting looks every 10 ms.
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
  uint64_t read_bytes_ DSC_GUARDED_BY(mutex_) = 0;  // of the file: what table_ knows
  KeyTable table_ DSC_GUARDED_BY(mutex_);
};

}  // namespace dsc
