// File: tpu/module/dry/pjrt.h (internal)
// Helpers for PJRT's C interface, through which torch_tpu calls a TPU's library and this module
// calls the compiler inside that library. Errors become exceptions, and structs get their sizes.
#pragma once

#include <pjrt_c_api.h>

#include <cstring>
#include <stdexcept>
#include <string>
#include <utility>

namespace hasten::dry_tpu {

struct Failure : std::runtime_error {
  Failure(PJRT_Error_Code why, const std::string& text) : std::runtime_error(text), code(why) {}
  PJRT_Error_Code code;
};

// Returns a struct of the interface that is zero except for its size, by which PJRT
// distinguishes versions.
template <class Args>
Args make_pjrt_struct(std::size_t size) {
  Args args;
  std::memset(static_cast<void*>(&args), 0, sizeof args);
  args.struct_size = size;
  return args;
}
#define HASTEN_PJRT_STRUCT(Args) hasten::dry_tpu::make_pjrt_struct<Args>(Args##_STRUCT_SIZE)

// Throws Failure if there is an error, and destroys the error. The error has to come from the
// library of `api`.
inline void check(const PJRT_Api& api, PJRT_Error* error) {
  if (error == nullptr) return;
  auto code = HASTEN_PJRT_STRUCT(PJRT_Error_GetCode_Args);
  code.error = error;
  if (api.PJRT_Error_GetCode(&code) != nullptr) code.code = PJRT_Error_Code_UNKNOWN;
  auto message = HASTEN_PJRT_STRUCT(PJRT_Error_Message_Args);
  message.error = error;
  api.PJRT_Error_Message(&message);
  const Failure failure(code.code, std::string(message.message, message.message_size));
  auto destroy = HASTEN_PJRT_STRUCT(PJRT_Error_Destroy_Args);
  destroy.error = error;
  api.PJRT_Error_Destroy(&destroy);
  throw failure;
}

}  // namespace hasten::dry_tpu
