#include "hasten/checkpoint/hash_chain.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/json_number.h"
#include "base/sha256.h"
#include "base/strict_json.h"
#include "checkpoint/hash_chain_lines.h"
#include "formats/module_tensors.h"
#include "formats/plain_tensor.h"
#include "hasten/base/error.h"
#include "hasten/base/files.h"
#include "hasten/base/text.h"

namespace hasten {
namespace {

namespace fs = std::filesystem;
using LinkJson = nlohmann::json;

LinkJson json_without_hash(const HashLink& link) {
  return {{"loss", link.loss},           {"num_processes", link.num_processes},
          {"optimizer", link.optimizer}, {"previous", link.previous},
          {"rows", link.rows},           {"step", link.step},
          {"weights", link.weights}};
}

// JSON has no NaN, so a loss that is not finite is null.
HashLink link_of(const LinkJson& json) {
  return {.step = whole_number_at(json, "step"),
          .num_processes = whole_number_at(json, "num_processes"),
          .previous = json.at("previous").get<std::string>(),
          .rows = json.at("rows").get<std::string>(),
          .loss = json.at("loss").is_null() ? std::nan("") : json.at("loss").get<double>(),
          .weights = json.at("weights").get<TensorHashes>(),
          .optimizer = json.at("optimizer").get<TensorHashes>()};
}

[[noreturn]] void throw_broken(const fs::path& file, std::size_t line, std::string got,
                               std::string expected) {
  throw DataError("checkpoint.broken-chain",
                  {.what = str(file.string(), ", line ", line),
                   .got = std::move(got),
                   .expected = std::move(expected),
                   .hint = "the file was changed after the run had written it, or lines are lost"});
}

// Reads a line, which must be the text that line_of() writes.
HashLink link_of_line(const fs::path& file, std::size_t number, const std::string& line) {
  HashLink link;
  try {
    link = link_of(parse_json_or_discard<LinkJson>(line));
  } catch (const LinkJson::exception&) {
    throw_broken(file, number, "no link", "a JSON object with the hashes of a step");
  } catch (const JsonError& error) {
    throw_broken(file, number, error.what(), "the step and the number of processes");
  }
  if (line_of(link) != line)
    throw_broken(file, number, "a content that differs from its hash", "what the run has written");
  return link;
}

std::string hash_of_tensor(const at::Tensor& tensor) {
  const at::Tensor plain = plain_tensor(tensor);
  Sha256 digest;
  digest.add(str(c10::toString(plain.scalar_type()), shape_text(plain.sizes()), '\n'));
  if (plain.numel() > 0) digest.add(plain.const_data_ptr(), plain.nbytes());
  return digest.hex();
}

}  // namespace

std::string first_hash() { return std::string(64, '0'); }

std::string hash_of(const HashLink& link) { return sha256_of_text(json_without_hash(link).dump()); }

std::string line_of(const HashLink& link) {
  LinkJson json = json_without_hash(link);
  json["hash"] = hash_of(link);
  return json.dump();
}

HashChain read_hash_chain(const fs::path& file) {
  const std::string text = read_file(file);
  HashChain chain;
  std::string previous;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = text.find('\n', begin);
    if (end == std::string::npos) break;
    const std::size_t number = chain.size() + 1;
    HashLink link = link_of_line(file, number, text.substr(begin, end - begin));
    if (!chain.empty() && link.previous != previous)
      throw_broken(file, number, "a link that follows " + link.previous, "one after " + previous);
    if (!chain.empty() && link.step <= chain.back().step)
      throw_broken(file, number, str("step ", link.step), str("a step after ", chain.back().step));
    previous = hash_of(link);
    chain.push_back(std::move(link));
    begin = end + 1;
  }
  return chain;
}

HashChain intact_links(const fs::path& file) {
  HashChain links;
  for (const std::string& line : split(read_file(file), '\n')) {
    try {
      links.push_back(link_of_line(file, links.size() + 1, line));
    } catch (const DataError&) {  // the end of the file, or a damaged line
    }
  }
  return links;
}

TensorHashes tensor_hashes(const TensorDict& tensors) {
  // The largest come first, so that no thread starts a large one when the others have nearly
  // finished.
  std::vector<std::pair<const std::string*, const at::Tensor*>> order;
  for (const auto& [name, tensor] : tensors) order.emplace_back(&name, &tensor);
  std::stable_sort(order.begin(), order.end(), [](const auto& a, const auto& b) {
    return a.second->nbytes() > b.second->nbytes();
  });
  std::vector<std::string> hashes(order.size());
  std::atomic<std::size_t> next = 0;
  at::parallel_for(0, at::get_num_threads(), 1, [&](std::int64_t, std::int64_t) {
    for (std::size_t i = next++; i < order.size(); i = next++)
      hashes[i] = hash_of_tensor(*order[i].second);
  });
  TensorHashes by_name;
  for (std::size_t i = 0; i < order.size(); ++i) by_name[*order[i].first] = std::move(hashes[i]);
  return by_name;
}

}  // namespace hasten
