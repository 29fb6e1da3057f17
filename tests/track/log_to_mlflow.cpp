// log_to_mlflow URI: logs to an MLflow server, for mlflow.py, and prints the seconds that log()
// took.
#include <chrono>
#include <cmath>
#include <cstdio>

#include "hasten/track/mlflow_tracker.h"

int main(int, char** argv) {
  hasten::MLflowTracker tracker({.tracking_uri = argv[1],
                                 .experiment = "my experiment",
                                 .run_name = "third",
                                 .token = "secret"});
  const auto start = std::chrono::steady_clock::now();
  tracker.store_init_configuration({{"learning_rate", 2e-5},
                                    {"bf16", true},
                                    {"model (name)", "bert"},
                                    {"long", std::string(10000, 'a')}});
  for (int step = 0; step < 2000; ++step)
    tracker.log({{"loss", 1.0 / (step + 1)}, {"grad norm (l2)", 2.0}}, step);
  tracker.log({{"eval_loss", NAN}, {"eval_perplexity", INFINITY}}, 2000);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  std::printf("%.6f\n", seconds.count());
  tracker.finish();
  tracker.log({{"late", 1}}, 3000);
}
