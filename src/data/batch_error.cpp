#include "data/batch_error.h"

#include <c10/util/Exception.h>

#include <algorithm>
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
  const auto count = static_cast<std::int64_t>(rows.size());
  return name + " (" + list_of_rows(named_rows(rows), count) + ")";
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

std::vector<std::int64_t> named_rows(std::span<const std::int64_t> rows) {
  const auto named = rows.first(std::min(rows.size(), BatchInfo::kNamedRows));
  return {named.begin(), named.end()};
}

std::string list_of_rows(const std::vector<std::int64_t>& first, std::int64_t count) {
  std::string list = count == 1 ? "row " : "rows ";
  for (std::size_t i = 0; i < first.size(); ++i) list += str(i > 0 ? ", " : "", first[i]);
  return count > static_cast<std::int64_t>(first.size()) ? list + ", ..." : list;
}

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
