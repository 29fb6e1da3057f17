#include "hasten/track/file_trackers.h"

#include <doctest/doctest.h>
#include <sys/resource.h>

#include <cmath>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "hasten/base/files.h"
#include "hasten/base/log.h"
#include "hasten/base/text.h"
#include "hasten/track/mlflow_tracker.h"
#include "track/csv_field.h"
#include "track/event_record.h"
#include "track/histogram.h"
#include "track/png.h"
#include "track/protobuf.h"
#include "unit/code_of.h"

namespace file_trackers_test {

using namespace hasten;

const TrackedConfiguration kConfiguration = {
    {"bf16", true}, {"learning_rate", 2e-5}, {"model", "a, \"b\""}, {"seed", 42}};

std::vector<std::string> lines_of(const std::filesystem::path& file) {
  std::vector<std::string> lines = split(read_file(file), '\n');
  REQUIRE(lines.back().empty());  // The file ends with a line end.
  lines.pop_back();
  return lines;
}

std::filesystem::path only_file_of(const std::filesystem::path& folder) {
  return std::filesystem::directory_iterator(folder)->path();
}

// The serialized events in the only file of a folder.
std::vector<std::string> events_of(const std::filesystem::path& folder) {
  const std::string content = read_file(only_file_of(folder));
  std::vector<std::string> events;
  std::string_view rest = content;
  while (const auto event = next_event_record(rest)) events.emplace_back(*event);
  CHECK(rest.empty());
  return events;
}

TEST_CASE("protobuf: written fields are read back, and a damaged text ends the fields") {
  ProtobufWriter inner, writer;
  inner.integer(3, -1);
  writer.integer(1, 300);
  writer.number(2, 0.1);
  writer.single(16, 0.5f);
  writer.bytes(4, "text");
  writer.message(5, inner);
  ProtobufReader reader(writer.text());
  REQUIRE(reader.next());
  CHECK(reader.field() == 1);
  CHECK(reader.integer() == 300);
  REQUIRE(reader.next());
  CHECK(reader.number() == 0.1);
  REQUIRE(reader.next());
  CHECK(reader.field() == 16);
  CHECK(reader.single() == 0.5f);
  CHECK(reader.number() == 0);
  REQUIRE(reader.next());
  CHECK(reader.bytes() == "text");
  REQUIRE(reader.next());
  ProtobufReader of_inner(reader.bytes());
  REQUIRE(of_inner.next());
  CHECK(of_inner.integer() == -1);
  CHECK(!reader.next());
  CHECK(writer.text().substr(0, 3) == "\x08\xac\x02");

  const std::string text = writer.text();
  for (std::size_t size = 0; size < text.size(); ++size) {
    ProtobufReader cut(std::string_view(text).substr(0, size));
    int fields = 0;
    while (cut.next()) ++fields;
    CHECK(fields < 5);
  }
  CHECK(!ProtobufReader(std::string(11, '\xff')).next());
}

TEST_CASE("event_record: checksums are masked CRC-32C, and a damaged or cut record ends a file") {
  const std::string record = event_record("123456789");
  CHECK(record.size() == 12 + 9 + 4);
  // CRC-32C of these digits is e3069283.
  const std::uint32_t crc = 0xe3069283, masked = (crc >> 15 | crc << 17) + 0xa282ead8;
  std::uint32_t written = 0;
  std::memcpy(&written, record.data() + record.size() - 4, 4);
  CHECK(written == masked);

  const std::string two = record + event_record("");
  std::string_view rest = two;
  CHECK(next_event_record(rest) == "123456789");
  CHECK(next_event_record(rest) == "");
  CHECK(!next_event_record(rest));
  for (std::size_t size = 0; size < record.size(); ++size) {
    std::string_view cut = std::string_view(record).substr(0, size);
    CHECK(!next_event_record(cut));
  }
  for (std::size_t at = 0; at < record.size(); ++at) {
    std::string damaged = record;
    damaged[at] = static_cast<char>(damaged[at] ^ 1);
    std::string_view of_damaged = damaged;
    CHECK(!next_event_record(of_damaged));
  }
}

TEST_CASE("histogram: values that are not finite are left out") {
  const double nan = std::nan(""), values[] = {nan, 1.0, -INFINITY, 1.0};
  const Histogram some = histogram(values);
  CHECK(some.count == 2);
  CHECK(some.sum == 2);
  CHECK(some.counts == std::vector<double>{0, 2});
  CHECK(some.limits.size() == 2);
  CHECK(some.limits[0] <= 1);
  CHECK(some.limits[1] > 1);
  CHECK(histogram({}).counts.empty());
  CHECK(histogram(std::span(&nan, 1)).count == 0);
}

TEST_CASE("TensorBoardTracker: it writes the version first, and then one event for each value") {
  const TemporaryDirectory folder;
  {
    TensorBoardTracker tracker(folder.path());
    tracker.store_init_configuration(kConfiguration);
    tracker.log({{"train/loss", 0.5}, {"train/grad_norm", 2}}, 10);
    tracker.log_text("args", "{}", 0);
    const double weights[] = {1, 2};
    tracker.log_histogram("weights", weights, 10);
    const std::uint8_t pixels[12] = {};
    tracker.log_image("image", {.height = 2, .width = 2, .channels = 3, .pixels = pixels}, 10);
    tracker.finish();
    tracker.finish();
    tracker.log({{"late", 1}}, 20);  // This value is dropped without an error.
  }
  const std::vector<std::string> events = events_of(folder.path());
  REQUIRE(events.size() == 1 + 2 + 2 + 3 + 1);
  CHECK(events[0].find("brain.Event:2") != std::string::npos);
  CHECK(events[1].find("_hparams_/experiment") != std::string::npos);
  CHECK(events[2].find("_hparams_/session_start_info") != std::string::npos);
  CHECK(events[3].find("train/grad_norm") != std::string::npos);
  CHECK(events[8].find("_hparams_/session_end_info") != std::string::npos);
  ProtobufReader event(events[4]);
  REQUIRE(event.next());
  CHECK(event.number() > 1.7e9);
  REQUIRE(event.next());
  CHECK(event.integer() == 10);
}

TEST_CASE("TensorBoardTracker: two trackers in one folder write separate files") {
  const TemporaryDirectory folder;
  const TensorBoardTracker first(folder.path()), second(folder.path());
  CHECK(std::distance(std::filesystem::directory_iterator(folder.path()), {}) == 2);
  CHECK(starts_with(only_file_of(folder.path()).filename().string(), "events.out.tfevents.1"));
}

TEST_CASE("log_image: bytes that do not fit the sizes are an error") {
  const TemporaryDirectory folder;
  TensorBoardTracker tracker(folder.path());
  const std::uint8_t pixels[12] = {};
  for (const TrackedImage& image :
       {TrackedImage{.height = 2, .width = 3, .channels = 3, .pixels = pixels},
        TrackedImage{.height = -2, .width = -2, .channels = 3, .pixels = pixels},
        TrackedImage{.height = 2, .width = 1, .channels = 6, .pixels = pixels}}) {
    CHECK(code_of([&] { tracker.log_image("image", image, 0); }) == "track.image");
  }
}

TEST_CASE("png_of: an image of more than one stored block has every byte") {
  const std::vector<std::uint8_t> pixels(300 * 400, 7);
  const std::string png = png_of({.height = 300, .width = 400, .channels = 1, .pixels = pixels});
  CHECK(starts_with(png, "\x89PNG\r\n"));
  CHECK(png.size() == 8 + 25 + 12 + 2 + 2 * 5 + 300 * 401 + 4 + 12);
}

TEST_CASE(
    "JsonLinesTracker: it writes one object per line, and null for a value that is not finite") {
  const TemporaryDirectory folder;
  {
    JsonLinesTracker tracker(folder.path());
    tracker.store_init_configuration(kConfiguration);
    tracker.log({{"train/loss", 0.5}, {"train/grad_norm", INFINITY}}, 10);
    tracker.log_text("note", "two\nlines", 11);
  }
  JsonLinesTracker(folder.path()).log({{"train/loss", 0.25}}, 20);  // A run that continues.
  const auto lines = lines_of(folder.path() / "metrics.jsonl");
  REQUIRE(lines.size() == 4);
  CHECK(lines[0] ==
        R"({"config":{"bf16":true,"learning_rate":2e-05,"model":"a, \"b\"","seed":42}})");
  const auto first = nlohmann::json::parse(lines[1]);
  CHECK(first["step"] == 10);
  CHECK(first["time"] > 1.7e9);
  CHECK(first["train/loss"] == 0.5);
  CHECK(first["train/grad_norm"].is_null());
  CHECK(nlohmann::json::parse(lines[2])["note"] == "two\nlines");
  CHECK(nlohmann::json::parse(lines[3])["step"] == 20);
}

