#include "dsc/store.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "base/guard.hpp"
#include "base/handle_table.hpp"
#include "base/options.hpp"
#include "checks.hpp"
#include "give.hpp"
#include "store/callback_store.hpp"
#include "store/key_table.hpp"
#include "store/open.hpp"
#include "store/prefix_store.hpp"
#include "store_handle.hpp"

namespace {

constexpr size_t kMaxValueBytes = dsc::StoreLimits{}.value_bytes;

using dsc::StoreObject;

dsc::Pinned<StoreObject> pin(const dsc_store_t* store) { return {dsc::HandleKind::kStore, store}; }

dsc_store_t* open_handle(StoreObject object) {
  return dsc::open_handle<dsc_store_t>(dsc::HandleKind::kStore,
                                       std::make_shared<StoreObject>(std::move(object)));
}

dsc_store_options_t default_store_options() {
  dsc_store_options_t options{};
  options.struct_size = sizeof options;
  options.world_size = 1;
  options.timeout_ms = dsc::kStoreTimeoutMs;
  return options;
}

dsc::StoreOptions convert(const dsc_store_options_t& given) {
  dsc::read_flag("options->serve", given.serve);
  dsc::read_flag("options->allow_unauthenticated", given.allow_unauthenticated);
  if (given.world_size < 1)
    dsc::fail(DSC_ERR_INVALID_ARG, "options->world_size is %d, expected 1 or more", given.world_size);
  if (given.timeout_ms < 1)
    dsc::fail(DSC_ERR_INVALID_ARG, "options->timeout_ms is %d, expected 1 or more", given.timeout_ms);
  dsc::StoreOptions options;
  options.token = given.token;
  options.job_id = given.job_id;
  options.bind = given.bind;
  options.serve = given.serve == 1;
  options.allow_unauthenticated = given.allow_unauthenticated == 1;
  options.world_size = given.world_size;
  return options;
}

dsc::Deadline deadline_of(const StoreObject& object, int32_t timeout_ms) {
  if (timeout_ms < -1)
    dsc::fail(DSC_ERR_INVALID_ARG, "timeout_ms is %d, expected 0 or more, or -1 for the timeout of the store",
              timeout_ms);
  return dsc::Deadline::after_ms(timeout_ms == -1 ? object.timeout_ms : timeout_ms);
}

dsc::Deadline deadline_of(const StoreObject& object) { return deadline_of(object, -1); }

std::string_view text_of(const char* name, const void* data, size_t bytes) {
  dsc::check_buffer(name, data, bytes);
  if (bytes > kMaxValueBytes)
    dsc::fail(DSC_ERR_INVALID_ARG, "%s has %zu bytes, expected at most %zu", name, bytes, kMaxValueBytes);
  return bytes == 0 ? std::string_view() : std::string_view(static_cast<const char*>(data), bytes);
}

std::vector<std::string> list_of(const char* const* keys, size_t n) {
  if (n > 0) dsc::require(keys, "keys");
  std::vector<std::string> list;
  for (size_t i = 0; i < n; ++i) {
    if (!keys[i]) dsc::fail(DSC_ERR_INVALID_ARG, "keys[%zu] is NULL", i);
    list.emplace_back(keys[i]);
  }
  return list;
}

dsc_result_t give(const std::string& found, void* value, size_t capacity, size_t* bytes) {
  *bytes = found.size();
  if (capacity > 0) std::memcpy(value, found.data(), std::min(found.size(), capacity));
  return dsc::how_given(found.size(), capacity);
}

int32_t milliseconds_left(dsc::Deadline deadline) {
  return static_cast<int32_t>(std::min<int64_t>(deadline.remaining_ms(), INT32_MAX));
}

// Runs a callback of the program, and throws if the callback failed.
template <typename Function>
void call(const char* name, const std::string& key, Function&& function) {
  dsc_result_t result = DSC_OK;
  const bool returned = dsc::call_out([&] {
    const dsc::CallbackScope scope;
    result = function();
  });
  if (!returned) dsc::fail(DSC_ERR_CALLBACK, "the store's function %s threw an exception", name);
  if (result == DSC_ERR_TIMEOUT)
    dsc::fail(DSC_ERR_TIMEOUT, "the store's function %s timed out for key %s", name, dsc::shown(key).c_str());
  if (result != DSC_OK)
    dsc::fail(DSC_ERR_CALLBACK, "the store's function %s returned %d (%s) for key %s", name, result,
              dsc::result_name(result), dsc::shown(key).c_str());
}

// Copies the callbacks. When the last function that uses the copy is gone, calls `destroy` of the program.
std::shared_ptr<const dsc_store_callbacks_t> keep(const dsc_store_callbacks_t& callbacks) {
  return {new dsc_store_callbacks_t(callbacks), [](const dsc_store_callbacks_t* kept) {
            if (kept->destroy)
              dsc::call_out([&] {
                const dsc::CallbackScope scope;
                kept->destroy(kept->context);
              });
            delete kept;
          }};
}

std::shared_ptr<dsc::Store> make_store(const std::shared_ptr<const dsc_store_callbacks_t>& callbacks) {
  dsc::CallbackStore::Callbacks functions;
  functions.put = [callbacks](const std::string& key, const std::string& value, dsc::Deadline deadline) {
    call("put", key, [&] {
      return callbacks->put(callbacks->context, key.c_str(), value.data(), value.size(),
                            milliseconds_left(deadline));
    });
  };
  functions.get = [callbacks](const std::string& key, dsc::Deadline deadline) {
    std::string value(kMaxValueBytes, '\0');
    size_t bytes = 0;
    call("get", key, [&] {
      return callbacks->get(callbacks->context, key.c_str(), milliseconds_left(deadline), value.data(),
                            value.size(), &bytes);
    });
    if (bytes > value.size())
      dsc::fail(DSC_ERR_CALLBACK,
                "the store's function get returned a value of %zu bytes, expected at most %zu", bytes,
                value.size());
    value.resize(bytes);
    return value;
  };
  return std::make_shared<dsc::CallbackStore>(std::move(functions));
}

}  // namespace

