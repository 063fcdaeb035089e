#include "text/detokenizer.h"

#include "text/unicode.h"

namespace tern::text {

std::string StreamDecoder::push(int32_t id) {
  pending_ += tokenizer_->piece(id, special_);
  std::string out;
  pending_.erase(0, append_valid_utf8(out, pending_, /*keep_tail=*/true));
  return out;
}

std::string StreamDecoder::finish() {
  std::string out;
  append_valid_utf8(out, pending_, /*keep_tail=*/false);
  pending_.clear();
  return out;
}

}  // namespace tern::text
