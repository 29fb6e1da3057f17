// File: hasten/data/carry.h
// Batches as bytes, to travel from one process to another: tensors, strings, numbers, and vectors,
// maps and pairs of what is known, of any size.
//
//   at::Tensor bytes = pack(batch);
//   auto again = unpack<TensorDict>(bytes);      // its tensors lie in `bytes`: nothing is copied
//
// For a struct of your own, put a function beside it that names all that it has:
//
//   struct Game { at::Tensor board; std::vector<std::string> names; };
//   template <class F> void visit_parts(Game& game, F&& f) { f(game.board); f(game.names); }
//
// Tensors arrive on the CPU, dense, without gradients. Throws UsageError "data.carry" for tensors
// that are not dense. Thread rule: pure functions. Both sides are of one program: the bytes are no
// file format.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "hasten/data/batch.h"

namespace hasten {

namespace detail {

class BatchWriter {
 public:
  void number(std::int64_t value) { bytes(&value, sizeof value); }
  void bytes(const void* data, std::size_t size) {
    head_.append(static_cast<const char*>(data), size);
  }
  void tensor(const at::Tensor& tensor);
  at::Tensor written() const;

 private:
  std::string head_;
  std::vector<at::Tensor> tensors_;
  std::int64_t at_ = 0;  // where the next tensor begins, from the first
};

class BatchReader {
 public:
  explicit BatchReader(at::Tensor bytes);
  std::int64_t number();
  void bytes(void* data, std::size_t size);
  at::Tensor tensor();

