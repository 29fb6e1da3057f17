// write_values FOLDER: logs values of every kind with each tracker that writes files, for
// read_events.py.
#include <cmath>
#include <vector>

#include "hasten/track/tracker.h"

namespace {

void log_all(hasten::Tracker& tracker) {
  tracker.store_init_configuration(
      {{"bf16", true}, {"learning_rate", 2e-5}, {"model", "bert"}, {"seed", 42}});
  for (int step = 0; step < 50; step += 10)
    tracker.log({{"train/loss", 1.0 / (step + 1)}, {"train/learning_rate", 2e-5}}, step);
  tracker.log({{"eval/loss", NAN}}, 40);
  tracker.log_text("args", "{\"a\": \"é\"}", 0);
  const std::vector<double> weights = {-1, 0.5, 0.5, 2};
  tracker.log_histogram("weights", weights, 10);
  std::vector<std::uint8_t> pixels(2 * 3 * 3, 0);
  pixels[0] = 255;  // The first pixel is red.
  tracker.log_image("image", {.height = 2, .width = 3, .channels = 3, .pixels = pixels}, 10);
  tracker.finish();
}

}  // namespace

int main(int, char** argv) {
  for (const std::string& name : hasten::expanded_tracker_names({"tensorboard", "jsonl", "csv"}))
    log_all(*hasten::make_tracker(name, {.folder = std::filesystem::path(argv[1]) / "run"}));
}
