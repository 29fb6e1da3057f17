// Loads the library of its first argument, which links hasten, and calls its function.
#include <dlfcn.h>

#include <cstdio>

int main(int, char** arguments) {
  void* const library = dlopen(arguments[1], RTLD_NOW);
  void* const function = library == nullptr ? nullptr : dlsym(library, "train");
  if (function == nullptr) return std::puts(dlerror()), 1;
  return reinterpret_cast<int (*)()>(function)();
}
