// The processes share buffers of every type, also of those that Gloo cannot send.
#include <doctest/doctest.h>
#include <torch/torch.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "hasten/accelerator.h"
#include "hasten/base/text.h"
#include "hasten/process/notebook_launcher.h"
#include "unit/prepare/multiprocess_checks.h"

namespace prepare_buffer_types_test {

using namespace hasten;
using namespace hasten::multiprocess_checks;

namespace {

// Returns numbers that differ between ranks, with an imaginary part if the type is complex.
at::Tensor buffer_of(at::ScalarType type, std::int64_t rank, at::IntArrayRef sizes) {
  at::Tensor numbers = at::arange(1, 7, at::kDouble) / 3 + 10 * static_cast<double>(rank);
  if (c10::isComplexType(type)) numbers = at::complex(numbers, numbers + 0.5);
  if (type == at::kBool) numbers = (at::arange(6) + rank).remainder(2);
  return numbers.slice(0, 0, c10::multiply_integers(sizes)).reshape(sizes).to(type);
}

// The buffers of a rank: of each type, not contiguous, one number, and without elements.
std::vector<at::Tensor> buffers_of(std::int64_t rank) {
  std::vector<at::Tensor> all;
  for (const at::ScalarType type :
       {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kByte, at::kChar, at::kShort,
        at::kInt, at::kLong, at::kBool, at::kComplexFloat, at::kComplexDouble}) {
    all.push_back(buffer_of(type, rank, {2, 3}));
    all.push_back(buffer_of(type, rank, {2, 3}).t());
    all.push_back(buffer_of(type, rank, {}));
    all.push_back(buffer_of(type, rank, {1}).as_strided({1}, {5}));
    all.push_back(at::zeros({0, 2}, type));
  }
  return all;
}

struct BufferedNet : torch::nn::Module {
  explicit BufferedNet(const std::vector<at::Tensor>& tensors) {
    for (const at::Tensor& tensor : tensors)
      register_buffer(str("buffer_", buffers(/*recurse=*/false).size()), tensor);
    layer = register_module("layer", torch::nn::Linear(2, 1));
  }
  at::Tensor forward(const at::Tensor& x) { return layer->forward(x); }
  torch::nn::Linear layer = nullptr;
};

void require_buffers_of_first_rank(const torch::nn::Module& net, const std::string& when) {
  const std::vector<at::Tensor> got = net.buffers(), expected = buffers_of(0);
  require(got.size() == expected.size(), "the numbers of buffers differ");
  for (std::size_t i = 0; i < got.size(); ++i) {
    require(at::equal(got[i], expected[i]),
            str(when, ": buffer ", i, " of type ", c10::toString(expected[i].scalar_type())));
    require(got[i].strides() == expected[i].strides(), str("the strides of buffer ", i));
  }
}

}  // namespace

TEST_CASE("distributed: buffers of every type are those of rank 0") {
  for (const bool debug : {false, true}) {
    debug_launcher([debug] {
      Accelerator accelerator({.debug = debug});
      const std::int64_t rank = accelerator.group().rank();
      const auto net = std::make_shared<BufferedNet>(buffers_of(rank));
      auto [model] = accelerator.prepare(net);
      require_buffers_of_first_rank(*net, "after prepare()");
      const std::vector<at::Tensor> own = buffers_of(rank);
      std::vector<at::Tensor> buffers = net->buffers();
      for (std::size_t i = 0; i < own.size(); ++i) buffers[i].copy_(own[i]);
      accelerator.backward(model(at::ones({3, 2})).mean());
      require_buffers_of_first_rank(*net, "after a forward pass");
    });
  }
}

TEST_CASE("distributed: a model whose only buffer is empty and of a type that Gloo lacks") {
  debug_launcher([] {
    Accelerator accelerator;
    const auto net =
        std::make_shared<BufferedNet>(std::vector<at::Tensor>{at::zeros({0}, at::kShort)});
    auto [model] = accelerator.prepare(net);
    accelerator.backward(model(at::ones({3, 2})).mean());
    require(net->layer->weight.grad().defined(), "there is no gradient");
  });
}

}  // namespace prepare_buffer_types_test
