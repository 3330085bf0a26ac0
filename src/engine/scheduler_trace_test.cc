// Runs tests/traces/*.trace: scripts of what the scheduler does step by step, without a model. The language
// is described in tests/traces/README.md. After every step the invariants of scheduler and pool are checked
// too.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "engine/commit.h"
#include "engine/inbox.h"
#include "engine/kv_pool.h"
#include "engine/scheduler.h"

namespace quire {
namespace {

constexpr std::int32_t kToken = 7;
constexpr std::int32_t kEos = 2;

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, separator);) {
    if (!part.empty()) parts.push_back(part);
  }
  return parts;
}

std::string name_of(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kAbort:
      return "abort";
    case FinishReason::kError:
      return "error";
    case FinishReason::kNone:
      break;
  }
  return "none";
}

// The words of a line: positional ones and key=value ones.
struct Words {
  std::vector<std::string> plain;
  std::map<std::string, std::string> values;

  std::int64_t number(const std::string& key, std::int64_t otherwise) const {
    const auto found = values.find(key);
    return found == values.end() ? otherwise : std::stoll(found->second);
  }
};

class TraceRunner {
 public:
  // Empty if the line held, else what was found instead.
  std::string run(const std::string& line) {
    std::vector<std::string> all = split(line, ' ');
    const std::string command = all.front();
    Words words;
    for (std::size_t i = 1; i < all.size(); ++i) {
      const auto equals = all[i].find('=');
      if (equals == std::string::npos) {
        words.plain.push_back(all[i]);
      } else {
        words.values[all[i].substr(0, equals)] = all[i].substr(equals + 1);
      }
    }
    if (command == "pool") return make_pool(words);
    if (scheduler_ == nullptr) return "the first line must be `pool`";
    if (command == "add") return add(words);
    if (command == "refuse") return refuse(words);
    if (command == "cancel") return cancel(words);
    if (command == "stop") return stop(words);
    if (command == "step") return step_and_compare(words);
    if (command == "until") return until(words);
    return "unknown command " + command;
  }

 private:
  struct Request {
    std::shared_ptr<TokenStream> stream;
    std::string ended;
    std::int64_t num_tokens = 0;
    bool stops_next = false;
  };

  std::string make_pool(const Words& words) {
    pool_ = std::make_unique<KvPool>(words.number("blocks", 8), words.number("block_size", 4));
    config_.max_num_seqs = words.number("max_seqs", 4);
    config_.max_num_batched_tokens = words.number("budget", 16);
    config_.max_logit_rows = words.number("rows", kMaxLogitRows);
    config_.max_overtakes = words.number("overtakes", 32);
    inbox_.vocab_size = 100;
    inbox_.max_model_len =
        std::min(words.number("max_model_len", 1 << 20), pool_->num_blocks() * pool_->block_size());
    scheduler_ = std::make_unique<Scheduler>(config_, *pool_);
    committer_ = std::make_unique<Committer>(*scheduler_);
    return {};
  }

  TokenRequest make_request(const Words& words) {
    TokenRequest request;
    request.id = words.plain.at(0);
    request.prompt.assign(static_cast<std::size_t>(words.number("prompt", 1)), kToken);
    request.eos_ids = {kEos};
    request.params.max_tokens = words.number("max", 16);
    request.params.num_prompt_logprobs = words.number("prompt_logprobs", -1);
    request.priority = static_cast<std::int32_t>(words.number("priority", 0));
    request.stream = std::make_shared<TokenStream>();
    return request;
  }

  std::string add(const Words& words) {
    TokenRequest request = make_request(words);
    if (const Status status = check_request(request, inbox_); !status.ok()) return status.error().message;
    requests_[request.id].stream = request.stream;
    scheduler_->add(make_sequence(std::move(request), inbox_, arrivals_++, {}));
    return {};
  }

  std::string refuse(const Words& words) {
    return check_request(make_request(words), inbox_).ok() ? "it was not refused" : "";
  }

  std::string cancel(const Words& words) {
    requests_.at(words.plain.at(0)).stream->cancel_all();
    return {};
  }

  std::string stop(const Words& words) {
    requests_.at(words.plain.at(0)).stops_next = true;
    return {};
  }

  std::string until(const Words& words) {
    const std::int64_t limit = words.number("within", 100);
    for (const auto& [id, reason] : words.values) {
      if (id == "within") continue;
      std::int64_t num_steps = 0;
      while (requests_.at(id).ended.empty() && num_steps < limit) {
        if (std::string problem = step(); !problem.empty()) return problem;
        ++num_steps;
      }
      if (requests_.at(id).ended != reason) {
        return "after " + std::to_string(num_steps) + " steps " + id + " ended: " + requests_.at(id).ended;
      }
    }
    return {};
  }

  // One step of the engine with a model that always says kToken, or eos if asked to stop.
  std::string step() {
    committer_->end_unless([](const Sequence& sequence) { return !sequence.is_cancelled(); },
                           FinishReason::kAbort, std::nullopt, {});
    plan_ = scheduler_->schedule({});
    if (std::string problem = check_invariants(); !problem.empty()) return problem;
    planned_.clear();
    SampledTokens sampled;
    for (const PlannedSequence& planned : plan_.sequences) {
      const std::string& id = planned.sequence->id;
      planned_.push_back(id + ":" + std::to_string(planned.first) + "+" + std::to_string(planned.count));
      SampledSequence& result = sampled.emplace_back();
      result.prompt_logprobs.resize(static_cast<std::size_t>(planned.num_scored));
      if (planned.samples) result.token = requests_.at(id).stops_next ? kEos : kToken;
    }
    committer_->commit(plan_, std::move(sampled), {});
    committer_->deliver();
    ended_.clear();
    for (auto& [id, request] : requests_) {
      while (auto event = request.stream->next(std::chrono::milliseconds(0))) {
        if (!request.ended.empty()) return id + " got an event after its last one";
        if (event->token) ++request.num_tokens;
        if (event->finish == FinishReason::kNone) continue;
        request.ended = name_of(event->finish);
        ended_.push_back(id + ":" + request.ended);
      }
    }
    return {};
  }

