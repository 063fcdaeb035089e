#include "cli/line_reader.h"

#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>
#include <utf8proc.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>

namespace tern::cli {
namespace {

constexpr std::string_view kPasteBegin = "\x1b[200~", kPasteEnd = "\x1b[201~";
constexpr std::string_view kQuotes = "\"\"\"";

constexpr char control(char letter) {
  return static_cast<char>(letter - 'A' + 1);
}

void write_terminal(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

/// The terminal hands over every key at once, and pastes in brackets, as long as this lives.
class RawTerminal {
 public:
  RawTerminal() {
    ok_ = tcgetattr(STDIN_FILENO, &saved_) == 0;
    if (!ok_) return;
    termios raw = saved_;
    raw.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO | ISIG | IEXTEN);
    raw.c_iflag &= ~static_cast<tcflag_t>(ICRNL | IXON);
    raw.c_cc[VMIN] = 1;
    raw.c_cc[VTIME] = 0;
    ok_ = tcsetattr(STDIN_FILENO, TCSADRAIN, &raw) == 0;
    if (ok_) write_terminal("\x1b[?2004h");
  }
  ~RawTerminal() {
    if (!ok_) return;
    write_terminal("\x1b[?2004l");
    tcsetattr(STDIN_FILENO, TCSADRAIN, &saved_);
  }
  RawTerminal(const RawTerminal&) = delete;
  RawTerminal& operator=(const RawTerminal&) = delete;
  bool ok() const { return ok_; }

 private:
  termios saved_{};
  bool ok_ = false;
};

/// One byte, or -1 at the end of input.
int read_byte() {
  unsigned char byte = 0;
  return read(STDIN_FILENO, &byte, 1) == 1 ? byte : -1;
}

/// The rest of an escape sequence: "[A", "[3~", "OH" ...
std::string read_escape() {
  std::string keys;
  for (int byte = read_byte(); byte >= 0; byte = read_byte()) {
    keys += static_cast<char>(byte);
    if (keys == "[" || keys == "O") continue;
    if (keys[0] != '[' || (byte >= '@' && byte <= '~')) break;
  }
  return keys;
}

std::string read_paste() {
  std::string text;
  while (!text.ends_with(kPasteEnd)) {
    const int byte = read_byte();
    if (byte < 0) return text;
    text += static_cast<char>(byte == '\r' ? '\n' : byte);
  }
  text.resize(text.size() - kPasteEnd.size());
  return text;
}

bool continues_character(char c) {
  return (static_cast<unsigned char>(c) & 0xC0) == 0x80;
}

/// Columns of a terminal that `text` takes; what the editor shows for a line break is one.
int width_of(std::string_view text) {
  int width = 0;
  for (size_t i = 0; i < text.size();) {
    utf8proc_int32_t code_point = 0;
    const auto n = utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data() + i),
                                    static_cast<utf8proc_ssize_t>(text.size() - i), &code_point);
    width += n > 0 ? (code_point == '\n' ? 1 : utf8proc_charwidth(code_point)) : 1;
    i += n > 0 ? static_cast<size_t>(n) : 1;
  }
  return width;
}

