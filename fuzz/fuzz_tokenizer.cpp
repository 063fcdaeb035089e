// Tokenizers on any bytes: a text through every pre-tokenizer and through SPM (nothing may be lost, no token out of
// range), and a vocabulary made of the bytes themselves (refused with an Error, or usable).
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "text/detokenizer.h"
#include "text/pre_tokenizer.h"
#include "text/tokenizer.h"
#include "text/unicode.h"

namespace {

using namespace tern;
using namespace tern::text;

/// Bytes as a stream of small choices; zeros after the end.
class Choices {
 public:
  explicit Choices(std::string_view bytes) : bytes_(bytes) {}
  uint8_t next() {
    if (bytes_.empty()) return 0;
    const auto b = static_cast<uint8_t>(bytes_[0]);
    bytes_.remove_prefix(1);
    return b;
  }
  std::string text(size_t length) {
    std::string out(bytes_.substr(0, length));
    bytes_.remove_prefix(out.size());
    return out;
  }
  std::string_view rest() const { return bytes_; }

 private:
  std::string_view bytes_;
};

gguf::Metadata byte_level(std::string_view pre) {
  std::vector<std::string> tokens;
  for (int b = 0; b < 256; ++b) append_utf8(tokens.emplace_back(), byte_to_code_point(static_cast<uint8_t>(b)));
  const std::vector<std::string> merges = {
      "a b", "ab c", "a a", "aa aa", "\u0120 a", "\u0120 \u0120", "\u0120\u0120 \u0120\u0120", "\u00C3 \u00A9"};
  for (std::string merge : merges) {
    merge.erase(merge.find(' '), 1);
    tokens.push_back(merge);
  }
  std::vector<int64_t> types(tokens.size(), 1);
  for (const char* control : {"<|im_start|>", "<|im_end|>", "<|"}) {
    tokens.push_back(control);
    types.push_back(3);
  }
  gguf::Metadata m;
  m.set_string("tokenizer.ggml.model", "gpt2");
  m.set_string("tokenizer.ggml.pre", std::string(pre));
  m.set_strings("tokenizer.ggml.tokens", tokens);
  m.set_i32s("tokenizer.ggml.token_type", types);
  m.set_strings("tokenizer.ggml.merges", merges);
  return m;
}

gguf::Metadata spm() {
  std::vector<std::string> tokens = {"<unk>", "\u2581", "a", "b", "ab", "\u2581a", "aa", "\u2581\u2581"};
  std::vector<double> scores = {0, -1, -2, -3, -4, -5, -6, -7};
  std::vector<int64_t> types = {2, 1, 1, 1, 1, 1, 1, 4};
  for (int b = 0; b < 256; ++b) {
    tokens.push_back(fmt::format("<0x{:02X}>", b));
    scores.push_back(0);
    types.push_back(6);
  }
  gguf::Metadata m;
  m.set_string("tokenizer.ggml.model", "llama");
  m.set_strings("tokenizer.ggml.tokens", tokens);
  m.set_f32s("tokenizer.ggml.scores", scores);
  m.set_i32s("tokenizer.ggml.token_type", types);
  m.set_bool("tokenizer.ggml.add_space_prefix", false);
  return m;
}

struct Known {
  Tokenizer tokenizer;
  bool reversible;  // decode gives the text back
};

const std::vector<Known>& known() {
  static const std::vector<Known> all = [] {
    std::vector<Known> out;
    for (const PreTokenizerInfo& info : pre_tokenizers()) {
      out.push_back({Tokenizer::from_metadata(byte_level(info.names[0])), !info.nfc});
    }
    out.push_back({Tokenizer::from_metadata(spm()), false});
    return out;
  }();
  return all;
}

void check_text(const Tokenizer& t, bool reversible, std::string_view text) {
  for (const bool parse : {false, true}) {
    const std::vector<int32_t> ids = t.encode(text, {.add_special = false, .parse_special = parse});
    StreamDecoder stream(t, /*special=*/true);
    std::string streamed;
    for (const int32_t id : ids) streamed += stream.push(id);
    streamed += stream.finish();
    CHECK(streamed == t.decode(ids, true));
    std::string storage;
    if (reversible) CHECK(streamed == valid_utf8(text, storage));
  }
}

void check_vocabulary(Choices c) {
  gguf::Metadata m;
  const bool bpe = c.next() % 2 == 0;
  std::vector<std::string> tokens;
  std::vector<int64_t> types;
  std::vector<double> scores;
  for (size_t n = c.next() % 64; n > 0; --n) {
    tokens.push_back(c.text(c.next() % 8));
    types.push_back(c.next() % 8);
    scores.push_back(static_cast<int8_t>(c.next()));
  }
  std::vector<std::string> merges;
  for (size_t n = tokens.empty() ? 0 : c.next() % 32; n > 0; --n) {
    merges.push_back(tokens[c.next() % tokens.size()] + " " + tokens[c.next() % tokens.size()]);
  }
  m.set_string("general.architecture", c.next() % 4 == 0 ? "bitnet" : "llama");
  m.set_string("tokenizer.ggml.model", bpe ? "gpt2" : "llama");
  const auto rows = pre_tokenizers();
  if (c.next() % 4 != 0) m.set_string("tokenizer.ggml.pre", std::string(rows[c.next() % rows.size()].names[0]));
  m.set_strings("tokenizer.ggml.tokens", std::move(tokens));
  if (c.next() % 4 != 0) m.set_i32s("tokenizer.ggml.token_type", std::move(types));
  if (c.next() % 8 != 0) m.set_f32s("tokenizer.ggml.scores", std::move(scores));
  if (c.next() % 8 != 0) m.set_strings("tokenizer.ggml.merges", std::move(merges));
  for (const char* key : {"bos", "eos", "eot", "eom", "unknown"}) {
    if (c.next() % 2 == 0) m.set_u32(fmt::format("tokenizer.ggml.{}_token_id", key), c.next() % 64);
  }
  try {
    const Tokenizer t = Tokenizer::from_metadata(m);
    for (const int32_t id : t.encode(c.rest(), {.add_special = true, .parse_special = true})) (void)t.piece(id, true);
  } catch (const Error&) {
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Choices c({reinterpret_cast<const char*>(data), size});
  const uint8_t which = c.next();
  if (which < 128) {
    const Known& k = known()[which % known().size()];
    check_text(k.tokenizer, k.reversible, c.rest());
  } else {
    check_vocabulary(c);
  }
  return 0;
}
