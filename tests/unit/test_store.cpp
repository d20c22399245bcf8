// Rules for all stores, tested on each kind of store: the rules of PyTorch 2.7's stores, limits and waiting.
#include <atomic>
#include <climits>

#include "store/callback_store.hpp"
#include "store_support.hpp"

namespace {

using namespace dsc;
using namespace dsc::test;

// The same store through two handles, as two ranks have it.
struct Pair {
  std::unique_ptr<StoreServer> server;
  std::shared_ptr<Store> a;
  std::shared_ptr<Store> b;
};

struct Kind {
  const char* name;
  std::function<Pair(Folder&)> make;
};

Pair share(const std::shared_ptr<Store>& store) { return {nullptr, store, store}; }

const Kind kKinds[] = {
    {"memory", [](Folder&) { return share(std::make_shared<MemoryStore>()); }},
    {"prefix",
     [](Folder&) {
       const auto memory = std::make_shared<MemoryStore>();
       return Pair{nullptr, std::make_shared<PrefixStore>(memory, "p"),
                   std::make_shared<PrefixStore>(memory, "p")};
     }},
    {"file",
     [](Folder& folder) {
       const std::string path = folder.file("store");
       return Pair{nullptr, std::make_shared<FileStore>(path, "job", soon()),
                   std::make_shared<FileStore>(path, "job", soon())};
     }},
    {"tcp",
     [](Folder&) {
       auto server = std::make_unique<StoreServer>(server_options(token_of('a')));
       const StoreTarget target = target_of(*server, token_of('a'));
       return Pair{std::move(server), std::make_shared<TcpStore>(target, soon()),
                   std::make_shared<TcpStore>(target, soon())};
     }},
};

void on_every_kind(const std::function<void(Store&, Store&)>& body) {
  for (const Kind& kind : kKinds) {
    print_message("on %s\n", kind.name);
    Folder folder;
    const Pair pair = kind.make(folder);
    body(*pair.a, *pair.b);
  }
}

void assert_text(const std::string& got, const std::string& expected) {
  assert_string_equal(got.c_str(), expected.c_str());
}

void keeps_what_is_set(void**) {
  on_every_kind([](Store& a, Store& b) {
    const std::string bytes("a\0b\xff", 4);
    a.set("key", bytes, soon());
    assert_true(b.get("key", soon()) == bytes);
    b.set("key", "", soon());
    assert_true(a.get("key", soon()).empty());
    a.set("key", std::string(1 << 20, 'x'), soon());
    assert_int_equal(b.get("key", soon()).size(), 1 << 20);
    assert_int_equal(a.count(soon()), 1);
    assert_true(b.remove("key", soon()));
    assert_false(a.remove("key", soon()));
    assert_int_equal(a.count(soon()), 0);
  });
}

void adds(void**) {
  on_every_kind([](Store& a, Store& b) {
    assert_int_equal(a.add("n", 5, soon()), 5);
    assert_int_equal(b.add("n", -7, soon()), -2);
    assert_text(a.get("n", soon()), "-2");
    a.set("n", "41", soon());
    assert_int_equal(b.add("n", 1, soon()), 42);
    a.set("n", "x1", soon());
    CHECK_FAILS(a.add("n", 1, soon()), DSC_ERR_INVALID_ARG, "n\"", "\"x1\"", "whole number");
    a.set("n", std::to_string(LLONG_MAX), soon());
    CHECK_FAILS(b.add("n", 1, soon()), DSC_ERR_OVERFLOW, "64 bits");
    assert_text(a.get("n", soon()), std::to_string(LLONG_MAX));
  });
}

void compares_and_sets(void**) {
  on_every_kind([](Store& a, Store& b) {
    assert_text(a.compare_set("k", "old", "new", soon()), "old");  // the key is missing, so nothing is stored
    assert_int_equal(b.count(soon()), 0);
    assert_text(a.compare_set("k", "", "first", soon()), "first");
    assert_text(b.compare_set("k", "", "second", soon()), "first");
    assert_text(b.compare_set("k", "first", "second", soon()), "second");
    assert_text(a.get("k", soon()), "second");
  });
}

void appends_and_checks(void**) {
  on_every_kind([](Store& a, Store& b) {
    assert_int_equal(a.append("k", "ab", soon()), 2);
    assert_int_equal(b.append("k", "c", soon()), 3);
    assert_text(a.get("k", soon()), "abc");
    const std::string keys[] = {"k", "l"};
    assert_false(a.check(keys, soon()));
    assert_true(a.check(std::span(keys, 1), soon()));
    assert_true(a.check({}, soon()));
    b.set("l", "", soon());
    assert_true(a.check(keys, soon()));
  });
}

void follows_what_is_appended(void**) {
  on_every_kind([](Store& a, Store& b) {
    CHECK_FAILS(a.follow("log", 0, Deadline::after_ms(20)), DSC_ERR_TIMEOUT, "log\"");
    a.append("log", "ab", soon());
    assert_text(b.follow("log", 0, soon()), "ab");
    assert_text(b.follow("log", 1, soon()), "b");
    CHECK_FAILS(b.follow("log", 2, Deadline::after_ms(20)), DSC_ERR_TIMEOUT, "log\"");
    std::string heard;
    std::thread reader([&] { heard = b.follow("log", 2, soon()); });
    a.append("other", "x", soon());
    a.append("log", "cd", soon());
    reader.join();
    assert_text(heard, "cd");
    CHECK_FAILS(a.append("log", std::string(1 << 20, 'x'), soon()), DSC_ERR_INVALID_ARG, "1048580 bytes");
    assert_text(b.follow("log", 0, soon()), "abcd");
  });
}

void waits(void**) {
  on_every_kind([](Store& a, Store& b) {
    std::thread setter([&b] {
      for (const char* key : {"three", "two", "one"}) {
        ::usleep(5000);
        b.set(key, key, soon());
      }
    });
    const std::string keys[] = {"one", "two", "three"};
    a.wait(keys, soon());
    assert_true(a.check(keys, soon()));
    setter.join();
    std::thread adder([&b] {
      ::usleep(5000);
      b.add("n", 3, soon());
    });
    assert_text(a.get("n", soon()), "3");
    adder.join();
  });
}

void waits_no_longer_than_asked(void**) {
  on_every_kind([](Store& a, Store& b) {
    const int64_t start = now_ns();
    CHECK_FAILS(a.get("never", Deadline::after_ms(50)), DSC_ERR_TIMEOUT, "never\"");
    b.set("here", "", soon());
    const std::string keys[] = {"here", "gone", "lost"};
    CHECK_FAILS(a.wait(keys, Deadline::after_ms(50)), DSC_ERR_TIMEOUT, "gone\"", "lost\"");
    assert_true(now_ns() - start < kAtOnceNs);
    b.set("never", "now", soon());  // the store still works
    assert_text(a.get("never", soon()), "now");
  });
}

void one_who_waits_holds_up_nobody(void**) {
  on_every_kind([](Store& a, Store&) {
    std::thread waiter([&a] { a.get("late", soon()); });
    ::usleep(20000);
    a.set("other", "x", soon());
    assert_text(a.get("other", soon()), "x");
    a.set("late", "", soon());
    waiter.join();
  });
}

void adds_from_many_threads(void**) {
  on_every_kind([](Store& a, Store& b) {
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t)
      threads.emplace_back([&store = t % 2 == 0 ? a : b] {
        for (int i = 0; i < 50; ++i) store.add("sum", 1, Deadline::after_ms(30000));
      });
    for (std::thread& thread : threads) thread.join();
    assert_text(a.get("sum", soon()), "200");
  });
}

