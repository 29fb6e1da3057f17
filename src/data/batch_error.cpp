#include "data/batch_error.h"

#include <c10/util/Exception.h>

#include <exception>
#include <new>
#include <string>

#include "hasten/base/error.h"
#include "hasten/base/text.h"

namespace hasten::detail {
namespace {

std::string batch_name(const BatchContext& context, std::span<const std::int64_t> rows) {
  std::string name = str("batch ", context.batch, " of epoch ", context.epoch);
  if (rows.empty()) return name;
  name += rows.size() == 1 ? " (row " : " (rows ";
  for (std::size_t i = 0; i < rows.size() && i < 8; ++i) name += str(i > 0 ? ", " : "", rows[i]);
  return name + (rows.size() > 8 ? ", ...)" : ")");
}

template <class Kind>
void rethrow_as(const Error& error, const std::string& name) {
  if (dynamic_cast<const Kind*>(&error) == nullptr) return;
  ErrorText text = error.text();
  text.what = name + ": " + text.what;
  throw Kind(error.code(), std::move(text));
}

[[noreturn]] void throw_nested(const std::string& name, const std::string& what) {
  std::throw_with_nested(
      DataError("data.batch", {.what = "making " + name + " failed", .got = what}));
}

}  // namespace

void rethrow_with_batch(const BatchContext& context, std::span<const std::int64_t> rows) {
  const std::string name = batch_name(context, rows);
  try {
    throw;
  } catch (const Error& error) {
    rethrow_as<DataError>(error, name);
    rethrow_as<IoError>(error, name);
    rethrow_as<UsageError>(error, name);
    rethrow_as<ConfigError>(error, name);
    throw;
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const c10::OutOfMemoryError&) {
    throw;
  } catch (const c10::Error& error) {
    throw_nested(name, error.what_without_backtrace());
  } catch (const std::exception& error) {
    throw_nested(name, error.what());
  }
}

}  // namespace hasten::detail
