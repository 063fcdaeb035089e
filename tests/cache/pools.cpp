#include <gtest/gtest.h>

#include "cache/kv_pool.h"

namespace tern {
namespace {

TEST(RefPool, HandsOutEveryUnitOnceAndThenNone) {
  RefPool pool(3);
  EXPECT_EQ(pool.take(), 0);
  EXPECT_EQ(pool.take(), 1);
  EXPECT_EQ(pool.take(), 2);
  EXPECT_EQ(pool.take(), -1);
  EXPECT_EQ(pool.available(), 0);
}

TEST(RefPool, AUnitIsFreeOnlyWhenItsLastOwnerIsGone) {
  RefPool pool(1);
  const int32_t id = pool.take();
  pool.share(id);
  pool.release(id);
  EXPECT_EQ(pool.owners(id), 1);
  EXPECT_EQ(pool.take(), -1);
  pool.release(id);
  EXPECT_EQ(pool.owners(id), 0);
  EXPECT_EQ(pool.take(), id);
}

TEST(RefPoolDeathTest, ReleasingAFreeUnitIsABug) {
  RefPool pool(2);
  EXPECT_DEATH(pool.release(1), "unit 1 is free");
  EXPECT_DEATH(pool.share(0), "unit 0 is free");
  EXPECT_DEATH(pool.owners(2), "unit 2 of 2");
}

TEST(KvPool, CountsPagesFromTokens) {
  EXPECT_EQ(KvPool::pages_for(0), 0);
  EXPECT_EQ(KvPool::pages_for(1), 1);
  EXPECT_EQ(KvPool::pages_for(kPageTokens), 1);
  EXPECT_EQ(KvPool::pages_for(kPageTokens + 1), 2);
}

TEST(KvPool, ExtendsATableOnlyByWhatIsMissing) {
  KvPool pool(4);
  std::vector<int32_t> table;
  ASSERT_TRUE(pool.extend(table, 65));
  EXPECT_EQ(table, (std::vector<int32_t>{0, 1}));
  ASSERT_TRUE(pool.extend(table, 128));
  EXPECT_EQ(table.size(), 2u);
  ASSERT_TRUE(pool.extend(table, 129));
  EXPECT_EQ(table, (std::vector<int32_t>{0, 1, 2}));
}

TEST(KvPool, AnExtensionThatDoesNotFitChangesNothing) {
  KvPool pool(3);
  std::vector<int32_t> table;
  ASSERT_TRUE(pool.extend(table, 64));
  EXPECT_FALSE(pool.extend(table, 64 * 4));
  EXPECT_EQ(table, (std::vector<int32_t>{0}));
  EXPECT_EQ(pool.available(), 2);
}

TEST(KvPool, ShrinkingKeepsThePageOfTheLastToken) {
  KvPool pool(4);
  std::vector<int32_t> table;
  ASSERT_TRUE(pool.extend(table, 200));
  pool.shrink(table, 65);
  EXPECT_EQ(table.size(), 2u);
  pool.shrink(table, 0);
  EXPECT_TRUE(table.empty());
  EXPECT_EQ(pool.available(), 4);
}

TEST(KvPool, ASharedPageSurvivesTheSequenceThatMadeIt) {
  KvPool pool(2);
  std::vector<int32_t> first;
  ASSERT_TRUE(pool.extend(first, 64));
  const std::vector<int32_t> second = first;
  pool.share(second[0]);
  pool.shrink(first, 0);
  EXPECT_EQ(pool.owners(second[0]), 1);
  EXPECT_EQ(pool.available(), 1);
}

}  // namespace
}  // namespace tern
