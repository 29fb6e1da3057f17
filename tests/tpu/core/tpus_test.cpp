// Topologies by name, the search for the compiler, and the options that use them.
#include "tpu/machine/tpus.h"

#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "commands/estimate_options.h"
#include "commands/observe_options.h"
#include "hasten/base/files.h"
#include "unit/code_of.h"

namespace core_tpus_test {

using namespace hasten;

namespace {

namespace fs = std::filesystem;

std::string refusal(const std::string& name) {
  try {
    parse_tpu_topology(name);
  } catch (const Error& error) {
    return error.code() + ": " + error.what();
  }
  return "none";
}

EstimateConfiguration parse(const std::vector<std::string>& arguments) {
  return parse_estimate(arguments, {});
}

TEST_CASE("tpus: a topology has a name and a number of chips") {
  CHECK(parse_tpu_topology("v5e:2x2").chips == 4);
  CHECK(parse_tpu_topology("v5p:2x2x4").chips == 16);
  CHECK(parse_tpu_topology("tpu7x:2x2x1").chip == "tpu7x");
  CHECK(parse_tpu_topology("v6e:16x16").name == "v6e:16x16");
  for (const char* wrong :
       {"", "v5e", "v5e:", "v5e:2", "v5e:2x2x2", "v5e:0x2", "v5e:2x", "v5e:2x2 ", "v5e:-2x2",
        "v5e:2x99999999999999999999", "v5p:2x2", "v7x:2x2", "2x2", "V5E:2x2", "v5e:2X2"})
    CHECK_MESSAGE(refusal(wrong).rfind("config.unknown-device: ", 0) == 0, wrong);
  CHECK(refusal("v5:2x2").find("did you mean v5e or v5p?") != std::string::npos);
  CHECK(refusal("v5p:2x2").find("3 sizes, such as v5p:2x2x2") != std::string::npos);
}

TEST_CASE("tpus: the compiler is found among Python's packages") {
  const TemporaryDirectory temporary;
  const fs::path& root = temporary.path();
  const auto make = [&](const std::string& folder) {
    fs::create_directories(root / folder / "libtpu");
    std::ofstream(root / folder / "libtpu/libtpu.so") << "";
    return (root / folder).string();
  };
  const std::string beside = make("beside"), path = make("path");
  make("env/lib/python3.11/site-packages");
  const std::string in_env = (root / "env/lib/python3.11/site-packages/libtpu/libtpu.so").string();
  CHECK(find_libtpu({}, {"/nowhere", beside}) == beside + "/libtpu/libtpu.so");
  CHECK(find_libtpu({{"PYTHONPATH", "/nowhere:" + path}}, {beside}) == path + "/libtpu/libtpu.so");
  CHECK(find_libtpu({{"PYTHONPATH", path}, {"VIRTUAL_ENV", (root / "env").string()}}) == in_env);
  CHECK(find_libtpu({{"HASTEN_LIBTPU", in_env}}, {beside}) == in_env);
  CHECK(code_of([&] {
          find_libtpu({{"HASTEN_LIBTPU", "/nowhere/libtpu.so"}}, {beside});
        }) == "device.tpu-compiler");
  // A folder that cannot be examined, here a link to itself, is skipped.
  fs::create_symlink("loop", root / "loop");
  const std::string loop = (root / "loop").string();
  CHECK(find_libtpu({{"PYTHONPATH", loop + ":" + path}}) == path + "/libtpu/libtpu.so");
  CHECK(code_of([&] { find_libtpu({{"HASTEN_LIBTPU", loop}}); }) == "device.tpu-compiler");
  try {
    find_libtpu({}, {"/nowhere"});
    FAIL("found");
  } catch (const Error& error) {
    CHECK(error.code() == "device.tpu-compiler");
    CHECK(error.hint().find("pip install libtpu") != std::string::npos);
  }
}

TEST_CASE("tpus: --tpu of hasten estimate accepts topologies") {
  CHECK(parse({"bert-base", "--tpu", "v5e:2x2"}).device == "tpu:v5e:2x2");
  CHECK(parse({"bert-base", "--tpu=v6e:2x4", "--json"}).device == "tpu:v6e:2x4");
  CHECK(code_of([] { parse({"bert-base", "--tpu", "v9:2x2"}); }) == "config.unknown-device");
  const EstimateConfiguration all =
      parse({"bert-base", "--tpu", "v5e:2x2", "--what_if", "--html=page.html", "--mode=inference"});
  CHECK(all.what_if);
  CHECK(all.html == "page.html");
  CHECK(all.mode == EstimateMode::inference);
  CHECK(code_of([] {
          parse({"bert-base", "--tpu", "v5e:2x2", "--measure"});
        }) == "config.contradiction");
  const std::vector<std::string> arguments = {"--tpu", "v5e:2x2", "--steps", "2", "--", "./train"};
  const ObserveOptions listen = parse_observe(arguments, "estimate");
  CHECK(listen.device == "tpu:v5e:2x2");
  CHECK(listen.program == std::vector<std::string>{"./train"});
  CHECK(code_of([&] { parse_observe(arguments, "anatomy"); }) == "config.unknown-key");
}

}  // namespace

}  // namespace core_tpus_test
