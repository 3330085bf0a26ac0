#include "text/bpe.h"

#include <algorithm>
#include <cstring>
#include <queue>

#include <fmt/core.h>

#include "text/utf8.h"

namespace quire {

// Words up to this many symbols are merged by scanning for the best pair: quadratic, but faster than a heap
// while everything lies in one or two cache lines.
constexpr std::size_t kShortWord = 40;

struct BpeModel::Scratch {
  std::vector<Symbol> symbols;
  std::vector<std::uint32_t> ranks;  // of the merge of symbol i with its right neighbour
  std::vector<std::uint32_t> ends;   // end of symbol i in the word, in bytes
  std::vector<std::uint32_t> next, previous;
  std::vector<std::uint64_t> heap;  // rank << 32 | position, smallest first
};

BpeModel::BpeModel(std::shared_ptr<const Vocabulary> vocabulary, BpeOptions options)
    : vocabulary_(std::move(vocabulary)), options_(std::move(options)), mergeable_(*vocabulary_) {
  byte_symbols_.fill(kNoSymbol);
  byte_tokens_.fill(-1);
  if (options_.byte_fallback) {
    for (int byte = 0; byte < 256; ++byte) {
      const auto id = vocabulary_->find(piece_of_byte(static_cast<unsigned char>(byte)));
      if (id) byte_tokens_[static_cast<std::size_t>(byte)] = *id;
    }
  }
}

std::optional<BpeModel::Symbol> BpeModel::find_symbol(std::string_view piece) const {
  if (const auto id = mergeable_.find(piece)) return *id;
  const auto inner = inner_index_.find(inner_, piece);
  if (!inner) return std::nullopt;
  return static_cast<Symbol>(vocabulary_->pieces.size() + *inner);
}

BpeModel::Symbol BpeModel::intern(std::string_view piece) {
  if (const auto symbol = find_symbol(piece)) return *symbol;
  const auto number = static_cast<std::uint32_t>(inner_.size());
  inner_.push_back(piece);
  inner_index_.insert(inner_, number);
  return static_cast<Symbol>(vocabulary_->pieces.size() + number);
}

void BpeModel::reserve_merges(std::size_t count) {
  std::size_t wanted = 16;
  while (wanted < count * 2) wanted *= 2;
  if (wanted <= merges_.size()) return;
  std::vector<MergeSlot> old(wanted);
  old.swap(merges_);
  num_merges_ = 0;
  for (const MergeSlot& slot : old) {
    if (slot.rank != kNoRank) {
      add_merge(static_cast<Symbol>(slot.pair >> 32), static_cast<Symbol>(slot.pair), slot.rank, slot.result);
    }
  }
}

namespace {

std::size_t hash_pair(std::uint64_t pair) {
  pair *= 0x9e3779b97f4a7c15ull;
  return static_cast<std::size_t>(pair >> 32 ^ pair >> 15);
}

}  // namespace

void BpeModel::add_merge(Symbol left, Symbol right, std::uint32_t rank, Symbol result) {
  if (merges_.size() < (num_merges_ + 1) * 2) reserve_merges((num_merges_ + 1) * 2);
  const std::uint64_t pair = static_cast<std::uint64_t>(left) << 32 | right;
  std::size_t i = hash_pair(pair) & (merges_.size() - 1);
  while (merges_[i].rank != kNoRank) {
    if (merges_[i].pair == pair) return;  // the first of equal merges has the better rank
    i = (i + 1) & (merges_.size() - 1);
  }
  merges_[i] = {pair, rank, result};
  ++num_merges_;
}

const BpeModel::MergeSlot* BpeModel::find_merge(Symbol left, Symbol right) const {
  if (merges_.empty()) return nullptr;
  const std::uint64_t pair = static_cast<std::uint64_t>(left) << 32 | right;
  std::size_t i = hash_pair(pair) & (merges_.size() - 1);
  while (merges_[i].rank != kNoRank) {
    if (merges_[i].pair == pair) return &merges_[i];
    i = (i + 1) & (merges_.size() - 1);
  }
  return nullptr;
}

void BpeModel::fill_base_symbols() {
  if (options_.byte_level) {
    for (int byte = 0; byte < 256; ++byte) {
      std::string piece;
      append_utf8(piece, byte_to_char(static_cast<unsigned char>(byte)));
      byte_symbols_[static_cast<std::size_t>(byte)] = find_symbol(piece).value_or(kNoSymbol);
    }
    return;
  }
  const auto add = [&](std::string_view piece, Symbol symbol) {
    if (piece.empty()) return;
    const Utf8Char c = decode_utf8(piece, 0);
    if (!c.valid || c.length != piece.size()) return;
    if (c.code < 0x80) {
      if (byte_symbols_[c.code] == kNoSymbol) byte_symbols_[c.code] = symbol;
    } else {
      char_symbols_.emplace(c.code, symbol);
    }
  };
  for (std::size_t id = 0; id < vocabulary_->pieces.size(); ++id) {
    const std::string_view piece = vocabulary_->pieces[id];
    if (piece.size() <= 4 && mergeable_.is_found(id)) add(piece, static_cast<Symbol>(id));
  }
  for (std::size_t i = 0; i < inner_.size(); ++i) {
    add(inner_[i], static_cast<Symbol>(vocabulary_->pieces.size() + i));
  }
}

Result<std::unique_ptr<BpeModel>> BpeModel::from_merges(std::shared_ptr<const Vocabulary> vocabulary,
                                                        const std::vector<Merge>& merges, BpeOptions options,
                                                        const std::string& where) {
  std::unique_ptr<BpeModel> model(new BpeModel(std::move(vocabulary), std::move(options)));
  if (merges.size() >= kNoRank) return invalid(fmt::format("{}: too many merges ({})", where, merges.size()));
  model->reserve_merges(merges.size());
  const std::string& prefix = model->options_.continuing_subword_prefix;
  const auto symbol_of = [&](std::string_view part) -> std::optional<Symbol> {
    if (const auto id = model->mergeable_.find(part)) return *id;
    if (model->options_.strict_merges && !model->vocabulary_->find(part)) return std::nullopt;
    return model->intern(part);
  };
  std::string joined;
  Symbol next = 0;  // vocabularies are mostly numbered in the order of their merges: tried before the search
  for (std::size_t rank = 0; rank < merges.size(); ++rank) {
    const auto& [left, right] = merges[rank];
    joined.assign(left);
    const bool strip = !prefix.empty() && right.substr(0, prefix.size()) == prefix;
    joined.append(strip ? right.substr(prefix.size()) : right);
    const auto l = symbol_of(left), r = symbol_of(right);
    const auto result = model->mergeable_.is_the_only(next, joined) ? next : symbol_of(joined);
    if (!l || !r || !result) {
      return invalid(
          fmt::format("{}: merge {} (\"{}\" with \"{}\") uses \"{}\", which is not in the vocabulary", where,
                      rank, left, right,
                      !l   ? left
                      : !r ? right
                           : std::string_view(joined)));
    }
    model->add_merge(*l, *r, static_cast<std::uint32_t>(rank), *result);
    next = *result + 1;
  }
  model->fill_base_symbols();
  return model;
}

std::unique_ptr<BpeModel> BpeModel::from_scores(std::shared_ptr<const Vocabulary> vocabulary,
                                                BpeOptions options) {
  std::unique_ptr<BpeModel> model(new BpeModel(std::move(vocabulary), std::move(options)));
  const Vocabulary& vocab = *model->vocabulary_;
  std::vector<Symbol> by_score;
  for (std::size_t id = 0; id < vocab.pieces.size(); ++id) {
    if (model->mergeable_.is_found(id)) by_score.push_back(static_cast<Symbol>(id));
  }
  std::stable_sort(by_score.begin(), by_score.end(),
                   [&](Symbol a, Symbol b) { return vocab.scores[a] > vocab.scores[b]; });
  // Single characters are symbols even if they are no pieces themselves.
  for (Symbol id : by_score) {
    const std::string_view piece = vocab.pieces[id];
    for (std::size_t pos = 0; pos < piece.size();) {
      const Utf8Char c = decode_utf8(piece, pos);
      model->intern(piece.substr(pos, c.length));
      pos += c.length;
    }
  }
  model->reserve_merges(by_score.size() * 3);
  std::uint32_t rank = 0;
  for (std::size_t i = 0; i < by_score.size(); ++i) {
    const Symbol id = by_score[i];
    // Equal scores share a rank: then the leftmost pair goes first.
    if (i > 0 && vocab.scores[id] != vocab.scores[by_score[i - 1]]) ++rank;
    const std::string_view piece = vocab.pieces[id];
    for (std::size_t pos = 0; pos < piece.size();) {
      pos += decode_utf8(piece, pos).length;
      if (pos >= piece.size()) break;
      const auto left = model->find_symbol(piece.substr(0, pos));
      const auto right = left ? model->find_symbol(piece.substr(pos)) : std::nullopt;
      if (right) model->add_merge(*left, *right, rank, id);
    }
  }
  model->fill_base_symbols();
  return model;
}

void BpeModel::split_into_symbols(std::string_view word, Scratch& s) const {
  s.symbols.clear();
  s.ends.clear();
  if (options_.byte_level) {
    for (std::size_t i = 0; i < word.size(); ++i) {
      const Symbol symbol = byte_symbols_[static_cast<unsigned char>(word[i])];
      s.symbols.push_back(symbol);
      s.ends.push_back(static_cast<std::uint32_t>(i + 1));
    }
    return;
  }
  const bool affixes = !options_.continuing_subword_prefix.empty() || !options_.end_of_word_suffix.empty();
  std::string key;
  for (std::size_t pos = 0; pos < word.size();) {
    const Utf8Char c = decode_utf8(word, pos);
    Symbol symbol = kNoSymbol;
    if (affixes) {
      key.clear();
      if (pos > 0) key += options_.continuing_subword_prefix;
      key += word.substr(pos, c.length);
      if (pos + c.length == word.size()) key += options_.end_of_word_suffix;
      symbol = find_symbol(key).value_or(kNoSymbol);
    } else if (c.code < 0x80) {
      symbol = byte_symbols_[c.code];
    } else if (const auto it = char_symbols_.find(c.code); it != char_symbols_.end()) {
      symbol = it->second;
    }
    pos += c.length;
    s.symbols.push_back(symbol);
    s.ends.push_back(static_cast<std::uint32_t>(pos));
  }
}

void BpeModel::merge_short(Scratch& s) const {
  const auto rank_of = [&](std::size_t i) {
    const MergeSlot* merge = find_merge(s.symbols[i], s.symbols[i + 1]);
    return merge == nullptr ? kNoRank : merge->rank;
  };
  s.ranks.assign(s.symbols.size(), kNoRank);
  std::size_t count = s.symbols.size();
  for (std::size_t i = 0; i + 1 < count; ++i) s.ranks[i] = rank_of(i);
  while (count > 1) {
    const auto best =
        std::min_element(s.ranks.begin(), s.ranks.begin() + static_cast<std::ptrdiff_t>(count) - 1);
    if (*best == kNoRank) break;
    const std::size_t i = static_cast<std::size_t>(best - s.ranks.begin());
    s.symbols[i] = find_merge(s.symbols[i], s.symbols[i + 1])->result;
    s.ends[i] = s.ends[i + 1];
    for (std::size_t j = i + 1; j + 1 < count; ++j) {
      s.symbols[j] = s.symbols[j + 1];
      s.ends[j] = s.ends[j + 1];
      s.ranks[j] = s.ranks[j + 1];
    }
    --count;
    s.ranks[i] = i + 1 < count ? rank_of(i) : kNoRank;
    if (i > 0) s.ranks[i - 1] = rank_of(i - 1);
  }
  s.symbols.resize(count);
  s.ends.resize(count);
}

void BpeModel::merge_long(Scratch& s) const {
  const std::size_t count = s.symbols.size();
  constexpr std::uint32_t kEnd = 0xffffffffu;
  s.ranks.assign(count, kNoRank);
  s.next.resize(count);
  s.previous.resize(count);
  s.heap.clear();
  for (std::size_t i = 0; i < count; ++i) {
    s.next[i] = i + 1 < count ? static_cast<std::uint32_t>(i + 1) : kEnd;
    s.previous[i] = i > 0 ? static_cast<std::uint32_t>(i - 1) : kEnd;
    if (i + 1 == count) continue;
    if (const MergeSlot* merge = find_merge(s.symbols[i], s.symbols[i + 1])) {
      s.ranks[i] = merge->rank;
      s.heap.push_back(static_cast<std::uint64_t>(merge->rank) << 32 | i);
    }
  }
  const auto later = std::greater<std::uint64_t>();
  std::make_heap(s.heap.begin(), s.heap.end(), later);
  const auto update = [&](std::uint32_t i) {
    const MergeSlot* merge = s.next[i] == kEnd ? nullptr : find_merge(s.symbols[i], s.symbols[s.next[i]]);
    s.ranks[i] = merge == nullptr ? kNoRank : merge->rank;
    if (merge != nullptr) {
      s.heap.push_back(static_cast<std::uint64_t>(merge->rank) << 32 | i);
      std::push_heap(s.heap.begin(), s.heap.end(), later);
    }
  };
  while (!s.heap.empty()) {
    std::pop_heap(s.heap.begin(), s.heap.end(), later);
    const std::uint64_t top = s.heap.back();
    s.heap.pop_back();
    const auto i = static_cast<std::uint32_t>(top);
    if (s.ranks[i] != top >> 32) continue;  // the pair at i has changed since
    const std::uint32_t j = s.next[i];
    s.symbols[i] = find_merge(s.symbols[i], s.symbols[j])->result;
    s.ends[i] = s.ends[j];
    s.ranks[j] = kNoRank;
    s.next[i] = s.next[j];
    if (s.next[i] != kEnd) s.previous[s.next[i]] = i;
    update(i);
    if (s.previous[i] != kEnd) update(s.previous[i]);
  }
  std::size_t out = 0;
  for (std::uint32_t i = 0; i != kEnd; i = s.next[i]) {
    s.symbols[out] = s.symbols[i];
    s.ends[out++] = s.ends[i];
  }
  s.symbols.resize(out);
  s.ends.resize(out);
}

void BpeModel::emit_unknown(std::string_view text, bool& after_unk, std::vector<TokenId>& out) const {
  // One character, or an inner symbol of several.
  for (std::size_t pos = 0; pos < text.size();) {
    const std::size_t length = options_.byte_level ? 1 : decode_utf8(text, pos).length;
    const std::string_view c = text.substr(pos, length);
    pos += length;
    if (options_.byte_level) {
      const Symbol symbol = byte_symbols_[static_cast<unsigned char>(c[0])];
      if (symbol < vocabulary_->pieces.size()) {
        out.push_back(static_cast<TokenId>(symbol));
        after_unk = false;
        continue;
      }
    } else if (options_.byte_fallback && std::all_of(c.begin(), c.end(), [&](char b) {
                 return byte_tokens_[static_cast<unsigned char>(b)] >= 0;
               })) {
      for (char b : c) out.push_back(byte_tokens_[static_cast<unsigned char>(b)]);
      after_unk = false;
      continue;
    }
    if (options_.unk && !(after_unk && options_.fuse_unk)) out.push_back(*options_.unk);
    after_unk = options_.unk.has_value();
  }
}

void BpeModel::emit(const Scratch& s, std::string_view word, std::vector<TokenId>& out) const {
  bool after_unk = false;
  std::uint32_t begin = 0;
  for (std::size_t i = 0; i < s.symbols.size(); ++i) {
    if (s.symbols[i] < vocabulary_->pieces.size()) {
      out.push_back(static_cast<TokenId>(s.symbols[i]));
      after_unk = false;
    } else {
      emit_unknown(word.substr(begin, s.ends[i] - begin), after_unk, out);
    }
    begin = s.ends[i];
  }
}

void BpeModel::encode_word(std::string_view word, std::vector<TokenId>& out) const {
  if (word.empty()) return;
  if (options_.ignore_merges) {
    const auto id = options_.byte_level ? mergeable_.find(bytes_to_chars(word)) : mergeable_.find(word);
    if (id) {
      out.push_back(static_cast<TokenId>(*id));
      return;
    }
  }
  // Positions are 32 bits wide. The texts that reach this room are bounded far below by the request limits;
  // what is longer is cut at a character border, which changes at most the merges across that border.
  constexpr std::size_t kMaxWord = std::size_t{1} << 30;
  while (word.size() > kMaxWord) {
    std::size_t cut = kMaxWord;
    while (cut > 0 && (static_cast<unsigned char>(word[cut]) & 0xc0) == 0x80) --cut;
    encode_word(word.substr(0, cut), out);
    word.remove_prefix(cut);
  }
  thread_local Scratch scratch;
  split_into_symbols(word, scratch);
  if (scratch.symbols.size() <= kShortWord) {
    merge_short(scratch);
  } else {
    merge_long(scratch);
  }
  emit(scratch, word, out);
  if (scratch.symbols.capacity() > 1u << 20)
    scratch = Scratch();  // a huge word must not stay with the thread
}

std::string BpeModel::name() const {
  return options_.byte_level ? "byte-level BPE" : "BPE";
}

}  // namespace quire
