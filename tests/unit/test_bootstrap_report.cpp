// What can be reported before a start-up: its findings, and the network interface that NCCL should use.
#include <setjmp.h>

#include <cstdarg>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "base/environment.hpp"
#include "base/error.hpp"
#include "bootstrap/launch_report.hpp"
#include "bootstrap/launcher.hpp"
#include "engine_nccl/interface_advice.hpp"

// Included last because it defines macros such as fail().
extern "C" {
#include <cmocka.h>
}

namespace {

using namespace dsc;
using Variables = std::map<std::string, std::string>;

Environment lookup(const Variables& variables) {
  return [variables](const char* name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  };
}

AddressLocation elsewhere(const std::string&) { return AddressLocation::kElsewhere; }

PmixJob no_pmix() { throw Error(DSC_ERR_NO_BACKEND, "libpmix is not here"); }

Launch launch(const Variables& variables) { return find_launch({}, lookup(variables), elsewhere, no_pmix); }

bool says(const std::string& text, const char* words) { return text.find(words) != std::string::npos; }

void test_report_of_a_job_whose_address_fails(void**) {
  const auto fails = [](const std::string&) -> AddressLocation {
    throw Error(DSC_ERR_CONFIG, "no such host");
  };
  const auto environment = lookup({{"RANK", "3"}, {"WORLD_SIZE", "8"}, {"MASTER_ADDR", "elsewhere"}});
  const std::string report = launch_report(explain_launch({}, environment, fails, no_pmix));
  assert_true(says(report, "\"world_size\":8") && says(report, "\"text\":\"no such host\""));
  assert_true(says(report, "\"meeting\":null"));
  assert_true(says(launch_report(explain_launch({}, lookup({}), fails, no_pmix)), "a world of one rank"));
}

void test_nccl_is_told_its_interface(void**) {
  const Variables several = {
      {"RANK", "1"}, {"WORLD_SIZE", "4"}, {"LOCAL_WORLD_SIZE", "2"}, {"MASTER_ADDR", "10.0.0.1"}};
  const Launch job = launch(several);
  const std::string text = interface_advice(job, lookup(several), {"docker0", "eth0"}, "eth0");
  assert_string_equal(
      text.c_str(),
      "this host has several network interfaces (docker0, eth0) and NCCL_SOCKET_IFNAME is not set, so "
      "NCCL may choose one that other hosts cannot reach; recommended: set NCCL_SOCKET_IFNAME=eth0, which "
      "leads to 10.0.0.1");
  assert_true(says(interface_advice(job, lookup(several), {"a", "b"}, ""),
                   "NCCL_SOCKET_IFNAME to an interface that"));
  // No advice is given if there is one interface, if the variable is set, if all ranks are on one host, or
  // without a launcher.
  assert_string_equal(interface_advice(job, lookup(several), {"eth0"}, "eth0").c_str(), "");
  Variables set = several;
  set["NCCL_SOCKET_IFNAME"] = "eth1";
  assert_string_equal(interface_advice(job, lookup(set), {"a", "b"}, "a").c_str(), "");
  Variables one_host = several;
  one_host["LOCAL_WORLD_SIZE"] = "4";
  assert_string_equal(interface_advice(launch(one_host), lookup(one_host), {"a", "b"}, "a").c_str(), "");
  assert_string_equal(interface_advice(launch({}), lookup({}), {"a", "b"}, "a").c_str(), "");
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(test_report_of_a_job_whose_address_fails),
      cmocka_unit_test(test_nccl_is_told_its_interface),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
