// Runs programs that contain their messages. Sends and receives are blocking.
#include <algorithm>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "pipeline/global_order.hpp"
#include "pipeline/progress.hpp"

namespace dsc {
namespace {

// Implements put_as_given().
class Replay {
 public:
  Replay(const PipelinePlan& plan, OrderListener& listener)
      : program_(*plan.program),
        placement_(plan.placement),
        micro_batches_(plan.spec.micro_batches),
        listener_(listener),
        progress_(plan),
        received_(2 * static_cast<size_t>(placement_.parts()) * static_cast<size_t>(micro_batches_)),
        positions_(program_.size()) {}

  // Each stage runs until it blocks at a send or receive. When a message is transferred, the stage at its
  // other end can continue.
  void run() {
    std::vector<int32_t> runnable;
    for (int32_t s = placement_.stages() - 1; s >= 0; --s) runnable.push_back(s);
    while (!runnable.empty()) {
      const int32_t stage = runnable.back();
      runnable.pop_back();
      while (const Event* event = head(stage)) {
        if (is_send(event->op.op) || is_recv(event->op.op)) {
          const int32_t peer = meet(stage, *event);
          if (peer < 0) break;
          runnable.push_back(peer);
        } else {
          compute(stage);
        }
      }
    }
    for (int32_t s = 0; s < placement_.stages(); ++s)
      if (head(s)) refuse_stuck(s);
    for (int32_t s = 0; s < placement_.stages(); ++s) progress_.expect_complete(s);
  }

 private:
  const std::vector<Event>& of(int32_t stage) const { return program_[static_cast<size_t>(stage)].events; }
  size_t& position(int32_t stage) { return positions_[static_cast<size_t>(stage)]; }
  const Event* head(int32_t stage) {
    return position(stage) < of(stage).size() ? &of(stage)[position(stage)] : nullptr;
  }

  [[noreturn]] void refuse(int32_t stage, const std::string& reason) {
    const Event& event = *head(stage);
    fail(DSC_ERR_INVALID_ARG, "stage %d: step %lld, %s, %s", stage, static_cast<long long>(event.step),
         describe(event.op).c_str(), reason.c_str());
  }

  // Returns the part at the other end of a message, which must be on another stage.
  int32_t other_part(int32_t stage, const Compute& op) {
    if (op.chunk < 0 || op.chunk >= placement_.chunks())
      refuse(stage,
             "is of a chunk that does not exist, expected 0 to " + std::to_string(placement_.chunks() - 1));
    if (op.micro_batch < 0 || op.micro_batch >= micro_batches_)
      refuse(stage,
             "is of a micro-batch that does not exist, expected 0 to " + std::to_string(micro_batches_ - 1));
    const int32_t part = placement_.part(stage, op.chunk);
    const bool to_next = op.op == PipeOp::kSendActivation || op.op == PipeOp::kRecvGrad;
    if (to_next ? !placement_.has_output(part) : !placement_.has_input(part))
      refuse(stage, std::string("has no peer: this chunk is the ") + (to_next ? "last" : "first") +
                        " part of the model");
    const int32_t other = part + (to_next ? 1 : -1);
    if (placement_.stage(other) == stage)
      refuse(stage, "needs no message: the sending and the receiving chunk are both on this stage");
    return other;
  }

  Compute other_end(int32_t stage, const Compute& op) {
    const int32_t other = other_part(stage, op);
    const PipeOp facing = op.op == PipeOp::kSendActivation   ? PipeOp::kRecvActivation
                          : op.op == PipeOp::kRecvActivation ? PipeOp::kSendActivation
                          : op.op == PipeOp::kSendGrad       ? PipeOp::kRecvGrad
                                                             : PipeOp::kSendGrad;
    return {facing, placement_.chunk(other), op.micro_batch, false};
  }

