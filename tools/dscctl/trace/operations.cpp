#include "dscctl/trace/operations.hpp"

#include <tuple>

namespace dscctl::trace {
namespace {

// The order of operations: collectives before messages, and each by group, end points and number.
using Key = std::tuple<bool, size_t, int, int, int64_t>;

Key key_of(const Dump& dump, const Entry& entry) {
  if (!entry.is_message) return {false, entry.group, 0, 0, entry.sequence};
  const int sender = entry.is_send() ? dump.rank : *entry.peer;
  const int receiver = entry.is_send() ? *entry.peer : dump.rank;
  return {true, entry.group, sender, receiver, entry.sequence};
}

Operation empty_operation(const Trace& trace, const Key& key) {
  const auto& [is_message, group, sender, receiver, sequence] = key;
  Operation operation{group, sequence, is_message, {}};
  const std::vector<int> ends = {sender, receiver};
  for (const int rank : is_message ? ends : trace.groups[group].ranks)
    operation.participants.push_back({rank, trace.of_rank(rank), nullptr});
  return operation;
}

void add(Operation& operation, const Dump& dump, const Entry& entry) {
  if (operation.is_message) {
    operation.participants[entry.is_send() ? 0 : 1].entry = &entry;
    return;
  }
  for (Participant& participant : operation.participants)
    if (participant.rank == dump.rank) participant.entry = &entry;
}

std::string of_group(const Trace& trace, size_t group) {
  return " of group \"" + trace.groups[group].name + "\"";
}

}  // namespace

const Entry& Operation::any_entry() const {
  for (const Participant& participant : participants)
    if (participant.entry != nullptr) return *participant.entry;
  return *participants.front().entry;
}

std::vector<Operation> match(const Trace& trace) {
  std::map<Key, Operation> operations;
  for (const Dump& dump : trace.dumps) {
    for (const Entry& entry : dump.entries) {
      const Key key = key_of(dump, entry);
      auto found = operations.find(key);
      if (found == operations.end()) found = operations.emplace(key, empty_operation(trace, key)).first;
      add(found->second, dump, entry);
    }
  }
  std::vector<Operation> list;
  list.reserve(operations.size());
  for (auto& [key, operation] : operations) list.push_back(std::move(operation));
  return list;
}

std::string title(const Trace& trace, const Operation& operation) {
  const std::string number = std::to_string(operation.sequence);
  if (!operation.is_message)
    return "collective " + number + " (" + operation.any_entry().name + ")" +
           of_group(trace, operation.group);
  return "message number " + number + " from rank " + std::to_string(operation.participants[0].rank) +
         " to rank " + std::to_string(operation.participants[1].rank) + of_group(trace, operation.group);
}

std::string title(const Trace& trace, const Entry& entry) {
  const std::string number = std::to_string(entry.sequence);
  std::string text = "collective " + number + " (" + entry.name + ")";
  if (entry.is_message)
    text = entry.name + " number " + number + (entry.is_send() ? " to rank " : " from rank ") +
           std::to_string(*entry.peer);
  return text + of_group(trace, entry.group);
}

}  // namespace dscctl::trace
