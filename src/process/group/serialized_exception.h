// File: process/group/serialized_exception.h (internal)
// Serializes an exception so that another process can throw it again. An error of hasten keeps its
// type, code, text and exit code; any other exception keeps only its message.
//
//   const std::string serialized = serialize_exception(std::current_exception());
//   const RemoteException remote = deserialize_exception(serialized);  // in another process
#pragma once

#include <exception>
#include <string>

namespace hasten {

struct RemoteException {
  std::exception_ptr error;  // null unless it is an error of hasten
  std::string message;       // the message of any other exception
};

std::string serialize_exception(const std::exception_ptr& thrown);
RemoteException deserialize_exception(const std::string& serialized);

}  // namespace hasten
