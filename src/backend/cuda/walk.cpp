#include "backend/cuda/walk.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "backend/cuda/readings.h"
#include "backend/placement.h"
#include "base/checked.h"
#include "base/error.h"

namespace tern::cuda {
namespace {

constexpr int64_t kAlign = 256;
constexpr int64_t kMostRotation = 4096;  // block that prepare() takes
constexpr int64_t kTileRows = 16;        // rows of a sequence, on average, from which tiles of queries pay
constexpr int64_t kDeltaChunkRows = 32;  // from which the delta rule takes several tokens at a time

/// Parts of a row's context, so that a few rows fill the GPU: about a block a multiprocessor.
int64_t attend_parts(const AttendShape& shape, int64_t rows, int multiprocessors) {
  const int64_t blocks = rows * attend_counters(shape, 1);
  return std::clamp<int64_t>(ceil_div<int64_t>(multiprocessors, blocks), 1, kMostParts);
}

/// Writes the nodes of every op in plan order.
class Expander {
 public:
  Expander(const Plan& plan, const Weights& weights, const Tables& tables, const WalkOptions& options, Walk& walk)
      : plan_(plan),
        weights_(weights),
        tables_(tables),
        options_(options),
        readings_(
            plan, [&](Weight w) { return weights.rule(w) != quant::Activation::kF32; }, options.fuse),
        few_rows_(std::ranges::any_of(plan.ops,
                                      [](const Op& op) { return std::holds_alternative<ExpertLinearArgs>(op.args); })
                      ? kFewRowsOfExperts
                      : kFewRows),
        w_(walk) {
    for (const ValInfo& v : plan.vals) w_.buffers.push_back({.row_bytes = v.cols * 4, .outputs = v.outputs_only});
    for (size_t i = 0; i < plan.ops.size(); ++i) {
      w_.fused_into.push_back(readings_.done_by(i));
      done_.push_back(readings_.absorbed(i));
    }
  }

  void expand() {
    for (size_t i = 0; i < plan_.ops.size(); ++i) {
      if (done_[i]) continue;
      op_ = static_cast<int32_t>(i);
      const Op& op = plan_.ops[i];
      std::visit([&](const auto& args) { add(op, args); }, op.args);
    }
    if (plan_.n_tokens > 0) add_shortlists();
  }

 private:
  using Run = std::function<void(const Launch&)>;

  int32_t buffer(int64_t row_bytes, bool outputs, int64_t fixed_bytes = 0) {
    w_.buffers.push_back({.row_bytes = row_bytes, .fixed_bytes = fixed_bytes, .outputs = outputs});
    return static_cast<int32_t>(w_.buffers.size()) - 1;
  }
  void push(std::vector<int32_t> reads, std::vector<int32_t> writes, Run run) {
    w_.nodes.push_back({.op = op_, .reads = std::move(reads), .writes = std::move(writes), .run = std::move(run)});
  }
  void push(const Op& op, Run run) {
    std::vector<int32_t> reads, writes{op.out.id};
    for (const Val v : op.inputs) reads.push_back(v.id);
    if (op.out2) writes.push_back(op.out2.id);
    push(std::move(reads), std::move(writes), std::move(run));
  }
  /// Of the node pushed last.
  void describe(LinkPart part, bool of_outputs, std::function<void(const Launch&, Link&)> by) {
    w_.nodes.back().part = part;
    w_.nodes.back().of_outputs = of_outputs;
    w_.nodes.back().describe = std::move(by);
  }
  bool outputs(Val v) const { return plan_.info(v).outputs_only; }
  int64_t cols(Val v) const { return plan_.info(v).cols; }
  int64_t most_rows(bool of_outputs) const { return of_outputs ? options_.limits.outputs : options_.limits.rows; }

