// A connection is closed in favor of others at every step of its handshake. The test drives the server by
// hand, one handler at a time.
#include <sys/socket.h>

#include <vector>

#include "store/server_core.hpp"
#include "store_raw.hpp"

namespace {

using namespace dsc;
using namespace dsc::test;

constexpr int kSteps = 12;      // the steps of a handshake and a few more
constexpr int kStrangers = 80;  // more than the connections that a server of one rank lets wait

Token some_token() { return parse_token(std::string(64, '7'), "the token"); }

StoreServer::Options options() {
  StoreServer::Options options;
  options.token = some_token();
  options.job_id = "job";
  return options;
}

UniqueFd admit(ServerCore& core) {
  int ends[2];
  assert_int_equal(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  core.admit({core.io(), asio::ip::tcp::v4(), ends[0]});
  return UniqueFd(ends[1]);
}

void say_who(int fd) {
  const std::string greeting = hear(fd, kServerHelloBytes);
  ClientHello introduction;
  introduction.job = job_fingerprint("job");
  const std::string text = encode(introduction);
  const SessionKeys keys(some_token(), greeting, text);
  say(fd, text + std::string(bytes_of(keys.client_proof())));
}

// Returns the connections after all handlers have run.
StoreServer::Counts shed_after(int steps) {
  ServerCore core(options());
  const UniqueFd first = admit(core);
  say_who(first.get());
  for (int i = 0; i < steps; ++i) core.io().poll_one();
  std::vector<UniqueFd> others;
  for (int i = 0; i < kStrangers; ++i) others.push_back(admit(core));
  core.io().restart();
  core.io().poll();
  return core.counts();
}

// The connection either became a member or it did not. The counts of the other connections are unchanged.
void a_handshake_may_be_shed_at_any_step(void**) {
  const StoreServer::Counts never = shed_after(0), done = shed_after(kSteps);
  assert_int_equal(never.members, 0);
  assert_int_equal(done.members, 1);
  assert_int_equal(done.unauthenticated, never.unauthenticated);
  for (int steps = 1; steps < kSteps; ++steps) {
    const StoreServer::Counts counts = shed_after(steps);
    assert_int_equal(counts.unauthenticated, never.unauthenticated);
    assert_int_equal(counts.authenticated, counts.members);
    assert_int_equal(counts.refused, never.refused - counts.members);
  }
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(a_handshake_may_be_shed_at_any_step)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
