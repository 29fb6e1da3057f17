// Compares plans with the best of all combinations. For each of five small models it measures every
// combination of techniques and batches once. Then it makes a plan for each of four memory limits,
// which lie between the memory of the leanest combination and the memory of the step as asked. It
// measures the plan and the fastest combinations that fit the limit in several more rounds, and
// prints how much slower the plan is than the best combination. The plan and the next larger batch
// run under an allocator that refuses memory beyond the limit, so the plan has to fit. Times are
// the minimum processor times of one thread, which other programs hardly affect. Prints a JSON line
// for each pair of a model and a limit.
//
//   $ plan_quality [--rounds N] [--first MODEL] [--models N] [--exactness other]
#include <c10/core/CPUAllocator.h>
#include <torch/torch.h>

#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <unordered_map>
#include <vector>

#include "hasten/anatomy/out_of_memory.h"
#include "hasten/base/error.h"
#include "hasten/base/files.h"
#include "hasten/base/text.h"
#include "hasten/device/memory.h"
#include "hasten/plan/plan.h"
#include "plan/techniques.h"

namespace {

using namespace hasten;

// Refuses memory beyond a limit, counted from the moment at which the limit is set.
class CappedAllocator : public at::Allocator {
 public:
  void limit(std::int64_t bytes) {
    base_ = live_;
    limit_ = bytes;
  }
  at::DataPtr allocate(std::size_t bytes) override {
    const auto size = static_cast<std::int64_t>(bytes);
    const std::lock_guard lock(mutex_);
    if (limit_ > 0 && live_ - base_ + size > limit_) {
      throw c10::OutOfMemoryError(
          {__func__, __FILE__, __LINE__},
          str("can't allocate memory: you tried to allocate ", size, " bytes"));
    }
    // LibTorch's own allocator reports its blocks. Dry runs learn from these reports what a kernel
    // allocates.
    void* const data = c10::GetDefaultCPUAllocator()->raw_allocate(bytes);
    live_ += size;
    sizes_[data] = size;
    return {data, data, &release, at::kCPU};
  }
  at::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    std::memcpy(to, from, bytes);
  }

 private:
  static void release(void* data);

  std::mutex mutex_;
  std::unordered_map<void*, std::int64_t> sizes_;
  std::int64_t live_ = 0, base_ = 0, limit_ = 0;
};

CappedAllocator& allocator() {
  static CappedAllocator& one = *new CappedAllocator;
  return one;
}

void CappedAllocator::release(void* data) {
  CappedAllocator& own = allocator();
  {
    const std::lock_guard lock(own.mutex_);
    own.live_ -= own.sizes_[data];
    own.sizes_.erase(data);
  }
  c10::GetDefaultCPUAllocator()->raw_deallocate(data);
}

struct Model {
  std::string name, config;
  std::int64_t rows = 16, length = 32;
};

std::string bert(std::int64_t layers, std::int64_t width, std::int64_t vocabulary) {
  return str(R"({"model_type": "bert", "architectures": ["BertForSequenceClassification"],)",
             R"("num_hidden_layers": )", layers, R"(, "hidden_size": )", width,
             R"(, "num_attention_heads": )", width / 32, R"(, "intermediate_size": )", 4 * width,
             R"(, "vocab_size": )", vocabulary, R"(, "max_position_embeddings": 512})");
}

std::vector<Model> models() {
  return {{.name = "deep", .config = bert(6, 128, 500), .rows = 16, .length = 32},
          {.name = "wide", .config = bert(2, 256, 500), .rows = 16, .length = 32},
          {.name = "words", .config = bert(1, 128, 20000), .rows = 16, .length = 32},
          {.name = "long", .config = bert(2, 64, 500), .rows = 8, .length = 256},
          {.name = "flat", .config = bert(1, 192, 2000), .rows = 32, .length = 24}};
}
// The limits, as parts of the way from the memory of the leanest combination to the memory of the
// step as asked.
constexpr double kShares[] = {0.9, 0.6, 0.35, 0.1};

// One combination and what its steps need.
struct Candidate {
  PlanSettings settings;
  std::int64_t rows = 0, accumulation = 1, bytes = 0;
  // The minimum measured processor times of a short run, of a longer one, and of a step.
  double short_run = std::numeric_limits<double>::infinity(), long_run = short_run;
  double seconds = short_run;
};

EstimateOptions step_of(const EstimateOptions& step, const Candidate& candidate) {
  EstimateOptions out = with_settings(step, candidate.settings);
  out.arguments.per_device_train_batch_size = candidate.rows;
  out.arguments.gradient_accumulation_steps = candidate.accumulation;
  return out;
}

double processor_seconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// Runs real steps. The time of a step is computed from the minimum times of two runs, because a
// disturbance in either run would make their difference too small or too large.
void measure(Candidate& candidate, const EstimateOptions& asked) {
  EstimateOptions step = step_of(asked, candidate);
  step.dry = false;
  const auto seconds = [&](std::int64_t steps) {
    step.steps = steps;
    step.arguments.anatomy_steps = 1;
    const double start = processor_seconds();
    (void)estimate(step);
    return processor_seconds() - start;
  };
  constexpr std::int64_t kShort = 2, kLong = 6;
  candidate.short_run = std::min(candidate.short_run, seconds(kShort));
  candidate.long_run = std::min(candidate.long_run, seconds(kLong));
  candidate.seconds = std::max(1e-6, (candidate.long_run - candidate.short_run) / (kLong - kShort));
}

