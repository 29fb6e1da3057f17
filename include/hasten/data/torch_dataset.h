// File: hasten/data/torch_dataset.h
// torch::data's map datasets (TensorDataset, MNIST, one of your own, with .map(...) or without) as
// make_loader takes datasets:
//
//   auto loader = make_loader(MNIST(folder).map(torch::data::transforms::Stack<>()),
//                             {.batch_size = 32, .shuffle = true});
//
// Batches are what the dataset's get_batch gives, as under torch::data::make_data_loader; order,
// length, workers and position are hasten's. Throws UsageError "data.unknown-size" when a loader is
// made of a dataset without a size. Thread rule: with workers one dataset's get_batch is called
// from several threads at once, where torch::data copies the dataset a worker; a dataset that keeps
// state between calls wants num_workers = 0.
#pragma once

#include <c10/util/ArrayRef.h>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "hasten/data/loader_core.h"

namespace hasten {

// torch::data::datasets::BatchDataset with rows by number.
template <class D>
concept TorchMapDataset = requires(D& dataset, c10::ArrayRef<std::size_t> rows) {
  dataset.get_batch(rows);
  { dataset.size() } -> std::same_as<std::optional<std::size_t>>;
};

template <TorchMapDataset D>
class TorchDataset {
 public:
  explicit TorchDataset(std::shared_ptr<D> dataset) : dataset_(std::move(dataset)) {
    if (!dataset_->size()) detail::throw_unknown_size("make_loader");
  }

  std::int64_t size() const { return static_cast<std::int64_t>(*dataset_->size()); }
  auto get_batch(std::span<const std::int64_t> indices) {
    const std::vector<std::size_t> rows(indices.begin(), indices.end());
    return dataset_->get_batch(rows);
  }

 private:
  std::shared_ptr<D> dataset_;
};

}  // namespace hasten
