# SPDX-License-Identifier: Apache-2.0
#
# Functions for tools/quickstart and tools/check, which source this file. All messages go to stderr, so that
# the last line of stdout is the script's result.

MM_PACKAGES="$(dirname "${BASH_SOURCE[0]}")/packages"

say() { printf '%s\n' "$*" >&2; }
die() { say "${0##*/}: $*"; exit 1; }
usage_error() { say "${0##*/}: $*; try --help"; exit 2; }

# loud COMMAND...: prints the command, and runs it with its output on stderr.
loud() {
	say "+ $*"
	"$@" >&2
}

# loud_run COMMAND...: prints the command, and runs it with its stdout unchanged.
loud_run() {
	say "+ $*"
	"$@"
}

# packages_of SECTION...: prints the packages of these sections of tools/packages, one per line.
packages_of() {
	local section
	for section in "$@"; do
		sed -n "/^\[$section]\$/,/^\[/{/^[a-z0-9]/p}" "$MM_PACKAGES"
	done
}

missing_packages() {
	local package
	for package in "$@"; do
		[[ $(dpkg-query -W -f '${db:Status-Abbrev}' "$package" 2>/dev/null) == ii* ]] ||
			printf '%s\n' "$package"
	done
}

# install_packages SECTION...: installs packages that are missing, from Debian's own archive.
install_packages() {
	local wanted=() missing=() as_root=()
	command -v dpkg-query >/dev/null || die "no dpkg here: this installs on Debian 12 only;" \
		"install what tools/packages lists yourself, then use --no-install"
	mapfile -t wanted < <(packages_of "$@")
	mapfile -t missing < <(missing_packages "${wanted[@]}")
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
