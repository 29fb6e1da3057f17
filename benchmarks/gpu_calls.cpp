// Compares the predicted times of single calls on a GPU with the times that gpu_calibration
// measured there (benchmarks/results/gpu). Prints a Markdown row for each group and format, or with
// --all one for each call. Leaves out calls for which the GPU waits for the host. Fails if the mean
// error is larger than docs/gpu.md says. Needs no GPU.
//
//   $ gpu_calls FILE [--all]
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "anatomy/call_time.h"
#include "hasten/base/error.h"
#include "hasten/base/files.h"
#include "hasten/base/text.h"
#include "named_arguments.h"

namespace {

using namespace hasten;
using anatomy::CallShapes;
using nlohmann::json;

// The host submits a call in at most this share of the call's time, so the GPU did not wait.
constexpr double kHostShare = 0.89;
constexpr double kMaxMeanError = 0.10;

struct Format {
  at::ScalarType type = at::kFloat;
  bool tf32 = false;
};
Format format_of(const std::string& name) {
  if (name == "bfloat16") return {at::kBFloat16};
  if (name == "float16") return {at::kHalf};
  return {at::kFloat, name == "tf32"};
}

// Returns the numbers of a shape such as "48 of 512x64x512", "[8192, 768]" or "4x16x512x64 causal".
std::vector<std::int64_t> sizes_in(const std::string& shape) {
  std::vector<std::int64_t> sizes;
  std::string digits;
  for (const char each : shape + " ") {
    if (each >= '0' && each <= '9') {
      digits += each;
    } else if (!digits.empty()) {
      sizes.push_back(std::stoll(digits));
      digits.clear();
    }
  }
  return sizes;
}

std::vector<std::vector<std::int64_t>> operands_of(const std::string& group,
                                                   const std::vector<std::int64_t>& s) {
  if (group == "product") return {{s[0], s[2]}, {s[2], s[1]}};
  if (group == "batched product") return {{s[0], s[1], s[3]}, {s[0], s[3], s[2]}};
  if (group == "attention") return {s, s, s};
  if (group == "attention, backward") return {s, s, s, s};
  return {s};
}

CallShapes shapes_of(const json& call, const Format& format) {
  const std::string name = call["name"], shape = call["shape"];
  CallShapes shapes;
  for (const auto& sizes : operands_of(call["group"], sizes_in(shape))) {
    const std::int64_t numel = c10::multiply_integers(sizes);
    shapes.first.push_back(shapes.inputs.size());
    shapes.inputs.push_back(
        {.sizes = sizes,
         .numel = numel,
         .bytes = numel * static_cast<std::int64_t>(c10::elementSize(format.type)),
         .type = format.type});
  }
  shapes.first.push_back(shapes.inputs.size());
  if (name == "aten::sum")
    shapes.values =
        benchmarks::values_by_name(name, "dim_IntList", {{"dim", c10::List<std::int64_t>({0})}});
  if (shape.find("causal") != std::string::npos)
    shapes.values = benchmarks::values_by_name(name, "", {{"is_causal", true}});
  return shapes;
}

double predict(const json& call, const anatomy::GpuSpeed& gpu) {
  const Format format = format_of(call["format"]);
  const CallShapes shapes = shapes_of(call, format);
  const std::string name = call["name"];
  return time_of_call({.name = name,
                       .shapes = shapes,
                       .flops = call["flops"],
                       .bytes = call["bytes"],
                       .tf32 = format.tf32},
                      gpu)
      .kernels;
}

// The errors of predictions: how much too long they are, as a share of the measured time.
class Errors {
 public:
  void add(double predicted, double measured) { all_.push_back(predicted / measured - 1); }
  double mean() const {
    double sum = 0;
    for (const double each : all_) sum += std::abs(each);
    return all_.empty() ? 0 : sum / static_cast<double>(all_.size());
  }
  double worst() const {
    double worst = 0;
    for (const double each : all_) worst = std::abs(each) > std::abs(worst) ? each : worst;
    return worst;
  }
  std::size_t within() const {
    return static_cast<std::size_t>(
        std::count_if(all_.begin(), all_.end(), [](double each) { return std::abs(each) < 0.1; }));
  }
  std::size_t count() const { return all_.size(); }

 private:
  std::vector<double> all_;
};

// The errors of this version's predictions, and of those that the measuring program recorded.
struct Group {
  Errors now, recorded;
};

void print(const std::string& name, const Group& group) {
  std::printf("| %s | %zu | %.1f %% | %+.0f %% | %.1f %% | %+.0f %% | %zu |\n", name.c_str(),
              group.now.count(), 100 * group.recorded.mean(), 100 * group.recorded.worst(),
              100 * group.now.mean(), 100 * group.now.worst(), group.now.within());
}

int compare(const std::filesystem::path& file, bool prints_all) {
  std::map<std::string, Group> groups;
  Group all;
  for (const std::string& line : split(read_file(file), '\n')) {
    if (line.empty()) continue;
    const json record = json::parse(line);
    const json& call = record.value("values", json::object());
    if (record.value("part", "") != "calibrate" || call.value("kind", "") != "call") continue;
    const double measured = call["seconds"], host = call["host_seconds"];
    if (host > kHostShare * measured) continue;
    const double now =
        predict(call, anatomy::speed_of(find_gpu("cuda:" + record.value("gpu", ""))));
    Group& group =
        groups[call["group"].get<std::string>() + " | " + call["format"].get<std::string>()];
    for (Group* each : {&group, &all}) {
      each->now.add(now, measured);
      each->recorded.add(call["predicted_seconds"], measured);
    }
    if (prints_all)
      std::printf("| %s | %s | %s | %.1f | %.1f | %+.0f %% |\n",
                  call["name"].get<std::string>().c_str(), call["shape"].get<std::string>().c_str(),
                  call["format"].get<std::string>().c_str(), 1e6 * measured, 1e6 * now,
                  100 * (now / measured - 1));
  }
  std::printf(
      "\n| group | format | calls | recorded: mean | worst | now: mean | worst | within 10 %% |\n"
      "|---|---|---:|---:|---:|---:|---:|---:|\n");
  for (const auto& [name, group] : groups) print(name, group);
  print("all | all", all);
  const bool holds = all.now.count() > 0 && all.now.mean() <= kMaxMeanError;
  if (!holds) std::printf("This is worse than docs/gpu.md says.\n");
  return holds ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    if (argc < 2) throw std::invalid_argument("got no file, expected gpu_calls FILE [--all]");
    return compare(argv[1], argc > 2 && std::string(argv[2]) == "--all");
  } catch (const std::exception& error) {
    std::fprintf(stderr, "gpu_calls: %s\n", error.what());
    return 1;
  }
}
