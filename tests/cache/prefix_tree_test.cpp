#include "cache/prefix_tree.h"

#include <gtest/gtest.h>

#include <numeric>

namespace tern {
namespace {

std::vector<int32_t> count(int32_t n, int32_t from = 0) {
  std::vector<int32_t> tokens(static_cast<size_t>(n));
  std::iota(tokens.begin(), tokens.end(), from);
  return tokens;
}

std::vector<int32_t> joined(std::vector<int32_t> a, const std::vector<int32_t>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

class PrefixTreeTest : public testing::Test {
 protected:
  KvPool kv{16};
  StatePool states{4};

  /// As a sequence does: takes pages, leaves them in the tree and goes.
  std::vector<int32_t> leave(PrefixTree& tree, const std::vector<int32_t>& tokens, bool stateful = false) {
    std::vector<int32_t> pages;
    EXPECT_TRUE(kv.extend(pages, static_cast<int64_t>(tokens.size())));
    tree.insert(tokens, pages, stateful ? states.take() : -1);
    std::vector<int32_t> ids = pages;
    kv.shrink(pages, 0);
    return ids;
  }
  void give_back(const Prefix& prefix) {
    for (const int32_t page : prefix.pages) kv.release(page);
    if (prefix.partial >= 0) kv.release(prefix.partial);
    if (prefix.state >= 0) states.release(prefix.state);
  }
};

TEST_F(PrefixTreeTest, GivesWholePagesAndTheOneThatIsSharedInPart) {
  PrefixTree tree(kv, states, false);
  const auto pages = leave(tree, count(150));
  const Prefix prefix = tree.match(joined(count(140), {7, 7, 7}));
  EXPECT_GT(prefix.pages.capacity(), prefix.pages.size());  // what begins with it adds a page without allocating
  EXPECT_EQ(prefix.tokens, 140);
  EXPECT_EQ(prefix.pages, (std::vector<int32_t>{pages[0], pages[1]}));
  EXPECT_EQ(prefix.partial, pages[2]);
  EXPECT_EQ(kv.owners(pages[2]), 2);
  give_back(prefix);
}

TEST_F(PrefixTreeTest, AWholePageIsNotToBeCopied) {
  PrefixTree tree(kv, states, false);
  leave(tree, count(128));
  const Prefix prefix = tree.match(count(200));
  EXPECT_EQ(prefix.tokens, 128);
  EXPECT_EQ(prefix.pages.size(), 2u);
  EXPECT_EQ(prefix.partial, -1);
  give_back(prefix);
}

TEST_F(PrefixTreeTest, TheSameTokensAreStoredOnceAndLongerOnesReplaceShorter) {
  PrefixTree tree(kv, states, false);
  leave(tree, count(100));
  leave(tree, count(100));
  EXPECT_EQ(tree.pages(), 2);
  leave(tree, count(120));
  EXPECT_EQ(tree.pages(), 2);
  EXPECT_EQ(tree.matched(count(200)), 120);
  EXPECT_EQ(kv.available(), 14);
}

TEST_F(PrefixTreeTest, BranchesInTheMiddleOfAPageAreBothFound) {
  PrefixTree tree(kv, states, false);
  const auto one = joined(count(70), count(30, 500)), two = joined(count(70), count(30, 900));
  leave(tree, one);
  leave(tree, two);
  EXPECT_EQ(tree.pages(), 3);
  EXPECT_EQ(tree.matched(one), 100);
  EXPECT_EQ(tree.matched(two), 100);
}

TEST_F(PrefixTreeTest, AStatefulTreeIsEnteredAtCheckpointsOnly) {
  PrefixTree tree(kv, states, true);
  leave(tree, count(70), true);
  leave(tree, count(100), true);
  EXPECT_EQ(tree.matched(count(69)), 0);
  EXPECT_EQ(tree.matched(count(99)), 70);
  const Prefix prefix = tree.match(count(101));
  EXPECT_EQ(prefix.tokens, 100);
  EXPECT_GE(prefix.state, 0);
  EXPECT_EQ(states.owners(prefix.state), 2);
  give_back(prefix);
}

TEST_F(PrefixTreeTest, TheLongestUnusedGoesFirst) {
  PrefixTree tree(kv, states, false);
  const auto one = count(64), two = count(64, 100), three = count(64, 200);
  for (const auto& tokens : {one, two, three}) leave(tree, tokens);
  give_back(tree.match(one));
  EXPECT_TRUE(tree.evict_page());
  EXPECT_EQ(tree.matched(two), 0);
  EXPECT_TRUE(tree.evict_page());
  EXPECT_EQ(tree.matched(three), 0);
  EXPECT_EQ(tree.matched(one), 64);
}

TEST_F(PrefixTreeTest, PagesGoFromTheEndOfAPrefix) {
  PrefixTree tree(kv, states, false);
  leave(tree, count(192));
  EXPECT_TRUE(tree.evict_page());
  EXPECT_EQ(tree.matched(count(192)), 128);
}

TEST_F(PrefixTreeTest, APageThatASequenceSharesGoesLast) {
  PrefixTree tree(kv, states, false);
  leave(tree, count(64));
  leave(tree, count(64, 100));
  const Prefix held = tree.match(count(64));
  give_back(tree.match(count(64, 100)));  // used later, and yet it goes first
  EXPECT_TRUE(tree.evict_page());
  EXPECT_EQ(tree.matched(count(64)), 64);
  EXPECT_TRUE(tree.evict_page());
  EXPECT_FALSE(tree.evict_page());
  EXPECT_EQ(kv.available(), 15);
  give_back(held);
}

TEST_F(PrefixTreeTest, WithAStateGoThePagesThatItWasFor) {
  PrefixTree tree(kv, states, true);
  leave(tree, count(64), true);
  leave(tree, count(190), true);
  give_back(tree.match(count(65)));
  EXPECT_TRUE(tree.evict_state());
  EXPECT_EQ(tree.pages(), 1);
  EXPECT_EQ(tree.matched(count(200)), 64);
  EXPECT_TRUE(tree.evict_page());
  EXPECT_EQ(states.available(), 4);
  EXPECT_EQ(kv.available(), 16);
}

TEST_F(PrefixTreeTest, AStateThatASequenceReadsIsNotEvicted) {
  PrefixTree tree(kv, states, true);
  leave(tree, count(64), true);
  const Prefix held = tree.match(count(64));
  EXPECT_FALSE(tree.evict_state());
  give_back(held);
  EXPECT_TRUE(tree.evict_state());
}

TEST_F(PrefixTreeTest, GivesEverythingBackAtItsEnd) {
  {
    PrefixTree tree(kv, states, true);
    leave(tree, count(190), true);
    leave(tree, joined(count(70), count(90, 700)), true);
  }
  EXPECT_EQ(kv.available(), 16);
  EXPECT_EQ(states.available(), 4);
}

}  // namespace
}  // namespace tern
