// Reads what a person types: one line with editing and history where the terminal can, several between """ marks.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tern::cli {

class LineReader {
 public:
  enum class End : uint8_t { kLine, kEof, kInterrupted };
  struct Line {
    End end = End::kLine;
    std::string text;
  };
  /// Shows `prompt` and reads a line. Keys: arrows, Home/End or Ctrl-A/Ctrl-E, Backspace, Delete, Ctrl-W, Ctrl-U,
  /// Ctrl-K, up and down through history; pasted line breaks stay part of the line. Ctrl-C: kInterrupted; Ctrl-D on an
  /// empty line: kEof.
  Line read(const std::string& prompt);
  /// A line, or everything between `"""` and `"""` when it begins with that.
  Line read_message();

 private:
  Line edit(const std::string& prompt);
  std::vector<std::string> history_;
};

}  // namespace tern::cli
