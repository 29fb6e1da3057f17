// Helpers for PJRT's C interface.
#pragma once

#include <xla_plugins/xla_cpu_pjrt/include/pjrt_c_api.h>

#include <cstring>
#include <string>

namespace hasten::test {

// Returns an empty struct of the interface with its size, which identifies its version.
template <class Args>
Args make_pjrt_struct(std::size_t size) {
  Args args;
  std::memset(&args, 0, sizeof args);
  args.struct_size = size;
  return args;
}
#define PJRT_STRUCT(Args) ::hasten::test::make_pjrt_struct<Args>(Args##_STRUCT_SIZE)

inline std::string take_message(const PJRT_Api& api, PJRT_Error* error) {
  auto message = PJRT_STRUCT(PJRT_Error_Message_Args);
  message.error = error;
  api.PJRT_Error_Message(&message);
  const std::string text(message.message, message.message_size);
  auto destroy = PJRT_STRUCT(PJRT_Error_Destroy_Args);
  destroy.error = error;
  api.PJRT_Error_Destroy(&destroy);
  return text;
}

}  // namespace hasten::test
