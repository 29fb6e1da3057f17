// File: tokenizers/buffer.h
// A growable block of bytes or numbers that, unlike std::vector, does not zero new elements: the
// normalizer writes them through a plain pointer.
//
//   Buffer<char> out;
//   out.reserve(text.size() + 32);
//   const char* end = std::copy(text.begin(), text.end(), out.data());
//   out.set_size(static_cast<std::size_t>(end - out.data()));
//
// Thread rule: one thread at a time. Throws std::bad_alloc.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>

namespace hasten::tokenizers {

template <class T>
class Buffer {
 public:
  T* data() noexcept { return data_.get(); }
  const T* data() const noexcept { return data_.get(); }
  std::size_t size() const noexcept { return size_; }
  void set_size(std::size_t size) noexcept { size_ = size; }

  // Makes room for `capacity` elements in all and keeps the first `used`.
  void reserve(std::size_t capacity, std::size_t used = 0) {
    if (capacity <= capacity_) return;
    capacity = std::max(capacity, capacity_ + capacity_ / 2);
    auto larger = std::make_unique_for_overwrite<T[]>(capacity);
    std::copy_n(data_.get(), used, larger.get());
    data_ = std::move(larger);
    capacity_ = capacity;
  }
  std::size_t capacity() const noexcept { return capacity_; }

 private:
  std::unique_ptr<T[]> data_;
  std::size_t size_ = 0;
  std::size_t capacity_ = 0;
};

}  // namespace hasten::tokenizers