TEST_CASE("CsvTracker: it writes one header, and one row for each value") {
  const TemporaryDirectory folder;
  {
    CsvTracker tracker(folder.path());
    tracker.store_init_configuration({{"model", "a, \"b\""}});
    tracker.log({{"train/loss", 0.5}, {"train/grad_norm", 2}}, 10);
  }
  CsvTracker(folder.path()).log({{"train/loss", 0.25}}, 20);
  const std::string text = read_file(folder.path() / "metrics.csv");
  std::vector<std::vector<std::string>> rows;
  for (std::string_view rest = text; !rest.empty();) rows.push_back(next_csv_record(rest));
  REQUIRE(rows.size() == 5);
  CHECK(rows[0] == std::vector<std::string>{"step", "time", "name", "value"});
  for (auto& row : rows) row.erase(row.begin() + 1);
  CHECK(rows[1] == std::vector<std::string>{"", "model", "a, \"b\""});
  CHECK(rows[2] == std::vector<std::string>{"10", "train/grad_norm", "2"});
  CHECK(rows[3] == std::vector<std::string>{"10", "train/loss", "0.5"});
  CHECK(rows[4] == std::vector<std::string>{"20", "train/loss", "0.25"});
}

TEST_CASE("file trackers: a run that resumes takes back what was logged after its checkpoint") {
  for (const auto& [name, file] :
       {std::pair<std::string, std::string>{"jsonl", "metrics.jsonl"}, {"csv", "metrics.csv"}}) {
    CAPTURE(name);
    const TemporaryDirectory folder;
    const std::filesystem::path path = folder.path() / file,
                                abandoned = folder.path() / ("abandoned-" + file);
    const auto open = [&, name = name] { return make_tracker(name, {.folder = folder.path()}); };
    TrackerPosition saved;
    std::string before;
    {
      const auto tracker = open();
      tracker->store_init_configuration(kConfiguration);
      tracker->log({{"loss", 0.5}}, 1);
      saved = tracker->position();
      before = read_file(path);
      tracker->log({{"loss", 0.25}}, 2);
    }
    const std::string after = read_file(path).substr(before.size());
    REQUIRE(!after.empty());
    CHECK(open()->resume(saved, 1));
    CHECK(read_file(path) == before);
    CHECK(read_file(abandoned) == after);
    CHECK(open()->resume(saved, 1));  // nothing is left to take back
    CHECK(read_file(abandoned) == after);

    std::string logged;
    set_log_sink([&](std::string_view line) { logged += line; });
    TrackerPosition other = saved;
    other["bytes"] -= 1;
    CHECK_FALSE(open()->resume(other, 1));
    other["bytes"] = 1e300;
    CHECK_FALSE(open()->resume(other, 1));
    other["bytes"] = 0;
    CHECK_FALSE(open()->resume(other, 1));
    CHECK(logged.find("is not the file that the checkpoint describes") != std::string::npos);
    logged.clear();
    write_file_atomically(path, "another run\n" + before + after);
    CHECK_FALSE(open()->resume(saved, 1));
    CHECK(read_file(path) == "another run\n" + before + after);
    CHECK(logged.find(path.string()) != std::string::npos);
    logged.clear();
    std::filesystem::remove(path);
    CHECK_FALSE(open()->resume(saved, 1));  // a new file
    set_log_sink({});
    CHECK(logged.empty());
    CHECK(read_file(abandoned) == after);
  }
}

