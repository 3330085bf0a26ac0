// tokenizer.json files written here; ids follow from their tables.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "text/detokenizer.h"
#include "text/tokenizer.h"
#include "text/vocabulary.h"

namespace quire {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const std::string kMark = "\xe2\x96\x81";

std::unique_ptr<Tokenizer> load(const json& file, const json& config = nullptr) {
  auto tokenizer = load_tokenizer_json(file.dump(), config.is_null() ? "" : config.dump(), "test.json");
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  return tokenizer.ok() ? std::move(*tokenizer) : nullptr;
}

std::string error_of(const std::string& file, const std::string& config = "") {
  const auto tokenizer = load_tokenizer_json(file, config, "test.json");
  EXPECT_FALSE(tokenizer.ok());
  return tokenizer.ok() ? "" : tokenizer.error().message;
}
std::string error_of(const json& file, const json& config = nullptr) {
  return error_of(file.dump(), config.is_null() ? "" : config.dump());
}

std::vector<TokenId> plain(const Tokenizer& tokenizer, std::string_view text) {
  return tokenizer.encode(text, {.add_special_tokens = false, .parse_special = true});
}

json added(int id, const std::string& content, bool special, json flags = json::object()) {
  json token{{"id", id},        {"content", content}, {"special", special}, {"single_word", false},
             {"lstrip", false}, {"rstrip", false},    {"normalized", false}};
  token.update(flags);
  return token;
}

// Byte-level BPE as the CHAIN fixture has it: id = byte value, then <bos>, <eos>, <|im_end|>.
json chain() {
  json vocab;
  for (int byte = 0; byte < 256; ++byte) {
    vocab[bytes_to_chars(std::string(1, static_cast<char>(byte)))] = byte;
  }
  vocab["<bos>"] = 256;
  vocab["<eos>"] = 257;
  vocab["<|im_end|>"] = 258;
  const json byte_level{{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", true}};
  return {{"version", "1.0"},
          {"added_tokens",
           {added(256, "<bos>", true), added(257, "<eos>", true), added(258, "<|im_end|>", true)}},
          {"normalizer", nullptr},
          {"pre_tokenizer", byte_level},
          {"post_processor", nullptr},
          {"decoder", byte_level},
          {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", json::array()}}}};
}

json chain_config() {
  return {{"bos_token", "<bos>"}, {"eos_token", {{"content", "<eos>"}}}};
}

TEST(TokenizerJson, Chain) {
  const auto tokenizer = load(chain(), chain_config());
  EXPECT_THAT(plain(*tokenizer, "AB\xc3\xa9<|im_end|>"), ElementsAre(65, 66, 0xc3, 0xa9, 258));
  EXPECT_EQ(tokenizer->vocab_size(), 259);
  EXPECT_EQ(tokenizer->bos_id(), 256);
  EXPECT_EQ(tokenizer->eos_id(), 257);
  EXPECT_THAT(tokenizer->end_ids(), ElementsAre(257, 258));
  EXPECT_FALSE(tokenizer->adds_bos());
  EXPECT_EQ(tokenizer->token_bytes(0xf0), "\xf0");
  EXPECT_EQ(tokenizer->token_bytes(258), "<|im_end|>");
  EXPECT_EQ(tokenizer->token_bytes(259), "");
  EXPECT_EQ(tokenizer->token_bytes(-1), "");
  EXPECT_EQ(tokenizer->decode({65, 258, 66}, true), "AB");
  EXPECT_EQ(tokenizer->decode({65, 258, 66}, false), "A<|im_end|>B");
  EXPECT_THAT(tokenizer->description(), HasSubstr("byte-level BPE, 259 tokens"));
}

TEST(TokenizerJson, EveryByteSurvives) {  // TOK-15: NUL, BOM, the last code point
  const auto tokenizer = load(chain());
  for (const std::string& text : {std::string("a\0b", 3), std::string("\xef\xbb\xbf"),
                                  std::string("\xf4\x8f\xbf\xbf"), std::string()}) {
    const auto ids = plain(*tokenizer, text);
    EXPECT_EQ(ids.size(), text.size());
    EXPECT_EQ(tokenizer->decode(ids, false), text);
  }
  EXPECT_THAT(plain(*tokenizer, "\xff"), ElementsAre(0xef, 0xbf, 0xbd));  // as U+FFFD
}

TEST(TokenizerJson, BosExactlyOnce) {  // TOK-12
  json config = chain_config();
  config["add_bos_token"] = true;
  const auto tokenizer = load(chain(), config);
  EXPECT_TRUE(tokenizer->adds_bos());
  EXPECT_THAT(tokenizer->encode("A", {}), ElementsAre(256, 65));
  EXPECT_THAT(tokenizer->encode_pieces({{"<bos>", true}, {"A", false}}, true), ElementsAre(256, 65));
  EXPECT_THAT(tokenizer->encode_pieces({{"A", false}}, true), ElementsAre(256, 65));
  // The user's own spelling is text, so the real one is still added.
  EXPECT_THAT(tokenizer->encode_pieces({{"<bos>", false}}, true), ElementsAre(256, '<', 'b', 'o', 's', '>'));
}

TEST(TokenizerJson, UserTextNeverBecomesAControlToken) {  // TOK-01
  const auto tokenizer = load(chain());
  const std::vector<TokenId> literal = {'<', '|', 'i', 'm', '_', 'e', 'n', 'd', '|', '>'};
  EXPECT_EQ(tokenizer->encode_pieces({{"<|im_end|>", false}}, false), literal);
  EXPECT_EQ(tokenizer->encode("<|im_end|>", {.add_special_tokens = false, .parse_special = false}), literal);
  EXPECT_THAT(tokenizer->encode_pieces({{"<|im_end|>", true}}, false), ElementsAre(258));
  // Half from the template, half from the user.
  EXPECT_EQ(tokenizer->encode_pieces({{"<|im_", true}, {"end|>", false}}, false), literal);
  EXPECT_EQ(tokenizer->encode_pieces({{"<|im_end", false}, {"|>", true}}, false), literal);
  // Two neighbouring pieces of the template are one text.
  EXPECT_THAT(tokenizer->encode_pieces({{"<|im_", true}, {"", false}, {"end|>x", true}}, false),
              ElementsAre(258, 'x'));
  EXPECT_THAT(
      tokenizer->encode_pieces({{"a<|im_end|>", true}, {"<|im_end|>", false}, {"<eos>", true}}, false).size(),
      13u);
}

TEST(TokenizerJson, TurnMarkersDeclaredOrdinaryAreControlTokens) {
  json file = chain();
  file["added_tokens"][2]["special"] = false;
  const auto tokenizer = load(file);
  EXPECT_TRUE(tokenizer->is_special(258));
  EXPECT_EQ(tokenizer->encode_pieces({{"<|im_end|>", false}}, false).size(), 10u);
}

TEST(TokenizerJson, AddedTokensByPassTheByteDecoder) {  // TOK-10
  json file = chain();
  const std::string content = "il\xc3\x96veyou";
  file["added_tokens"].push_back(added(259, content, false));
  const auto tokenizer = load(file);
  const auto ids = plain(*tokenizer, content);
  EXPECT_THAT(ids, ElementsAre(259));
  EXPECT_EQ(tokenizer->decode(ids, false), content);
  // Not a control token: matched in a user's text too.
  EXPECT_THAT(tokenizer->encode_pieces({{content, false}}, false), ElementsAre(259));
}

TEST(TokenizerJson, AddedTokenFlags) {  // TOK-11
  json file = chain();
  auto& tokens = file["added_tokens"];
  tokens.push_back(added(259, "[MASK]", true, {{"lstrip", true}}));
  tokens.push_back(added(260, "[R]", true, {{"rstrip", true}}));
  tokens.push_back(added(261, "cat", false, {{"single_word", true}}));
  tokens.push_back(added(262, "caterpillar", false));
  const auto tokenizer = load(file);
  EXPECT_THAT(plain(*tokenizer, "a   [MASK] b"), ElementsAre('a', 259, ' ', 'b'));
  EXPECT_THAT(plain(*tokenizer, "a [R] \n b"), ElementsAre('a', ' ', 260, 'b'));
  EXPECT_THAT(plain(*tokenizer, "[MASK]"), ElementsAre(259));
  EXPECT_THAT(plain(*tokenizer, "a cat."), ElementsAre('a', ' ', 261, '.'));
  EXPECT_THAT(plain(*tokenizer, "cats"), ElementsAre('c', 'a', 't', 's'));
  EXPECT_THAT(plain(*tokenizer, "caterpillar"), ElementsAre(262));  // the longest
  EXPECT_THAT(plain(*tokenizer, "[R] [MASK]"), ElementsAre(260, 259));
}

TEST(TokenizerJson, NormalizedFlag) {
  json file = chain();
  file["normalizer"] = {{"type", "Lowercase"}};
  file["added_tokens"].push_back(added(259, "Raw", false, {{"normalized", false}}));
  file["added_tokens"].push_back(added(260, "Norm", false, {{"normalized", true}}));
  const auto tokenizer = load(file);
  EXPECT_THAT(plain(*tokenizer, "Raw"), ElementsAre(259));
  EXPECT_THAT(plain(*tokenizer, "raw"), ElementsAre('r', 'a', 'w'));
  EXPECT_THAT(plain(*tokenizer, "Norm"), ElementsAre(260));
  EXPECT_THAT(plain(*tokenizer, "NORMx"), ElementsAre(260, 'x'));
}

TEST(TokenizerJson, SplitStringIsLiteral) {  // TOK-16
  json file = chain();
  file["model"]["vocab"]["12"] = 259;
  file["model"]["merges"] = {"1 2"};
  const json bytes{{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}};
  const auto with = [&](json pattern) {
    file["pre_tokenizer"] = {
        {"type", "Sequence"},
        {"pretokenizers",
         {{{"type", "Split"}, {"pattern", pattern}, {"behavior", "Isolated"}, {"invert", false}}, bytes}}};
    return plain(*load(file), "12");
  };
  EXPECT_THAT(with({{"String", "\\p{N}"}}), ElementsAre(259));
  EXPECT_THAT(with({{"Regex", "\\p{N}"}}), ElementsAre('1', '2'));
}

// A SentencePiece BPE in the form of Llama 2's file: Prepend, Replace, byte fallback, Fuse, Strip.
json llama2() {
  json vocab{{"<unk>", 0}, {"<s>", 1}, {"</s>", 2}};
  int next = 3;
  for (int byte = 0; byte < 256; ++byte) vocab[piece_of_byte(static_cast<unsigned char>(byte))] = next++;
  for (const std::string& piece :
       {kMark, std::string("a"), std::string("b"), kMark + "a", std::string("ab")}) {
    vocab[piece] = next++;
  }
  return {{"added_tokens", {added(0, "<unk>", true), added(1, "<s>", true), added(2, "</s>", true)}},
          {"normalizer",
           {{"type", "Sequence"},
            {"normalizers",
             {{{"type", "Prepend"}, {"prepend", kMark}},
              {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", kMark}}}}}},
          {"pre_tokenizer", nullptr},
          {"post_processor",
           {{"type", "TemplateProcessing"},
            {"single", {{{"SpecialToken", {{"id", "<s>"}}}}, {{"Sequence", {{"id", "A"}}}}}},
            {"special_tokens", {{"<s>", {{"id", "<s>"}, {"ids", {1}}}}}}}},
          {"decoder",
           {{"type", "Sequence"},
            {"decoders",
             {{{"type", "Replace"}, {"pattern", {{"String", kMark}}}, {"content", " "}},
              {{"type", "ByteFallback"}},
              {{"type", "Fuse"}},
              {{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}}}}}},
          {"model",
           {{"type", "BPE"},
            {"unk_token", "<unk>"},
            {"fuse_unk", true},
            {"byte_fallback", true},
            {"vocab", vocab},
            {"merges", json::array({json::array({kMark, "a"}), json::array({"a", "b"})})}}}};
}

TEST(TokenizerJson, SentencePieceBpe) {
  const auto tokenizer = load(llama2(), {{"bos_token", "<s>"}, {"eos_token", "</s>"}});
  const TokenId mark = 259, b = 261, mark_a = 262, ab = 263;
  EXPECT_THAT(tokenizer->encode("a b", {}), ElementsAre(1, mark_a, mark, b));
  EXPECT_THAT(plain(*tokenizer, "a\xc3\xa9"), ElementsAre(mark_a, 3 + 0xc3, 3 + 0xa9));
  EXPECT_THAT(plain(*tokenizer, "</s>ab"), ElementsAre(2, mark_a, b));  // the better merge goes first
  EXPECT_THAT(plain(*tokenizer, "bab"), ElementsAre(mark, b, ab));
  EXPECT_TRUE(tokenizer->strips_leading_space());
  EXPECT_EQ(tokenizer->decode({mark_a, mark, b}, true), "a b");
  EXPECT_EQ(tokenizer->decode({1, mark_a}, true), "a");
  EXPECT_EQ(tokenizer->decode({mark, mark_a}, true), " a");
  EXPECT_EQ(tokenizer->token_bytes(mark_a), " a");
  EXPECT_EQ(tokenizer->token_bytes(3 + 0xc3), "\xc3");
  // Literal "<0x41>" is text, not a byte.
  EXPECT_EQ(tokenizer->decode(plain(*tokenizer, "<0x41>"), true), "<0x41>");
  // A stream that continues a prompt keeps its space.
  Detokenizer at_start(*tokenizer, true, true), inside(*tokenizer, true, false);
  EXPECT_EQ(at_start.push(mark_a), "a");
  EXPECT_EQ(at_start.push(mark_a), " a");
  EXPECT_EQ(inside.push(mark_a), " a");
}

TEST(TokenizerJson, AddBosFalseOverrulesTheTemplate) {
  const auto tokenizer = load(llama2(), {{"bos_token", "<s>"}, {"add_bos_token", false}});
  EXPECT_FALSE(tokenizer->adds_bos());
  EXPECT_THAT(tokenizer->encode("a", {}), ElementsAre(262));
}

TEST(TokenizerJson, Unigram) {
  const json file{
      {"added_tokens", {added(0, "<unk>", true), added(1, "</s>", true)}},
      {"pre_tokenizer", {{"type", "Metaspace"}, {"replacement", kMark}, {"prepend_scheme", "always"}}},
      {"decoder", {{"type", "Metaspace"}, {"replacement", kMark}, {"prepend_scheme", "always"}}},
      {"model",
       {{"type", "Unigram"},
        {"unk_id", 0},
        {"vocab", json::array({json::array({"<unk>", 0.0}), json::array({"</s>", 0.0}),
                               json::array({kMark, -2.0}), json::array({"a", -3.0}),
                               json::array({kMark + "a", -4.0}), json::array({"aa", -7.0})})}}}};
  const auto tokenizer = load(file);
  EXPECT_THAT(plain(*tokenizer, "a"), ElementsAre(4));
  EXPECT_THAT(plain(*tokenizer, "aa"), ElementsAre(4, 3));
  EXPECT_THAT(plain(*tokenizer, "xya"), ElementsAre(2, 0, 3));  // a run of unknown characters is one
  EXPECT_EQ(tokenizer->decode({4, 4}, true), "a a");
  // "</s>" as text is not the token: only its characters, which are unknown here.
  EXPECT_THAT(tokenizer->encode("</s>", {.add_special_tokens = false, .parse_special = false}),
              ElementsAre(2, 0));
}

TEST(TokenizerJson, WordPieceAndBert) {  // TOK-17
  const json file{
      {"added_tokens", {added(0, "[UNK]", true), added(1, "[CLS]", true), added(2, "[SEP]", true)}},
      {"normalizer", {{"type", "BertNormalizer"}, {"lowercase", true}}},
      {"pre_tokenizer", {{"type", "BertPreTokenizer"}}},
      {"post_processor", {{"type", "BertProcessing"}, {"sep", {"[SEP]", 2}}, {"cls", {"[CLS]", 1}}}},
      {"decoder", {{"type", "WordPiece"}, {"prefix", "##"}, {"cleanup", true}}},
      {"model",
       {{"type", "WordPiece"},
        {"unk_token", "[UNK]"},
        {"vocab",
         {{"[UNK]", 0},
          {"[CLS]", 1},
          {"[SEP]", 2},
          {"cua", 3},
          {"##s", 4},
          {"!", 5},
          {"\xe6\x88\x91", 6}}}}}};
  const auto tokenizer = load(file);
  EXPECT_THAT(tokenizer->encode("C\xe1\xbb\xad"
                                "as!",
                                {}),
              ElementsAre(1, 3, 4, 5, 2));
  EXPECT_THAT(plain(*tokenizer, "cua\xe6\x88\x91zz"), ElementsAre(3, 6, 0));
  EXPECT_THAT(tokenizer->encode("   ", {}), ElementsAre(1, 2));
  EXPECT_THAT(plain(*tokenizer, std::string(101, 'c')), ElementsAre(0));
  EXPECT_EQ(tokenizer->decode({1, 3, 4, 5, 3, 2}, true), "cuas! cua");
}

TEST(TokenizerJson, ErrorsNameFileAndField) {
  json file = chain();
  file["normalizer"] = {{"type", "Frobnicate"}};
  EXPECT_THAT(error_of(file),
              AllOf(HasSubstr("test.json"), HasSubstr("normalizer"), HasSubstr("Frobnicate")));
  file = chain();
  file["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", {{{"type", "Odd"}}}}};
  EXPECT_THAT(error_of(file), AllOf(HasSubstr("pretokenizers[0]"), HasSubstr("Odd")));
  file = chain();
  file["decoder"] = {{"type", "CTC"}};
  EXPECT_THAT(error_of(file), HasSubstr("CTC"));
  file = chain();
  file["post_processor"] = {{"type", "X"}};
  EXPECT_THAT(error_of(file), HasSubstr("post_processor"));
  file = chain();
  file["model"]["type"] = "GPT";
  EXPECT_THAT(error_of(file), HasSubstr("GPT"));
  file = chain();
  file["model"]["merges"] = {"A Bx"};
  EXPECT_THAT(error_of(file), HasSubstr("\"Bx\""));
  file = chain();
  file["model"]["merges"] = {"AB"};
  EXPECT_THAT(error_of(file), HasSubstr("merges"));
  file = chain();
  file["pre_tokenizer"] = {{"type", "Split"}, {"pattern", {{"Regex", "("}}}, {"behavior", "Isolated"}};
  EXPECT_THAT(error_of(file), HasSubstr("pre_tokenizer.pattern"));
  EXPECT_THAT(error_of(chain(), {{"bos_token", 5}}), HasSubstr("bos_token"));
  EXPECT_THAT(error_of(std::string("{")), HasSubstr("test.json is not JSON"));
  EXPECT_THAT(error_of(std::string("[]")), HasSubstr("test.json"));
  EXPECT_THAT(error_of(std::string("{}")), HasSubstr("model"));
}

TEST(TokenizerJson, HostileFiles) {
  json file = chain();
  file["model"]["vocab"]["x"] = 4'000'000'000u;  // a gigantic id
  EXPECT_THAT(error_of(file), HasSubstr("4000000000"));
  file["model"]["vocab"]["x"] = 16'000'000;  // a sparse one
  EXPECT_THAT(error_of(file), HasSubstr("16000000"));
  file["model"]["vocab"]["x"] = -1;
  EXPECT_THAT(error_of(file), HasSubstr("-1"));
  file["model"]["vocab"]["x"] = 1.5;
  EXPECT_THAT(error_of(file), HasSubstr("\"x\""));
  file["model"]["vocab"]["xy"] = 65;
  file["model"]["vocab"]["x"] = 120;
  EXPECT_THAT(error_of(file), HasSubstr("id 65 belongs to both"));
  file = chain();
  file["added_tokens"].push_back(added(65, "<again>", true));
  EXPECT_THAT(error_of(file), HasSubstr("<again>"));
  file = chain();
  file["added_tokens"].push_back(added(300, "A", true));
  EXPECT_THAT(error_of(file), HasSubstr("\"A\""));
  file = chain();
  file["post_processor"] = {{"type", "BertProcessing"}, {"sep", {"s", 999}}, {"cls", {"c", 1}}};
  EXPECT_THAT(error_of(file), HasSubstr("999"));
  EXPECT_THAT(error_of("{\"x\":" + std::string(100'000, '[')), HasSubstr("deeper"));
  EXPECT_THAT(error_of("{\"model\":{\"vocab\":{\"a\":" + std::string(100'000, '{')), HasSubstr("vocab"));
  EXPECT_THAT(error_of(std::string("{\"model\":{\"merges\":[[[\"a\"]]]}}")), HasSubstr("merges"));
  json unigram{
      {"model", {{"type", "Unigram"}, {"unk_id", 9}, {"vocab", json::array({json::array({"a", -1.0})})}}}};
  EXPECT_THAT(error_of(unigram), HasSubstr("unk_id"));
}

TEST(Detokenizer, WholeCharactersOnly) {  // STR-01
  const auto tokenizer = load(chain());
  Detokenizer detokenizer(*tokenizer, true, true);
  std::string joined;
  const std::string text = "Z\xf0\x9f\xa6\x99\xc3\xa9\xe7\x8c\xab!";
  for (char c : text) {
    const std::string delta = detokenizer.push(static_cast<unsigned char>(c));
    EXPECT_TRUE(delta.empty() || static_cast<unsigned char>(delta[0]) != 0x80) << delta;
    joined += delta;
  }
  EXPECT_EQ(joined, text);
  EXPECT_EQ(detokenizer.push(258), "");  // a control token
  EXPECT_EQ(detokenizer.push(9999), "");
  EXPECT_EQ(detokenizer.push(0xf0), "");
  EXPECT_EQ(detokenizer.push(0x9f), "");
  EXPECT_EQ(detokenizer.finish(), "");  // a character cut by the end is left out
  // What can never become a character is said at once; what may still is kept.
  EXPECT_EQ(detokenizer.push(0xff), "\xef\xbf\xbd");
  EXPECT_EQ(detokenizer.push(0xf0), "");
  EXPECT_EQ(detokenizer.push(0xc3), "\xef\xbf\xbd");
  EXPECT_EQ(detokenizer.push(0xa9), "\xc3\xa9");
  EXPECT_EQ(detokenizer.push(0xe7), "");
  EXPECT_EQ(detokenizer.push('x'), "\xef\xbf\xbdx");
}

}  // namespace
}  // namespace quire
