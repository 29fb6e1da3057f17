// File: hasten/data/detail/any_batch.h
// A batch of any type, which the Trainer carries from a dataset to the functions that compute with
// it.
//
//   AnyBatch batch(std::pair{images, digits});
//   auto& [x, y] = batch.as<std::pair<at::Tensor, at::Tensor>>();
//   if (const TensorDict* columns = batch.get_if<TensorDict>()) std::cout << columns->size();
//
// A copy refers to the same batch. The first dimension of each tensor counts the rows of the batch.
// for_each_tensor (hasten/data/batch.h) has to reach every tensor: a tensor that it does not reach
// stays on its device. Throws UsageError "data.batch-type". Thread rule: that of the batch.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <typeinfo>
#include <utility>

#include "hasten/base/detail/export.h"
#include "hasten/data/batch.h"
#include "hasten/formats/detail/tensor_dict.h"

namespace hasten {

namespace detail {

[[noreturn]] HASTEN_API void throw_batch_type(const std::type_info& given,
                                              const std::type_info& expected);

// Returns the labels of a batch by convention: the column of a TensorDict, the second tensor of a
// pair, or the target of an example of torch::data. Returns an undefined tensor if the batch has no
// labels.
template <class Batch>
at::Tensor labels_in(const Batch& batch, [[maybe_unused]] const std::string& column) {
  if constexpr (std::is_same_v<Batch, TensorDict>) {
    const auto found = batch.find(column);
    return found == batch.end() ? at::Tensor() : found->second;
  } else if constexpr (requires {
                         { batch.data } -> std::convertible_to<at::Tensor>;
                         { batch.target } -> std::convertible_to<at::Tensor>;
                       }) {
    return batch.target;
  } else if constexpr (requires {
                         typename Batch::first_type;
                         { batch.second } -> std::convertible_to<at::Tensor>;
                       }) {
    return batch.second;
  } else {
    return {};
  }
}

}  // namespace detail

// A separate namespace, because visit_tensors below would otherwise clash with
// hasten::visit_tensors.
namespace detail::erased {

class HASTEN_API AnyBatch {
 public:
  template <class Batch>
  requires(!std::is_same_v<Batch, AnyBatch>) explicit AnyBatch(Batch batch)
      : AnyBatch(std::make_shared<Batch>(std::move(batch))) {}
  template <class Batch>
  explicit AnyBatch(std::shared_ptr<Batch> batch)
      : content_(std::make_shared<ContentOf<Batch>>(std::move(batch))) {}

  // Returns the batch itself. Throws UsageError "data.batch-type" if the batch has a different
  // type.
  template <class Batch>
  Batch& as() const {
    if (Batch* const batch = get_if<Batch>()) return *batch;
    detail::throw_batch_type(type(), typeid(Batch));
  }
  // Returns the batch itself, or null if it has a different type.
  template <class Batch>
  Batch* get_if() const {
    return type() == typeid(Batch) ? static_cast<Batch*>(content_->data()) : nullptr;
  }
  const std::type_info& type() const { return content_->type(); }

  // Returns a batch that shares the tensors: replacing a tensor in it does not change this batch.
  // If the type of the batch cannot be copied, both objects refer to the same batch.
  AnyBatch copy() const { return AnyBatch(content_->copy()); }
  // Returns the column of that name in a TensorDict, the second tensor of a pair, or the target of
  // an example of torch::data. Returns an undefined tensor if the batch has no labels.
  at::Tensor labels(const std::string& column) const { return content_->labels(column); }

  // Calls f with each tensor (hasten/data/batch.h).
  friend void visit_tensors(AnyBatch& batch, const std::function<void(at::Tensor&)>& f) {
    batch.content_->visit(f);
  }

 private:
  struct Content {
    virtual ~Content() = default;
    virtual const std::type_info& type() const = 0;
    virtual void* data() = 0;
    virtual void visit(const std::function<void(at::Tensor&)>& f) = 0;
    virtual std::shared_ptr<Content> copy() const = 0;
    virtual at::Tensor labels(const std::string& column) const = 0;
  };
  template <class Batch>
  struct ContentOf : Content {
    static_assert(!detail::has_unreachable_members<Batch>(),
                  "hasten cannot reach the members of this batch, so its tensors would stay on "
                  "their device. Define visit_tensors in the namespace of the type: "
                  "hasten/data/batch.h");
    explicit ContentOf(std::shared_ptr<Batch> batch) : batch(std::move(batch)) {}
    const std::type_info& type() const override { return typeid(Batch); }
    void* data() override { return batch.get(); }
    void visit(const std::function<void(at::Tensor&)>& f) override { for_each_tensor(*batch, f); }
    std::shared_ptr<Content> copy() const override {
      if constexpr (std::is_copy_constructible_v<Batch>) {
        return std::make_shared<ContentOf>(std::make_shared<Batch>(*batch));
      } else {
        return std::make_shared<ContentOf>(batch);
      }
    }
    at::Tensor labels(const std::string& column) const override {
      return detail::labels_in(*batch, column);
    }
    std::shared_ptr<Batch> batch;
  };

  explicit AnyBatch(std::shared_ptr<Content> content) : content_(std::move(content)) {}

  std::shared_ptr<Content> content_;
};

}  // namespace detail::erased

using detail::erased::AnyBatch;

}  // namespace hasten
