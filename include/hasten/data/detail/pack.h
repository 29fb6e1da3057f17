// File: hasten/data/detail/pack.h
// Converts batches to bytes and back, to send them to another process. A batch may consist of
// tensors, strings and numbers, and of the containers and plain structs that hasten/data/batch.h
// visits.
//
//   at::Tensor bytes = pack(batch);
//   auto again = unpack<TensorDict>(bytes);      // its tensors are views of `bytes`, not copies
//
// For any other class, define a function in its namespace that visits all members:
//
//   struct Game {
//     Game() = default;
//     at::Tensor board;
//     std::vector<std::string> names;
//   };
//   template <class F>
//   void visit_parts(Game& game, F&& f) {
//     f(game.board);
//     f(game.names);
//   }
//
// Received tensors are dense, on the CPU, without gradients. pack throws UsageError "data.carry"
// for sparse and quantized tensors. Both processes must run the same program: the bytes are not a
// file format. Thread rule: pure functions.
#pragma once

#include <ATen/core/Tensor.h>

#include <concepts>
#include <cstdint>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "hasten/base/detail/export.h"
#include "hasten/data/batch.h"

namespace hasten {

namespace detail {

class HASTEN_API BatchWriter {
 public:
  void number(std::int64_t value) { bytes(&value, sizeof value); }
  void bytes(const void* data, std::size_t size) {
    head_.append(static_cast<const char*>(data), size);
  }
  void tensor(const at::Tensor& tensor);
  at::Tensor to_tensor() const;

 private:
  std::string head_;
  std::vector<at::Tensor> tensors_;
  std::int64_t at_ = 0;  // The next tensor's offset from the first one.
};

class HASTEN_API BatchReader {
 public:
  explicit BatchReader(at::Tensor bytes);
  std::int64_t number();
  void bytes(void* data, std::size_t size);
  at::Tensor tensor();

 private:
  at::Tensor bytes_;
  std::size_t at_ = 0;
  std::int64_t tensors_ = 0;  // The first tensor's offset.
};

template <class T>
concept PackableNumber = std::is_arithmetic_v<T> || std::is_enum_v<T>;

// True if a T can be sent as a whole. A type with a visit_tensors but no visit_parts cannot, since
// visit_tensors may omit members.
template <class T, int depth = kDepth>
constexpr bool is_packable() {
  if constexpr (PackableNumber<T> || std::is_same_v<T, at::Tensor> ||
                std::is_same_v<T, std::string> || VisitsParts<T>) {
    return true;
  } else if constexpr (depth == 0 || VisitsTensors<T>) {
    return false;
  } else if constexpr (MapOfElements<T>) {
    return is_packable<typename T::key_type, depth - 1>() &&
           is_packable<typename T::mapped_type, depth - 1>();
  } else if constexpr (HasElements<T>) {
    return is_packable<typename Elements<T>::Type, depth - 1>();
  } else if constexpr (HasParts<T> && std::default_initializable<T>) {
    return []<class... Part>(std::tuple<Part&...>*) {
      return (is_packable<Part, depth - 1>() && ...);
    }(static_cast<PartsOf<T>*>(nullptr));
  } else {
    return false;
  }
}

template <class T>
void put(BatchWriter& out, const T& value) {
  const auto put_part = [&out](const auto& part) { put(out, part); };
  if constexpr (PackableNumber<T>) {
    out.bytes(&value, sizeof value);
  } else if constexpr (std::is_same_v<T, at::Tensor>) {
    out.tensor(value);
  } else if constexpr (std::is_same_v<T, std::string>) {
    out.number(static_cast<std::int64_t>(value.size()));
    out.bytes(value.data(), value.size());
  } else if constexpr (VisitsParts<T>) {
    user_hooks::each_part(const_cast<T&>(value), put_part);
  } else if constexpr (MapOfElements<T>) {
    out.number(static_cast<std::int64_t>(value.size()));
    for (const auto& [key, element] : value) {
      put(out, key);
      put(out, element);
    }
  } else if constexpr (OptionalElement<T>) {
    out.number(value.has_value() ? 1 : 0);
    if (value.has_value()) put(out, *value);
  } else if constexpr (HasElements<T>) {
    if constexpr (requires(T & vector) { vector.clear(); })
      out.number(static_cast<std::int64_t>(value.size()));
    // A copy of the element, since std::vector<bool> has no references to elements.
    for (const typename Elements<T>::Type& element : value) put(out, element);
  } else {
    for_each_part(const_cast<T&>(value), put_part);
  }
}

// Reads into a newly constructed value.
template <class T>
void get(BatchReader& in, T& value) {
  const auto get_part = [&in](auto& part) { get(in, part); };
  const auto next = [&in]<class Next>(std::type_identity<Next>) {
    Next one{};
    get(in, one);
    return one;
  };
  if constexpr (PackableNumber<T>) {
    in.bytes(&value, sizeof value);
  } else if constexpr (std::is_same_v<T, at::Tensor>) {
    value = in.tensor();
  } else if constexpr (std::is_same_v<T, std::string>) {
    value.resize(static_cast<std::size_t>(in.number()));
    in.bytes(value.data(), value.size());
  } else if constexpr (VisitsParts<T>) {
    user_hooks::each_part(value, get_part);
  } else if constexpr (MapOfElements<T>) {
    for (std::int64_t left = in.number(); left > 0; --left) {
      auto key = next(std::type_identity<typename T::key_type>());
      value.emplace(std::move(key), next(std::type_identity<typename T::mapped_type>()));
    }
  } else if constexpr (OptionalElement<T>) {
    if (in.number() != 0) value.emplace(next(std::type_identity<typename T::value_type>()));
  } else if constexpr (requires { value.clear(); }) {  // A vector.
    for (std::int64_t left = in.number(); left > 0; --left)
      value.push_back(next(std::type_identity<typename T::value_type>()));
  } else {
    for_each_part(value, get_part);
  }
}

}  // namespace detail

// A batch that can be sent to another process.
template <class Batch>
concept PackableBatch = detail::is_packable<Batch>();

// Serializes a batch into a tensor of bytes [size].
template <PackableBatch Batch>
at::Tensor pack(const Batch& batch) {
  detail::BatchWriter out;
  detail::put(out, batch);
  return out.to_tensor();
}
// Reads a batch that pack has written. Its tensors share the memory of `bytes`.
template <PackableBatch Batch>
Batch unpack(const at::Tensor& bytes) {
  detail::BatchReader in(bytes);
  Batch batch{};
  detail::get(in, batch);
  return batch;
}

}  // namespace hasten
