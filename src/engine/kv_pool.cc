#include "engine/kv_pool.h"

#include <limits>

#include "base/check.h"

namespace quire {

KvPool::KvPool(std::int64_t num_blocks, std::int64_t block_size)
    : num_blocks_(num_blocks), block_size_(block_size) {
  QUIRE_CHECK_GT(num_blocks, 0);
  QUIRE_CHECK_GT(block_size, 0);
  // Slots (block * block_size + offset) travel as int32 in a Batch.
  QUIRE_CHECK_LE(num_blocks, std::numeric_limits<std::int32_t>::max() / block_size);
  blocks_.resize(static_cast<std::size_t>(num_blocks) + 1);
  const auto ends = static_cast<std::int32_t>(num_blocks);
  blocks_.back().previous = blocks_.back().next = ends;
  for (std::int32_t block = 0; block < ends; ++block) link_last(block);
}

void KvPool::check_number(std::int32_t block) const {
  QUIRE_CHECK_GE(block, 0);
  QUIRE_CHECK_LT(block, num_blocks_);
}

std::int32_t KvPool::num_references(std::int32_t block) const {
  check_number(block);
  return blocks_[static_cast<std::size_t>(block)].num_references;
}

void KvPool::link_last(std::int32_t block) {
  Block& ends = blocks_.back();
  Block& self = blocks_[static_cast<std::size_t>(block)];
  self.previous = ends.previous;
  self.next = static_cast<std::int32_t>(num_blocks_);
  blocks_[static_cast<std::size_t>(ends.previous)].next = block;
  ends.previous = block;
  ++num_free_;
}

void KvPool::unlink(std::int32_t block) {
  const Block& self = blocks_[static_cast<std::size_t>(block)];
  blocks_[static_cast<std::size_t>(self.previous)].next = self.next;
  blocks_[static_cast<std::size_t>(self.next)].previous = self.previous;
  --num_free_;
}

std::int32_t KvPool::take() {
  QUIRE_CHECK_GT(num_free_, 0) << "no free block";
  const std::int32_t block = blocks_.back().next;
  unlink(block);
  blocks_[static_cast<std::size_t>(block)].num_references = 1;
  if (observer_ != nullptr) observer_->on_taken(block);
  return block;
}

void KvPool::share(std::int32_t block) {
  check_number(block);
  if (blocks_[static_cast<std::size_t>(block)].num_references++ > 0) return;
  unlink(block);
  if (observer_ != nullptr) observer_->on_called_back(block);
}

void KvPool::release(std::int32_t block) {
  check_number(block);
  Block& self = blocks_[static_cast<std::size_t>(block)];
  QUIRE_CHECK_GT(self.num_references, 0) << "block " << block << " is free already";
  if (--self.num_references > 0) return;
  link_last(block);
  if (observer_ != nullptr) observer_->on_freed(block);
}

void KvPool::release_all(std::vector<std::int32_t>& blocks) {
  for (auto block = blocks.rbegin(); block != blocks.rend(); ++block) release(*block);
  blocks.clear();
}

}  // namespace quire
