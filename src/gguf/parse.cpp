#include <algorithm>
#include <limits>
#include <unordered_set>

#include "base/checked.h"
#include "base/error.h"
#include "gguf/cursor.h"
#include "gguf/file.h"
#include "gguf/layout.h"
#include "gguf/wire.h"

namespace tern::gguf {
namespace {

constexpr size_t kMinKeyValue = 8 + 4 + 1;        // key length, type, one byte of value
constexpr size_t kMinTensorInfo = 8 + 4 + 4 + 8;  // name length, n_dims, type, offset

/// Ids that other writers use or used, for the message that refuses them.
struct ForeignType {
  uint32_t id;
  std::string_view what;
};
constexpr ForeignType kForeignTypes[] = {
    {4, "Q4_2, removed from ggml"},
    {5, "Q4_3, removed from ggml"},
    {31, "Q4_0_4_4, removed from ggml"},
    {32, "Q4_0_4_8, removed from ggml"},
    {33, "Q4_0_8_8, removed from ggml"},
    {43, "FP8 of oxibonsai"},
    {44, "FP8 of oxibonsai"},
    {134, "IQ1_BN of ik_llama.cpp"},
    {135, "IQ2_BN of ik_llama.cpp"},
    {335, "IQ2_BN_R4 of ik_llama.cpp"},
};

void refuse_nul(std::string_view s, std::string_view what, const std::string& file) {
  if (const size_t at = s.find('\0'); at != s.npos)
    fail(ErrorCode::kBadFile, "'{}': {} contains a NUL byte at position {}", file, what, at);
}

uint32_t read_header(Cursor& in) {
  const std::byte* magic = in.take(kMagic.size(), "the magic");
  if (std::memcmp(magic, kMagic.data(), kMagic.size()) != 0)
    fail(ErrorCode::kBadFile, "'{}' is not a GGUF file: it starts with bytes {:02x} {:02x} {:02x} {:02x}, not \"GGUF\"",
         in.file(), static_cast<unsigned>(magic[0]), static_cast<unsigned>(magic[1]), static_cast<unsigned>(magic[2]),
         static_cast<unsigned>(magic[3]));
  const auto version = in.read<uint32_t>("the version");
  if ((version & 0xffffu) == 0 && version != 0)
    fail(ErrorCode::kUnsupported, "'{}' is big-endian (GGUF version reads as {:#010x}); convert it to little-endian",
         in.file(), version);
  if (version != 2 && version != 3)
    fail(ErrorCode::kUnsupported, "'{}' has GGUF version {}; this engine reads versions 2 and 3, convert it again",
         in.file(), version);
  return version;
}

/// A count of the header, bounded by the bytes left.
size_t read_count(Cursor& in, size_t min_bytes, std::string_view what) {
  const auto count = in.read<int64_t>(what);
  if (count < 0) fail(ErrorCode::kBadFile, "'{}': {} is negative ({})", in.file(), what, count);
  return in.bounded(static_cast<uint64_t>(count), min_bytes, what);
}

template <typename Wire, typename Held>
std::vector<Held> read_numbers(Cursor& in, size_t count, std::string_view key) {
  const std::byte* from = in.take(count * sizeof(Wire), key);
  std::vector<Held> out(count);
  for (size_t i = 0; i < count; ++i) {
    Wire w;
    std::memcpy(&w, from + i * sizeof(Wire), sizeof w);
    if constexpr (std::is_same_v<Wire, uint64_t>) {
      if (w > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()))
        fail(ErrorCode::kBadFile, "'{}': item {} of array '{}' is {}, which is out of range (at most 2^63-1)",
             in.file(), i, key, w);
    }
    out[i] = static_cast<Held>(w);
  }
  return out;
}

[[noreturn]] void unknown_value_type(const Cursor& in, std::string_view key, uint32_t id) {
  fail(ErrorCode::kBadFile, "'{}': key '{}' has unknown value type {} (known: 0 to 12)", in.file(), key, id);
}

Array read_array(Cursor& in, std::string_view key) {
  const auto id = in.read<uint32_t>(key);
  const auto element = static_cast<ValueType>(id);
  if (element == ValueType::ARRAY)
    fail(ErrorCode::kBadFile, "'{}': key '{}' is an array of arrays, which GGUF readers do not accept", in.file(), key);
  const uint32_t width = element == ValueType::STRING ? 8 : value_type_bytes(element);
  if (width == 0) unknown_value_type(in, key, id);
  const size_t count = in.bounded(in.read<uint64_t>(key), width, fmt::format("array '{}'", key));
  Array out{element, {}};
  switch (element) {
    case ValueType::U8:
      out.items = read_numbers<uint8_t, int64_t>(in, count, key);
      break;
    case ValueType::I8:
      out.items = read_numbers<int8_t, int64_t>(in, count, key);
      break;
    case ValueType::U16:
      out.items = read_numbers<uint16_t, int64_t>(in, count, key);
      break;
    case ValueType::I16:
      out.items = read_numbers<int16_t, int64_t>(in, count, key);
      break;
    case ValueType::U32:
      out.items = read_numbers<uint32_t, int64_t>(in, count, key);
      break;
    case ValueType::I32:
      out.items = read_numbers<int32_t, int64_t>(in, count, key);
      break;
    case ValueType::U64:
      out.items = read_numbers<uint64_t, int64_t>(in, count, key);
      break;
    case ValueType::I64:
      out.items = read_numbers<int64_t, int64_t>(in, count, key);
      break;
    case ValueType::F32:
      out.items = read_numbers<float, double>(in, count, key);
      break;
    case ValueType::F64:
      out.items = read_numbers<double, double>(in, count, key);
      break;
    case ValueType::BOOL: {
      auto bits = read_numbers<uint8_t, int64_t>(in, count, key);
      for (int64_t& b : bits) b = b != 0;
      out.items = std::move(bits);
      break;
    }
    default: {  // strings: raw bytes, a vocabulary may hold invalid UTF-8 and NUL
      std::vector<std::string> strings(count);
      for (std::string& s : strings) s = in.string(key);
      out.items = std::move(strings);
    }
  }
  return out;
}

Value read_value(Cursor& in, std::string_view key) {
  const auto id = in.read<uint32_t>(key);
  const auto type = static_cast<ValueType>(id);
  switch (type) {
    case ValueType::U8:
      return {type, int64_t{in.read<uint8_t>(key)}};
    case ValueType::I8:
      return {type, int64_t{in.read<int8_t>(key)}};
    case ValueType::U16:
      return {type, int64_t{in.read<uint16_t>(key)}};
    case ValueType::I16:
      return {type, int64_t{in.read<int16_t>(key)}};
    case ValueType::U32:
      return {type, int64_t{in.read<uint32_t>(key)}};
    case ValueType::I32:
      return {type, int64_t{in.read<int32_t>(key)}};
    case ValueType::U64:
      return {type, in.read<uint64_t>(key)};
    case ValueType::I64:
      return {type, in.read<int64_t>(key)};
    case ValueType::F32:
      return {type, double{in.read<float>(key)}};
    case ValueType::F64:
      return {type, in.read<double>(key)};
    case ValueType::BOOL:
      return {type, in.read<uint8_t>(key) != 0};
    case ValueType::STRING: {
      const std::string_view s = in.string(key);
      refuse_nul(s, fmt::format("the value of '{}'", key), in.file());
      return {type, std::string(s)};
    }
    case ValueType::ARRAY:
      return {type, read_array(in, key)};
  }
  unknown_value_type(in, key, id);
}

Metadata read_metadata(Cursor& in, size_t count) {
  Metadata out;
  for (size_t i = 0; i < count; ++i) {
    const std::string_view key = in.string(fmt::format("the name of key {} of {}", i + 1, count));
    refuse_nul(key, fmt::format("the name of key {}", i + 1), in.file());
    if (key.empty()) fail(ErrorCode::kBadFile, "'{}': key {} of {} has no name", in.file(), i + 1, count);
    if (out.has(key)) fail(ErrorCode::kBadFile, "'{}': duplicate metadata key '{}'", in.file(), key);
    out.set(std::string(key), read_value(in, key));
  }
  return out;
}

TensorType read_tensor_type(Cursor& in, const std::string& tensor) {
  const auto id = in.read<uint32_t>("a tensor type");
  if (const TypeInfo* row = find_type(id)) return row->type;
  const auto* foreign = std::find_if(std::begin(kForeignTypes), std::end(kForeignTypes),
                                     [&](const ForeignType& f) { return f.id == id; });
  const std::string what = foreign == std::end(kForeignTypes) ? "" : fmt::format(" ({})", foreign->what);
  fail(ErrorCode::kUnsupported,
       "'{}': tensor '{}' has type {}{}, which this engine does not know; it knows ggml's types below 43, PQ2_0 (142) "
       "and "
       "PTQ1_0 (143). Convert the model to one of those",
       in.file(), tensor, id, what);
}

std::string read_tensor_name(Cursor& in, size_t index, size_t count) {
  const std::string what = fmt::format("the name of tensor {} of {}", index + 1, count);
  const std::string_view name = in.string(what);
  refuse_nul(name, what, in.file());
  if (name.empty() || name.size() > kMaxTensorName)
    fail(ErrorCode::kBadFile, "'{}': {} has {} bytes, allowed are 1 to {}: '{}'", in.file(), what, name.size(),
         kMaxTensorName, name.substr(0, kMaxTensorName));
  return std::string(name);
}

TensorInfo read_tensor_info(Cursor& in, size_t index, size_t count) {
  TensorInfo t;
  t.name = read_tensor_name(in, index, count);
  t.n_dims = in.read<uint32_t>("a number of dimensions");
  if (t.n_dims > kMaxDims)
    fail(ErrorCode::kBadFile, "'{}': tensor '{}' has {} dimensions, at most {} are allowed", in.file(), t.name,
         t.n_dims, kMaxDims);
  int64_t elements = 1;
  for (uint32_t d = 0; d < t.n_dims; ++d) {
    t.ne[d] = in.read<int64_t>("a dimension");
    if (t.ne[d] <= 0)
      fail(ErrorCode::kBadFile, "'{}': dimension {} of tensor '{}' is {}, it must be positive", in.file(), d, t.name,
           t.ne[d]);
    if (!checked_mul(elements, t.ne[d], &elements))
      fail(ErrorCode::kBadFile, "'{}': the dimensions of tensor '{}' multiply to more than 2^63-1 elements", in.file(),
           t.name);
  }
  t.type = read_tensor_type(in, t.name);
  try {
    t.nbytes = tensor_bytes(t.type, t.ne);
  } catch (const Error& e) {
    fail(e.code(), "'{}': tensor '{}': {}", in.file(), t.name, e.what());
  }
  t.offset = in.read<uint64_t>("a tensor offset");
  return t;
}

std::vector<TensorInfo> read_tensor_infos(Cursor& in, size_t count) {
  in.bounded(count, kMinTensorInfo, "the tensor count");
  std::vector<TensorInfo> out;
  std::unordered_set<std::string> seen;
  out.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    out.push_back(read_tensor_info(in, i, count));
    if (!seen.insert(out.back().name).second)
      fail(ErrorCode::kBadFile, "'{}': duplicate tensor name '{}'", in.file(), out.back().name);
  }
  return out;
}

}  // namespace

Parsed parse(std::span<const std::byte> bytes, const std::string& name) {
  Cursor in(bytes, name);
  Parsed out;
  out.version = read_header(in);
  const size_t n_tensors = read_count(in, kMinTensorInfo, "the tensor count");
  const size_t n_keys = read_count(in, kMinKeyValue, "the metadata count");
  out.metadata = read_metadata(in, n_keys);
  out.tensors = read_tensor_infos(in, n_tensors);
  out.alignment = alignment_of(out.metadata, name);
  out.data_offset = round_up<uint64_t>(in.position(), out.alignment);
  const auto data = bytes.subspan(std::min<uint64_t>(out.data_offset, bytes.size()));
  resolve_layout(data, out.alignment, out.tensors, name);
  return out;
}

}  // namespace tern::gguf
