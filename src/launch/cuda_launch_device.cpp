#include "launch/cuda_launch_device.h"

#include <cstdlib>
#include <optional>
#include <string>

#include "base/parse_number.h"
#include "hasten/base/text.h"
#include "machine/installed_gpus.h"

namespace hasten {
namespace {

class CudaLaunchDevice final : public LaunchDevice {
 public:
  void choose_if_available(LaunchOptions&) const override {}  // an Accelerator chooses GPUs itself

  std::optional<std::int64_t> processes(const LaunchOptions& options) const override {
    if (options.gpu_ids != "all")
      return static_cast<std::int64_t>(split(options.gpu_ids, ',').size());
    const std::size_t gpus = options.use_cpu ? 0 : config::visible_gpus().size();
    return gpus > 0 ? std::optional(static_cast<std::int64_t>(gpus)) : std::nullopt;
  }

  std::vector<VariableList> variables(const LaunchOptions& options,
                                      const Round& round) const override {
    VariableList each;
    if (options.gpu_ids != "all") each.emplace_back(config::kVisibleGpusVariable, options.gpu_ids);
    return {static_cast<std::size_t>(round.processes), each};
  }

  std::string redact(const std::string& variable) const override { return variable; }
};

}  // namespace

const LaunchDevice& cuda_launch_device() {
  static const CudaLaunchDevice one;
  return one;
}

std::vector<int> gpus_of_processes(const LaunchOptions& options, std::size_t installed,
                                   std::int64_t count) {
  if (options.use_cpu) return {};
  const char* const variable = options.gpu_ids != "all" ? options.gpu_ids.c_str()
                                                        : std::getenv(config::kVisibleGpusVariable);
  std::vector<int> visible;
  for (const std::string& name : config::visible_gpus(variable, installed)) {
    const auto number = parse_number<int>(name);
    if (!number) return {};
    visible.push_back(*number);
  }
  std::vector<int> gpus;
  for (std::int64_t local = 0; local < count && !visible.empty(); ++local)
    gpus.push_back(visible[static_cast<std::size_t>(local) % visible.size()]);
  return gpus;
}

}  // namespace hasten
