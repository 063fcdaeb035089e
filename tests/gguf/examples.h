// Whole small files that several tests share; also the seeds of the fuzz target.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "gguf/raw_file.h"
#include "gguf/types.h"

namespace tern::gguf::testing {

/// Every metadata value type, scalar and array, and three tensors. Nothing follows the last byte of the last tensor but
/// padding.
inline RawFile every_value_type() {
  RawFile f = RawFile::model();
  f.key("u8", kU8, le<uint8_t>(200)).key("i8", kI8, le<int8_t>(-5)).key("u16", kU16, le<uint16_t>(65535));
  f.key("i16", kI16, le<int16_t>(-300)).key("u32", kU32, le<uint32_t>(4000000000u)).key("i32", kI32, le<int32_t>(-7));
  f.key("f32", kF32, le(0.1f)).key("bool", kBool, le<uint8_t>(1)).key("u64", kU64, le(~uint64_t{0}));
  f.key("i64", kI64, le<int64_t>(-1)).key("f64", kF64, le(0.1)).key("string", kString, str("é"));
  f.array("u8s", kU8, 3, "\1\2\xff").array("i8s", kI8, 2, "\1\xff").array("u16s", kU16, 1, le<uint16_t>(65535));
  f.array("i16s", kI16, 1, le<int16_t>(-2)).array("u32s", kU32, 1, le(~uint32_t{0})).array("i32s", kI32, 1, le(-9));
  f.array("u64s", kU64, 1, le(~uint64_t{0} >> 1)).array("i64s", kI64, 1, le<int64_t>(-9)).array("none", kString, 0, "");
  f.array("f32s", kF32, 2, le(0.1f) + le(-0.0f)).array("f64s", kF64, 1, le(0.1)).array("no floats", kF32, 0, "");
  f.array("bools", kBool, 2, std::string("\1\0", 2))
      .array("strings", kString, 2, str("a") + str(std::string("\0\xff", 2)));
  f.tensor("a", {3}, 0, std::string(12, '\1')).tensor("b", {128, 2}, 36, std::string(96, '\2'));
  return f.tensor("c", {32, 1, 2}, 8, std::string(68, '\3'));
}

/// One tensor of each type of the table, one block each, a whole I2_S tail included.
inline RawFile every_tensor_type() {
  RawFile f = RawFile::model();
  for (const TypeInfo& t : type_table()) {
    if (t.type == TensorType::TL1) continue;  // refused by name
    // 512 weights give type 42 an extent of its own: 144 or 136 bytes, padded 160 both, but with bytes behind 136.
    const uint32_t n = t.type == TensorType::Q2_0 ? 512 : t.block_elements;
    const std::string bytes(n / t.block_elements * t.block_bytes + t.tail_bytes, '\1');
    f.tensor(t.name, {n}, static_cast<uint32_t>(t.type), bytes);
  }
  return f;
}

/// Seeds for the fuzz target: what it should start from, by file name.
inline std::vector<std::pair<std::string, std::string>> seeds() {
  RawFile v2 = every_value_type();
  v2.version = 2;
  RawFile big_endian = RawFile::model();
  big_endian.version = 0x03000000u;
  RawFile aligned = RawFile::model();
  aligned.alignment = 64;
  aligned.key("general.alignment", kU32, le(uint32_t{64})).tensor("a", {1}, 0, "abcd").tensor("b", {1}, 0, "efgh");
  RawFile vocabulary = RawFile::model();
  vocabulary.key("tokenizer.ggml.model", kString, str("gpt2"))
      .array("tokenizer.ggml.tokens", kString, 3, str("a") + str("b") + str("ab"));
  vocabulary.array("tokenizer.ggml.merges", kString, 1, str("a b"))
      .array("tokenizer.ggml.token_type", kI32, 3, le(1) + le(1) + le(1));
  RawFile part = RawFile::model();
  part.key("split.no", kU16, le(uint16_t{0}))
      .key("split.count", kU16, le(uint16_t{2}))
      .key("split.tensors.count", kI32, le(2));
  RawFile nested = RawFile::model().array("x", kArray, 1, le(uint32_t{kU8}) + le(uint64_t{1}) + "1");
  RawFile gap = RawFile::model().info("w", {128}, 36, 0).info("norm", {8}, 0, 128);
  gap.data.resize(160);
  const auto type42 = [](size_t bytes) {
    return RawFile::model().tensor("w", {128, 16}, 42, std::string(bytes, '\x2a')).build();
  };
  return {
      {"every-value-type-v3", every_value_type().build()},
      {"every-value-type-v2", v2.build()},
      {"every-tensor-type", every_tensor_type().build()},
      {"alignment-64", aligned.build()},
      {"vocabulary", vocabulary.build()},
      {"split-part", part.tensor("w", {1}, 0, "abcd").build()},
      {"i2_s-gap", gap.build()},
      {"type-42-group-64", type42(576)},
      {"type-42-group-128", type42(544)},
      {"type-39-tl2", RawFile::model().tensor("w", {512, 3}, 39, std::string(384, '\0')).build()},
      {"nested-array", nested.build()},
      {"big-endian", big_endian.build()},
  };
}

}  // namespace tern::gguf::testing