TEST_CASE("file trackers: a run may continue a later checkpoint after an earlier one") {
  for (const auto& [name, file] :
       {std::pair<std::string, std::string>{"jsonl", "metrics.jsonl"}, {"csv", "metrics.csv"}}) {
    CAPTURE(name);
    const TemporaryDirectory folder;
    const std::filesystem::path path = folder.path() / file;
    const auto open = [&, name = name] { return make_tracker(name, {.folder = folder.path()}); };
    std::vector<TrackerPosition> positions(8);
    std::vector<std::string> contents(8);
    {
      const auto tracker = open();
      tracker->store_init_configuration(kConfiguration);
      for (std::size_t step = 1; step <= 7; ++step) {
        tracker->log({{"loss", 1.0 / static_cast<double>(step)}}, static_cast<std::int64_t>(step));
        positions[step] = tracker->position();
        contents[step] = read_file(path);
      }
    }
    std::string logged;
    set_log_sink([&](std::string_view line) { logged += line; });
    // The second run continues after step 4 and the third after step 2. Both end soon.
    for (const std::size_t step : {4U, 2U}) {
      const auto tracker = open();
      CHECK(tracker->resume(positions[step], static_cast<std::int64_t>(step)));
      CHECK(read_file(path) == contents[step]);
      tracker->log({{"loss", 0.75}}, static_cast<std::int64_t>(step) + 1);
    }
    const auto tracker = open();
    CHECK(tracker->resume(positions[6], 6));
    CHECK(read_file(path) == contents[6]);
    tracker->log({{"loss", 0.25}}, 7);
    CHECK(starts_with(read_file(path), contents[6]));
    CHECK(tracker->resume(positions[3], 3));
    CHECK(read_file(path) == contents[3]);

    TrackerPosition other = positions[6];
    other["crc32c"] += 1;
    CHECK(logged.empty());
    CHECK_FALSE(tracker->resume(other, 6));
    CHECK(read_file(path) == contents[3]);
    // A damaged list of the abandoned parts is not used.
    write_file_atomically(folder.path() / ("abandoned-" + file + ".index"),
                          "{\"begin\":-1}\nnone\n{\"begin\":0,\"bytes\":1,\"crc32c\":0,"
                          "\"end\":9000000000000000000}\n");
    CHECK_FALSE(tracker->resume(positions[6], 6));
    CHECK(read_file(path) == contents[3]);
    set_log_sink({});
  }
}

