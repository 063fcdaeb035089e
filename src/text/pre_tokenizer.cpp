#include "text/pre_tokenizer.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <string>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "base/error.h"

namespace tern::text {
namespace {

// The patterns are those of the models' own tokenizer.json, except that (?i:...) is spelled out: under Unicode case
// folding it would also take the long s of "'ſ". Which names share a pattern and which of them default to a BOS:
// llama.cpp's src/llama-vocab.cpp.
#define CONTRACTION "'(?:[sStTmMdD]|[rR][eE]|[vV][eE]|[lL][lL])"
#define WHITESPACE "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define GPT2 "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"
// A word as capitals then small letters (any number of the one, at least one of the other); marks and caseless letters
// are both.
#define CAPITALS "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define SMALL "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define CASED_WORD(suffix) \
  "[^\\r\\n\\p{L}\\p{N}]?" CAPITALS "*" SMALL "+" suffix "|[^\\r\\n\\p{L}\\p{N}]?" CAPITALS "+" SMALL "*" suffix

constexpr std::string_view kGpt2[] = {GPT2};
constexpr std::string_view kDigitsThenGpt2[] = {"\\p{N}", GPT2};
constexpr std::string_view kDefault[] = {"[\\p{P}$+<=>^~|]+", GPT2, "\\p{N}+", "[0-9][0-9][0-9]"};
constexpr std::string_view kLlama3[] = {
    CONTRACTION "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|" WHITESPACE};
constexpr std::string_view kQwen2[] = {
    CONTRACTION "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|" WHITESPACE};
constexpr std::string_view kQwen35[] = {
    CONTRACTION "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|" WHITESPACE};
constexpr std::string_view kGpt4o[] = {
    CASED_WORD("(?:" CONTRACTION ")?") "|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|" WHITESPACE};
constexpr std::string_view kTekken[] = {CASED_WORD("") "|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|" WHITESPACE};

// clang-format off
constexpr std::string_view kDeepseekLlm[] = {
    "[\\r\\n]",
    // Upper, lower and title case letters as of Unicode 11, without the mathematical alphabets.
    "\\s?[A-Za-z\\x{b5}\\x{c0}-\\x{d6}\\x{d8}-\\x{f6}\\x{f8}-\\x{1ba}\\x{1bc}-\\x{1bf}\\x{1c4}-\\x{293}\\x{295}-\\x{2af}"
    "\\x{370}-\\x{373}\\x{376}\\x{377}\\x{37b}-\\x{37d}\\x{37f}\\x{386}\\x{388}-\\x{38a}\\x{38c}\\x{38e}-\\x{3a1}"
    "\\x{3a3}-\\x{3f5}\\x{3f7}-\\x{481}\\x{48a}-\\x{52f}\\x{531}-\\x{556}\\x{10a0}-\\x{10c5}\\x{13a0}-\\x{13f5}"
    "\\x{13f8}-\\x{13fd}\\x{1c90}-\\x{1cba}\\x{1cbd}-\\x{1cbf}\\x{1d00}-\\x{1d2b}\\x{1d6b}-\\x{1d77}\\x{1d79}-\\x{1d9a}"
    "\\x{1e00}-\\x{1f15}\\x{1f18}-\\x{1f1d}\\x{1f20}-\\x{1f45}\\x{1f48}-\\x{1f4d}\\x{1f50}-\\x{1f57}\\x{1f59}\\x{1f5b}"
    "\\x{1f5d}\\x{1f5f}-\\x{1f7d}\\x{1f80}-\\x{1fb4}\\x{1fb6}-\\x{1fbc}\\x{1fbe}\\x{1fc2}-\\x{1fc4}\\x{1fc6}-\\x{1fcc}"
    "\\x{1fd0}-\\x{1fd3}\\x{1fd6}-\\x{1fdb}\\x{1fe0}-\\x{1fec}\\x{1ff2}-\\x{1ff4}\\x{1ff6}-\\x{1ffc}\\x{2102}\\x{2107}"
    "\\x{210a}-\\x{2113}\\x{2115}\\x{2119}-\\x{211d}\\x{2124}\\x{2126}\\x{2128}\\x{212a}-\\x{212d}\\x{212f}-\\x{2134}"
    "\\x{2139}\\x{213c}-\\x{213f}\\x{2145}-\\x{2149}\\x{214e}\\x{2183}\\x{2184}\\x{2c00}-\\x{2c7b}\\x{2c7e}-\\x{2ce4}"
    "\\x{2ceb}-\\x{2cee}\\x{2cf2}\\x{2cf3}\\x{a640}-\\x{a66d}\\x{a680}-\\x{a69b}\\x{a722}-\\x{a76f}\\x{a771}-\\x{a787}"
    "\\x{a78b}-\\x{a78e}\\x{ab70}-\\x{abbf}\\x{fb00}-\\x{fb06}\\x{fb13}-\\x{fb17}\\x{ff21}-\\x{ff3a}\\x{ff41}-\\x{ff5a}"
    "\\x{10400}-\\x{1044f}\\x{104b0}-\\x{104d3}\\x{104d8}-\\x{104fb}\\x{10c80}-\\x{10cb2}\\x{10cc0}-\\x{10cf2}"
    "\\x{118a0}-\\x{118df}\\x{1e900}-\\x{1e943}]+",
    "\\s?[!-/:-~\\x{ff01}-\\x{ff0f}\\x{ff1a}-\\x{ff5e}\\x{2018}-\\x{201f}\\x{3000}-\\x{3002}]+",
    // The look-behind changes no match, but saves a scan from every blank of a long run.
    "(?<!\\s)\\s+$",
    "[\\x{4e00}-\\x{9fa5}\\x{800}-\\x{4e00}\\x{ac00}-\\x{d7ff}]+",
    "\\p{N}+"};
constexpr std::string_view kDeepseekCoder[] = {
    "[\\r\\n]", "\\s?\\p{L}+", "\\s?\\p{P}+", "[\\x{4e00}-\\x{9fa5}\\x{800}-\\x{4e00}\\x{ac00}-\\x{d7ff}]+", "\\p{N}"};
constexpr std::string_view kDeepseekV3[] = {
    "\\p{N}{1,3}",
    "[\\x{4e00}-\\x{9fa5}\\x{3040}-\\x{309f}\\x{30a0}-\\x{30ff}]+",
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+|"
    " ?[\\p{P}\\p{S}]+[\\r\\n]*|" WHITESPACE};

constexpr std::string_view kGpt2Names[] = {
    "gpt2", "gpt-2", "phi-2", "gigachat", "a.x-4.0", "mellum", "exaone4", "mpt", "olmo", "jais", "trillion",
    "granite-docling", "jina-es", "jina-de", "jina-v2-es", "jina-v2-de", "modern-bert"};
constexpr std::string_view kSmollmNames[] = {
    "smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b", "mellum2"};
constexpr std::string_view kDefaultNames[] = {"default"};
constexpr std::string_view kLlama3Names[] = {
    "llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2", "jina-v5-nano"};
constexpr std::string_view kLlama3MergedNames[] = {"smaug-bpe", "dbrx", "chatglm-bpe", "glm4"};
constexpr std::string_view kQwen2Names[] = {"qwen2", "deepseek-r1-qwen", "megrez"};
constexpr std::string_view kQwen2PlainNames[] = {"stablelm2", "hunyuan", "solar-open", "grok-2", "kormo", "f2llmv2"};
constexpr std::string_view kQwen35Names[] = {"qwen35"};
constexpr std::string_view kGpt4oNames[] = {"gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2"};
constexpr std::string_view kTekkenNames[] = {"tekken"};
constexpr std::string_view kDeepseekLlmNames[] = {"deepseek-llm"};
constexpr std::string_view kDeepseekCoderNames[] = {"deepseek-coder"};
constexpr std::string_view kDeepseekV3Names[] = {"deepseek-v3", "hunyuan-dense", "joyai-llm", "hy_v4"};
// clang-format on

constexpr PreTokenizerInfo kTable[] = {
    {.names = kGpt2Names, .patterns = kGpt2},
    {.names = kSmollmNames, .patterns = kDigitsThenGpt2},
    {.names = kDefaultNames, .patterns = kDefault},
    {.names = kLlama3Names, .patterns = kLlama3, .ignore_merges = true, .add_bos = true},
    {.names = kLlama3MergedNames, .patterns = kLlama3},
    // Qwen's tokenizer.json normalises to form C; llama.cpp does not.
    {.names = kQwen2Names, .patterns = kQwen2, .nfc = true},
    {.names = kQwen2PlainNames, .patterns = kQwen2},
    {.names = kQwen35Names, .patterns = kQwen35, .nfc = true},
    {.names = kGpt4oNames, .patterns = kGpt4o, .ignore_merges = true},
    {.names = kTekkenNames, .patterns = kTekken, .ignore_merges = true, .add_bos = true},
    {.names = kDeepseekLlmNames, .patterns = kDeepseekLlm},
    {.names = kDeepseekCoderNames, .patterns = kDeepseekCoder},
    {.names = kDeepseekV3Names, .patterns = kDeepseekV3},
};

const PreTokenizerInfo& find_info(std::string_view name) {
  std::vector<std::string_view> known;
  for (const PreTokenizerInfo& info : kTable) {
    if (std::find(info.names.begin(), info.names.end(), name) != info.names.end()) return info;
    known.insert(known.end(), info.names.begin(), info.names.end());
  }
  fail(ErrorCode::kUnsupported, "tokenizer.ggml.pre is '{}', which this build does not know; known: {}", name,
       fmt::join(known, ", "));
}

// PCRE2's own \s follows Perl (U+180E is in it); the tokenizers mean the White_Space property.
std::string with_unicode_space(std::string_view pattern) {
  std::string out;
  for (size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] != '\\') {
      out += pattern[i];
      continue;
    }
    const char escaped = pattern[++i];
    if (escaped == 's') {
      out += "\\p{White_Space}";
    } else if (escaped == 'S') {
      out += "\\P{White_Space}";
    } else {
      out += {'\\', escaped};
    }
  }
  return out;
}

}  // namespace

