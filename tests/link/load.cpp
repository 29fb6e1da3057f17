// Loads the library that its first argument names, and calls a function in it. The library links
// hasten.
#include <dlfcn.h>

#include <cstdio>

int main(int, char** arguments) {
  void* const library = dlopen(arguments[1], RTLD_NOW);
  void* const function = library == nullptr ? nullptr : dlsym(library, "train");
  if (function == nullptr) return std::puts(dlerror()), 1;
  return reinterpret_cast<int (*)()>(function)();
}
