// Malicious files cause a DataError or a correct reading, and nothing else.
#include <ATen/ATen.h>
#include <doctest/doctest.h>
#include <torch/torch.h>

#include <algorithm>
#include <fstream>
#include <random>

#include "formats/safetensors_header.h"
#include "hasten/base/error.h"
#include "hasten/base/files.h"
#include "hasten/base/text.h"
#include "hasten/formats/safetensors.h"
#include "unit/peak_memory.h"

namespace formats_safetensors_attacks_test {

using namespace hasten;
namespace fs = std::filesystem;

namespace {

const fs::path data = fs::path(HASTEN_TEST_DATA) / "unit/formats/data";

std::string file_bytes(const std::string& header, std::size_t data_bytes) {
  std::string bytes(8, '\0');
  for (int i = 0; i < 8; ++i) bytes[i] = static_cast<char>(header.size() >> (8 * i) & 0xFF);
  return bytes + header + std::string(data_bytes, '\1');
}

std::string code_of(const std::string& bytes) {
  try {
    safetensors::parse_header(bytes, "file");
  } catch (const DataError& error) {
    return error.code();
  }
  return "none";
}

std::string code_of(const std::string& header, std::size_t data_bytes) {
  return code_of(file_bytes(header, data_bytes));
}

std::string entry(const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return R"({"dtype":")" + dtype + R"(","shape":[)" + shape + R"(],"data_offsets":[)" + offsets +
         "]}";
}
std::string one(const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return R"({"a":)" + entry(dtype, shape, offsets) + "}";
}

// Reads all of a file as a program would. Returns true if the file opened.
bool opens(const fs::path& path) {
  try {
    for (const auto& [name, tensor] : load_safetensors(path)) {
      if (tensor.numel() > 0) tensor.view({-1}).select(0, -1).clone();
    }
    return true;
  } catch (const DataError&) {
    return false;
  }
}

void write_file(const fs::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc)
      .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

}  // namespace

TEST_CASE("safetensors attacks: valid files are accepted") {
  CHECK(code_of("{}", 0) == "none");
  CHECK(code_of("{}   ", 0) == "none");
  CHECK(code_of(one("F32", "2", "0,8"), 8) == "none");
  CHECK(code_of(one("F32", "", "0,4"), 4) == "none");
  CHECK(code_of(one("F32", "0", "0,0"), 0) == "none");
  CHECK(code_of(one("F4", "3,4", "0,6"), 6) == "none");
  CHECK(code_of(R"({"__metadata__":{},"a":)" + entry("U8", "1", "0,1") + "}", 1) == "none");
  CHECK(code_of(R"({"b":)" + entry("U8", "1", "1,2") + R"(,"a":)" + entry("U8", "1", "0,1") + "}",
                2) == "none");
}

TEST_CASE("safetensors attacks: a file truncated at any byte is refused") {
  TemporaryDirectory scratch;
  for (const char* name : {"dtypes.safetensors", "names.safetensors"}) {
    const std::string whole = read_file(data / name);
    for (std::size_t size = 0; size < whole.size(); ++size) {
      CAPTURE(size);
      CHECK(code_of(whole.substr(0, size)) == "safetensors.truncated");
    }
    CHECK(code_of(whole + "x") == "safetensors.size");
  }
}

TEST_CASE("safetensors attacks: the length of the header is checked before it is used") {
  CHECK(code_of(std::string(8, '\xff')) == "safetensors.header");
  CHECK(code_of(std::string("\x01\xe1\xf5\x05\0\0\0\0", 8)) ==
        "safetensors.header");  // 100,000,001
  CHECK(code_of(std::string("\x00\xe1\xf5\x05\0\0\0\0", 8)) ==
        "safetensors.truncated");  // 100,000,000
  CHECK(code_of(std::string("\xf8\xff\xff\xff\xff\xff\xff\xff{}", 10)) == "safetensors.header");
  CHECK(code_of(std::string(8, '\0')) == "safetensors.header");
}

TEST_CASE("safetensors attacks: a header takes at most 64 MiB more memory than its file") {
  const auto header_of = [](int tensors, int texts) {
    std::string header = "{\"__metadata__\":{";
    for (int i = 0; i < texts; ++i) header += str(i > 0 ? "," : "", '"', i, "\":\"\"");
    header += "}";
    for (int i = 0; i < tensors; ++i) header += str(",\"", i, "\":", entry("U8", "0", "0,0"));
    return header + "}";
  };
  for (const std::string& header : {header_of(400'000, 0), header_of(0, 400'000)}) {
    const std::string bytes = file_bytes(header, 0);
    const long before = test::peak_memory_kib();
    CHECK(code_of(bytes) == "safetensors.header");
    const long most = (64 << 10) + static_cast<long>(bytes.size() >> 10);
    CHECK(test::peak_memory_kib() - before < most * test::kMemoryPerByte);
  }
  // A file of many tensors without data is read.
  const TemporaryDirectory scratch;
  const fs::path path = scratch.path() / "many.safetensors";
  write_file(path, file_bytes(header_of(20'000, 20'000), 0));
  const SafetensorsFile file(path);
  CHECK(file.names().size() == 20'000);
  CHECK(std::is_sorted(file.names().begin(), file.names().end()));
  CHECK(file.metadata().size() == 20'000);
  CHECK(file.contains("19999"));
  CHECK(file.info("19999").bytes == 0);
  CHECK_FALSE(file.contains("20000"));
  // A file that could not be read is not written either.
  std::vector<safetensors::Entry> many;
  for (int i = 0; i < 400'000; ++i)
    many.push_back({.name = str(i), .dtype = safetensors::dtype_named("U8"), .shape = {0}});
  CHECK_THROWS_WITH_AS(safetensors::compose_header(many, {}, "file"),
                       doctest::Contains("fewer and larger tensors"), DataError);
}

TEST_CASE("safetensors attacks: a file of torch::save is recognized") {
  TemporaryDirectory scratch;
  torch::save(torch::nn::Linear(2, 2), (scratch.path() / "net.pt").string());
  try {
    (void)load_safetensors(scratch.path() / "net.pt");
    FAIL("the file opened");
  } catch (const DataError& error) {
    CHECK(error.code() == "safetensors.header");
    CHECK(error.hint().find("hasten convert") != std::string::npos);
  }
}

TEST_CASE("safetensors attacks: the header is one JSON object and nothing else") {
  for (const std::string header : {"",
                                   "[]",
                                   "1",
                                   "null",
                                   "{",
                                   "{}}",
                                   "{} x",
                                   "{}\n",
                                   "{}\t",
                                   " {}",
                                   "\xef\xbb\xbf{}",
                                   "{'a':1}",
                                   "{\"a\":1}",
                                   "{\"a\":[]}",
                                   "{\"a\":null}",
                                   "{\"a\":{}}",
                                   "{\"a\":{\"dtype\":\"U8\"}}",
                                   "{\"__metadata__\":[]}",
                                   "{\"__metadata__\":null}",
                                   "{\"__metadata__\":{\"a\":1}}",
                                   "{\"__metadata__\":{\"a\":{}}}",
                                   "{\"\xff\":{}}",
                                   "{\"\\ud800\":{}}",
                                   "{\"a\":{\"dtype\":{}}}",
                                   "{/**/}",
                                   "{\"a\":NaN}"}) {
    CAPTURE(header);
    CHECK(code_of(header, 0).starts_with("safetensors."));
  }
  CHECK(code_of(std::string("{}\0{}", 5), 0) == "safetensors.header");
  CHECK(code_of(std::string("{}\0\0", 4), 0) == "safetensors.header");
  CHECK(code_of(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"more":1}})", 1) ==
        "safetensors.header");
  CHECK(code_of("{\"a\":" + std::string(1'000'000, '[') + "}", 0) == "safetensors.header");
  CHECK(code_of(std::string(1'000'000, '{'), 0) == "safetensors.header");
}

TEST_CASE("safetensors attacks: a repeated key is refused, whatever it is") {
  const std::string a = entry("U8", "1", "0,1");
  CHECK(code_of("{\"a\":" + a + ",\"a\":" + a + "}", 1) == "safetensors.duplicate");
  CHECK(code_of("{\"a\":" + a + ",\"\\u0061\":" + a + "}", 1) == "safetensors.duplicate");
  CHECK(code_of(R"({"__metadata__":{},"__metadata__":{}})", 0) == "safetensors.duplicate");
  CHECK(code_of(R"({"__metadata__":{"k":"1","k":"2"}})", 0) == "safetensors.duplicate");
  CHECK(code_of(R"({"a":{"dtype":"U8","dtype":"I8","shape":[1],"data_offsets":[0,1]}})", 1) ==
        "safetensors.duplicate");
  CHECK(code_of(R"({"a":{"dtype":"U8","shape":[1],"shape":[2],"data_offsets":[0,1]}})", 1) ==
        "safetensors.duplicate");
}

TEST_CASE("safetensors attacks: dtypes outside the format are refused") {
  for (const char* dtype : {"", "f32", "F128", "F32 ", "Q8", "F6_E2M3", "__metadata__"}) {
    CAPTURE(dtype);
    CHECK(code_of(one(dtype, "1", "0,4"), 4) == "safetensors.dtype");
  }
  CHECK(code_of(R"({"a":{"dtype":1,"shape":[1],"data_offsets":[0,1]}})", 1) == "safetensors.dtype");
}

TEST_CASE("safetensors attacks: negative, fractional, huge or overflowing shapes are refused") {
  for (const char* shape :
       {"-1", "-0", "1.0", "1e0", "9223372036854775808", "18446744073709551616", "[1]", "\"1\"",
        "null", "4294967296,4294967296", "9223372036854775807,2", "3,6148914691236517206",
        "2305843009213693952,8", "0,9223372036854775807,9223372036854775807",
        "9223372036854775807,9223372036854775807,0", "9223372036854775807"}) {
    CAPTURE(shape);
    CHECK(code_of(one("U8", shape, "0,0"), 0) == "safetensors.shape");
    CHECK(code_of(one("F64", shape, "0,8"), 8) == "safetensors.shape");
  }
  std::string ones = "1";
  for (int i = 0; i < 64; ++i) ones += ",1";
  CHECK(code_of(one("U8", ones, "0,1"), 1) == "safetensors.shape");
  CHECK(code_of(one("F4", "3", "0,1"), 1) == "safetensors.shape");
  CHECK(code_of(one("F4", "", "0,0"), 0) == "safetensors.shape");
}

TEST_CASE("safetensors attacks: each tensor has exactly the bytes of its shape") {
  CHECK(code_of(one("F32", "2", "0,4"), 4) == "safetensors.size");
  CHECK(code_of(one("F32", "2", "0,12"), 12) == "safetensors.size");
  CHECK(code_of(one("F32", "0", "0,4"), 4) == "safetensors.size");
  CHECK(code_of(one("F32", "2", "0,8"), 4) == "safetensors.truncated");
  CHECK(code_of(one("F32", "2", "0,8"), 12) == "safetensors.size");
}

TEST_CASE("safetensors attacks: offsets with holes, overlaps or outside the file are refused") {
  const auto two = [](const std::string& first, const std::string& second,
                      const std::string& shape = "4") {
    return R"({"a":)" + entry("U8", "4", first) + R"(,"b":)" + entry("U8", shape, second) + "}";
  };
  CHECK(code_of(two("0,4", "4,8"), 8) == "none");
  CHECK(code_of(two("0,4", "5,9"), 9) == "safetensors.offsets");
  CHECK(code_of(two("0,4", "3,7"), 7) == "safetensors.offsets");
  CHECK(code_of(two("0,4", "0,4"), 4) == "safetensors.offsets");
  CHECK(code_of(two("1,5", "5,9"), 9) == "safetensors.offsets");
  CHECK(code_of(two("0,4", "2,2", "0"), 4) == "safetensors.offsets");  // an empty tensor in another
  CHECK(code_of(two("0,4", "4,4", "0"), 4) == "none");
  CHECK(code_of(two("0,4", "0,0", "0"), 4) == "none");
  CHECK(code_of(two("0,4", "9,9", "0"), 4) == "safetensors.offsets");
  CHECK(code_of(one("U8", "4", "4,0"), 4) == "safetensors.offsets");
  CHECK(code_of(one("U8", "4", "-4,0"), 4) == "safetensors.offsets");
  CHECK(code_of(one("U8", "4", "0,18446744073709551615"), 4) == "safetensors.size");
  CHECK(code_of(one("U8", "4", "0"), 4) == "safetensors.offsets");
  CHECK(code_of(one("U8", "4", "0,4,4"), 4) == "safetensors.offsets");
  CHECK(code_of(one("U8", "4", "0.0,4"), 4) == "safetensors.offsets");
}

TEST_CASE("safetensors attacks: a boolean that is neither 0 nor 1 is refused when it is read") {
  TemporaryDirectory scratch;
  write_file(scratch.path() / "x", file_bytes(one("BOOL", "2", "0,2"), 0) + "\x01\x02");
  const SafetensorsFile file(scratch.path() / "x");
  CHECK_THROWS_AS(file.tensor("a"), DataError);
}

TEST_CASE("safetensors attacks: messages name file and tensor, and escape text from the file") {
  try {
    safetensors::parse_header(
        file_bytes("{\"a\\n\\u001b[31m\":" + entry("F32", "2, 2", "0,12") + "}", 12),
        "w.safetensors");
    FAIL("expected an error");
  } catch (const DataError& error) {
    CHECK(std::string(error.what()) ==
          R"(w.safetensors: tensor "a\n\u001b[31m": size: got 12 bytes in data_offsets [0, 12], )"
          "expected 16 bytes for F32 [2, 2]. Hint: the file is damaged or its writer is faulty: "
          "fetch it again, or save it again");
  }
}

TEST_CASE("safetensors attacks: 4,000 changed headers give a DataError or a readable file") {
  TemporaryDirectory scratch;
  std::mt19937_64 random(20261121);
  const std::vector<std::string> words = {"0",
                                          "-1",
                                          "18446744073709551615",
                                          "1e9",
                                          "[",
                                          "]",
                                          "{",
                                          "}",
                                          ",",
                                          ":",
                                          "\"",
                                          "\\",
                                          "\"F64\"",
                                          "\"BOOL\"",
                                          "\"shape\"",
                                          "null",
                                          "__metadata__",
                                          "0,0"};
  int opened = 0;
  for (int round = 0; round < 4000; ++round) {
    std::string bytes =
        read_file(data / (round % 2 == 0 ? "dtypes.safetensors" : "names.safetensors"));
    const std::size_t header =
        8 + static_cast<unsigned char>(bytes[0]) + 256 * static_cast<unsigned char>(bytes[1]);
    for (std::size_t changes = 1 + random() % 3; changes > 0; --changes) {
      const std::size_t at = random() % header;
      switch (random() % 4) {
        case 0:
          bytes[at] = static_cast<char>(bytes[at] ^ (1 << random() % 8));
          break;
        case 1:
          bytes[at] = static_cast<char>(random());
          break;
        case 2:
          bytes.erase(at, random() % 4);
          break;
        default:
          bytes.replace(at, random() % 3, words[random() % words.size()]);
      }
    }
    // Half of the changed files get a correct header length, so that they pass the first check.
    if (round % 4 < 2) {
      const std::size_t length = bytes.find_last_of('}', header + 64) + 1 - 8;
      for (int i = 0; i < 8; ++i) bytes[i] = static_cast<char>(length >> (8 * i) & 0xFF);
    }
    write_file(scratch.path() / "x", bytes);
    CAPTURE(round);
    opened += opens(scratch.path() / "x");
  }
  CHECK(opened > 0);
  CHECK(opened < 2000);
}

}  // namespace formats_safetensors_attacks_test
