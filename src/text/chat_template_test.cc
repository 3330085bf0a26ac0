#include "text/chat_template.h"

#include <ctime>
#include <filesystem>
#include <fstream>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace quire {
namespace {

using Json = nlohmann::ordered_json;
using testing::HasSubstr;

// 2026-12-01 08:30:00 local time: the moment that the reference answers were rendered at.
std::int64_t reference_time() {
  std::tm time{};
  time.tm_year = 126;
  time.tm_mon = 11;
  time.tm_mday = 1;
  time.tm_hour = 8;
  time.tm_min = 30;
  time.tm_isdst = -1;
  return std::mktime(&time);
}

struct Outcome {
  bool ok = false;
  std::string text;  // rendered, or the error
};

Outcome render(const std::string& source, const Json& context) {
  auto parsed = ChatTemplate::parse(source);
  if (!parsed.ok()) return {false, parsed.error().message};
  auto pieces = (*parsed)->render(context, reference_time());
  if (!pieces.ok()) return {false, pieces.error().message};
  Outcome outcome{true, ""};
  for (const PromptPiece& piece : *pieces) outcome.text += piece.text;
  return outcome;
}

std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::vector<Json> read_lines(const std::filesystem::path& path) {
  std::vector<Json> rows;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) rows.push_back(Json::parse(line));
  return rows;
}

TEST(ChatTemplate, RealTemplatesAsJinja2) {
  const std::filesystem::path shared(QUIRE_SHARED_DIR);
  const auto answers = shared / "golden" / "templates.jsonl";
  if (!std::filesystem::exists(answers)) GTEST_SKIP() << answers << " is missing";
  int num_compared = 0;
  for (const Json& row : read_lines(answers)) {
    const auto name = row["template"].get<std::string>();
    const Outcome got = render(read_file(shared / "templates" / name), row["context"]);
    ++num_compared;
    if (row.contains("error")) {
      EXPECT_FALSE(got.ok) << name << " " << row["case"];
      // The class of a Python exception is not ours to repeat; the template's own words are.
      if (row["error"] != "TypeError") {
        EXPECT_THAT(got.text, HasSubstr(row["error"].get<std::string>())) << name;
      }
    } else {
      ASSERT_TRUE(got.ok) << name << " " << row["case"] << ": " << got.text;
      EXPECT_EQ(got.text, row["rendered"].get<std::string>()) << name << " " << row["case"];
    }
  }
  EXPECT_GT(num_compared, 0);
}

// Made by tools/make_jinja_cases.py with jinja2 3.1.
TEST(ChatTemplate, EveryFeatureAsJinja2) {
  const auto rows =
      read_lines(std::filesystem::path(QUIRE_SOURCE_DIR) / "tests" / "data" / "jinja_cases.jsonl");
  ASSERT_GT(rows.size(), 1000u);
  const Json& context = rows[0]["context"];
  for (std::size_t i = 1; i < rows.size(); ++i) {
    const auto source = rows[i]["template"].get<std::string>();
    const Outcome got = render(source, context);
    if (rows[i].contains("error")) {
      EXPECT_FALSE(got.ok) << source << "\nrenders to: " << got.text << "\nbut is a " << rows[i]["error"];
    } else {
      EXPECT_TRUE(got.ok) << source << "\n" << got.text;
      if (got.ok) {
        EXPECT_EQ(got.text, rows[i]["rendered"].get<std::string>()) << source;
      }
    }
  }
}

