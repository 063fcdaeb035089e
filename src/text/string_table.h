// Many short strings by index, one behind the other: a vocabulary has a hundred thousand, and a std::string each with a
// node of a map takes seven times their bytes.
#pragma once
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace tern::text {

class StringTable {
 public:
  void add(std::string_view s) {
    bytes_ += s;
    ends_.push_back(bytes_.size());
  }
  size_t size() const noexcept { return ends_.size(); }
  std::string_view operator[](size_t i) const noexcept {
    const size_t begin = i == 0 ? 0 : ends_[i - 1];
    return std::string_view(bytes_).substr(begin, ends_[i] - begin);
  }

 private:
  std::string bytes_;
  std::vector<size_t> ends_;
};

}  // namespace tern::text
