// Real vocabularies with the strings and ids that llama.cpp publishes beside them (../shared/vocab).
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/sanitized.h"
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

// Ids from ../shared/cases.md, Q and llama-spm columns; those beginning in NFC need the normalizer.
TEST(GgufTokenizer, QwenCases) {
  NEED_VOCAB(qwen, "qwen2");
  const auto ids = [&](std::string_view text) { return plain(*qwen, text); };
  EXPECT_THAT(ids("Cafe\xcc\x81"), ElementsAre(34, 2577, 963));  // TOK-03
  EXPECT_THAT(ids("Caf\xc3\xa9"), ElementsAre(34, 2577, 963));
  EXPECT_THAT(ids("\xe2\x84\xab"), ElementsAre(144044));
  EXPECT_THAT(ids("\xef\xac\x81"), ElementsAre(144300));
  EXPECT_THAT(ids("   "), ElementsAre(262));  // TOK-04
  EXPECT_THAT(ids("\n\n\n"), ElementsAre(1406));
  EXPECT_THAT(ids("a\r\n\r\nb"), ElementsAre(64, 871, 65));
  EXPECT_THAT(ids("  hello   world  "), ElementsAre(220, 23811, 256, 1879, 256));
  EXPECT_THAT(ids(" 1234567"), ElementsAre(220, 16, 17, 18, 19, 20, 21, 22));  // TOK-05
  EXPECT_THAT(ids("\xf0\x9f\x91\xa8\xe2\x80\x8d\xf0\x9f\x91\xa9\xe2\x80\x8d\xf0\x9f\x91\xa7\xe2\x80\x8d"
                  "\xf0\x9f\x91\xa6"),
              ElementsAre(145367, 378, 235, 145233, 378, 235, 145665, 378, 235, 145988));  // TOK-06
  EXPECT_THAT(ids("\xf0\x9f\x98\xb6\xe2\x80\x8d\xf0\x9f\x8c\xab\xef\xb8\x8f"),
              ElementsAre(146440, 378, 235, 149921, 30543));
  EXPECT_THAT(ids("\xf0\x9f\xa6\x99"), ElementsAre(149955));
  EXPECT_THAT(ids("我想在apple工作1314151天～"),
              ElementsAre(104100, 18493, 22377, 99257, 16, 18, 16, 19, 16, 20, 16, 35727, 21216));  // TOK-07
  EXPECT_THAT(ids("a\\nb"), ElementsAre(64, 1699, 65));                                             // TOK-13
  EXPECT_THAT(ids("'RE you"), ElementsAre(94153, 498));                                             // TOK-14
  EXPECT_THAT(ids("don't DON'T"), ElementsAre(15007, 944, 44273, 17323));
  EXPECT_THAT(ids(std::string_view("a\0b", 3)), ElementsAre(64, 188, 65));  // TOK-15
  EXPECT_THAT(ids("\xef\xbb\xbf"), ElementsAre(3225));
  EXPECT_THAT(ids("\xf4\x8f\xbf\xbf"), ElementsAre(176, 237, 123, 123));
}

TEST(GgufTokenizer, ForgedTurnIsLiteral) {  // TOK-01
  NEED_VOCAB(qwen, "qwen2");
  EXPECT_THAT(plain(*qwen, "<|im_end|>"), ElementsAre(151645));
  EXPECT_THAT(qwen->encode_pieces({{"<|im_end|>", false}}, false), ElementsAre(27, 91, 318, 6213, 91, 29));
  // The rest is one text: pieces that cut a word or a run of spaces change nothing.
  const std::string text = "<|im_start|>user\n  Hello   world, it's 12 o'clock e\xcc\x81<|im_end|>\n";
  const auto whole = plain(*qwen, text);
  for (std::size_t cut = 12; cut < text.size() - 11; ++cut) {
    EXPECT_EQ(qwen->encode_pieces(
                  {{text.substr(0, 12), true}, {text.substr(12, cut - 12), false}, {text.substr(cut), true}},
                  false),
              whole)
        << cut;
  }
}

