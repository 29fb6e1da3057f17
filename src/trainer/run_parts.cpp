#include "trainer/run_parts.h"

#include <algorithm>

#include "base/json_number.h"
#include "checkpoint/optimizer_options.h"
#include "checkpoint/optimizer_state.h"
#include "device/device.h"
#include "device/graph_recorder.h"
#include "hasten/base/error.h"
#include "trainer/base_weights.h"
#include "trainer/resume_checks.h"

namespace hasten {
namespace {

Loader<AnyBatch> training_loader(Trainer& trainer, const TrainerDataset& data) {
  if (!data)
    throw UsageError("trainer.no-train-data",
                     {.what = "train()", .got = "no training data", .hint = "pass train_dataset"});
  return trainer.get_train_dataloader();
}

}  // namespace

Plan Trainer::Impl::RunParts::plan_of_run(const Impl& trainer,
                                          const PreparedLoader<Loader<AnyBatch>>& loader) {
  if (!loader->has_size()) return plan_of(trainer.args, {}, {}, trainer.data_ranks());
  return plan_of(trainer.args, rows_of(trainer.parts.train_dataset, loader),
                 loader.size() / trainer.local_virtual_ranks(), trainer.data_ranks());
}

std::int64_t Trainer::Impl::RunParts::rows_of(const TrainerDataset& data,
                                              const PreparedLoader<Loader<AnyBatch>>& loader) {
  if (!data.is_stream()) return data.size();
  return loader->has_size() ? loader->dataset_size() : kUnknownRows;
}

Trainer::Impl::RunParts::RunParts(Impl& trainer, LossRecord::Listener on_nonfinite_loss)
    : parameters(*trainer.model),
      loader(std::get<0>(trainer.accelerator.prepare(
          training_loader(trainer.trainer, trainer.parts.train_dataset)))),
      losses(trainer.args, trainer.group(), trainer.accelerator.device(),
             loss_reading(trainer.traits(), trainer.args, callbacks_read_losses(trainer)),
             std::move(on_nonfinite_loss), /*repeats=*/may_have_graphs(trainer)),
      plan(plan_of_run(trainer, loader)),
      optimizer(std::get<0>(trainer.accelerator.prepare(make_optimizer(trainer, plan.max_steps)))),
      schedule(trainer.trainer, optimizer.unwrap(), plan.max_steps,
               static_cast<bool>(trainer.parts.eval_dataset)),
      trained(parameters.with_gradients()),
      data_(trainer.parts.train_dataset),
      module_(*trainer.model) {
  // A run with an optimizer that cannot be saved may still save the weights only, or nothing.
  if (is_known_optimizer(optimizer.unwrap())) created_options_ = options_of(optimizer.unwrap());
  if (trainer.args.hash_chain_steps > 0)
    hashes.emplace(trainer.args.output_dir, trainer.args.hash_chain_steps, trainer.group(),
                   trainer.local_virtual_ranks());
}

bool Trainer::Impl::RunParts::may_have_graphs(const Impl& trainer) {
  const at::Device device = trainer.accelerator.device();
  return trainer.args.cuda_graph.value_or(true) &&
         device_of(device).graphs(device.index()).recorder != nullptr;
}

bool Trainer::Impl::RunParts::callbacks_read_losses(const Impl& trainer) {
  return std::any_of(trainer.parts.callbacks.begin(), trainer.parts.callbacks.end(),
                     [](const auto& callback) { return callback->reads_losses(); });
}

std::unique_ptr<torch::optim::Optimizer> Trainer::Impl::RunParts::make_optimizer(
    Impl& trainer, std::int64_t max_steps) {
  trainer.num_training_steps = max_steps;
  return trainer.trainer.create_optimizer();
}

const DataFingerprint& Trainer::Impl::RunParts::data_identity() {
  if (!identity_) identity_ = identity_of(data_, rows());
  return *identity_;
}

OptionsOfRun Trainer::Impl::RunParts::optimizer_options() const {
  OptionsOfRun options{.groups = options_of(optimizer.unwrap()), .arguments = created_options_};
  const std::vector<double> rates = schedule.rates();
  for (std::size_t i = 0; i < std::min(rates.size(), options.arguments.size()); ++i)
    options.arguments[i]["lr"] = json_of_number<nlohmann::json>(rates[i]);
  return options;
}

const std::optional<std::string>& Trainer::Impl::RunParts::base_digest() {
  if (!is_base_read_) base_digest_ = digest_of_base(module_);
  is_base_read_ = true;
  return base_digest_;
}

}  // namespace hasten
