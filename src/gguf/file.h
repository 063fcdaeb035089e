// A GGUF file (v2, v3) as metadata and tensor infos over mapped bytes. Strict: every count is bounded by the bytes left
// before anything is allocated, arithmetic is checked, offsets and names are verified. The layout: docs/formats.md.
#pragma once
#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/mapped_file.h"
#include "gguf/types.h"

namespace tern::gguf {

/// Ids of metadata value types as files carry them.
enum class ValueType : uint32_t {
  U8 = 0, I8 = 1, U16 = 2, I16 = 3, U32 = 4, I32 = 5, F32 = 6, BOOL = 7, STRING = 8, ARRAY = 9, U64 = 10, I64 = 11, F64 = 12,
};

/// Its spelling in messages ("u32", "string" ...); "unknown" for an id that is not listed.
std::string_view value_type_name(ValueType type) noexcept;
/// Bytes of one value; 0 for STRING, ARRAY and unknown ids.
uint32_t value_type_bytes(ValueType type) noexcept;

/// An array of metadata. Integers of every width are widened to int64 (u64 above 2^63-1 is refused), f32/f64 to double,
/// bools to int64 0/1; `element` keeps the type in the file so that a rewrite is byte-identical.
struct Array {
  ValueType element = ValueType::U32;
  std::variant<std::vector<int64_t>, std::vector<double>, std::vector<std::string>> items;
  size_t size() const noexcept;
};

struct Value {
  ValueType type = ValueType::U32;
  std::variant<int64_t, uint64_t, double, bool, std::string, Array> data;  // uint64_t only for U64
};

/// Key-value pairs in file order with typed look-up.
class Metadata {
 public:
  void set(std::string key, Value value);  // replaces
  void set_u32(std::string key, uint32_t v);
  void set_f32(std::string key, float v);
  void set_bool(std::string key, bool v);
  void set_string(std::string key, std::string v);
  void set_strings(std::string key, std::vector<std::string> v);
  void set_i32s(std::string key, std::vector<int64_t> v);
  void set_f32s(std::string key, std::vector<double> v);
  void erase(std::string_view key);

  bool has(std::string_view key) const;
  const Value* find(std::string_view key) const;
  std::span<const std::pair<std::string, Value>> items() const { return items_; }

  // get_*: the value, nullopt when the key is absent, kBadFile naming key, wanted and found type when the type is wrong.
  // Any integer width is accepted for integers and range-checked; f32 or f64 for floats.
  std::optional<int64_t> get_int(std::string_view key) const;
  std::optional<double> get_float(std::string_view key) const;
  std::optional<bool> get_bool(std::string_view key) const;
  std::optional<std::string_view> get_string(std::string_view key) const;
  const std::vector<std::string>* get_strings(std::string_view key) const;       // nullptr when absent
  std::optional<std::vector<int64_t>> get_ints(std::string_view key) const;     // arrays of any integer width or bool
  std::optional<std::vector<double>> get_floats(std::string_view key) const;
  // require_*: the same, but an absent key is kBadFile naming it.
  int64_t require_int(std::string_view key) const;
  double require_float(std::string_view key) const;
  std::string_view require_string(std::string_view key) const;

 private:
  std::vector<std::pair<std::string, Value>> items_;
  std::map<std::string, size_t, std::less<>> index_;
};

/// Where a tensor lies. Shape is ne[0] (contiguous, the INPUT features of a linear) first; unused dims are 1.
struct TensorInfo {
  std::string name;
  TensorType type = TensorType::F32;
  uint32_t n_dims = 1;
  std::array<int64_t, 4> ne{1, 1, 1, 1};
  uint64_t offset = 0;  // from the start of the data section of its shard
  uint64_t nbytes = 0;  // extent, tail included, padding excluded
  uint32_t shard = 0;   // which file of a split model
  bool legacy_q2_0 = false;  // id 42 in the file, but laid out in groups of 128: `type` already says PQ2_0

  int64_t elements() const noexcept { return ne[0] * ne[1] * ne[2] * ne[3]; }
  int64_t rows() const noexcept { return ne[1] * ne[2] * ne[3]; }
};

/// Bytes of a tensor of `type` and shape `ne`, tail included. kBadFile when ne[0] is not a whole number of blocks or the size overflows.
uint64_t tensor_bytes(TensorType type, const std::array<int64_t, 4>& ne);

/// Parses the bytes of one GGUF file (used by File and by the fuzz target).
struct Parsed {
  uint32_t version = 3;
  uint32_t alignment = 32;
  uint64_t data_offset = 0;  // of the data section in the file
  Metadata metadata;
  std::vector<TensorInfo> tensors;  // file order
};
Parsed parse(std::span<const std::byte> bytes, const std::string& name);

/// An opened model: one file, or all shards of a split one (`-00001-of-0000N.gguf`; siblings are found beside the first).
/// The shards appear as one model: metadata is the first shard's without its `split.*` keys.
class File {
 public:
  static File open(const std::string& path);

  const std::string& path() const noexcept { return path_; }
  const Metadata& metadata() const noexcept { return metadata_; }
  std::span<const TensorInfo> tensors() const noexcept { return tensors_; }
  const TensorInfo* find(std::string_view name) const noexcept;
  /// The mapped bytes of `t` (exactly nbytes).
  std::span<const std::byte> bytes(const TensorInfo& t) const noexcept;
  /// Copies `part` of some tensor's bytes to `to` without making its pages part of this process. False when the file can
  /// no longer be read there.
  bool copy(std::span<const std::byte> part, std::byte* to) const noexcept;
  /// Tells the system that `part` of some tensor's bytes will not be read again soon: its pages leave this process.
  void drop(std::span<const std::byte> part) const noexcept;
  /// Forgets the value of `key`, which nobody will ask for again.
  void forget(std::string_view key) { metadata_.erase(key); }
  /// Sum of the shards' sizes on disk.
  uint64_t file_bytes() const noexcept;
  uint32_t version() const noexcept { return version_; }
  uint32_t alignment() const noexcept { return alignment_; }

 private:
  struct Shard { MappedFile file; uint64_t data_offset = 0; };
  /// The shard's file that `part` lies in, and where.
  std::pair<const MappedFile*, size_t> place(std::span<const std::byte> part) const noexcept;
  std::string path_;
  uint32_t version_ = 3, alignment_ = 32;
  std::vector<Shard> shards_;
  Metadata metadata_;
  std::vector<TensorInfo> tensors_;
  std::map<std::string, size_t, std::less<>> index_;
};

}  // namespace tern::gguf