  std::string step_and_compare(const Words& words) {
    if (std::string problem = step(); !problem.empty()) return problem;
    std::vector<std::string> expected = words.plain;
    if (expected == std::vector<std::string>{"nothing"}) expected.clear();
    if (planned_ != expected) return "planned: " + join(planned_, " ");
    for (const auto& [key, value] : words.values) {
      const std::string found = state(key);
      if (found != (value == "none" ? "" : value)) return key + "=" + found;
    }
    return {};
  }

  std::string state(const std::string& key) const {
    if (key == "free") return std::to_string(pool_->num_free());
    if (key == "rows") return std::to_string(plan_.num_rows);
    if (key == "preemptions") return std::to_string(scheduler_->num_preemptions());
    if (key == "running") return ids(scheduler_->running());
    if (key == "waiting") return ids(scheduler_->waiting());
    if (key == "ended") return join(ended_, ",");
    if (key.rfind("tokens.", 0) == 0) return std::to_string(requests_.at(key.substr(7)).num_tokens);
    return "(unknown key)";
  }

  std::string check_invariants() const {
    std::set<std::int32_t> held;
    std::size_t num_held = 0;
    for (const auto& sequence : scheduler_->running()) {
      held.insert(sequence->blocks.begin(), sequence->blocks.end());
      num_held += sequence->blocks.size();
      if (sequence->num_computed >= sequence->num_known()) return sequence->id + " has nothing to compute";
    }
    for (const auto& sequence : scheduler_->waiting()) {
      if (!sequence->blocks.empty()) return sequence->id + " waits and holds blocks";
    }
    if (held.size() != num_held) return "a block belongs to two sequences";
    if (static_cast<std::int64_t>(num_held) + pool_->num_free() != pool_->num_blocks()) return "blocks leak";
    if (plan_.num_tokens > config_.max_num_batched_tokens) return "over the token budget";
    if (plan_.num_rows > config_.max_logit_rows) return "over the row budget";
    if (static_cast<std::int64_t>(scheduler_->running().size()) > config_.max_num_seqs) return "too many run";
    return {};
  }

  static std::string join(const std::vector<std::string>& parts, const char* separator) {
    std::string joined;
    for (const std::string& part : parts) joined += (joined.empty() ? "" : separator) + part;
    return joined;
  }

  static std::string ids(const Scheduler::Queue& queue) {
    std::vector<std::string> names;
    for (const auto& sequence : queue) names.push_back(sequence->id);
    return join(names, ",");
  }

  SchedulerConfig config_;
  InboxConfig inbox_;
  std::unique_ptr<KvPool> pool_;
  std::unique_ptr<Scheduler> scheduler_;
  std::unique_ptr<Committer> committer_;
  std::map<std::string, Request> requests_;
  std::uint64_t arrivals_ = 0;
  StepPlan plan_;
  std::vector<std::string> planned_;
  std::vector<std::string> ended_;
};

std::vector<std::filesystem::path> trace_files() {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(QUIRE_SOURCE_DIR "/tests/traces")) {
    if (entry.path().extension() == ".trace") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

class SchedulerTrace : public testing::TestWithParam<std::filesystem::path> {};

TEST_P(SchedulerTrace, Holds) {
  std::ifstream file(GetParam());
  TraceRunner runner;
  int line_number = 0;
  for (std::string line; std::getline(file, line);) {
    ++line_number;
    line = line.substr(0, line.find('#'));
    if (line.find_first_not_of(' ') == std::string::npos) continue;
    const std::string problem = runner.run(line);
    ASSERT_EQ(problem, "") << GetParam().filename().string() << ":" << line_number << ": " << line;
  }
  EXPECT_GT(line_number, 5);
}

INSTANTIATE_TEST_SUITE_P(Files, SchedulerTrace, testing::ValuesIn(trace_files()),
                         [](const auto& file) { return file.param.stem().string(); });

// A runner that accepts anything would make every trace pass.
TEST(TraceRunner, NoticesWhatIsWrong) {
  TraceRunner runner;
  EXPECT_NE(runner.run("step"), "");
  EXPECT_EQ(runner.run("pool blocks=4 block_size=4 budget=8"), "");
  EXPECT_EQ(runner.run("add A prompt=10 max=2"), "");
  EXPECT_EQ(runner.run("step A:0+7"), "planned: A:0+8");
  EXPECT_EQ(runner.run("step A:8+2 free=2"), "free=1");
  EXPECT_EQ(runner.run("step A:10+1 ended=A:stop"), "ended=A:length");
  EXPECT_EQ(runner.run("refuse B prompt=15"), "it was not refused");
  EXPECT_NE(runner.run("add C prompt=16"), "");
  EXPECT_NE(runner.run("jump"), "");
}

}  // namespace
}  // namespace quire
