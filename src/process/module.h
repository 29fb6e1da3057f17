// File: process/module.h (internal)
// A part of hasten that is a library of its own, loaded where it is asked for: what it links is not
// on every machine. It lies beside libhasten and is never unloaded, as what it makes lives on.
#pragma once

#include <string>

namespace hasten {

template <class Function>
struct Module {
  Function* function = nullptr;
  std::string missing;  // why there is none
};

struct LoadedSymbol {
  void* address = nullptr;
  std::string missing;
};
LoadedSymbol load_symbol(const char* library, const char* name);

template <class Function>
Module<Function> load_module(const char* library, const char* name) {
  const LoadedSymbol symbol = load_symbol(library, name);
  return {.function = reinterpret_cast<Function*>(symbol.address), .missing = symbol.missing};
}

}  // namespace hasten
