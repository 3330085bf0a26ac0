#!/usr/bin/env bash
# Runs the parts of `make test`, all or those named: check unit asan tsan fuzz pytest. Prints how long each took, and
# at the end a line "N passed, N failed" over the parts. Stops at nothing; exit code 1 if any part failed.
set -uo pipefail
cd "$(dirname "$0")/.."
parts=("$@")
[ ${#parts[@]} -eq 0 ] && parts=(check unit asan tsan fuzz pytest)
tools/install_deps.sh || exit 1
jobs=${JOBS:-$(nproc)}
fuzz_seconds=${FUZZ_SECONDS:-30}

configure_and_build() {  # preset targets...
  local preset=$1
  shift
  cmake --preset "$preset" >"build/$preset.cmake.log" 2>&1 || { cat "build/$preset.cmake.log"; return 1; }
  cmake --build "build/$preset" -j "$jobs" "$@"
}

part_check() {
  local failed=0
  git ls-files -co --exclude-standard '*.h' '*.cc' | xargs -P "$jobs" -n 32 clang-format-14 --dry-run -Werror || failed=1
  python3 tools/check_layers.py || failed=1
  tools/check_isa_symbols.sh || failed=1
  return $failed
}

run_unit_tests() {  # preset
  ctest --test-dir "build/$1" --output-on-failure -j "$jobs" --no-tests=error >"build/$1.ctest.log" 2>&1
  local code=$?
  # Skipped tests are shown (a tier this machine lacks, a folder that is not there); passed ones only counted.
  if [ $code -ne 0 ]; then cat "build/$1.ctest.log"; else tail -n 30 "build/$1.ctest.log" | sed -n '/tests passed/,$p'; fi
  return $code
}

# Under a sanitizer a process starts slowly and vocabularies load slowly: whole programs instead of single tests, the
# longest first, and the longest of all in three parts, so that the cores end at about the same time.
run_test_programs() {  # preset
  local dir=build/$1 failed=0 name part
  local names=(backend text model engine) parts=()
  # And every other room that has tests.
  for name in $(git ls-files -co --exclude-standard 'src/*_test.cc' | cut -d/ -f2 | sort -u); do
    [[ " ${names[*]} " == *" $name "* ]] || names+=("$name")
  done
  for name in "${names[@]}"; do
    if [ "$name" = backend ]; then parts+=(backend:0:3 backend:1:3 backend:2:3); else parts+=("$name:0:1"); fi
  done
  run_one() {  # dir name:shard:shards
    local name shard shards log
    IFS=: read -r name shard shards <<<"$2"
    log=$1/quire_${name}_test.$shard.log
    GTEST_SHARD_INDEX=$shard GTEST_TOTAL_SHARDS=$shards "$1/quire_${name}_test" --gtest_brief=1 >"$log" 2>&1 ||
      { tail -n 80 "$log"; return 1; }
  }
  export -f run_one
  printf '%s\n' "${parts[@]}" | xargs -P "$jobs" -I{} bash -c 'run_one "$@"' run_one "$dir" {} || failed=1
  for part in "${parts[@]}"; do
    IFS=: read -r name shard shards <<<"$part"
    echo "$1 $name$([ "$shards" = 1 ] || echo " $((shard + 1))/$shards"):" \
      "$(grep -hoE '\[ +(PASSED|SKIPPED|FAILED) +\] [0-9]+ tests?|\([0-9]+ ms total\)' "$dir/quire_${name}_test.$shard.log" | tr '\n' ' ')"
  done
  return $failed
}

part_unit() { configure_and_build release && run_unit_tests release; }
part_asan() { configure_and_build asan && ASAN_OPTIONS=detect_stack_use_after_return=1 run_test_programs asan; }
part_tsan() { configure_and_build tsan && TSAN_OPTIONS=halt_on_error=1:suppressions=$PWD/tools/tsan.supp run_test_programs tsan; }

part_fuzz() {
  # The fuzzers live in the asan tree: same compiler, same flags.
  configure_and_build asan --target fuzzers || return 1
  mkdir -p build/fuzz
  local failed=0 pids=() names=()
  run_fuzzer() {
    local name=$1 corpus="build/fuzz/corpus/$1"
    mkdir -p "$corpus"
    "build/asan/tests/fuzz/fuzz_$name" "$corpus" $([ -d "tests/fuzz/seeds/$name" ] && echo "tests/fuzz/seeds/$name") \
      -max_total_time="$fuzz_seconds" -rss_limit_mb=4096 -timeout=20 -max_len=65536 -print_final_stats=1 \
      -artifact_prefix="build/fuzz/$name-" >"build/fuzz/$name.log" 2>&1
  }
  # All at once, each for its 30 s: they share the cores.
  for name in gguf safetensors tokenizer_json chat_template request_json; do
    run_fuzzer "$name" & pids+=($!); names+=("$name")
  done
  for i in "${!pids[@]}"; do
    if wait "${pids[$i]}"; then
      echo "fuzz ${names[$i]}: $(grep -oE 'stat::number_of_executed_units: [0-9]+' "build/fuzz/${names[$i]}.log")"
    else
      failed=1
      echo "fuzz ${names[$i]}: FAILED"
      tail -n 60 "build/fuzz/${names[$i]}.log"
    fi
  done
  return $failed
}

part_pytest() {
  configure_and_build release --target quire golden_logits || return 1
  local venv=build/venv
  if ! cmp -s tests/python/requirements.txt "$venv/requirements.txt"; then
    python3 -m venv "$venv" && "$venv/bin/pip" install -q --disable-pip-version-check -r tests/python/requirements.txt &&
      cp tests/python/requirements.txt "$venv/requirements.txt" || return 1
  fi
  # Side by side: the tests of the server and of downloads mostly wait, those of real models compute all the time, and
  # are nice to the others, in which clocks run.
  local failed=0 tests=tests/python
  local pytest=("$venv/bin/python" -m pytest -q -rs -p no:cacheprovider)
  "${pytest[@]}" $tests/test_pull.py >build/pytest-pull.log 2>&1 &
  local pull=$!
  "${pytest[@]}" $tests --ignore $tests/test_pull.py --ignore $tests/test_real_models.py >build/pytest-server.log 2>&1 &
  local server=$!
  nice -n 5 "${pytest[@]}" $tests/test_real_models.py || failed=1
  wait $pull || failed=1
  wait $server || failed=1
  cat build/pytest-pull.log build/pytest-server.log
  return $failed
}

mkdir -p build
passed=0 failed=0 failures=()
for part in "${parts[@]}"; do
  echo "== $part"
  start=$SECONDS
  if "part_$part"; then
    passed=$((passed + 1))
    echo "== $part: ok, $((SECONDS - start)) s"
  else
    failed=$((failed + 1))
    failures+=("$part")
    echo "== $part: FAILED, $((SECONDS - start)) s"
  fi
done
[ $failed -eq 0 ] || echo "failed parts: ${failures[*]}"
echo "$passed passed, $failed failed"
[ $failed -eq 0 ]
