// Purpose: which blocks of the KV memory are free and how often each of the others is used. Blocks are plain
// integers; this is the only place that changes a count. In: requests for blocks by the scheduler. Out: block
// numbers. Thread: engine thread. Out of scope: what lies in a block (model/), whose it is
// (Sequence::blocks).
#pragma once

#include <cstdint>
#include <vector>

namespace quire {

// Told what happens to blocks, on the engine thread and inside the call that does it: must be quick and must
// not use the pool.
class BlockObserver {
 public:
  virtual ~BlockObserver() = default;
  // Taken from the front of the free queue: what it held until now is lost.
  virtual void on_taken(std::int32_t block) = 0;
  // Its last reference is gone. What it holds stays intact until it is taken.
  virtual void on_freed(std::int32_t block) = 0;
  // share() of a free block: what it holds is used again.
  virtual void on_called_back(std::int32_t block) = 0;
};

// The free blocks form a queue: take() gives the one that has been free longest, so what was freed last stays
// intact longest. It is a linked list, so that a free block can also be called back from its middle: share()
// on a block that nobody uses is what a hit in a prefix cache is.
class KvPool {
 public:
  KvPool(std::int64_t num_blocks, std::int64_t block_size);

  // Null = nobody. The observer must outlive its registration.
  void set_observer(BlockObserver* observer) { observer_ = observer; }

  std::int64_t num_blocks() const { return num_blocks_; }
  std::int64_t block_size() const { return block_size_; }
  std::int64_t num_free() const { return num_free_; }
  // Blocks that hold this many tokens.
  std::int64_t blocks_for(std::int64_t num_tokens) const {
    return (num_tokens + block_size_ - 1) / block_size_;
  }
  std::int32_t num_references(std::int32_t block) const;

  // One reference to a free block; there must be one.
  std::int32_t take();
  // One more reference.
  void share(std::int32_t block);
  // One reference less; at none the block joins the end of the free queue.
  void release(std::int32_t block);
  // Releases all of a sequence's blocks and empties the list. Last block first: the start of a context is
  // what another request is likely to have in common with it, so it should live longest.
  void release_all(std::vector<std::int32_t>& blocks);

 private:
  struct Block {
    std::int32_t num_references = 0;
    std::int32_t previous = 0;  // neighbours in the free queue; meaningless while referenced
    std::int32_t next = 0;
  };
  void check_number(std::int32_t block) const;
  void link_last(std::int32_t block);
  void unlink(std::int32_t block);

  const std::int64_t num_blocks_;
  const std::int64_t block_size_;
  std::int64_t num_free_ = 0;
  BlockObserver* observer_ = nullptr;
  std::vector<Block> blocks_;  // [num_blocks + 1]; the last is the ends of the free queue
};

}  // namespace quire