  void add(const Op& op, const EmbedArgs& a) {
    const DeviceMatrix& table = weights_.matrix(a.table);
    push(op, [&table, out = op.out.id](const Launch& l) {
      lookup_rows(l.stream, table, l.step.tokens, l.rows, l.at(out));
    });
  }
  void add(const Op& op, const InputArgs&) {
    push(op, [](const Launch&) {});  // CudaProgram::begin() brings it
  }
  void add(const Op& op, const RmsNormArgs& a) {
    const float* weight = weights_.vector(a.weight);
    push(op, [weight, a, x = op.inputs[0].id, out = op.out.id, per_row = cols(op.out) / a.group,
              o = outputs(op.out)](const Launch& l) {
      rms_norm(l.stream, l.at(x), weight, a.eps, {l.rows_of(o) * per_row, a.group}, l.at(out));
    });
  }
  void add(const Op& op, const L2NormArgs& a) {
    push(op, [a, x = op.inputs[0].id, out = op.out.id, per_row = cols(op.out) / a.group,
              o = outputs(op.out)](const Launch& l) {
      l2_norm(l.stream, l.at(x), a.eps, {l.rows_of(o) * per_row, a.group}, l.at(out));
    });
  }
  void add(const Op& op, const AddArgs&) {
    push(op, [x = op.inputs[0].id, y = op.inputs[1].id, out = op.out.id, n = cols(op.out), o = outputs(op.out)](
                 const Launch& l) { tern::cuda::add(l.stream, l.at(x), l.at(y), l.rows_of(o) * n, l.at(out)); });
  }
  void add(const Op& op, const GluArgs& a) {
    push(op, [kind = static_cast<int>(a.gate), x = op.inputs[0].id, y = op.inputs[1].id, out = op.out.id,
              gate_cols = cols(op.inputs[0]), n = cols(op.out), o = outputs(op.out)](const Launch& l) {
      glu(l.stream, kind, l.at(x), l.at(y), l.rows_of(o), n, gate_cols, l.at(out));
    });
    if (cols(op.inputs[0]) != cols(op.out)) return;
    describe(
        LinkPart::kGlu, outputs(op.out),
        [kind = static_cast<int>(a.gate), gate = op.inputs[0].id, x = op.inputs[1].id](const Launch& l, Link& link) {
          link.glu_gate = l.at(gate);
          link.glu_kind = kind;
          link.source.x = l.at(x);
        });
  }
  /// The angles of the Step's rows under a rope table, made at first use.
  int32_t angles_of(int32_t table) {
    const RopeTable& t = plan_.ropes[static_cast<size_t>(table)];
    const auto pairs = static_cast<int64_t>(t.freq.size());
    int32_t& angles = angles_.emplace(table, -1).first->second;
    if (angles < 0) {
      angles = buffer(pairs * 8, false);
      push({}, {angles},
           [freq = tables_.freqs[static_cast<size_t>(table)], pairs, magnitude = t.magnitude,
            out = angles](const Launch& l) {
             rope_angles(l.stream, freq, pairs, magnitude, l.step.positions, l.rows, l.at<float2>(out));
           });
    }
    return angles;
  }
  void add(const Op& op, const RopeArgs& a) {
    const RopeTable& t = plan_.ropes[static_cast<size_t>(a.table)];
    const int32_t angles = angles_of(a.table);
    push({op.inputs[0].id, angles}, {op.out.id},
         [x = op.inputs[0].id, angles, out = op.out.id, pairs = static_cast<int64_t>(t.freq.size()), a, neox = t.neox,
          n = cols(op.out)](const Launch& l) {
           const RopeShape shape{.rows = l.rows, .cols = n, .head_dim = a.head_dim, .pairs = pairs, .neox = neox};
           rope(l.stream, l.at(x), l.at<const float2>(angles), shape, l.at(out));
         });
  }
  void add(const Op& op, const TakeArgs& a) {
    push(op, [a, x = op.inputs[0].id, out = op.out.id, per_row = cols(op.out) / a.width,
              o = outputs(op.out)](const Launch& l) {
      take(l.stream, l.at(x), l.rows_of(o) * per_row, a.offset, a.width, a.stride, l.at(out));
    });
  }
  void add(const Op& op, const RotateArgs& a) {
    push(op, [r = rotation(a), a, x = op.inputs[0].id, out = op.out.id, n = cols(op.out), o = outputs(op.out)](
                 const Launch& l) { rotate(l.stream, l.at(x), l.rows_of(o), n, r, a.inverse, l.at(out)); });
  }
  void add(const Op& op, const PermuteHeadsArgs& a) {
    push(op, [a, x = op.inputs[0].id, out = op.out.id, o = outputs(op.out)](const Launch& l) {
      permute_heads(l.stream, l.at(x), l.rows_of(o), a.k_heads, a.rep, a.head_dim, l.at(out));
    });
  }
  void add(const Op& op, const PickRowsArgs&) {
    push(op, [x = op.inputs[0].id, out = op.out.id, n = cols(op.out)](const Launch& l) {
      pick_rows(l.stream, l.at(x), l.step.out_rows, l.outputs, n, l.at(out));
    });
  }