dsc_result_t dsc_store_options_init(dsc_store_options_t* options, size_t struct_size) {
  return dsc::guard_pure(__func__,
                         [&] { dsc::init_sized(options, struct_size, default_store_options(), "options"); });
}

dsc_result_t dsc_store_open(const char* uri, const dsc_store_options_t* options, dsc_store_t** store) {
  return dsc::guard(__func__, [&] {
    dsc::require(store, "store") = nullptr;
    dsc::require(uri, "uri");
    const auto given = dsc::read_sized(options, default_store_options(), "options");
    const dsc::StoreOptions wanted = convert(given);
    dsc::OpenStore open =
        dsc::open_store(uri, wanted, dsc::process_environment(), dsc::Deadline::after_ms(given.timeout_ms));
    *store = open_handle({std::move(open.server), std::move(open.store), given.timeout_ms});
  });
}

dsc_result_t dsc_store_from_callbacks(const dsc_store_callbacks_t* callbacks, dsc_store_t** store) {
  return dsc::guard(__func__, [&] {
    dsc::require(store, "store") = nullptr;
    dsc::require(callbacks, "callbacks");
    const auto given = dsc::read_sized(callbacks, dsc_store_callbacks_t{}, "callbacks");
    if (!given.put || !given.get)
      dsc::fail(DSC_ERR_INVALID_ARG, "callbacks->put or callbacks->get is NULL, expected both functions");
    auto silent = given;
    silent.destroy = nullptr;
    // `destroy` is set only after everything has succeeded. If this call fails, the context still belongs to
    // the caller.
    const auto kept = std::const_pointer_cast<dsc_store_callbacks_t>(keep(silent));
    *store = open_handle({nullptr, make_store(kept), dsc::kStoreTimeoutMs});
    kept->destroy = given.destroy;
  });
}

dsc_result_t dsc_store_prefix(const dsc_store_t* store, const char* prefix, dsc_store_t** part) {
  return dsc::guard(__func__, [&] {
    dsc::require(part, "part") = nullptr;
    const auto whole = pin(store);
    dsc::require(prefix, "prefix");
    *part = open_handle(
        {whole->server, std::make_shared<dsc::PrefixStore>(whole->store, prefix), whole->timeout_ms});
  });
}

