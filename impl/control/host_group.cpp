#include "control/host_group.hpp"

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cinttypes>
#include <cstdio>

#include "base/error.hpp"
#include "base/guard.hpp"
#include "base/log.hpp"
#include "base/thread.hpp"
#include "bootstrap/unix_socket.hpp"
#include "control/copy_trial.hpp"
#include "control/group.hpp"
#include "control/trace_writer.hpp"

namespace dsc {
namespace {

// Number of failed groups whose records are kept; each has 128 bytes per operation, 250 KB by default.
constexpr size_t kKeptRecords = 16;

constexpr int64_t kReportUnresponsiveNs = kNsPerSecond;
constexpr int64_t kProbeMs = 250;
constexpr int kEndMs = 200;  // longest time between the last answer of a process and the report of its end

// Returns 'T' for a stopped process, 'D' for a process in uninterruptible sleep, and '?' if the state is
// unknown.
char process_state_letter(int64_t pid) noexcept {
  char path[64];
  std::snprintf(path, sizeof path, "/proc/%" PRId64 "/stat", pid);
  std::FILE* file = std::fopen(path, "re");
  if (!file) return '?';
  char letter = '?';
  if (std::fscanf(file, "%*d (%*[^)]) %c", &letter) != 1) letter = '?';
  std::fclose(file);
  return letter;
}

const char* describe_state(char letter) noexcept {
  switch (letter) {
    case 'T':
    case 't':
      return "stopped";
    case 'D':
      return "waiting in the kernel";
    case 'Z':
      return "ending";
    default:
      return "not scheduled";
  }
}

// Checks the descriptor again, because the event may belong to an older descriptor with the same number.
bool has_ended(int pidfd) noexcept {
  pollfd query{pidfd, POLLIN, 0};
  return poll(&query, 1, 0) == 1;
}

PeerMemory memory_of(int pidfd, const ProcessPage& page) {
  return {pidfd, page.pid, page.monitor_thread.load(), page.probe};
}

// Returns whether the reducer was destroyed after a complete iteration. An unfinished iteration is kept,
// because users read a trace to see where it stopped.
bool is_done_with(const std::shared_ptr<const IterationSource>& source) {
  return source.use_count() == 1 && source->read_iteration().is_over();
}

}  // namespace

std::shared_ptr<HostGroup> HostGroup::join(const HostGroupSettings& settings, const Meet& meet_ranks) {
  Process& process = Process::get();
  MeetingSettings meeting = settings.meeting;
  meeting.endpoint = process.endpoint().name();
  std::shared_ptr<HostGroup> host(new HostGroup(settings, meet_ranks(meeting)));
  host->publish(ItemKind::kProcessPage, 0, process.page_fd());
  host->publish(ItemKind::kPidfd, 0, process.pidfd());
  host->fetch_pages(settings.meeting.deadline);
  host->decide_on_single_copy();
  host->count_all_processors();
  host->watch();
  if (!host->trace_.folder.empty()) TraceWriter::get().enroll(host);
  host->enrolled_.store(!host->trace_.folder.empty());
  return host;
}

HostGroup::HostGroup(const HostGroupSettings& settings, MeetingResult met)
    : stall_timeout_ms_(settings.stall_timeout_ms),
      library_version_(settings.meeting.library_version),
      tuning_overrides_(settings.tuning),
      trace_(settings.trace),
      process_(Process::get()),
      nonce_(met.nonce),
      members_(std::move(met.members)),
      layout_(std::move(met.layout)),
      listener_(std::move(met.listener)),
      held_(met.held) {
  for (int rank = 0; rank < size(); ++rank)
    if (global_rank(rank) == settings.meeting.rank) rank_ = rank;
  find_processes();
}

HostGroup::~HostGroup() {
  if (enrolled_) TraceWriter::withdraw();
  close_name();
  process_.monitor().remove(*this, watched_fds_);
  process_.endpoint().leave_world(nonce_, static_cast<uint32_t>(rank_));
  memory_->close();
}

SegmentsById HostGroup::take_unused_memory() noexcept {
  return memory_->take_unused([this](int rank) { return process_of(rank).gone.load() != DSC_OK; });
}

void HostGroup::unmap_unused_memory(Deadline deadline) noexcept {
  take_unused_memory().clear();
  while (unmapping_->load() > 0 && !deadline.passed())
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

// On a thread of its own, because the kernel needs about 200 ms for each GiB, and heartbeats must go on.
void HostGroup::begin_unmapping() noexcept {
  unmapping_->fetch_add(1);
  SegmentsById unused = take_unused_memory();
  const bool begun = !unused.empty() && call_out([&] {
    start_thread("dsc-unmap", [unused = std::move(unused), running = unmapping_]() mutable {
      unused.clear();
      running->fetch_sub(1);
    }).detach();
  });
  if (!begun) unmapping_->fetch_sub(1);
}

// Ranks with the same endpoint are in the same process.
void HostGroup::find_processes() {
  for (int rank = 0; rank < size(); ++rank) {
    const Member& member = members_[static_cast<size_t>(rank)];
    auto found = std::find_if(peers_.begin(), peers_.end(),
                              [&](const auto& peer) { return peer->endpoint == member.endpoint; });
    if (found == peers_.end()) {
      auto peer = std::make_unique<PeerProcess>();
      peer->endpoint = member.endpoint;
      peer->pid = member.pid;
      peer->own = member.endpoint == process_.endpoint().name();
      found = peers_.insert(peers_.end(), std::move(peer));
    }
    (*found)->ranks.push_back(rank);
    peer_of_rank_.push_back(static_cast<size_t>(found - peers_.begin()));
  }
}

// Throws PEER_DEAD if a process has died. Without this check, the error would name another process that does
// not answer as a consequence.
void HostGroup::probe_processes() const {
  for (const auto& peer : peers_) {
    if (peer->gone.load() != DSC_OK) continue;  // its groups already know that this process has ended
    int error = 0;
    if (!connect_abstract(peer->endpoint, error) && error == ECONNREFUSED)
      fail(DSC_ERR_PEER_DEAD, "rank %d (pid %" PRId64 ") died", global_rank(peer->ranks.front()), peer->pid);
  }
}

// Waits until the end of the process has been reported. A process that ends closes its sockets first, and the
// kernel reports its end later. The groups of the process learn of its end only from that report.
void HostGroup::await_end(const PeerProcess& peer) {
  if (!peer.pidfd) return;  // the process is not watched yet
  const Deadline deadline = Deadline::after_ms(kEndMs);
  while (peer.gone.load() == DSC_OK && !deadline.passed()) sleep_until(Deadline::after_ms(1));
}

// Receives the page and the pidfd of every other process. While it waits for one process, it checks regularly
// that no other process has died.
void HostGroup::fetch_pages(Deadline deadline) {
  Deadline probe = Deadline::after_ms(kProbeMs);
  const auto check = [&] {
    if (!probe.passed()) return;
    probe_processes();
    probe = Deadline::after_ms(kProbeMs);
  };
  for (const auto& peer : peers_) {
    if (peer->own) {
      peer->page = &process_.page();
      peer->memory = memory_of(process_.pidfd(), process_.page());
      continue;
    }
    const int first_rank = peer->ranks.front();
    const std::string owner =
        "rank " + std::to_string(global_rank(first_rank)) + " (pid " + std::to_string(peer->pid) + ")";
    const UniqueFd page = fetch(first_rank, owner, ItemKind::kProcessPage, 0, deadline, check);
    peer->mapping = map_segment(page.get(), sizeof(ProcessPage), OnFork::kGone);
    peer->page = reinterpret_cast<ProcessPage*>(peer->mapping->data());
    if (peer->page->magic != kPageMagic || peer->page->version != kLayoutVersion)
      fail(DSC_ERR_VERSION, "the shared page of rank %d has layout version %u, expected %u",
           global_rank(first_rank), peer->page->version, kLayoutVersion);
    peer->pidfd = fetch(first_rank, owner, ItemKind::kPidfd, 0, deadline, check);
    peer->memory = memory_of(peer->pidfd.get(), *peer->page);
  }
}

// Only speed depends on this, so it is no warning.
void HostGroup::decide_on_single_copy() {
  if (peers_.size() < 2) return;
  for (const auto& peer : peers_)
    if (!peer->memory.readable())
      return log(
          DSC_LOG_LEVEL_INFO,
          "large data in ordinary memory passes through staging buffers, because the memory of rank %d (pid "
          "%" PRId64 ") cannot be read: %s",
          global_rank(peer->ranks.front()), peer->pid, peer->memory.why_not().c_str());
  const CopyTrial& trial = copy_trial();
  kernel_copies_ = trial.kernel_wins();
  if (trial.kernel_us == 0)
    return log(
        DSC_LOG_LEVEL_DEBUG,
        "large data in ordinary memory passes through staging buffers: a trial of process_vm_readv was "
        "refused");
  log(DSC_LOG_LEVEL_DEBUG,
      "large data in ordinary memory %s unless DSC_TUNING says otherwise: for 256 KiB, the kernel "
      "(process_vm_readv) takes %.1f us, and two copies take %.1f us",
      kernel_copies_ ? "is copied by the kernel" : "passes through staging buffers", trial.kernel_us,
      trial.two_copies_us);
}

// Counts the processors of all ranks together, so that all ranks get the same result. The choice of
// algorithms depends on it.
void HostGroup::count_all_processors() {
  ProcessorSet all{};
  for (const auto& peer : peers_)
    for (size_t word = 0; word < all.size(); ++word) all[word] |= peer->page->processors[word];
  oversubscribed_ = size() > count_processors(all);
}

void HostGroup::watch() {
  const int64_t now = now_ns();
  for (const auto& peer : peers_) {
    peer->last_change_ns = now;
    if (peer->pidfd) watched_fds_.push_back(peer->pidfd.get());
  }
  {
    // This block releases the lock before the monitor's lock is taken below, because the monitor takes the
    // two locks in the opposite order.
    MutexLock lock(name_mutex_);
    if (listener_) {
      watched_fds_.push_back(listener_.get());
      process_.hold(listener_.get());
    }
  }
  process_.monitor().add(*this, watched_fds_);
}

ItemKey HostGroup::key(int local_rank, ItemKind kind, uint64_t id) const {
  return {nonce_, static_cast<uint32_t>(local_rank), static_cast<uint32_t>(kind), id};
}

void HostGroup::publish(ItemKind kind, uint64_t id, int fd) {
  process_.endpoint().publish(key(rank_, kind, id), fd);
}

void HostGroup::withdraw(ItemKind kind, uint64_t id) noexcept {
  process_.endpoint().withdraw(key(rank_, kind, id));
}

UniqueFd HostGroup::fetch(int local_rank, const std::string& owner, ItemKind kind, uint64_t id,
                          Deadline deadline, const std::function<void()>& check) const {
  UniqueFd item;
  capture(
      [&] {
        item = dsc::fetch(members_[static_cast<size_t>(local_rank)].endpoint, owner,
                          key(local_rank, kind, id), deadline, check);
      },
      [&](dsc_result_t code, const char* text) {
        // The rank may have left because another rank died. That death is the error to report.
        if (code == DSC_ERR_PEER_LEFT) probe_processes();
        if (code == DSC_ERR_PEER_DEAD) await_end(process_of(local_rank));
        throw Error(code, text);
      });
  return item;
}

void HostGroup::enroll(const std::shared_ptr<Group>& group) {
  {
    MutexLock lock(groups_mutex_);
    std::erase_if(groups_, [](const auto& known) { return known.expired(); });
    groups_.push_back(group);
  }
  for (const auto& peer : peers_)  // reports to the new group which processes have already ended
    if (peer->gone.load() != DSC_OK) group->process_gone(*peer);
}

std::vector<RankGone> HostGroup::stalled_ranks() const {
  std::vector<RankGone> stalled;
  for (const auto& peer : peers_) {
    if (peer->gone.load() != DSC_OK || !is_stalled(*peer)) continue;
    for (const int rank : peer->ranks)
      stalled.push_back(
          {global_rank(rank), DSC_ERR_PEER_STALLED, peer->pid, peer->unresponsive_ns.load() / kNsPerMs});
  }
  return stalled;
}

std::vector<std::shared_ptr<Group>> HostGroup::groups() {
  MutexLock lock(groups_mutex_);
  std::vector<std::shared_ptr<Group>> alive;
  for (const auto& known : groups_)
    if (auto group = known.lock()) alive.push_back(std::move(group));
  return alive;
}

std::vector<GroupRecord> HostGroup::records() {
  std::vector<GroupRecord> all;
  for (const auto& group : groups()) all.push_back(group->record());
  MutexLock lock(groups_mutex_);
  for (const GroupRecord& failed : failed_records_) {
    const bool lives = std::ranges::any_of(all, [&](const auto& r) { return r.recorder == failed.recorder; });
    if (!lives) all.push_back(failed);
  }
  return all;
}

void HostGroup::add_iterations(std::shared_ptr<const IterationSource> source) {
  MutexLock lock(groups_mutex_);
  std::erase_if(reducers_, is_done_with);
  reducers_.push_back(std::move(source));
}

std::vector<RecordedIteration> HostGroup::iterations() const {
  std::vector<RecordedIteration> all;
  MutexLock lock(groups_mutex_);
  for (const auto& source : reducers_)
    if (!is_done_with(source)) all.push_back(source->read_iteration());
  std::erase_if(all, [](const auto& iteration) { return iteration.number == 0; });
  return all;
}

void HostGroup::tell_of_finalize(uint64_t except) noexcept {
  {
    MutexLock lock(groups_mutex_);
    finalizes_ = true;
  }
  call_out([&] {
    for (const auto& group : groups())
      if (group->id() != except) group->tell_of_finalize();
  });
}

bool HostGroup::finalizes() noexcept {
  MutexLock lock(groups_mutex_);
  return finalizes_;
}

// A communicator may be destroyed before other groups fail. Its failure came first, so it is the one that the
// user needs to see, and its record is kept.
void HostGroup::keep_record(const Group& group) {
  GroupRecord record = group.record();
  MutexLock lock(groups_mutex_);
  for (GroupRecord& known : failed_records_) {
    if (known.recorder != record.recorder) continue;
    known = std::move(record);
    return;
  }
  if (failed_records_.size() == kKeptRecords) failed_records_.erase(failed_records_.begin() + 1);
  failed_records_.push_back(std::move(record));
}

// The trace names the first failure of all groups, because later failures often follow from it.
void HostGroup::on_failure(const Group& group) noexcept {
  const auto self = enrolled_ ? weak_from_this().lock() : nullptr;
  if (!self) return;
  call_out([&] { keep_record(group); });
  call_out([&] {
    const Failure cause = group.first_cause();
    std::string reason = "error: group \"" + group.name() + "\" failed: " + cause.operation.str() +
                         (cause.operation.empty() ? "" : ": ") + cause.text.str();
    {
      MutexLock lock(groups_mutex_);
      if (first_failure_.empty()) first_failure_ = std::move(reason);
      reason = first_failure_;
    }
    TraceWriter::get().post(self, std::move(reason));
  });
}

// Returns whether the world has failed. If it has, processes that try to start a world with the same name are
// asked to wait, because they may be ranks of this world that start the next one.
bool HostGroup::has_failed() noexcept {
  for (size_t i = 0;; ++i) {  // one group at a time, because a list would have to allocate
    std::shared_ptr<Group> group;
    {
      MutexLock lock(groups_mutex_);
      if (i >= groups_.size()) return false;
      group = groups_[i].lock();
    }
    if (group && group->id() == kWorldId && group->revoked()) return true;
  }
}

// If the world began to close before it had the store of the job, announces the closing now.
void HostGroup::hold_name(const std::shared_ptr<JobStore>& job) noexcept {
  Closing closing;
  {
    MutexLock lock(name_mutex_);
    job_ = job;
    closing = closing_;
  }
  if (job && closing != Closing::kNo) job->begin_closing(closing == Closing::kFailed);
}

// After a failure every rank has to announce it. Without a failure only the rank that serves the store has to
// announce the end. A failure is therefore announced even after an announcement of the end.
void HostGroup::begin_closing(bool failed) noexcept {
  const Closing wanted = failed ? Closing::kFailed : Closing::kEnding;
  std::shared_ptr<JobStore> job;
  {
    MutexLock lock(name_mutex_);
    if (closing_ >= wanted) return;
    closing_ = wanted;
    job = job_;
  }
  if (job) job->begin_closing(failed);
}

void HostGroup::close_name() noexcept {
  UniqueFd listener;
  std::shared_ptr<JobStore> job;  // declared here so that it is destroyed after the mutex is released
  {
    MutexLock lock(name_mutex_);
    listener = std::move(listener_);
    job = std::move(job_);
  }
  if (!listener) return;
  process_.monitor().forget(listener.get());
  process_.release(listener.get());
  std::erase(watched_fds_, listener.get());
}

void HostGroup::end() noexcept {
  ended_.store(true);
  for (size_t i = 0;; ++i) {  // one group at a time, because a list would have to allocate
    std::shared_ptr<Group> group;
    {
      MutexLock lock(groups_mutex_);
      if (i >= groups_.size()) return;
      group = groups_[i].lock();
    }
    if (group) group->leave();
  }
}

bool HostGroup::on_readable(int fd) noexcept {
  const auto self = weak_from_this().lock();  // keeps this object alive during the call
  if (!self) return true;                     // another thread is about to destroy this object
  const bool closing = tentative_.load() || has_failed();
  {
    MutexLock lock(name_mutex_);
    if (listener_ && fd == listener_.get()) {
      HeldName* const held = &held_;
      held->closing = closing || closing_ != Closing::kNo;
      return call_out([&] { answer_late_comer(fd, *held); });
    }
  }
  for (const auto& peer : peers_) {
    if (peer->pidfd.get() != fd || !has_ended(fd)) continue;
    // If memory runs out, the descriptor remains watched and readable, so this is tried again.
    if (!capture([&] { on_end(*peer); }, [](dsc_result_t, const char*) {})) return false;
    process_.monitor().forget(fd);
  }
  return true;
}

void HostGroup::on_end(PeerProcess& peer) {
  const bool left = peer.page->state.load() == ProcessState::kLeft;
  peer.gone = left ? DSC_ERR_PEER_LEFT : DSC_ERR_PEER_DEAD;
  for (const auto& group : groups()) group->process_gone(peer);
  // A rank that is leaving an operation may be waiting for the end of the peer's process, and not for the
  // cause of a failure. It must be woken too.
  process_.notifier().notify();
  // The other processes of this world will soon end too. The name of the world must not block the next world.
  begin_closing(false);
}

void HostGroup::on_heartbeat(int64_t now, bool after_gap) noexcept {
  const auto self = weak_from_this().lock();
  if (!self) return;
  begin_unmapping();
  for (const auto& peer : peers_)
    if (!peer->own && peer->gone.load() == DSC_OK)
      capture([&] { look_at(*peer, now, after_gap); },
              [](dsc_result_t, const char*) {});  // ignores the error, because the next heartbeat tries again
  // A rank that is in no call would never notice a failure set by another rank. Therefore every heartbeat
  // checks every group.
  if (!enrolled_.load()) return;
  call_out([this] {
    for (const auto& group : groups()) group->look_at_failure();
  });
}

// Compares the heartbeat of a process with the previous one. If it has not changed for too long, fails the
// groups of the process.
void HostGroup::look_at(PeerProcess& peer, int64_t now, bool after_gap) {
  const uint64_t beat = peer.page->heartbeat.load(std::memory_order_relaxed);
  if (beat != peer.last_beat || after_gap) {
    if (peer.unresponsive_ns.exchange(0) != 0)
      log(DSC_LOG_LEVEL_INFO, "rank %d (pid %" PRId64 ") runs again", global_rank(peer.ranks.front()),
          peer.pid);
    peer.last_beat = beat;
    peer.last_change_ns = now;
    return;
  }
  const int64_t missed_ns = now - peer.last_change_ns;
  if (missed_ns < kReportUnresponsiveNs) return;
  if (peer.unresponsive_ns.exchange(missed_ns) == 0)
    log(DSC_LOG_LEVEL_WARN, "rank %d (pid %" PRId64 ") has not run for %.1f s: it is %s",
        global_rank(peer.ranks.front()), peer.pid, static_cast<double>(missed_ns) / kNsPerSecond,
        describe_state(process_state_letter(peer.pid)));
  if (is_stalled(peer))
    for (const auto& group : groups())
      group->process_stalled(peer, missed_ns, describe_state(process_state_letter(peer.pid)));
}

}  // namespace dsc
