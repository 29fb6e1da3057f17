// Tests the format of a memory snapshot. tests/cli/memory_snapshot.py loads one in Python.
#include <doctest/doctest.h>

#include "formats/pickle_writer.h"
#include "hasten/anatomy/report.h"

namespace anatomy_report_snapshot_test {

using namespace hasten;

TEST_CASE("pickle writer: the bytes are those of protocol 2") {
  PickleWriter out;
  out.begin_dict();
  out.key("a");
  out.begin_list();
  out.integer(-1);
  out.integer(std::int64_t{1} << 40);
  out.text("a");
  out.boolean(true);
  out.pair(0, 1);
  out.end_list();
  const std::uint32_t list = out.memoize();
  out.key("b");
  out.recall(list);
  out.end_dict();
  const auto bytes = [](const char* text, std::size_t size) { return std::string(text, size); };
  // The bytes are those that pickletools.dis shows as {'a': [-1, 2**40, 'a', True, (0, 1)], 'b':
  // the same list}.
  const std::string expected =
      bytes("\x80\x02}(X\x01\0\0\0", 9) + "a" + bytes("r\0\0\0\0](J\xff\xff\xff\xff", 12) +
      bytes("\x8a\x08\0\0\0\0\0\x01\0\0", 10) + bytes("j\0\0\0\0\x88", 6) +
      bytes("J\0\0\0\0J\x01\0\0\0\x86", 11) + "e" + bytes("r\x01\0\0\0X\x01\0\0\0", 10) + "b" +
      bytes("r\x02\0\0\0j\x01\0\0\0u.", 12);
  CHECK(std::move(out).finish() == expected);
}

TEST_CASE("memory snapshot: an empty report is a snapshot without events") {
  const std::string text = to_snapshot(anatomy::Report{});
  CHECK(text.find("device_traces") != std::string::npos);
  CHECK(text.find("segments") != std::string::npos);
}

}  // namespace anatomy_report_snapshot_test
