// The asserts of Accelerate's test_utils/scripts/test_ops.py (1.15) that
// tests/ranks/collectives.cpp does not have. The comments name its functions.
#include <doctest/doctest.h>
#include <torch/torch.h>

#include <string>
#include <vector>

#include "hasten/process/notebook_launcher.h"
#include "ported/regression.h"
#include "unit/code_of.h"

namespace ported_accelerate_ops_test {

using namespace hasten;
using namespace hasten::multiprocess_checks;

namespace {

at::Tensor own_numbers(const ProcessState& state) {
  return torch::arange(state.num_processes) + 1.0 +
         static_cast<double>(state.num_processes * state.process_index);
}

}  // namespace

TEST_CASE("ops: the Accelerator's collectives have the values of Accelerate's") {
  for (const int world : {1, 2, 3}) {
    debug_launcher(
        [] {
          Accelerator accelerator;
          const ProcessState& state = accelerator.process();
          const std::int64_t world = state.num_processes;
          const at::Tensor own = own_numbers(state);
          // test_gather
          require(at::equal(accelerator.gather(own), torch::arange(1, world * world + 1).to(own)),
                  "gather");
          // test_broadcast
          require(at::equal(hasten::broadcast(accelerator.group(), own),
                            torch::arange(1, world + 1).to(own)),
                  "broadcast");
          // test_gather_object
          const auto objects =
              accelerator.group().gather_object(std::to_string(state.process_index));
          require(static_cast<std::int64_t>(objects.size()) == world, "the number of objects");
          for (std::int64_t rank = 0; rank < world; ++rank)
            require(objects[static_cast<std::size_t>(rank)] == std::to_string(rank), "objects");
          // test_pad_across_processes
          const at::Tensor longest = torch::arange(world + 1);
          const at::Tensor padded = accelerator.pad_across_processes(
              state.is_main_process() ? longest : torch::arange(world));
          require(padded.sizes() == at::IntArrayRef({world + 1}), "the padded shape");
          if (!state.is_main_process())
            require(at::equal(padded.narrow(0, 0, world), torch::arange(world)) &&
                        padded[world].item<std::int64_t>() == 0,
                    "the padding");
          if (world != 2) return;
          // test_reduce_sum, test_reduce_mean, test_reduce_max
          const auto reduced = [&](Reduction reduction) {
            return accelerator.reduce(own, reduction);
          };
          require(at::allclose(reduced(Reduction::sum), torch::tensor({4.0F, 6.0F})), "sum");
          require(at::allclose(reduced(Reduction::mean), torch::tensor({2.0F, 3.0F})), "mean");
          require(at::allclose(reduced(Reduction::max), torch::tensor({3.0F, 4.0F})), "max");
        },
        world);
  }
}

TEST_CASE("ops: with debug, tensors of different shapes are refused before they are exchanged") {
  // test_op_checker
  debug_launcher([] {
    Accelerator accelerator({.debug = true});
    const bool is_main = accelerator.is_main_process();
    const auto data = [&](at::IntArrayRef other) {
      return TensorDict{{"tensor", is_main ? torch::zeros({1, 5}) : torch::zeros(other)}};
    };
    require(code_of([&] {
              accelerator.pad_across_processes(data({1, 1, 6}));
            }) == "process.calls-differ",
            "pad_across_processes");
    require(code_of([&] {
              accelerator.reduce(data({1, 2, 5}));
            }) == "process.calls-differ",
            "reduce");
    require(code_of([&] {
              hasten::broadcast(accelerator.group(), data({1, 2, 5}));
            }) == "process.calls-differ",
            "broadcast");
    require(accelerator.reduce(torch::ones({2})).sum().item<double>() == 4,
            "equal calls after refused ones");
  });
}

}  // namespace ported_accelerate_ops_test
