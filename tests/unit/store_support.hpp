// All kinds of stores on this host, and errors as values, for the tests of stores.
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <initializer_list>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "store/file_store.hpp"
#include "store/memory_store.hpp"
#include "store/prefix_store.hpp"
#include "store/server.hpp"
#include "store/tcp_store.hpp"

extern "C" {
#include <cmocka.h>  // included last because it defines a macro fail()
}

namespace dsc::test {

inline Deadline soon() { return Deadline::after_ms(20'000); }

// The limit for "immediately" on a busy machine. Waiting for a time-out takes longer.
inline constexpr int64_t kAtOnceNs = 15 * kNsPerSecond;

struct Outcome {
  dsc_result_t code = DSC_OK;
  std::string text;
};

inline Outcome outcome_of(const std::function<void()>& body) {
  try {
    body();
    return {};
  } catch (const Error& error) {
    return {error.code(), error.what()};
  }
}

inline void check_fails(const std::function<void()>& body, dsc_result_t code,
                        std::initializer_list<const char*> words, int line) {
  const Outcome outcome = outcome_of(body);
  bool good = outcome.code == code;
  for (const char* word : words) good = good && outcome.text.find(word) != std::string::npos;
  if (!good) print_error("line %d: got %s: %s\n", line, result_name(outcome.code), outcome.text.c_str());
  assert_true(good);
}
#define CHECK_FAILS(call, code, ...) dsc::test::check_fails([&] { call; }, code, {__VA_ARGS__}, __LINE__)

// A folder that is removed together with its files.
class Folder {
 public:
  Folder() {
    const char* folder = std::getenv("TMPDIR");
    path_ = std::string(folder ? folder : P_tmpdir) + "/dsc-test-XXXXXX";
    assert_non_null(::mkdtemp(path_.data()));
  }
  ~Folder() {
    for (const std::string& file : files_) ::unlink(file.c_str());
    ::rmdir(path_.c_str());
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  std::string file(const char* name) {
    files_.push_back(path_ + "/" + name);
    return files_.back();
  }

 private:
  std::string path_;
  std::vector<std::string> files_;
};

inline std::vector<SocketAddress> loopback(uint16_t port = 0) {
  return resolve("127.0.0.1", port, "the address", soon());
}

inline StoreServer::Options server_options(const Token& token = {}, const std::string& job = "job") {
  StoreServer::Options options;
  options.addresses = loopback();
  options.token = token;
  options.job_id = job;
  return options;
}

inline StoreTarget target_of(const StoreServer& server, const Token& token = {},
                             const std::string& job = "job") {
  StoreTarget target;
  target.host = "127.0.0.1";
  target.port = server.port();
  target.addresses = loopback(server.port());
  target.token = token;
  target.job_id = job;
  return target;
}

inline Token token_of(char digit) { return parse_token(std::string(64, digit), "the token"); }

}  // namespace dsc::test