  void add_shortlists() {
    const int32_t scratch = buffer(shortlist_scratch_bytes(plan_.n_tokens), true);
    w_.chosen = buffer(kChosenBytes, true);
    push({plan_.logits.id}, {scratch, w_.chosen},
         [x = plan_.logits.id, cols = cols(plan_.logits), tokens = plan_.n_tokens, scratch,
          out = w_.chosen](const Launch& l) {
           if (!l.wishes) return;
           shortlists(l.stream, l.at(x), {.outputs = l.outputs, .cols = cols, .tokens = tokens}, l.step.wanted,
                      l.at<std::byte>(scratch), l.at<Shortlist>(out));
         });
  }

  // ---- Products ----

  Rotation rotation(const RotateArgs& a) const {
    CHECK(a.block <= kMostRotation, "a rotation over {} columns", a.block);
    return {.block = a.block,
            .width = a.width,
            .signs = a.signs < 0 ? nullptr : tables_.signs[static_cast<size_t>(a.signs)]};
  }
  struct ProductOf {
    Product product;
    int32_t out, addend = -1;
    // Of one row the product does the convolution that reads it.
    Convolution convolution{};  // but for what a Step says
    int32_t convolved = -1, state = -1;
  };
  static std::array<Product, kMaxProducts> with_addresses(const std::vector<ProductOf>& products, const Launch& l) {
    std::array<Product, kMaxProducts> all{};
    for (size_t i = 0; i < products.size(); ++i) {
      all[i] = products[i].product;
      all[i].out = l.at(products[i].out);
      if (products[i].addend >= 0) all[i].add = l.at(products[i].addend);
    }
    return all;
  }
  Product product_of(const LinearArgs& a) const {
    return {.w = &weights_.matrix(a.weight), .scale = a.scale, .bias = weights_.vector(a.bias)};
  }
  /// Activations as a product reads them.
  struct Rounded {
    int32_t buffer = -1;
    Prepared layout;  // without the address
    Prepared at(const Launch& l) const {
      Prepared p = layout;
      p.data = l.at<std::byte>(buffer);
      return p;
    }
  };
  /// x as products under `rule` read it: `copies` rows of `width` columns a row.
  const Rounded& rounded(Val x, quant::Activation rule, int64_t width) {
    const auto key = std::make_tuple(x.id, rule, width);
    if (const auto known = rounded_.find(key); known != rounded_.end()) return known->second;
    const ProductReading reading = readings_.product(x);
    const int64_t copies = cols(x) / width;
    const bool o = outputs(x);
    Rounded r{.buffer = x.id,
              .layout = {.rule = rule, .cols = width, .capacity = most_rows(o) * copies, .few = few_rows_}};
    if (rule != quant::Activation::kF32 || reading.x != x) add_prepare(x, reading, r, copies, o);
    return rounded_.emplace(key, r).first->second;
  }

