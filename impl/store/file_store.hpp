// A store in a file, which may lie on a file system that several hosts share. The file is a log of changes,
// written under a lock. Data of a job that died is never used: a process that opens the file while no other
// process has it open starts it again from empty, and the last one to close it removes it. A process of an
// earlier attempt that still runs can only be recognised by its job id.
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

// Any thread may use it; processes synchronise by a lock on the file.
class FileStore final : public Store {
 public:
  // Opens or joins the file. Throws INVALID_ARG (no path, a job id of more than 64 bytes), AUTH (another user
  // owns it, or others may read or write it), PROTOCOL (not a file of this kind), VERSION, ADDR_IN_USE (a job
  // with another id uses it until the deadline), TIMEOUT, SYSTEM.
  FileStore(std::string path, std::string job_id, Deadline deadline);
  ~FileStore() override;
  FileStore(const FileStore&) = delete;
  FileStore& operator=(const FileStore&) = delete;

  // Throws what KeyTable::apply() throws, NOSPACE if the file cannot grow, and SYSTEM. Waiting operations
  // poll every 10 ms.
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
  uint64_t read_bytes_ DSC_GUARDED_BY(mutex_) = 0;  // bytes of the file that table_ reflects
  KeyTable table_ DSC_GUARDED_BY(mutex_);
};

}  // namespace dsc
