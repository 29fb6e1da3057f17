// File: trainer/repeatable_model.h (internal)
// Decides whether a graph can repeat the steps of a model (docs/design/024). Code that runs on the
// host, such as a hook, runs once while a graph records the step, and not in its replays.
//
//   if (const std::string reason = unrepeatable_hook(*model); !reason.empty()) log(reason);
//   if (const std::string name = unknown_class(*model); !name.empty()) log(name);
//
// Thread rule: that of the module.
#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <string>

namespace hasten {

// If cuda_graph is unset, a graph is recorded after this many consecutive steps of one shape.
inline constexpr std::int64_t kSteadySteps = 8;

// True if a function is called with the gradient of this parameter before it is added to grad().
bool has_gradient_hook(const at::Tensor& parameter);
// Returns a description of a hook of the module, of a module in it, or of their parameters. Empty
// if there is none.
std::string unrepeatable_hook(const torch::nn::Module& model);
// Returns the name of a class of a module that is neither hasten's nor LibTorch's, because its
// forward() may compute with numbers of the host. Empty if there is none.
std::string unknown_class(const torch::nn::Module& model);
// True if the device has room for a graph, which needs at most `peak` bytes in addition to ordinary
// steps and evaluations. `peak` is the peak of the process's tensors, and `used` counts all
// processes.
bool has_memory_for_graph(std::int64_t total, std::int64_t used, std::int64_t peak);

}  // namespace hasten
