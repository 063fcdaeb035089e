// json.dumps, as the tojson filter of chat templates needs it: Python's separators, float spelling and key rules.
#include <algorithm>
#include <cmath>

#include "text/jinja_builtins.h"
#include "text/jinja_text.h"

namespace tern::text::jinja {
namespace {

class JsonWriter {
 public:
  JsonWriter(Heap& heap, const JsonStyle& style) : heap_(heap), style_(style) {}

  std::string run(const Value& value) {
    write(value, 0);
    return std::move(out_);
  }

 private:
  void write(const Value& value, int depth) {
    heap_.work(1);
    heap_.reserve(out_.size());
    if (depth > kMaxNesting) raise("tojson: a value is nested more than {} levels deep", kMaxNesting);
    if (const Text* text = value.text()) {
      write_text(*text);
    } else if (const List* list = value.list(); list && (list->is_tuple() || list->kind == List::Kind::kList)) {
      write_items(list->items.size(), "[]", depth, [&](std::size_t i) { write(list->items[i], depth + 1); });
    } else if (const Dict* dict = value.dict(); dict && !dict->is_namespace) {
      write_dict(*dict, depth);
    } else if (value.is<None>()) {
      out_ += "null";
    } else if (const bool* b = value.get<bool>()) {
      out_ += *b ? "true" : "false";
    } else if (const double* d = value.get<double>()) {
      out_ += number(*d);
    } else if (value.is<Int>()) {
      out_ += to_repr(heap_, value);
    } else if (const Undefined* u = value.get<Undefined>()) {
      raise("tojson: {}", *u->what);
    } else {
      raise("tojson: a value of type '{}' has no JSON", type_name(value));
    }
  }

  static std::string number(double d) {
    if (std::isnan(d)) return "NaN";
    if (std::isinf(d)) return d < 0 ? "-Infinity" : "Infinity";
    return float_repr(d);
  }

  template <typename WriteItem>
  void write_items(std::size_t count, std::string_view brackets, int depth, WriteItem write_item) {
    out_ += brackets[0];
    for (std::size_t i = 0; i < count; ++i) {
      if (i > 0) out_ += style_.item_separator;
      break_line(depth + 1);
      write_item(i);
    }
    if (count > 0) break_line(depth);
    out_ += brackets[1];
  }

  void break_line(int depth) {
    if (!style_.indented) return;
    out_ += '\n';
    heap_.reserve(out_.size() + static_cast<std::size_t>(depth) * style_.indent.size());
    for (int i = 0; i < depth; ++i) out_ += style_.indent;
  }

  void write_dict(const Dict& dict, int depth) {
    std::vector<const std::pair<Value, Value>*> items;
    for (const auto& item : dict.items) items.push_back(&item);
    if (style_.sort_keys) {
      std::stable_sort(items.begin(), items.end(),
                       [&](auto* a, auto* b) { return compare(heap_, a->first, b->first) == -1; });
    }
    write_items(items.size(), "{}", depth, [&](std::size_t i) {
      write_key(items[i]->first);
      out_ += style_.key_separator;
      write(items[i]->second, depth + 1);
    });
  }

  // Keys that are no strings are written as the JSON of their value, in quotes.
  void write_key(const Value& key) {
    if (const Text* text = key.text()) {
      write_text(*text);
    } else if (key.is<None>() || key.is<bool>() || key.is<Int>() || key.is<double>()) {
      out_ += '"';
      write(key, 0);
      out_ += '"';
    } else {
      raise("tojson: a value of type '{}' cannot be a key", type_name(key));
    }
  }

  void write_text(const Text& text) {
    heap_.touch(text.bytes.size());
    out_ += '"';
    for (std::size_t pos = 0; pos < text.bytes.size();) {
      const std::size_t start = pos;
      const char32_t c = next_char(text.bytes, pos);
      switch (c) {
        case '"':
          out_ += "\\\"";
          break;
        case '\\':
          out_ += "\\\\";
          break;
        case '\n':
          out_ += "\\n";
          break;
        case '\r':
          out_ += "\\r";
          break;
        case '\t':
          out_ += "\\t";
          break;
        case '\f':
          out_ += "\\f";
          break;
        case '\b':
          out_ += "\\b";
          break;
        default:
          if (c < 0x20 || (style_.ascii && c > 0x7E)) {
            write_escape(c);
          } else {
            out_.append(text.bytes, start, pos - start);
          }
      }
    }
    out_ += '"';
  }

  void write_escape(char32_t c) {
    const auto n = static_cast<unsigned>(c);
    if (n < 0x10000) {
      out_ += fmt::format("\\u{:04x}", n);
    } else {
      out_ += fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + ((n - 0x10000) >> 10), 0xDC00 + ((n - 0x10000) & 0x3FF));
    }
  }

  Heap& heap_;
  const JsonStyle& style_;
  std::string out_;
};

}  // namespace

std::string to_json(Heap& heap, const Value& value, const JsonStyle& style) {
  return JsonWriter(heap, style).run(value);
}

}  // namespace tern::text::jinja
