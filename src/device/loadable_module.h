// File: device/loadable_module.h (internal)
// Loads a part of hasten that is a separate library next to libhasten, because some machines do not
// have the libraries that it links. It is never unloaded, because objects that it makes remain in
// use.
#pragma once

#include <string>

namespace hasten {

template <class Function>
struct Module {
  Function* function = nullptr;
  std::string missing;  // why it is not available; empty if it is
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