TEST_CASE("TensorBoardTracker: a run that resumes makes TensorBoard drop the later steps") {
  const TemporaryDirectory folder;
  TensorBoardTracker tracker(folder.path());
  CHECK_FALSE(tracker.position().empty());
  CHECK_FALSE(tracker.resume({}, 10));
  const std::vector<std::string> events = events_of(folder.path());
  REQUIRE(events.size() == 2);
  ProtobufReader event(events[1]);
  REQUIRE(event.next());
  REQUIRE(event.next());
  CHECK(event.field() == 2);  // the step
  CHECK(event.integer() == 11);
  REQUIRE(event.next());
  CHECK(event.field() == 7);                             // session_log
  CHECK(event.bytes() == std::string_view("\x08\x01"));  // status: START
}

TEST_CASE("next_csv_record: it reads quoted line ends, doubled quotes and CR LF") {
  std::string_view rest = "a,\"b\r\n\"\"c\"\"\",\r\nd";
  CHECK(next_csv_record(rest) == std::vector<std::string>{"a", "b\r\n\"c\"", ""});
  CHECK(next_csv_record(rest) == std::vector<std::string>{"d"});
  CHECK(next_csv_record(rest).empty());
}

TEST_CASE("trackers: a folder that cannot be created is an error, a later failure one log line") {
  CHECK(code_of([] { JsonLinesTracker("/dev/null/logs"); }) == "io.mkdir");
  const TemporaryDirectory folder;
  std::vector<std::string> logged;
  set_log_sink([&](std::string_view line) { logged.emplace_back(line); });
  JsonLinesTracker tracker(folder.path());
  rlimit before{};
  ::getrlimit(RLIMIT_FSIZE, &before);
  auto* const handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit none{.rlim_cur = 0, .rlim_max = before.rlim_max};
  ::setrlimit(RLIMIT_FSIZE, &none);
  tracker.log({{"loss", 1}}, 1);
  tracker.log({{"loss", 1}}, 2);
  ::setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  set_log_sink({});
  REQUIRE(logged.size() == 1);
  CHECK(logged[0].find("metrics.jsonl") != std::string::npos);
}

