#include "tpu/attach/tpu_estimate_writer.h"

#include <filesystem>
#include <optional>

#include "base/environment_variable.h"
#include "commands/observe_options.h"
#include "hasten/base/files.h"
#include "hasten/base/text.h"
#include "hasten/tpu/anatomy/dry_tpu.h"
#include "tpu/machine/tpus.h"

namespace hasten::anatomy {
namespace {

// Reports the estimate of a dry TPU, next to an earlier dry run's prediction for the CPU if there
// is one.
class TpuEstimateWriter final : public ReportWriter {
 public:
  explicit TpuEstimateWriter(const DryTpu& dry)
      : ReportWriter("TPU estimate"),
        dry_(dry),
        steps_(steps()),
        prediction_(read_cpu_prediction()) {}

  // A program that fails to compile throws in the middle of a step, often without a handler.
  bool explains_exceptions() const override { return true; }

 private:
  static std::optional<TpuPrediction> read_cpu_prediction() {
    const std::string file = environment_variable(kCpuPredictionVariable);
    if (file.empty() || !std::filesystem::exists(file)) return std::nullopt;
    return read_prediction(read_file(file));
  }
  bool finished() const override { return dry_.steps() >= steps_; }
  void collect() override { estimate_ = dry_.estimate(); }
  std::string text() const override { return to_text(estimate_, cpu_prediction()); }
  std::string json() const override { return to_json(estimate_, cpu_prediction()); }
  void write_file(const std::string& file) const override {
    write_tpu_estimate(file, estimate_, cpu_prediction());
  }
  const TpuPrediction* cpu_prediction() const { return prediction_ ? &*prediction_ : nullptr; }

  const DryTpu& dry_;
  std::int64_t steps_;
  std::optional<TpuPrediction> prediction_;
  TpuEstimate estimate_;
};

}  // namespace

bool start_dry_tpu(const std::string& device) {
  if (!starts_with(device, kTpuDevice)) return false;
  static_cast<void>(*new DryTpu(device.substr(kTpuDevice.size())));
  return true;
}

std::shared_ptr<ReportWriter> make_tpu_estimate_writer() {
  const DryTpu* const dry = DryTpu::active();
  return dry == nullptr ? nullptr : std::make_shared<TpuEstimateWriter>(*dry);
}

}  // namespace hasten::anatomy