  /// What the other readers of reading.plain make of it, when all of them are products of float weights that a row's
  /// launch takes along; marks them done.
  std::vector<ProductOf> products_of_plain(const ProductReading& reading) {
    std::vector<ProductOf> products;
    std::vector<Product> alone;
    std::vector<size_t> ops;
    for (const size_t i : readings_.readers(reading.plain)) {
      if (static_cast<int32_t>(i) == reading.rotate) continue;
      const auto* a = std::get_if<LinearArgs>(&plan_.ops[i].args);
      if (!a || done_[i] || readings_.residual(i)) return {};
      if (weights_.rule(a->weight) != quant::Activation::kF32) {
        if (reading.rotate < 0) continue;  // reads what is rounded
        return {};
      }
      products.push_back({product_of(*a), plan_.ops[i].out.id});
      alone.push_back(products.back().product);
      ops.push_back(i);
    }
    if (!with_norm_left(alone)) return {};
    for (const size_t i : ops) {
      done_[i] = true;
      w_.fused_into[i] = op_;
    }
    return products;
  }

  /// Makes `to`, activations of `x`, and its buffer.
  void add_prepare(Val x, const ProductReading& reading, Rounded& to, int64_t copies, bool o) {
    Rotation by;
    if (reading.rotate >= 0) by = rotation(std::get<RotateArgs>(plan_.ops[static_cast<size_t>(reading.rotate)].args));
    Source source{.x_stride = cols(reading.x) / copies,
                  .x_columns = reading.x_columns,
                  .norm = weights_.vector(reading.norm),
                  .group = static_cast<int32_t>(reading.group),
                  .eps = reading.eps,
                  .gate_stride = reading.gate ? cols(reading.gate) / copies : 0,
                  .gate_columns = reading.gate_columns,
                  .gate_kind = static_cast<int32_t>(reading.gate_kind)};
    if (reading.gate) source.gate = source.norm;  // some address
    Prepared left = leaves_norm(to.layout, source, by);
    std::vector<ProductOf> floats;
    const bool linear = std::ranges::all_of(
        readings_.readers(x), [&](size_t i) { return std::holds_alternative<LinearArgs>(plan_.ops[i].args); });
    if (left.norm_left && linear && copies == 1) {
      if (reading.plain) floats = products_of_plain(reading);
      if (!reading.plain || !floats.empty()) to.layout = left;
    }
    to.buffer = buffer(0, o, static_cast<int64_t>(prepared_bytes(to.layout)));
    std::vector<int32_t> reads{reading.x.id}, writes{to.buffer};
    if (reading.gate) reads.push_back(reading.gate.id);
    if (reading.plain) writes.push_back(reading.plain.id);
    for (const ProductOf& f : floats) writes.push_back(f.out);
    const auto source_at = [=](const Launch& l) {
      Source now = source;
      now.x = l.at(reading.x.id);
      now.gate = reading.gate ? l.at(reading.gate.id) : nullptr;
      if (reading.plain) now.plain = l.at(reading.plain.id);
      return now;
    };
    push(std::move(reads), std::move(writes), [=](const Launch& l) {
      if (l.rows_of(o) == 0) return;
      const auto all = with_addresses(floats, l);
      prepare(l.stream, source_at(l), l.rows_of(o) * copies, by, to.at(l), {all.data(), floats.size()});
    });
    if (copies != 1 || !floats.empty()) return;
    describe(LinkPart::kPrepare, o, [=](const Launch& l, Link& link) {
      const float* const glu = link.glu_gate ? link.source.x : nullptr;
      link.source = source_at(l);
      if (glu) link.source.x = glu;
      link.rotation = by;
      link.to = to.at(l);
    });
  }

