// Names that the examples of hasten/anatomy use without declaring them.
#pragma once

#include "header_examples/contexts/any.h"

namespace context_of_anatomy {

extern hasten::anatomy::Report report;
extern hasten::anatomy::TpuEstimate tpu_estimate;
extern std::vector<torch::data::Example<>> train_loader;
extern std::shared_ptr<torch::nn::Module> model;
template <class Batch>
Batch first_rows(const Batch& batch, std::int64_t rows);

}  // namespace context_of_anatomy
