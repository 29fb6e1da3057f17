// File: base/internal_api.h (internal)
// Marks internal declarations that another library or command of hasten uses. They are exported
// like those with HASTEN_API, but they are not installed and may change in every version.
//
//   HASTEN_INTERNAL_API std::filesystem::path library_folder();
//
// A declaration that only tests use needs no mark if the tests link the object files of the
// libraries, as the unit tests do. The tests of the TPU cannot do that, because the module that
// they load links the libraries. Thread rule: nothing here runs.
#pragma once

#define HASTEN_INTERNAL_API [[gnu::visibility("default")]]
