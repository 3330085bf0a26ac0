#include "api/json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "api/field_reader.h"

namespace quire {
namespace {

using ::testing::HasSubstr;

std::string error_of(std::string_view text) {
  const auto result = parse_json(text);
  return result.ok() ? "" : result.error().message;
}

TEST(ParseJson, KeepsTheOrderOfNames) {
  const auto value = parse_json(R"({"b": 1, "a": {"z": [1.5, null, true], "y": "é\n"}})");
  ASSERT_TRUE(value.ok());
  EXPECT_EQ(dump_json(*value), R"({"b":1,"a":{"z":[1.5,null,true],"y":"é\n"}})");
}

TEST(ParseJson, RefusesWhatIsNotJson) {
  for (const char* text : {"", " ", "{:", "{} x", "{\"a\": NaN}", "[Infinity]", "{'a': 1}", "[1,]",
                           "{\"a\":1,}", "\"\\ud83d\"", "\"\\udc00\\ud800\"", "\"\xff\"", "\"\xc0\x80\"",
                           "\"\xed\xa0\x80\"", "\"\n\"", "1e999", "[1 2]", "nul"}) {
    EXPECT_NE(error_of(text), "") << text;
  }
}

TEST(ParseJson, ErrorsRepeatNoBytesOfTheBody) {
  const std::string message = error_of("{\"secret\": \"\xc4\xe3\"}");
  EXPECT_THAT(message, HasSubstr("at byte"));
  EXPECT_EQ(message.find("secret"), std::string::npos);
  EXPECT_EQ(message.find('\xc4'), std::string::npos);
}

TEST(ParseJson, RefusesDeepNestingAlsoInSideFields) {
  const auto nested = [](std::size_t depth) {
    return "{\"x\":" + std::string(depth, '[') + std::string(depth, ']') + "}";
  };
  EXPECT_EQ(error_of(nested(kMaxJsonDepth - 1)), "");
  EXPECT_THAT(error_of(nested(kMaxJsonDepth)), HasSubstr("levels deep"));
  EXPECT_THAT(error_of("{\"x\":" + std::string(100'000, '[')), HasSubstr("levels deep"));
}

TEST(ParseJson, RefusesANameGivenTwice) {
  EXPECT_THAT(error_of(R"({"a": 1, "b": 2, "a": 3})"), HasSubstr("\"a\" appears twice"));
  EXPECT_EQ(error_of(R"([{"a": 1}, {"a": 2}, {"b": {"a": 3}, "a": 4}])"), "");
}

TEST(ParseJson, ManyNamesTakeLinearTime) {
  std::string text = "{";
  for (int i = 0; i < 200'000; ++i) text += (i == 0 ? "\"k" : ",\"k") + std::to_string(i) + "\":0";
  text += "}";
  const auto value = parse_json(text);  // quadratic, this would take a minute
  ASSERT_TRUE(value.ok());
  EXPECT_EQ(value->size(), 200'000u);
}

TEST(DumpJson, NeverFails) {
  EXPECT_EQ(dump_json(Json{{"a", "\xff"}}), "{\"a\":\"\xef\xbf\xbd\"}");
}

class FieldReaderTest : public ::testing::Test {
 protected:
  FieldReader reader(const char* text) {
    body_ = *parse_json(text);
    return FieldReader(body_);
  }
  Json body_;
};

TEST_F(FieldReaderTest, AbsentAndNullLeaveTheDefault) {
  FieldReader fields = reader(R"({"a": null})");
  double a = 1.5;
  std::int64_t b = 7;
  fields.number("a", a);
  fields.integer("b", b);
  EXPECT_EQ(a, 1.5);
  EXPECT_EQ(b, 7);
  EXPECT_TRUE(fields.ok());
}

TEST_F(FieldReaderTest, NamesTheFieldTheRangeAndTheValue) {
  FieldReader fields = reader(R"({"top_p": 1.5})");
  double top_p = 1;
  fields.number("top_p", top_p, {0, 1});
  ASSERT_FALSE(fields.ok());
  EXPECT_EQ(fields.status().error().message, "'top_p' must be a number from 0 to 1, got 1.5.");
  EXPECT_EQ(fields.status().error().param, "top_p");
}

TEST_F(FieldReaderTest, WholeNumbersOnly) {
  for (const char* text : {R"({"n": 1.5})", R"({"n": "5"})", R"({"n": true})", R"({"n": 1e30})",
                           R"({"n": 18446744073709551615})", R"({"n": []})"}) {
    FieldReader fields = reader(text);
    std::int64_t n = 1;
    fields.integer("n", n, {0});
    EXPECT_FALSE(fields.ok()) << text;
  }
  FieldReader fields = reader(R"({"n": 5.0})");
  std::int64_t n = 1;
  fields.integer("n", n, {0});
  EXPECT_TRUE(fields.ok());
  EXPECT_EQ(n, 5);
}

TEST_F(FieldReaderTest, SaturatesWhereThatIsHarmless) {
  for (const char* text :
       {R"({"n": 9223372036854775808})", R"({"n": 1e30})", R"({"n": 18446744073709551615})"}) {
    FieldReader fields = reader(text);
    std::optional<std::int64_t> n;
    fields.saturating("n", n, {0});
    EXPECT_TRUE(fields.ok()) << text;
    EXPECT_EQ(n, std::numeric_limits<std::int64_t>::max());
  }
  FieldReader fields = reader(R"({"n": -1e30})");
  std::optional<std::int64_t> n;
  fields.saturating("n", n, {0});
  EXPECT_FALSE(fields.ok());
}

TEST_F(FieldReaderTest, TheFirstErrorStays) {
  FieldReader fields = reader(R"({"a": "x", "b": "y"})");
  bool flag = false;
  fields.boolean("a", flag);
  fields.boolean("b", flag);
  EXPECT_EQ(fields.status().error().param, "a");
}

TEST_F(FieldReaderTest, ListsWhatNobodyRead) {
  FieldReader fields = reader(R"({"a": 1, "mystery": 2, "b": 3})");
  fields.accept("a");
  fields.refuse("b", "never.", 3);
  EXPECT_TRUE(fields.ok());
  EXPECT_THAT(fields.unknown(), ::testing::ElementsAre("mystery"));
}

TEST_F(FieldReaderTest, ABodyMustBeAnObject) {
  FieldReader fields = reader("[1]");
  EXPECT_FALSE(fields.ok());
  EXPECT_EQ(fields.find("a"), nullptr);
}

}  // namespace
}  // namespace quire
