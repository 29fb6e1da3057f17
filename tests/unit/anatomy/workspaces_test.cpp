#include "anatomy/workspaces.h"

#include <doctest/doctest.h>
#include <torch/torch.h>

#include <vector>

namespace anatomy_workspaces_test {

using namespace hasten;

TEST_CASE("workspaces: a kernel that throws does so in every call with these arguments") {
  const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("aten::cumsum", "");
  const auto arguments = [](std::int64_t dimension) {
    return std::vector<c10::IValue>{at::ones({4}), dimension, c10::IValue()};
  };
  for (int call = 0; call < 2; ++call) {
    CHECK_THROWS_AS(anatomy::allocation_trace(op, arguments(7)), c10::Error);
    CHECK_THROWS_AS(anatomy::shapes_from_kernel(op, arguments(7)), c10::Error);
    CHECK(anatomy::allocation_trace(op, arguments(0)).results.size() == 1);
    CHECK(anatomy::shapes_from_kernel(op, arguments(0))->size() == 1);
  }
}

}  // namespace anatomy_workspaces_test
