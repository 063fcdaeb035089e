#include "text/tokenizer.h"

#include <algorithm>
#include <variant>

#include "base/error.h"
#include "text/bpe.h"
#include "text/spm.h"
#include "text/tokenizer_special.h"
#include "text/tokenizer_vocab.h"
#include "text/unicode.h"

namespace tern::text {
namespace {

// Names of tokens that end an answer (llama.cpp's src/llama-vocab.cpp). The first of the first group that a vocabulary
// has is its end of turn when the file does not name one.
constexpr std::string_view kEndOfTurn[] = {
    "<|eot_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>",         "<|endoftext|>",      "<|end_of_text|>",
    "<EOT>",      "_<EOT>",     "[EOT]",   "<｜end▁of▁sentence｜>", "<end_of_utterance>",
};
constexpr std::string_view kEndOfAnswer[] = {
    "<|eom_id|>",
    "<|return|>",
    "<|call|>",
    "<|calls|>",
    "<|flush|>",
    "</s>",
    "[EOS]",
    "<eos>",
    "<turn|>",
    "<|tool_response>",
    "[e~[",
    // What follows code filled in between a prefix and a suffix.
    "<|fim_pad|>",
    "<fim-pad>",
    "<fim_pad>",
    "<|fim_repo|>",
    "<fim-repo>",
    "<|repo_name|>",
    "<|file_sep|>",
};

bool contains(std::span<const std::string_view> names, std::string_view text) {
  return std::find(names.begin(), names.end(), text) != names.end();
}

/// `tokenizer.ggml.pre`, or what a file without it means.
std::string_view pre_of(const gguf::Metadata& metadata) {
  if (const auto pre = metadata.get_string("tokenizer.ggml.pre")) return *pre;
  // Microsoft's converter writes no key, but the tokenizer of BitNet b1.58 2B4T is Llama 3's.
  const auto architecture = metadata.get_string("general.architecture");
  if (architecture && architecture->starts_with("bitnet")) return "llama-bpe";
  fail(ErrorCode::kBadFile,
       "the file has no tokenizer.ggml.pre, so it is not known how its vocabulary cuts words; convert the model again "
       "with a "
       "current converter");
}

/// Phi-3's added tokens swallow the blanks behind them. GGUF has no field for it, so llama.cpp goes by the model's
/// name.
bool is_phi3(const gguf::Metadata& metadata) {
  std::string name(metadata.get_string("general.name").value_or(""));
  std::transform(name.begin(), name.end(), name.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  return name.find("phi-3") != std::string::npos || name.find("phi3") != std::string::npos;
}

std::string replaced(std::string_view text, std::string_view from, std::string_view to) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const bool hit = text.substr(at).starts_with(from);
    out += hit ? to : text.substr(at, 1);
    at += hit ? from.size() : 1;
  }
  return out;
}

std::optional<uint8_t> byte_token_value(std::string_view text) {
  const auto digit = [](char c) { return c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1; };
  if (text.size() != 6 || !text.starts_with("<0x") || text[5] != '>') return std::nullopt;
  const int high = digit(text[3]), low = digit(text[4]);
  if (high < 0 || low < 0) return std::nullopt;
  return static_cast<uint8_t>(high * 16 + low);
}

}  // namespace

struct Tokenizer::Impl {
  explicit Impl(const gguf::Metadata& metadata) : vocabulary(metadata) {
    const std::string_view model = metadata.require_string("tokenizer.ggml.model");
    if (model == "gpt2") {
      const std::string_view pre = pre_of(metadata);
      encoder.emplace<ByteLevelBpe>(metadata, vocabulary, pre);
      add_bos = std::get<ByteLevelBpe>(encoder).pre_tokenizer().add_bos;
      description = fmt::format("gpt2/{}", pre);
    } else if (model == "llama") {
      const auto unknown = vocabulary.id_at(metadata, "tokenizer.ggml.unknown_token_id");
      encoder.emplace<Spm>(vocabulary, unknown);
      add_bos = true;
      space_prefix = metadata.get_bool("tokenizer.ggml.add_space_prefix").value_or(true);
      description = "llama";
    } else {
      fail(ErrorCode::kUnsupported,
           "tokenizer.ggml.model is '{}'; this build knows gpt2 (byte-level BPE) and llama (SentencePiece BPE)", model);
    }
    read_special(metadata);
    special.emplace(special_tokens(metadata));
    for (int32_t id = 0; id < vocabulary.size(); ++id) pieces.add(make_piece(id));
  }

