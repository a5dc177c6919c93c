# Sourced by scripts/demo and scripts/test. Everything that they make lies in .specctl/ of this checkout.
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
WORK="$ROOT/.specctl"

say() { printf '== %s\n' "$*" >&2; }

die() { printf '%s: %s\n' "$(basename "$0")" "$*" >&2; exit 1; }

find_python() {
  local candidate
  for candidate in ${PYTHON:-} python3 python3.13 python3.12 python3.11; do
    if command -v "$candidate" >/dev/null 2>&1 &&
      "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
      command -v "$candidate"
      return
    fi
  done
  die "no Python 3.11 or newer on PATH. Install one, or name it: PYTHON=/path/to/python3 $0"
}

# make_console NAME LOCK: the environment .specctl/NAME with exactly the packages of LOCK and this checkout; sets VENV.
make_console() {
  local lock="$2" python stamp want
  VENV="$WORK/$1"
  python=$(find_python)
  want="$(cksum <"$lock") $(cksum <"$ROOT/pyproject.toml") $("$python" -V 2>&1) $ROOT"
  stamp="$VENV/.made-from"
  if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$want" ]; then return; fi
  "$python" -c 'import ensurepip, venv' 2>/dev/null ||
    die "$python has no venv module. On Debian or Ubuntu: apt-get install python3-venv"
  say "making the console's environment (about 150 MB, under a minute)"
  mkdir -p "$WORK"
  rm -f "$stamp"
  "$python" -m venv --clear "$VENV"
  "$VENV/bin/python" -m pip install -q --disable-pip-version-check --require-hashes -r "$lock" ||
    die "the console's packages could not be installed; see pip's message above, then run this again"
  "$VENV/bin/python" -m pip install -q --disable-pip-version-check --no-deps -e "$ROOT" ||
    die "this checkout could not be installed into $VENV; see pip's message above"
  printf '%s' "$want" >"$stamp"
}

# make_engine [options]: the engine's virtual environment (SGLang on CPU); prints its folder. Finished steps are not done again.
make_engine() {
  "$VENV/bin/specctl" engine install --cpu "$@"
}
