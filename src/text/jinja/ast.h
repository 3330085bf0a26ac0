// Purpose: the parsed template. Made by parser.h, read by the interpreter, never changed in between.
// Thread: immutable after parsing.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "text/jinja/value.h"

namespace quire::jinja {

using Symbol = int;  // index of a variable name in Ast::symbols

enum class ExprKind : std::uint8_t {
  kConst,
  kName,
  kTuple,
  kList,
  kDict,
  kUnary,
  kBinary,
  kNot,
  kAnd,
  kOr,
  kCompare,
  kConcat,
  kCondition,
  kAttribute,
  kItem,
  kSlice,
  kCall,
  kFilter,
  kTest,
};

struct Expr {
  Expr(ExprKind expr_kind, int expr_line) : kind(expr_kind), line(expr_line) {}
  Expr(const Expr&) = delete;
  Expr& operator=(const Expr&) = delete;
  virtual ~Expr() = default;
  const ExprKind kind;
  int line;
  int height = 1;  // of the tree below; bounds every recursion over it
};
using ExprPtr = std::unique_ptr<Expr>;

template <ExprKind K>
struct ExprOf : Expr {
  explicit ExprOf(int expr_line) : Expr(K, expr_line) {}
};

struct ConstExpr : ExprOf<ExprKind::kConst> {
  ConstExpr(int expr_line, Value constant) : ExprOf(expr_line), value(std::move(constant)) {}
  Value value;
};
struct NameExpr : ExprOf<ExprKind::kName> {
  NameExpr(int expr_line, Symbol name_symbol) : ExprOf(expr_line), symbol(name_symbol) {}
  Symbol symbol;
};
template <ExprKind K>
struct ItemsExpr : ExprOf<K> {
  using ExprOf<K>::ExprOf;
  std::vector<ExprPtr> items;
};
using TupleExpr = ItemsExpr<ExprKind::kTuple>;
using ListExpr = ItemsExpr<ExprKind::kList>;
using ConcatExpr = ItemsExpr<ExprKind::kConcat>;
struct DictExpr : ExprOf<ExprKind::kDict> {
  using ExprOf::ExprOf;
  std::vector<std::pair<ExprPtr, ExprPtr>> entries;
};
enum class UnaryOp : std::uint8_t { kNegative, kPositive };
struct UnaryExpr : ExprOf<ExprKind::kUnary> {
  using ExprOf::ExprOf;
  UnaryOp op = UnaryOp::kNegative;
  ExprPtr operand;
};
enum class BinaryOp : std::uint8_t { kAdd, kSubtract, kMultiply, kDivide, kFloorDivide, kModulo, kPower };
struct BinaryExpr : ExprOf<ExprKind::kBinary> {
  using ExprOf::ExprOf;
  BinaryOp op = BinaryOp::kAdd;
  ExprPtr left, right;
};
struct NotExpr : ExprOf<ExprKind::kNot> {
  using ExprOf::ExprOf;
  ExprPtr operand;
};
template <ExprKind K>
struct PairExpr : ExprOf<K> {
  using ExprOf<K>::ExprOf;
  ExprPtr left, right;
};
using AndExpr = PairExpr<ExprKind::kAnd>;
using OrExpr = PairExpr<ExprKind::kOr>;
enum class CompareOp : std::uint8_t { kEq, kNe, kLt, kLe, kGt, kGe, kIn, kNotIn };
struct CompareExpr : ExprOf<ExprKind::kCompare> {
  using ExprOf::ExprOf;
  ExprPtr first;
  std::vector<std::pair<CompareOp, ExprPtr>> rest;
};
struct ConditionExpr : ExprOf<ExprKind::kCondition> {
  using ExprOf::ExprOf;
  ExprPtr condition, then, otherwise;  // otherwise may be null
};
struct AttributeExpr : ExprOf<ExprKind::kAttribute> {
  using ExprOf::ExprOf;
  ExprPtr object;
  Value name;
};
struct ItemExpr : ExprOf<ExprKind::kItem> {
  using ExprOf::ExprOf;
  ExprPtr object, key;
};
struct SliceExpr : ExprOf<ExprKind::kSlice> {
  using ExprOf::ExprOf;
  ExprPtr object, start, stop, step;  // the last three may be null
};

struct CallArgs {
  std::vector<ExprPtr> positional;
  std::vector<std::pair<Value, ExprPtr>> named;
  ExprPtr star, double_star;
};
struct CallExpr : ExprOf<ExprKind::kCall> {
  using ExprOf::ExprOf;
  ExprPtr callee;
  CallArgs args;
};

struct Filter;  // filters.h
struct Test;
struct FilterCall {
  int line = 0;
  std::string name;
  const Filter* filter = nullptr;  // null: unknown, an error only if it is reached
  CallArgs args;
};
struct FilterExpr : ExprOf<ExprKind::kFilter> {
  using ExprOf::ExprOf;
  ExprPtr operand;
  FilterCall call;
};
struct TestExpr : ExprOf<ExprKind::kTest> {
  using ExprOf::ExprOf;
  ExprPtr operand;
  std::string name;
  const Test* test = nullptr;
  CallArgs args;
};

// What a set, a for or a with assigns to.
struct Target {
  enum class Kind : std::uint8_t { kName, kNamespaceAttribute, kTuple };
  Kind kind = Kind::kName;
  Symbol symbol = 0;
  Value attribute;            // kNamespaceAttribute
  std::vector<Target> items;  // kTuple
};

enum class StmtKind : std::uint8_t {
  kText,
  kOutput,
  kIf,
  kFor,
  kSet,
  kSetBlock,
  kMacro,
  kCallBlock,
  kFilterBlock,
  kWith,
  kScope,
  kBreak,
  kContinue,
};

struct Stmt {
  Stmt(StmtKind stmt_kind, int stmt_line) : kind(stmt_kind), line(stmt_line) {}
  Stmt(const Stmt&) = delete;
  Stmt& operator=(const Stmt&) = delete;
  virtual ~Stmt() = default;
  const StmtKind kind;
  int line;
};
using Body = std::vector<std::unique_ptr<Stmt>>;

template <StmtKind K>
struct StmtOf : Stmt {
  explicit StmtOf(int stmt_line) : Stmt(K, stmt_line) {}
};
struct TextStmt : StmtOf<StmtKind::kText> {
  using StmtOf::StmtOf;
  std::string text;
};
struct OutputStmt : StmtOf<StmtKind::kOutput> {
  using StmtOf::StmtOf;
  ExprPtr expr;
};
struct IfStmt : StmtOf<StmtKind::kIf> {
  using StmtOf::StmtOf;
  std::vector<std::pair<ExprPtr, Body>> branches;
  Body otherwise;
};
struct ForStmt : StmtOf<StmtKind::kFor> {
  using StmtOf::StmtOf;
  Target target;
  ExprPtr iterable, condition;  // condition may be null
  bool recursive = false;
  bool uses_loop = false;
  Body body, otherwise;
};
struct SetStmt : StmtOf<StmtKind::kSet> {
  using StmtOf::StmtOf;
  Target target;
  ExprPtr expr;
};
struct SetBlockStmt : StmtOf<StmtKind::kSetBlock> {
  using StmtOf::StmtOf;
  Target target;
  std::vector<FilterCall> filters;
  Body body;
};
struct MacroDef {
  std::string name;  // "caller" for call blocks
  struct Parameter {
    Symbol symbol;
    Value name;
    ExprPtr default_value;  // may be null
  };
  std::vector<Parameter> parameters;
  bool uses_varargs = false, uses_kwargs = false, uses_caller = false;
  Body body;
};
struct MacroStmt : StmtOf<StmtKind::kMacro> {
  using StmtOf::StmtOf;
  Symbol symbol = 0;
  MacroDef macro;
};
struct CallBlockStmt : StmtOf<StmtKind::kCallBlock> {
  using StmtOf::StmtOf;
  ExprPtr call;  // a CallExpr
  MacroDef caller;
};
struct FilterBlockStmt : StmtOf<StmtKind::kFilterBlock> {
  using StmtOf::StmtOf;
  std::vector<FilterCall> filters;
  Body body;
};
struct WithStmt : StmtOf<StmtKind::kWith> {
  using StmtOf::StmtOf;
  std::vector<std::pair<Target, ExprPtr>> assignments;
  Body body;
};
// A body with its own scope: generation, block, autoescape false.
struct ScopeStmt : StmtOf<StmtKind::kScope> {
  using StmtOf::StmtOf;
  bool isolated = false;  // {% block %}: sees only top-level variables
  Body body;
};
struct BreakStmt : StmtOf<StmtKind::kBreak> {
  using StmtOf::StmtOf;
};
struct ContinueStmt : StmtOf<StmtKind::kContinue> {
  using StmtOf::StmtOf;
};

struct Ast {
  std::vector<std::unique_ptr<Object>> literals;  // immortal objects that Values below point to
  std::vector<std::string> symbols;
  std::vector<bool> symbol_is_read;  // somewhere, as a plain name
  Symbol loop_symbol = 0, caller_symbol = 0, varargs_symbol = 0, kwargs_symbol = 0;
  Body body;
};

}  // namespace quire::jinja
