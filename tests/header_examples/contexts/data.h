// Names that the examples of hasten/data use without declaring them.
#pragma once

#include "header_examples/contexts/any.h"

namespace context_of_data {

extern at::Device device;
extern hasten::TensorDict batch, outputs;
extern std::vector<hasten::TensorDict> rows;
extern hasten::ColumnDataset dataset;
extern hasten::Loader<hasten::TensorDict> loader;
extern std::vector<std::int64_t> scratch;
extern std::int64_t first, count;
extern std::vector<std::int64_t> lengths;
extern std::vector<double> weights;
extern hasten::TokenDataset tokens;
extern hasten::BertTokenizer tokenizer;

}  // namespace context_of_data
