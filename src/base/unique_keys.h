// File: base/unique_keys.h (internal)
// Finds keys that a JSON object has twice. nlohmann's parser silently keeps the last of them.
//
//   const auto check = unique_keys<Json>([](const KeyPath& path) { fail(path.back()); });
//   const Json value = Json::parse(text, check);
//
// `report` gets the path of the second of two equal keys: the keys of the objects around it, from
// the outermost on, and then the key itself. `count` gets the number of different keys of an object
// after each key. Both may throw. Thread rule: a callback serves one call of the parser.
#pragma once

#include <cstddef>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace hasten {

using KeyPath = std::vector<std::string>;

template <class Json, class Report, class Count = void (*)(std::size_t)>
typename Json::parser_callback_t unique_keys(
    Report report, Count count = [](std::size_t) {}) {
  using Event = typename Json::parse_event_t;
  return [report = std::move(report), count = std::move(count),
          open = std::vector<std::set<std::string>>(),
          path = KeyPath()](int, Event event, Json& value) mutable {
    if (event == Event::object_start) {
      open.emplace_back();
      path.emplace_back();
    }
    if (event == Event::object_end) {
      open.pop_back();
      path.pop_back();
    }
    if (event != Event::key) return true;
    path.back() = value.template get<std::string>();
    if (!open.back().insert(path.back()).second) report(path);
    count(open.back().size());
    return true;
  };
}

}  // namespace hasten