bool runs_within(EstimateOptions step, std::int64_t limit) {
  step.dry = false;
  allocator().limit(limit);
  bool fits = true;
  try {
    (void)estimate(step);
  } catch (const std::exception& error) {
    if (!is_out_of_memory(error)) throw;
    fits = false;
  }
  allocator().limit(0);
  return fits;
}

std::vector<Candidate> all_candidates(const PlanOptions& options) {
  std::vector<Candidate> out;
  const std::int64_t rows = options.step.arguments.per_device_train_batch_size;
  for (const TechniqueSet& set : combinations(options)) {
    for (std::int64_t each = 1; each <= rows; ++each) {
      if (rows % each != 0) continue;
      Candidate candidate{.settings = settings_of(set), .rows = each, .accumulation = rows / each};
      const EstimateOptions step = step_of(options.step, candidate);
      if (!is_valid(step.arguments)) continue;
      candidate.bytes = needed_bytes(estimate(step).memory);
      out.push_back(candidate);
    }
  }
  return out;
}

std::string text_of(const Candidate& each) {
  std::vector<std::string> words = {str(each.rows, " x ", each.accumulation)};
  for (const auto& [name, value] : each.settings) words.push_back(str(name, "=", value));
  return join(words, " ");
}

void compare(const Model& model, PlanOptions options, std::vector<Candidate>& all, int rounds) {
  nlohmann::ordered_json line = {{"model", model.name}, {"limit", options.memory}};
  try {
    const StepPlan plan = plan_step(options);
    Candidate own{.settings = plan.settings, .rows = plan.rows, .accumulation = plan.accumulation};
    Candidate* planned = &own;
    std::vector<Candidate*> fitting;
    for (Candidate& each : all) {
      if (each.bytes <= options.memory) fitting.push_back(&each);
      if (text_of(each) == text_of(own)) planned = &each;
    }
    Candidate& chosen = *planned;
    const auto faster = [](const Candidate* a, const Candidate* b) {
      return a->seconds < b->seconds;
    };
    for (int round = 0; round < rounds; ++round) {
      std::sort(fitting.begin(), fitting.end(), faster);
      for (std::size_t i = 0; i < std::min<std::size_t>(3, fitting.size()); ++i)
        measure(*fitting[i], options.step);
      measure(chosen, options.step);
    }
    const Candidate& best = **std::min_element(fitting.begin(), fitting.end(), faster);
    line["plan"] = text_of(chosen);
    line["best"] = text_of(best);
    line["plan_ms"] = 1000 * chosen.seconds;
    line["predicted_ms"] = 1000 * plan.cost.seconds;
    line["best_ms"] = 1000 * best.seconds;
    line["slower"] = chosen.seconds / best.seconds;
    line["fitting"] = fitting.size();
    line["fits"] = runs_within(step_of(options.step, chosen), options.memory);
    if (plan.next_bytes > options.memory) {  // a larger batch that also fits is slower
      Candidate next = chosen;
      next.rows = plan.next_rows;
      next.accumulation = model.rows / plan.next_rows;
      line["next_larger_fits"] = runs_within(step_of(options.step, next), options.memory);
    }
    line["plan_seconds"] = plan.seconds;
  } catch (const MemoryError& error) {
    line["error"] = error.what();
  }
  std::printf("%s\n", line.dump().c_str());
  std::fflush(stdout);
}

void compare_all(const Model& model, int rounds, Exactness exactness) {
  const TemporaryDirectory folder;
  const auto config = folder.path() / "config.json";
  write_file_atomically(config, model.config);
  PlanOptions options{
      .step = {.model = config.string(),
               .length = model.length,
               .arguments = {.per_device_train_batch_size = model.rows, .num_threads = 1}},
      .exactness = exactness};
  const std::int64_t asked = needed_bytes(estimate(options.step).memory);
  std::vector<Candidate> all = all_candidates(options);
  for (Candidate& each : all) measure(each, options.step);
  std::int64_t least = asked;
  for (const Candidate& each : all) least = std::min(least, each.bytes);
  for (const double share : kShares) {
    options.memory = least + static_cast<std::int64_t>(share * static_cast<double>(asked - least));
    compare(model, options, all, rounds);
  }
}

}  // namespace

int main(int argc, char** argv) {
  int rounds = 3, first = 0, count = 1000;
  Exactness exactness = Exactness::rounding;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string argument = argv[i];
    if (argument == "--rounds") rounds = std::atoi(argv[i + 1]);
    if (argument == "--first") first = std::atoi(argv[i + 1]);
    if (argument == "--models") count = std::atoi(argv[i + 1]);
    if (argument == "--exactness") exactness = from_name<Exactness>(argv[i + 1]).value();
  }
  at::set_num_threads(1);
  keep_freed_memory();
  c10::SetCPUAllocator(&allocator(), /*priority=*/100);
  const std::vector<Model> all = models();
  for (int i = first; i < static_cast<int>(all.size()) && i < first + count; ++i)
    compare_all(all[static_cast<std::size_t>(i)], rounds, exactness);
  return 0;
}