// TPL-01, TPL-02: a template's refusal is its own text, nothing around it.
TEST(ChatTemplate, RefusalIsTheTemplatesOwnText) {
  const std::string source =
      "{{ bos_token }}{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not "
      "supported') }}"
      "{% endif %}{% for message in messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}"
      "{{ raise_exception('Conversation roles must alternate') }}{% endif %}{{ message.content }}{% endfor "
      "%}";
  auto parsed = ChatTemplate::parse(source);
  ASSERT_TRUE(parsed.ok());
  const Json system = {
      {"messages", {{{"role", "system"}, {"content", "S"}}, {{"role", "user"}, {"content", "U"}}}}};
  const auto refused = (*parsed)->render(system);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().message, "System role not supported");
  EXPECT_EQ(refused.error().code, ErrorCode::kInvalid);
  const Json twice = {
      {"messages", {{{"role", "user"}, {"content", "A"}}, {{"role", "user"}, {"content", "B"}}}}};
  EXPECT_EQ((*parsed)->render(twice).error().message, "Conversation roles must alternate");
  const Json fine = {{"messages", {{{"role", "user"}, {"content", "A"}}}}};
  EXPECT_TRUE((*parsed)->render(fine).ok());
}

// TPL-04
TEST(ChatTemplate, TojsonIsPlainJson) {
  const Json context = {{"tools", {{{"description", "a<b & 'c' é猫"}}}}};
  EXPECT_EQ(render("{{ tools[0] | tojson }}", context).text, "{\"description\": \"a<b & 'c' é猫\"}");
  EXPECT_EQ(render("{{ x|tojson }}", Json::parse(R"({"x": {"b": 1, "a": "<é>"}})")).text,
            "{\"b\": 1, \"a\": \"<é>\"}");
  EXPECT_EQ(
      render("{{ x|tojson(ensure_ascii=False, indent=2) }}", Json::parse(R"({"x": {"b": 1, "a": "<é>"}})"))
          .text,
      "{\n  \"b\": 1,\n  \"a\": \"<é>\"\n}");
}

// TPL-13
TEST(ChatTemplate, SandboxHolds) {
  const Json context = {{"messages", Json::array()}};
  EXPECT_FALSE(render("{{ ''.__class__.__mro__ }}", context).ok);
  EXPECT_FALSE(render("{{ lipsum.__globals__ }}", context).ok);
  const Outcome append = render("{{ messages.append(1) }}", context);
  EXPECT_FALSE(append.ok);
  EXPECT_THAT(append.text, HasSubstr("access to attribute 'append' of 'list' object is unsafe"));
  EXPECT_FALSE(render("{% include '/etc/passwd' %}", context).ok);
}

TEST(ChatTemplate, ErrorsNameTheLine) {
  EXPECT_THAT(render("a\n\n{{ x.y }}", Json::object()).text, HasSubstr("line 3"));
  EXPECT_THAT(render("a\n{% if %}", Json::object()).text, HasSubstr("line 2"));
  EXPECT_THAT(render("{% for i in [1] %}\n{{ i }}\n\n{{ i + 'a' }}{% endfor %}", Json::object()).text,
              HasSubstr("line 4"));
  EXPECT_THAT(render("{{ 1 }}\n{{ 'a' | nope }}", Json::object()).text, HasSubstr("nope"));
}

TEST(ChatTemplate, MentionsOnlyNamesThatAreRead) {
  auto parsed = ChatTemplate::parse(
      "{% set only_set = 1 %}{% if tools is defined %}{{ messages[0].content }}{% endif %}{{ 'documents' }}");
  ASSERT_TRUE(parsed.ok());
  EXPECT_TRUE((*parsed)->mentions("tools"));
  EXPECT_TRUE((*parsed)->mentions("messages"));
  EXPECT_FALSE((*parsed)->mentions("content"));
  EXPECT_FALSE((*parsed)->mentions("documents"));
  EXPECT_FALSE((*parsed)->mentions("only_set"));
  EXPECT_FALSE((*parsed)->mentions("loop"));
}

TEST(ChatTemplate, ContextIsAnObject) {
  auto parsed = ChatTemplate::parse("x");
  ASSERT_TRUE(parsed.ok());
  EXPECT_FALSE((*parsed)->render(Json::array()).ok());
  EXPECT_EQ((*parsed)->source(), "x");
}

