// Measures the steps of hasten's Trainer on a GPU, or with --device cpu on the CPU, and prints one
// JSON line. benchmarks/python/gpu_step.py does the same work with the Hugging Face Trainer.
//
//   $ gpu_step --model bert-large --batch 4 --seq 512 --precision fp32|tf32|bf16|fp16
//              [--steps 20] [--blocks 3] [--warm_up 5] [--device cuda|cpu] [--trace FILE]
//              [--cuda_graph auto|0|1] [--attn_implementation sdpa|eager]
//              [--lengths equal|varied] [--padding_free 0|1]
//
// The steps are like those of a real run: batches of random ids from the loader, AdamW, a linear
// schedule, clipping at norm 1. After the warm-up the program measures the time of each block of
// steps, from one wait for the GPU to the next. It fails if the run cannot use the requested
// graphs.
// --trace writes a Chrome trace of the last block, which then takes longer. Varied lengths are
// evenly distributed between an eighth of --seq and --seq, so that 44 % of the tokens are padding,
// as in the main job (docs/design/016-without-padding.md).
#include <ATen/DeviceAccelerator.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/torch.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "hasten/accelerator.h"
#include "hasten/base/files.h"
#include "hasten/data/column_dataset.h"
#include "hasten/device/memory.h"
#include "hasten/models/pretrained_model.h"
#include "hasten/trainer/trainer.h"

