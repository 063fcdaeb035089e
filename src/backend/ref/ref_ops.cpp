#include "backend/ref/ref_ops.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/float16.h"
#include "quant/activation.h"
#include "quant/hadamard.h"
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

}  // namespace

void RefWeight::decode_row(int64_t r, std::vector<float>& out) const {
  out.resize(size_of(cols));
  format->decode(bytes.data() + size_of(r) * row_bytes, out.data(), cols, tensor_scale);
}

std::vector<float> RefWeight::decode_all() const {
  std::vector<float> all, row;
  for (int64_t r = 0; r < rows; ++r) {
    decode_row(r, row);
    all.insert(all.end(), row.begin(), row.end());
  }
  return all;
}

void rms_norm(Row x, Row weight, float eps, MutRow out) {
  for (size_t at = 0; at < x.size(); at += weight.size()) {
    double sum = 0;
    for (size_t i = 0; i < weight.size(); ++i) sum += static_cast<double>(x[at + i]) * x[at + i];
    const double scale = 1.0 / std::sqrt(sum / static_cast<double>(weight.size()) + eps);
    for (size_t i = 0; i < weight.size(); ++i) out[at + i] = static_cast<float>(x[at + i] * scale * weight[i]);
  }
}

void l2_norm(Row x, int64_t group, float eps, MutRow out) {
  for (size_t at = 0; at < x.size(); at += size_of(group)) {
    double sum = 0;
    for (size_t i = 0; i < size_of(group); ++i) sum += static_cast<double>(x[at + i]) * x[at + i];
    const double norm = std::max(std::sqrt(sum), static_cast<double>(eps));
    for (size_t i = 0; i < size_of(group); ++i) out[at + i] = static_cast<float>(x[at + i] / norm);
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
    out[i] = static_cast<float>(value * b[i]);
  }
}

void rope(const RopeTable& table, int64_t head_dim, int32_t position, MutRow x) {
  const size_t half = table.freq.size();
  for (size_t head = 0; head < x.size(); head += size_of(head_dim)) {
    for (size_t i = 0; i < half; ++i) {
      const double angle = position * table.freq[i];
      const double c = std::cos(angle) * table.magnitude, s = std::sin(angle) * table.magnitude;
      float& a = x[head + (table.neox ? i : 2 * i)];
      float& b = x[head + (table.neox ? i + half : 2 * i + 1)];
      const double ra = a * c - b * s, rb = a * s + b * c;
      a = static_cast<float>(ra);
      b = static_cast<float>(rb);
    }
  }
}

void take(const TakeArgs& args, Row x, MutRow out) {
  float* to = out.data();
  for (size_t chunk = 0; chunk < x.size(); chunk += size_of(args.stride)) {
    const Row part = x.subspan(chunk + size_of(args.offset), size_of(args.width));
    to = std::copy(part.begin(), part.end(), to);
  }
}

void rotate(const RotateArgs& args, Row signs, MutRow x) {
  for (size_t at = 0; at < x.size(); at += size_of(args.width)) {
    const MutRow part = x.subspan(at, size_of(args.width));
    if (args.inverse) {
      quant::unrotate(part, signs, args.block);
    } else {
      quant::rotate(part, signs, args.block);
    }
  }
}

void permute_heads(const PermuteHeadsArgs& args, Row x, MutRow out) {
  quant::tiled_to_grouped({.k_heads = args.k_heads, .repeat = args.rep, .head_dim = args.head_dim}, x, out);
}

void router(const RouterArgs& args, Row logits, int32_t* ids, MutRow weights) {
  std::vector<int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int32_t a, int32_t b) { return logits[size_of(a)] > logits[size_of(b)]; });
  const double top = logits[size_of(order[0])];
  double all = 0, chosen = 0;
  for (const float l : logits) all += std::exp(l - top);
  for (int32_t j = 0; j < args.used; ++j) chosen += std::exp(logits[size_of(order[size_of(j)])] - top);
  for (int32_t j = 0; j < args.used; ++j) {
    ids[j] = order[size_of(j)];
    weights[size_of(j)] =
        static_cast<float>(std::exp(logits[size_of(ids[j])] - top) / (args.normalise ? chosen : all) * args.scale);
  }
}

