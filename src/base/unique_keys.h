// File: base/unique_keys.h (internal)
// Finds keys that a JSON object has twice. nlohmann's parser keeps the last of them in silence.
//
//   const auto check = unique_keys<Json>([](int depth, const std::string& key) { fail(key); });
//   const Json value = Json::parse(text, check);
//
// `report` gets the second of two equal keys, and its depth: 1 in the outermost object. It may
// throw. Thread rule: a callback serves one call of the parser.
#pragma once

#include <set>
#include <string>
#include <utility>
#include <vector>

namespace hasten {

template <class Json, class Report>
typename Json::parser_callback_t unique_keys(Report report) {
  using Event = typename Json::parse_event_t;
  return [report = std::move(report), open = std::vector<std::set<std::string>>()](
             int depth, Event event, Json& value) mutable {
    if (event == Event::object_start) open.emplace_back();
    if (event == Event::object_end) open.pop_back();
    if (event != Event::key) return true;
    const auto key = value.template get<std::string>();
    if (!open.back().insert(key).second) report(depth, key);
    return true;
  };
}

}  // namespace hasten
