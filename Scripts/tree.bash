# Sourced by the scripts that try mediafs in a bare Debian: a tree made by debootstrap, in namespaces of its own, which end
# with all that runs and all that is mounted in them.
#   MIRROR  the mirror, if not the one that apt has here

fail() {
  printf '%s: %s\n' "${0##*/}" "$*" >&2
  exit 1
}
say() { printf '\n== %s\n' "$*"; }

# Sets and exports MIRROR and http_proxy.
find_mirror() {
  local codename
  if [ -z "${MIRROR:-}" ]; then
    codename=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
    MIRROR=$(apt-get indextargets --format '$(RELEASE) $(COMPONENT) $(REPO_URI)' 'Created-By: Packages' 2>/dev/null \
      | awk -v release="$codename" '$1 == release && $2 == "main" && $3 ~ /debian/ { print $3; exit }' || true)
  fi
  export MIRROR=${MIRROR:-http://deb.debian.org/debian}
  export http_proxy=${http_proxy:-$(apt-config dump --format '%v%n' Acquire::http::Proxy 2>/dev/null || true)}
}

# What apt needs in the tree to reach the mirror: the proxy, the authorities for https, the names of /etc/hosts.
configure_apt() {
  local tree=$1 configuration=$1/etc/apt/apt.conf.d/80bare authorities=/etc/ssl/certs/ca-certificates.crt
  cp /etc/hosts "$tree/etc/hosts"
  [ -z "$http_proxy" ] || echo "Acquire::http::Proxy \"$http_proxy\";" >>"$configuration"
  [ "${MIRROR%%:*}" != https ] || {
    cp "$authorities" "$tree/etc/apt/bare.crt"
    echo 'Acquire::https::CaInfo "/etc/apt/bare.crt";' >>"$configuration"
  }
}

# Devices of its own: what a program leaves in /dev/shm must not stay behind.
mount_devices() {
  local dev=$1 device
  mount -t tmpfs -o mode=755 none "$dev"
  mkdir "$dev/net"
  for device in null zero full random urandom tty fuse net/tun; do
    [ -e "/dev/$device" ] || continue
    touch "$dev/$device"
    mount --bind "/dev/$device" "$dev/$device"
  done
  mkdir "$dev/pts" "$dev/shm"
  mount -t devpts -o newinstance,ptmxmode=666,mode=620 none "$dev/pts"
  mount -t tmpfs -o mode=1777 none "$dev/shm"
  ln -s pts/ptmx "$dev/ptmx"
  ln -s /proc/self/fd "$dev/fd"
  ln -s fd/0 "$dev/stdin"
  ln -s fd/1 "$dev/stdout"
  ln -s fd/2 "$dev/stderr"
}

# make_tree TREE RELEASE PROGRAMS: a bare Debian in TREE, with the packages PROGRAMS beside it; as the first process of the
# namespaces.
make_tree() {
  local tree=$1 release=$2 programs=$3
  # This namespace has all mounts of the machine too, and would hold those that are unmounted outside.
  umount --all --lazy --types fuse.mediafs || true # without any, or with one that went by itself, it says so
  # A folder of temporary files may be mounted with nosuid or nodev: a system is not.
  mount --bind "$tree" "$tree"
  mount -o remount,bind,suid,dev,exec "$tree"
  say "Debian $release from $MIRROR"
  debootstrap --variant=minbase --include="$programs" "$release" "$tree" "$MIRROR" >"$tree.log" 2>&1 \
    || { tail -20 "$tree.log" >&2; fail 'debootstrap failed'; }
  configure_apt "$tree"
}

# enter_tree TREE: the tree becomes the root of the caller, who goes on in it.
enter_tree() {
  local tree=$1
  mount -t proc none "$tree/proc"
  mount --rbind /sys "$tree/sys"
  mount_devices "$tree/dev"
  # Every Debian that boots gets it, from systemd.
  ln -s ../proc/self/mounts "$tree/etc/mtab"
  cd "$tree"
  pivot_root . mnt
  umount -l /mnt
  hash -r
}

# The folder of the caller's files, the namespaces that run, and the server.
work=
namespaces=
server=
clean() {
  local first
  trap '' INT TERM HUP
  if [ -n "$namespaces" ]; then
    # The first process of a PID namespace takes all others with it, and is gone when the last of them is.
    first=$(cat "/proc/$namespaces/task/$namespaces/children" 2>/dev/null || true)
    disown "$namespaces" # its end is no news
    kill -KILL "$namespaces" $first 2>/dev/null || true
    for _ in {1..100}; do [ -e "/proc/${first:-none}" ] || break; sleep 0.1; done
  fi
  [ -z "$server" ] || kill "$server" || true
  rm -rf --one-file-system "$work"
}

# begin_work: makes $work, with the folders tree and origin, and sees to it that it goes with all that was begun.
begin_work() {
  work=$(mktemp -d "${TMPDIR:-/tmp}/mediafs-${0##*/}.XXXXXX")
  trap clean EXIT
  trap 'exit 129' HUP
  trap 'exit 130' INT
  trap 'exit 143' TERM
  mkdir "$work/origin" "$work/tree"
}

# serve COMMAND...: starts a server that says on which port it serves as Python's does. Sets $url.
serve() {
  local port
  # A process group each: ^C is for this script, which ends them.
  set -m
  : >"$work/server.log"  # it is read before the server has begun
  "$@" >"$work/server.log" 2>&1 </dev/null &
  server=$!
  disown "$server"
  for _ in {1..100}; do
    port=$(sed -n 's/^Serving HTTP on .* port \([0-9]*\).*/\1/p' "$work/server.log")
    [ -z "$port" ] || break
    sleep 0.1
  done
  [ -n "$port" ] || { cat "$work/server.log" >&2; fail 'the server of the list did not start'; }
  url=http://127.0.0.1:$port
}

# in_namespaces COMMAND...: runs it as the first process of its own namespaces of mounts and processes.
in_namespaces() {
  local status=0
  unshare --mount --pid --fork --mount-proc --kill-child "$@" </dev/null &
  namespaces=$!
  wait "$namespaces" || status=$?
  namespaces=
  return $status
}