void conv_silu(const ConvArgs& args, Row kernel, Row u, MutRow history, MutRow out) {
  const size_t channels = u.size(), taps = size_of(args.taps);
  for (size_t c = 0; c < channels; ++c) {
    double sum = 0;
    for (size_t t = 0; t + 1 < taps; ++t) sum += static_cast<double>(kernel[c * taps + t]) * history[t * channels + c];
    sum += static_cast<double>(kernel[c * taps + taps - 1]) * u[c];
    out[c] = static_cast<float>(silu(sum));
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
        row[i] = static_cast<float>(row[i] * decay);
        memory += static_cast<double>(row[i]) * k[i];
      }
      const double delta = (in.v[h * dim + j] - memory) * beta;
      for (size_t i = 0; i < dim; ++i) {
        row[i] = static_cast<float>(row[i] + delta * k[i]);
        read += static_cast<double>(row[i]) * q[i];
      }
      out[h * dim + j] = static_cast<float>(read / std::sqrt(static_cast<double>(dim)));
    }
  }
}

void attend(const AttendArgs& args, Row q, std::span<const float* const> k, std::span<const float* const> v,
            MutRow out) {
  const size_t dk = size_of(args.head_dim_k), dv = size_of(args.head_dim_v);
  std::vector<double> p(k.size()), sum(dv);
  for (size_t h = 0; h < size_of(args.heads); ++h) {
    const size_t kv = h / size_of(args.heads / args.kv_heads);
    double top = -INFINITY, total = 0;
    for (size_t t = 0; t < k.size(); ++t) {
      double dot = 0;
      for (size_t i = 0; i < dk; ++i) dot += static_cast<double>(q[h * dk + i]) * k[t][kv * dk + i];
      p[t] = dot * args.scale;
      top = std::max(top, p[t]);
    }
    std::fill(sum.begin(), sum.end(), 0.0);
    for (size_t t = 0; t < k.size(); ++t) {
      const double e = std::exp(p[t] - top);
      total += e;
      for (size_t i = 0; i < dv; ++i) sum[i] += e * v[t][kv * dv + i];
    }
    for (size_t i = 0; i < dv; ++i) out[h * dv + i] = static_cast<float>(sum[i] / total);
  }
}

RoundedRow round_row(quant::Activation rule, Row x) {
  RoundedRow r;
  r.values.assign(x.begin(), x.end());
  if (rule == quant::Activation::kF32) return r;
  const auto cols = static_cast<int64_t>(x.size());
  const int64_t group = quant::activation_group(rule, cols);
  r.q.resize(x.size());
  r.scale.resize(size_of((cols + group - 1) / group));
  quant::quantize_row(rule, x, r.q.data(), r.scale.data());
  for (size_t i = 0; i < x.size(); ++i) {
    const double s = r.scale[i / size_of(group)];
    r.values[i] = rule == quant::Activation::kI8Row ? r.q[i] / s : r.q[i] * s;
  }
  return r;
}

void matvec(const RefWeight& w, int64_t first_row, const RoundedRow& x, MutRow out) {
  // BitNet's definition divides and multiplies in f32, in this order, after an exact integer sum (docs/formats.md).
  const bool bitnet = w.format->type == TensorType::I2_S && w.rule == quant::Activation::kI8Row;
  std::vector<float> row(size_of(w.cols));
  for (size_t i = 0; i < out.size(); ++i) {
    const std::byte* blocks = w.bytes.data() + size_of(first_row + static_cast<int64_t>(i)) * w.row_bytes;
    w.format->decode(blocks, row.data(), w.cols, bitnet ? 1.0f : w.tensor_scale);
    if (bitnet) {
      int64_t sum = 0;
      for (size_t c = 0; c < row.size(); ++c) sum += static_cast<int64_t>(row[c]) * x.q[c];
      out[i] = static_cast<float>(sum) / x.scale[0] * w.tensor_scale;
    } else {
      double sum = 0;
      for (size_t c = 0; c < row.size(); ++c) sum += row[c] * x.values[c];
      out[i] = static_cast<float>(sum);
    }
  }
}

void round_kv(KvType type, MutRow x) {
  if (type == KvType::kF16) {
    for (float& f : x) f = f16_to_f32(f32_to_f16(f));
  } else if (type == KvType::kQ8_0) {
    for (size_t i = 0; i < x.size(); i += 32) {
      quant::BlockQ8_0 block;
      quant::encode_block(x.data() + i, block);
      quant::decode_block(block, x.data() + i);
    }
  }
}

}  // namespace tern::ref
