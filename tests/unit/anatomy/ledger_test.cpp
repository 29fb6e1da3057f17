#include "anatomy/ledger.h"

#include <doctest/doctest.h>

#include <array>

namespace anatomy_ledger_test {

using namespace hasten::anatomy;

namespace {
const std::array<char, 8> cells{};
const void* cell(std::size_t i) { return &cells[i]; }
constexpr CallSite kForward{.phase = Phase::forward}, kOptimizer{.phase = Phase::optimizer};
}  // namespace

TEST_CASE("ledger: it has the live bytes, their peak, and the components at the peak") {
  Ledger ledger;
  ledger.add_existing(cell(0), 100, Component::model_weights, 3);
  ledger.allocate(cell(1), 40, kForward);
  ledger.allocate(cell(2), 60, kForward);
  ledger.assign(cell(1), Component::activations, 4);
  ledger.release(cell(2));
  ledger.allocate(cell(3), 10, kForward);
  CHECK(ledger.live() == 150);
  CHECK(ledger.peak() == 200);
  const ComponentBytes peak = ledger.bytes_after(ledger.peak_event());
  CHECK(bytes_of(peak, Component::model_weights) == 100);
  CHECK(bytes_of(peak, Component::activations) == 40);
  CHECK(bytes_of(peak, Component::temporary_buffers) == 60);
  CHECK(total(peak) == ledger.peak());
  CHECK(ledger.find(cell(1))->site.module == 4);
}

TEST_CASE("ledger: a late purpose applies from the first byte, and the first purpose stays") {
  Ledger ledger;
  ledger.allocate(cell(0), 8, kForward);
  ledger.assign(cell(0), Component::functionality);
  ledger.assign(cell(0), Component::activations);
  CHECK(ledger.find(cell(0))->component == Component::functionality);
  ledger.assign(cell(0), Component::model_weights);
  CHECK(ledger.find(cell(0))->component == Component::model_weights);
}

TEST_CASE("ledger: outside of all phases a block is unknown until it is assigned") {
  Ledger ledger;
  ledger.allocate(cell(0), 8, {});
  CHECK(ledger.find(cell(0))->component == Component::unknown);
  ledger.assign(cell(0), Component::functionality);
  CHECK(ledger.find(cell(0))->component == Component::functionality);
}

TEST_CASE("ledger: memory that an optimizer keeps is its state, the rest is temporary") {
  Ledger ledger;
  const auto first = static_cast<std::int64_t>(ledger.events().size());
  ledger.allocate(cell(0), 8, kOptimizer);
  ledger.allocate(cell(1), 4, kOptimizer);
  ledger.release(cell(1));
  ledger.assign_survivors(first, Phase::optimizer, Component::optimizer_states);
  CHECK(ledger.blocks()[0].component == Component::optimizer_states);
  CHECK(ledger.blocks()[1].component == Component::temporary_buffers);
}

TEST_CASE("ledger: unknown releases are ignored, and a reused address is a new block") {
  Ledger ledger;
  ledger.release(cell(0));
  ledger.allocate(cell(1), 8, kForward);
  ledger.allocate(cell(1), 16, kForward);  // its release was not recorded
  CHECK(ledger.live() == 16);
  ledger.release(cell(1));
  CHECK(ledger.live() == 0);
  CHECK(ledger.peak() == 16);
}

}  // namespace anatomy_ledger_test