  /// The ops from this one on, of its kind, that `same` says can share its launch.
  template <typename Args, typename Same>
  std::vector<int32_t> together(Same same) {
    std::vector<int32_t> ops{op_};
    for (size_t i = static_cast<size_t>(op_) + 1; options_.fuse && i < plan_.ops.size(); ++i) {
      const auto* other = std::get_if<Args>(&plan_.ops[i].args);
      if (ops.size() == kMaxProducts) break;
      if (!other || done_[i] || !same(plan_.ops[i], *other)) continue;
      done_[i] = true;
      w_.fused_into[i] = op_;
      ops.push_back(static_cast<int32_t>(i));
    }
    return ops;
  }

  /// Gives the convolution that alone reads the result of `op` to its product, where the kernels do that.
  bool take_convolution(const Op& op, const LinearArgs& a, ProductOf& product) {
    const std::vector<size_t>& readers = readings_.readers(op.out);
    if (!options_.fuse || readers.size() != 1 || product.out != op.out.id || outputs(op.out)) return false;
    const Op& reader = plan_.ops[readers.front()];
    const auto* conv = std::get_if<ConvArgs>(&reader.args);
    if (!conv || conv->taps != kConvTaps || weights_.rule(a.weight) == quant::Activation::kF32) return false;
    if (!convolves(weights_.matrix(a.weight).shape)) return false;
    product.convolution.kernel = weights_.vector(conv->kernel);
    product.convolved = reader.out.id;
    product.state = conv->state;
    convolved_.insert(readers.front());
    return true;
  }

  void add(const Op& op, const LinearArgs& a) {
    const quant::Activation rule = weights_.rule(a.weight);
    const std::vector<int32_t> ops = together<LinearArgs>([&](const Op& other, const LinearArgs& b) {
      return other.inputs[0] == op.inputs[0] && weights_.rule(b.weight) == rule;
    });
    const Rounded x = rounded(op.inputs[0], rule, cols(op.inputs[0]));
    std::vector<ProductOf> products;
    std::vector<int32_t> reads{x.buffer}, writes;
    bool convolved = false;
    for (const int32_t i : ops) {
      const Op& each = plan_.ops[static_cast<size_t>(i)];
      const auto& b = std::get<LinearArgs>(each.args);
      products.push_back({product_of(b), each.out.id});
      if (const auto residual = readings_.residual(static_cast<size_t>(i))) {
        products.back().out = residual->out.id;
        products.back().addend = residual->addend.id;
        reads.push_back(residual->addend.id);
      }
      writes.push_back(products.back().out);
      if (!convolved && take_convolution(each, b, products.back())) {
        convolved = true;
        writes.push_back(products.back().convolved);
      }
    }
    push(std::move(reads), writes, [x, products, o = outputs(op.out)](const Launch& l) {
      const int64_t rows = l.rows_of(o);
      auto all = with_addresses(products, l);
      for (size_t i = 0; rows == 1 && i < products.size(); ++i) {
        const ProductOf& p = products[i];
        if (p.state < 0) continue;
        const StateView& view = l.cache->state(p.state);
        all[i].convolution = {p.convolution.kernel, l.step.seqs, view.conv, view.conv_floats};
        all[i].out = l.at(p.convolved);
      }
      if (rows > 0) multiply(l.stream, {all.data(), products.size()}, x.at(l), rows, l.workspace);
    });
    if (convolved) return;  // no link of a chain
    describe(LinkPart::kProduct, outputs(op.out), [products](const Launch& l, Link& link) {
      link.products = with_addresses(products, l);
      link.n_products = products.size();
    });
  }

  struct Grouped {
    int32_t workspace = -1;
    int64_t experts = 0, used = 0;
    Routing at(const Launch& l, int32_t ids, bool o) const {
      return {.ids = l.at<const int32_t>(ids),
              .rows = l.rows_of(o),
              .used = used,
              .experts = experts,
              .workspace = l.at<std::byte>(workspace)};
    }
  };
  const Grouped& grouped(Val ids, int64_t experts) {
    if (const auto known = grouped_.find(ids.id); known != grouped_.end()) return known->second;
    Grouped g{.experts = experts, .used = cols(ids)};
    const bool o = outputs(ids);
    g.workspace = buffer(0, o, static_cast<int64_t>(routing_bytes(most_rows(o), g.used, experts)));
    push({ids.id}, {g.workspace}, [g, ids = ids.id, o](const Launch& l) {
      if (l.rows_of(o) > 0) group_by_expert(l.stream, g.at(l, ids, o));
    });
    return grouped_.emplace(ids.id, g).first->second;
  }

