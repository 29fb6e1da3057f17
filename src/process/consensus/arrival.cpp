#include "process/consensus/arrival.h"

#include <exception>
#include <nlohmann/json.hpp>
#include <string>

#include "base/json_line.h"
#include "base/seconds.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "process/consensus/comparison.h"
#include "process/consensus/store_exchange.h"

namespace hasten {
namespace {

const std::string kArrived = "arrival/count", kComplete = "arrival/complete";
const std::string kTimeoutCount = "arrival/timeouts", kMissing = "arrival/missing";
const std::string kNoMissingRanks = "none";
constexpr auto kMissingRanksTimeout = std::chrono::seconds(10);

std::string location_key(std::int64_t rank) { return str("arrival/location/", rank); }

std::vector<std::string> location_keys(std::int64_t size) {
  std::vector<std::string> keys;
  for (std::int64_t rank = 0; rank < size; ++rank) keys.push_back(location_key(rank));
  return keys;
}

std::string find_missing_ranks(c10d::Store& store, std::int64_t size) {
  const std::vector<bool> has_arrived = keys_exist(store, location_keys(size));
  Ranks missing;
  for (std::size_t rank = 0; rank < has_arrived.size(); ++rank) {
    if (!has_arrived[rank]) missing.push_back(static_cast<std::int64_t>(rank));
  }
  return missing.empty() ? kNoMissingRanks : ranks_text(missing);
}

// Returns the missing ranks as text. The first rank whose timeout has passed determines them for
// all others.
std::string agree_on_missing_ranks(c10d::Store& store, std::int64_t size) {
  if (store.add(kTimeoutCount, 1) == 1) store.set(kMissing, find_missing_ranks(store, size));
  store.wait({kMissing}, kMissingRanksTimeout);
  return text_at(store, kMissing);
}

}  // namespace

RankLocation RankLocation::own() {
  return {
      .host = host_name(), .pid_namespace = pid_namespace_id(), .process = ProcessIdentity::own()};
}

std::string RankLocation::to_text() const {
  return json_line({{"host", host},
                    {"pid_namespace", pid_namespace},
                    {"process", process.number},
                    {"started", process.started}});
}

RankLocation RankLocation::from_text(const std::string& text) {
  const auto json = nlohmann::json::parse(text);
  return {.host = json.at("host"),
          .pid_namespace = json.at("pid_namespace"),
          .process = {.number = json.at("process"), .started = json.at("started")}};
}

void wait_for_all_ranks(c10d::Store& store, std::int64_t rank, std::int64_t size,
                        std::chrono::milliseconds timeout) {
  store.set(location_key(rank), RankLocation::own().to_text());
  if (store.add(kArrived, 1) == size) store.set(kComplete, "yes");
  try {
    store.wait({kComplete}, timeout);
  } catch (const std::exception&) {
    const std::string missing = agree_on_missing_ranks(store, size);
    if (missing == kNoMissingRanks) throw;
    const double limit = seconds_of(timeout);
    throw IoError("process.rank-missing",
                  {.what = str("forming a group of ", size, " processes, on rank ", rank),
                   .got = str("nothing from ", missing, " within ", significant(limit, 6), " s"),
                   .expected = "every rank to join",
                   .hint = "check that the missing ranks have been started, are still running and "
                           "reach this call; the limit is ddp_timeout of the Trainer and of hasten "
                           "train, or GroupOptions::timeout "
                           "(AcceleratorOptions::process_group.timeout)"});
  }
}

std::vector<RankLocation> locations_of_all(c10d::Store& store, std::int64_t size) {
  std::vector<RankLocation> all;
  for (const std::string& text : texts_at(store, location_keys(size)))
    all.push_back(RankLocation::from_text(text));
  return all;
}

}  // namespace hasten