TEST(GgufTokenizer, SentencePieceCases) {  // TOK-09
  NEED_VOCAB(spm, "llama-spm");
  EXPECT_THAT(plain(*spm, " this is \xf0\x9f\xa6\x99.cpp"),
              ElementsAre(29871, 445, 338, 29871, 243, 162, 169, 156, 29889, 8223));
  EXPECT_THAT(plain(*spm, "33333"), ElementsAre(29871, 29941, 29941, 29941, 29941, 29941));
  EXPECT_THAT(spm->encode("Hello", {}), ElementsAre(1, 15043));
  EXPECT_EQ(spm->decode({1, 15043, 3186}, true), "Hello world");
  EXPECT_EQ(spm->token_bytes(15043), " Hello");
  EXPECT_EQ(spm->token_bytes(243), "\xf0");
  EXPECT_TRUE(spm->strips_leading_space());
  EXPECT_TRUE(spm->adds_bos());
  EXPECT_THAT(plain(*spm, "</s>"), ElementsAre(2));
  const auto literal = spm->encode("</s>", {.add_special_tokens = false, .parse_special = false});
  EXPECT_THAT(literal, ::testing::Not(::testing::Contains(2)));
  EXPECT_EQ(spm->decode(literal, true), "</s>");
}

TEST(GgufTokenizer, BertCases) {  // TOK-17
  NEED_VOCAB(bert, "bert-bge");
  EXPECT_THAT(plain(*bert, "Cửa Việt"), ElementsAre(12731, 2050, 19710));
  EXPECT_THAT(plain(*bert, " this is \xf0\x9f\xa6\x99.cpp"), ElementsAre(2023, 2003, 100, 1012, 18133, 2361));
  EXPECT_THAT(bert->encode("   ", {}), ElementsAre(101, 102));
  EXPECT_THAT(plain(*bert, std::string(101, 'a')), ElementsAre(100));
  EXPECT_EQ(bert->decode({101, 7592, 2088, 102}, true), "hello world");
}

TEST(GgufTokenizer, DecodesWhatItEncodes) {
  for (const char* name : {"deepseek-llm", "falcon", "gpt-2", "llama-bpe", "llama-spm", "phi-3", "qwen35"}) {
    NEED_VOCAB(tokenizer, name);
    for (const std::string& text :
         {std::string("Hello,  w\xc3\xb6rld!\r\n\t 3.14 \xf0\x9f\xa6\x99 你好 don't"), std::string("a\0b", 3),
          std::string("  x"), std::string("\xef\xbb\xbf\xf4\x8f\xbf\xbf")}) {
      EXPECT_EQ(tokenizer->decode(plain(*tokenizer, text), false), text) << name;
    }
  }
}

// Under a sanitizer a quarter of the length tells as much and takes seconds instead of a minute.
constexpr std::size_t kLongRun = kSanitized ? 64 << 10 : 256 << 10;

TEST(GgufTokenizer, LongRunsAreNotQuadratic) {
  for (const char* name : {"qwen2", "llama-bpe", "gpt-2", "deepseek-llm", "falcon", "llama-spm"}) {
    NEED_VOCAB(tokenizer, name);
    for (const std::string& unit :
         {std::string("a"), std::string("ab"), std::string(" "), std::string("\n"), std::string("1"),
          std::string("!"), std::string("你"), std::string("\xcc\x81")}) {
      std::string text;
      while (text.size() < kLongRun) text += unit;
      text += "x";  // the run is not at the end
      const auto start = std::chrono::steady_clock::now();
      EXPECT_EQ(tokenizer->decode(plain(*tokenizer, text), false), text);
      // Milliseconds in a release build; sanitizers take some ten times as long.
      EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(4)) << name << " " << unit;
    }
  }
}

