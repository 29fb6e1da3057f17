#include "trainer/resume_checks.h"

#include <torch/torch.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "base/file_calls.h"
#include "base/strict_json.h"
#include "checkpoint/random_state.h"
#include "data/loader_checks.h"
#include "hasten/base/error.h"
#include "hasten/base/files.h"
#include "hasten/base/text.h"
#include "trainer/base_weights.h"
#include "trainer/run_plan.h"

namespace hasten {
namespace {

using OrderedJson = nlohmann::ordered_json;

// These arguments say what is done, where it is written, and how it is shown and carried out. They
// affect no number, except that num_threads affects the last bits of sums: the numbers of threads
// themselves are compared (checkpoint/thread_count.h), which also depend on the environment.
constexpr std::array kArgumentsWithoutNumericalEffect = {"output_dir",
                                                         "overwrite_output_dir",
                                                         "do_train",
                                                         "do_eval",
                                                         "do_predict",
                                                         "resume_from_checkpoint",
                                                         "ignore_data_skip",
                                                         "auto_find_batch_size",
                                                         "use_cpu",
                                                         "num_threads",
                                                         "activation_checkpointing",
                                                         "activation_checkpointing_kwargs",
                                                         "activation_offloading",
                                                         "step_in_backward",
                                                         "offload_optimizer_states",
                                                         "cuda_graph",
                                                         "torch_empty_cache_steps",
                                                         "log_level",
                                                         "disable_tqdm",
                                                         "report_to",
                                                         "logging_dir",
                                                         "run_name",
                                                         "skip_memory_metrics",
                                                         "anatomy",
                                                         "anatomy_steps",
                                                         "save_total_limit",
                                                         "save_keep_every",
                                                         "async_save",
                                                         "enable_jit_checkpoint",
                                                         "save_only_model",
                                                         "save_on_each_node",
                                                         "dataloader_num_workers",
                                                         "dataloader_pin_memory",
                                                         "dataloader_prefetch_factor",
                                                         "hash_chain_steps",
                                                         "ddp_bucket_cap_mb",
                                                         "ddp_timeout"};

// These keys of a config.json say where the model is from and how its weights are stored.
constexpr std::array kKeysWithoutNumericalEffect = {"_name_or_path", "transformers_version",
                                                    "architectures", "dtype", "torch_dtype"};

std::string format_value(const OrderedJson& value) {
  if (value.is_null()) return "unset";
  return value.is_string() ? value.get<std::string>() : value.dump();
}

// Returns a note for arguments that a resumed run takes from the checkpoint, whatever they are now.
std::string no_effect_note(const std::string& name) {
  if (name == "seed" || name == "data_seed")
    return ". This has no effect: a resumed run continues with the order of rows and the random "
           "states of the checkpoint";
  return "";
}

// Returns an empty object, which compares nothing, if the text is not a JSON object.
OrderedJson parse_object(const std::optional<std::string>& text) {
  OrderedJson json = parse_json_or_discard<OrderedJson>(text.value_or(""));
  return json.is_object() ? json : OrderedJson::object();
}

std::string format_batch(std::int64_t rows_of_each, std::int64_t processes) {
  const std::int64_t rows = rows_of_each * processes;
  return processes == 1 ? str(rows)
                        : str(rows, " (", rows_of_each, " in each of ", processes, " processes)");
}

constexpr const char* kRestartEpochHint = "start the epoch again with --ignore_data_skip";

// True if batches of another size can continue at a position between two steps: it is known in
// rows, and the last batch of an epoch is never dropped.
bool allows_other_batch_size(const TrainingPosition& position, const TrainingArguments& args) {
  return position.loader.rows >= 0 && !args.dataloader_drop_last;
}

// Checks that a step has the same number of rows as before. Accumulating more batches that are
// smaller gives the same steps.
void check_rows_per_step(const CheckpointToResume& checkpoint, const TrainingArguments& args,
                         std::int64_t processes) {
  const std::int64_t accumulated =
      parse_object(checkpoint.arguments)
          .value("gradient_accumulation_steps", args.gradient_accumulation_steps);
  const std::int64_t before = checkpoint.state.train_batch_size * checkpoint.position.num_processes,
                     own = rows_of_rank(args, args.per_device_train_batch_size, processes),
                     now = own * processes;
  const bool same_rows = before * accumulated == now * args.gradient_accumulation_steps;
  const bool is_same_position = before == now || allows_other_batch_size(checkpoint.position, args);
  if (same_rows && is_same_position) return;
  const std::string what = "resuming from " + checkpoint.folder.string();
  if (before != now) {
    throw ConfigError(
        "trainer.batch-size-changed",
        {.what = what,
         .got = "a batch of " + format_batch(own, processes),
         .expected =
             format_batch(checkpoint.state.train_batch_size, checkpoint.position.num_processes) +
             ", as in the checkpoint",
         .hint = str("choose per_device_train_batch_size so that all processes together take as "
                     "many rows, or ",
                     kRestartEpochHint)});
  }
  throw ConfigError("trainer.accumulation-changed",
                    {.what = what,
                     .got = str("gradient_accumulation_steps ", args.gradient_accumulation_steps),
                     .expected = str(accumulated, ", as in the ", checkpoint.state.global_step,
                                     " steps of the checkpoint"),
                     .hint = str("keep it, or ", kRestartEpochHint)});
}

void check_order_of_rows(const CheckpointToResume& checkpoint, const TrainingArguments& args,
                         std::int64_t rows) {
  const std::string what = "resuming from " + checkpoint.folder.string();
  const auto& data = checkpoint.position.data;
  if (data && data->rows != rows) {
    const auto format_rows = [](std::int64_t count) {
      return count < 0 ? std::string("an unknown number of rows") : str(count, " rows");
    };
    throw ConfigError("trainer.data-changed",
                      {.what = what,
                       .got = "training data of " + format_rows(rows),
                       .expected = format_rows(data->rows) + ", as when the checkpoint was made",
                       .hint = str("resume with the same data, or ", kRestartEpochHint)});
  }
  const LoaderState& loader = checkpoint.position.loader;
  if (loader.batch == 0 && loader.rows <= 0) return;
  const auto check_unchanged = [&](const char* name, const std::string& now) {
    const std::string before = parse_object(checkpoint.arguments).value(name, now);
    if (before == now) return;
    throw ConfigError("trainer.data-changed",
                      {.what = what,
                       .got = str(name, ' ', now),
                       .expected = before + ", as at the start of this epoch",
                       .hint = str("keep it until the end of the epoch, or ", kRestartEpochHint)});
  };
  check_unchanged("train_sampling_strategy", std::string(name_of(args.train_sampling_strategy)));
  if (args.train_sampling_strategy == SamplingStrategy::group_by_length ||
      args.train_sampling_strategy == SamplingStrategy::batch_rebalance)
    check_unchanged("length_column_name", args.length_column_name);
}

void append(std::string& out, const std::string& name, const at::Tensor& given) {
  const at::Tensor tensor = given.to(at::kCPU).contiguous();
  out += str(name, ' ', c10::toString(tensor.scalar_type()));
  for (const std::int64_t size : tensor.sizes()) out += str(' ', size);
  out.append(static_cast<const char*>(tensor.const_data_ptr()), tensor.nbytes());
}

void append(std::string& out, AnyBatch& batch) {
  if (const TensorDict* const columns = batch.get_if<TensorDict>()) {
    for (const auto& [name, tensor] : *columns) append(out, name, tensor);
    return;
  }
  for_each_tensor(batch, [&](const at::Tensor& tensor) {
    if (tensor.defined()) append(out, "", tensor);
  });
}

// Returns a digest of up to eight rows, spread over the data, which a shuffle changes.
std::string sample_of(const TrainerDataset& data) {
  if (data.is_stream()) return "";  // it has no rows to choose from
  constexpr std::int64_t kMaxSampledRows = 8;
  const std::int64_t rows = data.size(), count = std::min(rows, kMaxSampledRows);
  std::vector<std::int64_t> chosen;
  for (std::int64_t i = 0; i < count; ++i)
    chosen.push_back(i * (rows - 1) / std::max<std::int64_t>(1, count - 1));
  const auto order = [chosen](std::int64_t, std::uint64_t, std::int64_t) { return chosen; };
  std::string bytes;
  auto loader = data.loader({.batch_size = count, .seed = 0, .order = order});
  for (AnyBatch& batch : loader) append(bytes, batch);
  return short_digest(bytes);
}

}  // namespace

CheckpointToResume::CheckpointToResume(const std::filesystem::path& from)
    : folder(from),
      state(TrainerState::from_file(from / "trainer_state.json")),
      position(load_training_position(from)),
      record(load_run_record(from)) {
  const auto text_of = [&](const char* name) {
    return path_exists(from / name) ? std::optional(read_file(from / name)) : std::nullopt;
  };
  arguments = text_of("training_args.json");
  configuration = text_of("config.json");
  adapter = text_of("adapter_config.json");
  base_digest = saved_base_digest(from);
}

void check_resumable(const CheckpointToResume& checkpoint, const TrainingArguments& args,
                     std::int64_t processes, std::int64_t rows) {
  if (args.ignore_data_skip) return;
  check_rows_per_step(checkpoint, args, processes);
  check_order_of_rows(checkpoint, args, rows);
}

bool allows_smaller_batches(const std::filesystem::path& folder, const TrainingArguments& args) {
  if (!has_training_state(folder)) return false;
  if (args.ignore_data_skip) return true;
  return allows_other_batch_size(load_training_position(folder), args);
}

bool restarts_window(const CheckpointToResume& checkpoint, const TrainingArguments& args,
                     std::int64_t processes) {
  const std::int64_t own = rows_of_rank(args, args.per_device_train_batch_size, processes);
  return !checkpoint.position.windows.empty() && !args.ignore_data_skip &&
         (own != checkpoint.state.train_batch_size ||
          processes != checkpoint.position.num_processes);
}

void go_to_start_of_window(CheckpointToResume& checkpoint) {
  TrainingPosition& position = checkpoint.position;
  // Only the last batch of an epoch has fewer rows, and it ends its window.
  const std::int64_t batches = position.windows.front().micro_batches;
  position.loader.batch -= batches;
  if (position.loader.rows >= 0)
    position.loader.rows -= batches * checkpoint.state.train_batch_size * position.num_processes;
  position.windows.clear();
}

void check_same_shards(const CheckpointToResume& checkpoint, const TrainingArguments& args,
                       std::int64_t shards) {
  const TrainingPosition& position = checkpoint.position;
  const std::int64_t before = detail::shard_count(position.loader, position.num_processes);
  if (args.ignore_data_skip || !detail::is_inside_pass(position.loader) || before == shards) return;
  throw ConfigError(
      "trainer.data-changed",
      {.what = "resuming from " + checkpoint.folder.string(),
       .got = detail::shards_text(shards),
       .expected = detail::shards_text(before) + ", as at the start of this epoch",
       .hint = str("resume with the same number of processes and accelerator_config, or ",
                   kRestartEpochHint)});
}

std::vector<std::string> changed_arguments(const CheckpointToResume& checkpoint,
                                           const TrainingArguments& args) {
  const OrderedJson before = parse_object(checkpoint.arguments),
                    now = OrderedJson::parse(to_json(args));
  if (before.empty())
    return {
        "the checkpoint has no training_args.json, so its arguments cannot be compared with those "
        "of this run"};
  std::vector<std::string> changes;
  for (const auto& [name, value] : now.items()) {
    const bool compared =
        std::find(kArgumentsWithoutNumericalEffect.begin(), kArgumentsWithoutNumericalEffect.end(),
                  name) == kArgumentsWithoutNumericalEffect.end();
    if (!compared || !before.contains(name) || before.at(name) == value) continue;
    changes.push_back(str(name, " is ", format_value(value), " and was ",
                          format_value(before.at(name)), " when the checkpoint was made",
                          no_effect_note(name)));
  }
  return changes;
}

std::vector<std::string> changed_configuration(const CheckpointToResume& checkpoint,
                                               const std::string& configuration) {
  constexpr std::size_t kMaxShownCharacters = 100;  // a map of labels may have thousands of names
  const OrderedJson before = parse_object(checkpoint.configuration),
                    now = parse_object(configuration);
  std::vector<std::string> changes;
  for (const auto& [name, value] : now.items()) {
    const bool compared =
        std::find(kKeysWithoutNumericalEffect.begin(), kKeysWithoutNumericalEffect.end(), name) ==
        kKeysWithoutNumericalEffect.end();
    if (!compared || !before.contains(name) || before.at(name) == value) continue;
    const std::string values =
        str(" is ", format_value(value), " and was ", format_value(before.at(name)));
    changes.push_back(str("the model's ", name,
                          values.size() <= kMaxShownCharacters ? values : " has another value than",
                          " when the checkpoint was made"));
  }
  return changes;
}

std::vector<std::string> changed_adapter(const CheckpointToResume& checkpoint,
                                         const LoraOptions& options) {
  // Another rank, scale, bias, or choice of modules does not fit the tensors or the scale of the
  // file, so load_lora() has refused it.
  const char* const key = "lora_dropout";
  const OrderedJson before = parse_object(checkpoint.adapter), now = options.dropout;
  if (!before.contains(key) || before.at(key) == now) return {};
  return {str(key, " is ", format_value(now), " and was ", format_value(before.at(key)),
              " when the checkpoint was made")};
}

DataFingerprint identity_of(const TrainerDataset& data, std::int64_t rows) {
  const TensorDict generators = random_state();
  const std::string once = sample_of(data), again = sample_of(data);
  restore_random_state(generators);
  return {.rows = rows, .sample = once == again ? once : ""};
}

}  // namespace hasten
