#include "backend/ref/ref_ops.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/float16.h"
#include "quant/activation.h"
#include "quant/hadamard.h"
#include "quant/q4_0.h"
#include "quant/q8_0.h"

namespace tern::ref {
namespace {

double sigmoid(double x) {
  return 1.0 / (1.0 + std::exp(-x));
}
double silu(double x) {
  return x * sigmoid(x);
}
double softplus(double x) {
  return x > 20 ? x : std::log1p(std::exp(x));
}

size_t size_of(int64_t n) {
  return static_cast<size_t>(n);
}

/// Running f32 sums of every kLanes-th product, added by halves in the end: a vector register of llama.cpp's.
template <size_t kLanes>
struct LaneSums {
  float lane[kLanes] = {};
  void add(size_t i, float a, float b) {
    float& sum = lane[i % kLanes];
    sum = std::fma(a, b, sum);
  }
  float total() {
    for (size_t half = kLanes / 2; half > 0; half /= 2) {
      for (size_t i = 0; i < half; ++i) lane[i] += lane[i + half];
    }
    return lane[0];
  }
};

}  // namespace

void RefWeight::decode_row(int64_t r, std::vector<float>& out) const {
  out.resize(size_of(cols));
  format->decode(bytes.data() + size_of(r) * row_bytes, out.data(), cols, tensor_scale);
}

std::vector<double> RefWeight::decode_all() const {
  std::vector<double> all;
  std::vector<float> row;
  for (int64_t r = 0; r < rows; ++r) {
    decode_row(r, row);
    all.insert(all.end(), row.begin(), row.end());
  }
  return all;
}

void rms_norm(Row x, Row weight, float eps, MutRow out, Precision precision) {
  for (size_t at = 0; at < x.size(); at += weight.size()) {
    double sum = 0;
    for (size_t i = 0; i < weight.size(); ++i) sum += x[at + i] * x[at + i];
    const double mean = sum / static_cast<double>(weight.size());
    if (precision == Precision::kF32) {
      const float scale = 1.0f / std::sqrt(static_cast<float>(mean) + eps);
      for (size_t i = 0; i < weight.size(); ++i) {
        out[at + i] = static_cast<float>(x[at + i]) * scale * static_cast<float>(weight[i]);
      }
      continue;
    }
    const double scale = 1.0 / std::sqrt(mean + eps);
    for (size_t i = 0; i < weight.size(); ++i) out[at + i] = x[at + i] * scale * weight[i];
  }
}

void l2_norm(Row x, int64_t group, float eps, MutRow out) {
  for (size_t at = 0; at < x.size(); at += size_of(group)) {
    double sum = 0;
    for (size_t i = 0; i < size_of(group); ++i) sum += x[at + i] * x[at + i];
    const double norm = std::max(std::sqrt(sum), static_cast<double>(eps));
    for (size_t i = 0; i < size_of(group); ++i) out[at + i] = x[at + i] / norm;
  }
}

void glu(Gate gate, Row a, Row b, MutRow out) {
  for (size_t i = 0; i < b.size(); ++i) {
    const double g = a[a.size() == 1 ? 0 : i];
    double value = 0;
    switch (gate) {
      case Gate::kSilu:
        value = silu(g);
        break;
      case Gate::kSigmoid:
        value = sigmoid(g);
        break;
      case Gate::kRelu2:
        value = g > 0 ? g * g : 0;
        break;
    }
    out[i] = value * b[i];
  }
}

void rope(const RopeTable& table, int64_t head_dim, int32_t position, MutRow x) {
  const size_t half = table.freq.size();
  for (size_t head = 0; head < x.size(); head += size_of(head_dim)) {
    for (size_t i = 0; i < half; ++i) {
      const double angle = position * table.freq[i];
      const double c = std::cos(angle) * table.magnitude, s = std::sin(angle) * table.magnitude;
      double& a = x[head + (table.neox ? i : 2 * i)];
      double& b = x[head + (table.neox ? i + half : 2 * i + 1)];
      const double ra = a * c - b * s, rb = a * s + b * c;
      a = ra;
      b = rb;
    }
  }
}

void take(const TakeArgs& args, Row x, MutRow out) {
  double* to = out.data();
  for (size_t chunk = 0; chunk < x.size(); chunk += size_of(args.stride)) {
    const Row part = x.subspan(chunk + size_of(args.offset), size_of(args.width));
    to = std::copy(part.begin(), part.end(), to);
  }
}

void rotate(const RotateArgs& args, std::span<const float> signs, MutRow x, Precision precision) {
  const auto turn = [&](auto part) {
    args.inverse ? quant::unrotate(part, signs, args.block) : quant::rotate(part, signs, args.block);
  };
  for (size_t at = 0; at < x.size(); at += size_of(args.width)) {
    const MutRow part = x.subspan(at, size_of(args.width));
    if (precision == Precision::kF64) {
      turn(part);
      continue;
    }
    std::vector<float> f(part.begin(), part.end());  // the butterfly is defined bit for bit in f32
    turn(std::span<float>(f));
    std::copy(f.begin(), f.end(), part.begin());
  }
}

void permute_heads(const PermuteHeadsArgs& args, Row x, MutRow out) {
  const size_t n_k = size_of(args.k_heads), rep = size_of(args.rep), dim = size_of(args.head_dim);
  for (size_t i = 0; i < x.size(); ++i) {
    const size_t head = i / dim % (n_k * rep);
    out[i - head * dim + (head / n_k + rep * (head % n_k)) * dim] = x[i];
  }
}

void router(const RouterArgs& args, Row logits, int32_t* ids, MutRow weights) {
  std::vector<int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int32_t a, int32_t b) { return logits[size_of(a)] > logits[size_of(b)]; });
  const double top = logits[size_of(order[0])];
  double all = 0, chosen = 0;
  for (const double l : logits) all += std::exp(l - top);
  for (int32_t j = 0; j < args.used; ++j) chosen += std::exp(logits[size_of(order[size_of(j)])] - top);
  for (int32_t j = 0; j < args.used; ++j) {
    ids[j] = order[size_of(j)];
    weights[size_of(j)] = std::exp(logits[size_of(ids[j])] - top) / (args.normalise ? chosen : all) * args.scale;
  }
}

