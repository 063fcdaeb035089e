// Inside the reply parser: JSON as models write it, made valid while it streams. What is valid passes byte by byte.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace tern::text {

/// One object. Mended: raw control characters, wrong escapes and unescaped quotes in strings, single quotes, bare
/// words, missing and superfluous commas, Python's literals, brackets that are missing or too many. A quote ends a
/// string only in front of what may follow a string, so `"say "hi""` keeps its inner quotes.
class LenientJson {
 public:
  /// Outside of strings `stop` ends the object early. May be empty.
  explicit LenientJson(std::string_view stop) : stop_(stop) {}

  /// The first byte ever read must be '{'. Returns how many bytes it took: all of them, those up to the object's end or
  /// the stop, or all but the beginning of a possible stop.
  size_t read(std::string_view text);
  /// The text ends here: closes what is open.
  void close();
  bool done() const noexcept { return done_; }

  /// Valid so far, and only appended to.
  const std::string& text() const noexcept { return out_; }
  /// The object's own members, each from where its value begins; the value of the last may still grow.
  struct Member {
    std::string key;
    size_t begin = 0, end = std::string::npos;  // in text()
  };
  const std::vector<Member>& members() const noexcept { return members_; }

 private:
  enum class State { kKey, kBareKey, kColon, kValue, kBare, kString, kEscape, kQuoted, kAfterValue };
  bool step(char c);
  bool step_key(char c);
  bool step_value(char c);
  bool step_string(char c);
  bool step_escape(char c);
  bool step_quoted(char c);
  bool step_after_value(char c);
  void begin_string(char quote, bool key);
  void end_string();
  void begin_value();
  void end_value();
  void end_bare();
  void open(char c);
  void close_bracket(char c);
  void put_word(std::string_view word);
  void put_in_string(char c);

  std::string stop_, out_, held_, brackets_;  // held_: blanks, bare words or an escape that wait for what follows
  std::vector<Member> members_;
  size_t key_begin_ = 0;
  State state_ = State::kValue;
  char quote_ = '"';
  bool in_key_ = false, comma_ = false, done_ = false;
};

}  // namespace tern::text
