// File: formats/pickle_writer.h (internal)
// Writes plain values as a pickle of protocol 2, which every Python since 2.3 loads: dictionaries,
// lists, pairs, texts, whole numbers, floats, booleans and None.
//
//   PickleWriter out;
//   out.begin_dict();
//   out.key("segments");
//   out.begin_list();
//   out.end_list();
//   out.end_dict();
//   const std::string file = std::move(out).finish();
//
// A repeated text refers to its first occurrence. memoize() and recall() do the same for whole
// values, such as lists that many elements share. Throws nothing. Thread rule: one thread at a
// time. Source: Python's Lib/pickletools.py.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>

namespace hasten {

class PickleWriter {
 public:
  PickleWriter() : out_("\x80\x02", 2) {}

  void begin_dict() { out_ += "}("; }
  void end_dict() { out_ += 'u'; }
  void begin_list() { out_ += "]("; }
  void end_list() { out_ += 'e'; }
  // Writes a key of a dictionary. Its value must follow.
  void key(std::string_view name) { text(name); }
  // The value must be UTF-8.
  void text(std::string_view value);
  void integer(std::int64_t value);
  void boolean(bool value) { out_ += value ? '\x88' : '\x89'; }
  // Writes two numbers as a tuple.
  void pair(std::int64_t first, std::int64_t second);

  // Assigns a number to the value that was just written. recall() writes that value again.
  std::uint32_t memoize();
  void recall(std::uint32_t number);

  std::string finish() && {
    out_ += '.';
    return std::move(out_);
  }

 private:
  void little_endian(std::uint64_t value, int bytes);

  std::string out_;
  std::unordered_map<std::string, std::uint32_t> texts_;
  std::uint32_t memo_size_ = 0;
};

}  // namespace hasten