void refuses_what_is_too_big(void**) {
  on_every_kind([](Store& a, Store& b) {
    CHECK_FAILS(a.set("", "x", soon()), DSC_ERR_INVALID_ARG, "key is empty");
    CHECK_FAILS(a.set(std::string(1025, 'k'), "x", soon()), DSC_ERR_INVALID_ARG, "at most 1024");
    CHECK_FAILS(a.set("k", std::string((1 << 20) + 1, 'x'), soon()), DSC_ERR_INVALID_ARG, "1048577",
                "1048576");
    CHECK_FAILS(a.perform({}, soon()); a.perform({StoreOp::kGet, {}, "", "", 0}, soon()), DSC_ERR_INVALID_ARG,
                                       "0 keys", "expected 1");
    assert_int_equal(b.count(soon()), 0);
  });
}

void keeps_its_bounds(void**) {
  StoreLimits limits;
  limits.keys = 2;
  limits.total_bytes = 10;
  MemoryStore store(limits);
  store.set("a", "12", soon());
  store.set("b", "12", soon());
  CHECK_FAILS(store.set("c", "", soon()), DSC_ERR_NOSPACE, "2 keys");
  CHECK_FAILS(store.set("a", "1234567", soon()), DSC_ERR_NOSPACE, "11 bytes", "at most 10");
  assert_text(store.get("a", soon()), "12");
  store.remove("b", soon());
  store.set("a", "123456789", soon());
  store.set("a", "", soon());
  store.set("c", "12345678", soon());
}