/// A compiled pattern; immutable, so shared by threads.
class PreTokenizer::Pattern {
 public:
  explicit Pattern(std::string_view source) {
    const std::string pattern = with_unicode_space(source);
    int error = 0;
    PCRE2_SIZE offset = 0;
    code_.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                              PCRE2_UTF | PCRE2_UCP | PCRE2_DOLLAR_ENDONLY, &error, &offset, nullptr));
    CHECK(code_ != nullptr, "error {} at {} of {}", error, offset, pattern);
    pcre2_jit_compile(code_.get(), PCRE2_JIT_COMPLETE);  // where there is no JIT the interpreter gives the same matches
  }

  void split(std::string_view text, std::vector<std::string_view>& pieces) const {
    const std::unique_ptr<pcre2_match_data, decltype(&pcre2_match_data_free)> match(pcre2_match_data_create(1, nullptr),
                                                                                    pcre2_match_data_free);
    if (!match) throw std::bad_alloc();
    const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
    size_t done = 0;
    while (done < text.size()) {
      const int rc = pcre2_match(code_.get(), subject, text.size(), done, PCRE2_NO_UTF_CHECK | PCRE2_NOTEMPTY,
                                 match.get(), nullptr);
      if (rc == PCRE2_ERROR_NOMATCH) break;
      if (rc < 0) {
        fail(ErrorCode::kInvalidArgument, "a text of {} bytes is too intricate for the pre-tokenizer (PCRE2 error {})",
             text.size(), rc);
      }
      const PCRE2_SIZE* range = pcre2_get_ovector_pointer(match.get());
      if (range[0] > done) pieces.push_back(text.substr(done, range[0] - done));
      pieces.push_back(text.substr(range[0], range[1] - range[0]));
      done = range[1];
    }
    if (done < text.size()) pieces.push_back(text.substr(done));
  }

 private:
  struct Free {
    void operator()(pcre2_code* code) const { pcre2_code_free(code); }
  };
  std::unique_ptr<pcre2_code, Free> code_;
};

PreTokenizer::PreTokenizer(std::string_view name) : info_(&find_info(name)) {
  for (const std::string_view pattern : info_->patterns) patterns_.emplace_back(pattern);
}
PreTokenizer::~PreTokenizer() = default;
PreTokenizer::PreTokenizer(PreTokenizer&&) noexcept = default;
PreTokenizer& PreTokenizer::operator=(PreTokenizer&&) noexcept = default;

void PreTokenizer::split(std::string_view text, std::vector<std::string_view>& pieces) const {
  pieces.clear();
  if (!text.empty()) pieces.push_back(text);
  std::vector<std::string_view> finer;
  for (const Pattern& pattern : patterns_) {
    finer.clear();
    for (const std::string_view piece : pieces) pattern.split(piece, finer);
    pieces.swap(finer);
  }
}

std::span<const PreTokenizerInfo> pre_tokenizers() noexcept {
  return kTable;
}

}  // namespace tern::text
