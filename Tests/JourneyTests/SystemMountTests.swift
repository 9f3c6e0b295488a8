import Base
import Glibc
import TestSupport
import Testing

/// As a system mounts: mount(8) and fstab(5), through mount.mediafs, by root. In a mount namespace of its own, whose
/// /sbin has the helper and whose /var/lib is empty: nothing of the machine is changed.
@Suite struct SystemMountTests {
  @Test func mountAndFstab() throws {
    guard TestUser.canSwitch else { return }  // mount(8) is root's
    try withJourney { journey in
      try withOrigin { origin in
        origin.add("/a.mp4", size: 100_000)
        try journey.original("a.mp4", size: 100_000)
        try journey.list(origin.url("/a.mp4") + "\n")
        let user = try SharedTraveller.user()
        try journey.folder.write(
          "\(journey.manifest) \(journey.mountpoint) mediafs allow_other,store=/var/lib/x,_netdev,nofail,noauto,x-test=1,"
            + "on=complete\\040touch\\040'\(journey.folder.path)/told\\,\\040and\\040more' 0 0\n",
          to: "fstab")
        try journey.folder.write(script, to: "script")
        let output = try journey.succeed([
          "unshare", "--mount", "--propagation", "private", "bash", journey.folder.file("script"), journey.folder.path,
          try Programs.path(""), repository, user.name,
        ])
        #expect(
          output == """
            mount: fuse.mediafs
            the same
            store at /var/lib/media-store
            unmounted
            fstab: fuse.mediafs
            the same
            a program told, and more
            without HOME: store at /var/lib/x
            others may read
            unmounted
            a user's server: mediafs-journey
            nodev,nosuid
            the same
            unmounted
            refused: no-such-option
            nothing is mounted

            """)
      }
    }
  }

  /// The repository's folder.
  private var repository: String {
    #filePath.split(separator: "/").dropLast(3).reduce("") { "\($0)/\($1)" }
  }
}

private let script = #"""
  set -euo pipefail
  # Not the mounts of the tests that run beside this one: their servers would go on.
  umount --all --lazy --no-canonicalize --types fuse.mediafs || true
  work=$1 programs=$2 repository=$3 user=$4
  manifest=$work/urls.txt media=$work/media
  ln -s "$programs" "$work/built"
  "$repository/Scripts/install-files" install "$work/built" "$work/prefix" "" >/dev/null

  # An /sbin that has the helper, and the system's other programs.
  mkdir "$work/sbin" "$work/system" "$work/var"
  real=$(realpath /sbin)
  mount --bind "$real" "$work/system"
  for program in "$work/system"/*; do ln -s "$program" "$work/sbin/"; done
  rm -f "$work/sbin/mount.mediafs"
  ln -s "$work/prefix/sbin/mount.mediafs" "$work/sbin/mount.mediafs"
  mount --bind "$work/sbin" "$real"
  mount --bind "$work/var" /var/lib

  type() { findmnt -n -o FSTYPE "$media"; }
  server() { awk -F= '$1 == "process" { print $2 }' "$1/lock"; }
  end() {
    local process
    process=$(server "$1")
    umount "$media"
    for _ in {1..600}; do [ -e "/proc/$process" ] || break; sleep 0.1; done
    [ -e "/proc/$process" ] && echo "process $process still runs"
    echo unmounted
  }
  same() { cmp "$media/a.mp4" "$work/originals/a.mp4" && echo the same; }

  mount -t mediafs "$manifest" "$media" -o allow_other,store=/var/lib/media-store
  echo "mount: $(type)"
  same
  [ -e /var/lib/media-store/catalog.sqlite ] && echo store at /var/lib/media-store
  end /var/lib/media-store

  env -i PATH="$PATH" TMPDIR="${TMPDIR:-/tmp}" mount -T "$work/fstab" "$media"
  echo "fstab: $(type)"
  same
  for _ in {1..300}; do [ -e "$work/told, and more" ] && break; sleep 0.1; done
  [ -e "$work/told, and more" ] && echo a program told, and more
  [ -e /var/lib/x/catalog.sqlite ] && echo without HOME: store at /var/lib/x
  setpriv --reuid "$user" --clear-groups cat "$media/a.mp4" >/dev/null && echo others may read
  end /var/lib/x

  mkdir -m 700 "$work/theirs"
  chown "$user" "$work/theirs"
  mount -t mediafs "$manifest" "$media" -o "allow_other,store=$work/theirs/store,user=$user"
  echo "a user's server: $(ps -o user:32= -p "$(server "$work/theirs/store")")"
  findmnt -n -o VFS-OPTIONS "$media" | tr , '\n' | grep -xE 'suid|dev|nosuid|nodev' | sort | paste -sd ,
  same
  end "$work/theirs/store"

  if mount -t mediafs "$manifest" "$media" -o no-such-option 2>"$work/errors"; then
    end /var/lib/media-store
  else
    grep -o "no-such-option" "$work/errors" | head -1 | sed 's/^/refused: /'
  fi
  mountpoint -q "$media" || echo nothing is mounted
  """#
