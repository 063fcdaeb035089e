// Many short strings by index, one behind the other: a vocabulary has a hundred thousand, and a std::string each with a
// node of a map takes seven times their bytes.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace tern::text {

class StringTable {
 public:
  void add(std::string_view s) {
    if (s.size() > UINT32_MAX - bytes_.size())
      fail(ErrorCode::kBadFile, "a vocabulary of more than {} bytes of text", UINT32_MAX);
    bytes_ += s;
    ends_.push_back(static_cast<uint32_t>(bytes_.size()));
  }
  size_t size() const noexcept { return ends_.size(); }
  std::string_view operator[](size_t i) const noexcept {
    const size_t begin = i == 0 ? 0 : ends_[i - 1];
    return std::string_view(bytes_).substr(begin, ends_[i] - begin);
  }

 private:
  std::string bytes_;
  std::vector<uint32_t> ends_;
};

}  // namespace tern::text