int terminal_columns() {
  winsize size{};
  return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

/// The line being typed and the place in it.
class Editor {
 public:
  explicit Editor(const std::string& prompt) : prompt_(prompt) {}
  const std::string& text() const { return text_; }
  void set(std::string text) {
    text_ = std::move(text);
    cursor_ = text_.size();
  }
  void insert(std::string_view more) {
    text_.insert(cursor_, more);
    cursor_ += more.size();
  }
  void left() { cursor_ = before(cursor_); }
  void right() { cursor_ = after(cursor_); }
  void home() { cursor_ = 0; }
  void end() { cursor_ = text_.size(); }
  void backspace() { erase_to(before(cursor_)); }
  void erase() { text_.erase(cursor_, after(cursor_) - cursor_); }
  void erase_all_before() { erase_to(0); }
  void erase_all_after() { text_.resize(cursor_); }
  void erase_word() {
    size_t start = cursor_;
    while (start > 0 && text_[start - 1] == ' ') --start;
    while (start > 0 && text_[start - 1] != ' ') --start;
    erase_to(start);
  }

  /// Shows the part around the cursor that fits on one line.
  void draw() const {
    const int room = std::max(8, terminal_columns() - width_of(prompt_) - 1);
    size_t first = 0;
    while (width_of(std::string_view(text_).substr(first, cursor_ - first)) > room) first = after(first);
    size_t last = text_.size();
    while (last > cursor_ && width_of(std::string_view(text_).substr(first, last - first)) > room) last = before(last);
    std::string line = "\r" + prompt_;
    for (const char c : std::string_view(text_).substr(first, last - first)) c == '\n' ? line += "\u21B5" : line += c;
    line += "\x1b[K";
    if (const int back = width_of(std::string_view(text_).substr(cursor_, last - cursor_)); back > 0)
      line += "\x1b[" + std::to_string(back) + "D";
    write_terminal(line);
  }

 private:
  size_t before(size_t at) const {
    if (at > 0) --at;
    while (at > 0 && continues_character(text_[at])) --at;
    return at;
  }
  size_t after(size_t at) const {
    if (at < text_.size()) ++at;
    while (at < text_.size() && continues_character(text_[at])) ++at;
    return at;
  }
  void erase_to(size_t start) {
    text_.erase(start, cursor_ - start);
    cursor_ = start;
  }

  const std::string& prompt_;
  std::string text_;
  size_t cursor_ = 0;
};

/// A whole line where the terminal cannot be edited on.
LineReader::Line read_plain(const std::string& prompt) {
  write_terminal(prompt);
  LineReader::Line line;
  int byte = read_byte();
  if (byte < 0) line.end = LineReader::End::kEof;
  for (; byte >= 0 && byte != '\n'; byte = read_byte()) line.text += static_cast<char>(byte);
  return line;
}

}  // namespace

LineReader::Line LineReader::edit(const std::string& prompt) {
  const RawTerminal terminal;
  if (!terminal.ok()) return read_plain(prompt);
  Editor editor(prompt);
  size_t shown = history_.size();  // which entry is on the line; size(): the one being typed
  std::string typed;
  const auto show_history = [&](size_t entry) {
    if (shown == history_.size()) typed = editor.text();
    shown = entry;
    editor.set(entry == history_.size() ? typed : history_[entry]);
  };
  const auto escape = [&](const std::string& keys) {
    if ("\x1b" + keys == kPasteBegin) editor.insert(read_paste());
    if (keys == "[A" && shown > 0) show_history(shown - 1);
    if (keys == "[B" && shown < history_.size()) show_history(shown + 1);
    if (keys == "[C") editor.right();
    if (keys == "[D") editor.left();
    if (keys == "[H" || keys == "OH" || keys == "[1~") editor.home();
    if (keys == "[F" || keys == "OF" || keys == "[4~") editor.end();
    if (keys == "[3~") editor.erase();
  };
  while (true) {
    editor.draw();
    const int byte = read_byte();
    if (byte < 0 || (byte == control('D') && editor.text().empty())) return {End::kEof, ""};
    switch (static_cast<char>(byte)) {
      case '\r':
      case '\n':
        write_terminal("\n");
        return {End::kLine, editor.text()};
      case control('C'):
        write_terminal("^C\n");
        return {End::kInterrupted, ""};
      case control('D'):
        editor.erase();
        break;
      case control('A'):
        editor.home();
        break;
      case control('E'):
        editor.end();
        break;
      case control('B'):
        editor.left();
        break;
      case control('F'):
        editor.right();
        break;
      case control('K'):
        editor.erase_all_after();
        break;
      case control('U'):
        editor.erase_all_before();
        break;
      case control('W'):
        editor.erase_word();
        break;
      case control('H'):
      case '\x7f':
        editor.backspace();
        break;
      case '\x1b':
        escape(read_escape());
        break;
      default:
        if (byte >= ' ' || byte == '\t') editor.insert(std::string(1, static_cast<char>(byte)));
    }
  }
}

LineReader::Line LineReader::read(const std::string& prompt) {
  const char* terminal = std::getenv("TERM");
  const bool dumb = terminal == nullptr || std::strcmp(terminal, "dumb") == 0;
  Line line = dumb ? read_plain(prompt) : edit(prompt);
  if (line.end == End::kLine && !line.text.empty() && (history_.empty() || history_.back() != line.text))
    history_.push_back(line.text);
  return line;
}

LineReader::Line LineReader::read_message() {
  Line line = read(">>> ");
  if (line.end != End::kLine || !line.text.starts_with(kQuotes)) return line;
  std::string text = line.text.substr(kQuotes.size());
  while (!text.ends_with(kQuotes)) {
    line = read("... ");
    if (line.end != End::kLine) return line;
    text += (text.empty() ? "" : "\n") + line.text;
  }
  text.resize(text.size() - kQuotes.size());
  return {End::kLine, text};
}

}  // namespace tern::cli
