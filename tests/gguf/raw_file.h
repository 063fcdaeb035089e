// Spells GGUF bytes one field at a time, so that a test can break any of them. Independent of the writer on purpose.
#pragma once
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tern::gguf::testing {

template <typename T>
std::string le(T value) {
  std::string out(sizeof value, '\0');
  std::memcpy(out.data(), &value, sizeof value);
  return out;
}

inline std::string str(std::string_view s) {
  return le(uint64_t{s.size()}).append(s);
}

inline std::span<const std::byte> as_bytes(std::string_view s) {
  return std::as_bytes(std::span(s));
}

/// Value type ids, spelled here a second time so that a wrong enum in the reader shows.
enum : uint32_t { kU8, kI8, kU16, kI16, kU32, kI32, kF32, kBool, kString, kArray, kU64, kI64, kF64 };

struct RawFile {
  std::string magic = "GGUF";
  uint32_t version = 3;
  std::string keys, infos;
  int64_t n_keys = 0, n_tensors = 0;
  uint64_t alignment = 32;
  std::string data;

  /// A file that needs no more than its tensors.
  static RawFile model() { return RawFile().key("general.architecture", kString, str("llama")); }

  RawFile& key(std::string_view name, uint32_t type, std::string_view payload) {
    keys.append(str(name)).append(le(type)).append(payload);
    ++n_keys;
    return *this;
  }
  RawFile& array(std::string_view name, uint32_t element, uint64_t count, std::string_view payload) {
    return key(name, kArray, le(element) + le(count) + std::string(payload));
  }
  /// A tensor info as it stands, without data.
  RawFile& info(std::string_view name, const std::vector<int64_t>& ne, uint32_t type, uint64_t offset) {
    infos.append(str(name)).append(le(static_cast<uint32_t>(ne.size())));
    for (const int64_t n : ne) infos += le(n);
    infos.append(le(type)).append(le(offset));
    ++n_tensors;
    return *this;
  }
  /// A tensor at the next free offset with `bytes` as its data, padded with zeros.
  RawFile& tensor(std::string_view name, const std::vector<int64_t>& ne, uint32_t type, std::string_view bytes) {
    info(name, ne, type, data.size());
    data.append(bytes);
    data.resize((data.size() + alignment - 1) / alignment * alignment);
    return *this;
  }

  std::string header() const { return magic + le(version) + le(n_tensors) + le(n_keys) + keys + infos; }
  std::string build() const {
    std::string out = header();
    if (n_tensors > 0) out.resize((out.size() + alignment - 1) / alignment * alignment);
    return out + data;
  }
};

}  // namespace tern::gguf::testing
