// The options of hasten test, and the options that it passes to launch.
#include "commands/test_options.h"

#include <doctest/doctest.h>

#include <algorithm>

#include "hasten/base/error.h"

namespace commands_test_options_test {

using namespace hasten;

namespace {

TestCommand parse_arguments(std::vector<std::string> arguments,
                            const config::Environment& environment = {}) {
  arguments.insert(arguments.begin(), "--no_config_file");
  return parse_test(arguments, environment, {"ranks", "now"});
}

std::string code_of(std::vector<std::string> arguments) {
  try {
    parse_arguments(std::move(arguments));
  } catch (const Error& error) {
    return error.code();
  }
  return "";
}

}  // namespace

TEST_CASE("test options: options of test are removed, and options of launch keep their order") {
  const auto run =
      parse_arguments({"-n", "3", "--timeout", "2.5", "--use_cpu", "--json", "--log_dir=logs"});
  CHECK(run.options.timeout == 2.5);
  CHECK(run.options.json);
  CHECK(run.launch.options.num_processes == 3);
  CHECK(run.launch.options.use_cpu);
  CHECK(run.launch_arguments ==
        std::vector<std::string>{"--no_config_file=true", "--num_processes=3", "--use_cpu=true",
                                 "--log_dir=logs", "--max_restarts=0", "--", "ranks", "now"});
  CHECK(parse_arguments({"--timeout=7", "--json", "false"}).options.timeout == 7);
  CHECK_FALSE(parse_arguments({"--json", "false"}).options.json);
  CHECK_FALSE(parse_arguments({"--json", "no"}).options.json);
}

TEST_CASE("test options: the default number of processes is two") {
  CHECK(parse_arguments({"--use_cpu"}).launch.options.num_processes == 2);
  CHECK(parse_arguments({"--use_cpu", "-n", "1"}).launch.options.num_processes == 1);
  CHECK(parse_arguments({"--use_cpu"}, {{"HASTEN_NUM_PROCESSES", "5"}})
            .launch.options.num_processes == 5);
  CHECK_FALSE(parse_arguments({"--use_cpu", "--nproc_per_node", "1"}).launch.options.num_processes);
  CHECK_FALSE(parse_arguments({"--gpu_ids", "0"}).launch.options.num_processes);
  CHECK_FALSE(
      parse_arguments({"--tpu"}, {{"TPU_LIBRARY_PATH", "/plugin.so"}})  // one process for each chip
          .launch.options.num_processes);
  const config::Environment secret = {{"HASTEN_JOB_TOKEN", "0123456789abcdef0123456789abcdef"}};
  CHECK_FALSE(parse_arguments({"--nnodes", "2", "--rdzv_endpoint", "10.0.0.1"}, secret)
                  .launch.options.num_processes);
}

TEST_CASE("test options: the arguments for hasten launch give the same options") {
  const auto run = parse_arguments({"-n", "2", "--log_dir=", "--tpu_env", "A=1,B=2", "--no_debug",
                                    "--rdzv_conf", "join_timeout=5,same_program=true"});
  const auto again = parse_launch(run.launch_arguments, {});
  CHECK(again.program == run.launch.program);
  REQUIRE(again.values.size() == run.launch.values.size());
  for (std::size_t i = 0; i < again.values.size(); ++i) {
    CAPTURE(again.values[i].name);
    CHECK(again.values[i].value == run.launch.values[i].value);
  }
}

TEST_CASE("test options: a failed rank is not restarted, whatever the configuration says") {
  CHECK(parse_arguments({"--max_restarts", "3"}).launch.options.max_restarts == 0);
}

TEST_CASE("test options: invalid arguments are refused") {
  CHECK(code_of({"./program"}) == "config.unexpected-argument");
  CHECK(code_of({"-n", "2", "--", "./program"}) == "config.unexpected-argument");
  CHECK(code_of({"--timeout", "0"}) == "config.out-of-range");
  CHECK(code_of({"--timeout", "soon"}) == "config.bad-value");
  CHECK(code_of({"--timeout"}) == "config.missing-value");
  CHECK(code_of({"--timout", "3"}) == "config.unknown-key");
  CHECK(code_of({"--slurm"}) == "config.contradiction");
  CHECK(code_of({"-n"}) == "config.missing-value");
  CHECK(parse_arguments({"--help"}).help);
}

}  // namespace commands_test_options_test
