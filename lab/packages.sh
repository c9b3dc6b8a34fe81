#!/bin/sh
# Installs what the machine needs for the lab. Does nothing, and asks no server, when all is there.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
wanted=$(sed -e 's/#.*//' -e '/^[[:space:]]*$/d' "$here/apt-packages.txt" "$@")

missing() {
    for package in $wanted; do
        state=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || printf 'absent')
        [ "$state" = installed ] || printf '%s ' "$package"
    done
}

need=$(missing)
if [ -z "$need" ]; then
    echo "packages: all there"
    exit 0
fi
if [ "$(id -u)" -ne 0 ]; then
    echo "packages: missing: $need; run as root, or: apt-get install $need" >&2
    exit 1
fi

export DEBIAN_FRONTEND=noninteractive
get() { apt-get -q -o DPkg::Lock::Timeout=300 -o Acquire::Retries=3 -o Dpkg::Use-Pty=0 "$@"; }

# A vendor's unit must not start on the machine because the lab needs its programs.
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
    trap 'rm -f "$policy"' EXIT
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    chmod 755 "$policy"
fi

echo "packages: installing $need"
log=$(mktemp)
# shellcheck disable=SC2086  # a list of names
if ! get install -y --no-install-recommends $need >"$log" 2>&1; then
    # Perhaps the lists are old or absent. An unreachable third-party source makes `update` fail although
    # Debian's own lists arrived, so the install that follows is what decides.
    echo "packages: refreshing the package lists"
    get update >"$log" 2>&1 || echo "packages: some sources did not answer; trying with those that did"
    # shellcheck disable=SC2086
    if ! get install -y --no-install-recommends $need >>"$log" 2>&1; then
        tail -n 20 "$log" >&2
        echo "packages: apt could not install: $need" >&2
        echo "packages: next: apt-get update, and see that Debian's own source answers" >&2
        rm -f "$log"
        exit 1
    fi
fi
rm -f "$log"
left=$(missing)
if [ -n "$left" ]; then
    echo "packages: still missing after the installation: $left" >&2
    exit 1
fi
echo "packages: installed"
