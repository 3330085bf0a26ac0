#include "text/stop_strings.h"

#include <random>

#include <gtest/gtest.h>

namespace quire {
namespace {

struct Ending {
  std::string text;
  std::optional<std::string> matched;
  bool operator==(const Ending&) const = default;
};

Ending run(const std::vector<std::string>& stops, bool include, const std::vector<std::string>& deltas) {
  StopStrings filter(stops, include);
  Ending ending;
  for (const std::string& delta : deltas) ending.text += filter.push(delta);
  ending.text += filter.finish();
  ending.matched = filter.matched();
  return ending;
}

// The definition: after each byte, does the text end in a stop string? The longest of those is the match.
Ending naive(const std::vector<std::string>& stops, bool include, const std::string& text) {
  for (std::size_t end = 1; end <= text.size(); ++end) {
    std::optional<std::string> best;
    for (const std::string& stop : stops) {
      if (stop.size() > end || text.compare(end - stop.size(), stop.size(), stop) != 0) continue;
      if (!best || stop.size() > best->size()) best = stop;
    }
    if (best) return {text.substr(0, include ? end : end - best->size()), best};
  }
  return {text, std::nullopt};
}

TEST(StopStrings, CompletesFirstWins) {  // STR-05
  EXPECT_EQ(run({"HI", "GH"}, false, {"D", "E", "F", "G", "H", "I"}), (Ending{"DEF", "GH"}));
  EXPECT_EQ(run({"FGHI", "G"}, false, {"D", "E", "F", "G", "H"}), (Ending{"DEF", "G"}));
  EXPECT_EQ(run({"\xf0\x9f\xa6\x99"}, false, {"Z", "\xf0\x9f\xa6\x99", "x"}),
            (Ending{"Z", "\xf0\x9f\xa6\x99"}));
}

TEST(StopStrings, HoldsOnlyWhatMayBecomeAStop) {  // STR-06
  StopStrings filter({"QQQQQQQQQQ", "EFX"}, false);
  EXPECT_EQ(filter.push("D"), "D");
  EXPECT_EQ(filter.push("E"), "");
  EXPECT_EQ(filter.push("F"), "");
  EXPECT_EQ(filter.push("G"), "EFG");
  EXPECT_EQ(filter.push("aQQ"), "a");
  EXPECT_EQ(filter.finish(), "QQ");
  EXPECT_EQ(filter.finish(), "");
}

TEST(StopStrings, NothingMatchesWithinDisabledText) {  // SMP-07
  StopStrings filter({"C", "DE"}, false);
  EXPECT_EQ(filter.push("B", false), "B");
  EXPECT_EQ(filter.push("C", false), "C");
  EXPECT_EQ(filter.push("D", false), "D");
  EXPECT_EQ(filter.push("E", true), "E");  // a match may not begin in disabled text either
  EXPECT_EQ(filter.push("C", true), "");
  EXPECT_EQ(filter.matched(), "C");
  EXPECT_EQ(filter.push("more"), "");
  EXPECT_EQ(filter.finish(), "");
}

TEST(StopStrings, IncludesTheStopIfAsked) {
  EXPECT_EQ(run({"lo"}, true, {"hel", "l", "o there"}), (Ending{"hello", "lo"}));
}

TEST(StopStrings, EqualsTheDefinitionOnRandomTexts) {
  std::mt19937 random(11);
  const auto word = [&](std::size_t longest) {
    std::string out;
    for (std::size_t n = random() % longest + 1; n > 0; --n) out.push_back("ab"[random() % 2]);
    return out;
  };
  int matches = 0;
  for (int round = 0; round < 5000; ++round) {
    std::vector<std::string> stops;
    for (std::size_t n = random() % 4; n > 0; --n) stops.push_back(word(6));
    std::vector<std::string> deltas;
    std::string text;
    for (std::size_t n = random() % 12; n > 0; --n) {
      deltas.push_back(word(4));
      text += deltas.back();
    }
    const bool include = random() % 2 == 0;
    const Ending expected = naive(stops, include, text);
    ASSERT_EQ(run(stops, include, deltas), expected) << text;
    matches += expected.matched.has_value();
  }
  EXPECT_GT(matches, 1000);
}

TEST(StopStrings, IsLinearInLongStops) {
  StopStrings filter({std::string(1 << 20, 'a') + "b"}, false);
  std::size_t sent = 0;
  for (int i = 0; i < 64; ++i) sent += filter.push(std::string(1 << 15, 'a')).size();
  EXPECT_EQ(sent, (64u << 15) - (1u << 20));
}

}  // namespace
}  // namespace quire