  void add(const Op& op, const ExpertLinearArgs& a) {
    const Val x = op.inputs[0], ids = op.inputs[1];
    const DeviceMatrix& m = weights_.matrix(a.weight);
    const quant::Activation rule = weights_.rule(a.weight);
    const std::vector<int32_t> ops = together<ExpertLinearArgs>([&](const Op& other, const ExpertLinearArgs& b) {
      return other.inputs == op.inputs && weights_.rule(b.weight) == rule;
    });
    const Grouped g = grouped(ids, m.shape.experts);
    const Rounded r = rounded(x, rule, m.shape.cols);
    std::vector<ProductOf> products;
    std::vector<int32_t> writes;
    for (const int32_t i : ops) {
      const Op& each = plan_.ops[static_cast<size_t>(i)];
      const auto& b = std::get<ExpertLinearArgs>(each.args);
      products.push_back({{.w = &weights_.matrix(b.weight), .scale = b.scale}, each.out.id});
      writes.push_back(each.out.id);
    }
    push({r.buffer, g.workspace, ids.id}, writes,
         [r, g, products, ids = ids.id, o = outputs(op.out), shared = cols(x) == m.shape.cols](const Launch& l) {
           const auto all = with_addresses(products, l);
           if (l.rows_of(o) > 0)
             multiply_experts(l.stream, {all.data(), products.size()}, r.at(l), shared, g.at(l, ids, o));
         });
  }

  void add(const Op& op, const RouterArgs& a) {
    push(op, [a, x = op.inputs[0].id, ids = op.out.id, weights = op.out2.id, o = outputs(op.out)](const Launch& l) {
      const RouterShape shape{l.rows_of(o), a.experts, a.used, a.normalise, a.scale};
      router(l.stream, l.at(x), shape, l.at<int32_t>(ids), l.at(weights));
    });
  }
  void add(const Op& op, const ExpertSumArgs&) {
    push(op, [x = op.inputs[0].id, weights = op.inputs[1].id, out = op.out.id, used = cols(op.inputs[1]),
              n = cols(op.out), o = outputs(op.out)](const Launch& l) {
      expert_sum(l.stream, l.at(x), l.at(weights), l.rows_of(o), used, n, l.at(out));
    });
  }

  // ---- Ops over sequences ----

