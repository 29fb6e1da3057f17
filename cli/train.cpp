// File: cli/train.cpp
// `hasten train`: trains a model with data and TrainingArguments, and saves the model and its
// results in output_dir.
#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <iostream>

#include "formats/module_tensors.h"
#include "hasten/accelerator.h"
#include "hasten/base/error.h"
#include "hasten/base/files.h"
#include "hasten/base/log.h"
#include "hasten/base/text.h"
#include "hasten/checkpoint/checkpoint_folders.h"
#include "hasten/checkpoint/detail/training_state.h"
#include "hasten/device/memory.h"
#include "hasten/launch/worker.h"
#include "hasten/models/lora.h"
#include "hasten/ops/ops.h"
#include "hasten/options/train_options.h"
#include "hasten/trainer/dashboard_callback.h"
#include "hasten/trainer/exported_data.h"
#include "hasten/trainer/progress_callback.h"
#include "hasten/trainer/stop_on_signal.h"
#include "hasten/trainer/task_data.h"
#include "hasten/trainer/trainer.h"
#include "torch_commands.h"
#include "train_results.h"
#include "trainer/output_folder.h"
#include "trainer/own_progress.h"
#include "trainer/run_plan.h"

namespace hasten::cli {
namespace {

constexpr int kSignalExitBase = 128;  // added to the signal's number, as shells do

void print_line(const std::string& line) { std::fprintf(stderr, "%s\n", line.c_str()); }

void print_loaded_model(const LoadedModel& loaded, const TrainOptions& options) {
  const std::int64_t parameters = parameter_count(*loaded.model);
  print_line(str(loaded.model->name(), ": ", group_thousands(parameters), " parameters",
                 loaded.random ? ", random weights" : " from " + options.model,
                 loaded.model->problem_type() == "regression" ? ", regression" : ""));
  if (!loaded.report.missing.empty())
    print_line("  new weights: " + join(loaded.report.missing, ", "));
  if (!loaded.report.mismatched.empty()) {
    std::vector<std::string> parts;
    for (const Mismatch& each : loaded.report.mismatched) {
      parts.push_back(str(each.name, " (", shape_text(each.in_file), " in the file, ",
                          shape_text(each.in_model), " in the model)"));
    }
    print_line("  new weights (different shape in the file): " + join(parts, ", "));
  }
  if (!loaded.report.unexpected.empty())
    print_line("  unused weights of the file: " + join(loaded.report.unexpected, ", "));
}

// Prints the lines that the Hugging Face Trainer prints before the first step.
void print_training_header(const TrainingArguments& args, std::int64_t rows,
                           std::int64_t processes) {
  print_line(str("***** Running training *****\n  Num examples = ", group_thousands(rows),
                 "\n  Processes = ", processes,
                 args.elastic_ranks > 0 ? str("\n  Virtual ranks = ", args.elastic_ranks) : "",
                 "\n  Instantaneous batch size per device = ",
                 rows_of_rank(args, args.per_device_train_batch_size, data_ranks(args, processes)),
                 "\n  Total train batch size (with processes and accumulation) = ",
                 rows_of_step(args, data_ranks(args, processes)), "\n  Matrix products by ",
                 ops::matrix_product_engine()));
}

void print_training_summary(const TrainOutput& result, const std::string& folder) {
  std::cout << '\n';
  print_summary(result);
  std::cout << "Saved in " << folder << '\n';
}

// Returns how to continue a run that was stopped, or why that is not possible.
std::string continuation_of(const Trainer& trainer) {
  const std::vector<std::filesystem::path> saved = checkpoints(trainer.args().output_dir);
  if (saved.empty()) return "the run has no checkpoint, so it cannot be continued";
  const std::filesystem::path& newest = saved.back();
  if (!has_training_state(newest))
    return "its checkpoints have only weights (save_only_model), so it cannot be continued";
  const std::string name = newest.filename().string();
  const bool is_latest = name == str(kCheckpointPrefix, trainer.state().global_step);
  return str("the same command with --resume_from_checkpoint true continues the run",
             is_latest ? "" : " from " + name);
}

// Reports a run that a signal, a key, a callback or the end of a stream has stopped early.
void print_stop(const Trainer& trainer, const TrainOutput& result) {
  const TrainerState& state = trainer.state();
  if (result.stop_signal == 0 && state.global_step >= state.max_steps) return;
  std::cout << "Stopped at step " << state.global_step << " of " << state.max_steps << ": "
            << continuation_of(trainer) << '\n';
}

// Compares the extremes only, which takes no memory. NaN is an extreme of every tensor with one.
bool has_nonfinite_values(const at::Tensor& tensor) {
  if (tensor.numel() == 0 || !at::isFloatingType(tensor.scalar_type()) ||
      tensor.element_size() < 2)  // there are no comparisons of 8-bit numbers
    return false;
  const at::Tensor values = tensor.detach();
  const double least = values.min().item<double>(), most = values.max().item<double>();
  return !std::isfinite(least) || !std::isfinite(most);
}

// Returns the name of the first parameter with values that are not finite, or an empty text.
std::string first_nonfinite_parameter(const torch::nn::Module& model) {
  for (const auto& parameter : model.named_parameters()) {
    if (has_nonfinite_values(parameter.value())) return parameter.key();
  }
  return "";
}

// Warns of a run that has diverged, because its other figures may look healthy.
void warn_of_divergence(const Trainer& trainer, const TrainOutput& result) {
  const auto losses = result.metrics.find("nonfinite_losses");
  if (losses == result.metrics.end() || losses->second <= 0) return;
  print_warning(str(static_cast<std::int64_t>(losses->second), " of ", result.global_step,
                    " losses were not finite; see --stop_on_nonfinite_loss"));
  const std::string name = first_nonfinite_parameter(trainer.model());
  if (name.empty()) return;
  print_warning(str("the saved model has weights that are not finite, first in ", name,
                    ": train again with a smaller learning_rate, warm-up, or max_grad_norm"));
}

struct TrainingResult {
  TrainOutput result;
  EndWork work;
  int exit_code() const {
    return result.stop_signal == 0 ? 0 : kSignalExitBase + result.stop_signal;
  }
};

// Trains until the end or a signal. A signal ends the run after the current step, and the model is
// saved, but neither evaluated nor used for predictions.
TrainingResult train_until_signal(Trainer& trainer, const EndWork& requested) {
  const auto stop = std::make_shared<StopOnSignal>();
  trainer.add_callback(stop);
  TrainingResult out{.result = trainer.train(), .work = {}};
  out.work = work_at_end(trainer, out.result, out.exit_code() == 0 ? requested : EndWork{});
  if (out.work.saves) save_trained(trainer, out.result);
  stop->restore_handlers();
  // A signal arrived after the last step. Everything is saved, so it may end the process.
  if (out.result.stop_signal == 0 && stop->received() != 0) std::raise(stop->received());
  return out;
}

// Reports a run that made no step and does not save its model again.
void print_nothing_trained(const std::string& folder, const EndWork& work) {
  if (!work.evaluates && !work.predicts)
    return print_line("Nothing was trained: the model and the results in " + folder +
                      " are unchanged.");
  const std::string missing =
      str(work.evaluates ? "its evaluation" : "", work.evaluates && work.predicts ? " and " : "",
          work.predicts ? "its predictions" : "");
  print_line(str("Nothing was trained: the model in ", folder,
                 " is unchanged. The run still makes ", missing, '.'));
}

TrainingResult train_and_evaluate(Trainer& trainer, const EndWork& requested) {
  TrainingResult trained = train_until_signal(trainer, requested);
  const std::string& folder = trainer.args().output_dir;
  const bool is_main = trainer.is_world_process_zero();
  if (is_main && !trained.work.saves) print_nothing_trained(folder, trained.work);
  if (trained.work.evaluates) evaluate(trainer);
  if (!is_main) return trained;
  if (trained.work.saves) {
    print_training_summary(trained.result, folder);
    warn_of_divergence(trainer, trained.result);
  }
  print_stop(trainer, trained.result);
  return trained;
}

// Throws if the run has no whole checkpoint of its best evaluation, although it should end with the
// weights of that one. Call it when everything is saved.
void check_best_model(const Trainer& trainer) {
  const TrainerState& state = trainer.state();
  if (!trainer.args().load_best_model_at_end || !state.best_global_step ||
      !state.best_model_checkpoint.empty())
    return;
  throw DataError(
      "trainer.no-best-model",
      {.what = "load_best_model_at_end",
       .got = str("no whole checkpoint of the best evaluation, at step ", *state.best_global_step),
       .expected = "one that can be loaded",
       .hint = "the warnings above say why; the model in " + trainer.args().output_dir +
               " has the weights of the last step"});
}

// Trains, evaluates and predicts if the arguments ask for it, and returns the exit code.
int run_trainer(Trainer& trainer, const TrainConfiguration& run, std::int64_t rows,
                const TrainerDataset& eval) {
  const bool quiet = hides_progress(run.arguments.log_level);
  if (run.arguments.do_train) {
    if (trainer.is_world_process_zero() && !quiet)
      print_training_header(trainer.args(), rows, trainer.accelerator().process().num_processes);
    const TrainingResult trained = train_and_evaluate(
        trainer,
        {.evaluates = eval && run.arguments.do_eval, .predicts = run.arguments.do_predict});
    if (trained.exit_code() != 0) return trained.exit_code();
    if (trained.work.predicts) predict(trainer, eval);
    check_best_model(trainer);
    return 0;
  }
  if (run.arguments.do_eval) evaluate(trainer);
  if (run.arguments.do_predict) predict(trainer, eval);
  return 0;
}

// Stores the configuration of a run next to its hash chain, for `hasten verify`.
class ConfigurationSaver : public TrainerCallback {
 public:
  explicit ConfigurationSaver(const TrainConfiguration& run) {
    std::vector<config::ResolvedValue> values;
    for (const config::ResolvedValue& value : run.values) {
      const bool belongs_to_one_call =
          value.name == "config_file" || value.name == "print_config" ||
          value.name == "resume_from_checkpoint" || value.name == "overwrite_output_dir" ||
          value.name == "dashboard";
      if (!belongs_to_one_call) values.push_back(value);
    }
    text_ = config::resolved_text(values, config::ValueFilter::all);
  }
  void on_train_begin(const TrainerEvent& event, TrainerControl&) override {
    if (event.args.hash_chain_steps == 0 || !event.state.is_world_process_zero) return;
    write_file_atomically(std::filesystem::path(event.args.output_dir) / kHashChainConfigFile,
                          text_);
  }
  bool reads_gradients() const override { return false; }
  bool reads_losses() const override { return false; }

