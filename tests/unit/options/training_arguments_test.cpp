#include "hasten/options/training_arguments.h"

#include <cstdint>
#include <cstdlib>
#include <limits>
#include <nlohmann/json.hpp>

#include "options/describe.h"
#include "unit/options/support.h"

namespace options_training_arguments_test {

using namespace hasten;
using namespace hasten::test;

namespace {

// Every argument of the Hugging Face Trainer 5.23 with its default; None is "unset".
const std::vector<std::pair<const char*, const char*>> trainer_defaults = {
    {"output_dir", "trainer_output"},
    {"per_device_train_batch_size", "8"},
    {"num_train_epochs", "3"},
    {"max_steps", "-1"},
    {"learning_rate", "5e-05"},
    {"lr_scheduler_type", "linear"},
    {"lr_scheduler_kwargs", "unset"},
    {"warmup_steps", "0"},
    {"optim", "adamw_torch_fused"},
    {"optim_args", "unset"},
    {"weight_decay", "0"},
    {"adam_beta1", "0.9"},
    {"adam_beta2", "0.999"},
    {"adam_epsilon", "1e-08"},
    {"optim_target_modules", "unset"},
    {"gradient_accumulation_steps", "1"},
    {"average_tokens_across_devices", "true"},
    {"max_grad_norm", "1"},
    {"label_smoothing_factor", "0"},
    {"bf16", "false"},
    {"fp16", "false"},
    {"bf16_full_eval", "false"},
    {"fp16_full_eval", "false"},
    {"tf32", "unset"},
    {"activation_checkpointing", "false"},
    {"activation_checkpointing_kwargs", "unset"},
    {"gradient_checkpointing", "false"},
    {"gradient_checkpointing_kwargs", "unset"},
    {"torch_compile", "false"},
    {"torch_compile_backend", "unset"},
    {"torch_compile_mode", "unset"},
    {"use_liger_kernel", "unset"},
    {"liger_kernel_config", "unset"},
    {"use_cache", "false"},
    {"neftune_noise_alpha", "unset"},
    {"torch_empty_cache_steps", "unset"},
    {"auto_find_batch_size", "false"},
    {"logging_strategy", "steps"},
    {"logging_steps", "500"},
    {"logging_first_step", "false"},
    {"log_on_each_node", "true"},
    {"logging_nan_inf_filter", "true"},
    {"include_num_input_tokens_seen", "no"},
    {"log_level", "passive"},
    {"log_level_replica", "warning"},
    {"disable_tqdm", "unset"},
    {"report_to", "none"},
    {"run_name", "unset"},
    {"project", "huggingface"},
    {"trackio_space_id", "unset"},
    {"trackio_bucket_id", "unset"},
    {"trackio_static_space_id", "unset"},
    {"eval_strategy", "no"},
    {"eval_steps", "unset"},
    {"eval_delay", "0"},
    {"per_device_eval_batch_size", "8"},
    {"prediction_loss_only", "false"},
    {"eval_on_start", "false"},
    {"eval_do_concat_batches", "true"},
    {"eval_use_gather_object", "false"},
    {"eval_accumulation_steps", "unset"},
    {"include_for_metrics", "unset"},
    {"batch_eval_metrics", "false"},
    {"save_only_model", "false"},
    {"save_strategy", "steps"},
    {"save_steps", "500"},
    {"save_on_each_node", "false"},
    {"save_total_limit", "unset"},
    {"enable_jit_checkpoint", "false"},
    {"push_to_hub", "false"},
    {"hub_token", "unset"},
    {"hub_private_repo", "unset"},
    {"hub_model_id", "unset"},
    {"hub_strategy", "every_save"},
    {"hub_always_push", "false"},
    {"hub_revision", "unset"},
    {"load_best_model_at_end", "false"},
    {"metric_for_best_model", "unset"},
    {"greater_is_better", "unset"},
    {"ignore_data_skip", "false"},
    {"restore_callback_states_from_checkpoint", "false"},
    {"full_determinism", "false"},
    {"seed", "42"},
    {"data_seed", "unset"},
    {"use_cpu", "false"},
    {"accelerator_config", "unset"},
    {"parallelism_config", "unset"},
    {"dataloader_drop_last", "false"},
    {"dataloader_num_workers", "0"},
    {"dataloader_pin_memory", "true"},
    {"dataloader_persistent_workers", "false"},
    {"dataloader_prefetch_factor", "unset"},
    {"dataloader_multiprocessing_context", "unset"},
    {"dataloader_in_order", "true"},
    {"remove_unused_columns", "true"},
    {"label_names", "unset"},
    {"train_sampling_strategy", "random"},
    {"length_column_name", "length"},
    {"ddp_find_unused_parameters", "unset"},
    {"ddp_bucket_cap_mb", "unset"},
    {"ddp_broadcast_buffers", "unset"},
    {"ddp_static_graph", "unset"},
    {"ddp_backend", "unset"},
    {"ddp_timeout", "1800"},
    {"fsdp", "unset"},
    {"fsdp_config", "unset"},
    {"deepspeed", "unset"},
    {"debug", "unset"},
    {"skip_memory_metrics", "true"},
    {"do_train", "false"},
    {"do_eval", "false"},
    {"do_predict", "false"},
    {"resume_from_checkpoint", "unset"},
    {"local_rank", "-1"}};

}  // namespace

TEST_CASE("training arguments: every name and default of the Hugging Face Trainer is known") {
  TrainingArguments arguments;
  config::OptionTable table;
  describe(table, arguments);
  CHECK(trainer_defaults.size() == 114);
  for (const auto& [name, value] : trainer_defaults) {
    CAPTURE(name);
    const config::Option* option = table.find(name);
    REQUIRE(option != nullptr);
    CHECK(config::to_text(option->default_value) == value);
    CHECK(config::to_text(option->get()) == value);
  }
}

TEST_CASE("training arguments: designated initializers work, and the defaults are valid") {
  const TrainingArguments arguments{.output_dir = "out",
                                    .per_device_train_batch_size = 32,
                                    .learning_rate = 1e-3,
                                    .lr_scheduler_type = SchedulerType::cosine_with_restarts,
                                    .lr_scheduler_kwargs = {{"num_cycles", 3}},
                                    .bf16 = true};
  CHECK_NOTHROW(validate(arguments));
  CHECK_NOTHROW(validate(TrainingArguments{}));
}

TEST_CASE("training arguments: unset values are derived from others") {
  const auto a = resolved({.eval_strategy = IntervalStrategy::steps,
                           .save_steps = 1000,
                           .load_best_model_at_end = true});
  CHECK(a.do_eval);
  CHECK(a.eval_steps == 500);
  CHECK(a.metric_for_best_model == "loss");
  CHECK(a.greater_is_better == false);
  const auto b = resolved({.eval_strategy = IntervalStrategy::epoch,
                           .save_strategy = SaveStrategy::best,
                           .metric_for_best_model = "accuracy"});
  CHECK(b.greater_is_better == true);
  CHECK_FALSE(b.eval_steps.has_value());
  const auto c = resolved(
      {.lr_scheduler_type = SchedulerType::greedy, .eval_strategy = IntervalStrategy::epoch});
  CHECK(c.metric_for_best_model == "loss");
  CHECK(c.greater_is_better == false);
  CHECK(resolved({.metric_for_best_model = "eval_loss", .greater_is_better = true})
            .greater_is_better == true);
  CHECK(resolved({.logging_steps = 50, .eval_strategy = IntervalStrategy::steps, .eval_steps = 0})
            .eval_steps == 50);
}

TEST_CASE("training arguments: a leading ~ is the home folder") {
  setenv("HOME", "/home/ada", 1);
  CHECK(resolved({.output_dir = "~/out"}).output_dir == "/home/ada/out");
  CHECK(resolved({.output_dir = "a~/out"}).output_dir == "a~/out");
  CHECK(resolved({.output_dir = "~ada/out"}).output_dir == "~ada/out");
}

TEST_CASE("training arguments: resume accepts a folder, true or false") {
  CHECK(resolved({.resume_from_checkpoint = "True"}).resume_from_checkpoint == "true");
  CHECK(resolved({.resume_from_checkpoint = "False"}).resume_from_checkpoint == "");
  CHECK(resolved({.resume_from_checkpoint = "Out/checkpoint-3"}).resume_from_checkpoint ==
        "Out/checkpoint-3");
}

TEST_CASE("training arguments: a number below one is a share of all steps, rounded up") {
  CHECK(absolute_steps(0.1, 512) == 52);
  CHECK(absolute_steps(0.2, 25) == 5);
  CHECK(absolute_steps(0.001, 10) == 1);
  CHECK(absolute_steps(0, 10) == 0);
  CHECK(absolute_steps(1, 10) == 1);
  CHECK(absolute_steps(500, 10) == 500);
  CHECK(absolute_steps(1e19, 100) == std::numeric_limits<std::int64_t>::max());
}

TEST_CASE("training arguments: JSON reads back to the same values") {
  TrainingArguments a{.output_dir = "a \"b\"",
                      .learning_rate = 3e-5,
                      .lr_scheduler_type = SchedulerType::warmup_stable_decay,
                      .lr_scheduler_kwargs = {{"num_decay_steps", 10}, {"decay_type", "linear"}},
                      .warmup_steps = 0.1,
                      .disable_tqdm = true,
                      .eval_steps = 20,
                      .label_names = {"a", "b"}};
  const std::string json = to_json(a);
  const auto back = training_arguments_from_json(json);
  CHECK(to_json(back) == json);
  CHECK(back.learning_rate == 3e-5);
  CHECK(back.lr_scheduler_kwargs == a.lr_scheduler_kwargs);
  CHECK(back.disable_tqdm == true);
  const auto parsed = nlohmann::json::parse(json);
  CHECK(parsed["num_train_epochs"] == 3);
  CHECK(parsed["save_total_limit"].is_null());
  CHECK(parsed["run_name"].is_null());
  CHECK(parsed["lr_scheduler_kwargs"]["num_decay_steps"] == 10);
  CHECK_FALSE(parsed.contains("push_to_hub"));
}

TEST_CASE("training arguments: accelerator_config has the keys of the Hugging Face Trainer") {
  const auto from = [](const std::string& config) {
    return training_arguments_from_json("{\"accelerator_config\": " + config + "}");
  };
  const auto error_with = [&](const std::string& config) {
    return error_of([&] { validate(from(config)); }).text;
  };
  // Its default values, as the Hugging Face Trainer writes them.
  const auto defaults = from(R"({"split_batches": false, "dispatch_batches": null,
      "even_batches": true, "use_seedable_sampler": true, "non_blocking": false,
      "gradient_accumulation_kwargs": null, "use_configured_state": false})");
  CHECK_NOTHROW(validate(defaults));
  CHECK_FALSE(defaults.accelerator_config.has("dispatch_batches"));
  CHECK(from(R"({"dispatch_batches": false})").accelerator_config.flag("dispatch_batches", true) ==
        false);
  CHECK(error_with(R"({"even_batches": false})") ==
        "accelerator_config: even_batches: got 'false', expected one of true");
  CHECK(error_with(R"({"split_batch": true})") ==
        "accelerator_config: unknown key split_batch. Hint: did you mean split_batches?");
  const auto conflict = [](const TrainingArguments& arguments) {
    return error_of([&] { validate(arguments); }).code;
  };
  CHECK(conflict({.auto_find_batch_size = true, .accelerator_config = {{"split_batches", true}}}) ==
        "config.contradiction");
  CHECK(conflict({.accelerator_config = {{"split_batches", true}}, .elastic_ranks = 2}) ==
        "config.contradiction");
  CHECK(conflict({.accelerator_config = {{"dispatch_batches", true}}, .elastic_ranks = 2}) ==
        "config.contradiction");
  CHECK_NOTHROW(
      validate({.accelerator_config = {{"dispatch_batches", false}}, .elastic_ranks = 2}));
}

