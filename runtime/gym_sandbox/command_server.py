"""The first process of a container: a shell that runs one command after the other."""

from __future__ import annotations

SERVER = r"""
export PATH="$2:$PATH" GIT_CONFIG_NOSYSTEM=1 GIT_TERMINAL_PROMPT=0
mkdir -p "$1" && cd "$1" || exit 125
shell=/bin/sh
[ -x /bin/bash ] && shell=/bin/bash
ends() {
  if [ "$(wc -c <"$1")" -le "$keep" ]; then
    head -c "$keep" "$1"
  else
    head -c $((keep / 2)) "$1"
    printf '\n[...]\n'
    tail -c $((keep / 2)) "$1"
  fi | base64 | tr -d '\n'
}
echo ready
while read -r limit keep input script; do
  room=$(mktemp -d) || room=/nowhere
  head -c "$input" >"$room/in"
  head -c "$script" >"$room/script"
  if [ "$(wc -c <"$room/script")" = "$script" ] && [ "$(wc -c <"$room/in")" = "$input" ]; then
    timeout -s KILL "$limit" "$shell" "$room/script" <"$room/in" >"$room/out" 2>"$room/err"
    code=$?
  else
    echo "1 0 . $(echo "No space left on device" | base64 | tr -d '\n')."
    rm -rf "$room"
    continue
  fi
  echo "$code" $(($(wc -c <"$room/out") > keep || $(wc -c <"$room/err") > keep)) \
    "$(ends "$room/out")." "$(ends "$room/err")."
  rm -rf "$room"
done 2>/dev/null
"""
