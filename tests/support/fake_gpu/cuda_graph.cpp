// Capture into graphs, and replay of a graph as one action, in the order of capture.
#include <algorithm>

#include "cuda_api.hpp"
#include "cuda_state.hpp"

namespace fake_gpu {
namespace {

thread_local dsc::CudaCaptureMode thread_mode = dsc::CudaCaptureMode::global;

bool forbids(const Capture& capture) {
  using Mode = dsc::CudaCaptureMode;
  if (thread_mode == Mode::relaxed) return false;
  if (capture.thread == this_thread()) return capture.mode != Mode::relaxed;
  return thread_mode == Mode::global && capture.mode == Mode::global;
}

// Returns whether the origin stream depends on every node.
bool joined(const Graph& graph, std::vector<size_t> ends) {
  std::vector<bool> seen(graph.nodes.size());
  size_t count = 0;
  while (!ends.empty()) {
    const size_t node = ends.back();
    ends.pop_back();
    if (seen[node]) continue;
    seen[node] = true;
    ++count;
    ends.insert(ends.end(), graph.nodes[node].after.begin(), graph.nodes[node].after.end());
  }
  return count == seen.size();
}

void end_capture(Driver& state, const std::shared_ptr<Capture>& capture) {
  for (const auto& weak : capture->streams)
    if (const auto stream = weak.lock()) {
      stream->capture = nullptr;
      stream->frontier.clear();
    }
  capture->ended = true;
  state.captures.erase(capture);
}

// Returns all actions of a graph as one action, which depends on everything that they depend on.
Action whole(const GraphExec& exec) {
  Action action;
  action.order = exec.last;
  for (const Action& part : exec.actions)
    action.uses.insert(action.uses.end(), part.uses.begin(), part.uses.end());
  action.run = [parts = exec.actions] {
    for (const Action& part : parts)
      if (part.run) part.run();
  };
  return action;
}

// The memory that a graph uses may have been freed since the capture.
CudaResult check_memory(const Call& call, const GraphExec& exec) {
  for (const Action& action : exec.actions)
    for (const Range& range : action.uses)
      if (range.begin && range.bytes > 0)
        if (const CudaResult bad = check_range(call, range.begin, range.bytes); bad != kOk) return bad;
  return kOk;
}

}  // namespace

void invalidate(Capture& capture) { capture.invalidated = true; }

CudaResult refuse_capture(Call& call) {
  CudaResult result = kOk;
  for (const auto& capture : call.driver.captures)
    if (forbids(*capture)) {
      invalidate(*capture);
      result = kCaptureUnsupported;
    }
  return result;
}

CudaResult capture_action(Capture& capture, Stream& stream, Action action) {
  if (capture.invalidated) return kCaptureInvalidated;
  if (action.on_capture) action.kept = action.on_capture();
  capture.graph.nodes.push_back({std::move(action), stream.frontier});
  stream.frontier = {capture.graph.nodes.size() - 1};
  return kOk;
}

CudaResult join_capture(const std::shared_ptr<Stream>& stream, const std::shared_ptr<Capture>& capture,
                        const std::vector<size_t>& frontier) {
  if (capture->ended) return misused(kInvalidValue, "waits for an event of a capture that has ended");
  if (capture->invalidated) return kCaptureInvalidated;
  if (stream->capture && stream->capture != capture) {
    invalidate(*capture);
    invalidate(*stream->capture);
    return kCaptureMerge;
  }
  if (stream == stream->context->legacy) {
    invalidate(*capture);
    return kCaptureImplicit;
  }
  if (!stream->capture) capture->streams.push_back(stream);
  stream->capture = capture;
  stream->frontier.insert(stream->frontier.end(), frontier.begin(), frontier.end());
  std::sort(stream->frontier.begin(), stream->frontier.end());
  stream->frontier.erase(std::unique(stream->frontier.begin(), stream->frontier.end()),
                         stream->frontier.end());
  return kOk;
}

}  // namespace fake_gpu

using namespace fake_gpu;

