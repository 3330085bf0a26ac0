#!/bin/bash
# Fails if a kernel file for an instruction set defines a symbol that the linker may share between files (weak or
# unique): an inline function compiled for AVX-512 there could replace the copy that the rest of the program uses
# on a machine without it. Compiled at -O0, because at -O2 such functions are inlined and the check passes by luck.
#   tools/check_isa_symbols.sh [source...]     default: all *_avx2.cc, *_avx512*.cc and *_amx.cc under src/
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
compiler=${CXX:-g++}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

if [ $# -gt 0 ]; then
  sources=("$@")
else
  mapfile -t sources < <(find "$root/src" -name '*_avx2.cc' -o -name '*_avx512.cc' -o -name '*_avx512bf16.cc' -o -name '*_amx.cc' |
    sort)
fi
if [ ${#sources[@]} -eq 0 ]; then
  echo "check_isa_symbols: no kernel files found under $root/src" >&2
  exit 1
fi

# The flags of cmake/room.cmake.
avx2="-mavx2 -mfma -mf16c"
avx512="$avx2 -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx512vnni"
failed=0
for source in "${sources[@]}"; do
  case $source in
    *_amx.cc) flags="$avx512 -mavx512bf16 -mamx-tile -mamx-int8 -mamx-bf16" ;;
    *_avx512bf16.cc) flags="$avx512 -mavx512bf16" ;;
    *_avx512.cc) flags=$avx512 ;;
    *_avx2.cc) flags=$avx2 ;;
    *) echo "check_isa_symbols: $source has no instruction set in its name" >&2; exit 1 ;;
  esac
  # shellcheck disable=SC2086  # the flags are words
  "$compiler" -std=c++20 -O0 -I"$root/src" -I"$root/include" $flags -c "$source" -o "$work/kernel.o"
  # DW.ref.__gxx_personality_v0 is a pointer of the exception tables, the same in every file: not code.
  shared=$(nm --defined-only -C "$work/kernel.o" |
    awk '$2 ~ /^[WwVvu]$/ && $3 != "DW.ref.__gxx_personality_v0"')
  if [ -n "$shared" ]; then
    echo "check_isa_symbols: ${source#"$root"/} defines symbols that another file's may be replaced by:" >&2
    echo "$shared" >&2
    failed=1
  fi
done
[ $failed -eq 0 ] && echo "check_isa_symbols: ${#sources[@]} kernel files define no shared symbol"
exit $failed