 private:
  at::Tensor bytes_;
  std::size_t at_ = 0;
  std::int64_t tensors_ = 0;  // where the first begins
};

// How a T travels: put, get, and its tensors where it lies.
template <class T>
struct Carry;
struct AnyPart {
  template <class Part>
  void operator()(Part&) const {}
};
template <class T>
concept HasParts = requires(T& batch, AnyPart any) {
  visit_parts(batch, any);
};

template <class T>
constexpr bool carried = std::is_arithmetic_v<T> || HasParts<T>;
template <>
inline constexpr bool carried<at::Tensor> = true;
template <>
inline constexpr bool carried<std::string> = true;
template <class Key, class Value>
constexpr bool carried<std::map<Key, Value>> = carried<Key>&& carried<Value>;
template <class Value>
constexpr bool carried<std::vector<Value>> = carried<Value>;
template <class First, class Second>
constexpr bool carried<std::pair<First, Second>> = carried<First>&& carried<Second>;

// torch::data::Example, and nothing that has more members.
template <class T>
concept ExactlyExample = LikeExample<T> && !HasParts<T> &&
                         sizeof(T) == sizeof(std::pair<decltype(T::data), decltype(T::target)>);
template <ExactlyExample T>
constexpr bool carried<T> = carried<decltype(T::data)>&& carried<decltype(T::target)>;

}  // namespace detail

// A batch that can be sent to another process.
template <class Batch>
concept CarriedBatch = detail::carried<Batch>;

namespace detail {

template <class T>
requires std::is_arithmetic_v<T>
struct Carry<T> {
  static void put(BatchWriter& out, const T& value) { out.bytes(&value, sizeof value); }
  static T get(BatchReader& in) {
    T value;
    in.bytes(&value, sizeof value);
    return value;
  }
  template <class F>
  static void tensors(T&, F&) {}
};
template <>
struct Carry<at::Tensor> {
  static void put(BatchWriter& out, const at::Tensor& value) { out.tensor(value); }
  static at::Tensor get(BatchReader& in) { return in.tensor(); }
  template <class F>
  static void tensors(at::Tensor& value, F& f) {
    f(value);
  }
};
template <>
struct Carry<std::string> {
  static void put(BatchWriter& out, const std::string& value) {
    out.number(static_cast<std::int64_t>(value.size()));
    out.bytes(value.data(), value.size());
  }
  static std::string get(BatchReader& in) {
    std::string value(static_cast<std::size_t>(in.number()), '\0');
    in.bytes(value.data(), value.size());
    return value;
  }
  template <class F>
  static void tensors(std::string&, F&) {}
};
template <CarriedBatch Value>
struct Carry<std::vector<Value>> {
  using Values = std::vector<Value>;
  static void put(BatchWriter& out, const Values& values) {
    out.number(static_cast<std::int64_t>(values.size()));
    for (const Value& value : values) Carry<Value>::put(out, value);
  }
  static Values get(BatchReader& in) {
    Values values;
    for (std::int64_t left = in.number(); left > 0; --left) values.push_back(Carry<Value>::get(in));
    return values;
  }
  template <class F>
  static void tensors(Values& values, F& f) {
    if constexpr (!std::is_arithmetic_v<Value>) {
      for (Value& value : values) Carry<Value>::tensors(value, f);
    }
  }
};
template <CarriedBatch Key, CarriedBatch Value>
struct Carry<std::map<Key, Value>> {
  using Values = std::map<Key, Value>;
  static void put(BatchWriter& out, const Values& values) {
    out.number(static_cast<std::int64_t>(values.size()));
    for (const auto& [key, value] : values) {
      Carry<Key>::put(out, key);
      Carry<Value>::put(out, value);
    }
  }
  static Values get(BatchReader& in) {
    Values values;
    for (std::int64_t left = in.number(); left > 0; --left) {
      Key key = Carry<Key>::get(in);
      values.emplace(std::move(key), Carry<Value>::get(in));
    }
    return values;
  }
  template <class F>
  static void tensors(Values& values, F& f) {
    for (auto& [key, value] : values) Carry<Value>::tensors(value, f);
  }
};
template <CarriedBatch First, CarriedBatch Second>
struct Carry<std::pair<First, Second>> {
  using Both = std::pair<First, Second>;
  static void put(BatchWriter& out, const Both& both) {
    Carry<First>::put(out, both.first);
    Carry<Second>::put(out, both.second);
  }
  static Both get(BatchReader& in) {
    First first = Carry<First>::get(in);
    return {std::move(first), Carry<Second>::get(in)};
  }
  template <class F>
  static void tensors(Both& both, F& f) {
    Carry<First>::tensors(both.first, f);
    Carry<Second>::tensors(both.second, f);
  }
};
template <ExactlyExample T>
struct Carry<T> {
  using Data = decltype(T::data);
  using Target = decltype(T::target);
  static void put(BatchWriter& out, const T& example) {
    Carry<Data>::put(out, example.data);
    Carry<Target>::put(out, example.target);
  }
  static T get(BatchReader& in) {
    Data data = Carry<Data>::get(in);
    return T{std::move(data), Carry<Target>::get(in)};
  }
  template <class F>
  static void tensors(T& example, F& f) {
    Carry<Data>::tensors(example.data, f);
    Carry<Target>::tensors(example.target, f);
  }
};
template <HasParts T>
struct Carry<T> {
  template <class Part>
  using Of = Carry<std::remove_cvref_t<Part>>;
  static void put(BatchWriter& out, const T& batch) {
    visit_parts(const_cast<T&>(batch), [&](auto& part) { Of<decltype(part)>::put(out, part); });
  }
  static T get(BatchReader& in) {
    T batch{};
    visit_parts(batch, [&](auto& part) { part = Of<decltype(part)>::get(in); });
    return batch;
  }
  template <class F>
  static void tensors(T& batch, F& f) {
    visit_parts(batch, [&](auto& part) { Of<decltype(part)>::tensors(part, f); });
  }
};

}  // namespace detail

template <CarriedBatch Batch>
at::Tensor pack(const Batch& batch) {
  detail::BatchWriter out;
  detail::Carry<Batch>::put(out, batch);
  return out.written();
}
template <CarriedBatch Batch>
Batch unpack(const at::Tensor& bytes) {
  detail::BatchReader in(bytes);
  return detail::Carry<Batch>::get(in);
}

// The tensors of a batch, whatever else there is in it; of a type that is not known, none.
template <class Batch, class F>
void for_each_tensor(Batch& batch, F&& f) {
  if constexpr (TensorBatch<Batch>) {
    visit_tensors(batch, f);
  } else if constexpr (CarriedBatch<Batch>) {
    detail::Carry<Batch>::tensors(batch, f);
  }
}

}  // namespace hasten
