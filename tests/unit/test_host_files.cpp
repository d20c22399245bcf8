// Host files and selections against recorded results of the deepspeed launcher, and the cases that libdsc
// decides differently.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <fstream>
#include <map>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "dscrun/hosts.hpp"
#include "dscrun/shell.hpp"
#include "json.hpp"

extern "C" {
#include <cmocka.h>  // included last because it defines a macro fail()
}

namespace {

using dscrun::Host;
using support::Json;

std::string vectors_path;

// Inputs that the deepspeed launcher accepts and libdsc refuses. The key is the text of a host file or a
// selection, the value is libdsc's error.
const std::map<std::string, std::string> kRefused = {
    {"worker-1   slots=2  extra=1", "line 1: expected NAME slots=NUMBER, got 'worker-1   slots=2  extra=1'"},
    {"host slots=2x", "line 1: expected NAME slots=NUMBER, got 'host slots=2x'"},
    {"host slots=0", "line 1: expected slots from 1 to 4096, got 'host slots=0'"},
    {"a:7", "unknown slot '7' of host 'a', expected 0 to 3"},
};

// In libdsc a host without slots means all slots of the host. The two functions of the deepspeed launcher
// treat such a host differently. The key is the selection, the value is libdsc's result.
const std::map<std::string, Json> kInstead = {
    {"b", Json::parse(R"([["b",[0,1]]])")},
    {"a:1,3@b", Json::parse(R"([["a",[1,3]],["b",[0,1]]])")},
};

Json to_json(const std::vector<Host>& hosts, bool with_slots) {
  Json json = Json::array();
  for (const Host& host : hosts)
    json.push_back({host.name, with_slots ? Json(host.slots) : Json(host.slots.size())});
  return json;
}

Host make_host(const std::string& name, size_t slots) {
  Host host{name, std::vector<int>(slots)};
  std::iota(host.slots.begin(), host.slots.end(), 0);
  return host;
}

std::vector<Host> hosts_of(const Json& row) {
  std::vector<Host> hosts;
  const Json& known = row.contains("pool") ? row["pool"] : row["hosts"];
  for (const auto& [name, slots] : known.items())
    hosts.push_back(make_host(name, slots.is_array() ? slots.size() : slots.get<size_t>()));
  return hosts;
}

// Returns the result as the vectors contain it, or an error as its text.
Json evaluate(const Json& row) {
  try {
    if (row["fn"] == "hostfile")
      return to_json(dscrun::parse_host_file(row["text"].get<std::string>()), false);
    const std::string include = row["include"], exclude = row["exclude"];
    return to_json(dscrun::select_hosts(hosts_of(row), include, exclude), true);
  } catch (const dscrun::HostError& error) {
    return error.what();
  }
}

void check_row(const Json& row, const std::string& key, std::set<std::string>& differing) {
  const Json got = evaluate(row);
  const bool second_function = row["fn"] == "inclusion_exclusion";
  if (const auto refused = kRefused.find(key); refused != kRefused.end()) {
    assert_true(row.contains("result"));  // the launcher has accepted this input, so libdsc differs
    assert_string_equal(got.get<std::string>().c_str(), refused->second.c_str());
    differing.insert(key);
  } else if (const auto instead = kInstead.find(key); second_function && instead != kInstead.end()) {
    assert_true(row["result"] != instead->second);
    assert_string_equal(got.dump().c_str(), instead->second.dump().c_str());
    differing.insert(key);
  } else if (row.contains("error")) {
    assert_true(got.is_string());
  } else {
    assert_string_equal(got.dump().c_str(), row["result"].dump().c_str());
  }
}

void vectors_of_deepspeed(void**) {
  std::ifstream file(vectors_path);
  std::set<std::string> differing;
  int rows = 0;
  for (std::string line; std::getline(file, line);) {
    const Json row = Json::parse(line);
    if (!row.contains("fn")) continue;
    ++rows;
    const std::string key = row["fn"] == "hostfile" ? row["text"] : row["include"];
    check_row(row, key, differing);
  }
  assert_int_equal(rows, 39);
  assert_int_equal(differing.size(), kRefused.size() + kInstead.size());
}

std::string parse_error(const std::string& text) {
  try {
    dscrun::parse_host_file(text);
  } catch (const dscrun::HostError& error) {
    return error.what();
  }
  return "";
}

void errors_of_host_files(void**) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"a slots=1\n\nb slots=x\n", "line 3: expected NAME slots=NUMBER, got 'b slots=x'"},
      {"a slots=1\na slots=2", "line 2: host 'a' occurs twice, expected each host once"},
      {"-oProxyCommand=x slots=1", "line 1: expected NAME slots=NUMBER, got '-oProxyCommand=x slots=1'"},
      {"a slots=4097", "line 1: expected slots from 1 to 4096, got 'a slots=4097'"},
      {"a slots=99999999999", "line 1: expected NAME slots=NUMBER, got 'a slots=99999999999'"},
      {"a slots=-1", "line 1: expected NAME slots=NUMBER, got 'a slots=-1'"},
      {"a slots=", "line 1: expected NAME slots=NUMBER, got 'a slots='"},
      {"# nothing\n \n", "contains no host, expected lines of the form NAME slots=NUMBER"},
  };
  for (const auto& [text, error] : cases) assert_string_equal(parse_error(text).c_str(), error.c_str());
  assert_string_equal(parse_error("a slots=1\r\nb\tslots=2 # two\r\n").c_str(), "");
}

