// Operations between hosts: each operation at many sizes, compared with its defined result.
#include <cstdint>
#include <cstring>
#include <numeric>

#include "dtype/dtype.hpp"
#include "transport_support.hpp"

using namespace dsc;
using namespace dsc::test;

namespace {

// Memory with guard bytes before and after it that must not change.
class Guarded {
 public:
  explicit Guarded(size_t bytes) : bytes_(bytes), all_(bytes + 2 * kRoom, kCanary) {}
  std::byte* data() { return all_.data() + kRoom; }
  void check() const {
    for (size_t i = 0; i < kRoom; ++i) {
      assert_true(all_[i] == kCanary);
      assert_true(all_[kRoom + bytes_ + i] == kCanary);
    }
  }

 private:
  static constexpr size_t kRoom = 64;
  static constexpr std::byte kCanary{0xc5};
  size_t bytes_;
  std::vector<std::byte> all_;
};

// Numbers whose sums depend on the order of addition.
template <typename T>
T number(int32_t host, size_t index) {
  const auto mixed = static_cast<uint32_t>((index + 1) * 2654435761u + static_cast<uint32_t>(host) * 40503u);
  if constexpr (std::is_floating_point_v<T>)
    return static_cast<T>(static_cast<double>(mixed % 100003) * (host % 2 ? 1e-3 : 1e3) / 7);
  else
    return static_cast<T>(mixed);
}

template <typename T>
void fill(std::byte* out, int32_t host, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    const T value = number<T>(host, i);
    std::memcpy(out + i * sizeof(T), &value, sizeof(T));
  }
}

// The sum over hosts, in the order of the hosts.
template <typename T>
std::vector<T> sums(int32_t hosts, size_t count) {
  std::vector<T> sum(count);
  for (size_t i = 0; i < count; ++i) {
    sum[i] = number<T>(0, i);
    for (int32_t host = 1; host < hosts; ++host) sum[i] = static_cast<T>(sum[i] + number<T>(host, i));
  }
  return sum;
}

