#include "synth/synth.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/checked.h"
#include "base/error.h"
#include "base/float16.h"
#include "base/thread_pool.h"
#include "gguf/writer.h"
#include "quant/format.h"
#include "synth/random.h"
#include "synth/tensors.h"
#include "synth/vocabulary.h"

namespace tern::synth {
namespace {

// Large ternary tensors are put together from tiles of a few thousand patterns: rounding billions of random trits one
// by one would take longer than writing them. A tile is whole blocks of every ternary format.
constexpr int64_t kTile = 256, kPatterns = 4096;
constexpr int64_t kChunk = 1 << 16;        // weights a thread draws and encodes at once: whole blocks of every format
constexpr int64_t kChunksAtOnce = 1 << 6;  // held in memory before they are written

TensorType type_of(const Tensor& t, const Shape& shape, const Options& o) {
  switch (t.role) {
    case Role::kMatrix:
      return o.type;
    case Role::kGate:
      return shape.hadamard_block != 0 && o.type != TensorType::F32 ? TensorType::BF16 : o.type;
    case Role::kTable:
    case Role::kHead:
      return o.embd_type.value_or(shape.embd_type.value_or(o.type));
    default:
      return TensorType::F32;
  }
}

/// Standard deviation of the weights of a tensor that are drawn around zero.
double deviation(const Tensor& t, bool tied) {
  const double per_input = 1 / std::sqrt(static_cast<double>(t.ne[0]));
  switch (t.role) {
    // Logits of deviation 2: a distribution that is neither flat nor a spike.
    case Role::kHead:
      return 2 * per_input;
    case Role::kTable:
      return tied ? 2 * per_input : 1;
    case Role::kRouter:
      return 2 * per_input;
    case Role::kConv:
      return 0.5;
    case Role::kNorm:
      return 0.05;
    case Role::kBias:
      return 0.1;
    default:
      return per_input;
  }
}

/// Draws the weights [first, first + out.size()) of one tensor.
class Source {
 public:
  Source(const Tensor& t, const Shape& shape, bool ternary, uint64_t seed)
      : random_(seed, t.name),
        role_(t.role),
        length_(t.ne[0]),
        ternary_(ternary),
        sigma_(static_cast<float>(deviation(t, shape.tied))),
        // 60 % of the weights are +-scale; an f16 value, so that every ternary format keeps it exactly.
        scale_(f16_to_f32(f32_to_f16(static_cast<float>(deviation(t, shape.tied) / std::sqrt(0.6))))) {}

  float tensor_scale() const { return scale_; }

  /// The pattern, of `n`, of a tile.
  uint64_t choose(int64_t tile, uint64_t n) const { return random_.bits(~static_cast<uint64_t>(tile)) % n; }

  void draw(int64_t first, std::span<float> out) const {
    if (ternary_) return draw_ternary(first, out);
    for (size_t i = 0; i < out.size(); ++i) out[i] = value(static_cast<uint64_t>(first) + i);
  }

 private:
  void draw_ternary(int64_t first, std::span<float> out) const {
    CHECK(first % 8 == 0);
    for (size_t i = 0; i < out.size(); i += 8) {
      uint64_t b = random_.bits((static_cast<uint64_t>(first) + i) / 8);  // a byte a weight
      for (size_t k = i; k < std::min(i + 8, out.size()); ++k, b >>= 8) {
        const auto u = static_cast<int>(b & 0xFF);
        out[k] = static_cast<float>((u >= 179) - (u < 77)) * scale_;
      }
    }
  }
  float value(uint64_t i) const {
    switch (role_) {
      case Role::kNorm:
        return 1 + sigma_ * random_.normal(i);
      case Role::kDecay:
        return -std::exp(random_.uniform(i) * std::log(16.0f));  // A in 1..16
      case Role::kStepBias:
        return -6.5f + 4 * random_.uniform(i);  // softplus: steps of 0.0015 .. 0.08
      case Role::kDivisors:
        return 1 + 7 * static_cast<float>(i) / static_cast<float>(length_);
      case Role::kScale:
        return 0.75f + 0.5f * random_.uniform(i);
      default:
        return sigma_ * random_.normal(i);
    }
  }

  Random random_;
  Role role_;
  int64_t length_;
  bool ternary_;
  float sigma_, scale_;
};

const quant::Format& encoder_of(TensorType type) {
  const quant::Format* f = quant::find_format(type);
  if (f && f->encode) return *f;
  std::string known;
  for (const quant::Format& k : quant::formats()) {
    if (k.encode) known += (known.empty() ? "" : ", ") + std::string(type_info(k.type).name);
  }
  fail(ErrorCode::kUnsupported, "there is no encoder for {}; there is one for {}", type_info(type).name, known);
}

class ModelWriter {
 public:
  ModelWriter(gguf::Writer& file, const Options& o)
      : file_(file), options_(o), pool_(o.threads > 0 ? o.threads : default_threads()) {}