  void read_special(const gguf::Metadata& metadata) {
    bos = vocabulary.id_at(metadata, "tokenizer.ggml.bos_token_id");
    eos = vocabulary.id_at(metadata, "tokenizer.ggml.eos_token_id");
    eot = vocabulary.id_at(metadata, "tokenizer.ggml.eot_token_id");
    const auto eom = vocabulary.id_at(metadata, "tokenizer.ggml.eom_token_id");
    add_bos = flag(metadata, "tokenizer.ggml.add_bos_token", add_bos, bos, "tokenizer.ggml.bos_token_id");
    add_eos = flag(metadata, "tokenizer.ggml.add_eos_token", false, eos, "tokenizer.ggml.eos_token_id");

    ends.assign(vocabulary.texts.size(), false);
    for (const auto names :
         {std::span<const std::string_view>(kEndOfTurn), std::span<const std::string_view>(kEndOfAnswer)}) {
      for (const std::string_view name : names) {
        const auto id = vocabulary.find(name);
        if (!id) continue;
        mark_end(*id);
        if (!eot && contains(kEndOfTurn, name)) eot = id;
        // Converters have typed such tokens as text; text must not be able to end a turn.
        vocabulary.types[static_cast<size_t>(*id)] = TokenType::kControl;
      }
    }
    for (const auto& id : {eos, eot, eom}) {
      if (id) mark_end(*id);
    }
    // In the harmony format <|end|> only ends a message: the answer ends with <|return|> or <|call|>.
    const auto end = vocabulary.find("<|end|>");
    if (end && end != eos && vocabulary.find("<|call|>") && vocabulary.find("<|return|>")) {
      ends[static_cast<size_t>(*end)] = false;
    }
  }

  bool is_bpe() const { return std::holds_alternative<ByteLevelBpe>(encoder); }

  /// What is encoded of a text: SPM has U+2581 for a blank, also in the names of its tokens.
  std::string escaped(std::string_view text) const {
    return is_bpe() ? std::string(text) : replaced(text, " ", kSpmBlank);
  }

  std::vector<SpecialTokens::Token> special_tokens(const gguf::Metadata& metadata) const {
    const bool phi3 = is_phi3(metadata);
    std::vector<SpecialTokens::Token> out;
    for (int32_t id = 0; id < vocabulary.size(); ++id) {
      const std::string_view text = vocabulary.text(id);
      const bool control = is_special(id);
      if (text.empty() || (!control && vocabulary.type(id) != TokenType::kUserDefined)) continue;
      const bool strip_right = phi3 && text != "<unk>" && text != "<s>" && text != "<|endoftext|>";
      out.push_back({escaped(text), id, control, strip_right});
    }
    return out;
  }

  static bool flag(const gguf::Metadata& metadata, std::string_view key, bool fallback, std::optional<int32_t> id,
                   std::string_view id_key) {
    const auto value = metadata.get_bool(key);
    if (value.value_or(false) && !id) fail(ErrorCode::kBadFile, "{} is true, but the file has no {}", key, id_key);
    return value.value_or(fallback) && id.has_value();
  }

  void mark_end(int32_t id) { ends[static_cast<size_t>(id)] = true; }

  std::string make_piece(int32_t id) const {
    const std::string text(vocabulary.text(id));
    const TokenType type = vocabulary.type(id);
    if (type == TokenType::kControl || type == TokenType::kUnknown) return text;
    if (is_bpe() && type == TokenType::kUserDefined) return text;
    if (is_bpe()) return bytes_of_token(text).value_or(text);
    if (type == TokenType::kByte) {
      const auto byte = byte_token_value(text);
      if (!byte)
        fail(ErrorCode::kBadFile, "token {} is typed as a byte, but spelled '{}' and not like '<0x0A>'", id, text);
      return std::string(1, static_cast<char>(*byte));
    }
    return replaced(text, kSpmBlank, " ");
  }

  size_t checked(int32_t id) const {
    if (id < 0 || id >= vocabulary.size()) {
      fail(ErrorCode::kInvalidArgument, "token {} is outside the vocabulary of {} tokens", id, vocabulary.size());
    }
    return static_cast<size_t>(id);
  }

