#include "loader/pull.h"

#include <cstdlib>
#include <filesystem>
#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/mapped_file.h"
#include "loader/checkpoint.h"
#include "loader/install.h"
#include "loader/sha256.h"
#include "loader/test_files.h"

namespace quire {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using testing::GgufMaker;
using ::testing::HasSubstr;
using testing::TempFolder;

std::string sha256_of(std::string_view bytes) {
  Sha256 sum;
  sum.update(bytes.data(), bytes.size());
  return sum.finish();
}

TEST(Sha256Test, KnownAnswers) {
  // FIPS 180-2, appendix B.
  EXPECT_EQ(sha256_of("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sha256_of(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
}

TEST(HubSpecTest, Forms) {
  for (const char* spec : {"org/name", "org/name:Q4_K_M", "org/name:folder/x.gguf", "a.b/c_d-e"}) {
    EXPECT_TRUE(is_hub_spec(spec)) << spec;
  }
  for (const char* spec :
       {"name", "org/", "/name", "../name", "org/..", "a/b/c", "org/name:", "", "org/na me", "org/n?x"}) {
    EXPECT_FALSE(is_hub_spec(spec)) << spec;
  }
}

TEST(InstallTest, ReplacesFilesAndFoldersWhole) {
  const TempFolder folder;
  folder.write("old/a", "1");
  folder.write("old/b", "2");
  folder.write("new/a", "3");
  ASSERT_TRUE(move_into_place(folder / "new", folder / "old").ok());
  EXPECT_EQ(read_file(folder / "old/a").value(), "3");
  EXPECT_FALSE(std::filesystem::exists(folder / "old/b"));
  EXPECT_FALSE(std::filesystem::exists(folder / "new"));
  folder.write("x", "4");
  folder.write("y", "5");
  ASSERT_TRUE(move_into_place(folder / "x", folder / "y").ok());
  EXPECT_EQ(read_file(folder / "y").value(), "4");
  EXPECT_FALSE(move_into_place(folder / "absent", folder / "y").ok());
  EXPECT_EQ(read_file(folder / "y").value(), "4");
}

TEST(InstallTest, LockIsExclusive) {
  const TempFolder folder;
  std::atomic<bool> cancelled{false};
  const auto first = InstallLock::acquire(folder.path(), "m", &cancelled, nullptr);
  ASSERT_TRUE(first.ok());
  EXPECT_TRUE(InstallLock::acquire(folder.path(), "other", &cancelled, nullptr).ok());
  bool waited = false;
  const auto second = InstallLock::acquire(folder.path(), "m", &cancelled, [&] {
    waited = true;
    cancelled = true;
  });
  EXPECT_TRUE(waited);
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.error().code, ErrorCode::kCancelled);
}

// A hub in memory. Each transfer of a file may be cut short.
class HubPullTest : public ::testing::Test {
 protected:
  void SetUp() override {
    setenv("QUIRE_HOME", home_.path().c_str(), 1);
    setenv("HF_ENDPOINT", "http://hub.test/", 1);
    unsetenv("HF_TOKEN");
    options_.retry_delay = std::chrono::milliseconds(0);
    options_.fetch = [this](const auto& request, const auto& on_head, const auto& on_data) {
      return fetch(request, on_head, on_data);
    };
    options_.on_note = [this](const std::string& text) { notes_ += text + "\n"; };
    options_.on_progress = [this](const PullProgress& at) {
      EXPECT_LE(at.done, at.total);
      last_progress_ = at;
    };
  }
  void TearDown() override {
    unsetenv("QUIRE_HOME");
    unsetenv("HF_ENDPOINT");
  }

  Status fetch(const FetchRequest& request, const std::function<bool(const FetchHead&)>& on_head,
               const std::function<bool(std::string_view)>& on_data) {
    requests_.push_back(request.url + (request.offset > 0 ? "@" + std::to_string(request.offset) : ""));
    const auto answer = [&](int status, std::string_view body, std::size_t send) -> Status {
      FetchHead head{status, {}};
      if (status == 206) {
        head.headers.emplace_back("content-range",
                                  "bytes " + std::to_string(range_start_.value_or(request.offset)) + "-");
      }
      if (!on_head(head)) return make_error(ErrorCode::kCancelled, "stopped");
      for (std::size_t at = 0; at < send; at += 7) {
        if (!on_data(body.substr(at, std::min<std::size_t>(7, send - at)))) {
          return make_error(ErrorCode::kCancelled, "stopped");
        }
      }
      if (send < body.size()) return make_error(ErrorCode::kIo, "the connection broke off");
      return {};
    };
    if (request.url == "http://hub.test/api/models/org/m/revision/main?blobs=true") {
      nlohmann::json listing{{"sha", "c0ffee"}, {"siblings", nlohmann::json::array()}};
      for (const auto& [name, data] : files_) {
        nlohmann::json item{{"rfilename", name}, {"size", data.size()}};
        const std::string sum = hash_of_.count(name) != 0 ? hash_of_[name] : sha256_of(data);
        item["lfs"] = {{"sha256", sum}, {"size", data.size()}};
        listing["siblings"].push_back(item);
      }
      const std::string body = listing_.empty() ? listing.dump() : listing_;
      return answer(200, body, body.size());
    }
    const std::string prefix = "http://hub.test/org/m/resolve/c0ffee/";
    if (request.url.rfind(prefix, 0) != 0 || files_.count(request.url.substr(prefix.size())) == 0) {
      return answer(404, "no", 2);
    }
    const std::string_view data = files_[request.url.substr(prefix.size())];
    if (request.offset >= data.size() && request.offset > 0) return answer(416, "", 0);
    const std::string_view body = data.substr(request.offset);
    std::size_t send = body.size();
    if (!cuts_.empty()) {
      send = std::min(send, cuts_.front());
      cuts_.erase(cuts_.begin());
    }
    return answer(request.offset > 0 ? 206 : 200, body, send);
  }

  std::string error(const std::string& spec) {
    const auto result = pull_hub_model(spec, options_);
    return result.ok() ? "no error" : result.error().message;
  }

  TempFolder home_;
  PullOptions options_;
  std::map<std::string, std::string> files_;
  std::map<std::string, std::string> hash_of_;
  std::string listing_;
  std::vector<std::size_t> cuts_;
  std::optional<std::uint64_t> range_start_;
  std::vector<std::string> requests_;
  std::string notes_;
  PullProgress last_progress_;
};

TEST_F(HubPullTest, ResumesUntilAllIsThere) {
  files_["x-Q8_0.gguf"] = GgufMaker().tensor("t", {64}, 0, 256).file();
  const std::size_t size = files_["x-Q8_0.gguf"].size();
  cuts_ = {100, 0, 50};
  const auto result = pull_hub_model("org/m:Q8_0", options_);
  ASSERT_TRUE(result.ok()) << result.error().message;
  EXPECT_EQ(result->name, "org--m--x-Q8_0");
  EXPECT_EQ(result->bytes, size);
  const std::string url = "http://hub.test/org/m/resolve/c0ffee/x-Q8_0.gguf";
  requests_.erase(requests_.begin());
  EXPECT_THAT(requests_, ElementsAre(url, url + "@100", url + "@100", url + "@150"));
  EXPECT_EQ(last_progress_.done, size);
  EXPECT_TRUE(open_checkpoint(result->path).ok());
  EXPECT_TRUE(pull_hub_model("org/m:Q8_0", options_)->already_installed);
  files_["x-Q8_0.gguf"].back() ^= 1;  // the installed one is still what its record says: same commit
  EXPECT_TRUE(pull_hub_model("org/m:Q8_0", options_)->already_installed);
  options_.force = true;
  EXPECT_FALSE(pull_hub_model("org/m:Q8_0", options_)->already_installed);
}

TEST_F(HubPullTest, GivesUpAfterTriesWithoutProgressAndKeepsThePart) {
  files_["x.gguf"] = GgufMaker().tensor("t", {64}, 0, 256).file();
  cuts_ = {100, 0, 0, 0, 0, 0, 0};
  EXPECT_THAT(error("org/m"), AllOf(HasSubstr("org/m was not installed"), HasSubstr("broke off")));
  EXPECT_FALSE(std::filesystem::exists(home_ / "models/org--m--x"));
  EXPECT_EQ(std::filesystem::file_size(home_ / "models/.staging/org--m/x.gguf.partial"), 100u);
  cuts_.clear();
  EXPECT_EQ(error("org/m"), "no error");
  EXPECT_THAT(requests_.back(), HasSubstr("@100"));
}

TEST_F(HubPullTest, AnotherRangeThanAskedForIsNotAppended) {
  files_["x.gguf"] = GgufMaker().tensor("t", {64}, 0, 256).file();
  cuts_ = {100, 300, 300, 300};
  range_start_ = 50;
  const auto result = pull_hub_model("org/m", options_);
  ASSERT_TRUE(result.ok()) << result.error().message;  // begun again from nothing
  EXPECT_EQ(read_file(result->path + "/x.gguf").value(), files_["x.gguf"]);
}

TEST_F(HubPullTest, AServerThatAlwaysSendsTheWrongRangeIsGivenUp) {
  files_["x.gguf"] = GgufMaker().tensor("t", {64}, 0, 256).file();
  cuts_ = std::vector<std::size_t>(100, 100);
  range_start_ = 50;
  EXPECT_THAT(error("org/m"), HasSubstr("another range"));
  EXPECT_LT(requests_.size(), 20u);
}

TEST_F(HubPullTest, WrongHashTwiceIsTheEnd) {
  files_["x.gguf"] = GgufMaker().tensor("t", {64}, 0, 256).file();
  hash_of_["x.gguf"] = std::string(64, 'a');
  EXPECT_THAT(error("org/m"), HasSubstr("wrong SHA-256"));
  EXPECT_EQ(requests_.size(), 3u);
  EXPECT_FALSE(std::filesystem::exists(home_ / "models/.staging/org--m/x.gguf.partial"));
}

TEST_F(HubPullTest, CancelStopsAtOnce) {
  files_["x.gguf"] = GgufMaker().tensor("t", {64}, 0, 256).file();
  std::atomic<bool> cancelled{false};
  options_.cancelled = &cancelled;
  options_.on_progress = [&](const PullProgress&) { cancelled = true; };
  cuts_ = {200};
  const auto result = pull_hub_model("org/m", options_);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().code, ErrorCode::kCancelled);
  EXPECT_FALSE(std::filesystem::exists(home_ / "models/org--m--x"));
}

TEST_F(HubPullTest, OddListings) {
  for (const char* text : {"", "[]", "{", R"({"siblings":1})", "null"}) {
    listing_ = *text == '\0' ? " " : text;
    EXPECT_THAT(error("org/m"), HasSubstr("no listing")) << text;
  }
  listing_ =
      R"({"sha":"c0ffee","siblings":[1,{},{"rfilename":3},{"rfilename":"../x.gguf"},{"rfilename":"/x.gguf"}]})";
  EXPECT_THAT(error("org/m"), HasSubstr("no safetensors and no GGUF"));
  listing_ =
      R"({"sha":"c0ffee","siblings":[{"rfilename":"x.gguf","size":-5,"lfs":{"sha256":"zz","size":"no"}}]})";
  files_["x.gguf"] = GgufMaker().tensor("t", {64}, 0, 256).file();
  EXPECT_EQ(error("org/m"), "no error");
}

}  // namespace
}  // namespace quire