  // Transfers the message if the stage at the other end is ready for it, and returns that stage; otherwise
  // returns -1.
  int32_t meet(int32_t stage, const Event& event) {
    const Compute facing = other_end(stage, event.op);
    const int32_t other = other_part(stage, event.op);
    const int32_t peer = placement_.stage(other);
    const Event* at_peer = head(peer);
    if (!at_peer || at_peer->op != facing) return -1;
    const int32_t from = is_send(event.op.op) ? stage : peer;
    const int32_t part = is_send(event.op.op) ? placement_.part(stage, event.op.chunk) : other;
    const bool is_gradient = moves_gradient(event.op.op);
    if (!progress_.has({part, is_gradient}, event.op.micro_batch))
      refuse(from, "is sent before it is computed");
    if (received_[index({part, is_gradient}, event.op.micro_batch)]) refuse(from, "occurs a second time");
    mark_received({part, is_gradient}, event.op.micro_batch);
    if (is_gradient)
      listener_.gradient(part, event.op.micro_batch);
    else
      listener_.activation(part, event.op.micro_batch);
    ++position(stage);
    ++position(peer);
    return peer;
  }

  size_t index(const Source& source, int32_t micro_batch) const {
    const auto at = static_cast<size_t>(source.part) * static_cast<size_t>(micro_batches_) +
                    static_cast<size_t>(micro_batch);
    return 2 * at + (source.is_gradient ? 1 : 0);
  }
  void mark_received(const Source& source, int32_t micro_batch) {
    received_[index(source, micro_batch)] = true;
  }

  // Checks the inputs of both operations of an overlapping pair before either of them counts as done, because
  // neither may be the input of the other.
  void compute(int32_t stage) {
    const auto& events = of(stage);
    const size_t first = position(stage);
    const bool is_pair = events[first].op.overlaps && first + 1 < events.size();
    progress_.check_pair(stage, static_cast<int64_t>(first), events[first].op,
                         is_pair ? &events[first + 1].op : nullptr);
    const size_t end = first + (is_pair ? 2 : 1);
    for (; position(stage) < end; ++position(stage)) check_inputs(stage, events[position(stage)].op);
    for (size_t k = first; k < end; ++k) {
      listener_.compute(stage, events[k].op);
      if (events[k].op.op != kIdle) progress_.note(stage, events[k].op);
    }
  }

  void check_inputs(int32_t stage, const Compute& op) {
    if (op.op == kIdle) return;
    progress_.check(stage, static_cast<int64_t>(position(stage)), op);
    const Source from = source_of(placement_, placement_.part(stage, op.chunk), op.op);
    if (from.part != Source::kNone && placement_.stage(from.part) != stage &&
        !received_[index(from, op.micro_batch)])
      refuse(stage, "runs before its input was received");
  }

  int32_t peer_of(int32_t stage) { return placement_.stage(other_part(stage, head(stage)->op)); }

  [[noreturn]] void refuse_stuck(int32_t stage) {
    std::vector<bool> met(program_.size());
    for (int32_t at = stage; !met[static_cast<size_t>(at)]; at = peer_of(at)) {
      met[static_cast<size_t>(at)] = true;
      expect_other_end(at);
      stage = at;
    }
    refuse_circle(peer_of(stage));
  }

  void expect_other_end(int32_t stage) {
    const Event& event = *head(stage);
    const Compute facing = other_end(stage, event.op);
    const int32_t peer = peer_of(stage);
    const auto& events = of(peer);
    const auto is_it = [&](const Event& other) { return other.op == facing; };
    const auto next = events.begin() + static_cast<ptrdiff_t>(position(peer));
    if (std::find_if(next, events.end(), is_it) != events.end()) return;
    const bool was_there = std::find_if(events.begin(), next, is_it) != next;
    refuse(stage, std::string("waits for a ") + (is_send(event.op.op) ? "receive" : "send") + " that stage " +
                      std::to_string(peer) +
                      (was_there ? " has already made for an earlier operation" : " does not make"));
  }

  [[noreturn]] void refuse_circle(int32_t start) {
    std::string circle = "can never run; these stages wait for each other:";
    int32_t at = start;
    do {
      circle += (at == start ? " stage " : ", stage ") + std::to_string(at) + " in step " +
                std::to_string(head(at)->step) + " (" + describe(head(at)->op) + ") for stage " +
                std::to_string(peer_of(at));
      at = peer_of(at);
    } while (at != start);
    refuse(start, circle);
  }

  const Program& program_;
  const Placement placement_;
  const int32_t micro_batches_;
  OrderListener& listener_;
  Progress progress_;
  std::vector<bool> received_;  // which messages were received, by part, micro-batch and direction
  std::vector<size_t> positions_;
};

}  // namespace

void put_as_given(const PipelinePlan& plan, OrderListener& listener) { Replay(plan, listener).run(); }

}  // namespace dsc
