// File: base/unique_keys.h (internal)
// Finds keys that a JSON object has twice. nlohmann's parser silently keeps the last of them.
//
//   check_unique_keys<Json>(text, [](const KeyPath& path) { fail(path.back()); });
//   const Json value = Json::parse(text);
//
// `report` gets the path of the second of two equal keys: the keys of the objects around it, from
// the outermost on, and then the key itself. `count` gets the number of different keys of an object
// after each key. Both may throw. The keys of a text that is not valid JSON are checked up to the
// error. Thread rule: a pure function.
//
// This is a separate pass, which makes no values. A callback of nlohmann's parser could do the same
// while it makes them. But with a callback, the parser looks at all earlier elements of a list
// after each object in it, so a list of 300,000 objects took minutes.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace hasten {

using KeyPath = std::vector<std::string>;

namespace detail {

// Receives the parts of a text from nlohmann's parser.
template <class Json, class Report, class Count>
class KeyChecker final : public Json::json_sax_t {
 public:
  KeyChecker(Report report, Count count) : report_(std::move(report)), count_(std::move(count)) {}

  bool start_object(std::size_t) override {
    open_.emplace_back();
    path_.emplace_back();
    return true;
  }
  bool end_object() override {
    open_.pop_back();
    path_.pop_back();
    return true;
  }
  bool key(std::string& name) override {
    path_.back() = name;
    if (!open_.back().insert(name).second) report_(path_);
    count_(open_.back().size());
    return true;
  }
  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception&) override {
    return false;
  }

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(typename Json::number_integer_t) override { return true; }
  bool number_unsigned(typename Json::number_unsigned_t) override { return true; }
  bool number_float(typename Json::number_float_t, const std::string&) override { return true; }
  bool string(std::string&) override { return true; }
  bool binary(typename Json::binary_t&) override { return true; }
  bool start_array(std::size_t) override { return true; }
  bool end_array() override { return true; }

 private:
  Report report_;
  Count count_;
  std::vector<std::set<std::string>> open_;  // the keys of the objects around the current place
  KeyPath path_;
};

}  // namespace detail

template <class Json, class Report, class Count = void (*)(std::size_t)>
void check_unique_keys(
    std::string_view text, Report report, Count count = [](std::size_t) {}) {
  detail::KeyChecker<Json, Report, Count> checker(std::move(report), std::move(count));
  static_cast<void>(Json::sax_parse(text.begin(), text.end(), &checker));
}

}  // namespace hasten
