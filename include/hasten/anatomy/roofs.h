// File: hasten/anatomy/roofs.h
// What this machine reaches at most, measured in a third of a second: the roofs of a roofline.
//
//   Roofs roofs = measure_roofs();
//   roofs.flops_per_second / roofs.bytes_per_second;   // FLOP a byte where the two meet
//
// With as many threads as LibTorch uses now. FLOP: a product of float matrices of 1024 rows and
// columns, by the library hasten's own products go to. Bytes: a copy of memory far larger than the
// caches, read and written both counted. The better half of the runs counts. Thread rule: one at a
// time, on an idle machine.
#pragma once

namespace hasten::anatomy {

struct Roofs {
  double flops_per_second = 0;       // float; 0: not measured
  double bf16_flops_per_second = 0;  // 0: not measured, or emulated on this CPU
  double bytes_per_second = 0;
};

Roofs measure_roofs();

}  // namespace hasten::anatomy
