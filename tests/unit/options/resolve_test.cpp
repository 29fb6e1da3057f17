#include "unit/options/support.h"

namespace options_resolve_test {

using namespace hasten;
using namespace hasten::test;

TEST_CASE("resolve: a flag overrides the environment, then later files, then earlier ones") {
  const TemporaryFile first("a.yaml", "seed: 1\ndata_seed: 1\nlogging_steps: 1\nsave_steps: 1\n");
  const TemporaryFile second("b.yaml", "seed: 2\ndata_seed: 2\nlogging_steps: 2\n");
  const auto run = parse_with_model(
      {"--config_file", first.path(), "--config_file", second.path(), "--seed", "4"},
      {{"HASTEN_SEED", "3"}, {"HASTEN_DATA_SEED", "3"}});
  CHECK(run.arguments.seed == 4);
  CHECK(run.arguments.data_seed == 3);
  CHECK(run.arguments.logging_steps == 2);
  CHECK(run.arguments.save_steps == 1);
  CHECK(origin_in(run, "seed") == "--seed");
  CHECK(origin_in(run, "data_seed") == "HASTEN_DATA_SEED");
  CHECK(origin_in(run, "logging_steps") == second.path() + ":3");
  CHECK(origin_in(run, "save_steps") == first.path() + ":4");
  CHECK(origin_in(run, "bf16") == "default");
}

TEST_CASE("resolve: a flag replaces an invalid value of a file") {
  const TemporaryFile file("a.yaml", "optim: adafactor\nseed: x\nfp16: true\n");
  const auto run = parse_with_model(
      {"--config_file", file.path(), "--optim", "sgd", "--seed", "1", "--no_fp16"});
  CHECK(run.arguments.optim == OptimizerName::sgd);
}

TEST_CASE("resolve: former names work, with a notice") {
  const auto run =
      parse_with_model({"--warmup_ratio", "0.1", "--evaluation_strategy", "no", "--no_cuda"});
  CHECK(run.arguments.warmup_steps == 0.1);
  CHECK(run.arguments.use_cpu);
  CHECK(run.notices == Texts{"--warmup_ratio is a former name of warmup_steps",
                             "--no_cuda is a former name of use_cpu",
                             "--evaluation_strategy is a former name of eval_strategy"});
}

TEST_CASE("resolve: two names of an option contradict in one source, override across sources") {
  const auto both = error_of([] {
    parse_with_model({"--warmup_steps", "10", "--warmup_ratio", "0.1"});
  });
  CHECK(both.code == "config.contradiction");
  CHECK(both.text ==
        "--warmup_ratio and --warmup_steps set the same option. Hint: keep --warmup_steps");
  CHECK(parse_with_model({"--warmup_steps", "10"}, {{"HASTEN_WARMUP_RATIO", "0.1"}})
            .arguments.warmup_steps == 10);
}

TEST_CASE("resolve: an option without effect in hasten is ignored with one line") {
  const auto run = parse_with_model(
      {"--push_to_hub", "--torch_compile_backend", "inductor", "--ddp_backend", "mpi"});
  REQUIRE(run.notices.size() == 3);
  CHECK(run.notices[0] ==
        "--ddp_backend is ignored: CPU tensors use Gloo, GPU tensors use NCCL if it can be loaded");
  CHECK(run.notices[1] == "--torch_compile_backend is ignored: see torch_compile");
  CHECK(contains(run.notices[2], "--push_to_hub is ignored: "));
  CHECK(parse_with_model({"--push_to_hub", "false", "--local_rank", "-1"}).notices.empty());
  CHECK(parse_with_model({"--save_safetensors", "false"}).notices.size() == 1);
}

TEST_CASE("resolve: an unsupported option is refused unless it has its default value") {
  const auto caught = error_of([] { parse_with_model({"--deepspeed", "a.json"}); });
  CHECK(caught.code == "config.not-supported");
  CHECK(
      caught.text ==
      "--deepspeed is not supported yet. Hint: each process holds the whole model; bf16, adafactor "
      "and gradient_accumulation_steps save memory");
  CHECK_NOTHROW(parse_with_model({"--deepspeed", "none", "--fsdp", "none"}));
  const TemporaryFile file("a.yaml", "seed: 1\ndebug: underflow_overflow\n");
  CHECK(error_of([&] {
          parse_with_model({"--config_file", file.path()});
        }).text ==
        file.path() +
            ":2: debug is not supported. Hint: use stop_on_nonfinite_loss to end a run at "
            "its first bad loss");
}

TEST_CASE("resolve: null in a file restores the default over an earlier file") {
  const TemporaryFile first("a.yaml", "seed: 1\nfp16: true\n"),
      second("b.yaml", "seed: null\nfp16: ~\n");
  const auto run = parse_with_model({"--config_file", first.path(), second.path()});
  CHECK(run.arguments.seed == 42);
  CHECK(origin_in(run, "seed") == "default");
}

TEST_CASE("resolve: null in a file keeps defaults that follow from other options") {
  const TemporaryFile file("a.yaml", "do_train: null\ndo_eval: null\ntext_column: null\n");
  const auto run = parse_with_model(
      {"--config_file", file.path(), "--eval_data", "dummy", "--task", "token-classification"});
  CHECK(run.arguments.do_train);
  CHECK(run.arguments.do_eval);
  CHECK(origin_in(run, "do_eval") == "derived from eval_data");
  CHECK(run.options.text_column == "tokens");
}

TEST_CASE("resolve: the values of Python users for a choice are accepted") {
  CHECK(parse_with_model({"--group_by_length", "true"}).arguments.train_sampling_strategy ==
        SamplingStrategy::group_by_length);
  CHECK(parse_with_model({"--include_num_input_tokens_seen", "True"})
            .arguments.include_num_input_tokens_seen == CountTokens::all);
  CHECK(parse_with_model({"--log_level", "detail"}).arguments.log_level == LogLevel::debug);
}

}  // namespace options_resolve_test
