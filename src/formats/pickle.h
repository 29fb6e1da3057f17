// File: formats/pickle.h (internal)
// Reads the pickles of torch.save and torch::save without executing any code of them. A pickle is a
// program for a stack machine. This machine supports only the instructions that PyTorch's own
// writers use. The names in a pickle refer to tensors, parameters and ordered dictionaries, never
// to functions.
//
//   const pickle::Program program(text, "model.bin", [&](std::string_view key) {
//     return archive.record("data/" + std::string(key)).size();
//   });
//   const pickle::Value& root = program.root();
//   if (root.kind == pickle::Kind::dict) ...
//
// Every other instruction and name is refused. The values belong to the program. A value may occur
// in several places, even inside itself, so every walk through the values must be bounded
// (for_each_member). The offset and the strides of a tensor are checked against the size of its
// storage. Values take at most 12 MiB plus eight times the size of the file; a pickle that needs
// more is refused. Needs no torch.
//
// Throws DataError "pickle.forbidden" for content that a pickle of tensors does not have, and
// "pickle.damaged" for wrong content. Thread rule: immutable, safe on any thread. Source:
// pickletools of Python 3.13, torch/serialization.py and torch/csrc/jit/serialization/pickler.cpp
// of PyTorch 2.11.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace hasten::pickle {

enum class Kind : std::uint8_t {
  none,
  boolean,
  integer,
  real,
  text,
  list,
  tuple,
  dict,
  object,   // a module in an archive of LibTorch: its attributes, as a dict
  name,     // a name that the pickle refers to
  storage,  // the bytes of tensors
  tensor
};

// The properties of an element type.
struct ElementType {
  const char* storage;  // the name of the storage's class in Python
  const char* text;     // the name in safetensors
  std::size_t bytes;
};

struct Value {
  Kind kind = Kind::none;
  const ElementType* type = nullptr;  // set for a storage and a tensor
  std::int64_t integer = 0;           // also a boolean, a storage's length, a tensor's offset
  double real = 0;
  std::string_view text = {};  // also the name of a class, and the key of a storage
  // The members of a list or tuple. In a dict, each key precedes its value. In a tensor, the sizes
  // precede the strides.
  std::vector<const Value*> items = {};
};

class Program {
 public:
  // Returns the size in bytes of the storage with this key.
  using StorageSize = std::function<std::size_t(std::string_view key)>;
  Program(std::string_view pickle, std::string file, const StorageSize& storage_size,
          std::size_t file_size);

  const Value& root() const { return *root_; }
  // Calls `visit` for each key, which is a text or a whole number, and its value. Throws DataError
  // "pickle.damaged" if a key occurs twice.
  void for_each_member(
      const Value& dict,
      const std::function<void(const std::string& key, const Value&)>& visit) const;
  // Returns the number of bytes that further values may take.
  std::size_t memory_left() const { return memory_left_; }
  [[noreturn]] void fail_damaged(const std::string& got) const;

 private:
  class Machine;
  std::string file_;
  std::size_t memory_left_ = 0;
  std::deque<Value> values_;
  const Value* root_ = nullptr;
};

// Return the sizes and the strides of a tensor.
std::vector<std::int64_t> sizes_of(const Value& tensor);
std::vector<std::int64_t> strides_of(const Value& tensor);

}  // namespace hasten::pickle
