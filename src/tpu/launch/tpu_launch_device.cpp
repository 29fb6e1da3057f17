#include "tpu/launch/tpu_launch_device.h"

#include "tpu/launch/tpu_variables.h"
#include "tpu/machine/installed_tpus.h"

namespace hasten {
namespace {

class TpuLaunchDevice final : public LaunchDevice {
 public:
  void choose_if_available(LaunchOptions& options) const override {
    options.tpu =
        !options.use_cpu && config::missing_tpu_reason(config::whole_environment()).empty();
  }

  std::optional<std::int64_t> processes(const LaunchOptions& options) const override {
    if (!options.tpu) return std::nullopt;
    return config::tpu_processes(config::whole_environment());
  }

  std::vector<VariableList> variables(const LaunchOptions& options,
                                      const Round& round) const override {
    const TpuRankVariables tpus(options, round);
    std::vector<VariableList> all;
    for (std::int64_t local = 0; local < round.processes; ++local)
      all.push_back(tpus.variables_of(local));
    return all;
  }

  std::string redact(const std::string& variable) const override { return without_ports(variable); }
};

}  // namespace

const LaunchDevice& tpu_launch_device() {
  static const TpuLaunchDevice one;
  return one;
}

}  // namespace hasten
