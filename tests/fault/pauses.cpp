#include "pauses.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "crew.hpp"

namespace fault {
namespace {

constexpr int64_t kLongUs = 500'000;  // a shorter pause counts as none; half of the shortest reported stall
constexpr int64_t kBeforeUs = 5'000'000;  // an accusation may come this long after the pause
constexpr int kLookMs = 5;

}  // namespace

Pauses::Pauses(int size)
    : size_(size),
      notes_(static_cast<Notes*>(::mmap(nullptr, static_cast<size_t>(size) * sizeof(Notes),
                                        PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0))) {}

Pauses::~Pauses() { ::munmap(notes_, static_cast<size_t>(size_) * sizeof(Notes)); }

void Pauses::note_pause(int rank, int64_t begin_us, int64_t end_us) {
  Notes& notes = notes_[rank];
  notes.longest_us.store(std::max(notes.longest_us.load(), end_us - begin_us));
  if (end_us - begin_us < kLongUs) return;
  const size_t place = notes.pauses.fetch_add(1);
  if (place >= kRoom) return;
  notes.pause[place].begin_us.store(begin_us);
  notes.pause[place].end_us.store(end_us);
}

void Pauses::note_accusation(int accused, int64_t at_us) {
  if (accused < 0 || accused >= size_) return;
  Notes& notes = notes_[accused];
  const size_t place = notes.accusations.fetch_add(1);
  if (place < kRoom) notes.accused_us[place].store(at_us);
}

void Pauses::watch(int rank, const std::atomic<bool>& over) {
  for (int64_t last_us = now_us(); !over.load();) {
    sleep_ms(kLookMs);
    const int64_t us = now_us();
    note_pause(rank, last_us, us);
    last_us = us;
  }
}

bool Pauses::stood_still(const Notes& notes, int64_t accused_us, int64_t since_us) const {
  if (notes.pauses.load() > kRoom) return true;
  return std::any_of(notes.pause, notes.pause + notes.pauses.load(), [&](const Noted& pause) {
    const int64_t begin_us = std::max(pause.begin_us.load(), since_us), end_us = pause.end_us.load();
    return end_us - begin_us >= kLongUs && begin_us <= accused_us && end_us >= accused_us - kBeforeUs;
  });
}

int Pauses::accused_without_reason(int64_t since_us) const {
  for (int rank = 0; rank < size_; ++rank) {
    const Notes& notes = notes_[rank];
    for (size_t i = 0; i < std::min(notes.accusations.load(), kRoom); ++i)
      if (!stood_still(notes, notes.accused_us[i].load(), since_us)) return rank;
  }
  return -1;
}

bool Pauses::any_accused() const {
  return std::any_of(notes_, notes_ + size_, [](const Notes& notes) { return notes.accusations.load() > 0; });
}

int64_t Pauses::longest_us() const {
  int64_t longest_us = 0;
  for (int rank = 0; rank < size_; ++rank) longest_us = std::max(longest_us, notes_[rank].longest_us.load());
  return longest_us;
}

int accused_by(const char* line) {
  int rank = -1;
  const char* const words = std::strstr(line, "rank ");
  if (!words || !std::strstr(line, "has not run for") || std::sscanf(words, "rank %d", &rank) != 1) return -1;
  return rank;
}

}  // namespace fault