constexpr size_t kByteSizes[] = {0, 1, 37, 4096, 100'000, (1 << 20) + 3};
constexpr int32_t kHostCounts[] = {1, 2, 3, 4, 8};

template <typename T>
void sum_at_size(Hosts& hosts, size_t count, int32_t dtype) {
  const std::vector<T> expected = sums<T>(hosts.size(), count);
  const ReduceSpec spec{.dtype = dtype, .op = DSC_OP_SUM};
  const int32_t root = hosts.size() - 1;
  hosts.each([&](TransportGroup& wire) {
    Guarded data(count * sizeof(T));
    fill<T>(data.data(), wire.rank(), count);
    wire.all_reduce(data.data(), data.data(), count, spec, soon());
    assert_memory_equal(data.data(), expected.data(), count * sizeof(T));
    data.check();
    fill<T>(data.data(), wire.rank(), count);
    wire.reduce(data.data(), data.data(), count, spec, root, soon());
    if (wire.rank() == root) assert_memory_equal(data.data(), expected.data(), count * sizeof(T));
    data.check();
    // An operation that is not in place must not change its input.
    const std::vector<T> before = [&] {
      std::vector<T> mine(count);
      fill<T>(reinterpret_cast<std::byte*>(mine.data()), wire.rank(), count);
      return mine;
    }();
    for (const bool to_all : {true, false}) {
      std::vector<T> mine = before;
      if (to_all)
        wire.all_reduce(mine.data(), data.data(), count, spec, soon());
      else
        wire.reduce(mine.data(), data.data(), count, spec, root, soon());
      assert_true(mine == before);
      if (to_all || wire.rank() == root) assert_memory_equal(data.data(), expected.data(), count * sizeof(T));
      data.check();
    }
  });
  std::vector<size_t> counts;  // uneven counts; with several hosts the last one gets nothing
  for (size_t left = count, host = 0; host < static_cast<size_t>(hosts.size()); ++host) {
    const bool before_last = host + 2 >= static_cast<size_t>(hosts.size());
    counts.push_back(before_last ? left : left / 3);
    left -= counts.back();
  }
  hosts.each([&](TransportGroup& wire) {
    Guarded data(count * sizeof(T));
    fill<T>(data.data(), wire.rank(), count);
    const auto own = static_cast<size_t>(wire.rank());
    const size_t start = std::accumulate(counts.begin(), counts.begin() + wire.rank(), size_t{0});
    Guarded part(counts[own] * sizeof(T));
    wire.reduce_scatter(data.data(), part.data(), counts, spec, soon());
    assert_memory_equal(part.data(), expected.data() + start, counts[own] * sizeof(T));
    part.check();
    std::byte* const in_place = data.data() + start * sizeof(T);
    wire.reduce_scatter(data.data(), in_place, counts, spec, soon());
    assert_memory_equal(in_place, expected.data() + start, counts[own] * sizeof(T));
    data.check();
  });
}

void sums_are_in_the_order_of_hosts(void**) {
  for (const int32_t count : kHostCounts) {
    Hosts hosts(count);
    for (const size_t bytes : kByteSizes) {
      sum_at_size<float>(hosts, bytes / sizeof(float), DSC_DTYPE_F32);
      sum_at_size<double>(hosts, bytes / sizeof(double), DSC_DTYPE_F64);
      sum_at_size<uint8_t>(hosts, bytes, DSC_DTYPE_U8);
    }
  }
}

void sums_of_one_host_are_divided_and_scaled(void**) {
  Hosts hosts(1);
  float data[] = {3, 5};
  hosts.wire(0).all_reduce(data, data, 2, {.dtype = DSC_DTYPE_F32, .op = DSC_OP_SUM, .prescale = 2}, soon());
  assert_true(data[0] == 6 && data[1] == 10);
}

// Work that is passed to an operation for its waiting time is done exactly once: with large and small data,
// with one host and several, for senders and receivers.
void what_is_given_to_do_meanwhile_is_done_once(void**) {
  for (const int32_t count : {1, 2, 3}) {
    Hosts hosts(count);
    for (const size_t bytes : kByteSizes)
      hosts.each([&](TransportGroup& wire) {
        std::vector<std::byte> data(bytes);
        const auto hosts_of = static_cast<size_t>(wire.size());
        const std::vector<size_t> counts(hosts_of, bytes / hosts_of);
        std::vector<std::byte> all(bytes * hosts_of), others(all.size());
        std::vector<TransportBlock> blocks, others_blocks;
        for (size_t host = 0; host < hosts_of; ++host) {
          blocks.push_back({all.data() + host * bytes, bytes});
          others_blocks.push_back({others.data() + host * bytes, bytes});
        }
        const ReduceSpec spec{.dtype = DSC_DTYPE_U8, .op = DSC_OP_SUM};
        int done = 0;
        const OverlapHook work = [&] { ++done; };
        wire.all_reduce(data.data(), data.data(), bytes, spec, soon(), work);
        wire.reduce(data.data(), data.data(), bytes, spec, 0, soon(), work);
        wire.reduce_scatter(data.data(), all.data(), counts, spec, soon(), work);
        wire.broadcast(data.data(), bytes, 0, soon(), work);
        wire.all_gather(blocks, soon(), work);
        wire.exchange(blocks, others_blocks, soon(), work);
        assert_int_equal(done, 6);
      });
  }
}

void check_bytes(const std::byte* data, size_t bytes, int32_t host, size_t from = 0) {
  for (size_t i = 0; i < bytes; ++i) assert_true(data[i] == std::byte{number<uint8_t>(host, from + i)});
}

void broadcasts_from_every_root(void**) {
  for (const int32_t count : kHostCounts) {
    Hosts hosts(count);
    for (const size_t bytes : kByteSizes)
      for (const int32_t root : {0, count - 1})
        hosts.each([&](TransportGroup& wire) {
          Guarded data(bytes);
          if (wire.rank() == root) fill<uint8_t>(data.data(), root, bytes);
          wire.broadcast(data.data(), bytes, root, soon());
          check_bytes(data.data(), bytes, root);
          data.check();
        });
  }
}

void gathers_blocks_of_any_length(void**) {
  for (const int32_t count : kHostCounts) {
    Hosts hosts(count);
    for (const size_t bytes : kByteSizes)
      hosts.each([&](TransportGroup& wire) {
        std::vector<Guarded> memory;
        std::vector<TransportBlock> blocks;
        for (size_t host = 0; host < static_cast<size_t>(count); ++host) {
          const size_t length = host % 3 == 1 ? 0 : bytes / (host + 1);
          memory.emplace_back(length);
          blocks.push_back({memory.back().data(), length});
        }
        const auto own = static_cast<size_t>(wire.rank());
        fill<uint8_t>(memory[own].data(), wire.rank(), blocks[own].bytes);
        wire.all_gather(blocks, soon());
        for (size_t host = 0; host < memory.size(); ++host) {
          check_bytes(memory[host].data(), blocks[host].bytes, static_cast<int32_t>(host));
          memory[host].check();
        }
      });
  }
}

// Host i sends (i + 1) / (j + 1) of the size to host j, or nothing.
size_t length_between(int32_t from, int32_t to, size_t bytes) {
  return (from + to) % 4 == 1 ? 0 : bytes * static_cast<size_t>(from + 1) / static_cast<size_t>(to + 1);
}

void exchanges_any_lengths(void**) {
  for (const int32_t count : kHostCounts) {
    Hosts hosts(count);
    for (const size_t bytes : kByteSizes)
      hosts.each([&](TransportGroup& wire) {
        std::vector<Guarded> out, in;
        std::vector<TransportBlock> sends, receives;
        const int32_t own = wire.rank();
        for (int32_t peer = 0; peer < count; ++peer) {
          out.emplace_back(length_between(own, peer, bytes));
          in.emplace_back(length_between(peer, own, bytes));
          fill<uint8_t>(out.back().data(), own * 8 + peer, length_between(own, peer, bytes));
          sends.push_back({out.back().data(), length_between(own, peer, bytes)});
          receives.push_back({in.back().data(), length_between(peer, own, bytes)});
        }
        wire.exchange(sends, receives, soon());
        for (int32_t peer = 0; peer < count; ++peer) {
          const auto at = static_cast<size_t>(peer);
          check_bytes(in[at].data(), receives[at].bytes, peer * 8 + own);
          in[at].check();
        }
      });
  }
}

void meets_with_different_lengths(void**) {
  for (const int32_t count : kHostCounts) {
    Hosts hosts(count);
    hosts.each([&](TransportGroup& wire) {
      std::vector<std::string> all;
      for (size_t round = 0; round < 40; ++round) {
        const auto text_of = [&](int32_t host) {
          return std::string(
              (round * 311 + static_cast<size_t>(host) * 7) % (TransportGroup::kHeaderBytes + 1),
              static_cast<char>('a' + host));
        };
        wire.exchange_headers(text_of(wire.rank()), all, soon());
        assert_int_equal(all.size(), count);
        for (int32_t host = 0; host < count; ++host)
          assert_true(all[static_cast<size_t>(host)] == text_of(host));
      }
      wire.barrier(soon());
      CHECK_FAILS(wire.exchange_headers(std::string(TransportGroup::kHeaderBytes + 1, 'x'), all, soon()),
                  DSC_ERR_INVALID_ARG, "4097", "4096");
      wire.exchange_headers("still there", all, soon());
    });
  }
}

// Exchanges in place: host i has one block for every host, and receives the other hosts' blocks for it into
// the same memory.
void little_data_goes_along_with_a_meeting(void**) {
  for (const int32_t count : {1, 2, 3}) {
    Hosts hosts(count);
    for (const size_t bytes : {size_t{0}, size_t{1}, TransportGroup::kInlineBytes})
      hosts.each([&](TransportGroup& wire) {
        const int32_t own = wire.rank();
        std::vector<Guarded> memory;
        std::vector<TransportBlock> inline_data;
        for (int32_t peer = 0; peer < count; ++peer) {
          memory.emplace_back(bytes);
          fill<uint8_t>(memory.back().data(), own * 8 + peer, bytes);
          inline_data.push_back({memory.back().data(), peer == own ? 0 : bytes});
        }
        const auto take = [&](std::span<const TransportGroup::Header> headers) {
          assert_int_equal(headers.size(), count);
          for (int32_t peer = 0; peer < count; ++peer) {
            const TransportGroup::Header& from = headers[static_cast<size_t>(peer)];
            assert_true(from.text == "small");
            assert_int_equal(from.inline_data.size(), peer == own ? 0 : bytes);
            if (!from.inline_data.empty())
              std::memcpy(memory[static_cast<size_t>(peer)].data(), from.inline_data.data(), bytes);
          }
        };
        wire.exchange_headers("small", inline_data, take, soon());
        for (int32_t peer = 0; peer < count; ++peer) {
          check_bytes(memory[static_cast<size_t>(peer)].data(), bytes, peer * 8 + own);
          memory[static_cast<size_t>(peer)].check();
        }
      });
  }
}

void what_may_not_go_along_ends_nothing(void**) {
  Hosts hosts(2);
  hosts.each([](TransportGroup& wire) {
    std::vector<std::byte> data(TransportGroup::kInlineBytes + 1, std::byte{7});
    const std::vector<TransportBlock> large(2, {data.data(), data.size()}),
        most(2, {data.data(), TransportGroup::kInlineBytes});
    int taken = 0;
    const auto count = [&](std::span<const TransportGroup::Header>) { ++taken; };
    CHECK_FAILS(wire.exchange_headers("large", large, count, soon()), DSC_ERR_INVALID_ARG, "65537", "65536");
    assert_int_equal(taken, 0);
    const auto refuse = [&](std::span<const TransportGroup::Header> headers) {
      count(headers);
      throw Error(DSC_ERR_MISMATCH, "not what was expected");
    };
    for (int i = 0; i < 20; ++i)  // more messages than there are slots
      CHECK_FAILS(wire.exchange_headers("most", most, refuse, soon()), DSC_ERR_MISMATCH,
                  "not what was expected");
    assert_int_equal(taken, 20);
    wire.exchange_headers("again", most, count, soon());
    assert_int_equal(taken, 21);
  });
}

}  // namespace

int main() {
  if (const Outcome outcome = outcome_of([] { loopback_transport(); }); outcome.code != DSC_OK) {
    std::printf("skipped: %s\n", outcome.text.c_str());
    return 77;
  }
  const CMUnitTest tests[] = {
      cmocka_unit_test(sums_are_in_the_order_of_hosts),
      cmocka_unit_test(sums_of_one_host_are_divided_and_scaled),
      cmocka_unit_test(what_is_given_to_do_meanwhile_is_done_once),
      cmocka_unit_test(broadcasts_from_every_root),
      cmocka_unit_test(gathers_blocks_of_any_length),
      cmocka_unit_test(exchanges_any_lengths),
      cmocka_unit_test(meets_with_different_lengths),
      cmocka_unit_test(little_data_goes_along_with_a_meeting),
      cmocka_unit_test(what_may_not_go_along_ends_nothing),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
