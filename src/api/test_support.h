// Purpose: a model, a tokenizer and a client for the tests of this room: what a request does is known
// exactly, and nothing is loaded. Thread: as what they stand for.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "api/api_server.h"
#include "base/check.h"
#include "base/thread_pool.h"
#include "engine/engine.h"
#include "net/http_message.h"

namespace quire {

// Ids are bytes; then <bos>, <eos>, <|im_end|>.
class ByteTokenizer final : public Tokenizer {
 public:
  static constexpr TokenId kBos = 256;
  static constexpr TokenId kEos = 257;
  static constexpr TokenId kImEnd = 258;

  std::vector<TokenId> encode(std::string_view text, const EncodeOptions& options) const override {
    return encode_pieces({{std::string(text), options.parse_special}}, false);
  }
  std::vector<TokenId> encode_pieces(const std::vector<PromptPiece>& pieces, bool) const override {
    std::vector<TokenId> ids;
    for (const PromptPiece& piece : pieces) {
      for (std::size_t i = 0; i < piece.text.size();) {
        TokenId special = -1;
        for (TokenId id = kBos; piece.trusted && id <= kImEnd; ++id) {
          const std::string name = spelling(id);
          if (piece.text.compare(i, name.size(), name) == 0) special = id;
        }
        ids.push_back(special >= 0 ? special : static_cast<unsigned char>(piece.text[i]));
        i += special >= 0 ? std::string_view(spelling(special)).size() : 1;
      }
    }
    return ids;
  }
  std::string token_bytes(TokenId id) const override {
    if (id < 0 || id >= vocab_size()) return {};
    return id < 256 ? std::string(1, static_cast<char>(id)) : spelling(id);
  }
  std::string_view token_piece(TokenId id) const override { return id < 256 ? "?" : spelling(id); }
  bool is_special(TokenId id) const override { return id >= 256; }
  std::string decode(const std::vector<TokenId>& ids, bool skip_special) const override {
    std::string text;
    for (const TokenId id : ids) {
      if (!skip_special || !is_special(id)) text += token_bytes(id);
    }
    return text;
  }
  bool strips_leading_space() const override { return false; }
  std::optional<TokenId> token_to_id(std::string_view) const override { return std::nullopt; }
  std::int32_t vocab_size() const override { return 259; }
  std::optional<TokenId> bos_id() const override { return kBos; }
  std::optional<TokenId> eos_id() const override { return kEos; }
  std::optional<TokenId> pad_id() const override { return std::nullopt; }
  bool adds_bos() const override { return false; }
  std::vector<TokenId> end_ids() const override { return {kEos}; }
  std::string description() const override { return "bytes"; }

 private:
  static const char* spelling(TokenId id) {
    return id == kBos ? "<bos>" : id == kEos ? "<eos>" : "<|im_end|>";
  }
};

// After byte b comes b + 1; after 'Z' the bytes of an e acute, then the end. Each logit but that one is 0.
class SuccessorModel final : public Model {
 public:
  static constexpr std::int64_t kVocab = 264;
  SuccessorModel() {
    config_.architecture = "successor";
    config_.vocab_size = kVocab;
    config_.context_length = 256;
  }
  static std::int32_t successor(std::int32_t token) {
    if (token == 'Z') return 0xc3;
    if (token == 0xc3) return 0xa9;
    if (token == 0xa9) return ByteTokenizer::kEos;
    return token < 256 ? (token + 1) % 256 : 'A';
  }
  const ModelConfig& config() const override { return config_; }
  Status allocate_kv(std::int64_t, std::int64_t, DType) override { return {}; }
  std::size_t kv_block_bytes(std::int64_t, DType) const override { return 64; }
  void copy_block(std::int32_t, std::int32_t) override {}
  std::size_t weight_bytes() const override { return 0; }
  std::vector<std::string> report() const override { return {}; }
  Logits forward(const Batch& batch) override {
    while (blocked) std::this_thread::sleep_for(std::chrono::milliseconds(2));
    if (throws) throw std::runtime_error("out of order");
    logits_.assign(batch.logit_rows.size() * kVocab, 0.0f);
    for (std::size_t i = 0; i < batch.logit_rows.size(); ++i) {
      const std::int32_t token = batch.token_ids[static_cast<std::size_t>(batch.logit_rows[i])];
      logits_[i * kVocab + static_cast<std::size_t>(successor(token))] = 20.0f;
    }
    return {logits_.data(), static_cast<std::int64_t>(batch.logit_rows.size()), kVocab};
  }

  std::atomic<bool> blocked{false};
  std::atomic<bool> throws{false};

 private:
  ModelConfig config_;
  std::vector<float> logits_;
};

// Everything behind an ApiServer, with an engine that runs.
struct TestBackend {
  explicit TestBackend(const std::string& chat_template) {
    auto parsed = ChatTemplate::parse(chat_template);
    QUIRE_CHECK(parsed.ok()) << parsed.error().message;
    tmpl = std::move(*parsed);
    EngineConfig config;
    config.max_model_len = 256;
    config.max_num_seqs = 8;
    config.max_num_batched_tokens = 64;
    config.num_blocks = 256;
    engine = std::make_unique<Engine>(model, pool, config);
    engine->start();
  }
  ServedModel served() {
    ServedModel out;
    out.names = {"tiny", "other-name"};
    out.root = "tiny";
    out.engine = engine.get();
    out.tokenizer = &tokenizer;
    out.chat_template = tmpl.get();
    out.eos_ids = {ByteTokenizer::kEos};
    out.max_model_len = 256;
    out.vocab_size = 259;
    return out;
  }
  ByteTokenizer tokenizer;
  std::unique_ptr<ChatTemplate> tmpl;
  SuccessorModel model;
  ThreadPool pool{1};
  std::unique_ptr<Engine> engine;
};

// Keeps what a handler answers. gone_after: the client leaves behind that many writes.
class RecordingWriter final : public ResponseWriter {
 public:
  bool send(const HttpResponse& response) override {
    answer = response;
    sent = true;
    return true;
  }
  bool begin_stream(const HttpResponse& response) override {
    answer = response;
    streamed = true;
    return true;
  }
  bool write(std::string_view bytes) override {
    answer.body += bytes;
    writes.emplace_back(bytes);
    return !client_gone();
  }
  bool end_stream(bool close_after) override {
    ended = true;
    closed = close_after;
    return true;
  }
  bool client_gone() override { return writes.size() >= gone_after; }

  HttpResponse answer;
  std::vector<std::string> writes;
  std::size_t gone_after = static_cast<std::size_t>(-1);
  bool sent = false;
  bool streamed = false;
  bool ended = false;
  bool closed = false;
};

}  // namespace quire
