#include "gguf/encode.h"

#include <algorithm>
#include <cstring>

#include "base/checked.h"
#include "gguf/wire.h"

namespace tern::gguf {
namespace {

/// Little-endian bytes of a header under construction.
class Buffer {
 public:
  template <typename T>
  void put(T value) {
    const size_t at = bytes_.size();
    bytes_.resize(at + sizeof value);
    std::memcpy(bytes_.data() + at, &value, sizeof value);
  }
  void put_raw(std::string_view s) { bytes_ += s; }
  void put_string(std::string_view s) {
    put(uint64_t{s.size()});
    bytes_ += s;
  }
  std::string padded(size_t alignment) && {
    bytes_.resize(round_up(bytes_.size(), alignment));
    return std::move(bytes_);
  }

 private:
  std::string bytes_;
};

void put_integer(Buffer& out, ValueType type, int64_t v) {
  switch (value_type_bytes(type)) {
    case 1:
      return out.put(static_cast<uint8_t>(v));
    case 2:
      return out.put(static_cast<uint16_t>(v));
    case 4:
      return out.put(static_cast<uint32_t>(v));
    default:
      return out.put(v);
  }
}

void put_real(Buffer& out, ValueType type, double v) {
  if (type == ValueType::F32) return out.put(static_cast<float>(v));
  out.put(v);
}

/// Writes any alternative of Value::data and any item of Array::items under the type the file gives it.
struct Put {
  Buffer& out;
  ValueType type;
  void operator()(int64_t v) const { put_integer(out, type, v); }
  void operator()(uint64_t v) const { out.put(v); }
  void operator()(double v) const { put_real(out, type, v); }
  void operator()(bool v) const { out.put(static_cast<uint8_t>(v)); }
  void operator()(const std::string& v) const { out.put_string(v); }
  void operator()(const Array& v) const {
    out.put(static_cast<uint32_t>(v.element));
    out.put(uint64_t{v.size()});
    std::visit([&](const auto& items) { std::for_each(items.begin(), items.end(), Put{out, v.element}); }, v.items);
  }
};

}  // namespace

std::string encode_header(uint32_t version, uint32_t alignment, const Metadata& metadata,
                          std::span<const TensorInfo> tensors) {
  Buffer header;
  header.put_raw(kMagic);
  header.put(version);
  header.put(uint64_t{tensors.size()});
  header.put(uint64_t{metadata.items().size()});
  for (const auto& [key, value] : metadata.items()) {
    header.put_string(key);
    header.put(static_cast<uint32_t>(value.type));
    std::visit(Put{header, value.type}, value.data);
  }
  for (const TensorInfo& t : tensors) {
    header.put_string(t.name);
    header.put(t.n_dims);
    for (uint32_t d = 0; d < t.n_dims; ++d) header.put(t.ne[d]);
    header.put(static_cast<uint32_t>(t.type));
    header.put(t.offset);
  }
  return std::move(header).padded(alignment);
}

}  // namespace tern::gguf