extern "C" {

CudaResult cuStreamBeginCapture_v2(CudaStream* handle, dsc::CudaCaptureMode mode) {
  return enter("cuStreamBeginCapture", kCurrent, [&](Call& call) {
    const auto stream = stream_of(call, handle, call.context);
    if (!stream) return kInvalidHandle;
    if (static_cast<unsigned>(mode) > 2) return kInvalidValue;
    if (stream == stream->context->legacy) return kCaptureUnsupported;
    if (stream->capture) return kIllegalState;
    stream->capture = std::make_shared<Capture>();
    stream->capture->mode = mode;
    stream->capture->origin = handle;
    stream->capture->thread = this_thread();
    stream->capture->streams.push_back(stream);
    call.driver.captures.insert(stream->capture);
    return kOk;
  });
}

CudaResult cuStreamEndCapture(CudaStream* handle, CudaGraph** graph) {
  return enter("cuStreamEndCapture", kCurrent, [&](Call& call) {
    *graph = nullptr;
    const auto stream = stream_of(call, handle, call.context);
    if (!stream) return kInvalidHandle;
    const std::shared_ptr<Capture> capture = stream->capture;
    if (!capture) return kIllegalState;
    if (capture->origin != handle) return kCaptureUnmatched;
    if (capture->mode != dsc::CudaCaptureMode::relaxed && capture->thread != this_thread())
      return kCaptureWrongThread;
    const bool whole = joined(capture->graph, stream->frontier);
    end_capture(call.driver, capture);
    if (capture->invalidated) return kCaptureInvalidated;
    if (!whole) return kCaptureUnjoined;
    *graph = call.driver.graphs.add(std::make_shared<Graph>(std::move(capture->graph)));
    return kOk;
  });
}

CudaResult cuStreamIsCapturing(CudaStream* handle, dsc::CudaCaptureStatus* status) {
  return enter("cuStreamIsCapturing", kCurrent, [&](Call& call) {
    const auto stream = stream_of(call, handle, call.context);
    if (!stream) return kInvalidHandle;
    *status = !stream->capture               ? dsc::CudaCaptureStatus::none
              : stream->capture->invalidated ? dsc::CudaCaptureStatus::invalidated
                                             : dsc::CudaCaptureStatus::active;
    return kOk;
  });
}

CudaResult cuThreadExchangeStreamCaptureMode(dsc::CudaCaptureMode* mode) {
  return enter("cuThreadExchangeStreamCaptureMode", kNothing, [&](Call&) {
    if (static_cast<unsigned>(*mode) > 2) return kInvalidValue;
    std::swap(thread_mode, *mode);
    return kOk;
  });
}

CudaResult cuGraphInstantiateWithFlags(CudaGraphExec** exec, CudaGraph* handle, unsigned long long) {
  return enter("cuGraphInstantiateWithFlags", kCurrent, [&](Call& call) {
    const auto graph = call.driver.graphs.find(handle);
    if (!graph) return misused(kInvalidValue, "cuGraphInstantiateWithFlags of what is no graph (any more)");
    const auto made = std::make_shared<GraphExec>();
    for (const Graph::Node& node : graph->nodes) made->actions.push_back(node.action);
    *exec = call.driver.execs.add(made);
    return kOk;
  });
}

CudaResult cuGraphLaunch(CudaGraphExec* handle, CudaStream* stream_handle) {
  return enter("cuGraphLaunch", kCurrent, [&](Call& call) {
    const auto exec = call.driver.execs.find(handle);
    const auto stream = stream_of(call, stream_handle, call.context);
    if (!exec) return misused(kInvalidValue, "cuGraphLaunch of what is no graph (any more)");
    if (!stream) return kInvalidHandle;
    if (const CudaResult bad = check_memory(call, *exec); bad != kOk) return bad;
    std::vector<Moment> after;
    for (const Action& action : exec->actions)
      if (action.order) after.push_back(*action.order);
    const bool captured = stream->capture != nullptr;
    const CudaResult result = enqueue(call, stream, whole(*exec), std::move(after));
    if (result == kOk && !captured)
      for (const Action& action : exec->actions)
        if (action.order) *action.order = {stream, stream->issued};
    return result;
  });
}

CudaResult cuGraphDestroy(CudaGraph* graph) {
  return enter("cuGraphDestroy", kNothing, [&](Call& call) {
    return call.driver.graphs.remove(graph) ? kOk
                                            : misused(kInvalidValue, "cuGraphDestroy of what is no graph");
  });
}

CudaResult cuGraphExecDestroy(CudaGraphExec* exec) {
  return enter("cuGraphExecDestroy", kNothing, [&](Call& call) {
    return call.driver.execs.remove(exec) ? kOk
                                          : misused(kInvalidValue, "cuGraphExecDestroy of what is no graph");
  });
}

}  // extern "C"
