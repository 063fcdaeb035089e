// A reading position in the bytes of one GGUF file; every read is checked against the bytes left.
#pragma once
#include <bit>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

#include "base/error.h"

namespace tern::gguf {

static_assert(std::endian::native == std::endian::little, "GGUF files are read in place as little endian");

class Cursor {
 public:
  Cursor(std::span<const std::byte> bytes, const std::string& file) : bytes_(bytes), file_(file) {}

  const std::string& file() const noexcept { return file_; }
  size_t position() const noexcept { return at_; }
  size_t left() const noexcept { return bytes_.size() - at_; }

  /// The next `n` bytes. kBadFile, saying in which part (`what`) the file ends, when there are fewer.
  const std::byte* take(size_t n, std::string_view what) {
    if (n > left())
      fail(ErrorCode::kBadFile,
           "'{}' is truncated: {} at byte {} needs {} bytes, but only {} are left of {}; download or convert it again",
           file_, what, at_, n, left(), bytes_.size());
    const std::byte* p = bytes_.data() + at_;
    at_ += n;
    return p;
  }

  template <typename T>
  T read(std::string_view what) {
    T value;
    std::memcpy(&value, take(sizeof value, what), sizeof value);
    return value;
  }

  /// A length-prefixed string, raw bytes, in place.
  std::string_view string(std::string_view what) {
    const size_t start = at_;
    const auto length = read<uint64_t>(what);
    if (length > left())
      fail(ErrorCode::kBadFile, "'{}': {} at byte {} claims {} bytes, but only {} are left in the file", file_, what,
           start, length, left());
    return {reinterpret_cast<const char*>(take(length, what)), length};
  }

  /// A number of things of at least `min_bytes` each, bounded by the bytes left so that it may be allocated.
  size_t bounded(uint64_t count, size_t min_bytes, std::string_view what) const {
    if (count > left() / min_bytes)
      fail(ErrorCode::kBadFile,
           "'{}': {} claims {} entries of at least {} bytes each, but only {} bytes are left in the file", file_, what,
           count, min_bytes, left());
    return count;
  }

 private:
  std::span<const std::byte> bytes_;
  const std::string& file_;
  size_t at_ = 0;
};

}  // namespace tern::gguf