  void add(const Op& op, const ConvArgs& a) {
    if (a.taps < 2 || a.taps > kMostTaps)
      fail(ErrorCode::kUnsupported, "a convolution of {} taps: the CUDA backend has 2 to {}", a.taps, kMostTaps);
    push(op, [a, kernel = weights_.vector(a.kernel), x = op.inputs[0].id, out = op.out.id, channels = cols(op.out),
              convolved = convolved_.contains(static_cast<size_t>(op_))](const Launch& l) {
      if (convolved && l.rows == 1) return;  // done by the product
      conv_silu(l.stream, l.at(x), kernel, l.step, l.rows, l.seqs, channels, a.taps, l.cache->state(a.state),
                l.at(out));
    });
  }
  void add(const Op& op, const DeltaRuleArgs& a) {
    if (a.head_dim % 4 != 0 || a.head_dim > kMostDeltaDim)
      fail(ErrorCode::kUnsupported, "delta-net heads of {}: the CUDA backend has multiples of 4 up to {}", a.head_dim,
           kMostDeltaDim);
    const DeltaArgs args{.a = weights_.vector(a.a),
                         .dt = weights_.vector(a.dt),
                         .k_heads = a.k_heads,
                         .v_heads = a.v_heads,
                         .head_dim = a.head_dim};
    std::array<HeadReading, 3> r;
    std::vector<int32_t> reads{op.inputs[3].id, op.inputs[4].id};
    for (size_t i = 0; i < r.size(); ++i) {
      r[i] = readings_.heads(static_cast<size_t>(op_), op.inputs[i], a.head_dim);
      reads.push_back(r[i].source.id);
    }
    const bool normalise = r[0].normalise;
    const ProgramLimits& most = options_.limits;
    const bool chunks = most.rows >= kDeltaChunkRows && delta_chunks_supports(args, options_.gpu.compute_capability);
    const int32_t scratch = buffer(0, false, chunks ? delta_chunks_bytes(args, most.rows, most.seqs) : 0);
    push(std::move(reads), {op.out.id, scratch},
         [args, r, normalise, chunks, scratch, state = a.state, alpha = op.inputs[3].id, beta = op.inputs[4].id,
          out = op.out.id](const Launch& l) {
           DeltaArgs now = args;
           const auto at = [&](size_t i) { return l.at(r[i].source.id) + r[i].offset; };
           now.q = at(0), now.k = at(1), now.v = at(2);
           now.q_stride = r[0].row_stride, now.k_stride = r[1].row_stride, now.v_stride = r[2].row_stride;
           now.normalise = normalise;
           now.eps = r[0].eps;
           now.alpha = l.at(alpha);
           now.beta = l.at(beta);
           const StateView& view = l.cache->state(state);
           if (chunks && l.rows >= kDeltaChunkRows * l.seqs)
             return delta_chunks(l.stream, now, l.step, l.rows, l.seqs, view, l.at<std::byte>(scratch), l.at(out));
           delta_rule(l.stream, now, l.step, l.rows, l.seqs, view, l.at(out));
         });
  }
  /// What attention reads of an input: queries, keys or values.
  struct AttendInput {
    HeadReading r;
    const float* norm = nullptr;
    int32_t angles = -1;
    HeadInput at(const Launch& l) const {
      return {.x = l.at(r.source.id) + r.offset,
              .row_stride = r.row_stride,
              .head_stride = r.head_stride,
              .norm = norm,
              .eps = r.eps,
              .angles = angles < 0 ? nullptr : l.at<const float2>(angles)};
    }
  };
  void add(const Op& op, const AttendArgs& a) {
    if (a.head_dim_k % 8 != 0 || a.head_dim_v % 8 != 0 || std::max(a.head_dim_k, a.head_dim_v) > kMostHeadDim)
      fail(ErrorCode::kUnsupported, "heads of {} and {}: the CUDA backend has multiples of 8 up to {}", a.head_dim_k,
           a.head_dim_v, kMostHeadDim);
    const AttendShape shape{
        .heads = a.heads, .kv_heads = a.kv_heads, .dim_k = a.head_dim_k, .dim_v = a.head_dim_v, .scale = a.scale};
    std::array<AttendInput, 3> in;
    std::vector<int32_t> reads;
    AttendInputs all;
    for (size_t i = 0; i < in.size(); ++i) {
      in[i].r = readings_.heads(static_cast<size_t>(op_), op.inputs[i], i < 2 ? a.head_dim_k : a.head_dim_v);
      in[i].norm = weights_.vector(in[i].r.norm);
      reads.push_back(in[i].r.source.id);
      if (in[i].r.rope < 0) continue;
      const RopeTable& table = plan_.ropes[static_cast<size_t>(in[i].r.rope)];
      in[i].angles = angles_of(in[i].r.rope);
      reads.push_back(in[i].angles);
      all.pairs = static_cast<int64_t>(table.freq.size());
      all.neox = table.neox;
    }
    int64_t floats = 0;
    for (int64_t rows = 1; rows <= options_.limits.rows; ++rows)
      floats =
          std::max(floats, attend_scratch_floats(shape, rows, attend_parts(shape, rows, options_.gpu.multiprocessors)));
    w_.counters = std::max(w_.counters, attend_counters(shape, options_.limits.rows));
    const int32_t scratch = buffer(0, false, 4 * floats), queries = op.inputs[0].id;
    const bool as_is = in[0].r.source == op.inputs[0];
    std::vector<int32_t> writes{op.out.id, scratch};
    if (!as_is) writes.push_back(queries);
    push(std::move(reads), std::move(writes),
         [=, out = op.out.id, layer = a.cache, gpu = options_.gpu](const Launch& l) {
           const KvView& kv = l.cache->kv(layer);
           AttendInputs inputs = all;
           inputs.q = in[0].at(l), inputs.k = in[1].at(l), inputs.v = in[2].at(l);
           inputs.q_out = l.at(queries);
           const bool tiles = l.rows >= kTileRows * l.seqs && attend_tiles_supports(shape, kv, gpu.compute_capability);
           const bool few = !tiles && attend_few_supports(shape, kv, gpu.compute_capability);
           if (!few || l.rows != l.seqs) {  // attention does not bring its inputs
             if (as_is) inputs.q.x = nullptr;
             attend_inputs(l.stream, inputs, l.step, l.rows, shape, kv);
             inputs.q.x = nullptr;
           }
           if (tiles) return attend_tiles(l.stream, l.at(queries), l.step, l.rows, l.seqs, shape, kv, l.at(out));
           const int64_t parts = attend_parts(shape, l.rows, gpu.multiprocessors);
           if (few)
             return attend_few(l.stream, l.at(queries), inputs, l.step, l.rows, shape, kv, parts, l.at(scratch),
                               l.counters, l.at(out));
           attend(l.stream, l.at(queries), l.step, l.rows, shape, kv, parts, l.at(scratch), l.counters, l.at(out));
         });
  }

