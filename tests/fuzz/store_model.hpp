// A store in its simplest form, written from the documented rules. KeyTable and the server must agree with
// it.
#pragma once

#include <map>
#include <string>

#include "fuzz.hpp"
#include "store/key_table.hpp"
#include "store/request.hpp"

namespace dsc::fuzz {

// Small, so that every limit is reached.
inline constexpr StoreLimits kSmallLimits{.key_bytes = 3, .value_bytes = 24, .keys = 5, .total_bytes = 64};

// Makes a request from a few bytes: in the usual form, or with any content.
StoreRequest request_from(Input& input);

class StoreModel {
 public:
  struct Answer {
    bool waits = false;
    StoreReply reply;  // for an error only its code is compared
  };

  Answer apply(const StoreRequest& request);

  const std::map<std::string, std::string>& entries() const { return entries_; }
  size_t bytes() const;

 private:
  dsc_result_t refusal(const StoreRequest& request) const;
  bool has_all(const StoreRequest& request) const;
  Answer set(const std::string& key, const std::string& value, StoreReply reply);
  Answer add(const StoreRequest& request);

  std::map<std::string, std::string> entries_;
};

}  // namespace dsc::fuzz
