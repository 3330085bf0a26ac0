// Real vocabularies with the strings and ids that llama.cpp publishes beside them (../shared/vocab).
#include <cstdlib>
#include <fstream>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "text/gguf_keys_test.h"
#include "text/tokenizer.h"

namespace quire {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const std::string kVocabDir = std::string(QUIRE_SHARED_DIR) + "/vocab/";

std::optional<std::string> read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return std::nullopt;
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// Loaded once per program; null if the file is missing.
const Tokenizer* vocab(const std::string& name) {
  static std::map<std::string, std::unique_ptr<Tokenizer>> cache;
  const auto it = cache.find(name);
  if (it != cache.end()) return it->second.get();
  auto& slot = cache[name];
  const auto keys = read_gguf_keys_for_test(kVocabDir + "ggml-vocab-" + name + ".gguf");
  if (!keys) return nullptr;
  auto tokenizer = load_tokenizer_gguf(*keys, name);
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  if (tokenizer.ok()) slot = std::move(*tokenizer);
  return slot.get();
}

#define NEED_VOCAB(variable, name)         \
  const Tokenizer* variable = vocab(name); \
  if (variable == nullptr) GTEST_SKIP() << "no " << kVocabDir << " with " << (name)

std::vector<TokenId> plain(const Tokenizer& tokenizer, std::string_view text) {
  return tokenizer.encode(text, {.add_special_tokens = false, .parse_special = true});
}

class PublishedVocab : public ::testing::TestWithParam<const char*> {};

TEST_P(PublishedVocab, GivesThePublishedIds) {
  NEED_VOCAB(tokenizer, GetParam());
  const std::string base = kVocabDir + "ggml-vocab-" + GetParam() + ".gguf";
  const auto inputs = read_file(base + ".inp"), outputs = read_file(base + ".out");
  ASSERT_TRUE(inputs && outputs);
  const std::string separator = "\n__ggml_vocab_test__\n";
  std::vector<std::string> texts;
  std::size_t pos = 0;
  for (std::size_t hit = inputs->find(separator); hit != std::string::npos;
       hit = inputs->find(separator, pos)) {
    texts.push_back(inputs->substr(pos, hit - pos));
    pos = hit + separator.size();
  }
  std::istringstream lines(*outputs);
  std::string line;
  std::size_t count = 0;
  for (; std::getline(lines, line); ++count) {
    ASSERT_LT(count, texts.size());
    std::istringstream numbers(line);
    std::vector<TokenId> expected;
    for (TokenId id; numbers >> id;) expected.push_back(id);
    EXPECT_EQ(plain(*tokenizer, texts[count]), expected) << "text " << count << ": " << texts[count];
  }
  EXPECT_EQ(count, texts.size());
  EXPECT_GE(count, 46u);
}

INSTANTIATE_TEST_SUITE_P(All, PublishedVocab,
                         ::testing::Values("bert-bge", "deepseek-llm", "falcon", "gpt-2", "llama-bpe",
                                           "llama-spm", "phi-3", "qwen2", "qwen35"),
                         [](const auto& param_info) {
                           std::string name = param_info.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace quire