  const Plan& plan_;
  const Weights& weights_;
  const Tables& tables_;
  const WalkOptions& options_;
  const Readings readings_;
  const int64_t few_rows_;
  Walk& w_;
  int32_t op_ = 0;
  std::vector<bool> done_;             // ops that an earlier node computes
  std::set<size_t> convolved_;         // convolutions that products of one row do
  std::map<int32_t, int32_t> angles_;  // rope table -> buffer
  std::map<std::tuple<int32_t, quant::Activation, int64_t>, Rounded> rounded_;
  std::map<int32_t, Grouped> grouped_;
};

void place(Walk& w, const Plan& plan, const WalkOptions& options) {
  std::vector<LiveBuffer> live(w.buffers.size());
  for (size_t i = 0; i < live.size(); ++i) {
    const Buffer& b = w.buffers[i];
    live[i].bytes =
        round_up(b.fixed_bytes + b.row_bytes * (b.outputs ? options.limits.outputs : options.limits.rows), kAlign);
  }
  for (size_t n = 0; n < w.nodes.size(); ++n) {
    const auto touch = [&](int32_t b) {
      LiveBuffer& l = live[static_cast<size_t>(b)];
      if (l.first < 0) l.first = static_cast<int32_t>(n);
      l.last = static_cast<int32_t>(n);
    };
    std::ranges::for_each(w.nodes[n].reads, touch);
    std::ranges::for_each(w.nodes[n].writes, touch);
  }
  live[static_cast<size_t>(plan.logits.id)].last = static_cast<int32_t>(w.nodes.size());
  w.arena_bytes = place_buffers(live);
  for (size_t i = 0; i < live.size(); ++i) w.buffers[i].offset = live[i].offset;
}

}  // namespace

Walk make_walk(const Plan& plan, const Weights& weights, const Tables& tables, const WalkOptions& options) {
  Walk walk;
  Expander(plan, weights, tables, options, walk).expand();
  if (options.fuse) find_chains(walk);
  place(walk, plan, options);
  return walk;
}

}  // namespace tern::cuda
