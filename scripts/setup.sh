#!/bin/bash
# Installs quantify (not editable: the native module would be lost) into a virtual environment: setup.sh FOLDER [EXTRA].
# What the system lacks comes from apt when root, else the command is printed. PYTHON=... chooses the interpreter.
set -euo pipefail
venv=$1
extra=${2:+[$2]}
cd "$(dirname "$0")/.."

# 3.14 and later are left out: the counters have no wheels for them. Free-threaded builds do not load stable-ABI modules.
fits() {
    command -v "$1" >/dev/null && "$1" - >/dev/null 2>&1 <<'EOF'
import sys, sysconfig
sys.exit(not ((3, 11) <= sys.version_info < (3, 14)) or bool(sysconfig.get_config_var("Py_GIL_DISABLED")))
EOF
}

# Whether packages with C code can be built with this interpreter.
complete() {
    fits "$1" && "$1" - >/dev/null 2>&1 <<'EOF'
import ensurepip, os, sys, sysconfig, venv
sys.exit(not os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")))
EOF
}

choose() {
    local candidate
    for candidate in ${PYTHON:-python3 python3.13 python3.12 python3.11}; do
        if "$1" "$candidate"; then echo "$candidate"; return; fi
    done
}

python=$(choose complete)
if [ -z "$python" ] || ! command -v gcc >/dev/null; then
    packages="python3 python3-venv python3-dev gcc libc6-dev"
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        echo "setup: installing $packages" >&2
        apt-get update -qq
        DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $packages ca-certificates >&2
        python=$(choose complete)
    else
        echo "setup: Python 3.11 to 3.13 with its headers and gcc are needed: sudo apt-get install $packages" >&2
        exit 2
    fi
fi
if [ -z "$python" ]; then
    echo "setup: no Python from 3.11 to 3.13 with venv and headers was found; name one: make PYTHON=/path/to/python3.13 …" >&2
    exit 2
fi

fits "$venv/bin/python" || { rm -rf "$venv"; "$python" -m venv "$venv"; }
echo "setup: installing quantify$extra into $venv" >&2
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check ".$extra"

# The tests open the HTML pages in a browser.
if [ "${2:-}" = dev ] && ! command -v chromium >/dev/null; then
    packages="chromium fonts-dejavu-core"
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        echo "setup: installing $packages" >&2
        apt-get update -qq
        DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $packages >&2
    else
        echo "setup: the tests of the pages need Chromium: sudo apt-get install $packages" >&2
    fi
fi
