// The state of LocalSGD and PowerSGD that checkpoints do not have: a run learns of it.
#include <doctest/doctest.h>
#include <torch/torch.h>

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "hasten/accelerator.h"
#include "hasten/base/files.h"
#include "hasten/base/log.h"
#include "hasten/process/notebook_launcher.h"
#include "unit/code_of.h"
#include "unit/prepare/distributed_fixtures.h"

namespace prepare_unsaved_exchange_state_test {

using namespace hasten;
using namespace hasten::multiprocess_checks;
using namespace hasten::distributed_fixtures;
namespace fs = std::filesystem;

TEST_CASE("local SGD: save_state between two averages is an error in all processes") {
  const TemporaryDirectory folder;
  debug_launcher([&] {
    Accelerator accelerator;
    Sequential net = small_model();
    torch::optim::SGD sgd(net->parameters(), torch::optim::SGDOptions(0.1));
    auto [model, optimizer] = accelerator.prepare(net, sgd);
    const auto code_of_save = [&](const char* name) {
      return code_of([&] { accelerator.save_state(folder.path() / name); });
    };
    const auto step = [&] {
      optimizer.zero_grad();
      accelerator.backward(loss_of(model(rows_of(accelerator.group().rank() + 2))));
      optimizer.step();
    };
    {
      LocalSGD local_sgd(accelerator, model, {.local_sgd_steps = 2});
      require(code_of_save("begin") == "none", "no step was made");
      step();
      require(code_of_save("one") == "prepare.local-sgd-save", "before the first step()");
      local_sgd.step();
      require(code_of_save("one") == "prepare.local-sgd-save", "after the first step()");
      step();
      require(code_of_save("two") == "prepare.local-sgd-save", "before the average");
      local_sgd.step();
      require(local_sgd.averages() == 1, "the number of averages");
      require(code_of_save("two") == "none", "after the average");
      require(!fs::exists(folder.path() / "one"), "a refused save writes nothing");
      step();
      local_sgd.step();
    }
    require(code_of_save("after") == "none", "after the scope");
    // The checkpoint has the weights of every process.
    const std::vector<at::Tensor> saved = copies(net->parameters());
    step();
    accelerator.load_state(folder.path() / "after");
    require_close(net->parameters(), saved, "the weights", 0);
  });
}

TEST_CASE("PowerSGD: load_state says that a new process begins it again") {
  const TemporaryDirectory folder;
  for (const CommunicationHook hook : {CommunicationHook::no, CommunicationHook::power_sgd}) {
    debug_launcher([&] {
      std::string log;
      set_log_sink([&](std::string_view line) { log += line; });
      Accelerator accelerator({.ddp = {.comm_hook = hook}});
      Sequential net = small_model();
      auto [model] = accelerator.prepare(net);
      accelerator.save_state(folder.path() / "state");
      accelerator.load_state(folder.path() / "state");
      set_log_sink({});
      const bool is_reported = log.find("begins PowerSGD again") != std::string::npos;
      const bool is_expected =
          hook == CommunicationHook::power_sgd && accelerator.is_main_process();
      require(is_reported == is_expected, "the log: " + log);
    });
  }
}

}  // namespace prepare_unsaved_exchange_state_test
