// Files and tables of a run's results.
#include <iostream>
#include <nlohmann/json.hpp>

#include "base/file_calls.h"
#include "base/strict_json.h"
#include "hasten/base/error.h"
#include "hasten/base/files.h"
#include "hasten/base/text.h"
#include "hasten/device/memory.h"
#include "hasten/process/once.h"
#include "trainer/trainer_impl.h"

namespace hasten {
namespace {

// Formats a metric as the Hugging Face Trainer does: runtimes as h:mm:ss, memory in MB, FLOP in GF.
std::string format_metric(const std::string& key, double value) {
  if (ends_with(key, "_runtime")) return human_duration(value, true);
  if (key.find("_mem_") != std::string::npos)
    return str(static_cast<std::int64_t>(value) >> 20, "MB");
  if (key == "total_flos") return str(static_cast<std::int64_t>(value) >> 30, "GF");
  return fixed(value, 4);
}

void write_metrics(const std::filesystem::path& folder, const std::string& split,
                   const Metrics& metrics) {
  const std::filesystem::path all_file = folder / "all_results.json";
  make_directories(folder);
  write_file_atomically(folder / (split + "_results.json"), metrics_json(metrics));
  Metrics all;
  if (path_exists(all_file)) {
    const auto before = read_json_or_discard(all_file);
    if (before.is_object()) {
      for (const auto& [key, value] : before.items()) {
        if (value.is_number()) all[key] = value.get<double>();
      }
    }
  }
  for (const auto& [key, value] : metrics) all[key] = value;
  write_file_atomically(all_file, metrics_json(all));
}

}  // namespace

void Trainer::save_state() {
  const std::filesystem::path folder = impl_->args.output_dir;
  once(impl_->group(), impl_->writes(), [&] {
    make_directories(folder);
    write_file_atomically(folder / "trainer_state.json", impl_->state.to_json());
  });
}

void Trainer::save_metrics(const std::string& split, const Metrics& metrics) {
  once(impl_->group(), impl_->writes(),
       [&] { write_metrics(impl_->args.output_dir, split, metrics); });
}

void Trainer::log_metrics(const std::string& split, const Metrics& metrics,
                          std::ostream& out) const {
  if (!is_world_process_zero()) return;
  std::size_t key_width = 0, value_width = 0;
  for (const auto& [key, value] : metrics) {
    key_width = std::max(key_width, key.size());
    value_width = std::max(value_width, format_metric(key, value).size());
  }
  out << "***** " << split << " metrics *****\n";
  for (const auto& [key, value] : metrics) {
    const std::string text = format_metric(key, value);
    out << "  " << key << std::string(key_width - key.size(), ' ') << " = "
        << std::string(value_width - text.size(), ' ') << text << '\n';
  }
}

void print_summary(const TrainOutput& result, std::ostream& out) {
  const auto value = [&](const char* key) {
    const auto found = result.metrics.find(key);
    return found == result.metrics.end() ? 0.0 : found->second;
  };
  out << "Time: " << fixed(value("train_runtime"), 2)
      << "\nSamples/second: " << fixed(value("train_samples_per_second"), 2) << '\n';
  print_gpu_utilization(out);
  out << "Peak host memory: " << (host_memory().peak_resident >> 20) << " MB.\n";
}

void print_summary(const TrainOutput& result) { print_summary(result, std::cout); }

}  // namespace hasten
