#include "text/reply_json.h"

#include <nlohmann/json.hpp>

namespace tern::text {
namespace {

bool is_blank(char c) {
  return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

std::string trimmed(std::string_view text) {
  while (!text.empty() && is_blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_blank(text.back())) text.remove_suffix(1);
  return std::string(text);
}

/// The unit of UTF-16 that "\uXXXX" names, or -1.
int32_t escaped_unit(std::string_view escape) {
  int32_t out = 0;
  for (const char c : escape.substr(2)) {
    const int32_t digit = c >= '0' && c <= '9'   ? c - '0'
                          : c >= 'a' && c <= 'f' ? c - 'a' + 10
                          : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                                 : -1;
    if (digit < 0) return -1;
    out = out * 16 + digit;
  }
  return out;
}

}  // namespace

size_t LenientJson::read(std::string_view text) {
  size_t at = 0;
  while (at < text.size() && !done_) {
    const char c = text[at];
    const bool inside = state_ == State::kString || state_ == State::kEscape;
    if (!inside && !stop_.empty() && c == stop_[0] && !out_.empty()) {
      const std::string_view rest = text.substr(at, stop_.size());
      if (rest == stop_) {
        close();
        return at;
      }
      if (rest.size() < stop_.size() && std::string_view(stop_).starts_with(rest)) return at;
    }
    if (step(c)) ++at;
  }
  return at;
}

void LenientJson::close() {
  if (done_) return;
  if (state_ == State::kEscape) {
    out_ += "\\\\";
    for (const char c : held_.substr(1)) put_in_string(c);
    held_.clear();
    state_ = State::kString;
  }
  if (state_ == State::kString || state_ == State::kQuoted) end_string();
  if (state_ == State::kBare) end_bare();
  if (state_ == State::kBareKey) {
    if (!trimmed(held_).empty()) {
      begin_string('"', true);
      put_word(trimmed(held_));
      held_.clear();
      end_string();
    } else {
      state_ = State::kKey;
    }
  }
  if (state_ == State::kColon) {
    out_ += ":";
    state_ = State::kValue;
  }
  if (state_ == State::kValue && !brackets_.empty() && brackets_.back() == '{') {
    begin_value();
    out_ += "null";
    end_value();
  }
  comma_ = false;
  while (!brackets_.empty()) close_bracket(brackets_.back() == '{' ? '}' : ']');
  done_ = true;
}

/// Whether `c` is used up; if not, the state has changed and it comes again.
bool LenientJson::step(char c) {
  switch (state_) {
    case State::kKey:
      return step_key(c);
    case State::kBareKey:
      if (c == ':' || c == '}') {
        const std::string word = trimmed(held_);
        held_.clear();
        begin_string('"', true);
        put_word(word);
        end_string();
        return false;
      }
      held_ += c;
      return true;
    case State::kColon:
      if (is_blank(c)) {
        out_ += c;
        return true;
      }
      out_ += ':';
      state_ = State::kValue;
      return c == ':';
    case State::kValue:
      return step_value(c);
    case State::kBare:
      if (c == ',' || c == '}' || c == ']' || c == '\n') {
        end_bare();
        return false;
      }
      held_ += c;
      return true;
    case State::kString:
      return step_string(c);
    case State::kEscape:
      return step_escape(c);
    case State::kQuoted:
      return step_quoted(c);
    case State::kAfterValue:
      return step_after_value(c);
  }
  return true;
}

bool LenientJson::step_key(char c) {
  if (is_blank(c)) {
    (comma_ ? held_ : out_) += c;
  } else if (c == '}' || c == ']') {
    close_bracket(c);
  } else if (c == '"' || c == '\'') {
    begin_string(c, true);
  } else if (c != ',') {
    state_ = State::kBareKey;
    if (comma_) {
      out_ += ',' + held_;
      comma_ = false;
      held_.clear();
    }
    return false;
  }
  return true;
}

bool LenientJson::step_value(char c) {
  if (is_blank(c)) {
    (comma_ ? held_ : out_) += c;
    return true;
  }
  const bool in_list = !brackets_.empty() && brackets_.back() == '[';
  if (c == '}' || c == ']') {
    if (!in_list) {
      begin_value();
      out_ += "null";
      end_value();
      return false;
    }
    close_bracket(c);
  } else if (c == ',') {
    if (in_list) return true;
    begin_value();
    out_ += "null";
    end_value();
    return false;
  } else if (c == '{' || c == '[') {
    begin_value();
    open(c);
  } else if (c == '"' || c == '\'') {
    begin_value();
    begin_string(c, false);
  } else {
    begin_value();
    state_ = State::kBare;
    return false;
  }
  return true;
}

bool LenientJson::step_string(char c) {
  if (c == '\\') {
    held_ = c;
    state_ = State::kEscape;
  } else if (c == quote_) {
    state_ = State::kQuoted;
  } else {
    put_in_string(c);
  }
  return true;
}

/// held_: a backslash and what followed.
bool LenientJson::step_escape(char c) {
  constexpr std::string_view kKnown = "\"\\/bfnrt";
  const auto finish = [&](std::string_view text) {
    out_ += text;
    held_.clear();
    state_ = State::kString;
  };
  // The second half of a pair is still to come.
  if (held_.size() == 6 || held_.size() == 7) {
    const bool goes_on = held_.size() == 6 ? c == '\\' : c == 'u';
    if (goes_on) {
      held_ += c;
      return true;
    }
    const std::string rest = held_.substr(6);
    finish("\\ufffd");
    if (!rest.empty()) {
      held_ = rest;
      state_ = State::kEscape;
    }
    return false;
  }
  if (held_.size() == 1) {
    if (c == 'u') {
      held_ += c;
    } else if (kKnown.find(c) != kKnown.npos) {
      finish(std::string{'\\', c});
    } else if (c == '\'') {
      finish("'");
    } else {
      finish("\\\\");
      return false;
    }
    return true;
  }
  const bool hex = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
  if (!hex) {
    const std::string digits = held_.size() > 7 ? held_.substr(7) : held_.substr(1);
    finish(held_.size() > 7 ? "\\ufffd\\\\" : "\\\\");
    out_ += digits;
    return false;
  }
  held_ += c;
  if (held_.size() == 6) {
    const int32_t unit = escaped_unit(held_);
    if (unit >= 0xDC00 && unit <= 0xDFFF) {
      finish("\\ufffd");
    } else if (unit < 0xD800 || unit > 0xDFFF) {
      finish(std::string(held_));
    }
  } else if (held_.size() == 12) {
    const int32_t unit = escaped_unit(held_.substr(6));
    const std::string pair = held_;
    finish(unit >= 0xDC00 && unit <= 0xDFFF   ? pair
           : unit >= 0xD800 && unit <= 0xDBFF ? "\\ufffd\\ufffd"
                                              : "\\ufffd" + pair.substr(6));
  }
  return true;
}

/// Behind a quote that may end a string; held_: blanks behind it.
bool LenientJson::step_quoted(char c) {
  if (is_blank(c)) {
    held_ += c;
    return true;
  }
  const bool list = !brackets_.empty() && brackets_.back() == '[';
  if (in_key_ ? c == ':' : c == ',' || c == (list ? ']' : '}')) {
    end_string();
    return false;
  }
  put_in_string(quote_);
  const std::string blanks = std::move(held_);
  held_.clear();
  for (const char blank : blanks) put_in_string(blank);
  state_ = State::kString;
  return false;
}

bool LenientJson::step_after_value(char c) {
  if (is_blank(c)) {
    out_ += c;
  } else if (c == ',') {
    comma_ = true;
    state_ = brackets_.back() == '{' ? State::kKey : State::kValue;
  } else if (c == '}' || c == ']') {
    close_bracket(c);
  } else if (c == '"' || c == '{' || c == '[') {
    comma_ = true;
    state_ = brackets_.back() == '{' ? State::kKey : State::kValue;
    return false;
  }
  return true;
}

void LenientJson::begin_string(char quote, bool key) {
  if (comma_) {
    out_ += ',' + held_;
    comma_ = false;
    held_.clear();
  }
  quote_ = quote;
  in_key_ = key;
  key_begin_ = out_.size();
  out_ += '"';
  state_ = State::kString;
}

void LenientJson::end_string() {
  out_ += '"';
  if (in_key_) {
    if (brackets_.size() == 1) {
      const nlohmann::json key = nlohmann::json::parse(out_.substr(key_begin_), nullptr, false);
      members_.push_back({key.is_string() ? key.get<std::string>() : std::string{}, std::string::npos});
    }
    state_ = State::kColon;
  } else {
    end_value();
  }
  out_ += held_;
  held_.clear();
}

void LenientJson::begin_value() {
  if (comma_) {
    out_ += ',' + held_;
    comma_ = false;
    held_.clear();
  }
  if (brackets_.size() == 1 && brackets_[0] == '{' && !members_.empty()) members_.back().begin = out_.size();
}

void LenientJson::end_value() {
  if (brackets_.size() == 1 && brackets_[0] == '{' && !members_.empty()) members_.back().end = out_.size();
  state_ = State::kAfterValue;
}

void LenientJson::end_bare() {
  const std::string word = trimmed(held_);
  held_.clear();
  if (word == "True" || word == "False") {
    out_ += word == "True" ? "true" : "false";
  } else if (word == "None" || word.empty()) {
    out_ += "null";
  } else if (nlohmann::json::accept(word)) {
    out_ += word;
  } else {
    out_ += nlohmann::json(word).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  }
  end_value();
}

void LenientJson::open(char c) {
  out_ += c;
  brackets_ += c;
  state_ = c == '{' ? State::kKey : State::kValue;
}

/// Closes what `c` closes, and whatever is open inside; one that closes nothing is dropped.
void LenientJson::close_bracket(char c) {
  const char wanted = c == '}' ? '{' : '[';
  if (brackets_.find(wanted) == std::string::npos) return;
  comma_ = false;
  out_ += held_;
  held_.clear();
  while (true) {
    const char open = brackets_.back();
    out_ += open == '{' ? '}' : ']';
    brackets_.pop_back();
    end_value();
    if (open == wanted) break;
  }
  done_ = brackets_.empty();
}

/// Text that knows no escapes.
void LenientJson::put_word(std::string_view word) {
  for (const char c : word)
    if (c == '\\') {
      out_ += "\\\\";
    } else {
      put_in_string(c);
    }
}

void LenientJson::put_in_string(char c) {
  if (c == '"' || static_cast<unsigned char>(c) < 0x20) {
    const std::string quoted = nlohmann::json(std::string(1, c)).dump();
    out_.append(quoted, 1, quoted.size() - 2);
  } else {
    out_ += c;
  }
}

}  // namespace tern::text