std::string select_error(const std::string& include, const std::string& exclude) {
  try {
    dscrun::select_hosts({make_host("a", 2), make_host("b", 1)}, include, exclude);
  } catch (const dscrun::HostError& error) {
    return error.what();
  }
  return "";
}

void errors_of_selections(void**) {
  for (const char* text : {"a:", "a:0,", "a:,0", "a:x", "a:0 ", "a:-0", "a:0:1", "a:2", "a:99999999999", "a@",
                           "@a", "@", "c", "A"}) {
    assert_string_not_equal(select_error(text, "").c_str(), "");
    assert_string_not_equal(select_error("", text).c_str(), "");
  }
  assert_string_equal(select_error("c", "").c_str(), "unknown host 'c', expected one of: a, b");
  assert_string_equal(select_error("a:2", "").c_str(), "unknown slot '2' of host 'a', expected 0 to 1");
  assert_string_equal(select_error("a", "b").c_str(), "cannot be given together with --exclude");
  assert_string_equal(select_error("", "a:0@a:0,1@b").c_str(),
                      "");  // an empty selection is not an error here
}

void words_of_a_shell(void**) {
  const std::vector<std::string> words = {"plain", "",     "a b", "it's",    "$HOME `x` \\ \"",
                                          "-n",    "a\nb", "*",   "\xc3\xa4"};
  assert_true(dscrun::shell_split(dscrun::shell_join(words)) == words);
  assert_string_equal(dscrun::shell_quote("it's").c_str(), "'it'\\''s'");
  assert_true(dscrun::shell_split("  ssh -p 22\t'a b'\"c\\\"d\"\\ e ") ==
              (std::vector<std::string>{"ssh", "-p", "22", "a bc\"d e"}));
  assert_true(dscrun::shell_split("").empty());
  bool refused = false;
  try {
    dscrun::shell_split("ssh 'a");
  } catch (const std::invalid_argument&) {
    refused = true;
  }
  assert_true(refused);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  vectors_path = argv[1];
  const CMUnitTest tests[] = {
      cmocka_unit_test(vectors_of_deepspeed),
      cmocka_unit_test(errors_of_host_files),
      cmocka_unit_test(errors_of_selections),
      cmocka_unit_test(words_of_a_shell),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