  void write(const Tensor& t, const Shape& shape, TensorType type, int64_t weights, uint64_t total) {
    const quant::Format& format = encoder_of(type);
    const Source source(t, shape, format.ternary, options_.seed);
    const Blocks blocks{type_info(type)};
    const int64_t tiles = (weights + kTile - 1) / kTile;
    const bool tiled = format.ternary && tiles > kPatterns;
    if (tiled) encode(source, format, blocks, 0, kPatterns * kTile, patterns_);
    for (int64_t at = 0; at < weights; at += kChunk * kChunksAtOnce) {
      const int64_t n = std::min(weights - at, kChunk * kChunksAtOnce);
      tiled ? copy_patterns(source, blocks, at, n) : encode(source, format, blocks, at, n, bytes_);
      append(bytes_, total);
    }
    if (blocks.info.tail_bytes == 0) return;
    std::vector<std::byte> tail(blocks.info.tail_bytes);
    const float scale = source.tensor_scale();
    std::memcpy(tail.data(), &scale, sizeof scale);
    append(tail, total);
  }

  uint64_t done() const { return done_; }

 private:
  struct Blocks {
    const TypeInfo& info;
    size_t bytes(int64_t n) const { return static_cast<size_t>(n / info.block_elements * info.block_bytes); }
  };

  /// The weights [first, first + n), drawn and encoded.
  void encode(const Source& source, const quant::Format& format, const Blocks& blocks, int64_t first, int64_t n,
              std::vector<std::byte>& out) {
    out.resize(blocks.bytes(n));
    pool_.run({static_cast<uint32_t>(ceil_div(n, kChunk))}, [&](uint32_t begin, uint32_t end, int) {
      std::vector<float> values;
      for (int64_t c = begin * kChunk; c < std::min(n, end * kChunk); c += kChunk) {
        values.resize(static_cast<size_t>(std::min(n - c, kChunk)));
        source.draw(first + c, values);
        format.encode(values.data(), out.data() + blocks.bytes(c), static_cast<int64_t>(values.size()),
                      source.tensor_scale());
      }
    });
  }

  /// The weights [first, first + n), a random pattern a tile.
  void copy_patterns(const Source& source, const Blocks& blocks, int64_t first, int64_t n) {
    bytes_.resize(blocks.bytes(n));
    for (int64_t at = 0; at < n; at += kTile) {
      const auto pattern = static_cast<int64_t>(source.choose((first + at) / kTile, kPatterns));
      std::memcpy(bytes_.data() + blocks.bytes(at), patterns_.data() + blocks.bytes(pattern * kTile),
                  blocks.bytes(std::min(kTile, n - at)));
    }
  }

  void append(std::span<const std::byte> bytes, uint64_t total) {
    file_.write_data(bytes);
    done_ += bytes.size();
    if (options_.progress) options_.progress(done_, total);
  }

  gguf::Writer& file_;
  const Options& options_;
  ThreadPool pool_;
  std::vector<std::byte> bytes_, patterns_;
  uint64_t done_ = 0;
};

}  // namespace

Report write_model(const std::string& path, const Shape& shape, const Options& o) {
  const std::vector<Tensor> tensors = tensors_of(shape);
  gguf::Metadata keys;
  set_keys(keys, shape, tensors, o.seed);
  set_vocabulary(keys, shape.pre, shape.vocab);
  if (o.edit_keys) o.edit_keys(keys);

  gguf::Writer file(path, keys);
  Report report{.tensors = tensors.size()};
  std::vector<int64_t> weights;
  for (const Tensor& t : tensors) {
    const TensorType type = type_of(t, shape, o);
    encoder_of(type);  // refuse before the file is begun
    std::array<int64_t, 4> ne{1, 1, 1, 1};
    std::copy(t.ne.begin(), t.ne.end(), ne.begin());
    file.add_tensor(t.name, type, t.ne);
    weights.push_back(ne[0] * ne[1] * ne[2] * ne[3]);
    report.weights += static_cast<uint64_t>(weights.back());
    report.bytes += gguf::tensor_bytes(type, ne);
  }
  ModelWriter writer(file, o);
  for (size_t i = 0; i < tensors.size(); ++i)
    writer.write(tensors[i], shape, type_of(tensors[i], shape, o), weights[i], report.bytes);
  CHECK(writer.done() == report.bytes, "{} of {} bytes", writer.done(), report.bytes);
  file.finish();
  return report;
}

}  // namespace tern::synth
