// Names that the examples of hasten/anatomy use without declaring them.
#pragma once

#include "header_examples/contexts/any.h"

namespace names_of_anatomy {

extern hasten::anatomy::Report report;
extern hasten::anatomy::TpuAccount account;
extern std::vector<torch::data::Example<>> train_loader;

}  // namespace names_of_anatomy