 private:
  std::string text_;
};

std::shared_ptr<TrainerCallback> progress_of(const TrainConfiguration& run) {
  const ProgressOptions options{.bar = !run.arguments.disable_tqdm.value_or(false),
                                .lines = !hides_progress(run.arguments.log_level)};
  if (run.options.dashboard) return std::make_shared<DashboardCallback>(options);
  return std::make_shared<ProgressCallback>(options);
}

// Adds an adapter if the options ask for one, and prints what is trained.
void add_adapter(torch::nn::Module& model, const TrainOptions& options, bool prints) {
  std::size_t layers = 0;
  if (!options.lora_adapter.empty()) {
    load_lora(model, options.lora_adapter);
  } else if (options.lora_r > 0) {
    layers = add_lora(model, lora_options_of(options)).size();
  } else {
    return;
  }
  const std::int64_t all = parameter_count(model);
  std::int64_t trained = 0;
  for (const at::Tensor& parameter : model.parameters())
    trained += parameter.requires_grad() ? parameter.numel() : 0;
  if (!prints) return;
  print_line(str(
      "  adapter", layers > 0 ? str(" of ", layers, " layers") : " from " + options.lora_adapter,
      ": trains ", group_thousands(trained), " of ", group_thousands(all), " parameters (",
      fixed(100.0 * static_cast<double>(trained) / static_cast<double>(all), 2), " %)"));
}

// Returns the files and folders from which the run starts. A built-in name is no folder.
std::vector<std::string> inputs_of(const TrainOptions& options) {
  const auto& names = builtin_models();
  const bool is_builtin = std::find(names.begin(), names.end(), options.model) != names.end();
  return {is_builtin ? "" : options.model, options.weights, options.lora_adapter};
}

// Refuses an output_dir that another run uses, or whose model would be lost, before the data and
// the model are loaded. Returns the lock on it, or null. With save_on_each_node only the Trainer
// knows which machines share it.
std::shared_ptr<FolderLock> lock_output(const TrainConfiguration& run) {
  const TrainingArguments& args = run.arguments;
  const Worker worker = this_worker();
  const bool writes = args.save_on_each_node ? worker.local_rank == 0 : worker.rank == 0;
  if (!writes || !args.do_train) return nullptr;
  check_inputs_kept(args, inputs_of(run.options));
  if (args.save_on_each_node) {
    check_no_saved_model(args);
    return nullptr;
  }
  auto lock = lock_output_dir(args, print_warning);
  check_no_saved_model(args);
  check_output_unused(args);
  return lock;
}

// Trains a model that Python has exported.
int train_exported(const TrainConfiguration& run) {
  const TrainOptions& options = run.options;
  const auto model =
      load_exported(options.model, {.libraries = {options.library.begin(), options.library.end()}});
  if (!options.weights.empty()) model->load_weights(options.weights);
  const TrainingArguments& arguments = run.arguments;
  if (arguments.do_eval || arguments.do_predict || arguments.eval_on_start) model->eval();
  // Both calls may throw, and should do so before the first step.
  if (arguments.do_train) model->train();
  const bool evaluates = arguments.do_eval || arguments.eval_on_start;
  const ExportedFiles files(options, *model,
                            evaluates ? EvalLabels::required : EvalLabels::optional);
  const Worker worker = this_worker();
  files.check_batches(arguments, worker.world_size);
  if (worker.rank == 0) {
    print_line(str(options.model, ": ", group_thousands(parameter_count(*model)),
                   " parameters, inputs ", join(model->input_names(), ", "), ", outputs ",
                   join(model->output_names(), ", ")));
  }
  set_seed(arguments.seed);  // the seed determines the new weights of an adapter
  add_adapter(*model, options, worker.rank == 0);
  Trainer trainer(model, arguments,
                  {.train_dataset = files.train(),
                   .eval_dataset = files.eval(),
                   .compute_loss = files.compute_loss(),
                   .compute_metrics = files.compute_metrics(),
                   .callbacks = {progress_of(run), std::make_shared<ConfigurationSaver>(run)},
                   .extra_files = files.extra_files()});
  return run_trainer(trainer, run, files.train().size(), files.eval());
}

}  // namespace

int train(int argc, char** argv) {
  // `hasten` has already reported notices and errors; a direct call reports the errors, too.
  const TrainConfiguration run =
      parse_train({argv + 2, argv + argc}, config::process_environment());
  // A write beyond the limit of file sizes is then an error that names the file.
  std::signal(SIGXFSZ, SIG_IGN);
  // A run whose output nobody reads any more, as after `| head`, continues without it.
  std::signal(SIGPIPE, SIG_IGN);
  keep_freed_memory();
  const auto lock = lock_output(run);  // until everything is written
  if (is_exported_model(run.options.model)) return train_exported(run);
  const bool evaluates = run.arguments.do_eval || run.arguments.eval_on_start;
  const auto files =
      read_task_data(run.options, evaluates ? EvalLabels::required : EvalLabels::optional);
  set_seed(run.arguments.seed);  // the seed determines new weights
  const LoadedModel loaded = load_model(run.options.model, files->model_options());
  const Worker worker = this_worker();
  if (worker.rank == 0) print_loaded_model(loaded, run.options);
  add_adapter(*loaded.model, run.options, worker.rank == 0);

  TrainerParts parts{.train_dataset = files->train(*loaded.model),
                     .eval_dataset = files->eval(*loaded.model),
                     .compute_metrics = files->metrics(*loaded.model),
                     .callbacks = {progress_of(run), std::make_shared<ConfigurationSaver>(run)},
                     .extra_files = files->tokenizer_files()};
  const TrainerDataset eval = parts.eval_dataset;
  const std::int64_t rows = parts.train_dataset.size();
  Trainer trainer(loaded.model, run.arguments, std::move(parts));
  return run_trainer(trainer, run, rows, eval);
}

}  // namespace hasten::cli
