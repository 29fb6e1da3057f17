#include "tpu/commands/predicted_tpu.h"

#include "tpu/machine/tpus.h"

namespace hasten {
namespace {

class PredictedTpu final : public PredictedDevice {
 public:
  const char* option() const override { return "tpu"; }
  const char* help_for_model() const override {
    return "Predict for a TPU that need not be installed: v5e:2x2, v6e:2x4, v5p:2x2x2 ... libtpu "
           "(python3 -m pip install libtpu) compiles the programs of the step and reports their "
           "memory.";
  }
  const char* help_for_program() const override {
    return "Run on device tpu, where libtpu compiles each program: v5e:2x2, v6e:2x4 ...";
  }
  std::string parse(const std::string& value) const override {
    return std::string(kTpuDevice) + parse_tpu_topology(value).name;
  }
  const char* title() const override { return "a TPU"; }
  // The compiler reports the sizes of programs.
  bool reports_allocations() const override { return false; }
  bool is_compared_with_cpu() const override { return true; }
  config::Environment variables(const std::filesystem::path& packages) const override {
    const config::Environment environment = config::whole_environment();
    if (environment.contains(kTpuCompilerVariable)) return {};
    return {{kTpuCompilerVariable, find_libtpu(environment, {packages.string()})}};
  }
};

}  // namespace

const PredictedDevice& predicted_tpu() {
  static const PredictedTpu one;
  return one;
}

}  // namespace hasten
