// File: process/carried_error.h (internal)
// Serializes an exception so that another process can throw it again. An error of hasten keeps its
// type, code, text and exit code; any other exception keeps only its message.
//
//   const std::string letter = letter_of(std::current_exception());
//   const CarriedError carried = carried_error(letter);          // in another process
#pragma once

#include <exception>
#include <string>

namespace hasten {

struct CarriedError {
  std::exception_ptr error;  // null unless it is an error of hasten
  std::string words;         // the message of any other exception
};

std::string letter_of(const std::exception_ptr& thrown);
CarriedError carried_error(const std::string& letter);

}  // namespace hasten
