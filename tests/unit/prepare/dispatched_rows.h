// Rows that hold their own numbers and are sent as tensors with texts.
//
//   Accelerator accelerator(dispatch_options(true));
//   auto loader = make_loader(RowDataset{29}, {.batch_size = 4}, TextCollator{});
#pragma once

#include <torch/torch.h>

#include <atomic>

#include "hasten/data/loader.h"
#include "unit/prepare/distributed_fixtures.h"

namespace hasten::dispatched_rows {

using namespace hasten::multiprocess_checks;
using namespace hasten::distributed_fixtures;

using Rows = std::vector<std::int64_t>;
using Texts = std::pair<TensorDict, std::vector<std::string>>;

struct Row {
  std::int64_t number;
};
struct TextCollator {
  Texts operator()(std::span<const Row> rows) const {
    std::vector<std::string> texts;
    Rows numbers;
    for (const Row& row : rows) {
      numbers.push_back(row.number);
      texts.push_back(str("row ", row.number));
    }
    return {{{"numbers", at::tensor(numbers, at::kLong)}}, texts};
  }
};
struct RowDataset {
  std::int64_t rows;
  std::shared_ptr<std::atomic<std::int64_t>> reads = std::make_shared<std::atomic<std::int64_t>>();
  std::int64_t fails_at = -1;
  std::int64_t size() const { return rows; }
  Row get(std::int64_t index) const {
    ++*reads;
    if (index == fails_at) throw DataError("test.broken", {.what = "broken", .got = "row 13"});
    return {index};
  }
};
struct Stream {
  std::int64_t rows;
  std::shared_ptr<std::atomic<std::int64_t>> reads = std::make_shared<std::atomic<std::int64_t>>();
  std::int64_t fails_at = -1;
  std::int64_t at = 0;
  std::optional<Row> next() {
    if (at == rows) return std::nullopt;
    ++*reads;
    if (at == fails_at) throw std::runtime_error("the line is cut");
    return Row{at++};
  }
  void rewind(std::int64_t) { at = 0; }
};

inline Rows rows_in(const Texts& batch) {
  const at::Tensor numbers = batch.first.at("numbers");
  Rows rows;
  for (std::int64_t i = 0; i < numbers.size(0); ++i) {
    rows.push_back(numbers[i].item<std::int64_t>());
    require(batch.second[static_cast<std::size_t>(i)] == str("row ", rows.back()),
            "the text of another row");
  }
  return rows;
}

inline std::vector<Rows> pass(auto& loader) {
  std::vector<Rows> all;
  for (auto& batch : loader) all.push_back(rows_in(batch));
  return all;
}

inline AcceleratorOptions dispatch_options(std::optional<bool> dispatch, bool even = true,
                                           bool split = false) {
  return {.dataloader_config = {
              .split_batches = split, .dispatch_batches = dispatch, .even_batches = even}};
}

}  // namespace hasten::dispatched_rows