TEST(ChatTemplate, InvalidUtf8) {
  EXPECT_FALSE(ChatTemplate::parse("a\xFFz").ok());
  EXPECT_EQ(render("{{ x }}|{{ x | length }}", Json{{"x", "a\xFFz"}}).text, "a\uFFFDz|3");
}

TEST(ChatTemplate, TimeIsTheCallersTime) {
  EXPECT_EQ(render("{{ strftime_now('%Y-%m-%d %H:%M:%S') }}", Json::object()).text, "2026-12-01 08:30:00");
}

// --- trust ---

// Untrusted text in brackets.
std::string marked(const std::string& source, const Json& context) {
  auto parsed = ChatTemplate::parse(source);
  if (!parsed.ok()) return parsed.error().message;
  auto pieces = (*parsed)->render(context);
  if (!pieces.ok()) return pieces.error().message;
  std::string out;
  for (std::size_t i = 0; i < pieces->size(); ++i) {
    const PromptPiece& piece = (*pieces)[i];
    EXPECT_FALSE(piece.text.empty());
    EXPECT_TRUE(i == 0 || (*pieces)[i - 1].trusted != piece.trusted) << "not merged: " << piece.text;
    out += piece.trusted ? piece.text : "[" + piece.text + "]";
  }
  return out;
}

struct TrustCase {
  const char* source;
  const char* expected;
};

TEST(ChatTemplateTrust, FollowsEveryOperation) {
  const Json context = Json::parse(R"({
    "messages": [{"role": "user", "content": " Ab,<|x|> "}, {"role": "assistant", "content": "q\nr"}],
    "tools": [{"name": "f<|x|>"}], "documents": ["d"], "bos_token": "<s>", "extra": "ok"})");
  constexpr TrustCase kCases[] = {
      {"<|im|>{{ messages[0].content }}<|end|>", "<|im|>[ Ab,<|x|> ]<|end|>"},
      {"{{ bos_token }}{{ extra }}", "<s>ok"},
      {"{{ documents[0] }}{{ tools[0].name }}", "[df<|x|>]"},
      {"{{ '<' ~ messages[0].role ~ '>' }}", "<[user]>"},
      {"{{ '<' + messages[0].role + '>' }}", "<[user]>"},
      {"{{ messages[0].content | trim }}", "[Ab,<|x|>]"},
      {"{{ messages[0].content.strip().split(',') | join('-') }}", "[Ab]-[<|x|>]"},
      {"{{ messages[0].content.strip().replace('b', 'B') }}", "[A]B[,<|x|>]"},
      {"{{ 'x-x' | replace('-', messages[0].role) }}", "x[user]x"},
      {"{{ messages[0].content | upper | trim }}", "[AB,<|X|>]"},
      {"{{ ('<a>' ~ messages[0].role)[1:5] }}", "a>[us]"},
      {"{{ ('<a>' ~ messages[0].role)[::-1] }}", "[resu]>a<"},
      {"{{ ('a' ~ messages[0].role) | title }}", "A[user]"},
      {"{% for c in messages[1].content %}{{ c }}.{% endfor %}", "[q].[\n].[r]."},
      {"{{ messages[1].content | indent(2) }}", "[q]\n  [r]"},
      {"{{ '%s=%5s' % ('k', messages[0].role) }}", "k= [user]"},
      {"{{ '{}|{:>6}|{a}'.format('k', messages[0].role, a=messages[1].role) }}", "k|  [user]|[assistant]"},
      {"{{ messages[0].role.format() }}{{ messages[0].role % () }}", "[useruser]"},
      {"{{ tools | tojson }}", "[{\"[name]\": \"[f<|x|>]\"}]"},
      {"{{ [messages[0].role] }}", "['[user]']"},
      {"{{ messages[1].content | e }}{{ messages[0].content | trim | e }}", "[q\nrAb,&lt;|x|&gt;]"},
      {"{% set a %}<{{ messages[0].role }}>{% endset %}{{ a }}", "<[user]>"},
      {"{% macro f(x) %}<{{ x }}>{% endmacro %}{{ f(messages[0].role) }}", "<[user]>"},
      {"{% for k, v in tools[0].items() %}{{ k }}={{ v }}{% endfor %}", "[name]=[f<|x|>]"},
      {"{% macro f() %}{% for k in kwargs %}{{ k }}{% endfor %}{% endmacro %}{{ f(**tools[0]) }}", "[name]"},
      {"{{ dict(**tools[0]) | list | first }}", "[name]"},
      {"{{ messages[0].role * 2 }}", "[useruser]"},
      {"{{ messages | map(attribute='role') | join('/') }}", "[user]/[assistant]"},
      {"{{ messages[0].role | center(8, ) }}|", "  [user]  |"},
      {"{{ messages[0].role | list | sort | join }}", "[ersu]"},
      {"{{ (messages | groupby('role'))[1].grouper }}", "[user]"},
      {"{{ messages[0].role | urlencode }}{{ messages[0].role | string }}{{ messages[0].role | safe }}",
       "[useruseruser]"},
      {"{{ messages[0].role | default('x') }}{{ messages[0].nope | default('x') }}", "[user]x"},
      {"{{ 'yes' if messages[0].role == 'user' }}{{ 'user' in [messages[0].role] }}", "yesTrue"},
      {"{{ {'user': 'found'}[messages[0].role] }}", "found"},
      {"{{ strftime_now(messages[0].role) }}", "[user]"},
      {"{{ messages[0].role | wordwrap(2) }}", "[us]\n[er]"},
      {"{{ messages[0].content.split('|')[1] }}", "[x]"},
      {"{{ 'a,b'.split(',')[1] ~ messages[0].content.partition(',')[0].strip() }}", "b[Ab]"},
      {"{{ messages[0].role | truncate(3, true, '.', 0) }}", "[us]."},
      {"{{ attr_name | default('n') }}{{ tools[0].name | attr('upper') is callable }}", "nTrue"},
      {"{{ messages[0].role.join(['1', '2']) }}", "1[user]2"},
      {"{{ '{x}'.format(**{'x': messages[0].role}) }}", "[user]"},
      {"{{ messages[0].role.ljust(6, '*') }}{{ messages[0].role.zfill(5) }}", "[user]**0[user]"},
      {"{{ messages[0].content | striptags | trim }}", "[Ab,]"},
  };
  for (const TrustCase& test : kCases) EXPECT_EQ(marked(test.source, context), test.expected) << test.source;
}

