// Any bytes as a GGUF file: parse() either throws Error or gives tensors inside the file and metadata that encodes to
// the same bytes again after one round.
#include <cstdint>
#include <span>
#include <string>

#include "base/error.h"
#include "gguf/encode.h"
#include "gguf/file.h"

namespace {

using namespace tern;

/// Reads the ends of each tensor, so that AddressSanitizer sees a wrong extent.
unsigned touch_tensors(const gguf::Parsed& p, std::span<const std::byte> file) {
  unsigned sum = 0;
  for (const gguf::TensorInfo& t : p.tensors) {
    const uint64_t begin = p.data_offset + t.offset;
    CHECK(t.nbytes > 0 && begin + t.nbytes <= file.size(), "tensor '{}' passes the end", t.name);
    CHECK(t.offset % p.alignment == 0);
    CHECK(t.elements() > 0 && t.rows() > 0);
    sum += static_cast<unsigned>(file[begin]) + static_cast<unsigned>(file[begin + t.nbytes - 1]);
  }
  return sum;
}

/// Bools other than 0 and 1 and signalling NaNs change once; from then on writing and reading are inverse.
void check_round_trip(const gguf::Parsed& p) {
  constexpr uint32_t kUnpadded = 1;  // the file may ask for a padding of 2 GiB
  const std::string once = gguf::encode_header(p.version, kUnpadded, p.metadata, {});
  try {
    const gguf::Parsed again = gguf::parse(std::as_bytes(std::span(once)), "again");
    CHECK(gguf::encode_header(p.version, kUnpadded, again.metadata, {}) == once);
  } catch (const Error& e) {
    CHECK(false, "what was read is refused once written: {}", e.what());
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::span<const std::byte> file = std::as_bytes(std::span(data, size));
  try {
    const gguf::Parsed p = gguf::parse(file, "fuzz");
    [[maybe_unused]] static volatile unsigned sink;
    sink = touch_tensors(p, file);
    check_round_trip(p);
  } catch (const Error&) {
  }
  return 0;
}
