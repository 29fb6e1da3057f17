// Tests which devices processes use if several sources choose them.
#include "tpu/commands/tpu_options.h"

#include "hasten/base/text.h"
#include "tpu/machine/installed_tpus.h"
#include "unit/options/support.h"

namespace core_tpu_options_test {

using namespace hasten;
using test::contains;

namespace {

LaunchConfiguration parse(test::Texts arguments, const std::string& file = "",
                          const config::Environment& environment = {}) {
  const test::TemporaryFile named("launch.yaml", file);
  arguments.insert(arguments.begin(), {"--config_file", named.path()});
  arguments.emplace_back("program");
  return parse_launch(arguments, environment);
}

test::CaughtError error_of_parse(const test::Texts& arguments, const std::string& file = "",
                                 const config::Environment& environment = {}) {
  return test::error_of([&] { parse(arguments, file, environment); });
}

}  // namespace

TEST_CASE("tpu options: the source with the highest precedence wins") {
  struct Case {
    test::Texts flags;
    std::string file;
    config::Environment environment;
    bool tpu;
    bool cpu;
  };
  const std::string xla = "distributed_type: XLA\n", cpu = "use_cpu: true\n";
  const bool has_tpus = !config::installed_tpus().empty();
  const std::vector<Case> table = {
      {{}, "", {}, has_tpus, false},
      {{"--tpu"}, "", {}, true, false},
      {{}, xla, {}, true, false},
      {{}, "distributed_type: TPU\n", {}, true, false},
      {{}, "tpu: true\n", {}, true, false},
      {{}, "", {{"ACCELERATE_USE_TPU", "true"}}, true, false},
      {{}, "", {{"ACCELERATE_USE_TPU", "false"}}, has_tpus, false},
      {{}, "", {{"HASTEN_TPU", "true"}}, true, false},
      {{"--no_tpu"}, xla, {}, false, false},
      {{"--no_tpu"}, "", {{"ACCELERATE_USE_TPU", "true"}}, false, false},
      {{"--cpu"}, xla, {}, false, true},
      {{"--cpu"}, "", {{"ACCELERATE_USE_TPU", "true"}}, false, true},
      {{"--tpu"}, cpu, {}, true, false},
      {{}, cpu, {{"HASTEN_TPU", "1"}}, true, false},
      {{}, xla, {{"HASTEN_USE_CPU", "1"}}, false, true},
      {{"--distributed_type", "MULTI_CPU"}, xla, {}, false, false},
  };
  for (const Case& each : table) {
    CAPTURE(each.flags);
    CAPTURE(each.file);
    const LaunchConfiguration run = parse(each.flags, each.file, each.environment);
    CHECK(run.options.tpu == each.tpu);
    CHECK(run.options.use_cpu == each.cpu);
  }
}

TEST_CASE("tpu options: contradictions are refused") {
  const std::string contradiction = "config.contradiction";
  const auto check = [&](const test::CaughtError& caught, const char* what) {
    CAPTURE(caught.text);
    CHECK(caught.code == contradiction);
    CHECK(caught.exit_code == 2);
    CHECK(contains(caught.text, what));
  };
  check(error_of_parse({"--tpu", "--cpu"}), "--tpu and --use_cpu");
  check(error_of_parse({"--tpu", "--multi_gpu"}), "--multi_gpu");
  check(error_of_parse({"--multi_gpu"}, "distributed_type: XLA\n"),
        "launch.yaml:1: distributed_type XLA");
  check(error_of_parse({"--tpu", "--gpu_ids", "0"}), "--gpu_ids");
  check(error_of_parse({"--tpu", "--downcast_bf16"}), "--downcast_bf16 without bf16");
  check(error_of_parse({"--tpu", "--downcast_bf16", "--mixed_precision", "fp16"}), "without bf16");
  check(error_of_parse({}, "tpu: true\nuse_cpu: true\n"), "use_cpu");
  check(error_of_parse({}, "", {{"HASTEN_USE_CPU", "1"}, {"ACCELERATE_USE_TPU", "1"}}),
        "ACCELERATE_USE_TPU and HASTEN_USE_CPU");
  for (const char* wrong : {"A", "=1", "A B=1", "A=1,B"})
    CHECK(error_of_parse({"--tpu", "--env", wrong}).code == "config.bad-value");
  for (const test::Texts& later :
       {test::Texts{"--tpu", "--tpu_cluster"}, {"--tpu", "--vm", "a"}, {"--tpu-cluster"}})
    CHECK(error_of_parse(later).code == "config.not-supported");
}

TEST_CASE("tpu options: Accelerate's flags work under its names") {
  const auto run = parse({"--tpu", "--env", "A=1,B=x=y", "--no_tpu_cluster", "--mixed_precision",
                          "bf16", "--downcast_bf16"});
  CHECK(run.options.tpu_env == std::vector<std::string>{"A=1", "B=x=y"});
  CHECK(run.options.downcast_bf16);
  CHECK(run.program == std::vector<std::string>{"program"});
  CHECK(run.notices.empty());
  CHECK(parse({"--tpu", "--env=A=1"}).options.tpu_env == std::vector<std::string>{"A=1"});
  const auto without = parse({"--no_tpu", "--env", "A=1", "--downcast_bf16"});
  REQUIRE(without.notices.size() == 2);
  CHECK(contains(without.notices[0], "--downcast_bf16 is ignored: only used on TPUs"));
  const auto named = parse({"--tpu", "--tpu_name", "a"});
  REQUIRE(named.notices.size() == 1);
  CHECK(contains(named.notices[0], "hasten tpu-config"));
}

}  // namespace core_tpu_options_test