// ../shared/golden, of transformers in float32. SmolLM2's vocabulary comes only with its model.
TEST(GgufTokenizer, GoldenIds) {
  std::map<std::string, const Tokenizer*> tokenizers;
  std::vector<std::unique_ptr<Tokenizer>> owned;
  const char* models = std::getenv("QUIRE_TEST_MODELS");
  for (const char* name : {"smollm2-135m", "qwen2.5-coder-0.5b", "qwen2.5-coder-1.5b"}) {
    if (models == nullptr) break;
    const auto keys = read_gguf_keys_for_test(std::string(models) + "/" + name + ".gguf");
    if (!keys) continue;
    auto tokenizer = load_tokenizer_gguf(*keys, name);
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
    owned.push_back(std::move(*tokenizer));
    tokenizers[name] = owned.back().get();
  }
  // The vocabulary alone does for Qwen2.5-Coder but for the control tokens added since Qwen2.
  const Tokenizer* qwen = vocab("qwen2");
  int compared = 0, skipped = 0;
  for (const char* file : {"tokenize.jsonl", "chat.jsonl"}) {
    const auto lines = read_file(std::string(QUIRE_SHARED_DIR) + "/golden/" + file);
    if (!lines) GTEST_SKIP() << "no " << QUIRE_SHARED_DIR << "/golden";
    std::istringstream stream(*lines);
    for (std::string line; std::getline(stream, line);) {
      const auto entry = nlohmann::json::parse(line);
      const std::string model = entry["model"];
      const auto expected = entry["ids"].get<std::vector<TokenId>>();
      const Tokenizer* tokenizer = tokenizers.count(model) != 0 ? tokenizers[model] : nullptr;
      const bool newer =
          std::any_of(expected.begin(), expected.end(), [](TokenId id) { return id > 151645; });
      if (tokenizer == nullptr && model.rfind("qwen", 0) == 0 && !newer) tokenizer = qwen;
      if (tokenizer == nullptr) {
        ++skipped;
        continue;
      }
      EXPECT_EQ(plain(*tokenizer, entry["text"].get<std::string>()), expected) << line;
      ++compared;
    }
  }
  if (compared == 0) GTEST_SKIP() << "neither vocabularies nor QUIRE_TEST_MODELS";
  if (skipped > 0) {
    std::printf("[  NOTE    ] %d lines compared, %d skipped: set QUIRE_TEST_MODELS for the others\n",
                compared, skipped);
  }
}

// The M column of ../shared/cases.md.
TEST(GgufTokenizer, SmolLm2Cases) {
  const char* models = std::getenv("QUIRE_TEST_MODELS");
  if (models == nullptr) GTEST_SKIP() << "QUIRE_TEST_MODELS is not set";
  const auto keys = read_gguf_keys_for_test(std::string(models) + "/smollm2-135m.gguf");
  if (!keys) GTEST_SKIP() << "no smollm2-135m.gguf in QUIRE_TEST_MODELS";
  const auto tokenizer = load_tokenizer_gguf(*keys, "smollm2-135m");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  const auto ids = [&](std::string_view text) { return plain(**tokenizer, text); };
  EXPECT_THAT((*tokenizer)->encode_pieces({{"<|im_end|>", false}}, false),
              ElementsAre(44, 108, 306, 79, 486, 108, 46));
  EXPECT_THAT(ids("<|im_end|>"), ElementsAre(2));
  EXPECT_THAT(ids("Cafe\xcc\x81"), ElementsAre(51, 9980, 151, 219));  // no normalizer
  EXPECT_THAT(ids("Caf\xc3\xa9"), ElementsAre(51, 1939, 2756));
  EXPECT_THAT(ids("   "), ElementsAre(333));
  EXPECT_THAT(ids("\n\n\n"), ElementsAre(16506));
  EXPECT_THAT(ids("a\r\n\r\nb"), ElementsAre(81, 7209, 198, 82));
  EXPECT_THAT(ids("  hello   world  "), ElementsAre(216, 33662, 256, 905, 256));
  EXPECT_THAT(ids(" 1234567"), ElementsAre(216, 33, 34, 35, 36, 37, 38, 39));
  EXPECT_THAT(ids("\xf0\x9f\xa6\x99"), ElementsAre(10813, 116, 243));
  EXPECT_THAT(ids("a\\nb"), ElementsAre(81, 76, 22808));
  EXPECT_THAT(ids("'RE you"), ElementsAre(23, 3256, 346));
  EXPECT_THAT(ids("don't DON'T"), ElementsAre(12420, 982, 422, 2154, 23, 68));
  EXPECT_THAT(ids(std::string_view("a\0b", 3)), ElementsAre(81, 190, 82));
  EXPECT_THAT(ids("\xef\xbb\xbf"), ElementsAre(186, 136, 140));
  EXPECT_THAT(ids("\xf4\x8f\xbf\xbf"), ElementsAre(189, 233, 140, 140));
  EXPECT_THAT((*tokenizer)->end_ids(), ElementsAre(0, 2));
}

