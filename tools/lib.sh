# SPDX-License-Identifier: Apache-2.0
#
# What tools/quickstart and tools/check share. Sourced, never run. All talk goes to stderr, so that the
# last line of stdout stays what the script promises.

MM_PACKAGES_BUILD=(build-essential cmake ninja-build pkg-config git ca-certificates
	liburing-dev libnuma-dev libjansson-dev libopenblas-dev libseccomp-dev)
MM_PACKAGES_CHECK=(clang clang-format libclang-rt-14-dev libcmocka-dev python3 python3-pytest
	gnuplot-nox)

say() { printf '%s\n' "$*" >&2; }
die() { say "${0##*/}: $*"; exit 1; }
usage_error() { say "${0##*/}: $*; try --help"; exit 2; }

# loud COMMAND...: shows the command, runs it with its output on stderr.
loud() {
	say "+ $*"
	"$@" >&2
}

# loud_run COMMAND...: the same, but its stdout is ours.
loud_run() {
	say "+ $*"
	"$@"
}

missing_packages() {
	local package
	for package in "$@"; do
		[[ $(dpkg-query -W -f '${db:Status-Abbrev}' "$package" 2>/dev/null) == ii* ]] ||
			printf '%s\n' "$package"
	done
}

# install_packages PACKAGE...: from Debian's own archive, only what is not there yet.
install_packages() {
	local missing=() as_root=()
	command -v dpkg-query >/dev/null || die "no dpkg here: this installs on Debian 12 only;" \
		"install what tools/lib.sh names yourself, then use --no-install"
	mapfile -t missing < <(missing_packages "$@")
	if ((${#missing[@]} == 0)); then
		say "packages: nothing to install"
		return
	fi
	if ((EUID != 0)); then
		command -v sudo >/dev/null ||
			die "not root and no sudo: as root, run: apt-get install ${missing[*]}"
		as_root=(sudo)
	fi
	loud "${as_root[@]}" apt-get update -q
	loud "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
		apt-get install -q -y --no-install-recommends "${missing[@]}"
}
