// File: process/carried_error.h (internal)
// What was thrown in one process, as bytes that another can throw again. An error of hasten keeps
// its type, code, text and exit code; of anything else its words are left.
//
//   const std::string letter = letter_of(std::current_exception());
//   const CarriedError carried = carried_error(letter);          // elsewhere
#pragma once

#include <exception>
#include <string>

namespace hasten {

struct CarriedError {
  std::exception_ptr error;  // of hasten; else null
  std::string words;         // of what was no error of hasten's
};

std::string letter_of(const std::exception_ptr& thrown);
CarriedError carried_error(const std::string& letter);

}  // namespace hasten
