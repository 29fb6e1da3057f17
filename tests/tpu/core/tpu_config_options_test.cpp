// The options of hasten tpu-config: the arguments of gcloud, and the errors before gcloud runs.
#include "tpu/commands/tpu_config_options.h"

#include "unit/options/support.h"

namespace core_tpu_config_options_test {

using namespace hasten;
using test::contains;
using test::TemporaryFile;

namespace {

const test::Texts kTarget = {"--tpu_name", "mine", "--tpu_zone", "us-b"};

TpuConfigCommand parse(const test::Texts& arguments) { return parse_tpu_config(arguments, {}); }

TpuConfigCommand parse_with_target(test::Texts arguments) {
  arguments.insert(arguments.begin(), kTarget.begin(), kTarget.end());
  return parse(arguments);
}

test::CaughtError error_of_parse(const test::Texts& arguments) {
  return test::error_of([&] { parse(arguments); });
}

test::CaughtError error_with_target(const test::Texts& arguments) {
  return test::error_of([&] { parse_with_target(arguments); });
}

}  // namespace

TEST_CASE("tpu-config: the gcloud command has all arguments") {
  const auto run = parse_with_target({"--command", "echo 'it''s'", "--use_alpha", "--debug"});
  CHECK(run.options.dry_run);
  CHECK(gcloud_command(run) == test::Texts{"gcloud", "alpha", "compute", "tpus", "tpu-vm", "ssh",
                                           "mine", "--zone", "us-b", "--command",
                                           "cd /usr/share; echo 'it''s'", "--worker", "all"});
  const auto usual = parse_with_target({"--command", "pwd"});
  CHECK(!usual.options.dry_run);
  CHECK(gcloud_command(usual)[1] == "compute");
}

TEST_CASE("tpu-config: commands keep their order, however often the flag appears") {
  CHECK(parse_with_target({"--command", "a, b", "c", "--use-alpha", "--command=d -e"}).command ==
        "cd /usr/share; a, b; c; d -e");
  CHECK(parse_with_target({"--command", "ls", "-h"}).command == "cd /usr/share; ls; -h");
}

TEST_CASE("tpu-config: a script stays unchanged") {
  const TemporaryFile script("setup.sh",
                             "#!/bin/bash\n# first\nif true; then\n  echo \"$HOME\"\nfi\n\n");
  CHECK(parse_with_target({"--command_file", script.path()}).command ==
        "cd /usr/share\n#!/bin/bash\n# first\nif true; then\n  echo \"$HOME\"\nfi");
}

TEST_CASE("tpu-config: flags override the file of hasten launch") {
  const TemporaryFile script("setup.sh", "date\n");
  const TemporaryFile file("launch.yaml",
                           "distributed_type: XLA\ntpu_name: filed\ntpu_zone: z\n"
                           "commands: ['a, b', c]\nnum_processes: 8\n");
  const TemporaryFile json(
      "launch.json",
      R"({"tpu_name": "j", "tpu_zone": "z", "command_file": ")" + script.path() + "\"}");
  const auto run = parse({"--config_file", file.path()});
  CHECK(run.options.tpu_name == "filed");
  CHECK(run.command == "cd /usr/share; a, b; c");
  CHECK(parse({"--config_file", json.path()}).command == "cd /usr/share\ndate");
  const auto over = parse({"--config_file", json.path(), "--tpu_name", "mine", "--command", "pwd"});
  CHECK(over.options.tpu_name == "mine");
  CHECK(over.command == "cd /usr/share; pwd");
  CHECK(parse({"--config_file", file.path(), "--command_file", script.path()}).command ==
        "cd /usr/share\ndate");
}

TEST_CASE("tpu-config: invalid options are refused") {
  CHECK(error_with_target({}).code == "config.missing");
  CHECK(error_of_parse({"--tpu_zone", "z", "--command", "a"}).code == "config.missing");
  CHECK(error_of_parse({"--tpu_name", "n", "--command", "a"}).code == "config.missing");
  CHECK(error_with_target({"--command"}).code == "config.missing-value");
  CHECK(error_with_target({"--command", "--use_alpha"}).code == "config.missing-value");
  CHECK(error_with_target({"--command", " "}).code == "config.bad-value");
  CHECK(error_with_target({"--command_file", "/no/such.sh"}).code == "io.open");
  CHECK(error_with_target({"--command_file", "/tmp"}).code == "io.read");
  CHECK(error_with_target({"--command", "a", "--command_file", "/no/such.sh"}).code ==
        "config.contradiction");
  CHECK(error_with_target({"--comand", "a"}).code == "config.unknown-key");
  CHECK(error_with_target({"now"}).code == "config.unexpected-argument");
  for (const char* name : {"a b", "-x", "a;b", "$(id)", "a'b"})
    CHECK(error_of_parse({"--tpu_name=" + std::string(name), "--tpu_zone", "z", "--command", "a"})
              .code == "config.bad-value");
  for (const test::Texts& install : {test::Texts{"--command", "a", "--install_accelerate"},
                                     {"--command", "a", "--accelerate_version", "1.0"}}) {
    const auto caught = error_with_target(install);
    CHECK(caught.code == "config.not-supported");
    CHECK(contains(caught.text, "scp"));
  }
  CHECK(parse_with_target({"--command", "a", "--accelerate_version", "latest"}).command ==
        "cd /usr/share; a");
  const TemporaryFile empty("empty.sh", "\n \n");
  CHECK(error_with_target({"--command_file", empty.path()}).code == "config.missing");
  const TemporaryFile binary("binary.sh", std::string("a\0b", 3));
  CHECK(error_with_target({"--command_file", binary.path()}).code == "config.bad-value");
  const TemporaryFile misspelt("launch.yaml", "tpu_nam: x\n");
  CHECK(error_with_target({"--config_file", misspelt.path(), "--command", "a"}).code ==
        "config.unknown-key");
  const TemporaryFile both("both.yaml", "command_file: a\ncommands: [b]\n");
  CHECK(error_with_target({"--config_file", both.path()}).code == "config.contradiction");
}

}  // namespace core_tpu_config_options_test