  bool is_special(int32_t id) const {
    const TokenType type = vocabulary.types[checked(id)];
    return type == TokenType::kControl || type == TokenType::kUnknown;
  }

  Vocabulary vocabulary;
  std::variant<std::monostate, ByteLevelBpe, Spm> encoder;
  std::optional<SpecialTokens> special;
  StringTable pieces;               // by id: what it prints
  std::vector<bool> ends;           // by id: ends an answer
  std::optional<int32_t> bos, eos, eot;
  bool add_bos = false, add_eos = false;
  bool space_prefix = false;  // SPM: a blank in front of the text and after every special token
  std::string description;
};

Tokenizer::Tokenizer(std::unique_ptr<const Impl> impl) : impl_(std::move(impl)) {}
Tokenizer::~Tokenizer() = default;
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;

Tokenizer Tokenizer::from_metadata(const gguf::Metadata& metadata) {
  return Tokenizer(std::make_unique<const Impl>(metadata));
}

std::vector<int32_t> Tokenizer::encode(std::string_view text, EncodeOptions options) const {
  constexpr size_t kLongest = size_t{1} << 30;  // positions are 32 bits, and a byte may become U+FFFD
  if (text.size() > kLongest) {
    fail(ErrorCode::kInvalidArgument, "a text of {} bytes is longer than the {} a single call takes", text.size(),
         kLongest);
  }
  std::string valid, escaped;
  text = valid_utf8(text, valid);
  if (!impl_->is_bpe()) text = escaped = impl_->escaped(text);
  const auto fragments = impl_->special->split(text, options.parse_special);
  std::vector<int32_t> out;
  const bool has_bos = !fragments.empty() && impl_->bos && fragments[0].id == *impl_->bos;
  if (options.add_special && impl_->add_bos && !has_bos) out.push_back(*impl_->bos);
  bool after_special = true;
  for (const auto& [id, piece] : fragments) {
    if (id >= 0) {
      out.push_back(id);
    } else if (const auto* bpe = std::get_if<ByteLevelBpe>(&impl_->encoder)) {
      bpe->encode(piece, out);
    } else {
      std::get<Spm>(impl_->encoder).encode(piece, impl_->space_prefix && after_special, out);
    }
    after_special = id >= 0;
  }
  if (options.add_special && impl_->add_eos) out.push_back(*impl_->eos);
  return out;
}

std::string Tokenizer::piece(int32_t id, bool special) const {
  return impl_->is_special(id) && !special ? std::string() : std::string(impl_->pieces[static_cast<size_t>(id)]);
}

std::string Tokenizer::decode(std::span<const int32_t> ids, bool special) const {
  std::string bytes;
  for (const int32_t id : ids) bytes += piece(id, special);
  std::string_view text = bytes;
  const bool from_start = !ids.empty() && (!impl_->is_special(ids[0]) || ids[0] == impl_->bos);
  if (impl_->space_prefix && from_start && text.starts_with(' ')) text.remove_prefix(1);
  std::string out;
  append_valid_utf8(out, text, /*keep_tail=*/false);
  return out;
}

int32_t Tokenizer::n_vocab() const noexcept {
  return impl_->vocabulary.size();
}
std::optional<int32_t> Tokenizer::bos() const noexcept {
  return impl_->bos;
}
std::optional<int32_t> Tokenizer::eos() const noexcept {
  return impl_->eos;
}
std::optional<int32_t> Tokenizer::eot() const noexcept {
  return impl_->eot;
}
bool Tokenizer::normalises() const noexcept {
  const auto* bpe = std::get_if<ByteLevelBpe>(&impl_->encoder);
  return bpe && bpe->pre_tokenizer().nfc;
}
bool Tokenizer::add_bos() const noexcept {
  return impl_->add_bos;
}
bool Tokenizer::add_eos() const noexcept {
  return impl_->add_eos;
}
bool Tokenizer::is_end_of_generation(int32_t id) const {
  return impl_->ends[impl_->checked(id)];
}
bool Tokenizer::is_special(int32_t id) const {
  return impl_->is_special(id);
}
std::optional<int32_t> Tokenizer::find(std::string_view token) const {
  return impl_->vocabulary.find(token);
}
std::string Tokenizer::token_text(int32_t id) const {
  return std::string(impl_->vocabulary.texts[impl_->checked(id)]);
}
const std::string& Tokenizer::description() const noexcept {
  return impl_->description;
}

}  // namespace tern::text
