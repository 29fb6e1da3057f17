// File: hasten/data/batch.h
// Reaching the tensors of a batch, whatever its type: to pin them, to move them to a device, to
// count their bytes.
//
//   visit_tensors(batch, [&](at::Tensor& tensor) { tensor = tensor.to(device); });
//
// Known are a tensor, a TensorDict, vectors, maps and pairs of what is known, and structs with the
// members `data` and `target` (torch::data::Example). For a struct of your own, put a function
// beside it:
//
//   struct Game { at::Tensor board, move; };
//   template <class F> void visit_tensors(Game& game, F&& f) { f(game.board); f(game.move); }
//
// Thread rule: as the batch's own.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <type_traits>
#include <utility>
#include <vector>

namespace hasten {

namespace detail {

template <class T>
concept LikeExample = requires(T& example) {
  example.data;
  example.target;
};

// Whether visit_tensors takes a T: the types below, and those with a visit_tensors beside them.
template <class T>
constexpr bool has_tensors = requires(T& batch, void (*f)(at::Tensor&)) {
  visit_tensors(batch, f);
};
template <>
inline constexpr bool has_tensors<at::Tensor> = true;
template <class Key, class Value>
constexpr bool has_tensors<std::map<Key, Value>> = has_tensors<Value>;
template <class Value>
constexpr bool has_tensors<std::vector<Value>> = has_tensors<Value>;
template <class First, class Second>
constexpr bool has_tensors<std::pair<First, Second>> = has_tensors<First>&& has_tensors<Second>;
template <LikeExample T>
constexpr bool has_tensors<T> = has_tensors<std::remove_cvref_t<decltype(T::data)>>&&
    has_tensors<std::remove_cvref_t<decltype(T::target)>>;

}  // namespace detail

// A batch whose tensors visit_tensors reaches.
template <class Batch>
concept TensorBatch = detail::has_tensors<Batch>;

template <class F>
void visit_tensors(at::Tensor& tensor, F&& f) {
  f(tensor);
}

// Declared before any is defined, so that they find each other.
template <class Key, TensorBatch Value, class F>
void visit_tensors(std::map<Key, Value>& batch, F&& f);
template <TensorBatch Value, class F>
void visit_tensors(std::vector<Value>& batch, F&& f);
template <TensorBatch First, TensorBatch Second, class F>
void visit_tensors(std::pair<First, Second>& batch, F&& f);
template <detail::LikeExample Example, class F>
void visit_tensors(Example& example, F&& f);

template <class Key, TensorBatch Value, class F>
void visit_tensors(std::map<Key, Value>& batch, F&& f) {
  for (auto& [key, value] : batch) visit_tensors(value, f);
}
template <TensorBatch Value, class F>
void visit_tensors(std::vector<Value>& batch, F&& f) {
  for (Value& value : batch) visit_tensors(value, f);
}
template <TensorBatch First, TensorBatch Second, class F>
void visit_tensors(std::pair<First, Second>& batch, F&& f) {
  visit_tensors(batch.first, f);
  visit_tensors(batch.second, f);
}
template <detail::LikeExample Example, class F>
void visit_tensors(Example& example, F&& f) {
  visit_tensors(example.data, f);
  visit_tensors(example.target, f);
}

}  // namespace hasten