void prefixes_keep_apart(void**) {
  const auto memory = std::make_shared<MemoryStore>();
  PrefixStore a(memory, "a");
  PrefixStore b(memory, "b");
  a.set("k", "1", soon());
  b.set("k", "2", soon());
  assert_text(a.get("k", soon()), "1");
  assert_text(memory->get("b/k", soon()), "2");
  assert_int_equal(a.count(soon()), 2);
  CHECK_FAILS(PrefixStore(memory, ""), DSC_ERR_INVALID_ARG, "prefix is empty");
  CHECK_FAILS(a.set("", "", soon()), DSC_ERR_INVALID_ARG, "key is empty");
}

void callbacks_put_and_get(void**) {
  const auto memory = std::make_shared<MemoryStore>();
  CallbackStore store(
      {[&](const std::string& key, const std::string& value, Deadline deadline) {
         memory->set(key, value, deadline);
       },
       [&](const std::string& key, Deadline deadline) { return memory->get(key, deadline); }});
  store.put("k", "v", soon());
  assert_text(store.get("k", 3, soon()), "v");
  const std::string keys[] = {"k", "no"};
  CHECK_FAILS(store.wait(keys, Deadline::after_ms(20)), DSC_ERR_TIMEOUT, "\"no\"");
  CHECK_FAILS(store.add("k", 1, soon()), DSC_ERR_UNSUPPORTED, "add", "set, get and wait");
  CHECK_FAILS(store.set("", "", soon()), DSC_ERR_INVALID_ARG, "empty");
}

void requests_travel_as_bytes(void**) {
  StoreRequest request{StoreOp::kCompareSet, {"key"}, std::string("\0v", 2), "", LLONG_MIN};
  const std::string bytes = encode(request);
  const auto back = decode_request(bytes);
  assert_true(back && back->op == request.op && back->keys == request.keys && back->value == request.value &&
              back->expected.empty() && back->number == LLONG_MIN);
  for (size_t length = 0; length < bytes.size(); ++length) {
    const auto part = decode_request(bytes.substr(0, length));
    // A prefix that lacks only the last text is decoded as a request without a key. The store refuses such a
    // request.
    if (part) assert_true(part->keys.empty());
  }
  for (const int op : {0, 12, 255}) {
    std::string other = bytes;
    other[0] = static_cast<char>(op);
    assert_false(decode_request(other).has_value());
  }
  assert_false(decode_reply("short").has_value());
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(keeps_what_is_set),          cmocka_unit_test(adds),
      cmocka_unit_test(compares_and_sets),          cmocka_unit_test(appends_and_checks),
      cmocka_unit_test(follows_what_is_appended),   cmocka_unit_test(waits),
      cmocka_unit_test(waits_no_longer_than_asked), cmocka_unit_test(one_who_waits_holds_up_nobody),
      cmocka_unit_test(adds_from_many_threads),     cmocka_unit_test(refuses_what_is_too_big),
      cmocka_unit_test(keeps_its_bounds),           cmocka_unit_test(prefixes_keep_apart),
      cmocka_unit_test(callbacks_put_and_get),      cmocka_unit_test(requests_travel_as_bytes),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
