// File: hasten/data/batch.h
// Visits the tensors of a batch of any type: to pin them, to move them to a device, or to count
// their bytes.
//
//   for_each_tensor(batch, [&](at::Tensor& tensor) { tensor = tensor.to(device); });
//
// Looks into pairs, tuples, arrays, vectors, maps, unordered maps and optionals,
// torch::data::Example with and without a target, and plain structs (aggregates of up to 12 members
// without a base class), at any depth. Skips numbers, strings and other types. Does not look into
// classes with private members or constructors. For those, or to select members of a struct, define
// a function in the namespace of the type:
//
//   struct Game {
//     explicit Game(int size) : board(at::zeros({size, size})) {}
//     at::Tensor board, move;
//   };
//   template <class F>
//   void visit_tensors(Game& game, F&& f) {
//     f(game.board);
//     f(game.move);
//   }
//
// visit_tensors(batch, f) does the same as for_each_tensor, but compiles only for a TensorBatch: a
// batch of tensors and nothing else, or a type with a visit_tensors of its own.
//
// Both throw only what the given function and a visit_tensors of the batch throw. Thread rule: the
// same as for the batch.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstddef>
#include <map>
#include <optional>
#include <tuple>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

#include "hasten/data/detail/members.h"

namespace hasten {

namespace detail {

// Users' visit_tensors and visit_parts, found only by argument-dependent lookup. The deleted
// functions hide hasten's own functions of these names.
namespace user_hooks {

void visit_tensors() = delete;
void visit_parts() = delete;

struct AnyPart {
  template <class Part>
  void operator()(Part&) const {}
};
template <class T>
concept VisitsTensors = requires(T& batch, void (*f)(at::Tensor&)) {
  visit_tensors(batch, f);
};
template <class T>
concept VisitsParts = requires(T& batch, AnyPart f) {
  visit_parts(batch, f);
};
template <class T, class F>
void each_tensor(T& batch, F&& f) {
  visit_tensors(batch, f);
}
template <class T, class F>
void each_part(T& batch, F&& f) {
  visit_parts(batch, f);
}

}  // namespace user_hooks

using user_hooks::VisitsParts;
using user_hooks::VisitsTensors;

template <class T>
concept ExampleLike = requires(T& example) {
  example.data;
  example.target;
};

// torch::data::Example, or a class with the same two members and no others.
template <class T>
concept ExactlyExample = ExampleLike<T> && !std::is_aggregate_v<T> &&
                         sizeof(T) == sizeof(std::pair<decltype(T::data), decltype(T::target)>);
template <class T>
concept ExampleWithoutTarget = !std::is_aggregate_v<T> && requires(T & example) {
  example.data;
  requires std::is_void_v<typename T::TargetType>;
  requires sizeof(T) == sizeof(example.data);
};

// A type with any number of elements of one type.
template <class T>
struct Elements;
template <class Element, std::size_t size>
struct Elements<Element[size]> {
  using Type = Element;
};
template <class Element, std::size_t size>
struct Elements<std::array<Element, size>> {
  using Type = Element;
};
template <class Element, class... Rest>
struct Elements<std::vector<Element, Rest...>> {
  using Type = Element;
};
template <class Element>
struct Elements<std::optional<Element>> {
  using Type = Element;
};
template <class Key, class Value, class... Rest>
struct Elements<std::map<Key, Value, Rest...>> {
  using Type = Value;
};
template <class Key, class Value, class... Rest>
struct Elements<std::unordered_map<Key, Value, Rest...>> {
  using Type = Value;
};
template <class T>
concept HasElements = requires {
  typename Elements<T>::Type;
};
template <class T>
concept MapOfElements = HasElements<T> && requires {
  typename T::mapped_type;
};
template <class T>
concept OptionalElement = HasElements<T> && requires(T& value) {
  value.has_value();
};

// A type with a fixed number of parts. all(value) returns a tuple of references to them.
template <class T>
struct Parts;
template <class First, class Second>
struct Parts<std::pair<First, Second>> {
  static auto all(std::pair<First, Second>& both) { return std::tie(both.first, both.second); }
};
template <class... Each>
struct Parts<std::tuple<Each...>> {
  static auto all(std::tuple<Each...>& value) {
    return std::apply([](auto&... each) { return std::tie(each...); }, value);
  }
};
template <ExactlyExample T>
struct Parts<T> {
  static auto all(T& example) { return std::tie(example.data, example.target); }
};
template <ExampleWithoutTarget T>
struct Parts<T> {
  static auto all(T& example) { return std::tie(example.data); }
};
template <PlainStruct T>
struct Parts<T> {
  static auto all(T& value) { return members_of(value); }
};
template <class T>
concept HasParts = !HasElements<T> && requires {
  sizeof(Parts<T>);
};
template <HasParts T>
using PartsOf = decltype(Parts<T>::all(std::declval<T&>()));

// Calls f with each part, or with each element.
template <class T, class F>
void for_each_part(T& value, F&& f) {
  if constexpr (HasParts<T>) {
    std::apply([&](auto&... parts) { (f(parts), ...); }, Parts<T>::all(value));
  } else if constexpr (MapOfElements<T>) {
    for (auto& [key, element] : value) f(element);
  } else if constexpr (OptionalElement<T>) {
    if (value.has_value()) f(*value);
  } else {
    for (auto& element : value) f(element);
  }
}

// The depth to which the predicates below look into a type, since a type may contain itself.
inline constexpr int kDepth = 8;

// True if a T consists of tensors and nothing else.
template <class T, int depth = kDepth>
constexpr bool has_tensors() {
  if constexpr (std::is_same_v<T, at::Tensor> || VisitsTensors<T>) {
    return true;
  } else if constexpr (depth == 0 || VisitsParts<T>) {
    return false;
  } else if constexpr (HasElements<T>) {
    return has_tensors<typename Elements<T>::Type, depth - 1>();
  } else if constexpr (HasParts<T>) {
    return []<class... Part>(std::tuple<Part&...>*) {
      return sizeof...(Part) > 0 && (has_tensors<Part, depth - 1>() && ...);
    }(static_cast<PartsOf<T>*>(nullptr));
  } else {
    return false;
  }
}

// True if a type looks like a struct that for_each_tensor visits, but has members that it cannot
// reach. False for types that it skips on purpose.
template <class T, int depth = kDepth>
constexpr bool has_unreachable_members() {
  if constexpr (depth == 0 || !std::is_class_v<T> || VisitsTensors<T> || VisitsParts<T> ||
                std::is_trivially_copyable_v<T>) {
    return false;
  } else if constexpr (HasElements<T>) {
    return has_unreachable_members<typename Elements<T>::Type, depth - 1>();
  } else if constexpr (HasParts<T>) {
    return []<class... Part>(std::tuple<Part&...>*) {
      return (has_unreachable_members<Part, depth - 1>() || ...);
    }(static_cast<PartsOf<T>*>(nullptr));
  } else {
    return std::is_aggregate_v<T> || ExampleLike<T>;
  }
}

}  // namespace detail

// Calls f with each tensor of the batch, whatever else the batch contains.
template <class Batch, class F>
void for_each_tensor(Batch& batch, F&& f) {
  const auto into_part = [&f](auto& part) { for_each_tensor(part, f); };
  if constexpr (std::is_same_v<Batch, at::Tensor>) {
    f(batch);
  } else if constexpr (detail::VisitsTensors<Batch>) {
    detail::user_hooks::each_tensor(batch, f);
  } else if constexpr (detail::VisitsParts<Batch>) {
    detail::user_hooks::each_part(batch, into_part);
  } else if constexpr (detail::HasElements<Batch>) {
    if constexpr (!std::is_arithmetic_v<typename detail::Elements<Batch>::Type>)
      detail::for_each_part(batch, into_part);
  } else if constexpr (detail::HasParts<Batch>) {
    detail::for_each_part(batch, into_part);
  }
}

// A batch that consists of tensors and nothing else.
template <class Batch>
concept TensorBatch = detail::has_tensors<Batch>();

namespace detail {

struct VisitTensors {
  template <TensorBatch Batch, class F>
  void operator()(Batch& batch, F&& f) const {
    for_each_tensor(batch, f);
  }
};

}  // namespace detail

// An object rather than a function, so that argument-dependent lookup finds only users' functions.
inline constexpr detail::VisitTensors visit_tensors;

}  // namespace hasten
