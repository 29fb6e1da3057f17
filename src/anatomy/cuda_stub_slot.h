// File: anatomy/cuda_stub_slot.h (internal)
// Gives access to the function pointers that LibTorch's CUDA library registers. LibTorch has a
// setter for such a pointer but no getter. The pointer is in the implementation, which is the
// stub's only member.
//
//   void* const previous = cuda_slot(at::native::lstm_cudnn_stub);
//
// Thread rule: no other thread may call the stub.
#pragma once

#include <ATen/native/DispatchStub.h>

#include <type_traits>

namespace hasten::anatomy {

template <class Stub>
void*& cuda_slot(Stub& stub) {
  static_assert(std::is_standard_layout_v<at::native::DispatchStubImpl> &&
                sizeof(Stub) == sizeof(at::native::DispatchStubImpl));
  return reinterpret_cast<at::native::DispatchStubImpl&>(stub).cuda_dispatch_ptr;
}

}  // namespace hasten::anatomy