TEST_CASE("file trackers: a record that a full disk has cut does not damage the next one") {
  for (const auto& [name, file] :
       {std::pair<std::string, std::string>{"jsonl", "metrics.jsonl"}, {"csv", "metrics.csv"}}) {
    CAPTURE(name);
    const TemporaryDirectory folder;
    const std::filesystem::path path = folder.path() / file;
    std::string logged;
    set_log_sink([&](std::string_view line) { logged += line; });
    auto tracker = make_tracker(name, {.folder = folder.path()});
    tracker->log({{"loss", 0.5}}, 1);
    const std::string before = read_file(path);
    rlimit limits{};
    ::getrlimit(RLIMIT_FSIZE, &limits);
    auto* const handler = std::signal(SIGXFSZ, SIG_IGN);
    const rlimit small{.rlim_cur = before.size() + 10, .rlim_max = limits.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &small);
    tracker->log({{"loss", 0.25}}, 2);
    const TrackerPosition saved = tracker->position();
    ::setrlimit(RLIMIT_FSIZE, &limits);
    std::signal(SIGXFSZ, handler);
    CHECK(logged.find("cannot write " + path.string()) != std::string::npos);
    CHECK(read_file(path) == before);
    tracker = make_tracker(name, {.folder = folder.path()});
    CHECK(tracker->resume(saved, 2));
    tracker->log({{"loss", 0.125}}, 3);
    set_log_sink({});
    const std::vector<std::string> lines = lines_of(path);
    REQUIRE(lines.size() == (name == "csv" ? 3U : 2U));
    if (name == "csv") {
      std::string_view last = lines.back();
      CHECK(next_csv_record(last).size() == 4);
    } else {
      CHECK(nlohmann::json::parse(lines.back()).at("step") == 3);
    }
  }
}

TEST_CASE("MLflowTracker: a queue without room drops every value and says so") {
  std::string logged;
  set_log_sink([&](std::string_view line) { logged += line; });
  MLflowTracker tracker({.tracking_uri = "http://127.0.0.1:1", .max_queued_values = 0});
  tracker.log({{"loss", 1}, {"grad_norm", 2}}, 1);
  tracker.finish();
  set_log_sink({});
  CHECK(logged == "hasten: MLflow did not get 2 of the run's values");
}

TEST_CASE("make_tracker: it accepts names and \"all\", and refuses missing settings") {
  const TemporaryDirectory folder;
  const TrackerOptions options{.folder = folder.path() / "sst2"};
  for (const std::string name : {"tensorboard", "jsonl", "csv"})
    CHECK(make_tracker(name, options)->name() == name);
  CHECK(std::filesystem::exists(folder.path() / "sst2" / "metrics.csv"));
  CHECK(code_of([&] { make_tracker("wandb", options); }) == "track.unknown");
  CHECK(code_of([] { make_tracker("csv", {.project = "a"}); }) == "track.logging-dir");
  ::unsetenv("MLFLOW_TRACKING_URI");
  CHECK(code_of([&] { make_tracker("mlflow", options); }) == "track.mlflow-uri");
  ::setenv("MLFLOW_TRACKING_URI", "https://localhost:1", 1);
  CHECK(code_of([&] { make_tracker("mlflow", options); }) == "track.http-address");
  CHECK(expanded_tracker_names({"all"}).back() == "mlflow");
  ::unsetenv("MLFLOW_TRACKING_URI");
  CHECK(expanded_tracker_names({"none"}).empty());
  CHECK(expanded_tracker_names({"csv", "all", "csv"}) ==
        std::vector<std::string>{"csv", "tensorboard", "jsonl"});
  CHECK(code_of([] { expanded_tracker_names({"jsnol"}); }) == "track.unknown");
}

}  // namespace file_trackers_test
