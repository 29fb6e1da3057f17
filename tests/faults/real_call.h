// Finds the system's function that a program replaces with a function of the same name.
//
//   static const auto real = real_call<int (*)(int)>("fsync");
#pragma once

#include <dlfcn.h>

template <class Function>
Function real_call(const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}