TEST_CASE("training arguments: JSON may have some of the arguments, and errors name the line") {
  CHECK(training_arguments_from_json(R"({"warmup_ratio": 0.1})").warmup_steps == 0.1);
  CHECK(error_of([] { training_arguments_from_json("{\n\"lerning_rate\": 1}", "a.json"); }).text ==
        "a.json:2: unknown key lerning_rate. Hint: did you mean learning_rate?");
}

TEST_CASE("training arguments: every enumeration is parsed from its name") {
  CHECK(from_name<SchedulerType>(name_of(SchedulerType::warmup_stable_decay)) ==
        SchedulerType::warmup_stable_decay);
  for (const std::string_view name : Names<SchedulerType>::text)
    CHECK(name_of(from_name<SchedulerType>(name).value()) == name);
  CHECK(name_of(SchedulerType::cosine_with_min_lr) == "cosine_with_min_lr");
  CHECK(name_of(OptimizerName::sgd) == "sgd");
  CHECK(name_of(SaveStrategy::best) == "best");
  CHECK(name_of(IntervalStrategy::epoch) == "epoch");
  CHECK(name_of(SamplingStrategy::sequential) == "sequential");
  CHECK(name_of(CountTokens::all) == "all");
  CHECK(name_of(LogLevel::critical) == "critical");
  CHECK(name_of(static_cast<LogLevel>(99)) == "?");
}

}  // namespace options_training_arguments_test
