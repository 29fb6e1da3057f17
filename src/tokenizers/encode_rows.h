// File: tokenizers/encode_rows.h (internal)
// Encodes the rows of a batch on several threads, each of which has an encoder of its own.
//
//   return encode_rows<RowEncoder>(state, texts, options, threads);
//
// An Encoder is made from the tokenizer's state, the options and whether rows are pairs, and its
// encode() takes one text or two. Throws UsageError "tokenizers.unequal-batch". Thread rule: any
// thread; the state is only read.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "hasten/tokenizers/detail/encoding.h"
#include "tokenizers/parallel.h"

namespace hasten::tokenizers {

template <class Encoder, class State, class Options>
std::vector<Encoding> encode_rows(const State& state, std::span<const std::string> texts,
                                  const Options& options, int threads) {
  std::vector<Encoding> rows(texts.size());
  parallel_for(texts.size(), threads, [&](std::size_t from, std::size_t to) {
    Encoder encoder(state, options, false);
    for (std::size_t i = from; i < to; ++i) rows[i] = encoder.encode(texts[i]);
  });
  return rows;
}

template <class Encoder, class State, class Options>
std::vector<Encoding> encode_rows(const State& state, std::span<const std::string> texts,
                                  std::span<const std::string> pairs, const Options& options,
                                  int threads) {
  if (texts.size() != pairs.size()) {
    throw UsageError("tokenizers.unequal-batch", {.what = "first and second texts of a batch",
                                                  .got = str(texts.size(), " and ", pairs.size()),
                                                  .expected = "an equal number of both"});
  }
  std::vector<Encoding> rows(texts.size());
  parallel_for(texts.size(), threads, [&](std::size_t from, std::size_t to) {
    Encoder encoder(state, options, true);
    for (std::size_t i = from; i < to; ++i) rows[i] = encoder.encode(texts[i], pairs[i]);
  });
  return rows;
}

}  // namespace hasten::tokenizers