dsc_result_t dsc_store_port(const dsc_store_t* store, int32_t* port) {
  return dsc::guard(__func__, [&] {
    const auto pinned = pin(store);
    dsc::require(port, "port");
    if (!pinned->server) dsc::fail(DSC_ERR_STATE, "this process does not serve the store");
    *port = pinned->server->port();
  });
}

dsc_result_t dsc_store_set(dsc_store_t* store, const char* key, const void* value, size_t bytes) {
  return dsc::guard(__func__, [&] {
    const auto pinned = pin(store);
    dsc::require(key, "key");
    pinned->store->set(key, text_of("value", value, bytes), deadline_of(*pinned));
  });
}

dsc_result_t dsc_store_get(const dsc_store_t* store, const char* key, int32_t timeout_ms, void* value,
                           size_t capacity, size_t* needed) {
  return dsc::guard(__func__, [&] {
    const auto pinned = pin(store);
    dsc::require(key, "key");
    dsc::check_buffer("value", value, capacity);
    dsc::require(needed, "needed");
    return give(pinned->store->get(key, deadline_of(*pinned, timeout_ms)), value, capacity, needed);
  });
}

dsc_result_t dsc_store_add(dsc_store_t* store, const char* key, int64_t amount, int64_t* sum) {
  return dsc::guard(__func__, [&] {
    const auto pinned = pin(store);
    dsc::require(key, "key");
    const int64_t result = pinned->store->add(key, amount, deadline_of(*pinned));
    if (sum) *sum = result;
  });
}

dsc_result_t dsc_store_compare_set(dsc_store_t* store, const char* key, const void* expected,
                                   size_t expected_bytes, const void* desired, size_t desired_bytes,
                                   void* value, size_t capacity, size_t* needed) {
  return dsc::guard(__func__, [&] {
    const auto pinned = pin(store);
    dsc::require(key, "key");
    dsc::check_buffer("value", value, capacity);
    dsc::require(needed, "needed");
    return give(pinned->store->compare_set(key, text_of("expected", expected, expected_bytes),
                                           text_of("desired", desired, desired_bytes), deadline_of(*pinned)),
                value, capacity, needed);
  });
}

dsc_result_t dsc_store_append(dsc_store_t* store, const char* key, const void* value, size_t bytes) {
  return dsc::guard(__func__, [&] {
    const auto pinned = pin(store);
    dsc::require(key, "key");
    pinned->store->append(key, text_of("value", value, bytes), deadline_of(*pinned));
  });
}

dsc_result_t dsc_store_check(const dsc_store_t* store, const char* const* keys, size_t n, int32_t* present) {
  return dsc::guard(__func__, [&] {
    const auto pinned = pin(store);
    dsc::require(present, "present");
    *present = pinned->store->check(list_of(keys, n), deadline_of(*pinned)) ? 1 : 0;
  });
}

dsc_result_t dsc_store_wait(const dsc_store_t* store, const char* const* keys, size_t n, int32_t timeout_ms) {
  return dsc::guard(__func__, [&] {
    const auto pinned = pin(store);
    pinned->store->wait(list_of(keys, n), deadline_of(*pinned, timeout_ms));
  });
}

dsc_result_t dsc_store_delete(dsc_store_t* store, const char* key, int32_t* deleted) {
  return dsc::guard(__func__, [&] {
    const auto pinned = pin(store);
    dsc::require(key, "key");
    const bool there = pinned->store->remove(key, deadline_of(*pinned));
    if (deleted) *deleted = there ? 1 : 0;
  });
}

dsc_result_t dsc_store_count(const dsc_store_t* store, int64_t* count) {
  return dsc::guard(__func__, [&] {
    const auto pinned = pin(store);
    dsc::require(count, "count") = static_cast<int64_t>(pinned->store->count(deadline_of(*pinned)));
  });
}

dsc_result_t dsc_store_destroy(dsc_store_t* store) {
  return dsc::guard(__func__, [&] {
    if (store) pin(store).close();
  });
}