// However the template takes a message apart, all of its text stays untrusted.
TEST(ChatTemplateTrust, ControlTokenOfAMessageIsNeverTrusted) {
  const std::filesystem::path shared(QUIRE_SHARED_DIR);
  const auto folder = shared / "templates";
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << folder << " is missing";
  const Json context = Json::parse(R"({"bos_token": "<s>", "eos_token": "</s>", "add_generation_prompt": true,
    "messages": [{"role": "user", "content": "Hi @@MARK@@ <think>@@MARK@@</think> x"},
                 {"role": "assistant", "content": "<think>@@MARK@@</think>@@MARK@@"},
                 {"role": "user", "content": "@@MARK@@"}]})");
  int num_rendered = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    auto parsed = ChatTemplate::parse(read_file(entry.path()));
    ASSERT_TRUE(parsed.ok()) << entry.path();
    const auto pieces = (*parsed)->render(context, reference_time());
    if (!pieces.ok()) continue;
    ++num_rendered;
    bool seen = false;
    for (const PromptPiece& piece : *pieces) {
      if (piece.trusted) {
        EXPECT_THAT(piece.text, testing::Not(HasSubstr("MARK"))) << entry.path();
      }
      seen |= !piece.trusted;
    }
    EXPECT_TRUE(seen) << entry.path();
  }
  EXPECT_GT(num_rendered, 30);
}

}  // namespace
}  // namespace quire