void conv_silu(const ConvArgs& args, Row kernel, Row u, MutRow history, MutRow out) {
  const size_t channels = u.size(), taps = size_of(args.taps);
  for (size_t c = 0; c < channels; ++c) {
    double sum = 0;
    for (size_t t = 0; t + 1 < taps; ++t) sum += static_cast<double>(kernel[c * taps + t]) * history[t * channels + c];
    sum += static_cast<double>(kernel[c * taps + taps - 1]) * u[c];
    out[c] = silu(sum);
  }
  std::copy(history.begin() + static_cast<std::ptrdiff_t>(channels), history.end(), history.begin());
  std::copy(u.begin(), u.end(), history.end() - static_cast<std::ptrdiff_t>(channels));
}

void delta_rule(const DeltaRuleArgs& args, const DeltaRow& in, MutRow s, MutRow out) {
  const size_t dim = size_of(args.head_dim);
  for (size_t h = 0; h < size_of(args.v_heads); ++h) {
    const Row q = in.q.subspan(h % size_of(args.k_heads) * dim, dim),
              k = in.k.subspan(h % size_of(args.k_heads) * dim, dim);
    const double decay = std::exp(in.a[h] * softplus(static_cast<double>(in.alpha[h]) + in.dt[h]));
    const double beta = sigmoid(in.beta[h]);
    for (size_t j = 0; j < dim; ++j) {
      const MutRow row = s.subspan((h * dim + j) * dim, dim);
      double memory = 0, read = 0;
      for (size_t i = 0; i < dim; ++i) {
        row[i] = row[i] * decay;
        memory += row[i] * k[i];
      }
      const double delta = (in.v[h * dim + j] - memory) * beta;
      for (size_t i = 0; i < dim; ++i) {
        row[i] = row[i] + delta * k[i];
        read += row[i] * q[i];
      }
      out[h * dim + j] = read / std::sqrt(static_cast<double>(dim));
    }
  }
}

namespace {

/// out[i] = sum over t of softmax(scores)[t] * v[t][from + i]. `scores` is overwritten.
void weigh_values(MutRow scores, std::span<const double* const> v, size_t from, MutRow out) {
  const double top = *std::max_element(scores.begin(), scores.end());
  double total = 0;
  for (double& s : scores) total += s = std::exp(s - top);
  std::fill(out.begin(), out.end(), 0.0);
  for (size_t t = 0; t < v.size(); ++t) {
    for (size_t i = 0; i < out.size(); ++i) out[i] += scores[t] * v[t][from + i];
  }
  for (double& o : out) o /= total;
}

void weigh_values_f32(MutRow scores, std::span<const double* const> v, size_t from, MutRow out) {
  const auto top = static_cast<float>(*std::max_element(scores.begin(), scores.end()));
  double total = 0;
  for (double& s : scores) total += s = std::exp(static_cast<float>(s) - top);
  const auto scale = static_cast<float>(1.0 / total);
  for (size_t i = 0; i < out.size(); ++i) {
    LaneSums<16> sum;
    for (size_t t = 0; t < v.size(); ++t) {
      sum.add(t, static_cast<float>(scores[t]) * scale, static_cast<float>(v[t][from + i]));
    }
    out[i] = sum.total();
  }
}

}  // namespace

