// Which nodes of a walk are links of a chain, and the launch of one.
#include <algorithm>
#include <memory>

#include "backend/cuda/walk.h"
#include "base/error.h"

namespace tern::cuda {
namespace {

/// The end of the link that begins with node `first`, or `first` when none does: a glu if it is read by what follows
/// alone, what computes activations, and the product, which alone reads these.
size_t end_of_link(const Walk& w, size_t first) {
  size_t n = first;
  const auto is = [&](LinkPart part) {
    return n < w.nodes.size() && w.nodes[n].part == part && w.nodes[n].of_outputs == w.nodes[first].of_outputs;
  };
  const auto read_by_next_alone = [&] {
    const int32_t made = w.nodes[n].writes.front();
    const auto readers = std::ranges::count_if(
        w.nodes, [&](const Node& other) { return std::ranges::find(other.reads, made) != other.reads.end(); });
    return readers == 1 && n + 1 < w.nodes.size() && w.nodes[n + 1].reads.front() == made;
  };
  if (is(LinkPart::kGlu)) {
    if (!read_by_next_alone()) return first;
    ++n;
  }
  if (!is(LinkPart::kPrepare) || !read_by_next_alone()) return first;
  ++n;
  return is(LinkPart::kProduct) ? n + 1 : first;
}

Link link_of(const Walk& w, size_t first, size_t end, const Launch& launch) {
  Link link;
  for (size_t n = first; n < end; ++n) w.nodes[n].describe(launch, link);
  return link;
}

}  // namespace

/// Blocks of a chain read what a link reads while others write its product: what computes activations is read until
/// the product is there.
void find_chains(Walk& w) {
  const std::vector<std::byte*> nowhere(w.buffers.size());
  Launch no_addresses;
  no_addresses.buffers = &nowhere;
  std::unique_ptr<Chain> chain;
  for (size_t first = 0; first < w.nodes.size();) {
    const size_t end = end_of_link(w, first);
    if (end == first) {
      ++first;
      continue;
    }
    const Link link = link_of(w, first, end, no_addresses);
    const bool follows =
        chain && w.chains.back().ends.back() == first && w.chains.back().of_outputs == w.nodes[first].of_outputs;
    if (follows && chain->add(link)) {
      w.chains.back().ends.push_back(end);
    } else if (chain = std::make_unique<Chain>(); chain->add(link)) {
      w.chains.push_back({.first = first, .ends = {end}, .of_outputs = w.nodes[first].of_outputs});
    } else {
      chain.reset();
      first = end;
      continue;
    }
    Node& product = w.nodes[end - 1];
    for (size_t n = first; n + 1 < end; ++n)
      product.reads.insert(product.reads.end(), w.nodes[n].reads.begin(), w.nodes[n].reads.end());
    first = end;
  }
}

void launch_chain(const Walk& walk, const NodeChain& chain, const Launch& launch) {
  Chain links;
  size_t first = chain.first;
  for (const size_t end : chain.ends) {
    CHECK(links.add(link_of(walk, first, end, launch)), "nodes {} to {} are no link", first, end);
    first = end;
  }
  links.launch(launch.stream, launch.workspace);
}

}  // namespace tern::cuda