namespace {

using namespace hasten;
using Clock = std::chrono::steady_clock;

struct Options {
  std::string model = "bert-base", precision = "fp32", device = "cuda", trace, attention = "sdpa",
              cuda_graph = "auto", lengths = "equal";
  bool padding_free = false;
  std::int64_t batch = 8, seq = 128, steps = 20, blocks = 3, warm_up = 5;
};

[[noreturn]] void exit_with_usage(const std::string& flag) {
  std::fprintf(
      stderr,
      "gpu_step: got %s, expected --model, --batch, --seq, --precision fp32|tf32|bf16|fp16, "
      "--steps, --blocks, --warm_up, --device cuda|cpu, --trace, --cuda_graph auto|0|1, "
      "--attn_implementation sdpa|eager, --lengths equal|varied or --padding_free 0|1, each with a "
      "value\n",
      flag.c_str());
  std::exit(2);
}

Options parse(int argc, char** argv) {
  Options o;
  for (int i = 1; i < argc; i += 2) {
    const std::string flag = argv[i];
    if (i + 1 == argc) exit_with_usage(flag);
    const std::string value = argv[i + 1];
    if (flag == "--model")
      o.model = value;
    else if (flag == "--precision")
      o.precision = value;
    else if (flag == "--device")
      o.device = value;
    else if (flag == "--attn_implementation" && (value == "sdpa" || value == "eager"))
      o.attention = value;
    else if (flag == "--trace")
      o.trace = value;
    else if (flag == "--batch")
      o.batch = std::stoll(value);
    else if (flag == "--seq")
      o.seq = std::stoll(value);
    else if (flag == "--steps")
      o.steps = std::stoll(value);
    else if (flag == "--blocks")
      o.blocks = std::stoll(value);
    else if (flag == "--warm_up")
      o.warm_up = std::stoll(value);
    else if (flag == "--lengths" && (value == "equal" || value == "varied"))
      o.lengths = value;
    else if (flag == "--padding_free" && (value == "0" || value == "1"))
      o.padding_free = value == "1";
    else if (flag == "--cuda_graph" && (value == "auto" || value == "0" || value == "1"))
      o.cuda_graph = value;
    else
      exit_with_usage(flag);
  }
  return o;
}

void wait_for(const std::string& device) {
  if (device == "cpu") return;
  const c10::impl::VirtualGuardImpl guard(at::kCUDA);
  guard.synchronizeDevice(guard.getDevice().index());
}

// Records the time after the warm-up and after each block.
struct Blocks : TrainerCallback {
  explicit Blocks(const Options& options) : options(options) {}
  bool reads_gradients() const override { return false; }
  bool reads_losses() const override { return false; }
  void on_step_end(const TrainerEvent& event, TrainerControl&, double) override {
    const std::int64_t done = event.state.global_step - options.warm_up;
    if (done < 0 || done % options.steps != 0) return;
    trace.reset();  // before the wait, which is not part of the steps
    wait_for(options.device);
    ends.push_back(Clock::now());
    if (!options.trace.empty() && done == (options.blocks - 1) * options.steps)
      trace.emplace(options.trace);
  }
  std::vector<double> step_seconds() const {
    std::vector<double> out;
    for (std::size_t i = 1; i < ends.size(); ++i)
      out.push_back(std::chrono::duration<double>(ends[i] - ends[i - 1]).count() /
                    static_cast<double>(options.steps));
    return out;
  }
  Options options;
  std::vector<Clock::time_point> ends;
  std::optional<ProfileScope> trace;
};

// Returns masks of rows whose lengths are evenly distributed between an eighth of --seq and --seq.
// The lengths of a batch differ, and each batch has rows of many lengths.
at::Tensor masks_of_varied_rows(std::int64_t rows, std::int64_t seq) {
  const std::int64_t least = std::max<std::int64_t>(1, seq / 8), range = seq - least + 1;
  constexpr std::int64_t kStride = 37;  // consecutive rows are not similar
  const at::Tensor lengths = at::arange(rows, at::kLong).mul(kStride).remainder(range).add(least);
  return at::arange(seq, at::kLong).unsqueeze(0).lt(lengths.unsqueeze(1)).to(at::kLong);
}

ColumnDataset rows_of(const Options& o, std::int64_t steps) {
  TensorDict columns = dummy_rows(steps * o.batch, o.seq, vocab_size_of(o.model)).columns();
  if (o.lengths == "varied")
    columns["attention_mask"] = masks_of_varied_rows(steps * o.batch, o.seq);
  if (default_task_of(o.model) == Task::causal_lm) {
    columns["labels"] = columns.at("input_ids").clone();
    if (columns.contains("attention_mask"))
      columns["labels"].masked_fill_(columns.at("attention_mask").eq(0), -100);
  }
  return ColumnDataset(std::move(columns));
}

void print(const Options& o, std::vector<double> seconds) {
  std::sort(seconds.begin(), seconds.end());
  const double median = seconds[seconds.size() / 2];
  std::int64_t allocated = 0, reserved = 0;
  if (o.device != "cpu") {
    const auto stats = at::accelerator::getDeviceStats(0);
    allocated = stats.allocated_bytes[0].peak;
    reserved = stats.reserved_bytes[0].peak;
  }
  std::printf(
      R"({"program": "hasten", "model": "%s", "batch": %lld, "seq": %lld, "precision": "%s", )"
      R"("step_seconds": %.6g, "least": %.6g, "most": %.6g, "samples_per_second": %.6g, )"
      R"("peak_allocated": %lld, "peak_reserved": %lld, "nvml_used": %lld, "host_peak": %lld})"
      "\n",
      o.model.c_str(), static_cast<long long>(o.batch), static_cast<long long>(o.seq),
      o.precision.c_str(), median, seconds.front(), seconds.back(),
      static_cast<double>(o.batch) / median, static_cast<long long>(allocated),
      static_cast<long long>(reserved),
      static_cast<long long>(o.device == "cpu" ? 0 : gpu_memory_used().value_or(0)),
      static_cast<long long>(host_memory().peak_resident));
}

void measure(const Options& o) {
  const TemporaryDirectory folder;
  TrainingArguments args;
  args.output_dir = folder.path().string();
  args.per_device_train_batch_size = o.batch;
  args.max_steps = o.warm_up + o.blocks * o.steps;
  args.logging_strategy = IntervalStrategy::no;
  args.save_strategy = SaveStrategy::no;
  args.use_cpu = o.device == "cpu";
  args.bf16 = o.precision == "bf16";
  args.fp16 = o.precision == "fp16";
  args.padding_free = o.padding_free;
  if (o.cuda_graph != "auto") args.cuda_graph = o.cuda_graph == "1";
  if (!args.use_cpu) args.tf32 = o.precision == "tf32";
  const ColumnDataset rows = rows_of(o, args.max_steps);
  const auto attention =
      o.attention == "eager" ? AttentionImplementation::eager : AttentionImplementation::sdpa;
  const auto model =
      load_model(o.model, {.task = default_task_of(o.model), .attn_implementation = attention})
          .model;
  const auto blocks = std::make_shared<Blocks>(o);
  Trainer trainer(model, args,
                  {.train_dataset = TrainerDataset(rows),
                   .callbacks = {blocks},
                   .log_sink = [](std::string_view line) {
                     if (line.find("cuda_graph") != std::string_view::npos &&
                         line.find("started one by one") != std::string_view::npos)
                       throw std::runtime_error(std::string(line));
                   }});
  trainer.train();
  print(o, blocks->step_seconds());
}

}  // namespace

int main(int argc, char** argv) {
  try {
    measure(parse(argc, argv));
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "gpu_step: %s\n", error.what());
    return 1;
  }
}
