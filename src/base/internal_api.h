// File: base/internal_api.h (internal)
// The mark of internal declarations that another library or command of hasten uses. It exports them
// like HASTEN_API, but they are not installed and may change in every version.
//
//   HASTEN_INTERNAL_API std::filesystem::path library_folder();
//
// A declaration that only tests use needs no mark if they link the object files of the libraries,
// as the unit tests do. The tests of the TPU cannot: the module that they load links the libraries.
// Thread rule: nothing here runs.
#pragma once

#define HASTEN_INTERNAL_API [[gnu::visibility("default")]]
