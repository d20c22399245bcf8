// Schedules as text: files of other projects, round trips, and errors in a text.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "json.hpp"
#include "pipeline/catalog.hpp"
#include "pipeline/text.hpp"

extern "C" {
#include <cmocka.h>  // included last because it defines a macro fail()
}

namespace {

using dsc::PipeFormat;
using dsc::PipelinePlan;
using dsc::PipeMessages;
using support::Json;

std::string vectors_folder;

template <typename Body>
size_t for_each_case(const char* file_name, Body body) {
  std::ifstream file(vectors_folder + "/" + file_name);
  size_t cases = 0;
  for (std::string line; std::getline(file, line); ++cases) body(Json::parse(line));
  return cases;
}

std::string rows(const Json& lists) {
  std::string text;
  for (const Json& row : lists) text += row.get<std::string>() + "\n";
  return text;
}

void same(const std::string& got, const std::string& expected, const std::string& of) {
  if (got != expected) fail_msg("%s:\n%s\nexpected:\n%s", of.c_str(), got.c_str(), expected.c_str());
}

std::string name_of(const Json& json) {
  return json["schedule"].get<std::string>() + " " + json.value("ranks", Json()).dump() + " " +
         json["microbatches"].dump() + " " + json["local_stages"].dump();
}

// Returns the text without the cells in which nothing is computed.
std::string without_idle(const std::string& text) {
  std::string out;
  for (const char c : text) {
    const bool after_nothing = out.empty() || out.back() == ',' || out.back() == '\n';
    if (c == ',' && after_nothing) continue;
    if (c == '\n' && !out.empty() && out.back() == ',') out.pop_back();
    out += c;
  }
  return out;
}

std::string with_messages_of_pytorch(const PipelinePlan& plan, bool merge) {
  const auto changed = dsc::changed(plan, merge, PipeMessages::kAtOnce);
  return write_schedule(*changed, PipeFormat::kPyTorchComms);
}

void pytorch_with_and_without_messages(void**) {
  size_t read = 0;
  const size_t cases = for_each_case("pt_sched_multi.jsonl", [&](const Json& json) {
    if (!json.contains("comms")) return;
    const std::string text = rows(json["compute"]);
    const auto plan = dsc::read_schedule(text, PipeFormat::kPyTorchCompute);
    same(write_schedule(*plan, PipeFormat::kPyTorchCompute), text, name_of(json));
    same(with_messages_of_pytorch(*plan, false), rows(json["comms"]), name_of(json));
    same(with_messages_of_pytorch(*plan, true),
         rows(json.contains("comms_merged") ? json["comms_merged"] : json["comms"]),
         name_of(json) + " merged");
    const auto given = dsc::read_schedule(rows(json["comms"]), PipeFormat::kPyTorchComms);
    same(write_schedule(*given, PipeFormat::kPyTorchComms), rows(json["comms"]), name_of(json) + " given");
    ++read;
  });
  assert_true(cases > 40 && read > 25);
}

void generators_like_pytorch(void**) {
  size_t equal = 0;
  for_each_case("pt_sched_multi.jsonl", [&](const Json& json) {
    const std::string kind = json["schedule"];
    if (kind == "InterleavedZeroBubble") return;  // libdsc has no schedule of this name, but can read it
    const char* name = kind == "LoopedBFS"       ? "looped_bfs"
                       : kind == "ZBVZeroBubble" ? "zb_v"
                                                 : "interleaved_1f1b";
    dsc::ScheduleSpec spec{.name = name,
                           .stages = json["ranks"],
                           .micro_batches = json["microbatches"],
                           .chunks = json["local_stages"]};
    if (json.contains("error")) {
      try {
        dsc::make_plan(spec);
      } catch (const dsc::Error& error) {
        assert_int_equal(error.code(), DSC_ERR_INVALID_ARG);
        return;
      }
      fail_msg("%s was made", name_of(json).c_str());
    }
    same(write_schedule(*dsc::make_plan(spec), PipeFormat::kPyTorchCompute),
         without_idle(rows(json["compute"])), name_of(json));
    ++equal;
  });
  assert_true(equal > 20);
}

void dualpipe_v_like_pytorch(void**) {
  const size_t cases = for_each_case("dualpipev.jsonl", [](const Json& json) {
    const auto plan = dsc::make_plan(
        {.name = "dualpipe_v", .stages = json["ranks"], .micro_batches = json["microbatches"]});
    const std::string text = rows(json["rows"]);
    same(write_schedule(*plan, PipeFormat::kPyTorchCompute), text, "dualpipe_v");
    const auto read = dsc::read_schedule(text, PipeFormat::kPyTorchCompute);
    same(write_schedule(*read, PipeFormat::kPyTorchCompute), text, "dualpipe_v, read");
  });
  assert_true(cases >= 8);
}

// Checks the sends of Megatron-LM's fused calls, in order, as micro-batch and chunk, and the number of
// receives.
void check_messages(const PipelinePlan& plan, const Json& json) {
  Json sent = Json::parse("[[], []]"), received = Json::parse("[0, 0]");
  const auto list = instructions_of(plan, json["rank"]);
  for (dsc::Instruction it; list->next(it);) {
    if (it.op == dsc::PipeOp::kSendActivation) sent[0].push_back(Json{it.micro_batch, it.chunk});
    if (it.op == dsc::PipeOp::kSendGrad) sent[1].push_back(Json{it.micro_batch, it.chunk});
    if (it.op == dsc::PipeOp::kRecvActivation) received[0] = received[0].get<int>() + 1;
    if (it.op == dsc::PipeOp::kRecvGrad) received[1] = received[1].get<int>() + 1;
  }
  if (sent != json["sent"] || received != json["received"])
    fail_msg("%s: sent %s, received %s", json.dump().c_str(), sent.dump().c_str(), received.dump().c_str());
}

void interleaved_like_megatron(void**) {
  size_t equal = 0;
  for_each_case("mg_sched_interleaved.jsonl", [&](const Json& json) {
    const dsc::ScheduleSpec spec{.name = "interleaved_1f1b",
                                 .stages = json["pp"],
                                 .micro_batches = json["num_microbatches"],
                                 .chunks = json["vp"],
                                 .micro_batch_group = json["group"]};
    if (json.contains("error")) {
      try {
        dsc::make_plan(spec);
      } catch (const dsc::Error&) {
        return;
      }
      fail_msg("was made: %s", json.dump().c_str());
    }
    const auto plan = dsc::make_plan(spec);
    check_messages(*plan, json);
    const std::string all = write_schedule(*plan, PipeFormat::kMegatronOrder);
    size_t start = 0;
    for (int32_t rank = 0; rank < json["rank"].get<int32_t>(); ++rank) start = all.find('\n', start) + 1;
    const Json got = Json::parse(all.substr(start, all.find('\n', start) - start));
    if (got != json["order"]) fail_msg("%s: got %s", json.dump().c_str(), got.dump().c_str());
    ++equal;
  });
  assert_int_equal(equal, 151);
}

// ---- round trips ----

bool same_order(const PipelinePlan& a, const PipelinePlan& b) {
  if (a.spec.stages != b.spec.stages || a.spec.chunks != b.spec.chunks ||
      a.spec.micro_batches != b.spec.micro_batches || a.spec.forward_only != b.spec.forward_only)
    return false;
  if (a.spec.chunks > 1 && a.spec.stages > 1 && a.placement.shape() != b.placement.shape()) return false;
  for (int32_t s = 0; s < a.spec.stages; ++s) {
    if (a.order->size(s) != b.order->size(s)) return false;
    for (int64_t k = 0; k < a.order->size(s); ++k)
      if (a.order->at(s, k) != b.order->at(s, k)) return false;
  }
  return true;
}

bool can_write(const PipelinePlan& plan, PipeFormat format) {
  try {
    write_schedule(plan, format);
    return true;
  } catch (const dsc::Error& error) {
    assert_int_equal(error.code(), DSC_ERR_INVALID_ARG);
    return false;
  }
}

void round_trip(const PipelinePlan& plan, PipeFormat format) {
  const std::string what = plan.spec.name + " as format " + std::to_string(static_cast<int>(format));
  const std::string text = write_schedule(plan, format);
  const auto read = dsc::read_schedule(text, format);
  if (!same_order(plan, *read)) fail_msg("%s: another order:\n%s", what.c_str(), text.c_str());
  const std::string again = write_schedule(*read, format);
  const bool loads_move = format == PipeFormat::kDeepSpeedSteps && plan.spec.name == "deepspeed_inference";
  if (!loads_move) same(again, text, what);
  same(write_schedule(*dsc::read_schedule(again, format), format), again, what + ", again");
}

void round_trips(void**) {
  int trips[6] = {};
  for (const char* name :
       {"gpipe", "1f1b", "interleaved_1f1b", "looped_bfs", "zb_h1", "zb_h2", "zb_v", "v_half", "v_min",
        "dualpipe_v", "deepspeed_train", "deepspeed_inference", "data_parallel"})
    for (int32_t stages = 1; stages <= 4; ++stages)
      for (const bool forward_only : {false, true})
        for (int format = 1; format <= 5; ++format) {
          const bool is_closed = std::strstr(name, "deepspeed") || std::strstr(name, "data");
          if (is_closed && forward_only) continue;
          const auto plan = dsc::make_plan(
              {.name = name, .stages = stages, .micro_batches = 2 * stages, .forward_only = forward_only});
          if (!can_write(*plan, static_cast<PipeFormat>(format))) continue;
          round_trip(*plan, static_cast<PipeFormat>(format));
          ++trips[format];
        }
  assert_int_equal(trips[1], 12 * 4 + 10 * 4);  // all schedules except data_parallel
  assert_int_equal(trips[2], 12 * 4 + 10 * 4);
  assert_true(trips[3] >= 20 && trips[4] >= 20);
  assert_int_equal(trips[5], 13 * 4 + 10 * 4);
}

void lines_of_windows(void**) {
  const auto plan = dsc::read_schedule("0F0 , 0B0\r\n1F0,1B0\r\n", PipeFormat::kPyTorchCompute);
  same(write_schedule(*plan, PipeFormat::kPyTorchCompute), "0F0,0B0\n1F0,1B0\n", "spaces");
}

// ---- errors ----

void refused(const std::string& text, PipeFormat format, const char* words) {
  try {
    dsc::read_schedule(text, format);
  } catch (const dsc::Error& error) {
    assert_int_equal(error.code(), DSC_ERR_INVALID_ARG);
    if (!std::strstr(error.what(), words)) fail_msg("\"%s\" does not say \"%s\"", error.what(), words);
    return;
  }
  fail_msg("accepted, expected: %s", words);
}

void wrong_csv(void**) {
  const auto csv = [](const char* text, const char* words) {
    refused(text, PipeFormat::kPyTorchCompute, words);
  };
  csv("", "no stages");
  csv("\n", "no operations");
  csv("0F0,0X0\n", "line 1, column 6: \"X0\", expected F, B, I or W");
  csv("0F0,0B0\n1F0,B0\n", "line 2, column 5: \"B0\", expected [stage][action][micro-batch], as in 2F0");
  csv("0F0,0B", "line 1, column 7: the line ends, expected a number");
  csv("0F99999999999,0B0", "column 3");
  csv("0F0 0B0", "line 1, column 5: \"0B0\", expected the end of the line");
  csv("(0F0;0B0\n", "expected \")\"");
  csv("0UNSHARD,0F0,0B0", "\"UNSHARD,0F0,0B0\", expected F, B, I or W");
  csv("0F0,0SEND_F0,0B0", "only in the format pytorch_comms");
  csv("0F2000000000,0B0", "there are 2 operations, expected");
  csv("2000000000F0,0B0", "2000000001 stages of the model");
  csv("1F0,1B0\n0F0,0B0\n", "line 1: stage 1 of the model is on rank 0, expected rank 1");
  csv("0F0,0B0\n1F0,1B0\n2F0,2B0,0B1,0F1\n", "operations");
  csv("0F0,0B0\n\n1F0,1B0\n", "line 2, column 1: the line ends, expected the operations of a rank");
  csv("\n0F0,0B0\n", "line 1, column 1: the line ends, expected the operations of a rank");
  csv("0F0,0B0\n1F0\n",
      "2 stages of the model (the highest in line 2) and 1 micro-batches (the highest in line 1)");
  csv("0F0,0B0\n1F0,1B0,2F0,2B0\n",
      "there are 3 stages of the model (the highest in line 2) on 2 ranks, expected a multiple of 2 stages");
  csv("0F0,0F1,0B0,0B0\n1F0,1F1,1B0,1B1\n",
      "stage 0: operation 3, backward of micro-batch 0 in chunk 0, occurs a second time");
  csv("0F0,0F1,0B0,0I1\n1F0,1F1,1B0,1B1\n", "no backward_weight of micro-batch 1");
  csv("0F0,0B0,0F1,0B1\n1F1,1F0,1B0,1B1\n",
      "these stages wait for each other: stage 0 at operation 1 (backward of micro-batch 0 in chunk 0) for "
      "stage 1, "
      "stage 1 at operation 0 (forward of micro-batch 1 in chunk 0) for stage 0");
}

void wrong_messages(void**) {
  const auto csv = [](const char* text, const char* words) {
    refused(text, PipeFormat::kPyTorchComms, words);
  };
  csv("0F0,,0B0",
      "line 1, column 5: \",0B0\", expected an action (in the format pytorch_comms, no cell may be empty)");
  csv("0F0,0SEND_F0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0\n",
      "stage 0: step 2, recv_grad of micro-batch 0 in chunk 0, waits for a send that stage 1 does not make");
  csv("0F0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0\n",
      "stage 1: step 0, recv_activation of micro-batch 0 in chunk 0, waits for a send that stage 0 does not "
      "make");
  csv("0SEND_F0,0F0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0\n",
      "stage 0: step 0, send_activation of micro-batch 0 in chunk 0, is sent before it is computed");
  csv("0F0,0SEND_F0,0RECV_B0,0B0\n1F0,1RECV_F0,1B0,1SEND_B0\n",
      "stage 1: step 0, forward of micro-batch 0 in chunk 0, runs before its input was received");
  csv("0F0,0SEND_B0,0B0\n1F0,1B0\n", "has no peer: this chunk is the first part of the model");
  csv("0F0,0F1,0SEND_F0,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1\n1RECV_F1,1RECV_F0,1F0,1F1,1B0,1SEND_B0,1B1,1SEND_"
      "B1\n",
      "these stages wait for each other: stage 0 in step 2 (send_activation of micro-batch 0 in chunk 0) for "
      "stage "
      "1, stage 1 "
      "in step 0 (recv_activation of micro-batch 1 in chunk 0) for stage 0");
}

void wrong_others(void**) {
  const auto deepspeed = [](const char* text, const char* words) {
    refused(text, PipeFormat::kDeepSpeedSteps, words);
  };
  deepspeed("step 0: ForwardPass(buffer_id=0)\n", "\"stage\" first");
  deepspeed("stage 1\n", "line 1: expected stage 0 next");
  deepspeed("stage 0\nstep 1:\n", "line 2: expected step 0 next");
  deepspeed("stage 0\nstep 0: Forward(buffer_id=0)\n",
            "line 2, column 9: \"Forward(buffer_id=0)\", expected one of");
  deepspeed("stage 0\nstep 0: ForwardPass\n", "expected \"(buffer_id=\"");
  deepspeed(
      "stage 0\nstep 0: ForwardPass(buffer_id=0)\nstep 1: ForwardPass(buffer_id=0)\n"
      "step 2: BackwardPass(buffer_id=0)\nstep 3: BackwardPass(buffer_id=0)\n",
      "stage 0: step 1, micro-batch 1 is put into buffer 0, which still holds micro-batch 0");
  const auto megatron = [](const char* text, const char* words) {
    refused(text, PipeFormat::kMegatronOrder, words);
  };
  megatron("1, -1\n", "expected \"[\"");
  megatron("[1, 0]\n", "line 1, column 5: \"0]\", expected a number other than 0");
  megatron("[1, -1\n", "expected \"]\"");
  megatron("[1, -1]\n[-1, 1]\n", "stage 1: operation 0, backward of micro-batch 0 in chunk 0, comes before");
  const auto json = [](const char* text, const char* words) { refused(text, PipeFormat::kJson, words); };
  json("{", "not valid JSON");
  json("[]", "the text is a list of 0, expected an object");
  json("{}", "\"format\" is missing");
  json(R"({"format": "x"})", "format is \"x\", expected \"libdsc pipeline schedule\"");
  std::string good = write_schedule(*dsc::make_plan({.name = "gpipe", .stages = 1}), PipeFormat::kJson);
  const auto changed = [&](const char* from, const char* to, const char* words) {
    std::string text = good;
    text.replace(text.find(from), std::strlen(from), to);
    refused(text, PipeFormat::kJson, words);
  };
  changed("\"version\":1", "\"version\":2", "version is 2, expected 1");
  changed("\"chunks\":1", "\"chunks\":1.5", "chunks is 1.5, expected a whole number from 1");
  changed("\"micro_batches\":1", "\"micro_batches\":2000000000", "there are 2 operations");
  changed("\"forward\",0", "\"forwards\",0",
          "orders[0][0][0] is \"forwards\", expected the name of an operation");
  changed("\"loop\"", "\"circle\"", "placement is \"circle\"");
}

// Texts that an attacker would give to the parser.
void traps(void**) {
  const auto deepspeed = [](const char* line, const char* words) {
    refused(std::string("stage 0\n") + line, PipeFormat::kDeepSpeedSteps, words);
  };
  deepspeed("step 0: ForwardPass(buffer_id=2147483647), BackwardPass(buffer_id=2147483647)\n",
            "buffer is 2147483647, expected 0 to 0");
  deepspeed("step 0: ForwardPass(buffer_id=0), BackwardPass(buffer_id=5)\n",
            "backward of micro-batch 0 has buffer 5, expected buffer 0, which holds this micro-batch");
  const auto comms = [](const char* text, const char* words) {
    refused(text, PipeFormat::kPyTorchComms, words);
  };
  comms("0F0,0SEND_F0,0RECV_B0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0,1SEND_B0\n",
        "send_grad of micro-batch 0 in chunk 0, occurs a second time");
  comms("0F0,0SEND_F0,0RECV_B0,0B0\n1RECV_F0,(1F0;1B0)OVERLAP_F_B,1SEND_B0\n",
        "comes before its forward pass");
  const auto csv = [](const char* text, const char* words) {
    refused(text, PipeFormat::kPyTorchCompute, words);
  };
  csv("(0F0;0F0)OVERLAP_F_B,0B0,0B0",
      "overlaps the next operation: expected a pair of one forward and one backward pass");
  csv("(0F0;0F1)OVERLAP_F_B,0B0,0B1", "overlaps the next operation: expected a pair");
  csv("0F0,0F1,(0B0;0B1)OVERLAP_F_B", "overlaps the next operation: expected a pair");
  const std::string json =
      R"({"format":"libdsc pipeline schedule","version":1,"name":"x","stages":1,"chunks":1,"micro_batches":2,)"
      R"("micro_batch_group":0,"placement":"loop","forward_only":false,"messages":"when_needed",)";
  const auto programs = [&](const char* steps, const char* events, const char* words) {
    refused(json + "\"programs\":[{\"steps\":" + steps + ",\"events\":[" + events + "]}]}", PipeFormat::kJson,
            words);
  };
  programs("4",
           R"({"op":["forward",0,0],"step":0,"buffer":0},{"op":["backward",0,0],"step":1,"buffer":0},)"
           R"({"op":["forward",0,1],"step":2,"buffer":-1},{"op":["backward",0,1],"step":3,"buffer":-1})",
           "some operations have a buffer and others have none, expected a buffer for all or for none");
  refused(
      json + R"("orders":[[["forward",0,0],["backward",0,0],["forward",0,1],["backward",0,1,"overlaps"]]]})",
      PipeFormat::kJson, "overlaps the next operation: expected a pair");
  const auto blank = dsc::read_schedule("0F0,0B0\n1F0,1B0\n\n", PipeFormat::kPyTorchCompute);
  assert_int_equal(blank->spec.stages, 2);
}

// Short texts that would need much memory or a deep stack.
void small_texts_for_much(void**) {
  const auto json = [](const std::string& text, const char* words) {
    refused(text.c_str(), PipeFormat::kJson, words);
  };
  json(std::string(2000000, '['), "byte 16: lists and objects are nested more than 16 deep");
  json(std::string(2000000, '{'), "byte 16: lists and objects are nested more than 16 deep");
  json(R"({"format": "[[[[[[[[[[[[[[[[[[\"[["})", "format is");
  std::string text =
      write_schedule(*dsc::make_plan({.name = "deepspeed_train", .stages = 1}), PipeFormat::kJson);
  const char* const steps = "\"steps\":2";
  text.replace(text.find(steps), std::strlen(steps), "\"steps\":2147483647");
  json(text, "stage 0 has 2147483647 steps, expected at most 1048608 for 2 operations and messages");
}

void wrong_pairs(void**) {
  const auto refuse = [](std::vector<dsc::Compute> order, const char* words) {
    dsc::ScheduleSpec spec{.name = "pairs", .stages = 1, .micro_batches = 2, .chunks = 1};
    try {
      dsc::make_custom(spec, {std::move(order)}, dsc::PlacementShape::kLoop);
      fail_msg("accepted, expected: %s", words);
    } catch (const dsc::Error& error) {
      assert_int_equal(error.code(), DSC_ERR_INVALID_ARG);
      assert_non_null(std::strstr(error.what(), words));
    }
  };
  using dsc::PipeOp;
  const auto op = [](PipeOp what, int32_t m, bool overlaps = false) {
    return dsc::Compute{what, 0, m, overlaps};
  };
  const auto f = PipeOp::kForward, b = PipeOp::kBackward;
  refuse({op(f, 0, true), op(f, 0), op(b, 0), op(f, 1), op(b, 1)},
         "operation 0, forward of micro-batch 0 in chunk 0, overlaps the next operation: expected a pair");
  refuse({op(f, 0), op(f, 1), op(b, 0, true), op(b, 1)},
         "operation 2, backward of micro-batch 0 in chunk 0, overlaps the next operation: expected a pair");
  refuse({op(f, 0), op(f, 1, true), op(b, 0, true), op(b, 1)},
         "operation 1, forward of micro-batch 1 in chunk 0, overlaps the next operation: expected a pair");
  refuse({op(f, 0), op(f, 1), op(b, 0), op(b, 1, true)},
         "operation 3, backward of micro-batch 1 in chunk 0, overlaps the next operation: expected a pair");
  refuse({op(f, 0), op(f, 1, true), {}, op(b, 0), op(b, 1)},
         "operation 1, forward of micro-batch 1 in chunk 0, overlaps the next operation: expected a pair");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    print_error("usage: %s FOLDER_OF_THE_VECTORS\n", argv[0]);
    return 1;
  }
  vectors_folder = argv[1];
  const CMUnitTest tests[] = {
      cmocka_unit_test(pytorch_with_and_without_messages),
      cmocka_unit_test(generators_like_pytorch),
      cmocka_unit_test(dualpipe_v_like_pytorch),
      cmocka_unit_test(interleaved_like_megatron),
      cmocka_unit_test(round_trips),
      cmocka_unit_test(lines_of_windows),
      cmocka_unit_test(wrong_csv),
      cmocka_unit_test(wrong_messages),
      cmocka_unit_test(wrong_others),
      cmocka_unit_test(traps),
      cmocka_unit_test(small_texts_for_much),
      cmocka_unit_test(wrong_pairs),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
