// Listings: aligned columns for people; the same rows as JSON for programs.
#pragma once
#include <string>
#include <vector>

namespace tern::cli {

class Table {
 public:
  /// A column whose title starts with '>' is aligned right.
  explicit Table(std::vector<std::string> titles);
  void add(std::vector<std::string> cells);  // as many as there are columns; made printable
  /// Lines with the columns padded to their widest cell, two blanks apart.
  std::string text() const;

 private:
  std::vector<std::string> titles_;
  std::vector<bool> right_;
  std::vector<std::vector<std::string>> rows_;
};

/// 1234567 -> "1,234,567".
std::string grouped(long long n);

}  // namespace tern::cli
