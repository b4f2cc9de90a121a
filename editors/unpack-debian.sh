#!/usr/bin/env bash
# Unpack one program of a later Debian suite, with all that it needs, into a folder of its own.
#
#   unpack-debian.sh [--only PATTERN] PACKAGE SUITE FOLDER PROGRAM...
#
# With --only the package and those of its dependencies whose names match the pattern, as they are: for packages that hold no
# programs.
#
# For trying editors that this machine's suite is too old for. Neither the system's packages nor its apt lists are touched, and
# root is not needed: apt works on private lists. The mirror is the one that the machine's own apt sources name. Programs are
# pointed at the unpacked C library (patchelf), because an editor that starts itself again cannot be run through a loader.
set -euo pipefail

die() { echo "unpack-debian: $*" >&2; exit 1; }
only=
if [[ ${1:-} == --only ]]; then only=$2; shift 2; fi
(( $# >= 4 || ($# == 3 && ${#only} > 0) )) || die "usage: unpack-debian.sh [--only PATTERN] PACKAGE SUITE FOLDER PROGRAM..."
package=$1 suite=$2 folder=$3
shift 3
command -v apt-get dpkg-deb >/dev/null || die "needs apt; on another system install $package by its own means"

mirror=$(apt-get indextargets --format '$(ORIGIN)|$(LABEL)|$(REPO_URI)' 'Created-By: Packages' |
  awk -F'|' '$1 == "Debian" && $2 == "Debian" {print $3; exit}')
[[ -n $mirror ]] || die "apt's sources name no Debian mirror (or its lists are empty: apt-get update)"
keyring=/usr/share/keyrings/debian-archive-keyring.gpg
[[ -r $keyring ]] || die "needs $keyring (package debian-archive-keyring)"

mkdir -p "$folder"/{apt/lists/partial,apt/archives/partial,root}
folder=$(cd "$folder" && pwd)
apt=$folder/apt root=$folder/root
: >"$apt/status"
echo "deb [signed-by=$keyring] $mirror $suite main" >"$apt/sources.list"
private=(
  -o Dir::State="$apt" -o Dir::State::lists="$apt/lists" -o Dir::State::status="$apt/status"
  -o Dir::Cache="$apt" -o Dir::Etc::sourcelist="$apt/sources.list" -o Dir::Etc::sourceparts=/dev/null
  -o Dir::Etc::preferences=/dev/null -o Dir::Etc::preferencesparts=/dev/null
  -o APT::Sandbox::User=root -o APT::Install-Recommends=false -o Acquire::Languages=none -o Debug::NoLocking=1
)
apt-get "${private[@]}" -qq update
if [[ -n $only ]]; then
  mapfile -t wanted < <(apt-cache "${private[@]}" depends --recurse --important "$package" |
    grep -oE '^[a-z0-9][a-z0-9.+-]*' | grep -E "$only" | sort -u)
  (cd "$apt/archives" && apt-get "${private[@]}" -qq download "$package" "${wanted[@]}")
else
  # With an empty list of installed packages apt fetches everything the program needs, its C library included.
  apt-get "${private[@]}" -qq --yes --download-only install "$package" >/dev/null
fi
for deb in "$apt"/archives/*.deb; do dpkg-deb -x "$deb" "$root"; done
if [[ -n $only ]]; then
  dpkg-deb -f "$apt"/archives/"$package"_*.deb Version
  exit
fi

patchelf=$(command -v patchelf || true)
if [[ -z $patchelf ]]; then
  (cd "$apt" && apt-get -qq download patchelf >/dev/null && dpkg-deb -x patchelf_*.deb "$folder/patchelf")
  patchelf=$folder/patchelf/usr/bin/patchelf
fi
loader=$(find "$root" -name 'ld-linux-*.so.*' -path '*-linux-gnu*' -type f,l -print -quit)
[[ -n $loader ]] || die "no dynamic loader among the packages of $package"
# Suites before the merge of /lib into /usr have libraries in both.
libraries=$(find "$root" -name '*.so*' -path '*-linux-gnu*' ! -path '*/gconv/*' -printf '%h\n' | sort -u | paste -sd:)
for program in "$@"; do
  file=$root/$program
  [[ -x $file ]] || die "$package of $suite has no $program"
  "$patchelf" --set-interpreter "$loader" --force-rpath --set-rpath "$libraries" "$file"
done
dpkg-deb -f "$apt"/archives/"$package"_*.deb Version
