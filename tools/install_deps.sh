#!/usr/bin/env bash
# Installs the packages of tools/apt_packages.txt that are missing. Quick and silent when all are there.
set -euo pipefail
cd "$(dirname "$0")/.."
mapfile -t packages < <(grep -vE '^\s*(#|$)' tools/apt_packages.txt)
missing=()
for package in "${packages[@]}"; do
  status=$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null || true)
  [ "$status" = installed ] || missing+=("$package")
done
[ ${#missing[@]} -eq 0 ] && exit 0
if ! command -v apt-get >/dev/null; then
  echo "install_deps: this is not a Debian system; install the counterparts of: ${missing[*]}" >&2
  exit 1
fi
as_root=""
if [ "$(id -u)" -ne 0 ]; then
  command -v sudo >/dev/null || { echo "install_deps: run as root once to install: ${missing[*]}" >&2; exit 1; }
  as_root="sudo"
fi
echo "install_deps: installing ${#missing[@]} packages: ${missing[*]}"
$as_root apt-get update -qq
DEBIAN_FRONTEND=noninteractive $as_root apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