void attend(const AttendArgs& args, Row q, std::span<const double* const> k, std::span<const double* const> v,
            MutRow out, Precision precision) {
  const size_t dk = size_of(args.head_dim_k), dv = size_of(args.head_dim_v);
  std::vector<double> scores(k.size());
  for (size_t h = 0; h < size_of(args.heads); ++h) {
    const size_t kv = h / size_of(args.heads / args.kv_heads);
    for (size_t t = 0; t < k.size(); ++t) {
      double dot = 0;
      for (size_t i = 0; i < dk; ++i) dot += q[h * dk + i] * k[t][kv * dk + i];
      scores[t] = dot * args.scale;
    }
    const auto weigh = precision == Precision::kF32 ? weigh_values_f32 : weigh_values;
    weigh(scores, v, kv * dv, out.subspan(h * dv, dv));
  }
}

namespace {

/// Nearest integer, halves to even, within int8.
int8_t round_i8(double v) {
  return static_cast<int8_t>(std::clamp(std::nearbyint(v), -128.0, 127.0));
}

double magnitude(Row x) {
  double top = 0;
  for (const double v : x) top = std::max(top, std::abs(v));
  return top;
}

RoundedRow round_row_f64(quant::Activation rule, Row x) {
  RoundedRow r{.q = std::vector<int8_t>(x.size()), .values = std::vector<double>(x.size()), .scales = {}};
  if (rule == quant::Activation::kI8Row) {
    r.row_scale = 127.0 / std::max(1e-5, magnitude(x));
    for (size_t i = 0; i < x.size(); ++i) {
      r.q[i] = round_i8(x[i] * r.row_scale);
      r.values[i] = r.q[i] / r.row_scale;
    }
    return r;
  }
  const size_t group = size_of(quant::activation_group(rule, static_cast<int64_t>(x.size())));
  for (size_t begin = 0; begin < x.size(); begin += group) {
    const size_t end = std::min(begin + group, x.size());
    const double amax = magnitude(x.subspan(begin, end - begin));
    double scale = amax / 127.0;
    if (rule == quant::Activation::kI8x32) scale = quant::half_scale(static_cast<float>(scale));
    for (size_t i = begin; i < end; ++i) {
      r.q[i] = amax == 0 ? int8_t{0} : round_i8(x[i] * (127.0 / amax));
      r.values[i] = r.q[i] * scale;
    }
  }
  return r;
}

RoundedRow round_row_f32(quant::Activation rule, Row x) {
  const std::vector<float> f(x.begin(), x.end());
  const auto cols = static_cast<int64_t>(x.size());
  const int64_t group = quant::activation_group(rule, cols);
  RoundedRow r{.q = std::vector<int8_t>(x.size()),
               .values = std::vector<double>(x.size()),
               .scales = std::vector<float>(size_of((cols + group - 1) / group))};
  quant::quantize_row(rule, f, r.q.data(), r.scales.data());
  r.row_scale = r.scales[0];
  for (size_t i = 0; i < x.size(); ++i) {
    const double s = r.scales[i / size_of(group)];
    r.values[i] = rule == quant::Activation::kI8Row ? r.q[i] / s : r.q[i] * s;
  }
  return r;
}

/// Four running sums: the order is fixed, and the compiler may keep them in vector registers.
double dot(const float* w, const double* x, size_t n) {
  double sum[4] = {};
  size_t i = 0;
  for (; i + 4 <= n; i += 4) {
    for (size_t j = 0; j < 4; ++j) sum[j] += w[i + j] * x[i + j];
  }
  for (; i < n; ++i) sum[0] += w[i] * x[i];
  return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

/// One Q8_0 row times kI8x32 activations in f32: the integers of four columns are a lane's.
float q8_0_dot(const quant::BlockQ8_0* blocks, const RoundedRow& x) {
  LaneSums<8> sum;
  for (size_t b = 0; b < x.scales.size(); ++b) {
    const float scale = f16_to_f32(blocks[b].d) * x.scales[b];
    for (size_t lane = 0; lane < 8; ++lane) {
      int32_t integers = 0;
      for (size_t i = 4 * lane; i < 4 * lane + 4; ++i) integers += blocks[b].qs[i] * x.q[32 * b + i];
      sum.add(lane, scale, static_cast<float>(integers));
    }
  }
  return sum.total();
}

}  // namespace

RoundedRow round_row(quant::Activation rule, Precision precision, Row x) {
  if (rule == quant::Activation::kF32) return {.q = {}, .values = {x.begin(), x.end()}, .scales = {}};
  return precision == Precision::kF32 ? round_row_f32(rule, x) : round_row_f64(rule, x);
}

void matmul(const RefWeight& w, int64_t first_row, std::span<const RoundedRow> x, std::span<const MutRow> y,
            Precision precision) {
  // BitNet's definition divides and multiplies in f32, in this order, after an exact integer sum (docs/formats.md).
  const bool bitnet_f32 =
      w.format->type == TensorType::I2_S && w.rule == quant::Activation::kI8Row && precision == Precision::kF32;
  const bool q8_0_f32 =
      w.format->type == TensorType::Q8_0 && w.rule == quant::Activation::kI8x32 && precision == Precision::kF32;
  std::vector<float> row(size_of(w.cols));
  for (size_t i = 0; i < y[0].size(); ++i) {
    const std::byte* blocks = w.bytes.data() + (size_of(first_row) + i) * w.row_bytes;
    if (q8_0_f32) {
      for (size_t r = 0; r < x.size(); ++r) {
        y[r][i] = q8_0_dot(reinterpret_cast<const quant::BlockQ8_0*>(blocks), x[r]);
      }
      continue;
    }
    w.format->decode(blocks, row.data(), w.cols, bitnet_f32 ? 1.0f : w.tensor_scale);
    for (size_t r = 0; r < x.size(); ++r) {
      if (bitnet_f32) {
        int64_t sum = 0;
        for (size_t c = 0; c < row.size(); ++c) sum += static_cast<int64_t>(row[c]) * x[r].q[c];
        y[r][i] = static_cast<float>(sum) / static_cast<float>(x[r].row_scale) * w.tensor_scale;
      } else {
        y[r][i] = dot(row.data(), x[r].values.data(), row.size());
      }
    }
  }
}

namespace {

template <typename Block>
void round_blocks(MutRow x) {
  float values[Block::kElements];
  for (size_t i = 0; i < x.size(); i += Block::kElements) {
    const MutRow part = x.subspan(i, Block::kElements);
    std::transform(part.begin(), part.end(), values, [](double v) { return static_cast<float>(v); });
    Block block;
    quant::encode_block(values, block);
    quant::decode_block(block, values);
    std::copy(values, values + Block::kElements, part.begin());
  }
}

/// 32 elements `step` apart as codes 0..top: x = least + code * d, d = (most - least) / top, both in f16; nearest,
/// halves up.
void round_group(const double* x, double* out, size_t step, float top) {
  float lo = static_cast<float>(x[0]), hi = lo;
  for (size_t i = 0; i < 32; ++i) {
    lo = std::min(lo, static_cast<float>(x[i * step]));
    hi = std::max(hi, static_cast<float>(x[i * step]));
  }
  const float d = f16_to_f32(f32_to_f16((hi - lo) / top)), least = f16_to_f32(f32_to_f16(lo));
  const float inverse = d > 0 ? 1.0f / d : 0.0f;
  for (size_t i = 0; i < 32; ++i) {
    const float code = std::floor((static_cast<float>(x[i * step]) - least) * inverse + 0.5f);
    out[i * step] = static_cast<double>(std::clamp(code, 0.0f, top)) * d + least;
  }
}

float top_code(KvType type) {
  return static_cast<float>((1 << kivi_bits(type)) - 1);
}

}  // namespace

void round_kivi_keys(KvType type, Row exact, int64_t cols, MutRow out) {
  const size_t n = size_of(cols);
  for (size_t row = 0; row < exact.size() / n; row += 32) {
    for (size_t c = 0; c < n; ++c) round_group(&exact[row * n + c], &out[row * n + c], n, top_code(type));
  }
}

void round_kivi_values(KvType type, Row exact, MutRow out) {
  for (size_t i = 0; i < exact.size(); i += 32) round_group(&exact[i], &out[i], 1, top_code(type));
}

void round_value(KvType type, MutRow x) {
  switch (type) {
    case KvType::kF32:
      return;
    case KvType::kF16:
    case KvType::kKivi:
    case KvType::kKivi4:  // of tokens in the page of the query
      for (double& v : x) v = f16_to_f32(f32_to_f16(static_cast<float>(v)));
      return;
    case KvType::kQ8_0:
      return round_blocks<quant::BlockQ8_0>(x);
    case KvType::kQ4_0:
      return round_blocks<quant::BlockQ4_0>(x);
  }
}

void round_key(KvType type, int64_t head_dim, MutRow x) {
  if (type != KvType::kQ4_0) return round_value(type, x);
  const int64_t block = head_dim & -head_dim;
  std::vector<float> rotated(x.begin(), x.end());
  quant::walsh_hadamard(rotated, block);
  std::copy(rotated.begin(), rotated.end(), x.begin());
  round_value(type, x);
  quant::rotate(x, {}, block);  // the transform is its own inverse
}

}  // namespace tern::ref