Metadata tiny_keys() {
  Metadata keys;
  keys.set("tokenizer.ggml.model", std::string("gpt2"));
  keys.set("tokenizer.ggml.pre", std::string("gpt-2"));
  keys.set("tokenizer.ggml.tokens", std::vector<std::string>{"a", "b", "ab", "<|im_end|>", "[PAD4]"});
  keys.set("tokenizer.ggml.token_type", std::vector<std::int64_t>{1, 1, 1, 4, 4});
  keys.set("tokenizer.ggml.merges", std::vector<std::string>{"a b"});
  return keys;
}

std::string error_of(const Metadata& keys) {
  const auto tokenizer = load_tokenizer_gguf(keys, "x.gguf");
  EXPECT_FALSE(tokenizer.ok());
  return tokenizer.ok() ? "" : tokenizer.error().message;
}

TEST(GgufTokenizer, TurnMarkersAndFillers) {
  const auto tokenizer = load_tokenizer_gguf(tiny_keys(), "x.gguf");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  EXPECT_TRUE((*tokenizer)->is_special(3));  // declared as user-defined
  EXPECT_THAT((*tokenizer)->end_ids(), ElementsAre(3));
  EXPECT_THAT(plain(**tokenizer, "ab[PAD4]ab"), ::testing::Not(::testing::Contains(4)));
  EXPECT_THAT(plain(**tokenizer, "abba"), ElementsAre(2, 1, 0));
}

TEST(GgufTokenizer, ErrorsNameFileAndKey) {
  EXPECT_THAT(error_of(Metadata()), AllOf(HasSubstr("x.gguf"), HasSubstr("tokenizer.ggml.model")));
  Metadata keys = tiny_keys();
  keys.set("tokenizer.ggml.pre", std::string("no-such"));
  EXPECT_THAT(error_of(keys), AllOf(HasSubstr("no-such"), HasSubstr("qwen2")));
  keys = tiny_keys();
  keys.set("tokenizer.ggml.model", std::string("rwkv"));
  EXPECT_THAT(error_of(keys), HasSubstr("rwkv"));
  keys = tiny_keys();
  keys.set("tokenizer.ggml.merges", std::vector<std::string>{"ab"});
  EXPECT_THAT(error_of(keys), HasSubstr("merges[0]"));
  keys = tiny_keys();
  keys.set("tokenizer.ggml.token_type", std::vector<std::int64_t>{1});
  EXPECT_THAT(error_of(keys), HasSubstr("token_type"));
  keys = tiny_keys();
  keys.set("tokenizer.ggml.eos_token_id", std::uint64_t{99});
  EXPECT_THAT(error_of(keys), HasSubstr("eos_token_id"));
  keys = tiny_keys();
  keys.set("tokenizer.ggml.add_bos_token", true);
  EXPECT_THAT(error_of(keys), HasSubstr("add_bos_token"));
  keys = tiny_keys();
  keys.set("tokenizer.ggml.model", std::string("llama"));
  EXPECT_THAT(error_of(keys), HasSubstr("scores"));
}

}  // namespace
}  // namespace quire
