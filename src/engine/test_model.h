// Purpose: a model for the engine's tests. Its "keys and values" are the token ids and positions themselves,
// one pair per slot, and the logits of a row are a pure hash of the whole token history read back through the
// block table: a wrong slot, table, chunk or recomputation changes every later token. Thread: as Model.
#pragma once

#include <atomic>
#include <functional>
#include <set>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "engine/philox.h"
#include "model/model.h"

namespace quire {

class HistoryModel : public Model {
 public:
  static constexpr std::int64_t kVocab = 97;
  static constexpr std::int32_t kEos = 2;
  // Histories that hold it have a NaN among their logits.
  static constexpr std::int32_t kPoison = 96;

  HistoryModel(std::int64_t num_blocks, std::int64_t block_size) {
    config_.architecture = "history";
    config_.vocab_size = kVocab;
    config_.context_length = 4096;
    if (!allocate_kv(num_blocks, block_size, DType::kF32).ok()) throw std::logic_error("allocate_kv");
  }

  // What the model says after these tokens; the same as forward() must find in its cache.
  static std::vector<float> logits_after(std::span<const std::int32_t> history) {
    std::uint64_t hash = 0;
    bool poisoned = false;
    for (const std::int32_t token : history) {
      hash = random_bits(hash, static_cast<std::uint64_t>(token), 1);
      poisoned |= token == kPoison;
    }
    std::vector<float> logits(kVocab);
    for (std::size_t id = 0; id < logits.size(); ++id) {
      logits[id] = static_cast<float>(random_uniform(hash, id) * 12 - 6);
    }
    if (poisoned) logits[5] = std::numeric_limits<float>::quiet_NaN();
    logits[static_cast<std::size_t>(kPoison)] = -std::numeric_limits<float>::infinity();
    return logits;
  }

  const ModelConfig& config() const override { return config_; }
  Status allocate_kv(std::int64_t num_blocks, std::int64_t block_size, DType) override {
    block_size_ = block_size;
    slots_.assign(static_cast<std::size_t>(num_blocks * block_size), Slot{});
    return {};
  }
  std::size_t kv_block_bytes(std::int64_t block_size, DType) const override {
    return static_cast<std::size_t>(block_size) * sizeof(Slot);
  }
  void copy_block(std::int32_t from, std::int32_t to) override {
    std::copy_n(slots_.begin() + from * block_size_, block_size_, slots_.begin() + to * block_size_);
  }
  std::size_t weight_bytes() const override { return 0; }
  std::vector<std::string> report() const override { return {}; }

  Logits forward(const Batch& batch) override {
    const std::int64_t step = num_forwards.fetch_add(1);
    if (before_forward) before_forward(batch, step);
    store(batch);
    logits_.clear();
    std::int64_t sequence = 0;
    for (const std::int32_t row : batch.logit_rows) {
      while (row >= batch.query_starts[static_cast<std::size_t>(sequence) + 1]) ++sequence;
      const auto logits =
          logits_after(history(batch, sequence, batch.positions[static_cast<std::size_t>(row)]));
      logits_.insert(logits_.end(), logits.begin(), logits.end());
    }
    return {logits_.data(), static_cast<std::int64_t>(batch.logit_rows.size()), kVocab};
  }

  std::function<void(const Batch&, std::int64_t step)> before_forward;
  std::atomic<std::int64_t> num_forwards{0};
  std::atomic<int> num_faults{0};  // inconsistent batches seen

 private:
  struct Slot {
    std::int32_t token = -1;
    std::int32_t position = -1;
  };

  void store(const Batch& batch) {
    std::set<std::int32_t> written;
    for (std::int64_t s = 0; s < batch.num_seqs(); ++s) {
      const auto first = static_cast<std::size_t>(batch.query_starts[static_cast<std::size_t>(s)]);
      const auto last = static_cast<std::size_t>(batch.query_starts[static_cast<std::size_t>(s) + 1]);
      const std::int32_t context = batch.context_lens[static_cast<std::size_t>(s)];
      for (std::size_t t = first; t < last; ++t) {
        const std::int32_t slot = batch.slots[t];
        const auto position = context - static_cast<std::int32_t>(last - t);
        if (batch.positions[t] != position || !written.insert(slot).second ||
            slot != slot_of(batch, s, position)) {
          ++num_faults;
        }
        slots_.at(static_cast<std::size_t>(slot)) = {batch.token_ids[t], position};
      }
    }
    if (batch.query_starts.back() != batch.num_tokens() || batch.num_tokens() == 0) ++num_faults;
  }

  std::int32_t slot_of(const Batch& batch, std::int64_t sequence, std::int64_t position) const {
    const auto entry = sequence * batch.block_table_stride + position / block_size_;
    return static_cast<std::int32_t>(batch.block_tables.at(static_cast<std::size_t>(entry)) * block_size_ +
                                     position % block_size_);
  }

  // By streaming eviction; the block may be another's by now.
  static bool is_hidden(const Batch& batch, std::int64_t sequence, std::int64_t position, std::int64_t row) {
    if (batch.kv_windows.empty()) return false;
    const auto s = static_cast<std::size_t>(sequence);
    return batch.kv_windows[s] > 0 && position >= batch.kv_sinks[s] && position <= row - batch.kv_windows[s];
  }

  std::vector<std::int32_t> history(const Batch& batch, std::int64_t sequence, std::int64_t last) {
    std::vector<std::int32_t> tokens;
    for (std::int64_t position = 0; position <= last; ++position) {
      if (is_hidden(batch, sequence, position, last)) continue;
      const Slot& slot = slots_.at(static_cast<std::size_t>(slot_of(batch, sequence, position)));
      if (slot.position != position) ++num_faults;
      tokens.push_back(slot.token);
    }
    return tokens;
  }

  ModelConfig config_;
  std::int64_t block_size_ = 0;
  std::vector<Slot> slots_;
  std::vector<float> logits_;
};

}  // namespace quire
