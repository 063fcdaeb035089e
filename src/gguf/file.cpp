#include "gguf/file.h"

#include <algorithm>
#include <charconv>
#include <filesystem>

#include "base/error.h"

namespace tern::gguf {
namespace {

constexpr std::string_view kSplitNo = "split.no", kSplitCount = "split.count", kSplitTensors = "split.tensors.count";
constexpr int64_t kMaxShards = 99999;  // five digits in the name

std::string shard_suffix(int64_t index, int64_t count) {
  return fmt::format("-{:05}-of-{:05}.gguf", index + 1, count);
}

/// The path of a shard beside shard `index` of `count`. kBadFile when the name does not follow the pattern.
class ShardNames {
 public:
  ShardNames(const std::string& path, int64_t index, int64_t count) : count_(count) {
    const std::string suffix = shard_suffix(index, count);
    if (!path.ends_with(suffix))
      fail(ErrorCode::kBadFile,
           "'{}' is part {} of a model split into {} files, so its name must end in '{}' for the others to be found; "
           "rename it",
           path, index + 1, count, suffix);
    stem_ = path.substr(0, path.size() - suffix.size());
  }
  std::string operator[](int64_t index) const { return stem_ + shard_suffix(index, count_); }

 private:
  std::string stem_;
  int64_t count_;
};

struct Split {
  int64_t index = 0, count = 1;
};

Split split_of(const Metadata& m, const std::string& path) {
  const Split s{m.get_int(kSplitNo).value_or(0), m.get_int(kSplitCount).value_or(1)};
  if (s.count == 0 || s.count == 1) return {};  // llama.cpp's splitter writes 0 or 1 into whole files
  if (s.count < 0 || s.count > kMaxShards || s.index < 0 || s.index >= s.count)
    fail(ErrorCode::kBadFile, "'{}': split.no {} and split.count {} make no sense together", path, s.index, s.count);
  return s;
}

void require_all_present(const ShardNames& names, int64_t count) {
  std::string missing;
  for (int64_t i = 1; i < count; ++i) {
    if (std::filesystem::exists(names[i])) continue;
    missing += fmt::format("{}'{}'", missing.empty() ? "" : ", ", names[i]);
  }
  if (!missing.empty())
    fail(ErrorCode::kNotFound, "the model is split into {} files and these are missing: {}; put them beside '{}'",
         count, missing, names[0]);
}

}  // namespace

File File::open(const std::string& path) {
  File out;
  out.path_ = path;
  const auto add = [&](MappedFile file) -> Metadata {
    Parsed p = parse(file.bytes(), file.path());
    for (TensorInfo& t : p.tensors) {
      t.shard = static_cast<uint32_t>(out.shards_.size());
      if (!out.index_.emplace(t.name, out.tensors_.size()).second)
        fail(ErrorCode::kBadFile, "'{}': tensor '{}' is already in an earlier file of the split model", file.path(),
             t.name);
      out.tensors_.push_back(std::move(t));
    }
    if (out.shards_.empty()) {
      out.version_ = p.version;
      out.alignment_ = p.alignment;
    }
    file.drop(0, p.data_offset);  // all of it is in p now
    out.shards_.push_back({std::move(file), p.data_offset});
    return std::move(p.metadata);
  };

  out.metadata_ = add(MappedFile(path));
  const Split split = split_of(out.metadata_, path);
  if (split.count > 1) {
    const ShardNames names(path, split.index, split.count);
    if (split.index != 0)
      fail(ErrorCode::kInvalidArgument, "'{}' is part {} of {} of a split model; open the first part, '{}'", path,
           split.index + 1, split.count, names[0]);
    require_all_present(names, split.count);
    for (int64_t i = 1; i < split.count; ++i) {
      const Metadata m = add(MappedFile(names[i]));
      const Split s = split_of(m, names[i]);
      if (s.index != i || s.count != split.count)
        fail(ErrorCode::kBadFile, "'{}' says it is part {} of {}, but its name and '{}' say part {} of {}", names[i],
             s.index + 1, s.count, path, i + 1, split.count);
    }
    const int64_t announced = out.metadata_.require_int(kSplitTensors);
    if (announced != static_cast<int64_t>(out.tensors_.size()))
      fail(ErrorCode::kBadFile, "'{}' announces {} tensors (split.tensors.count), but its {} files have {}", path,
           announced, split.count, out.tensors_.size());
  }
  for (const std::string_view key : {kSplitNo, kSplitCount, kSplitTensors}) out.metadata_.erase(key);
  if (!out.metadata_.get_string("general.architecture"))
    fail(ErrorCode::kBadFile, "'{}' has no metadata key 'general.architecture', so its model family is unknown", path);
  return out;
}

const TensorInfo* File::find(std::string_view name) const noexcept {
  const auto it = index_.find(name);
  return it == index_.end() ? nullptr : &tensors_[it->second];
}

std::span<const std::byte> File::bytes(const TensorInfo& t) const noexcept {
  const Shard& shard = shards_[t.shard];
  return shard.file.bytes().subspan(shard.data_offset + t.offset, t.nbytes);
}

std::pair<const MappedFile*, size_t> File::place(std::span<const std::byte> part) const noexcept {
  for (const Shard& shard : shards_) {
    const std::span<const std::byte> all = shard.file.bytes();
    if (part.data() >= all.data() && part.data() < all.data() + all.size())
      return {&shard.file, static_cast<size_t>(part.data() - all.data())};
  }
  return {nullptr, 0};
}

bool File::copy(std::span<const std::byte> part, std::byte* to) const noexcept {
  const auto [file, offset] = place(part);
  return file && file->copy(offset, {to, part.size()});
}

void File::drop(std::span<const std::byte> part) const noexcept {
  const auto [file, offset] = place(part);
  if (file) file->drop(offset, part.size());
}

uint64_t File::file_bytes() const noexcept {
  uint64_t sum = 0;
  for (const Shard& s : shards_) sum += s.file.bytes().size();
  return sum;
}

}  // namespace tern::gguf
