#include <algorithm>
#include <limits>

#include "base/error.h"
#include "gguf/file.h"
#include "gguf/wire.h"

namespace tern::gguf {
namespace {

struct ValueTypeInfo {
  std::string_view name;
  uint32_t bytes;
};

constexpr ValueTypeInfo kValueTypes[] = {{"u8", 1},  {"i8", 1},  {"u16", 2},  {"i16", 2},    {"u32", 4},
                                         {"i32", 4}, {"f32", 4}, {"bool", 1}, {"string", 0}, {"array", 0},
                                         {"u64", 8}, {"i64", 8}, {"f64", 8}};

std::string describe(const Value& v) {
  const auto* array = std::get_if<Array>(&v.data);
  return array ? fmt::format("array of {}", value_type_name(array->element)) : std::string(value_type_name(v.type));
}

[[noreturn]] void wrong_type(std::string_view key, std::string_view wanted, const Value& found) {
  fail(ErrorCode::kBadFile, "metadata key '{}' must be {}, but the file has {}", key, wanted, describe(found));
}

[[noreturn]] void absent(std::string_view key, std::string_view wanted) {
  fail(ErrorCode::kBadFile, "the file has no metadata key '{}' ({}), which is required", key, wanted);
}

/// The items of the array under `key`; nullptr when the key is absent.
template <typename T>
const std::vector<T>* items_of(const Metadata& m, std::string_view key, std::string_view wanted) {
  const Value* v = m.find(key);
  if (!v) return nullptr;
  const auto* array = std::get_if<Array>(&v->data);
  const auto* items = array ? std::get_if<std::vector<T>>(&array->items) : nullptr;
  if (!items) wrong_type(key, wanted, *v);
  return items;
}

/// The scalar under `key` held as T; nullptr when the key is absent.
template <typename T>
const T* scalar_of(const Metadata& m, std::string_view key, std::string_view wanted) {
  const Value* v = m.find(key);
  if (!v) return nullptr;
  const auto* scalar = std::get_if<T>(&v->data);
  if (!scalar) wrong_type(key, wanted, *v);
  return scalar;
}

template <typename T>
auto copied(const T* value) {
  return value ? std::optional<T>(*value) : std::nullopt;
}

}  // namespace

std::string_view value_type_name(ValueType type) noexcept {
  const auto id = static_cast<size_t>(type);
  return id < std::size(kValueTypes) ? kValueTypes[id].name : "unknown";
}

uint32_t value_type_bytes(ValueType type) noexcept {
  const auto id = static_cast<size_t>(type);
  return id < std::size(kValueTypes) ? kValueTypes[id].bytes : 0;
}

size_t Array::size() const noexcept {
  return std::visit([](const auto& v) { return v.size(); }, items);
}

void Metadata::set(std::string key, Value value) {
  const auto [it, inserted] = index_.try_emplace(key, items_.size());
  if (inserted) {
    items_.emplace_back(std::move(key), std::move(value));
  } else {
    items_[it->second].second = std::move(value);
  }
}

void Metadata::set_u32(std::string key, uint32_t v) {
  set(std::move(key), {ValueType::U32, int64_t{v}});
}
void Metadata::set_f32(std::string key, float v) {
  set(std::move(key), {ValueType::F32, double{v}});
}
void Metadata::set_bool(std::string key, bool v) {
  set(std::move(key), {ValueType::BOOL, v});
}
void Metadata::set_string(std::string key, std::string v) {
  set(std::move(key), {ValueType::STRING, std::move(v)});
}

void Metadata::set_strings(std::string key, std::vector<std::string> v) {
  set(std::move(key), {ValueType::ARRAY, Array{ValueType::STRING, std::move(v)}});
}
void Metadata::set_i32s(std::string key, std::vector<int64_t> v) {
  set(std::move(key), {ValueType::ARRAY, Array{ValueType::I32, std::move(v)}});
}
void Metadata::set_f32s(std::string key, std::vector<double> v) {
  set(std::move(key), {ValueType::ARRAY, Array{ValueType::F32, std::move(v)}});
}

void Metadata::erase(std::string_view key) {
  const auto it = index_.find(key);
  if (it == index_.end()) return;
  const size_t at = it->second;
  index_.erase(it);
  items_.erase(items_.begin() + static_cast<std::ptrdiff_t>(at));
  for (auto& [name, i] : index_) {
    if (i > at) --i;
  }
}

bool Metadata::has(std::string_view key) const {
  return find(key) != nullptr;
}

const Value* Metadata::find(std::string_view key) const {
  const auto it = index_.find(key);
  return it == index_.end() ? nullptr : &items_[it->second].second;
}

std::optional<int64_t> Metadata::get_int(std::string_view key) const {
  const Value* v = find(key);
  if (!v) return std::nullopt;
  if (const auto* u = std::get_if<uint64_t>(&v->data)) {
    if (*u > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()))
      fail(ErrorCode::kBadFile, "metadata key '{}' is {}, which is out of range (at most 2^63-1)", key, *u);
    return static_cast<int64_t>(*u);
  }
  return copied(scalar_of<int64_t>(*this, key, "an integer"));
}

std::optional<double> Metadata::get_float(std::string_view key) const {
  return copied(scalar_of<double>(*this, key, "f32 or f64"));
}

std::optional<bool> Metadata::get_bool(std::string_view key) const {
  return copied(scalar_of<bool>(*this, key, "bool"));
}

std::optional<std::string_view> Metadata::get_string(std::string_view key) const {
  const auto* s = scalar_of<std::string>(*this, key, "a string");
  return s ? std::optional<std::string_view>(*s) : std::nullopt;
}

const std::vector<std::string>* Metadata::get_strings(std::string_view key) const {
  return items_of<std::string>(*this, key, "an array of strings");
}

std::optional<std::vector<int64_t>> Metadata::get_ints(std::string_view key) const {
  return copied(items_of<int64_t>(*this, key, "an array of integers"));
}

std::optional<std::vector<double>> Metadata::get_floats(std::string_view key) const {
  return copied(items_of<double>(*this, key, "an array of f32 or f64"));
}

int64_t Metadata::require_int(std::string_view key) const {
  const auto v = get_int(key);
  if (!v) absent(key, "an integer");
  return *v;
}

double Metadata::require_float(std::string_view key) const {
  const auto v = get_float(key);
  if (!v) absent(key, "f32 or f64");
  return *v;
}

std::string_view Metadata::require_string(std::string_view key) const {
  const auto v = get_string(key);
  if (!v) absent(key, "a string");
  return *v;
}

uint32_t alignment_of(const Metadata& metadata, const std::string& file) {
  const Value* v = metadata.find(kAlignmentKey);
  if (!v) return kDefaultAlignment;
  const auto* a = std::get_if<int64_t>(&v->data);
  if (v->type != ValueType::U32 || !a)
    fail(ErrorCode::kBadFile, "'{}': general.alignment must be u32, but the file has {}", file, describe(*v));
  if (*a == 0 || (*a & (*a - 1)) != 0)
    fail(ErrorCode::kBadFile, "'{}': general.alignment is {}, which is not a power of two above 0", file, *a);
  return static_cast<uint32_t>(*a);
}

}  // namespace tern::gguf
