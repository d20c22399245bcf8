// Key-value stores: small values that all processes of a job share.
#ifndef DSC_CPP_STORE_HPP
#define DSC_CPP_STORE_HPP

#include <cstdint>
#include <dsc/cpp/handle.hpp>
#include <dsc/cpp/work.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace dsc {
inline namespace v0 {

// Any thread may use a store, several at once. Parts of a store keep it alive. The object may be moved and
// destroyed while no other thread uses it.
class store {
 public:
  // "memory://", "file:///PATH" or "tcp://HOST:PORT"; the options say who serves.
  explicit store(const std::string& uri, const store_options& options = {})
      : handle_(detail::query<dsc_store_t*>(dsc_store_open, uri.c_str(), &options)) {}

  // Takes over a store of the C interface, such as one of dsc_store_from_callbacks().
  explicit store(dsc_store_t* owned) noexcept : handle_(owned) {}

  dsc_store_t* get() const noexcept { return handle_.get(); }

  // The part whose keys begin with "PREFIX/".
  store prefix(const std::string& text) const {
    return store(detail::query<dsc_store_t*>(dsc_store_prefix, get(), text.c_str()));
  }

  // The port at which this process serves the store.
  std::int32_t port() const { return detail::query<std::int32_t>(dsc_store_port, get()); }

  void set(const std::string& key, std::string_view value) {
    check(dsc_store_set(get(), key.c_str(), value.data(), value.size()));
  }

  // Waits until the key is set, at most for the store's time-out or the given one.
  std::string get(const std::string& key) const { return read(key, -1); }
  std::string get(const std::string& key, milliseconds timeout) const {
    return read(key, detail::timeout_ms(timeout));
  }

  // Adds to a counter and returns it. A key that is not set counts as 0.
  std::int64_t add(const std::string& key, std::int64_t amount) {
    return detail::query<std::int64_t>(dsc_store_add, get(), key.c_str(), amount);
  }

  void append(const std::string& key, std::string_view value) {
    check(dsc_store_append(get(), key.c_str(), value.data(), value.size()));
  }

  // Sets the key if its value is the expected one. Returns the value afterwards.
  std::string compare_set(const std::string& key, std::string_view expected, std::string_view desired) {
    std::string value(expected.size() > desired.size() ? expected.size() : desired.size(), '\0');
    std::size_t needed = 0;
    const dsc_result_t result =
        check(dsc_store_compare_set(get(), key.c_str(), expected.data(), expected.size(), desired.data(),
                                    desired.size(), &value[0], value.size(), &needed));
    if (result == DSC_TRUNCATED) return get(key);  // another process has set a longer value
    value.resize(needed);
    return value;
  }

  // Whether all keys are set; waits until they are.
  bool contains(const std::vector<std::string>& keys) const {
    const auto list = pointers(keys);
    return detail::query<std::int32_t>(dsc_store_check, get(), list.data(), list.size()) != 0;
  }
  void wait(const std::vector<std::string>& keys) const { wait_for(keys, -1); }
  void wait(const std::vector<std::string>& keys, milliseconds timeout) const {
    wait_for(keys, detail::timeout_ms(timeout));
  }

  // Removes a key and returns whether it was set.
  bool erase(const std::string& key) {
    return detail::query<std::int32_t>(dsc_store_delete, get(), key.c_str()) != 0;
  }

  // The number of keys; for a part, that of the whole store.
  std::int64_t size() const { return detail::query<std::int64_t>(dsc_store_count, get()); }

  // Releases the store now, and throws if that fails. A server ends.
  void close() { handle_.close(); }

 private:
  static std::vector<const char*> pointers(const std::vector<std::string>& keys) {
    std::vector<const char*> list;
    for (const std::string& key : keys) list.push_back(key.c_str());
    return list;
  }

  void wait_for(const std::vector<std::string>& keys, std::int32_t timeout_ms) const {
    const auto list = pointers(keys);
    check(dsc_store_wait(get(), list.data(), list.size(), timeout_ms));
  }

  std::string read(const std::string& key, std::int32_t timeout_ms) const {
    std::string value(256, '\0');  // longer than most values, so that one call is usually enough
    std::size_t needed = 0;
    while (check(dsc_store_get(get(), key.c_str(), timeout_ms, &value[0], value.size(), &needed)) ==
           DSC_TRUNCATED)
      value.resize(needed);
    value.resize(needed);
    return value;
  }

  handle<dsc_store_t, dsc_store_destroy> handle_;
};

}  // namespace v0
}  // namespace dsc

#endif  // DSC_CPP_STORE_HPP
