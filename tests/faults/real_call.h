// Finds the system's call that a program replaces by a function of the same name.
//
//   static const auto real = real_call<int (*)(int)>("fsync");
#pragma once

#include <dlfcn.h>

template <class Function>
Function real_call(const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}
