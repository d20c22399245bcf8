// Pipeline schedules: what each stage computes, sends and receives, and in which order.
#ifndef DSC_CPP_PIPE_HPP
#define DSC_CPP_PIPE_HPP

#include <cstdint>
#include <dsc/cpp/handle.hpp>
#include <optional>
#include <string>

namespace dsc {
inline namespace v0 {

// One instruction. Fields that do not apply to its op are -1.
struct pipe_instruction {
  explicit pipe_instruction(const dsc_pipe_instruction_t& raw)
      : step(raw.step),
        op(static_cast<pipe_op>(raw.op)),
        micro_batch(raw.micro_batch),
        chunk(raw.chunk),
        buffer(raw.buffer),
        peer(raw.peer) {}

  std::int64_t step;
  pipe_op op;
  std::int32_t micro_batch, chunk, buffer, peer;
};

// A schedule of one stage, or of the whole pipeline. One thread at a time for next(), reset() and pipe_run().
class pipe_schedule {
 public:
  explicit pipe_schedule(const pipe_schedule_options& options)
      : handle_(detail::query<dsc_pipe_schedule_t*>(dsc_pipe_schedule_create, &options)) {}

  // A schedule by its name, such as "1f1b". Stage -1: the whole pipeline.
  pipe_schedule(const std::string& name, std::int32_t stages, std::int32_t stage, std::int32_t micro_batches)
      : pipe_schedule(described(name, stages, stage, micro_batches)) {}

  dsc_pipe_schedule_t* get() const noexcept { return handle_.get(); }

  // The next instruction; nothing after the last one.
  std::optional<pipe_instruction> next() {
    auto raw = detail::sized<dsc_pipe_instruction_t>();
    if (check(dsc_pipe_schedule_next(get(), &raw)) == DSC_DONE) return std::nullopt;
    return pipe_instruction(raw);
  }
  void reset() { check(dsc_pipe_schedule_reset(get())); }

  // The schedule of another stage.
  pipe_schedule at_stage(std::int32_t stage) const {
    return pipe_schedule(detail::query<dsc_pipe_schedule_t*>(dsc_pipe_schedule_at_stage, get(), stage));
  }

  std::string name() const {
    return read_text([&](char* text, std::size_t capacity, std::size_t* needed) {
      return dsc_pipe_schedule_name(get(), text, capacity, needed);
    });
  }
  dsc_pipe_schedule_info_t info() const {
    auto made = detail::sized<dsc_pipe_schedule_info_t>();
    check(dsc_pipe_schedule_info(get(), &made));
    return made;
  }
  std::int64_t steps() const { return detail::query<std::int64_t>(dsc_pipe_schedule_steps, get()); }

  // The number of micro-batches that the stage must be able to hold at the same time.
  std::int32_t buffers() const { return detail::query<std::int32_t>(dsc_pipe_schedule_buffers, get()); }

 private:
  explicit pipe_schedule(dsc_pipe_schedule_t* owned) noexcept : handle_(owned) {}

  static pipe_schedule_options described(const std::string& name, std::int32_t stages, std::int32_t stage,
                                         std::int32_t micro_batches) {
    pipe_schedule_options made;
    made.name = name.c_str();
    made.stages = stages;
    made.stage = stage;
    made.micro_batches = micro_batches;
    return made;
  }

  handle<dsc_pipe_schedule_t, dsc_pipe_schedule_destroy> handle_;
};

}  // namespace v0
}  // namespace dsc

#endif  // DSC_CPP_PIPE_HPP
